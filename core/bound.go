package core

import "github.com/muster-sched/muster/core/quota"

// bound limits what a job that is tried may use, so that jobs which borrow less come first.
type bound struct {
	// reach is how far the job may borrow: [quota.Own] for not at all, else the least depth of a queue
	// from which it may: see quota.Queue.RoomWithin.
	reach int
	// owed says that the job's queue may hold no more than it is owed: see [Queueing.FairShare].
	owed bool
}

// unbound lets a job use all that its queue may.
var unbound = bound{}

// own lets a job use the nominal quota of its queue only.
var own = bound{reach: quota.Own}

// before reports whether b is tighter than o. Jobs within tighter bounds come first.
func (b bound) before(o bound) bool {
	if b == own || o == own || b.owed == o.owed {
		return b.reach > o.reach
	}
	return b.owed
}

// room returns how much more of a model jobs of the queue may use within the bound.
func (b bound) room(q *quota.Queue, model string) Milli {
	room := q.RoomWithin(model, b.reach)
	if b.owed {
		room = min(room, q.OwedRoom(model))
	}
	return room
}

// looser returns the next bound, for a job that found no room within this one.
func (us *units) looser(b bound) bound {
	switch {
	case b == own:
		return bound{us.ledger.Deepest(), us.policy.fair()}
	case b.reach > 0:
		return bound{b.reach - 1, b.owed}
	}
	return bound{us.ledger.Deepest(), false}
}

// boundOf returns the tightest bound within which the quotas have room for a waiting job (for one pod
// of it when it starts pod by pod), from a bound on. Whatever the quotas, there is none beyond [unbound].
func (us *units) boundOf(j *job, from bound) bound {
	if !us.ledger.Limited() {
		return from
	}
	us.compile(j.class)
	return us.boundIn(j.queue, us.lacks(j), from)
}

// boundIn is boundOf for a job of a queue that lacks what it needs in a room if lacks says so.
func (us *units) boundIn(q *quota.Queue, lacks func(room func(model string) Milli) bool, from bound) bound {
	return us.tightest(from, func(depth int) bool {
		return lacks(func(m string) Milli { return q.RoomWithin(m, depth) })
	}, func() bool { return lacks(q.OwedRoom) })
}

// tightest is boundIn for a job that lacks what it needs within a depth of the queues, or in what its queue is owed, if these say so.
func (us *units) tightest(from bound, lacksWithin func(depth int) bool, lacksOwed func() bool) bound {
	if from == own {
		if !lacksWithin(quota.Own) {
			return own
		}
		from = us.looser(own)
	}
	// 1. It would take its queue beyond what that is owed.
	if from.owed {
		us.shares.divide()
		if lacksOwed() {
			from = bound{us.ledger.Deepest(), false}
		}
	}
	// 2. How far it must borrow: the depth of the nearest queue above that owns enough together with
	// those below it, 0 if none does.
	depth := min(from.reach, us.ledger.Deepest())
	for depth > 0 && lacksWithin(depth) {
		depth--
	}
	return bound{depth, from.owed}
}

// lacks returns [candidate.lacks] for a waiting job.
func (us *units) lacks(j *job) func(room func(model string) Milli) bool {
	if bounded, _ := j.queue.Bounded(); !bounded {
		if p, ok := j.class.quotaNeed(); ok {
			return func(room func(string) Milli) bool { return room(p.model) < p.gpu }
		}
	}
	return us.prepare(j).lacks
}
