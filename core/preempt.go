package core

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core/quota"
)

// Preemption (Kant §3.2.3) is decided only as a whole plan: which pods leave
// and exactly where the job goes that they make room for. From then on the
// places are its own; when the last victim has left, it is bound.
//
// It cannot loop. Call a pod within quota when its queue's nominal quota covers
// it, the queue's running pods being counted in the order of their jobs: the
// least pods of a gang as one, those beyond them and those of other jobs each by
// itself. A job may evict only
//
//   - pods beyond quota, when it would itself be within (reclaim), or
//   - pods of jobs after it in the order, unless it would be beyond quota and
//     they are within (priority, backfill).
//
// Rank all jobs in the order. Each eviction of the first kind, and of the
// second among pods within quota, makes the set of jobs within quota greater
// when sets are compared by their first difference in that ranking; each other
// one leaves it and makes the set of running jobs greater the same way. Starts
// without evictions never make either smaller. There are finitely many sets, so
// that without new events evictions come to an end.

// victim is what is evicted together: a whole gang, or one pod of another job.
type victim struct {
	job    *job
	pod    int // -1 for a gang
	reason Reason
	// cost is the work that is lost: milli-GPU times time since the last
	// checkpoint, in milli-GPU seconds.
	cost int64
}

// pods yields the running pods of a victim.
func (v *victim) pods(yield func(int) bool) {
	if v.pod >= 0 {
		yield(v.pod)
		return
	}
	for i := range v.job.pods {
		if v.job.pods[i].state == podRunning && !yield(i) {
			return
		}
	}
}

// cheaper orders victims: the weakest claim first, then what loses the least
// work, then what was submitted last.
func (v *victim) cheaper(o *victim) int {
	return cmp.Or(-v.job.key.rank(&o.job.key), cmp.Compare(v.cost, o.cost),
		-cmp.Compare(v.job.key.seq, o.job.key.seq), cmp.Compare(v.pod, o.pod))
}

// evictFor makes a plan by which the job starts in place of others, and decides
// it. head says that the job has waited as the first longer than Backfill lets
// it. It reports whether there is such a plan.
func (e *Engine) evictFor(j *job, now Time, head bool) bool {
	if !e.mayEvict(j, head) {
		return false
	}
	this, worth := e.again(j, now, head)
	if !worth {
		return false
	}
	e.due = Never
	e.cover()
	within := e.wouldBeWithin(j)
	vs := e.victims(j, now, head, within)
	if len(vs) > 0 && e.plan(j, vs, now, within) {
		return true
	}
	if within && j.queue.Limited() && len(e.modelsOf(j)) > 1 {
		// It would be within quota on another model than the plan's.
		vs = e.victims(j, now, head, false)
		if len(vs) > 0 && e.plan(j, vs, now, false) {
			return true
		}
	}
	this.retry = Never
	if e.due != Never {
		this.retry = max(e.due, now+this.pause())
		e.retry(this.retry)
	}
	*j.attempt(head) = &this
	return false
}

// victims returns what may be evicted for the job, the cheapest first: if
// within, provided that it starts within its quota. It returns nothing when all
// of it together would not make room.
func (e *Engine) victims(j *job, now Time, head, within bool) []victim {
	e.prepare(j)
	overrun := e.overrun(j)
	reach := uint64(0) // models whose pods are worth a look
	for _, m := range j.class.models {
		reach |= 1 << (m % 64)
	}
	if overrun {
		reach = ^uint64(0)
	}
	vs := e.victimList[:0]
	for _, v := range e.running {
		if v == j || !v.evictable() || j.Class == LP && v.Class == HP || v.models&reach == 0 {
			continue
		}
		vs = e.addVictims(vs, claimant{j, now, head, within, overrun}, v)
	}
	e.victimList = vs
	if !e.roomWith(vs) {
		return nil // not even all of them together make room
	}
	slices.SortFunc(vs, func(a, b victim) int { return a.cheaper(&b) })
	return vs
}

// claimant is a job for which victims are sought, and what is known of it.
type claimant struct {
	*job
	now                   Time
	head, within, overrun bool
}

