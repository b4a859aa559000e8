package core

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core/quota"
)

// What may be evicted for a job, the cheapest first.

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

// there reports whether the victim runs still.
func (v *victim) there() bool {
	if v.pod >= 0 {
		return v.job.pods[v.pod].state == podRunning
	}
	return v.job.count[podRunning] > 0
}

// cheaper orders victims: the weakest claim first, then what loses the least
// work, then what was submitted last.
func (v *victim) cheaper(o *victim) int {
	return cmp.Or(-v.job.key.rank(&o.job.key), cmp.Compare(v.cost, o.cost),
		-cmp.Compare(v.job.key.seq, o.job.key.seq), cmp.Compare(v.pod, o.pod))
}

// claimant is a job for which victims are sought, and what is known of it.
type claimant struct {
	*job
	now                   Time
	head, within, overrun bool
}

// search is the victims that were found for a job. It serves the alike jobs after
// it too, as long as nothing but evictions happens: victims that have been told
// to leave are passed over.
type search struct {
	of      searchOf
	victims []victim
	due     Time // when more may be evicted
	spent   bool // some of them have been evicted
	// at is where the victims are, by node; nodes are parts of it, the one with
	// the cheapest victim first.
	at    []onNode
	nodes [][]onNode
}

// searchOf is what jobs have in common for which the same may be evicted.
type searchOf struct {
	class           *class
	claim           key // class and priority alone
	within, overrun bool
}

// maxSearches is how many searches are kept.
const maxSearches = 8

// dropSearches forgets what was found: more may be evicted than then, or under
// other rules.
func (e *Engine) dropSearches() { e.searches = e.searches[:0] }

// search returns what may be evicted for the job, nil when there is nothing or
// all of it together would not make room. Only searches for others than the first
// job are kept: what that one may evict depends on when it came.
func (e *Engine) search(c claimant) *search {
	of := searchOf{c.class, key{class: c.key.class, priority: c.key.priority}, c.within, c.overrun}
	if !c.head {
		for _, s := range e.searches {
			if s.of == of {
				e.due = min(e.due, s.due)
				return s.orNil()
			}
		}
	}
	s := e.victims(c)
	s.of = of
	if !c.head {
		if len(e.searches) == maxSearches {
			e.dropSearches()
		}
		e.searches = append(e.searches, s)
	}
	return s.orNil()
}

func (s *search) orNil() *search {
	if len(s.victims) == 0 {
		return nil
	}
	return s
}

// victims finds what may be evicted for the job, if it starts within its quota
// when c.within says so.
func (e *Engine) victims(c claimant) *search {
	s := &search{}
	reach := uint64(0) // models whose pods are worth a look
	for _, m := range c.class.models {
		reach |= 1 << (m % 64)
	}
	if c.overrun {
		reach = ^uint64(0)
	}
	due := e.due
	e.due = Never
	for _, v := range e.running {
		if v == c.job || !v.evictable() || c.Class == LP && v.Class == HP || v.models&reach == 0 {
			continue
		}
		s.victims = e.addVictims(s.victims, c, v)
	}
	s.due, e.due = e.due, min(e.due, due)
	e.prepare(c.job)
	if !e.roomWith(s) {
		s.victims = nil
	}
	slices.SortFunc(s.victims, func(a, b victim) int { return a.cheaper(&b) })
	return s
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
