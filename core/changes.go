package core

import "github.com/muster-sched/muster/core/cluster"

// What happened since the last pass, and what that makes stale.
//
// Code that changes the world calls the method named for the fact, and needs to know nothing
// else: the method determines what must be tried again.
//
//	fact               waiting classes tried again  searches in vain       kept victims  entitlement
//	roomFreed          that may use the pools       -                      -             -
//	roomFreedAnywhere  all                          -                      -             -
//	quotaReturned      that lack quota              -                      -             -
//	boundsLeft         that a bound keeps waiting -                        -             -
//	quotasChanged      all                          all worth a try        -             all
//	nodeOffers         all                          all worth a try        -             -
//	nodeAllowsLess     what fitted is not certain   -                      -             -
//	nodeChanged        that may use the pool        all worth a try        -             -
//	nodeLost           that spread over domains     all worth a try        -             -
//	labelsChanged      that require labels          all worth a try        -             -
//	podsAppeared       that require labels          -                      -             -
//	podsVanished       as roomFreedAnywhere         -                      -             -
//	orderChanged       -                            all worth a try        -             all
//	protectionReturned -                            -                      -             all
//	disruptionsAllowed as roomFreed, quotaReturned  all worth a try        -             -
//	evictableChanged   -                            one change more        -             -
//	podStarted         without GPUs, see below      one change more        forgotten     the job's
//	podStopped         -                            one change more        -             the job's
//	placesChanged      -                            -                      -             the job's
//	hostJoined         that may use its pool        -                      -             -
//	planDropped        -                            all worth a try        forgotten     the job's
//	moveBegun          without GPUs, see below      one change a pod more  forgotten     -
//	moveOver           that may use the job's pools one change a pod more  -             -
//	standbyBegun       that may use the lent pool   one change a pod more  forgotten     -
//	standbyOver        that may use the job's pools one change a pod more  -             -
//
// Classes are tried again by pass.reactivate, at the start of the next pass. Under [Queueing.FairShare], it also looks at
// what queues are owed, which a job changes that comes or ends, and a node: classes are tried that may evict more. Those of jobs without
// GPUs are tried again by pass.lessReserved, in the same pass, if GPUs came into use for which
// cores were kept. A search that
// failed is repeated when it is worth a try, or when enough has changed: see
// planner.again. Victims are kept for the alike jobs of one pass: see [search]. When a
// search asks for the entitlement, the quota of the jobs that changed is assigned again,
// or all quotas.
//
// The events say these facts. Those that take a pod off its node (below: "leaves") say
// roomFreed, quotaReturned, podsVanished and placesChanged, podStopped where it ran, and
// evictableChanged where it was evicted and its place is kept for no plan. Those that
// give up plans say planDropped, and for each place roomFreed, quotaReturned and
// podsVanished.
//
//	event          facts
//	NodeAdded      nodeOffers; nodeAllowsLess if it comes back
//	NodeChanged    none if only labels and device sets differ that no pod names; else nodeOffers, nodeAllowsLess; gives up plans for it, and those of jobs that must be in one domain with its pods
//	NodeLost       nodeLost; its pods leave; gives up plans for it
//	NodeCordoned   nodeChanged; gives up plans for it
//	DeviceHealth   nodeChanged; gives up plans for it
//	QueueSet       quotasChanged
//	QueueRemoved   quotasChanged
//	JobSubmitted   none: its class is tried, as the job is new
//	PodRunning     podStarted, podsAppeared; orderChanged if the job loses its protection; gives up plans for the place
//	JobSuspended   none: its images free nothing; gives up plans for the places
//	PodsAdded      placesChanged; gives up the job's plan if it was for fewer pods
//	PodEnded       the pod leaves; without a place: its plan is given up, or placesChanged
//	GangStale      none: the next pass looks at the time of all gangs that are stale
//	PodsGone       the pods leave; orderChanged if the job is ordered by its eviction and has a place
//	BindFailed     as PodEnded
//	MoveRequested  moveBegun
//	RestartRequested  none: the next pass decides
//	PodMoved       podStopped, podStarted; moveOver
//	MoveFailed     moveOver
//	StandbyBegan   standbyBegun; roomFreedAnywhere if a pool or node is new
//	StandbyEnded   none: the next pass looks at the time of all windows
//	JobDiagnosed   none: the next pass decides. Then the job's plan may be given up; a node may say nodeChanged
//	JobReleased    none: the job is filed again
//	NodeTested     none: the next pass decides
//	FailuresFound  none: jobs are filed again; a node may say nodeChanged
//	JobEnded       its pods leave; gives up its plan
//	JobRelabelled  labelsChanged, podsVanished
//	JobShielded    evictableChanged; disruptionsAllowed
//	JobEstimated   orderChanged if the policy orders by estimates
//	JobMeasured    none: it counts in the next choice
//	JobSlowed      none: the next pass evicts the job that it shares its GPUs with
//	Checkpointed   none: it changes only what an eviction costs
//	GPUTimeCounted none: a pass puts jobs in order by what their queues received
//	Tick           none: what depends on time is looked at in every pass
//
// A pod that stops running while it is being moved says moveOver, and so does the next pass
// for a move that it no longer decides.
//
// A pod on standby that leaves its node says standbyOver, and so does a pass that lets it go on.
//
// A job that no longer has a place says protectionReturned if it had lost its protection.