// addVictims adds what may be evicted of v: a gang whole or, when its least pods
// may not be evicted, those of the others that may; single pods of other jobs.
func (e *Engine) addVictims(vs []victim, c claimant, v *job) []victim {
	limited := e.ledger.Limited()
	useful := false
	for i := range v.pods {
		p := &v.pods[i]
		useful = useful || p.state == podRunning && e.useful(c.job, v, p, c.overrun)
	}
	if !useful {
		return vs
	}
	if v.Gang {
		least := slices.IndexFunc(v.pods, func(p pod) bool { return p.state == podRunning && !(limited && p.extra) })
		if least < 0 {
			return vs
		}
		if reason, ok := e.mayTake(c.job, v, c.within, !limited || v.pods[least].within, c.head); ok {
			if e.settled(v.started, c.now) {
				vs = append(vs, victim{v, -1, reason, v.lost(c.now, -1)})
			}
			return vs
		}
	}
	for i := range v.pods {
		p := &v.pods[i]
		if p.state != podRunning || v.Gang && !(limited && p.extra) {
			continue
		}
		reason, ok := e.mayTake(c.job, v, c.within, !limited || p.within, c.head)
		if ok && e.useful(c.job, v, p, c.overrun) && e.settled(p.started, c.now) {
			vs = append(vs, victim{v, i, reason, v.lost(c.now, i)})
		}
	}
	return vs
}

// settled reports whether what started then has run for long enough; if not, it
// notes when it will have.
func (e *Engine) settled(started, now Time) bool {
	due := started + e.policy.Preempt.MinRuntime
	if now < due {
		e.due = min(e.due, due)
	}
	return now >= due
}

// retry asks for another pass at t, when more may be evicted than now.
func (e *Engine) retry(t Time) {
	e.retryAt = min(e.retryAt, t)
	e.wake(t)
}

// mayTake says whether and why a pod of v may be evicted for j, by the rules at
// the top of this file.
func (e *Engine) mayTake(j, v *job, jWithin, vWithin, head bool) (Reason, bool) {
	p := &e.policy.Preempt
	if jWithin && !vWithin && p.Reclaim && v.queue != j.queue && j.GPUs() > 0 {
		return QuotaReclaim, true
	}
	if !jWithin && vWithin {
		return 0, false
	}
	switch {
	case p.Priority && j.key.rank(&v.key) < 0:
		return PriorityPreemption, true
	case head && p.Backfill && v.backfilled && j.key.before(&v.key):
		return BackfillPreemption, true
	}
	return 0, false
}

// useful reports whether evicting a pod of v could help j: it frees GPUs that j
// can use or quota that j lacks.
func (e *Engine) useful(j, v *job, p *pod, overrun bool) bool {
	if j.class.pools&e.poolBit(p.alloc.Node) != 0 {
		return true
	}
	if !overrun {
		return false
	}
	model := e.state.Pool(p.alloc.Node).Model
	return slices.Contains(v.queue.Governing(model), quota.AnyModel)
}

// lost returns the work that an eviction of the job's running pods, or of one
// of them, loses.
func (j *job) lost(now Time, pod int) int64 {
	var gpu Milli
	since := j.started
	for i := range j.pods {
		if j.pods[i].state == podRunning && (pod < 0 || i == pod) {
			gpu += j.gpu(&j.pods[i])
			if pod >= 0 {
				since = j.pods[i].started
			}
		}
	}
	age := now - max(since, j.saved)
	if j.Checkpoint > 0 {
		age %= j.Checkpoint
	}
	return int64(gpu) * int64(age/1e6) / 1e3
}

// helpHead evicts backfilled pods for the first waiting job when it has waited
// too long, and for the first that lacks quota (Kant §3.2.2, Table 1).
func (e *Engine) helpHead(now Time) {
	if !e.policy.Preempt.Backfill {
		return
	}
	for {
		helped := false
		if len(e.ready.items) > 0 && e.ready.items[0].state == classStuck {
			helped = e.helpOne(e.ready.items[0].head(), now)
		}
		if j := e.firstOverrun(); j != nil && !helped {
			helped = e.helpOne(j, now)
		}
		if !helped {
			return
		}
	}
}

func (e *Engine) helpOne(j *job, now Time) bool {
	if due := j.since + e.policy.Queueing.HeadWait; now < due {
		e.wake(due)
		return false
	}
	e.compile(j.class)
	e.prepare(j)
	return e.evictFor(j, now, true)
}

// firstOverrun returns the first job that waits for quota, nil without any.
func (e *Engine) firstOverrun() *job {
	var first *job
	for _, c := range e.idle {
		if c.state == classOverrun && (first == nil || c.head().key.before(&first.key)) {
			first = c.head()
		}
	}
	return first
}
