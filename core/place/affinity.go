package place

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// This file checks affinity and anti-affinity: near which other pods the pods of a task may be.

// moment says at which point of a placement the terms of a pod are checked.
type moment uint8

const (
	// later: the pods of the unit are still to be placed. Terms that the unit's own pods
	// may yet satisfy are left for then: spread, and affinity to another task of the unit.
	later moment = iota
	// placing: the pods of the unit before this one are placed. Spread is checked once the
	// last pod of the task is placed, see [Placer.evenly].
	placing
	// now: all terms must hold with the pods that are placed at this point.
	now
)

// satisfies reports whether a pod of the task may be on the node because of other pods:
// its affinity terms hold there, and it is where the rest of its job must be. Free
// resources are not checked.
func (p *Placer) satisfies(u *Unit, task *Task, id cluster.NodeID, when moment) bool {
	if len(p.bounds) > 0 && !p.inBounds(id) {
		return false
	}
	// 1. The rest of the job: a required level keeps it in one domain. A pod that left a
	// node for another job does not go back before that job has started. Otherwise both
	// would move back and forth without end when the other job's plan is dropped.
	if !p.atHome(u, id) || len(u.Left) > 0 && slices.Contains(u.Left, p.state.Home(id)) {
		return false
	}
	for i := range task.Terms {
		t := &task.Terms[i]
		d := p.state.Domain(id, t.Level)
		// 2. A node whose domain is not known satisfies no term but anti-affinities, also
		// those of other pods: none of these is in its domain.
		if d < 0 {
			if t.Anti {
				continue
			}
			return false
		}
		// 3. Spread. While a search is placing pods node by node, four pods that end as 2-2
		// over two nodes are 2-0 on the way, so only the last state counts.
		if t.MaxSkew > 0 {
			if when == now && !p.even(u, task, t, d) {
				return false
			}
			continue
		}
		hosted := p.state.Labelled(t.Label, t.Level, d)
		// 4. Anti-affinity. Pods count here while they leave, and before they arrive.
		if t.Anti {
			if hosted > 0 {
				return false
			}
			continue
		}
		// 5. Affinity. Pods that leave, or have not arrived yet, are not there to be near to.
		if hosted > 0 && u.Absent != nil {
			hosted -= u.Absent(t.Label, t.Level, d)
		}
		broughtByUnit := when == later && len(t.Mates) > 0
		if hosted > 0 || broughtByUnit {
			continue
		}
		// 6. Two pods that must be near each other would wait for each other for ever: the
		// first pod of such a group may start in any domain.
		if !t.Own || !p.firstOfGroup(task, t) {
			return false
		}
	}
	return true
}

// firstOfGroup reports whether no pod with the label of a term is placed anywhere, apart
// from pods of the unit's other tasks that may come after those of the task.
func (p *Placer) firstOfGroup(task *Task, t *Term) bool {
	n := p.state.LabelledAnywhere(t.Label)
	if n > 0 && task.After != nil {
		n -= task.After(t.Label, anyLevel, 0)
	}
	return n == 0
}

// atHome reports whether a node is in the domain of the required level where the rest of
// the unit's job is, or in any such domain if no pod of the job has one yet. For a gang
// that starts, the domain is chosen before its nodes are, so every node will do.
func (p *Placer) atHome(u *Unit, id cluster.NodeID) bool {
	gangStarts := u.Whole && !u.Joins
	if u.Required < 0 || gangStarts {
		return true
	}
	d := p.state.Domain(id, u.Required)
	return d >= 0 && (!u.Joins || d == u.Home)
}

// TermsHold reports whether a pod of the task that is placed on a node, or expected
// there, satisfies its affinity terms as the other pods are now.
func (p *Placer) TermsHold(u *Unit, t *Task, pod cluster.Owner, id cluster.NodeID, expected bool) bool {
	// The pod itself must not count among the others.
	if expected {
		p.state.Unexpect(pod, id)
		ok := p.satisfies(u, t, id, now)
		p.state.Expect(pod, id)
		return ok
	}
	mark := p.state.Mark()
	p.state.Remove(pod, id)
	ok := p.satisfies(u, t, id, now)
	p.state.Rollback(mark)
	return ok
}

// Anchored reports whether pods that are placed, of tasks that must be near a label of their own, are
// near others than each other, unless they are the first with that label. Taken one by one they may hold
// each other in a domain in which the first of them could not have started.
func (p *Placer) Anchored(u *Unit, placed []Placed) bool {
	for i := range u.Tasks {
		for k := range u.Tasks[i].Terms {
			t := &u.Tasks[i].Terms[k]
			if t.Anti || t.MaxSkew > 0 || !t.Own {
				continue
			}
			leans := func(o *Task) bool {
				return slices.ContainsFunc(o.Terms, func(x Term) bool {
					return x.Own && !x.Anti && x.MaxSkew == 0 && x.Label == t.Label && x.Level == t.Level
				})
			}
			var in []int32 // the domains of those that must be near it
			for j := range placed {
				if leans(&u.Tasks[placed[j].Task]) {
					in = append(in, p.state.Domain(placed[j].Alloc.Node, t.Level))
				}
			}
			if p.state.LabelledAnywhere(t.Label) == len(in) {
				continue
			}
			slices.Sort(in)
			for from, to := 0, 0; from < len(in); from = to {
				for to = from; to < len(in) && in[to] == in[from]; to++ {
				}
				if p.state.Labelled(t.Label, t.Level, in[from]) == to-from {
					return false
				}
			}
		}
	}
	return true
}

// hasMates reports whether a task of the unit has an affinity, an anti-affinity or a
// spread that is about pods of another task of the unit.
func (u *Unit) hasMates() bool {
	return slices.ContainsFunc(u.Tasks, func(t Task) bool {
		return slices.ContainsFunc(t.Terms, func(t Term) bool { return len(t.Mates) > 0 })
	})
}
