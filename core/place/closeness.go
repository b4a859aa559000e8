package place

import (
	"cmp"
	"slices"
)

// maxAssignments bounds the assignments of models to the tasks of one gang that are tried.
const maxAssignments = 64

// weighsDistance reports whether the gang says what the distance of its pods costs it.
func (u *Unit) weighsDistance() bool { return u.Closeness > 0 || len(u.Combinations) > 0 }

// byCost places a gang that weighs what it does on the models against the distance of its
// pods (Heterogeneity at Hyperscale, ASI, §5.2): prefill on one model and decode on another, under
// different switches, or both on one model nearby. It tries the assignments of models to tasks
// at every level, the lowest cost first. Those that use the dedicated zone come last, as for
// every gang. O(assignments x levels) tries of a level.
func (p *Placer) byCost(u *Unit) bool {
	levels := p.levels(u)
	for _, zone := range [2]bool{false, true} {
		if zone && !u.usesZone() {
			break
		}
		for _, o := range p.options(u, levels, zone) {
			if levels[0] == o.level && p.inOneNode(u, o.sp) || p.inLevel(u, o.sp, o.level) {
				return true
			}
		}
	}
	return false
}

// option is a way to place a gang: the pools of each task, and the level of which one domain
// holds all pods.
type option struct {
	sp    space
	level int
	cost  // of the option
}

// cost is how long a gang runs, times the price of its GPUs, as a fraction.
type cost struct{ time, speed int64 }

// assignment is a model for each task of a gang, by name; everyModel for tasks that may be on any node.
type assignment struct {
	models []string
	of     *Combination // nil if the gang lists none
}

// costOf returns the cost of a gang whose tasks have models assigned, and whose pods are a number of
// levels apart.
func (p *Placer) costOf(u *Unit, a *assignment, apart int) cost {
	price := p.price(u, a.models)
	if a.of != nil {
		return cost{max(a.of.Price, 1) * price, a.of.Rate(apart)}
	}
	return cost{(1000 + u.Closeness*int64(apart)) * price, u.speedOf(a.models)}
}

func (c cost) compare(o cost) int { return cmp.Compare(c.time*o.speed, o.time*c.speed) }

// levelsApart returns how many levels lie between pods within one domain of a level: 0 within a
// leaf group, an HBD or a node, and one more for each level that is wider.
func (p *Placer) levelsApart(level int) int { return max(0, len(p.state.Levels())-1-level) }

// options returns the ways to place the gang that are possible by count, the lowest cost first. If
// costs are equal, the nearer comes first; then the one whose first task has the model that
// is tried first, and so on.
func (p *Placer) options(u *Unit, levels []int, zone bool) []option {
	var out []option
	for _, a := range u.ways() {
		sp, ok := u.spaceOf(a.models, zone)
		if !ok || !p.enough(u, sp) {
			continue
		}
		for _, level := range levels {
			out = append(out, option{sp, level, p.costOf(u, &a, p.levelsApart(level))})
		}
	}
	slices.SortStableFunc(out, func(a, b option) int {
		return cmp.Or(a.compare(b.cost), cmp.Compare(p.levelsApart(a.level), p.levelsApart(b.level)))
	})
	return out
}

// ways returns the combinations of models that the gang lists; without any, all assignments.
func (u *Unit) ways() []assignment {
	var out []assignment
	for i := range u.Combinations {
		c := &u.Combinations[i]
		models := slices.Clone(c.Models)
		for t := range models {
			if len(u.Tasks[t].Pods) == 0 || models[t] == "" {
				models[t] = everyModel
			}
		}
		out = append(out, assignment{models, c})
	}
	if out == nil {
		for _, models := range u.assignments() {
			out = append(out, assignment{models: models})
		}
	}
	return out
}

// assignments returns the ways to give each task one of the models that it accepts, by name:
// everyModel for tasks that may be on any node. Tasks that name no model and need GPUs are all
// on the same one. The last task changes its model first, each in the order in which it
// tries them. If there are more than maxAssignments, the tasks do without their slowest models.
func (u *Unit) assignments() [][]string {
	// 1. The models of each task. The first that names none decides for the others.
	models := make([][]string, len(u.Tasks))
	decides := -1
	for t := range u.Tasks {
		task := &u.Tasks[t]
		switch {
		case len(task.Pods) == 0 || !task.Named && task.GPU() == 0:
			models[t] = []string{everyModel}
		case !task.Named && decides >= 0:
			models[t] = []string{""} // see 3
		default:
			models[t] = task.Models()
			if !task.Named {
				decides = t
			}
		}
	}

	// 2. The slowest are left out where there are too many.
	number := func() int {
		n := 1
		for _, m := range models {
			n = min(n*len(m), maxAssignments+1)
		}
		return n
	}
	for number() > maxAssignments {
		slowest := -1
		for t, m := range models {
			if len(m) > 1 && (slowest < 0 || u.lastSpeed(t, m) <= u.lastSpeed(slowest, models[slowest])) {
				slowest = t
			}
		}
		models[slowest] = models[slowest][:len(models[slowest])-1]
	}

	// 3. All of them, one task after the other.
	out := [][]string{nil}
	for t := range u.Tasks {
		var longer [][]string
		for _, a := range out {
			for _, m := range models[t] {
				if task := &u.Tasks[t]; t != decides && len(task.Pods) > 0 && !task.Named && task.GPU() > 0 {
					m = a[decides]
				}
				longer = append(longer, append(slices.Clone(a), m))
			}
		}
		out = longer
	}
	return out
}

// lastSpeed returns the speed of a task on the last of the models.
func (u *Unit) lastSpeed(t int, models []string) int64 {
	return u.Tasks[t].request.SpeedOn(models[len(models)-1])
}

// speedOf returns how fast the slowest pod of the gang works, in thousandths.
func (u *Unit) speedOf(assigned []string) int64 {
	slowest := int64(0)
	for t, m := range assigned {
		if m == everyModel {
			continue
		}
		if v := u.Tasks[t].request.SpeedOn(m); slowest == 0 || v < slowest {
			slowest = v
		}
	}
	return max(slowest, 1)
}

// spaceOf returns the pools of the models assigned to the tasks, with the dedicated zone or
// without it, and false if a task has none.
func (u *Unit) spaceOf(assigned []string, zone bool) (space, bool) {
	sp := make(space, len(u.Tasks))
	for t, only := range assigned {
		if len(u.Tasks[t].Pods) == 0 {
			continue
		}
		if sp[t] = u.Tasks[t].pools(only, zone); len(sp[t]) == 0 {
			return nil, false
		}
	}
	return sp, true
}
