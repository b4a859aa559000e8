package core

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/quota"
)

// shares is what queues are owed: see [quota.Ledger.Divide].
//
// Invariant: capacity is what the nodes had of each GPU model when the world was number world.
type shares struct {
	*Engine
	capacity map[string]Milli
	world    uint64
	// seen is how often the ledger had divided when moved looked.
	seen uint64
}

// moved reports whether what queues are owed may have changed since it was called last.
func (s *shares) moved() bool {
	s.divide()
	was := s.seen
	s.seen = s.ledger.Divisions()
	return s.seen != was
}

// gains counts what lets jobs of a queue evict more: that it is owed more, or that others are owed less than they have. The
// queues have been divided.
func (s *shares) gains(q *quota.Queue) uint64 {
	if !s.count() {
		return 0
	}
	return q.Gains() + s.ledger.Excesses()
}

// fair reports whether queues get what they are owed before others get more. Under StrictFIFO no
// job may overtake another one.
func (p *Policy) fair() bool { return p.Queueing.FairShare && p.Queueing.Mode != StrictFIFO }

// count reports whether what queues are owed decides anything: not without quotas.
func (s *shares) count() bool { return s.policy.fair() && s.ledger.Limited() }

// divide brings up to date what queues are owed.
func (s *shares) divide() {
	if s.capacity == nil || s.world != s.changes.world {
		s.capacity, s.world = schedulable(s.state, s.ledger.Counted()), s.changes.world
	} else if s.ledger.Divided() {
		return
	}
	s.ledger.Divide(s.capacity)
}

// schedulable returns the healthy GPUs of the nodes that are up and not cordoned, by model, and what those
// nodes have of resources, by their accounts. It costs O(nodes).
func schedulable(state *cluster.State, resources []string) map[string]Milli {
	out := map[string]Milli{}
	for _, p := range state.Pools() {
		if p.Lent || p.Model == "" && len(resources) == 0 {
			continue
		}
		for _, id := range p.Members() {
			if id < 0 {
				continue
			}
			n := state.Node(id)
			if !n.Up || n.Spec.Cordoned {
				continue
			}
			if p.Model != "" {
				out[p.Model] += Milli(n.HealthyGPUs()) * WholeGPU
			}
			for _, r := range resources {
				out[r] += n.Spec.Has(r)
			}
		}
	}
	return out
}

// of returns what the queue of a waiting job is owed of the models that the job accepts.
func (s *shares) of(j *job) []Share {
	if !s.policy.fair() || !j.queue.Limited() || j.class == nil {
		return nil
	}
	s.divide()
	s.units.compile(j.class)
	accepts := j.class.accepts()
	return slices.DeleteFunc(j.queue.Shares(), func(sh Share) bool {
		if _, ok := cluster.ResourceOf(sh.Model); ok {
			return !j.takes(sh.Model)
		}
		return !slices.Contains(accepts, sh.Model)
	})
}

// ResourceUsage returns, by queue, what it and all below it own, use and borrow of CPU, memory and other
// resources of which any queue has a quota. Places that are kept for pods count, and what evicted pods
// still hold does not. It costs O(queues x resources).
func (e *Engine) ResourceUsage() map[string][]quota.Usage {
	if len(e.ledger.Counted()) == 0 {
		return nil
	}
	return e.ledger.ResourceUsage()
}

// Shares returns, by queue, what it and all below it are owed of each GPU model that they
// request; nil if the policy has no [Queueing.FairShare]. It costs O(nodes + queues x models).
func (e *Engine) Shares() map[string][]Share {
	if !e.policy.fair() {
		return nil
	}
	e.shares.divide()
	out := map[string][]Share{}
	for q := range e.ledger.All() {
		if s := q.Shares(); len(s) > 0 {
			out[q.Name] = s
		}
	}
	return out
}
