package place

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// Affinity and anti-affinity: where the pods of a task may be next to others.

// moment says when affinity terms are to hold.
type moment uint8

const (
	// later: when the unit is placed. How pods are spread is not looked at, nor whether
	// one is near that the unit brings itself.
	later moment = iota
	// placing: now, but how pods are spread is looked at when all of their task are placed.
	placing
	// now: as the other pods are.
	now
)

// near reports whether a pod of the task on a node satisfies its affinity terms and
// is where the rest of its job must be. A near term of which no domain hosts a pod
// yet is satisfied where the task's own label is meant: the first pod of a group must
// be able to start.
func (p *Placer) near(u *Unit, task *Task, id cluster.NodeID, when moment) bool {
	if !p.atHome(u, id) || slices.Contains(u.Left, id) {
		return false
	}
	for i := range task.Terms {
		t := &task.Terms[i]
		d := p.state.Domain(id, t.Level)
		if d < 0 && t.Theirs {
			continue
		}
		if d < 0 {
			return false
		}
		if t.MaxSkew > 0 {
			if when == now && !p.even(u, task, t, d) {
				return false
			}
			continue
		}
		n := p.state.Labelled(t.Label, t.Level, d)
		if n > 0 && !t.Anti && u.Absent != nil {
			n -= u.Absent(t.Label, t.Level, d)
		}
		if has := n > 0; has == t.Anti {
			if !t.Anti && when == later && len(t.Mates) > 0 {
				continue
			}
			if t.Anti || !t.Own || !p.first(task, t) {
				return false
			}
		}
	}
	return true
}

// first reports whether no pod has the label of a term yet, but those that may come after
// the task.
func (p *Placer) first(task *Task, t *Term) bool {
	n := p.state.LabelledAnywhere(t.Label)
	if n > 0 && task.After != nil {
		n -= task.After(t.Label, anyLevel, 0)
	}
	return n == 0
}

// atHome reports whether a node is where the rest of the unit's job must be.
func (p *Placer) atHome(u *Unit, id cluster.NodeID) bool {
	if u.Required < 0 || u.Whole && !u.Joins {
		return true
	}
	d := p.state.Domain(id, u.Required)
	return d >= 0 && (!u.Joins || d == u.Home)
}

// Stands reports whether a pod of the task that is placed on a node, or expected
// there, satisfies its affinity terms as the other pods are now.
func (p *Placer) Stands(u *Unit, t *Task, pod cluster.Owner, id cluster.NodeID, expected bool) bool {
	if expected {
		p.state.Unexpect(pod, id)
		ok := p.near(u, t, id, now)
		p.state.Expect(pod, id)
		return ok
	}
	mark := p.state.Mark()
	p.state.Remove(pod, id)
	ok := p.near(u, t, id, now)
	p.state.Rollback(mark)
	return ok
}

// keepsToMates reports whether pods of the unit keep to, or from, other tasks of it.
func (u *Unit) keepsToMates() bool {
	return slices.ContainsFunc(u.Tasks, func(t Task) bool {
		return slices.ContainsFunc(t.Terms, func(t Term) bool { return len(t.Mates) > 0 })
	})
}

// apartFromMates reports whether the pods that were placed are apart from those of
// other tasks that were placed after them, where they must be.
func (p *Placer) apartFromMates(u *Unit) bool {
	if !u.keepsToMates() {
		return true
	}
	for i := range p.out {
		terms := u.Tasks[p.out[i].Task].Terms
		for k := range terms {
			t := &terms[k]
			if !t.Anti || len(t.Mates) == 0 {
				continue
			}
			n := p.state.Labelled(t.Label, t.Level, p.state.Domain(p.out[i].Alloc.Node, t.Level))
			if t.Own {
				n--
			}
			if n > 0 {
				return false
			}
		}
	}
	return true
}
