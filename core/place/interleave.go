package place

import (
	"encoding/binary"
	"slices"
	"strings"
)

// Task after task is not enough for all gangs. A worker must be near a leader, and the second leader near a pod of
// any kind: that may be the worker of the first. Or pods of two tasks, each on nodes of its own, are even only
// together. Such pods are placed in turn, in all orders, after all orders of the tasks have failed. What can follow depends on what is
// placed, and not on the order in which that came about: nothing is tried twice, and of the many
// orders few are left.

// interleaves reports whether pods may find places between those of another task, and no others.
func (u *Unit) interleaves() bool {
	return u.anyTerm(func(t int, term *Term) bool {
		switch {
		case term.MaxSkew > 0:
			return true
		case term.Own:
			// The first pod with the label may be anywhere. If all pods with it must be near it, they are all in one domain, or
			// near others. A mate for which that does not hold may carry it elsewhere, after the first.
			return slices.ContainsFunc(term.Mates, func(o int) bool {
				return !slices.ContainsFunc(u.Tasks[o].Terms, func(x Term) bool {
					return x.Own && !x.Anti && x.MaxSkew == 0 && x.Label == term.Label && x.Level == term.Level
				})
			})
		default:
			// Whoever it must be near comes first, unless that one must be near pods of this task.
			return u.leansOn(term, t, make([]bool, len(u.Tasks)))
		}
	})
}

// anyTerm reports whether is holds for a term that asks for pods of other tasks of the unit.
func (u *Unit) anyTerm(is func(task int, term *Term) bool) bool {
	for t := range u.Tasks {
		for i := range u.Tasks[t].Terms {
			if term := &u.Tasks[t].Terms[i]; !term.Anti && len(term.Mates) > 0 && is(t, term) {
				return true
			}
		}
	}
	return false
}

// leansOn reports whether a task that has the label of a term, or one that it asks for in turn, asks for a pod of the task.
func (u *Unit) leansOn(term *Term, task int, visited []bool) bool {
	for _, o := range term.Mates {
		if o == task {
			return true
		}
		if visited[o] {
			continue
		}
		visited[o] = true
		for i := range u.Tasks[o].Terms {
			if x := &u.Tasks[o].Terms[i]; !x.Anti && u.leansOn(x, task, visited) {
				return true
			}
		}
	}
	return false
}

// interleave places the pods of all tasks in turn.
func (s *search) interleave() bool {
	s.woven, s.seen = true, map[string]bool{}
	found := s.anyNext()
	s.woven, s.seen = false, nil
	return found
}

// weave goes on after a pod of task seq[i] was placed.
func (s *search) weave(i int) bool {
	t := s.seq[i]
	if s.done[t] == len(s.u.Tasks[t].Pods) && !s.p.evenly(s.u, t) {
		return false
	}
	return s.anyNext()
}

// anyNext places the next pod, of any task, and those after it. It reports whether it placed all.
func (s *search) anyNext() bool {
	key := s.placed()
	if s.seen[key] {
		return false
	}
	s.seen[key] = true
	all := true
	for i, t := range s.seq {
		k := s.done[t]
		if k == len(s.u.Tasks[t].Pods) {
			continue
		}
		all = false
		for at, g := range s.order[t] {
			// As in place, one node stands for all of a group that host no pod of the search.
			for n := 0; n <= s.groups[g].used && n < len(s.groups[g].nodes); n++ {
				if s.placeOn(i, k, at, n) {
					return true
				}
				if s.p.steps > maxSteps {
					return false
				}
			}
		}
	}
	return all
}

// placed says what is placed of the unit, in no order: pods of a task are alike.
func (s *search) placed() string {
	list := make([]string, len(s.p.out))
	for i, o := range s.p.out {
		var key []byte
		key = binary.AppendVarint(key, int64(o.Task))
		key = binary.AppendVarint(key, int64(o.Alloc.Node))
		list[i] = string(binary.LittleEndian.AppendUint64(key, o.Alloc.GPUs))
	}
	slices.Sort(list)
	return strings.Join(list, "")
}
