package coretest

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core"
)

// roomPlan is a plan by which pods go elsewhere for a job: until an event upsets it, the job
// and all of those pods run once they have left their places. By the same plan, others may be
// evicted.
type roomPlan struct {
	job            *job
	starts, upsets int
	// to is where the pods go that were named, if the restart was requested.
	to        map[int]destination
	restarted []member
	moved     []member
	evicted   []member
	// wave is the last pass in which pods were told to move.
	wave int
}

type member struct {
	job *job
	pod int
}

func (m member) state() *pod { return &m.job.pods[m.pod] }

// current reports whether a job has not started yet by the plan. In the pass in which it does, the
// next plan for it, for other pods, may be made.
func (p *roomPlan) current(f *job) bool { return p.job == f && p.starts == f.starts }

// room returns the current plan for a job, a new one if it has none, or an event has upset it.
func (w *Twin) room(f *job) *roomPlan {
	for _, p := range w.rooms {
		if p.current(f) && p.to == nil && p.upsets == w.upsets {
			return p
		}
	}
	p := &roomPlan{job: f, starts: f.starts, upsets: w.upsets}
	w.rooms = append(w.rooms, p)
	return p
}

// restart checks that pods may stop and start again elsewhere for a job, beyond what holds for
// all evictions, and notes it.
func (w *Twin) restart(j, f *job, d *core.Decision) error {
	switch {
	case w.policy.Room.MaxMoves == 0 || !w.policy.Room.Restarts:
		return fmt.Errorf("for %s, though the policy lets no job restart", f.Name)
	case j.Class < f.Class || j.Class == f.Class && j.Priority > f.Priority:
		return fmt.Errorf("for %s, which ranks lower", f.Name)
	}
	p := w.room(f)
	for _, at := range d.Pods {
		p.restarted = append(p.restarted, member{j, at.Pod})
	}
	return p.bounded(w)
}

// restartAsked checks that pods may stop and start again elsewhere because that was requested, and
// notes it.
func (w *Twin) restartAsked(j *job, d *core.Decision) error {
	ev, ok := w.asked[j.Name]
	delete(w.asked, j.Name)
	switch {
	case !ok || d.For != "":
		return fmt.Errorf("for %q; requested: %v", d.For, ok)
	case j.Locked && w.protects(j) || j.Foreign || j.disruptionProtected:
		return fmt.Errorf("it must not be moved")
	case j.Gang && len(d.Pods) != j.running() || !j.Gang && len(d.Pods) != len(ev.Pods):
		return fmt.Errorf("%d pods", len(d.Pods))
	}
	p, err := w.restarts(j, d)
	if err != nil {
		return err
	}
	for k, i := range ev.Pods {
		if !slices.ContainsFunc(d.Pods, func(at core.Placement) bool { return at.Pod == i }) {
			return fmt.Errorf("without pod %d", i)
		}
		to := destination{from: j.pods[i].at}
		if ev.Nodes != nil {
			to.node = ev.Nodes[k]
		}
		p.to[i] = to
	}
	return nil
}

// restarts notes that pods of a job, for the good of no other one, are to restart elsewhere.
func (w *Twin) restarts(j *job, d *core.Decision) (*roomPlan, error) {
	p := &roomPlan{job: j, starts: j.starts, upsets: w.upsets, to: map[int]destination{}}
	for _, at := range d.Pods {
		if x := &j.pods[at.Pod]; x.to != nil || x.standby != nil {
			return nil, fmt.Errorf("pod %d is being moved, or is on standby", at.Pod)
		}
		p.restarted = append(p.restarted, member{j, at.Pod})
	}
	w.rooms = append(w.rooms, p)
	j.quotaSet, j.restarts = w.quotaSet, d.Reason
	if w.withinQuota(nil) != nil {
		j.quotaSet = -1 // it keeps the quota that it has, even if its queue owns less by now
	}
	return p, w.stop(j, d)
}

// restartScheduled checks that pods may stop and start again elsewhere so that nodes become free, and
// notes it.
func (w *Twin) restartScheduled(j *job, d *core.Decision, now core.Time) error {
	f := &w.policy.Defrag
	since, settled := w.settled(j, d, now)
	switch {
	case f.Every == 0 || f.Restarts == core.NoRestarts || f.Restarts == core.LPRestarts && j.Class == core.HP:
		return fmt.Errorf("%v, which the policy does not allow", j.Class)
	case d.For != "":
		return fmt.Errorf("for %s", d.For)
	case j.Checkpoint == 0 || j.NeverRestarts || (j.Locked || j.NotPreemptible) && w.protects(j) || j.Foreign || j.disruptionProtected:
		return fmt.Errorf("it does not restart elsewhere")
	case j.Gang && len(d.Pods) != j.running() || f.MaxMoves > 0 && len(d.Pods) > f.MaxMoves:
		return fmt.Errorf("%d pods", len(d.Pods))
	case !settled:
		return fmt.Errorf("it has run since %v only", since)
	}
	if age := j.unsaved(since, now); f.MaxLost > 0 && age > f.MaxLost {
		return fmt.Errorf("it loses the work of %v", age)
	}
	if err := w.pay(len(d.Pods), now); err != nil {
		return err
	}
	p, err := w.restarts(j, d)
	if err == nil {
		for _, at := range d.Pods {
			p.to[at.Pod] = destination{from: at, same: j.Gang}
		}
	}
	return err
}

// destination is where a pod is to restart: on a node or, if that is empty, on any but its own.
type destination struct {
	from core.Placement
	node string
	same bool // or its own
}

