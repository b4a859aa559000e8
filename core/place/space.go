package place

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// space is the pools a gang may use together, by task.
type space [][]*cluster.Pool

// everyModel stands for all the models that a task accepts.
const everyModel = "*"

// spaces returns the sets of pools to try for the unit, in order, each first without the
// dedicated zone and then with it. In every one of them, pods that name no model and need
// GPUs are all on one model, the base of the space.
func (p *Placer) spaces(u *Unit) []space {
	if len(u.Combinations) > 0 {
		return p.combined(u)
	}
	var names []string // of the models that tasks accept, "" for nodes without GPUs
	var zone, mixed, anywhere, oneModel bool
	for t := range u.Tasks {
		task := &u.Tasks[t]
		if len(task.Pods) == 0 {
			continue // no pod of this elastic role starts with the gang: it may lack a model
		}
		mixed = mixed || task.Mixed
		anywhere = anywhere || !task.Named && task.GPU() == 0
		oneModel = oneModel || !task.Named && task.GPU() > 0
		for _, m := range p.likedModels(u, task.Shape, p.inOrder(u, task.Shape)) {
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
	addForEachBase := func(others string, mix bool) {
		for _, base := range names {
			if base != "" {
				add(base, others, mix)
			}
		}
	}

	// 1. Each model by itself. Nodes without GPUs are a model for pods that need none: the
	// router of a gang goes there, and its workers to one GPU model.
	for _, name := range names {
		switch {
		case name != "":
			add(name, name, false)
		case len(names) == 1:
			add("", "", false)
		default:
			addForEachBase("", false)
		}
	}

	// 2. Pods that need no GPU and name no model on any node: two such pods of one core fit
	// on a node without GPUs and one with GPUs that have a core each, and on neither alone.
	if len(names) > 1 && anywhere {
		if oneModel || mixed {
			addForEachBase(everyModel, false)
		} else {
			add("", everyModel, false)
		}
	}

	// 3. Tasks that name several models on all of them together (cross-pool joint admission,
	// §3.2.1). Last, as pods of one task work best on GPUs of one kind.
	if len(names) > 1 && mixed {
		if oneModel {
			addForEachBase(everyModel, true)
		} else {
			add("", everyModel, true)
		}
	}
	return out
}

func (sp space) equal(o space) bool { return slices.EqualFunc(sp, o, slices.Equal) }

// space returns the pools of each task, and false if a task with pods has none. Tasks keep
// to the model base as far as they accept it, tasks without GPUs that name no model to
// others, which may be everyModel. With mix, tasks that name several models use them all.
func (u *Unit) space(base, others string, mix, zone bool) (space, bool) {
	sp := make(space, len(u.Tasks))
	for t := range u.Tasks {
		task := &u.Tasks[t]
		if len(task.Pods) == 0 {
			continue
		}
		only := base
		switch {
		case !task.Named && task.GPU() > 0:
			// Base or nothing: without this, a role that names two models would let the
			// workers beside it be on both.
		case mix && task.Mixed:
			only = everyModel
		default:
			if !task.Named {
				only = others
			}
			// A gang may be a mix of tasks for different models: what does not accept base
			// uses all that it names.
			if !slices.ContainsFunc(task.models, func(m model) bool { return m.name == only }) {
				only = everyModel
			}
		}
		if sp[t] = task.pools(only, zone); len(sp[t]) == 0 {
			return nil, false
		}
	}
	return sp, true
}

// pools returns the pools of one of the task's models, of all for everyModel, with the dedicated
// zone or without it.
func (t *Task) pools(only string, zone bool) []*cluster.Pool {
	var out []*cluster.Pool
	for _, m := range t.models {
		if only != everyModel && m.name != only {
			continue
		}
		out = append(out, m.general...)
		if zone {
			out = append(out, m.zone...)
		}
	}
	return out
}