// changes is what has changed since the last pass. Searches read it while the pass goes on:
// what the pass itself changes counts too.
type changes struct {
	*Engine
	// pools are those in which room was freed, a bit each (modulo 64): see poolBit.
	pools uint64
	freed uint64 // counts how often room was
	quota bool   // some was given back
	// bounds says that less runs where queues bound that, or that queues were changed.
	bounds bool
	nodes  bool // some were added or changed
	less   bool // some of them may allow less than before
	// taken are the pools in which GPUs came into use, as pools, in the pass too.
	taken uint64
	// offered counts the changes of which nodes there are, what they have, and whether they take pods.
	offered uint64
	// world counts the changes after which every failed search is worth a try. It never
	// goes back.
	world uint64
}

// begin forgets what had changed before a pass. What the pass itself frees, by
// evictions, is for the next one.
func (c *changes) begin() {
	c.pools, c.quota, c.bounds, c.nodes, c.less = 0, false, false, false, false
}

// all says that anything may have changed.
func (c *changes) all() { c.pools, c.quota = ^uint64(0), true }

// poolBit returns the bit of a node's pool. Pools whose numbers are 64 apart share one: then
// more classes are tried than could use what was freed, never fewer.
func poolBit(n *cluster.Node) uint64 { return 1 << (uint(n.PoolNumber()) % 64) }

// roomFreed: something was freed on a node. What pods there lend may have of its CPU and memory, and
// of its limit of pods, too, and the other way round.
func (c *changes) roomFreed(id cluster.NodeID) {
	c.pools |= poolBit(c.state.Node(id))
	c.freed++
	if c.standbys.ever {
		c.pools |= c.standbys.poolsAt(id)
	}
}

// roomFreedAnywhere: what kept jobs off nodes, in whatever pool, is gone.
func (c *changes) roomFreedAnywhere() { c.pools = ^uint64(0) }

// quotaReturned: some quota was returned, or may be reclaimed now.
func (c *changes) quotaReturned() { c.quota = true }

// boundsLeft: less runs where queues bound that.
func (c *changes) boundsLeft() { c.bounds = true }

// quotasChanged: queues were set or removed.
func (c *changes) quotasChanged() {
	c.bounds = true
	c.all()
	c.world++
	c.entitlement.stale = true
}

// nodeOffers: a node was added, or its resources changed.
func (c *changes) nodeOffers(id cluster.NodeID) {
	c.nodes = true
	c.nodeChanged(id)
}

// nodeAllowsLess: what fitted a node when it was empty may do so no longer.
func (c *changes) nodeAllowsLess() { c.less = true }

// nodeChanged: a node was cordoned or uncordoned, or a device failed or recovered.
func (c *changes) nodeChanged(id cluster.NodeID) {
	c.world++
	c.offered++
	c.roomFreed(id)
}

// nodeLost: a node is gone. If it was the last one of the domain with the fewest pods, jobs
// that are spread may put more pods into the other domains.
func (c *changes) nodeLost() {
	c.waiting.tryAgain(func(t Term) bool { return t.MaxSkew > 0 })
	c.world++
	c.offered++
}

