package core

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/gputime"
)

// This file repairs the order of jobs when leases are over, under the orders by what they received with a [Fairness].Lease.
//
// Under [LongTermFairness], a pod or gang that has run for its lease may leave for a job that has received less of what it deserves, and would have
// even if the two changed places and the work that is lost had been its own: see [gputime.Ledger.Repairs]. The more of
// its run is lost, the more the job must be behind: so a pod whose eviction costs much has a longer lease. What covers
// the job must be no weaker than what covers the pod, and the pod's job must not be one that evicts it by priority. Under the other orders,
// and between jobs of one queue under [Fairness].Jobs, it may leave for one of its class and priority that comes before its job.
//
// Such evictions end, too, as long as no lease ends: each takes a pod whose lease is over, and what starts has a new one. So in a
// time shorter than a lease there are at most as many as pods ran when it began. Between two of them, preempt.go says why the
// others end. As time goes on, jobs take turns for ever, each for a lease at least: docs/adr/0017.

// repairsPerLease is how often in a lease the order is repaired, repairTries how many searches in vain that takes each time.
const (
	repairsPerLease = 8
	repairTries     = 4
)

// repair makes plans for the jobs that have received least, in place of pods that have run for their lease. It says when it
// is to be called again.
func (ps *pass) repair() {
	lt, lease := &ps.longTerm, ps.policy.Fairness.Lease
	if lt.ledger == nil || lt.ledger.Dominant || lease == 0 || len(ps.runs.jobs) == 0 {
		return
	}
	first := ps.waitingHeads()
	if len(first) == 0 {
		return
	}
	if ps.now >= lt.repairAt {
		every := max(1, lease/repairsPerLease)
		lt.repairAt = (floorDiv(ps.now, every) + 1) * every
		ps.repairFor(first)
	}
	ps.wakes.at(ps.now, lt.repairAt)
}

// waitingHeads returns the first jobs of the classes that found no room, or no quota.
func (ps *pass) waitingHeads() []*job {
	var first []*job
	for ic := range ps.waiting.idle.all() {
		if c := ic.class; c.state == classStuck || c.state == classOverrun {
			first = append(first, c.head())
		}
	}
	return first
}

// repairFor makes plans for the first jobs of classes, in order, and for those that come after them.
func (ps *pass) repairFor(first []*job) {
	lt := &ps.longTerm
	lt.repairing = true
	ps.planner.dropSearches()
	for tries := 0; tries < repairTries && len(first) > 0; {
		next := slices.MinFunc(first, func(a, b *job) int {
			return lt.compare(a, b, lt.indexOf(a), lt.indexOf(b))
		})
		c := next.class
		if !ps.planForLease(next) {
			tries++
			c = nil
		}
		ps.planner.dropSearches() // what the plan takes changes who is behind whom
		first = slices.DeleteFunc(first, func(j *job) bool { return j == next || j.class == nil })
		if c != nil && len(c.jobs.items) > 0 && !slices.Contains(first, c.head()) {
			first = append(first, c.head())
		}
	}
	lt.repairing = false
}

// planForLease makes a plan for a job in place of pods that have run for their lease, and reports whether it did.
func (ps *pass) planForLease(j *job) bool {
	if j.NeverPreempts || j.nomination != nil || j.suspended != nil || ps.now < ps.mayEvictFrom(j) {
		return false
	}
	ps.units.compile(j.class)
	if ps.expected.slot != 0 && j.Class == LP {
		return false // HP demand may put it off
	}
	w := ps.units.prepare(j)
	if _, crowded := w.crowded(); crowded {
		return false
	}
	ps.entitlement.update()
	later := outlook{Never, Never}
	for _, at := range ps.planner.turns(w) {
		if p := ps.planner.planFor(ps.units.prepareTurn(j, at), at, ps.now, false, &later); p != nil {
			ps.nominations.nominate(p)
			return true
		}
	}
	return false
}

// mayTakeAfterLease reports whether a pod of v, or its gang (-1), may leave for j as far as leases decide.
func (pl *planner) mayTakeAfterLease(j, v *job, n int) bool {
	lt := &pl.longTerm
	if !lt.repairing || pl.policy.Preempt.outranks(v, j) {
		return false
	}
	// 1. Its lease is over.
	started := v.started
	if n >= 0 && !v.Gang {
		started = v.pods[n].started
	}
	if pl.now < cluster.Plus(started, pl.policy.Fairness.Lease) {
		return false
	}

	// 2. It comes after the job that waits, or its queue, or it, is ahead by more than the change costs.
	if pl.policy.jobOrder() != LongTermFairness && (j.queue == v.queue || !pl.policy.byQueue()) {
		return j.key.precedence == v.key.precedence && lt.indexOf(j) < lt.indexOf(v)
	}
	i := n
	if n < 0 {
		i = slices.IndexFunc(v.pods, func(p pod) bool { return p.state == podRunning })
	}
	p := &v.pods[i]
	work, gpu := v.lost(pl.now, n)
	rate := pl.policy.Fairness.Rate(pl.state.Pool(p.alloc.Node).Model)
	return lt.ledger.Repairs(&gputime.Swap{
		Job: j.service.Job, More: pl.unitsOf(j),
		From: v.service.Job, Less: int64(gpu) * rate,
		Lost: gputime.Work(work, Time(rate)*cluster.Second), Unsaved: v.unsaved(pl.now, n), Ran: pl.now - started,
	})
}

// unitsOf returns what a waiting job would have if it started: the minimum of a gang that has not begun, one pod of another
// job.
func (pl *planner) unitsOf(j *job) int64 {
	units := int64(0)
	waiting := j.waitingByTask()
	for t := range j.Tasks {
		task := &j.Tasks[t]
		of := int64(task.GPU) * pl.policy.Fairness.RequestRate(task.Models)
		switch {
		case j.whole():
			units += int64(min(task.Minimum(), waiting[t])) * of
		case waiting[t] > 0:
			units = max(units, of)
		}
	}
	return units
}
