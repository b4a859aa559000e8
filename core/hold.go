package core

import (
	"iter"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// This file keeps for a nominated job what it needs beside its places, until it starts.
//
// A plan holds more than devices. Pods that must keep apart from its job do so as if it ran
// (affinity.go), its victims do not go back to the nodes that they left, and pods that the job
// must be near to are not evicted. Suppose h, which must be apart from label x, evicts v1, which
// has it. With v1's quota, v2 could start beside h's place, and v2 has x, too. When v1 is gone,
// h could not start; the plan would be dropped, v1 would come back, and be evicted again.
//
// While a plan waits, it is checked by the rule by which it was made, also in the trial of
// another plan: pods that leave by the other plan are leaving, and the pods that it places are
// not there yet. Otherwise a plan could fail its next check with nothing changed.

// leftFor is a place that a pod left for a nominated job.
type leftFor struct {
	node       cluster.NodeID
	nomination *nomination
}

// leftBy returns the nodes that pods of the job left for others which have not started yet.
// The job does not go back there before they have.
func (ns *nominations) leftBy(j *job) []cluster.NodeID {
	out := ns.recovery.avoids(j)
	if len(j.left) == 0 {
		return out
	}
	j.left = slices.DeleteFunc(j.left, func(l leftFor) bool { return l.nomination.job.nomination != l.nomination })
	for _, l := range j.left {
		if !slices.Contains(out, l.node) {
			out = append(out, l.node)
		}
	}
	return out
}

// passOn records where a job that ends must not go if it is submitted again: a driver may end
// an evicted job, and submit it again under its name.
func (ns *nominations) passOn(j *job) {
	ns.leftBy(j) // forgets those that have started
	for _, l := range j.left {
		n := l.nomination
		if n.ended == nil {
			n.ended = map[string][]cluster.NodeID{}
		}
		n.ended[j.Name] = append(n.ended[j.Name], l.node)
		n.victims = slices.DeleteFunc(n.victims, func(v *job) bool { return v == j })
	}
}

// inherit gives a new job the nodes that an earlier one of its name left for others which
// have not started yet.
func (ns *nominations) inherit(j *job) {
	for _, n := range ns.all {
		if nodes := n.ended[j.Name]; nodes != nil {
			for _, node := range nodes {
				j.left = append(j.left, leftFor{node, n})
			}
			n.victims = append(n.victims, j)
			delete(n.ended, j.Name)
		}
	}
}

// labelOn is the key, beside domains, by which absent pods are counted.
type labelOn struct {
	label string
	level int
}

// holdsChanged records that the set of absent pods has changed.
func (ns *nominations) holdsChanged() { ns.away = nil }

func (ns *nominations) countAt(in map[labelOn]map[int32]int, label string, level int, node cluster.NodeID) {
	d := ns.state.Domain(node, level)
	if d < 0 {
		return
	}
	at := labelOn{label, level}
	if in[at] == nil {
		in[at] = map[int32]int{}
	}
	in[at][d]++
}

// kept reports whether a place is kept for the pod.
func (p *pod) kept() bool { return p.state == podHeld || p.state == podPlanned }

// draft is a plan under trial: the job that it is for, nil without a plan, where its pods are
// placed, and which victims have been lifted off. If it is decided, those pods are not there
// yet and the victims are leaving, so that other jobs may count on neither.
type draft struct {
	job    *job
	placed []place.Placed
	gone   []victim
}

// weigh sets the plan under trial. A trial ends with the empty draft.
func (ns *nominations) weigh(d draft) { ns.draft, ns.away = d, nil }

// departing yields the labelled pods that leave by the plan under trial.
func (ns *nominations) departing() iter.Seq2[*job, int] {
	return func(yield func(*job, int) bool) {
		for k := range ns.draft.gone {
			v := &ns.draft.gone[k]
			for i := range v.pods {
				if v.job.labelled() && !yield(v.job, i) {
					return
				}
			}
		}
	}
}

// coming yields the task and the node of each pod of the job for which a place is kept, or
// would be kept by the plan under trial.
func (ns *nominations) coming(j *job) iter.Seq2[int, cluster.NodeID] {
	return func(yield func(int, cluster.NodeID) bool) {
		if j.nomination != nil {
			for i := range j.pods {
				if p := &j.pods[i]; p.kept() && !yield(int(p.task), p.alloc.Node) {
					return
				}
			}
		}
		if ns.draft.job != j {
			return
		}
		for i := range ns.draft.placed {
			if p := &ns.draft.placed[i]; !yield(int(j.pods[p.Pod].task), p.Alloc.Node) {
				return
			}
		}
	}
}

// comingTo counts the coming pods of the job with a label in a domain, or anywhere if level is
// -1. It leaves out one task; -1 leaves out none.
func (ns *nominations) comingTo(j *job, but int, label string, level int, domain int32) int {
	n := 0
	for t, node := range ns.coming(j) {
		if t != but && slices.Contains(j.Tasks[t].Labels, label) && (level < 0 || ns.state.Domain(node, level) == domain) {
			n++
		}
	}
	return n
}

// after returns how many coming pods of the job's other tasks, with a label in a domain, may
// be placed after those of a task, for [place.Task.After]. All start together, so the order
// in which they were placed is no longer known.
func (ns *nominations) after(j *job, task int) func(string, int, int32) int {
	if len(j.Tasks) == 1 || !slices.ContainsFunc(j.Tasks[task].Affinity, func(t Term) bool { return !t.Anti }) {
		return nil
	}
	return func(label string, level int, domain int32) int { return ns.comingTo(j, task, label, level, domain) }
}

// absent returns on how many pods with a label in a domain the job may not count, as they are
// not there yet or are leaving. It may count on its own coming pods.
func (ns *nominations) absent(j *job) func(string, int, int32) int {
	return func(label string, level int, domain int32) int {
		n := ns.absentOn(label, level)[domain]
		if n > 0 {
			n -= ns.comingTo(j, -1, label, level, domain)
		}
		return n
	}
}

// absentOn counts the pods with a label that are not there yet or are leaving, by domain of a
// level. A pod that is being moved will have left one of its two places: it counts as absent at
// both. The counts are kept until holds change.
func (ns *nominations) absentOn(label string, level int) map[int32]int {
	if out, ok := ns.away[labelOn{label, level}]; ok {
		return out
	}
	if ns.away == nil {
		ns.away = map[labelOn]map[int32]int{}
	}
	ns.away[labelOn{label, level}] = nil
	count := func(j *job, which func(*pod) bool) {
		if !j.labelled() {
			return
		}
		for i := range j.pods {
			if p := &j.pods[i]; which(p) && slices.Contains(j.Tasks[p.task].Labels, label) {
				ns.countAt(ns.away, label, level, p.alloc.Node)
			}
		}
	}
	// 1. By the plans, evictions and moves in progress.
	for _, n := range ns.all {
		count(n.job, (*pod).kept)
	}
	for _, j := range ns.going {
		count(j, func(p *pod) bool { return p.state == podLeaving })
	}
	for _, m := range ns.moves.all {
		if p := &m.job.pods[m.pod]; slices.Contains(m.job.Tasks[p.task].Labels, label) {
			ns.countAt(ns.away, label, level, p.alloc.Node)
			ns.countAt(ns.away, label, level, m.to.Node)
		}
	}

	// 2. By the plan under trial.
	for i := range ns.draft.placed {
		p, j := &ns.draft.placed[i], ns.draft.job // the unit that was placed may have had one task of several
		if slices.Contains(j.Tasks[j.pods[p.Pod].task].Labels, label) {
			ns.countAt(ns.away, label, level, p.Alloc.Node)
		}
	}
	for v, i := range ns.departing() {
		if p := &v.pods[i]; slices.Contains(v.Tasks[p.task].Labels, label) {
			ns.countAt(ns.away, label, level, p.alloc.Node)
		}
	}
	return ns.away[labelOn{label, level}]
}

// goes records that pods of a job were evicted: no job may count on being near them.
func (ns *nominations) goes(j *job) {
	ns.holdsChanged()
	if j.labelled() && !slices.Contains(ns.going, j) {
		ns.going = append(ns.going, j)
	}
}

// begin forgets, before a pass, the jobs whose evicted pods have all left, and what the last
// pass decided.
func (ns *nominations) begin() {
	ns.evictions, ns.plansMade = ns.evictions[:0], 0
	ns.allowSearches()
	ns.going = slices.DeleteFunc(ns.going, func(j *job) bool { return j.count[podLeaving] == 0 })
}

// placesHold reports whether the places that are kept for a nominated job satisfy its
// affinities once its victims have left, also if the plan under trial is decided.
func (ns *nominations) placesHold(n *nomination) bool {
	j := n.job
	if !ns.affinities.constrain(j) {
		return true
	}

	// 1. The job as a unit that is placed already.
	u := place.Unit{Inference: j.Kind == Inference, Exclusive: ns.policy.Zone.Exclusive, Required: -1, Preferred: -1}
	for t := range j.Tasks {
		u.Tasks = append(u.Tasks, place.Task{After: ns.after(j, t)})
	}
	ns.affinities.addTerms(j, &u)

	// 2. Its victims will have left when it starts: they are lifted off for this check, and gone
	// counts them, as absent counts them, too. Victims of the plan under trial that leave for
	// another job may still be there when this one starts: they are neither to be near to nor
	// out of the way.
	mark, gone := ns.state.Mark(), map[labelOn]map[int32]int{}
	leavesFor := func(v *job, p *pod) {
		for _, l := range v.Tasks[p.task].Labels {
			for level := range ns.state.AllLevels() {
				ns.countAt(gone, l, level, p.alloc.Node)
			}
		}
	}
	for _, v := range n.victims {
		for i := range v.pods {
			p := &v.pods[i]
			if p.state != podLeaving || p.leavingFor() != n {
				continue
			}
			ns.state.Remove(cluster.Owner{Job: v.slot, Pod: int32(i)}, p.alloc.Node)
			leavesFor(v, p)
		}
	}
	for v, i := range ns.departing() {
		if p := &v.pods[i]; ns.draft.job == j {
			leavesFor(v, p)
		} else {
			ns.state.Expect(cluster.Owner{Job: v.slot, Pod: int32(i)}, p.alloc.Node)
		}
	}

	// 3. Each of its places by itself, with its other pods in place.
	absent := ns.absent(j)
	u.Absent = func(label string, level int, domain int32) int {
		return absent(label, level, domain) - gone[labelOn{label, level}][domain]
	}
	ok := true
	for i := range j.pods {
		p := &j.pods[i]
		ok = ok && (!p.kept() || ns.placer.TermsHold(&u, &u.Tasks[p.task], cluster.Owner{Job: j.slot, Pod: int32(i)}, p.alloc.Node, p.state == podPlanned))
	}

	// 4. All is as it was.
	for v, i := range ns.departing() {
		if ns.draft.job != j {
			ns.state.Unexpect(cluster.Owner{Job: v.slot, Pod: int32(i)}, v.pods[i].alloc.Node)
		}
	}
	ns.state.Rollback(mark)
	return ok
}

// stillHolds is placesHold, called again only if labels have changed since the last time, or if
// the job is about to start.
func (ns *nominations) stillHolds(n *nomination) bool {
	if n.outstanding > 0 && n.seen == ns.state.LastingLabelChanges() {
		return true
	}
	ok := ns.placesHold(n)
	n.seen = ns.state.LastingLabelChanges()
	return ok
}

// upheld reports whether all nominated jobs keep what their affinities need beside what was
// placed, or beside the plan under trial. Anti-affinities need no check: they keep others off
// by themselves, see affinity.go.
func (ns *nominations) upheld() bool {
	for _, n := range ns.all {
		if n.job.requires(func(t Term) bool { return !t.Anti }) && !ns.placesHold(n) {
			return false
		}
	}
	return true
}

// released gives up what was held for a nomination that has ended: its victims may start
// anywhere again, and other jobs may start where they had to keep apart from it.
func (ns *nominations) released(n *nomination) {
	ns.holdsChanged()
	for _, v := range n.victims {
		if v.class != nil { // where they may start decides their class
			ns.waiting.dequeue(v)
			ns.waiting.enqueue(v, ns.now)
		}
	}
	if n.job.labelled() {
		ns.changes.roomFreedAnywhere()
	}
}
