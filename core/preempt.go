package core

import "github.com/muster-sched/muster/core/cluster"

// Preemption (Kant §3.2.3) is decided only as a whole plan: which pods leave, and exactly
// where the job goes for which they make room. From then on these places are kept for the
// job; when the last victim has left, it is bound.
//
// Evictions come to an end. A queue's nominal quota is assigned to its running pods in the
// order of their jobs: to the minimum of a gang as one unit, to each other pod by itself. The
// units that get quota are within quota, the others beyond it. While a unit runs that is larger
// than the whole quota, units that came with it or later and do not rank above it get none of
// that quota, except those that evicted others as ones within quota. A job may evict only
//
//   - pods beyond quota, if it would itself be within quota and its queue would use no more
//     than its nominal quota (reclaim), or
//   - pods of jobs after it in the order, unless it would be beyond quota and they are within
//     (priority, backfill). What is within the quota of another tenant, it may evict only under
//     the same condition on its queue.
//
// A job that NeverPreempts evicts none, not even for its queue's own quota.
//
// Under [Queueing.FairShare], the units beyond quota that their queues are owed are within share, and in all of
// this count for more than those beyond it: see owed.go, and docs/adr/0015 why that comes to an end, too.
//
// A job counts as running from the decision of its plan on. Rank all jobs in the order, and
// compare sets of jobs by their first difference in that ranking. Each plan with evictions of
// the first kind, or of the second kind among pods within quota, makes the set of jobs within
// quota greater. Every other plan leaves that set as it is and makes the set of running jobs
// greater. Starts without evictions, those between two plans taken together, make neither set
// smaller: a larger unit takes quota only from those that start with it or later, and when it
// leaves, others get quota. There are finitely many sets. A move of a running pod changes
// neither set: it keeps its GPU model, so that quota covers what it did.
//
// Under [EvictionTime] a job that was evicted comes behind the others when it waits again. It is in
// neither set then, and counts from then on as one that has just come. It cannot take part in a
// circle of evictions: a job for which others were evicted as it ranks above them by class or
// priority does so after that, too; and one for which backfilled jobs were evicted is itself no
// longer backfilled.
//
// A plan that is dropped makes a set smaller: its job is no longer in it, and its victims
// come back. So what the job needs is held until it starts: its places, its quota and, in
// hold.go, what its affinities need. No decision of the engine takes any of it away; only an
// event drops a plan. docs/adr/0003 describes the cases that taught this.

