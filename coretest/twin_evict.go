package coretest

import (
	"fmt"

	"github.com/muster-sched/muster/core"
)

// Which pods may be evicted, and for whom.

// evict checks that the pods may be evicted, and notes it. within names the
// queues that are within their quota, beyond those that may have more than they are owed.
func (w *Twin) evict(j *job, d *core.Decision, within, beyond map[string]bool, now core.Time) error {
	f := w.jobs[d.For]
	if f == nil {
		return fmt.Errorf("for %q, which is no live job", d.For)
	}
	f.quotaSet, f.nominated = w.quotaSet, true
	p := &w.policy.Preempt
	switch {
	case f == j:
		return fmt.Errorf("for itself")
	case f.NeverPreempts:
		return fmt.Errorf("for %s, which never preempts", f.Name)
	case now < f.Submitted+p.Delay && d.Reason != core.Consolidation:
		return fmt.Errorf("for %s, which has waited since %v only", f.Name, f.Submitted)
	case p.HPOnly && f.Class == core.LP:
		return fmt.Errorf("for %s, which is LP", f.Name)
	case j.Foreign, (j.Locked || j.NotPreemptible) && w.protects(j) && !j.exposed && !j.doubtful, j.disruptionProtected && d.Reason != core.QuotaReclaim && d.Reason != core.FairShareReclaim:
		return fmt.Errorf("it may not be evicted")
	case d.Reason == core.Consolidation && j.NeverRestarts:
		return fmt.Errorf("it does not restart elsewhere")
	case f.Class == core.LP && j.Class == core.HP:
		return fmt.Errorf("HP, for LP job %s", f.Name)
	}
	if since, ok := w.settled(j, d, now); !ok {
		return fmt.Errorf("it has run since %v only", since)
	}
	outranks := f.Class < j.Class || f.Class == j.Class && f.Priority > j.Priority
	outranks = outranks && (p.Priority == core.InCluster || p.Priority == core.InQueue && f.Queue == j.Queue)
	switch {
	case d.Reason == core.PriorityPreemption && outranks:
	case d.Reason == core.QuotaReclaim && p.Reclaim && f.Queue != j.Queue && !within[j.Queue]:
	case d.Reason == core.FairShareReclaim && p.Reclaim && f.Queue != j.Queue && beyond[j.Queue]:
	case d.Reason == core.BackfillPreemption && p.Backfill && j.backfilled && f.Class <= j.Class:
	case d.Reason == core.LeaseOver && w.fairOrder() && w.leaseOver(j, d, now) && !w.wouldEvict(j, f) && w.comesAfter(j, f, d, now):
	case d.Reason == core.Consolidation:
		if err := w.restart(j, f, d); err != nil {
			return err
		}
		j.quotaSet = w.quotaSet
	default:
		return fmt.Errorf("for %s by %v, which does not hold", f.Name, d.Reason)
	}
	for _, at := range d.Pods {
		if j.pods[at.Pod].to != nil {
			return fmt.Errorf("pod %d is being moved", at.Pod)
		}
		if j.pods[at.Pod].standby != nil {
			return fmt.Errorf("pod %d is on standby", at.Pod)
		}
		if d.Reason != core.Consolidation {
			j.pods[at.Pod].left = &left{at, f, w.upsets, f.starts}
		}
	}
	if d.Reason != core.Consolidation {
		w.evicts(j, f, d)
	}
	return w.stop(j, d)
}

// settled reports whether the pods of a decision have run for the minimum time before evictions, and
// since when.
func (w *Twin) settled(j *job, d *core.Decision, now core.Time) (since core.Time, ok bool) {
	since = j.started
	if !j.Gang {
		since = 0
		for _, at := range d.Pods {
			since = max(since, j.pods[at.Pod].started)
		}
	}
	return since, now-since >= max(w.policy.Preempt.MinRuntime, w.minRuntime(j))
}

// pay counts the evictions of one plan against the budget of the interval.
func (w *Twin) pay(pods int, now core.Time) error {
	w.Evictions += pods
	p := &w.policy.Preempt
	if p.Budget == 0 || p.Interval == 0 {
		return nil
	}
	at := now / p.Interval
	if w.spent[at] > 0 && w.spent[at]+pods > p.Budget {
		return fmt.Errorf("%d pods beyond the budget of %d, %d of it spent", pods, p.Budget, w.spent[at])
	}
	w.spent[at] += pods
	return nil
}

// stop checks that the pods run, and notes that they must leave.
func (w *Twin) stop(j *job, d *core.Decision) error {
	if len(d.Pods) == 0 {
		return fmt.Errorf("no pods")
	}
	for _, at := range d.Pods {
		p := &j.pods[at.Pod]
		if p.state != running || p.at != at {
			return fmt.Errorf("pod %d does not run where the decision says", at.Pod)
		}
		p.state, p.to = leaving, nil
		p.again = d.Restarts()
		p.evicted = (d.Op == core.Evict || d.Op == core.Suspend) && !p.again && d.Reason != core.StandbyReturns
		j.unordered = j.unordered || d.Reason == core.Consolidation && w.policy.Requeue.Timestamp == core.EvictionTime
	}
	return nil
}
