package core

import "math"

// Where queues have quotas, whatever ends may concern every class of waiting jobs, and most cannot use it. This file
// finds that out for most of them without a description of the job for the placer.

// simpleNeed says what the jobs of a class need that have one task on one model, and count against no quota of other
// resources.
type simpleNeed struct {
	model string
	gpu   Milli // of what starts together
	pods  int   // how many that are
}

// simple returns what the first job of a class needs, false if that cannot be said so simply.
func (c *class) simple() (simpleNeed, bool) {
	if c.id.more != "" {
		return simpleNeed{}, false
	}
	return c.quotaNeed()
}

// quotaNeed returns what counts against the quota of the first job's queue when it starts, false if that cannot be said so simply.
func (c *class) quotaNeed() (simpleNeed, bool) {
	j := c.head()
	if c.id.gpu <= 0 || len(c.shapes) != 1 || len(c.shapes[0].Models()) != 1 || len(j.queue.Limits()) > 0 {
		return simpleNeed{}, false
	}
	pods := c.startsTogether()
	return simpleNeed{c.shapes[0].Models()[0], Milli(pods) * c.id.gpu, pods}, true
}

// startsTogether returns how many pods of a job with one task start together.
func (c *class) startsTogether() int {
	if c.id.whole {
		return c.id.pods
	}
	return 1
}

// settle files a class of which a try would decide nothing, and reports whether it is one.
func (ps *pass) settle(c *class, j *job) bool {
	state, until, hopeless := ps.hopeless(c, j)
	if !hopeless {
		return false
	}
	c.trimmed = false
	if state == classStuck {
		p, _ := c.simple()
		c.exhausted = false
		c.short = ps.policy.Preempt.evicts() && j.queue.NominalRoom(p.model) < p.gpu
	}
	if c.state != state || c.idleIn == nil {
		ps.waiting.setClass(c, state)
	}
	ps.sleep(c, until)
	return true
}

// hopeless reports whether a try of a class would decide nothing, as what it would be filed, and for how long no search is
// worth a try: its queue has no quota, or by count there is no room, and no search is worth a try now.
func (ps *pass) hopeless(c *class, j *job) (classState, unsearched, bool) {
	if !ps.ledger.Limited() {
		return 0, unsearched{}, false
	}
	p, ok := c.simple()
	if !ok || ps.packs.any(j) {
		return 0, unsearched{}, false
	}
	if bounded, _ := j.queue.Bounded(); bounded {
		return 0, unsearched{}, false
	}
	if j.room(p.model) < p.gpu {
		until, ok := ps.noSearchFor(c, j, false)
		return classOverrun, until, ok
	}
	if !c.possible || c.shapes[0].SlotsInAll() >= p.pods {
		return 0, unsearched{}, false
	}
	until, ok := ps.noSearchFor(c, j, true)
	return classStuck, until, ok
}

// noSearchFor reports whether no search for evictions, or for moves (room), is worth a try for a job, and for how long: true
// is certain.
func (ps *pass) noSearchFor(c *class, j *job, room bool) (unsearched, bool) {
	until := unsearched{changes: math.MaxUint64, at: Never, free: math.MaxInt64}
	if !j.NeverPreempts && !j.restarts() && !ps.inVain(c, j, forAny, &until) {
		return until, false
	}
	if room && ps.policy.Room.MaxMoves > 0 && j.nomination == nil {
		if p, _ := c.simple(); ps.planner.freeFor(c) < p.gpu {
			until.free = p.gpu
		} else if !ps.inVain(c, j, forRoom, &until) && !ps.searchesSpent(j, &until) {
			return until, false
		}
	}
	if !ps.reclaimsPieces(j) || ps.inVain(c, j, forPieces, &until) {
		return until, true
	}
	if ps.policy.Preempt.Delay == 0 && ps.entitlement.stillUncovered(j) {
		until.uncovered = true
		return until, true
	}
	return until, ps.searchesSpent(j, &until)
}

// inVain reports whether a search of a kind is not worth a try now, and lowers until to when it may be.
func (ps *pass) inVain(c *class, j *job, kind attemptKind, until *unsearched) bool {
	if _, worth := ps.planner.again(j, ps.now, kind); worth {
		return false
	}
	last := *c.attempt(kind)
	until.changes = min(until.changes, last.changes+last.gains+last.enough)
	until.unowed = until.unowed || !last.owed && ps.shares.count()
	until.at = min(until.at, last.retry, last.at+last.pause(kind))
	return true
}

// searchesSpent reports whether no more searches for room are allowed for a job now. Then it asks for another pass when they are, and
// lowers until to that.
func (ps *pass) searchesSpent(j *job, until *unsearched) bool {
	if !ps.nominations.searches.refuses(submitterOf(j)) {
		return false
	}
	ps.wakes.retryAt(ps.now, ps.searchAgain())
	until.at = min(until.at, ps.nominations.roomAgain)
	return true
}
