package place

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// This file puts the models that a pod accepts in the order in which they are tried. Without
// [Placer.Wanted] that is the order of the shape: see [Shape.orderModels].

// orders reports whether the models of the shape have an order that comes before any score of nodes.
func (p *Placer) orders(sh *Shape) bool {
	return len(sh.request.Speeds) > 0 || p.Wanted != nil && sh.GPU() > 0
}

// inOrder returns the models of the shape in the order in which pods of the unit try them.
func (p *Placer) inOrder(u *Unit, sh *Shape) []model {
	if p.Wanted == nil || len(sh.models) < 2 || sh.GPU() == 0 {
		return sh.models
	}
	costs := make(map[string]cost, len(sh.models))
	for _, m := range sh.models {
		costs[m.name] = cost{1000 + p.Wanted(m.name, u.LP), sh.request.SpeedOn(m.name)}
	}
	out := slices.Clone(sh.models)
	slices.SortStableFunc(out, func(a, b model) int { return costs[a.name].compare(costs[b.name]) })
	return out
}

// price returns what a GPU-hour of the unit costs on the models assigned to its tasks, on average, in
// thousandths: itself, and the share of it that other jobs would use.
func (p *Placer) price(u *Unit, assigned []string) int64 {
	if p.Wanted == nil {
		return 1000
	}
	gpu, wanted := cluster.Milli(0), int64(0)
	for t, m := range assigned {
		if m == everyModel {
			continue
		}
		takes := cluster.Milli(len(u.Tasks[t].Pods)) * u.Tasks[t].GPU()
		gpu += takes
		wanted += int64(takes) * p.Wanted(m, u.LP)
	}
	return 1000 + wanted/max(int64(gpu), 1)
}
