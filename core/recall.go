package core

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// This file takes back evictions of a pass that its later plans make needless.
//
// The pods of a job that is no gang are planned one by one, each with the cheapest victims.
// The first pod of a service takes the quota of v, of one GPU; the second pod takes that of w,
// of two GPUs. Now one GPU of quota is left over, and v would be back at once. Until the pass
// ends, the driver does not know that v is to leave, so v stays.

// eviction is a victim evicted in this pass, for a nomination.
type eviction struct {
	victim
	nomination *nomination
	pods       []int
	exposed    bool // the job was, before
}

// recall takes back the evictions of this pass that the others make needless, those of the
// highest precedence first, and reports whether there were any. A single plan has none: see
// spareNeedless. It costs O(evictions x nominations).
func (ns *nominations) recall(now Time) bool {
	if ns.plansMade < 2 {
		return false
	}
	slices.SortStableFunc(ns.evictions, func(a, b eviction) int { return b.cheaper(&a.victim) })
	before := len(ns.evictions)
	ns.evictions = slices.DeleteFunc(ns.evictions, func(x eviction) bool {
		if !ns.needless(&x) {
			return false
		}
		ns.stay(&x)
		at := ns.decided(&x)
		ns.out = slices.Delete(ns.out, at, at+1)
		return true
	})
	if len(ns.evictions) == before {
		return false
	}
	ns.fulfil(now) // the last victim of some may stay
	return true
}

// decided returns where an eviction is among the decisions.
func (ns *nominations) decided(x *eviction) int {
	return slices.IndexFunc(ns.out, func(d Decision) bool {
		return d.Op == Evict && d.Job == x.job.Name && d.Pods[0].Pod == x.pods[0]
	})
}

// needless reports whether the plans of all nominated jobs hold if a victim stays where it is.
// It reports false without a look in cases that are hard to check: a victim with affinities or
// labels, one whose gang has left, and one whose quota may be in use again, since a job started
// after its eviction.
func (ns *nominations) needless(x *eviction) bool {
	j, n := x.job, x.nomination
	switch {
	case ns.jobs.byName[j.Name] != j, x.exposed, j.Gang && x.pod >= 0 && !j.begun,
		slices.ContainsFunc(ns.out[ns.decided(x):], func(d Decision) bool { return d.Op == Bind }),
		n.outstanding == len(x.pods) && n.planned > 0, // others leave for those places
		slices.ContainsFunc(x.pods, func(i int) bool { return j.pods[i].leavingFor() != n || !plain(&j.Tasks[j.pods[i].task]) }):
		return false
	}
	charge := func(by Milli) {
		for _, i := range x.pods {
			j.charge(ns.state, &j.pods[i], by)
		}
	}

	// 1. Quota with the victim there: its queue's, and that of all nominated jobs. A plan that
	// was made as one within nominal quota needs its queue to use no more than that.
	charge(1)
	ok := true
	for _, i := range x.pods {
		p := &j.pods[i]
		ok = ok && j.queue.Room(ns.state.Pool(p.alloc.Node).Model) >= 0 && j.hasResources(p.task, j.queue.Room)
	}
	for _, o := range ns.all {
		room := o.mayUse
		for i := range o.job.pods {
			p := &o.job.pods[i]
			ok = ok && (!p.kept() || o.job.hasResources(p.task, room))
			if ok && p.kept() && o.job.gpu(p) > 0 {
				ok = room(ns.state.Pool(p.alloc.Node).Model) >= 0
			}
		}
	}
	charge(-1)

	// 2. Places with the victim there.
	return ok && !slices.ContainsFunc(x.pods, func(i int) bool {
		at := j.pods[i].alloc.Node
		home := ns.state.Home(at) // pods on what is lent may draw CPU from there
		return !ns.holdsPlans(at, x) || home != at && !ns.holdsPlans(home, x)
	})
}

// mayUse returns how much more of a model or resource the job's queue may use: by quota, and as far as its
// victims left because quota, or what its queue is owed, covers it.
func (n *nomination) mayUse(account string) Milli {
	q := n.job.queue
	room := q.Room(account)
	if n.covered[byNominal] {
		room = min(room, q.NominalRoom(account))
	}
	if n.covered[byShare] {
		room = min(room, q.ClaimRoom(account, nil))
	}
	return room
}

// holdsPlans reports whether a node holds what is planned there once the pods that leave for
// those plans have left, except those of one victim. Pods that leave for other plans do not
// count as gone: they may leave later.
func (ns *nominations) holdsPlans(node cluster.NodeID, but *eviction) bool {
	// They are listed first: a node's pods must not change while they are gone through.
	mark := ns.state.Mark()
	var gone []leavesFrom
	list := func(at cluster.NodeID) {
		for h := range ns.state.Node(at).Pods {
			v, i := ns.jobs.slots[h.Owner.Job], int(h.Owner.Pod)
			p := &v.pods[i]
			leavesForThem := p.state == podLeaving && slices.ContainsFunc(ns.plans[node], func(l planned) bool { return l.nomination == p.leavingFor() })
			if leavesForThem && (v != but.job || !slices.Contains(but.pods, i)) {
				gone = append(gone, leavesFrom{h.Owner, at})
			}
		}
	}
	list(node)
	if lent, lends := ns.state.LentAt(node); lends {
		list(lent)
	}
	for _, l := range gone {
		ns.state.Remove(l.Owner, l.node)
	}
	for _, l := range gone { // a suspended job leaves its images
		if j := ns.jobs.slots[l.Job]; j.suspended != nil && !j.suspended.over {
			ns.suspensions.hold(j, int(l.Pod))
		}
	}
	ok := true
	for _, l := range ns.plans[node] {
		j := l.nomination.job
		if ok = ok && ns.state.Holds(&j.pods[l.pod].alloc); ok {
			ns.state.Place(cluster.Owner{Job: j.slot, Pod: int32(l.pod)}, j.pods[l.pod].alloc)
		}
	}
	ns.state.Rollback(mark)
	return ok
}

// leavesFrom is a pod on a node.
type leavesFrom struct {
	cluster.Owner
	node cluster.NodeID
}

// stay undoes what leave did: the pods of a victim run on, as long as they have.
func (ns *nominations) stay(x *eviction) {
	j, n := x.job, x.nomination
	started, saved := j.started, j.saved
	for _, i := range x.pods {
		p := &j.pods[i]
		p.tied().leavingFor = nil
		n.outstanding--
		at := slices.IndexFunc(j.left, func(l leftFor) bool { return l.nomination == n && l.node == ns.state.Home(p.alloc.Node) })
		j.left = slices.Delete(j.left, at, at+1)
		j.leaves(ns.state, p, -1)
		ns.bound(j, p, p.started)
	}
	j.started, j.saved = started, saved
	if !slices.ContainsFunc(j.left, func(l leftFor) bool { return l.nomination == n }) {
		n.victims = slices.DeleteFunc(n.victims, func(v *job) bool { return v == j })
	}
	ns.holdsChanged()
	ns.planner.budget.spent -= len(x.pods)
	if j.Gang && x.pod < 0 {
		j.begun = true
		ns.waiting.enqueue(j, ns.now) // pods of it that wait to join the gang
	}
}