// arrives checks where a pod runs that was to restart elsewhere.
func (to destination) arrives(w *Twin, m member) error {
	at := m.state().at
	switch {
	case at.Node == to.from.Node && !to.same || to.node != "" && at.Node != to.node:
		return fmt.Errorf("pod %d of job %s was to restart on %q, away from %s, and runs on %s", m.pod, m.job.Name, to.node, to.from.Node, at.Node)
	case at.GPUs != 0 && w.node(at.Node).Model != w.node(to.from.Node).Model:
		return fmt.Errorf("pod %d of job %s restarts on another model", m.pod, m.job.Name)
	}
	return nil
}

// again notes that pods of a job start again elsewhere, and checks that they do so where that was
// requested. From then on they may be evicted like any others.
func (w *Twin) again(j *job, d *core.Decision) error {
	if asked := d.Reason == core.Requested || d.Reason == core.Defragmentation; asked {
		if j.restarts != d.Reason {
			return fmt.Errorf("it was not to restart")
		}
		j.restarts = core.Placed
	}
	for _, p := range w.rooms {
		if d.Reason == core.Consolidation { // from now on they may be evicted, also in this pass
			p.restarted = slices.DeleteFunc(p.restarted, func(m member) bool { return m.job == j && m.state().state == running })
		}
	}
	at := slices.IndexFunc(w.rooms, func(p *roomPlan) bool { return p.job == j && p.to != nil })
	if at < 0 {
		return nil // an event upset it
	}
	p := w.rooms[at]
	if p.upsets == w.upsets {
		for _, m := range p.restarted {
			if d.Reason != core.Requested && d.Reason != core.Defragmentation || m.state().state != running {
				return fmt.Errorf("by %v, and pod %d was to restart", d.Reason, m.pod)
			}
			if to, ok := p.to[m.pod]; ok {
				if err := to.arrives(w, m); err != nil {
					return err
				}
			}
		}
		if !slices.ContainsFunc(p.restarted, func(m member) bool { return m.state().at.Node != p.to[m.pod].from.Node }) {
			return fmt.Errorf("all of its pods are back on their nodes")
		}
	}
	w.rooms = slices.Delete(w.rooms, at, at+1)
	return nil
}

// evicts notes that pods are evicted for a job, if others go elsewhere for it.
func (w *Twin) evicts(j, f *job, d *core.Decision) {
	for _, p := range w.rooms {
		for _, at := range d.Pods {
			if p.current(f) {
				p.evicted = append(p.evicted, member{j, at.Pod})
			}
		}
	}
}

// bounded checks that the plan is no larger than the policy allows.
func (p *roomPlan) bounded(w *Twin) error {
	if n := len(p.restarted) + len(p.moved); n > w.policy.Room.MaxMoves {
		return fmt.Errorf("%d pods go elsewhere for %s, expected at most %d", n, p.job.Name, w.policy.Room.MaxMoves)
	}
	return nil
}

// moves notes that a pod moves for a job.
func (w *Twin) moves(j *job, d *core.Decision) error {
	f := w.jobs[d.For]
	j.pods[d.Pods[0].Pod].room = d.Reason == core.Consolidation
	if d.Reason != core.Consolidation {
		return nil
	}
	if f == nil {
		return fmt.Errorf("for %q, which is no live job", d.For)
	}
	f.quotaSet, f.nominated = w.quotaSet, true
	p := w.room(f)
	m := member{j, d.Pods[0].Pod}
	if p.wave != w.passes && len(p.moved) > 0 {
		switch {
		case len(p.restarted)+len(p.evicted) > 0:
			return fmt.Errorf("a later wave for %s, for which others stop", f.Name)
		case slices.ContainsFunc(p.moved, func(o member) bool { return o != m && o.state().to != nil }):
			return fmt.Errorf("a later wave for %s, and that before is under way", f.Name)
		}
	}
	p.moved, p.wave = append(p.moved, m), w.passes
	return p.bounded(w)
}

// upsetRooms drops the plans that an event about a job upsets, and that of the job.
func (w *Twin) upsetRooms(ev core.Event) {
	var name string
	switch ev := ev.(type) {
	case core.JobEnded:
		name = ev.Job
	case core.MoveFailed:
		name = ev.Job
	case core.PodsAdded:
		name = ev.Job
	default:
		return
	}
	is := func(m member) bool { return m.job.Name == name }
	w.rooms = slices.DeleteFunc(w.rooms, func(p *roomPlan) bool {
		return p.job.Name == name || slices.ContainsFunc(p.restarted, is) || slices.ContainsFunc(p.moved, is) || slices.ContainsFunc(p.evicted, is)
	})
}

// roomsMade checks, after a pass, that the plans of which all pods have left are over: the job
// and all that made room for it run.
func (w *Twin) roomsMade() error {
	left := w.rooms[:0]
	for _, p := range w.rooms {
		if p.upsets != w.upsets {
			continue
		}
		leaves := func(m member) bool { return m.state().state == leaving }
		if p.job.starts != p.starts {
			// The job starts when all have left: those that leave now do so again, for another plan.
			p.restarted = slices.DeleteFunc(p.restarted, leaves)
		}
		waits := slices.ContainsFunc(p.restarted, leaves) || slices.ContainsFunc(p.evicted, leaves) ||
			slices.ContainsFunc(p.moved, func(m member) bool { return m.state().to != nil })
		if waits {
			left = append(left, p)
			continue
		}
		if p.job.starts == p.starts {
			return fmt.Errorf("job %s: others made room for it, and it has not started", p.job.Name)
		}
		for _, m := range p.restarted {
			if m.state().state != running {
				return fmt.Errorf("pod %d of job %s made room for job %s, and does not run", m.pod, m.job.Name, p.job.Name)
			}
		}
	}
	w.rooms = left
	return nil
}
