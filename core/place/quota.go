package place

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// What the quota of a unit's queue leaves for its pods.

// spending is an amount of one model.
type spending struct {
	model string
	gpu   cluster.Milli
}

// room returns how many more pods of a shape the queue may run on a model.
func (p *Placer) room(u *Unit, sh *Shape, model string) int {
	if u.Room == nil || sh.GPU() == 0 {
		return 1 << 30
	}
	left := u.Room(model)
	for _, s := range p.spent {
		if s.model == model {
			left -= s.gpu
		}
	}
	return int(min(max(left, 0)/sh.GPU(), 1<<30))
}

// spend counts a placed pod against the queue's room; by is -1 for one taken back.
func (p *Placer) spend(u *Unit, sh *Shape, id cluster.NodeID, by cluster.Milli) {
	if u.Room == nil {
		return
	}
	model := p.state.Pool(id).Model
	i := slices.IndexFunc(p.spent, func(s spending) bool { return s.model == model })
	if i < 0 {
		i = len(p.spent)
		p.spent = append(p.spent, spending{model: model})
	}
	p.spent[i].gpu += by * sh.GPU()
}

// allowed returns how many pods of a shape the queue's quota allows in pools.
func (u *Unit) allowed(sh *Shape, pools []*cluster.Pool) int {
	n := cluster.Milli(0)
	for i, pool := range pools {
		if slices.ContainsFunc(pools[:i], func(o *cluster.Pool) bool { return o.Model == pool.Model }) {
			continue
		}
		n = min(n+max(u.Room(pool.Model), 0)/sh.GPU(), 1<<40)
	}
	return int(n)
}

// Allowed returns how many pods of the shape, which take GPU, a quota allows on the
// models that the shape accepts: on one of them, or on all together where pods may be
// mixed. Each pod is on one model, so that what is left of two never makes one pod.
func (sh *Shape) Allowed(room func(model string) cluster.Milli) int {
	most, sum := 0, 0
	for _, m := range sh.models {
		pods := int(min(max(room(m.name), 0)/sh.GPU(), 1<<30))
		most, sum = max(most, pods), sum+pods
	}
	if sh.Mixed {
		return sum
	}
	return most
}
