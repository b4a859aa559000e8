package core

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// Evictions of a pass that its later plans make needless.
//
// The pods of a job that is no gang are planned one by one, each with the cheapest
// victims. The first pod of a service takes the quota of v, of one GPU, the second that
// of w, of two: now there is one GPU of quota to spare, and v would be back at once. Until
// the pass ends the driver does not know that v is to leave, so v stays.

// eviction is a victim that was told to leave in this pass, for a nomination.
type eviction struct {
	victim
	nomination *nomination
	pods       []int
	exposed    bool // the job was, before
}

// recall takes back the evictions of this pass that the others make needless, of the
// victims with the strongest claims first, and reports whether there were any. Of one
// plan there are none: see spareNeedless. O(evictions x nominations).
func (e *Engine) recall(now Time) bool {
	if e.plansMade < 2 {
		return false
	}
	slices.SortStableFunc(e.evictions, func(a, b eviction) int { return b.cheaper(&a.victim) })
	before := len(e.evictions)
	e.evictions = slices.DeleteFunc(e.evictions, func(x eviction) bool {
		if !e.needless(&x) {
			return false
		}
		e.stay(&x)
		at := e.decided(&x)
		e.out = slices.Delete(e.out, at, at+1)
		return true
	})
	if len(e.evictions) == before {
		return false
	}
	e.fulfil(now) // of some nobody is left to go
	return true
}

// decided returns where an eviction is among the decisions.
func (e *Engine) decided(x *eviction) int {
	return slices.IndexFunc(e.out, func(d Decision) bool {
		return d.Op == Evict && d.Job == x.job.Name && d.Pods[0].Pod == x.pods[0]
	})
}

// needless reports whether the plans of all nominated jobs hold with a victim where it
// is. It is false for those of whom more would have to be asked: a victim with affinities
// or labels that matter, one whose gang has left, and one with whose quota others started
// in this pass, which they were given before that of later victims.
func (e *Engine) needless(x *eviction) bool {
	j, n := x.job, x.nomination
	switch {
	case e.jobs[j.Name] != j, x.exposed, j.Gang && x.pod >= 0 && !j.begun,
		slices.ContainsFunc(e.out[e.decided(x):], func(d Decision) bool { return d.Op == Bind }),
		n.outstanding == len(x.pods) && n.planned > 0, // others leave for those places
		slices.ContainsFunc(x.pods, func(i int) bool { return j.pods[i].leavingFor != n || !plain(&j.Tasks[j.pods[i].task]) }):
		return false
	}
	charge := func(by Milli) {
		for _, i := range x.pods {
			e.charge(j, &j.pods[i], by)
		}
	}
	charge(1)
	ok := true
	for _, i := range x.pods {
		ok = ok && j.queue.Room(e.state.Pool(j.pods[i].alloc.Node).Model) >= 0
	}
	for _, o := range e.filling {
		for i := range o.job.pods {
			if p := &o.job.pods[i]; ok && p.kept() && o.job.gpu(p) > 0 {
				model := e.state.Pool(p.alloc.Node).Model
				// A plan made by right of quota counts on it that the queue has it.
				ok = o.job.queue.Room(model) >= 0 && (!o.within || o.job.queue.NominalRoom(model) >= 0)
			}
		}
	}
	charge(-1)
	return ok && !slices.ContainsFunc(x.pods, func(i int) bool { return !e.holdsPlans(j.pods[i].alloc.Node, x) })
}

// holdsPlans reports whether a node holds what is planned there when all have left that
// were told to, but for a victim.
func (e *Engine) holdsPlans(node cluster.NodeID, but *eviction) bool {
	mark := e.state.Mark()
	var gone []cluster.Owner
	for h := range e.state.Node(node).Pods {
		v, i := e.slots[h.Owner.Job], int(h.Owner.Pod)
		if v.pods[i].state == podLeaving && (v != but.job || !slices.Contains(but.pods, i)) {
			gone = append(gone, h.Owner)
		}
	}
	for _, o := range gone {
		e.state.Remove(o, node)
	}
	ok := true
	for _, l := range e.plans[node] {
		j := l.nomination.job
		if ok = ok && e.state.Holds(&j.pods[l.pod].alloc); ok {
			e.state.Place(cluster.Owner{Job: j.slot, Pod: int32(l.pod)}, j.pods[l.pod].alloc)
		}
	}
	e.state.Rollback(mark)
	return ok
}

// stay undoes what leave did.
func (e *Engine) stay(x *eviction) {
	j, n := x.job, x.nomination
	started, saved := j.started, j.saved
	for _, i := range x.pods {
		p := &j.pods[i]
		p.leavingFor = nil
		n.outstanding--
		at := slices.IndexFunc(j.left, func(l leftFor) bool { return l.nomination == n && l.node == p.alloc.Node })
		j.left = slices.Delete(j.left, at, at+1)
		e.leaves(j, p, -1)
		e.bound(j, p, p.started)
	}
	j.started, j.saved = started, saved
	if !slices.ContainsFunc(j.left, func(l leftFor) bool { return l.nomination == n }) {
		n.victims = slices.DeleteFunc(n.victims, func(v *job) bool { return v == j })
	}
	e.holdsChanged()
	e.budget.spent -= len(x.pods)
	if j.Gang && x.pod < 0 {
		j.begun = true
		e.enqueue(j, e.now) // pods of it that wait to join the gang
	}
}
