package core

import "github.com/muster-sched/muster/core/cluster"

// What changes between passes, and what that makes stale. Every event handler says here
// what has happened, by the name of the fact; what must be looked at again follows from it.
//
//	fact                     waiting classes tried again  searches in vain  victims kept  entitlement
//	roomFreed                that may use the pool        -                 -             -
//	roomFreedAnywhere        all                          -                 -             -
//	quotaReturned            that lack quota              -                 -             -
//	quotasChanged            all                          worth a try       -             dealt out again
//	nodeOffers               all                          worth a try       -             -
//	nodeAllowsLess           what fitted is not certain   -                 -             -
//	nodeChanged              that may use the pool        worth a try       -             -
//	nodeLost                 that spread over it          worth a try       -             -
//	labelsChanged            that require labels          worth a try       -             -
//	orderChanged             -                            worth a try       -             dealt out again
//	shieldLifted             that may use its pools       worth a try       -             -
//	evictableChanged         -                            count the change  -             -
//	planDropped              -                            worth a try       forgotten     the job's
//	podsMoved (touch)        -                            count the change  -             the job's
//
// Classes are tried again by [Engine.reactivate], at the start of the next pass. A search
// that was in vain is made again only if it is worth a try: see [Engine.again]. Victims
// are kept for the alike jobs of one pass: see [search].

// changes is what has changed since the last pass.
type changes struct {
	// pools are those in which room was freed, a bit each (modulo 64).
	pools uint64
	quota bool // some was given back
	nodes bool // some were added or changed
	less  bool // some of them may allow less than before
	// world counts the changes after which a search in vain is worth a try.
	world uint64
}

// begin forgets what had changed before a pass. What the pass itself frees, by
// evictions, is for the next one.
func (c *changes) begin() { *c = changes{world: c.world} }

// all says that anything may have changed.
func (c *changes) all() { c.pools, c.quota = ^uint64(0), true }

func (e *Engine) poolBit(id cluster.NodeID) uint64 {
	return 1 << (uint(e.state.Node(id).PoolNumber()) % 64)
}

// roomFreed: something was freed on a node.
func (e *Engine) roomFreed(id cluster.NodeID) { e.changes.pools |= e.poolBit(id) }

// roomFreedAnywhere: what kept jobs off nodes, in whatever pool, is gone.
func (e *Engine) roomFreedAnywhere() { e.changes.pools = ^uint64(0) }

// quotaReturned: some quota was given back, or may be taken back now.
func (e *Engine) quotaReturned() { e.changes.quota = true }

// quotasChanged: queues were set or removed.
func (e *Engine) quotasChanged() {
	e.changes.all()
	e.changes.world++
	e.entitlement.stale = true
}

// nodeOffers: a node came, or changed in what it has to offer.
func (e *Engine) nodeOffers(id cluster.NodeID) {
	e.changes.nodes = true
	e.nodeChanged(id)
}

// nodeAllowsLess: what fitted a node when it was empty may do so no longer.
func (e *Engine) nodeAllowsLess() { e.changes.less = true }

// nodeChanged: a node was cordoned or uncordoned, or a device fell ill or recovered.
func (e *Engine) nodeChanged(id cluster.NodeID) {
	e.changes.world++
	e.roomFreed(id)
}

// nodeLost: a node is gone. It may have been the last of a domain that had the fewest
// pods of those that are spread.
func (e *Engine) nodeLost() {
	e.tryAgain(func(t Term) bool { return t.MaxSkew > 0 })
	e.changes.world++
}

// labelsChanged: a job's pods have other labels or affinities.
func (e *Engine) labelsChanged(j *job) {
	e.appeared(j)
	e.changes.world++
}

// orderChanged: jobs rank otherwise, or another is protected from eviction.
func (e *Engine) orderChanged() {
	e.changes.world++
	e.entitlement.stale = true
}

// shieldLifted: disruption budgets let pods of the job go again, for others.
func (e *Engine) shieldLifted(j *job) {
	for i := range j.pods {
		if p := &j.pods[i]; p.state == podRunning {
			e.roomFreed(p.alloc.Node)
			e.quotaReturned()
		}
	}
	if j.count[podRunning] > 0 {
		e.changes.world++
	}
}

// evictableChanged: a pod on a node may be evicted now, or no longer, or left without
// anyone starting in its place, which would count.
func (e *Engine) evictableChanged(id cluster.NodeID) { e.runs.loads[e.runs.modelOn(id)].changes++ }

// planDropped: a job's nomination, or a part of it, was given up.
func (e *Engine) planDropped(j *job) {
	e.changes.world++
	e.planner.dropSearches()
	e.entitlement.touch(j)
}
