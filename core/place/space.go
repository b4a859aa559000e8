package place

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// space is the pools a gang may use together, by task.
type space [][]*cluster.Pool

// everyModel stands for all the models that a task accepts.
const everyModel = "*"

// spaces returns the sets of pools to try, in order, each first without the dedicated
// zone and then with it. Pods that name no model and need GPUs are on one model all,
// the base of the space, in every one of them.
//
//  1. Each model by itself: tasks that accept it keep to it, the others use all that
//     they name: a gang may be a mix of tasks for different models. Nodes without GPUs
//     count as a model for pods that need none.
//  2. Pods that need no GPU and name no model on any node.
//  3. Tasks that name several models on all of them together (cross-pool joint
//     admission, §3.2.1).
func (u *Unit) spaces() []space {
	var names []string
	zone, several, anywhere, bound := false, false, false, false
	for t := range u.Tasks {
		task := &u.Tasks[t]
		if len(task.Pods) == 0 {
			continue // of an elastic role none starts with the gang
		}
		several = several || task.Mixed
		anywhere = anywhere || !task.Named && task.GPU() == 0
		bound = bound || !task.Named && task.GPU() > 0
		for _, m := range task.models {
			zone = zone || len(m.zone) > 0
			if !slices.Contains(names, m.name) {
				names = append(names, m.name)
			}
		}
	}
	zone = zone && u.usesZone()
	var out []space
	add := func(base, others string, mix bool) {
		for _, z := range [2]bool{false, true} {
			if z && !zone {
				break
			}
			sp, ok := u.space(base, others, mix, z)
			if ok && !slices.ContainsFunc(out, sp.equal) {
				out = append(out, sp)
			}
		}
	}
	withBases := func(others string, mix bool) {
		for _, base := range names {
			if base != "" {
				add(base, others, mix)
			}
		}
	}
	for _, name := range names {
		switch {
		case name != "":
			add(name, name, false)
		case len(names) == 1:
			add("", "", false)
		default:
			withBases("", false)
		}
	}
	if len(names) > 1 && anywhere {
		if bound || several {
			withBases(everyModel, false)
		} else {
			add("", everyModel, false)
		}
	}
	if len(names) > 1 && several {
		if bound {
			withBases(everyModel, true)
		} else {
			add("", everyModel, true)
		}
	}
	return out
}

func (sp space) equal(o space) bool { return slices.EqualFunc(sp, o, slices.Equal) }

// space returns the pools of each task: of those that name no model the base's, or,
// where they need no GPU, those of others, which may be every model; of those that
// name some, the base's if they accept it and do not mix. False when a task with pods is
// left without pools.
func (u *Unit) space(base, others string, mix, zone bool) (space, bool) {
	sp := make(space, len(u.Tasks))
	for t := range u.Tasks {
		task := &u.Tasks[t]
		if len(task.Pods) == 0 {
			continue
		}
		only := base
		if !task.Named && task.GPU() == 0 {
			only = others
		}
		accepts := slices.ContainsFunc(task.models, func(m model) bool { return m.name == only })
		if mix && task.Mixed || !accepts && (task.Named || task.GPU() == 0) {
			only = everyModel
		}
		for _, m := range task.models {
			if only != everyModel && m.name != only {
				continue
			}
			sp[t] = append(sp[t], m.general...)
			if zone {
				sp[t] = append(sp[t], m.zone...)
			}
		}
		if len(sp[t]) == 0 {
			return nil, false
		}
	}
	return sp, true
}
