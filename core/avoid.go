package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// This file decides which of the nodes on which a job failed are closed to it. A job must not wait for a day because it avoids the only
// nodes that hold it: the oldest of what it avoids is dropped while the other nodes, if they were empty, would not hold it. The record
// stays, and closes the node again when others can hold the job (ADR 0024).

// avoided is a node where a job does not start before a time, unless that is dropped.
type avoided struct {
	node    cluster.NodeID
	until   Time
	dropped bool
}

// avoids lists the nodes where a job does not start.
func (r *recoveries) avoids(j *job) []cluster.NodeID {
	if len(r.jobs) == 0 || r.jobs[j.Name] == nil {
		return nil
	}
	var out []cluster.NodeID
	for _, a := range r.jobs[j.Name].avoids {
		if !a.dropped {
			out = append(out, a.node)
		}
	}
	return out
}

// avoid keeps a job off a node until a time, and reports whether it could start there so far.
func (r *recoveries) avoid(f *failures, id cluster.NodeID, until Time) bool {
	f.stale, r.stale, r.until = true, true, min(r.until, until)
	if k := slices.IndexFunc(f.avoids, func(a avoided) bool { return a.node == id }); k >= 0 {
		f.avoids[k].until = until
		return false
	}
	f.avoids = append(f.avoids, avoided{node: id, until: until})
	return true
}

// reshaped handles a job that is new, or has other pods than before: other nodes may hold it.
func (r *recoveries) reshaped(j *job) {
	if len(r.jobs) > 0 && r.jobs[j.Name] != nil {
		r.jobs[j.Name].stale, r.stale = true, true
	}
}

// weighAll determines again what is dropped, if nodes or jobs have changed, and files the jobs again that may start elsewhere than before.
func (r *recoveries) weighAll(now Time) {
	nodes := r.seen != r.changes.offered
	if r.seen = r.changes.offered; r.until == Never || !nodes && !r.stale {
		return
	}
	r.stale = false
	var names []string
	for name, f := range r.jobs {
		if len(f.avoids) > 0 && (nodes || f.stale) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		j := r.Engine.jobs.byName[name]
		if j == nil {
			continue // it is weighed when it comes back
		}
		switch closed, opened := r.weigh(j, r.jobs[name]); {
		case closed: // plans for it may count on the node
			r.refile(now, j)
		case opened:
			r.waiting.dequeue(j)
			r.waiting.enqueue(j, now)
		}
	}
}

// weigh determines which of the nodes that a job avoids are dropped: the oldest, by the end of their time and then as they were found, while
// the other nodes would not hold the job. If all of them together do not help, none is. It reports whether it closed nodes to the job, and
// whether it opened some.
func (r *recoveries) weigh(j *job, f *failures) (closed, opened bool) {
	f.stale = false
	order := make([]int, len(f.avoids))
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(f.avoids[a].until, f.avoids[b].until) })
	kept := make([]cluster.NodeID, len(order))
	for k, i := range order {
		kept[k] = f.avoids[i].node
	}
	u, dropped := r.units.afresh(j), 0
	for !r.placer.HoldsWithout(&u, kept[dropped:]) {
		if dropped++; dropped > len(kept) {
			dropped = 0
			break
		}
	}
	for k, i := range order {
		a := &f.avoids[i]
		is := k < dropped
		closed, opened = closed || a.dropped && !is, opened || !a.dropped && is
		a.dropped = is
	}
	return closed, opened
}

// afresh describes a job to the placer as if no pod of it ran: a gang with the minimum of each task.
func (us *units) afresh(j *job) place.Unit {
	u := place.Unit{
		Job: j.slot, Whole: j.Gang, Inference: j.Kind == Inference, Exclusive: us.policy.Zone.Exclusive,
		Required: levelOf(us.state, j.Topology.Required), Preferred: -1, OneModel: j.Gang,
	}
	for t := range j.Tasks {
		task := &j.Tasks[t]
		n := task.Pods
		if j.Gang {
			n = task.Minimum()
		}
		u.Tasks = append(u.Tasks, place.Task{Shape: us.shape(j, &task.Request), Pods: make([]int32, n)})
	}
	return u
}

// whereAgain says of the suspects of a failure where its job does not start again, and where it does, although it failed there.
func (r *recoveries) whereAgain(f *failures, suspects []cluster.NodeID) string {
	var off, on []string
	for _, id := range suspects {
		name := r.state.Node(id).Spec.Name
		if k := slices.IndexFunc(f.avoids, func(a avoided) bool { return a.node == id }); k >= 0 && f.avoids[k].dropped {
			on = append(on, name)
		} else {
			off = append(off, name)
		}
	}
	text := ""
	if off != nil {
		text += fmt.Sprintf(", not on %s for %s", strings.Join(off, ", "), durationText(r.policy.Recovery.Window))
	}
	if on != nil {
		text += fmt.Sprintf(", also on %s, as %s", strings.Join(on, ", "), noOther)
	}
	return text
}

// noOther is why a node is not avoided.
const noOther = "the other nodes would not hold it if they were empty"

// text says which nodes a job avoids, and which it does not although it failed there; "" if none.
func (r *recoveries) text(j *job) string {
	if len(r.jobs) == 0 || r.jobs[j.Name] == nil {
		return ""
	}
	said := ""
	for _, a := range r.jobs[j.Name].avoids {
		name := r.state.Node(a.node).Spec.Name
		if a.dropped {
			said += fmt.Sprintf("; it may start on node %s, where it failed, as %s", name, noOther)
		} else {
			said += fmt.Sprintf("; it avoids node %s, where it failed, for %s", name, remainder(a.until-r.now))
		}
	}
	return said
}