// labelsChanged: the labels or affinities of a job's pods changed.
func (c *changes) labelsChanged(j *job) {
	c.podsAppeared(j)
	c.world++
}

// podsAppeared: pods of the job are on nodes, or have other labels there. Jobs that must be
// near them may start.
func (c *changes) podsAppeared(j *job) {
	if j.labelled() {
		c.waiting.tryAgain(func(Term) bool { return true })
	}
}

// podsVanished: pods of the job left their nodes. Others may have kept their distance from
// them, in whatever pool.
func (c *changes) podsVanished(j *job) {
	if j.labelled() {
		c.roomFreedAnywhere()
	}
}

// orderChanged: the order of jobs changed, or a job lost its protection from eviction.
func (c *changes) orderChanged() {
	c.world++
	c.entitlement.stale = true
}

// protectionReturned: a job that lost its protection from eviction has it again, because it
// no longer has a place.
func (c *changes) protectionReturned() { c.entitlement.stale = true }

// disruptionsAllowed: disruption budgets allow again that pods of the job are evicted for others.
func (c *changes) disruptionsAllowed(j *job) {
	for i := range j.pods {
		if p := &j.pods[i]; p.state == podRunning {
			c.roomFreed(p.alloc.Node)
			c.quotaReturned()
		}
	}
	if j.count[podRunning] > 0 {
		c.world++
	}
}

// evictableChanged: a pod on a node may be evicted now, or no longer, or it left without
// another that starts in its place, which would count.
func (c *changes) evictableChanged(id cluster.NodeID) { c.runs.loadOn(id).changes++ }

// podStarted: a pod of the job counts as running on its node from now on.
func (c *changes) podStarted(j *job, p *pod) {
	c.planner.dropSearches()
	c.countRunning(j, p, 1)
	c.placesChanged(j)
	if p.alloc.GPUs != 0 {
		c.taken |= poolBit(c.state.Node(p.alloc.Node))
	}
}

// podStopped: a pod of the job no longer counts as running.
func (c *changes) podStopped(j *job, p *pod) {
	c.countRunning(j, p, -1)
	c.placesChanged(j)
}

// placesChanged: pods of the job came to a place, or left one: where they run, or where a
// place is kept for them.
func (c *changes) placesChanged(j *job) { c.entitlement.touch(j) }

// moveBegun: a pod of the job is being moved. Neither it nor its gang may be evicted.
func (c *changes) moveBegun(j *job) {
	c.taken = ^uint64(0) // it has GPUs at both places
	for i := range j.pods {
		if p := &j.pods[i]; p.state == podRunning {
			c.evictableChanged(p.alloc.Node)
		}
	}
	c.planner.dropSearches()
}

// moveOver: the move of a pod has ended, and one of its two places is free. The pod and its
// gang may be evicted again, and other pods may be near it.
func (c *changes) moveOver(j *job, free cluster.NodeID) {
	c.roomFreed(free)
	for i := range j.pods {
		if p := &j.pods[i]; p.state == podRunning {
			c.roomFreed(p.alloc.Node)
			c.evictableChanged(p.alloc.Node)
		}
	}
	c.quotaReturned()
	c.podsAppeared(j)
	c.podsVanished(j)
}

// standbyBegun: a pod of the job lends a node. Neither it nor its gang may be evicted.
func (c *changes) standbyBegun(j *job, lent cluster.NodeID) {
	c.moveBegun(j)
	c.roomFreed(lent)
}

// standbyOver: a pod of the job is no longer on standby. The pod and its gang may be evicted
// again.
func (c *changes) standbyOver(j *job) {
	for i := range j.pods {
		if p := &j.pods[i]; p.state == podRunning {
			c.evictableChanged(p.alloc.Node)
			c.roomFreed(p.alloc.Node)
		}
	}
	c.quotaReturned()
}

// hostJoined: another job may share the GPUs of a running one.
func (c *changes) hostJoined(j *job) { c.roomFreed(j.pods[0].alloc.Node) }

// planDropped: a job's nomination, or a part of it, was given up.
func (c *changes) planDropped(j *job) {
	c.world++
	c.planner.dropSearches()
	c.placesChanged(j)
}
