package place

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// How many pods the quota of the unit's queue allows.

// accountUsage is how much of the account of a model, or of a resource, the pods of the unit that were
// placed take.
type accountUsage struct {
	account string
	amount  cluster.Milli
}

// quotaLeft returns how many more pods of a shape the queue may run on a model, less
// those of the unit that were placed already.
func (p *Placer) quotaLeft(u *Unit, sh *Shape, model string) int {
	if u.Room == nil {
		return unlimited
	}
	pods := cluster.Milli(unlimited)
	if sh.GPU() > 0 {
		pods = min(pods, p.left(u, model)/sh.GPU())
	}
	for _, r := range u.Limits {
		if takes := sh.Takes(r); takes > 0 {
			pods = min(pods, p.left(u, r)/takes)
		}
	}
	return int(pods)
}

// left returns how much is left of an account, at least 0.
func (p *Placer) left(u *Unit, account string) cluster.Milli {
	left := u.Room(account)
	for _, used := range p.usage {
		if used.account == account {
			left -= used.amount
		}
	}
	return max(left, 0)
}

// charge counts a pod on a node against the quotas of its model and of resources; by is -1 for a pod
// that is taken back.
func (p *Placer) charge(u *Unit, sh *Shape, id cluster.NodeID, by cluster.Milli) {
	if u.Room == nil {
		return
	}
	p.count(p.state.Pool(id).Model, by*sh.GPU())
	for _, r := range u.Limits {
		p.count(r, by*sh.Takes(r))
	}
}

func (p *Placer) count(account string, amount cluster.Milli) {
	i := slices.IndexFunc(p.usage, func(used accountUsage) bool { return used.account == account })
	if i < 0 {
		i = len(p.usage)
		p.usage = append(p.usage, accountUsage{account: account})
	}
	p.usage[i].amount += amount
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
