package place

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// How many pods the quota of the unit's queue allows.

// modelUsage is how much GPU of a model the pods of the unit that were placed take.
type modelUsage struct {
	model string
	gpu   cluster.Milli
}

// quotaLeft returns how many more pods of a shape the queue may run on a model, less
// those of the unit that were placed already.
func (p *Placer) quotaLeft(u *Unit, sh *Shape, model string) int {
	if u.Room == nil || sh.GPU() == 0 {
		return unlimited
	}
	left := u.Room(model)
	for _, used := range p.usage {
		if used.model == model {
			left -= used.gpu
		}
	}
	return int(min(max(left, 0)/sh.GPU(), unlimited))
}

// charge counts a pod on a node against the quota of its model; by is -1 for a pod that is
// taken back.
func (p *Placer) charge(u *Unit, sh *Shape, id cluster.NodeID, by cluster.Milli) {
	if u.Room == nil {
		return
	}
	model := p.state.Pool(id).Model
	i := slices.IndexFunc(p.usage, func(used modelUsage) bool { return used.model == model })
	if i < 0 {
		i = len(p.usage)
		p.usage = append(p.usage, modelUsage{model: model})
	}
	p.usage[i].gpu += by * sh.GPU()
}

// quotaFor returns how many pods of a shape, which take GPU, the queue's quota allows in
// pools.
func (u *Unit) quotaFor(sh *Shape, pools []*cluster.Pool) int {
	pods := cluster.Milli(0)
	for i, pool := range pools {
		counted := slices.ContainsFunc(pools[:i], func(o *cluster.Pool) bool { return o.Model == pool.Model })
		if counted {
			continue // the quota is of the model: its pools share it
		}
		pods = min(pods+max(u.Room(pool.Model), 0)/sh.GPU(), 1<<40)
	}
	return int(pods)
}

// Allowed returns how many pods of the shape, which take GPU, a quota allows on the
// models that the shape accepts: on one of them, or on all together where pods may be
// mixed. Each pod is on one model: half a GPU left on each of two models allows no pod
// of one GPU.
func (sh *Shape) Allowed(room func(model string) cluster.Milli) int {
	most, sum := 0, 0
	for _, m := range sh.models {
		pods := int(min(max(room(m.name), 0)/sh.GPU(), unlimited))
		most, sum = max(most, pods), sum+pods
	}
	if sh.Mixed {
		return sum
	}
	return most
}
