package core

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
	j := c.head()
	if c.id.more != "" || c.id.gpu <= 0 || len(c.shapes) != 1 || len(c.shapes[0].Models()) != 1 || len(j.queue.Limits()) > 0 {
		return simpleNeed{}, false
	}
	pods := 1
	if c.id.whole {
		pods = c.id.pods
	}
	return simpleNeed{c.shapes[0].Models()[0], Milli(pods) * c.id.gpu, pods}, true
}

// settle files a class of which a try would decide nothing, and reports whether it is one: its queue has no quota, or by
// count there is no room, and no search is worth a try.
func (ps *pass) settle(c *class, j *job) bool {
	p, ok := c.simple()
	if !ok || !ps.ledger.Limited() {
		return false
	}
	if bounded, _ := j.queue.Bounded(); bounded {
		return false
	}
	if j.room(p.model) < p.gpu {
		if ps.maySearchFor(c, j, false) {
			return false
		}
		c.trimmed = false
		ps.waiting.setClass(c, classOverrun)
		return true
	}
	if !c.possible || c.shapes[0].SlotsInAll() >= p.pods || ps.maySearchFor(c, j, true) {
		return false
	}
	c.trimmed, c.exhausted = false, false
	c.short = ps.policy.Preempt.evicts() && j.queue.NominalRoom(p.model) < p.gpu
	ps.waiting.setClass(c, classStuck)
	return true
}

// maySearchFor reports whether a search for evictions, or for moves (room), may be worth a try for a job: false is
// certain.
func (ps *pass) maySearchFor(c *class, j *job, room bool) bool {
	if !j.NeverPreempts && !j.restarts() {
		if _, worth := ps.planner.again(j, ps.now, forAny); worth {
			return true
		}
	}
	if room && ps.policy.Room.MaxMoves > 0 && j.nomination == nil {
		if p, _ := c.simple(); ps.planner.freeFor(c) >= p.gpu {
			return true
		}
	}
	if !ps.reclaimsPieces(j) {
		return false
	}
	if _, worth := ps.planner.again(j, ps.now, forPieces); !worth {
		return false
	}
	return ps.policy.Preempt.Delay > 0 || !ps.entitlement.stillUncovered(j)
}