// evictFor makes a plan by which the job starts in place of others, and decides it. head
// says that the job is the first one and has waited for longer than Backfill allows. It
// reports whether it made one.
func (ps *pass) evictFor(j candidate, head bool) bool {
	if j.NeverPreempts || j.restarts() || j.suspended != nil {
		return false
	}
	if j.nomination != nil && j.nomination.room {
		return false // what ends that plan brings the next try: see enoughFree
	}

	// 1. Is a search worth a try, and is there enough to evict by count? Both cost little.
	this, worth := ps.planner.again(j.job, ps.now, evictionsFor(head))
	if !worth {
		return false
	}
	if !ps.planner.mayEvict(j, head) {
		if this.retry, this.settled = Never, Never; head {
			// The first jobs are tried in every pass: the next one need not count again.
			*j.class.attempt(evictionsFor(head)) = &this
		}
		return false
	}

	if ps.tooSoon(j.job) {
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

	// 3. Failed: what the search saw is recorded, and when more may be evicted.
	ps.failed(j.job, evictionsFor(head), this, later)
	return false
}

// mayEvictFrom returns when the job has waited for long enough to evict others.
func (e *Engine) mayEvictFrom(j *job) Time { return cluster.Plus(j.since, e.policy.Preempt.Delay) }

// tooSoon reports whether the job has waited for too short a time to evict others, and asks for another try
// when that is over.
func (ps *pass) tooSoon(j *job) bool {
	from := ps.mayEvictFrom(j)
	if ps.policy.Preempt.Delay == 0 || ps.now >= from {
		return false
	}
	ps.wakes.retryAt(ps.now, from)
	return true
}

// failed records that a search for a job failed, and asks for the next one when the outlook
// promises more, after a pause.
func (ps *pass) failed(j *job, kind attemptKind, this attempt, later outlook) {
	this.retry, this.settled = Never, later.settled
	if later.more != Never {
		this.retry = max(later.more, ps.now+this.pause(kind))
		ps.wakes.retryAt(ps.now, this.retry)
	}
	*j.class.attempt(kind) = &this
}

// outlook is what a search finds out about later times.
type outlook struct {
	more    Time // when more may be evicted, or restart, than now
	settled Time // when the first victim that is too young will have run for its minimum time
}

// note records that more may be evicted at t, because something will have run for its minimum
// time then.
func (o *outlook) note(t Time) { o.more, o.settled = min(o.more, t), min(o.settled, t) }

// turn is a part of a job for which a plan is sought by itself.
type turn struct {
	task  int    // -1 for all
	model string // of GPU; "" for all
}

var anyTurn = turn{task: -1}

// turns returns the parts of a job for which plans are sought: the whole gang, or each task
// with waiting pods of another job, as one task may be within quota or have victims, and
// another not. Each part is tried on all its models and then, if the job accepts several and
// there are quotas, on each model by itself: it may be within quota on one of them only.
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

// planFor returns a plan for a part of the job, nil if there is none.
func (pl *planner) planFor(j candidate, at turn, now Time, head bool, later *outlook) *plan {
	c := preemptor{
		candidate: j, turn: at, now: now, head: head, later: later,
		cover: pl.entitlement.coverOf(j), short: j.overrun(),
	}
	for {
		c.owes = j.queue.Limited() && c.cover > uncovered && j.lacks(c.room(nil))
		c.inDebt = c.owes && !pl.mayRepay(c)
		p, vain := pl.planFrom(c)
		if p != nil {
			return p
		}
		if vain && !c.inDebt {
			return nil // of what it may evict now, it may evict less as one that is covered less
		}
		if c.cover == uncovered || !j.queue.Limited() || !c.owes && len(j.class.accepts()) == 1 {
			return nil
		}
		// As one that is covered it found none: it may be covered only on a model without
		// victims, or its queue has no jobs to give up for it. By its priority it may evict those
		// that are covered less all the same.
		c.candidate = pl.units.prepareTurn(j.job, at)
		if c.cover--; c.cover == byShare && !pl.shares.count() {
			c.cover = uncovered
		}
	}
}

// mayTake says whether a pod of v, or its gang (-1), may be evicted for j, and why, by the rules at the top of
// this file and what covers them.
func (pl *planner) mayTake(j, v *job, pod int, ofJ, ofV cover, head bool) (Reason, bool) {
	p := &pl.policy.Preempt
	if ofV < ofJ && p.Reclaim && v.queue != j.queue && j.counts() {
		if ofJ == byNominal {
			return QuotaReclaim, true
		}
		return FairShareReclaim, true
	}
	// Disruption budgets do not protect from reclaim: a budget may appear, or shrink to nothing,
	// when the job has already borrowed.
	if ofJ < ofV || v.disruptionProtected {
		return 0, false
	}
	switch {
	case p.outranks(j, v):
		return PriorityPreemption, true
	case head && p.Backfill && v.backfilled && j.key.before(&v.key):
		return BackfillPreemption, true
	case pl.mayTakeAfterLease(j, v, pod):
		return LeaseOver, true
	}
	return 0, false
}

// outranks reports whether a job may evict one of lower class or priority, as far as that matters.
func (p *Preempt) outranks(j, v *job) bool {
	among := p.Priority == InCluster || p.Priority == InQueue && j.queue == v.queue
	return among && j.key.compare(v.key.precedence) < 0
}

// planner looks for plans of evictions. It changes the state and the ledger for trials only,
// which it takes back: nominations.nominate decides what it finds.
//
// Invariant: between two searches, lifted is empty and the state and the ledger are as they
// were.
type planner struct {
	*Engine
	budget budget
	// looksAtAll, fewLeads and manyLooked are the constants of these names, but for tests.
	looksAtAll, fewLeads, manyLooked int
	// searches are the last ones, kept for the alike jobs of one pass; spareSearches is the
	// memory of those that were dropped.
	searches, spareSearches []*search
	// trial numbers the searches and counts. What has its number is part of it: nodes, by
	// visits, pods and gangs.
	trial  uint32
	visits []uint32
	lifted []liftedPod // of the plan under trial
	// Scratch memory.
	turnList []turn
	ranks    []*ranked
	tried    []cluster.NodeID
	freed    []int32
	young    []nodeFreed
	drawn    []nodeFreed
}
