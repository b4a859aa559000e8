package core

import (
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/quota"
)

// unowned lends what the nodes have beyond all quotas: see [quota.Ledger.LendUnowned].
//
// Invariant: capacity is what the nodes had when the world was number world.
type unowned struct {
	*Engine
	capacity map[string]Milli
	world    uint64
}

// lend brings up to date what there is to lend. Jobs that lacked quota are tried again if it is more.
func (u *unowned) lend() {
	if !u.policy.Queueing.LendUnowned || !u.ledger.Limited() {
		return
	}
	if u.ledger.LendUnowned(u.now()) {
		u.changes.quotaReturned()
	}
}

// now is capacity, brought up to date.
func (u *unowned) now() map[string]Milli {
	if u.capacity == nil || u.world != u.changes.world {
		u.capacity, u.world = u.all(), u.changes.world
	}
	return u.capacity
}

// Overbooked lists the GPU models, all models together and the resources of which the queues own more than the nodes
// that are up have. It costs O(queues x accounts), and O(nodes) if nodes have changed.
func (e *Engine) Overbooked() []Overbooked {
	if !e.ledger.Limited() {
		return nil
	}
	return e.ledger.Overbooked(e.unowned.now())
}

// all returns what the nodes that are up have, of GPUs by model and altogether and of resources by their
// accounts. Cordoned nodes and broken devices count: what runs there counts against quotas, and a node
// that is cordoned for a while leaves others no less. It costs O(nodes).
func (u *unowned) all() map[string]Milli {
	out := map[string]Milli{}
	add := func(account string, amount Milli) { out[account] = cluster.Plus(out[account], amount) }
	for _, p := range u.state.Pools() {
		if p.Lent {
			continue
		}
		for _, id := range p.Members() {
			if id < 0 || !u.state.Node(id).Up {
				continue
			}
			spec := u.state.Node(id).Spec
			if p.Model != "" {
				add(p.Model, Milli(spec.GPUs)*WholeGPU)
				add(quota.AnyModel, Milli(spec.GPUs)*WholeGPU)
			}
			for _, account := range u.ledger.Counted() {
				add(account, spec.Has(account))
			}
		}
	}
	return out
}
