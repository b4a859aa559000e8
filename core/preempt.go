package core

import "github.com/muster-sched/muster/core/cluster"

// Preemption (Kant §3.2.3) is decided only as a whole plan: which pods leave
// and exactly where the job goes that they make room for. From then on the
// places are its own; when the last victim has left, it is bound.
//
// It cannot loop. Call a pod within quota when its queue's nominal quota covers
// it, the queue's running pods being counted in the order of their jobs: the
// least pods of a gang as one, those beyond them and those of other jobs each by
// itself. While a unit runs that is larger than a whole quota, those that came with or
// after it and are not stronger get none of that quota, except units that a plan placed
// by right of quota. A job may evict only
//
//   - pods beyond quota, when it would itself be within and its queue would not
//     use more than its nominal quota (reclaim), or
//   - pods of jobs after it in the order, unless it would be beyond quota and
//     they are within (priority, backfill). What another tenant's quota covers
//     it takes only under the same condition on its queue.
//
// A job that NeverPreempts evicts none, not even for its queue's own quota.
//
// A job counts as running from the decision of its plan on. Rank all jobs in the
// order. Each plan with evictions of the first kind, or of the second among pods
// within quota, makes the set of jobs within quota greater when sets are compared by
// their first difference in that ranking; each other one leaves it and makes the set
// of running jobs greater the same way. Starts without evictions, those between two
// plans taken together, never make either smaller: a larger unit takes quota only from
// those that start with it or later, and when it leaves, others get quota. A plan that
// is dropped does: its job leaves the sets again, and its victims come back. So what the
// job needs is held until it starts (its places, its quota, and in hold.go what its
// affinities need), and no decision of the engine takes it away: a plan is dropped for
// an event only. There are finitely many sets, so that without new events evictions come
// to an end.

// evictFor makes a plan by which the job starts in place of others, and decides
// it. head says that the job has waited as the first longer than Backfill lets
// it. It reports whether there is such a plan.
func (ps *pass) evictFor(j candidate, head bool) bool {
	if j.NeverPreempts {
		return false
	}

	// 1. Is a search worth while, and is there enough to evict by count?
	this, worth := ps.planner.again(j.job, ps.now, head)
	if !worth {
		return false
	}
	if !ps.planner.mayEvict(j, head) {
		if this.retry, this.settled = Never, Never; head {
			*j.class.attempt(head) = &this // it is asked for in every pass
		}
		return false
	}

	// 2. The whole gang, or each task by itself, on all models and then on each.
	ps.entitlement.update()
	later := outlook{Never, Never}
	for _, at := range ps.planner.turns(j) {
		if p := ps.planner.planFor(ps.units.prepareTurn(j.job, at), at, ps.now, head, &later); p != nil {
			ps.nominations.nominate(p)
			return true
		}
	}

	// 3. In vain: what it was made of is noted, and when more may be evicted.
	this.retry, this.settled = Never, later.settled
	if later.more != Never {
		this.retry = max(later.more, ps.now+this.pause(head))
		ps.wakes.retryAt(ps.now, this.retry)
	}
	*j.class.attempt(head) = &this
	return false
}

// outlook is what a search in vain says of later times.
type outlook struct {
	more    Time // when more may be evicted than now
	settled Time // when the first that is too young will have run for its minimum time
}

// note takes in that more may be evicted at t, as something will have run for its minimum
// time then.
func (o *outlook) note(t Time) { o.more, o.settled = min(o.more, t), min(o.settled, t) }

// turn is a part of a job for which a plan is sought by itself.
type turn struct {
	task  int    // -1 for all
	model string // of GPU; "" for all
}

var anyTurn = turn{task: -1}

// turns returns what plans are sought for: the whole gang, or each task with waiting
// pods of another job, since one may be within quota, or have victims, and another
// not; on whichever model and then, where quotas may cover the job on one model only,
// on each by itself.
func (pl *planner) turns(j candidate) []turn {
	out := pl.turnList[:0]
	for t := range j.unit.Tasks {
		if j.unit.Whole || len(j.unit.Tasks[t].Pods) > 0 {
			at := turn{task: t}
			if j.unit.Whole {
				at.task = -1
			}
			out = append(out, at)
		}
		if j.unit.Whole {
			break
		}
	}
	if models := j.class.accepts(); j.queue.Limited() && len(models) > 1 {
		for _, at := range out {
			for _, at.model = range models {
				out = append(out, at)
			}
		}
	}
	pl.turnList = out
	return out
}

// planFor returns a plan for a part of the job, nil when there is none.
func (pl *planner) planFor(j candidate, at turn, now Time, head bool, later *outlook) *plan {
	c := preemptor{
		candidate: j, turn: at, now: now, head: head, later: later,
		within: pl.entitlement.wouldBeWithin(j), short: j.overrun(), owes: j.queue.Limited() && j.lacks(j.queue.NominalRoom),
	}
	if p := pl.planFrom(c); p != nil {
		return p
	}
	if c.within && j.queue.Limited() && (c.owes || len(j.class.accepts()) > 1) {
		// It would be within quota on another model than the plan's, or its queue does
		// not give up enough for it.
		c.within = false
		return pl.planFrom(c)
	}
	return nil
}

// mayTake says whether and why a pod of v may be evicted for j, by the rules at
// the top of this file.
func (pl *planner) mayTake(j, v *job, jWithin, vWithin, head bool) (Reason, bool) {
	p := &pl.policy.Preempt
	if jWithin && !vWithin && p.Reclaim && v.queue != j.queue && j.GPUs() > 0 {
		return QuotaReclaim, true
	}
	if !jWithin && vWithin || v.disruptionProtected {
		return 0, false
	}
	switch {
	case p.Priority && j.key.compare(v.key.precedence) < 0:
		return PriorityPreemption, true
	case head && p.Backfill && v.backfilled && j.key.before(&v.key):
		return BackfillPreemption, true
	}
	return 0, false
}

// planner looks for plans of evictions. It changes the state and the ledger for trials
// only, which it takes back: what it finds is decided by [Engine.nominate].
type planner struct {
	*Engine
	budget budget
	// searches are the last ones, kept for alike jobs of one pass; spareSearches the
	// memory of dropped ones.
	searches, spareSearches []*search
	// trial numbers the searches and counts. A node, a pod or a gang was part of it that
	// has its number: visits has those of nodes.
	trial  uint32
	visits []uint32
	lifted []liftedPod // of the plan under trial
	// Scratch memory.
	turnList []turn
	ranks    []*ranked
	tried    []cluster.NodeID
}
