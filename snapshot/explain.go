package snapshot

import (
	"fmt"

	"github.com/muster-sched/muster/core"
)

// Standing says where a job stands.
type Standing struct {
	Job string `json:"job"`
	// State is running, waiting, nominated (its places are settled, evicted pods
	// are leaving them), leaving (its pods are evicted) or impossible (it can
	// never run on these nodes).
	State   string `json:"state"`
	Waiting int    `json:"waiting_pods"`
	Running int    `json:"running_pods"`
	Leaving int    `json:"leaving_pods"`
	// Ahead counts the waiting jobs before it.
	Ahead int `json:"ahead"`
	// Reason says why pods wait, Detail gives the numbers, Change what would
	// have to change; all are empty when none waits.
	Reason string `json:"reason"`
	Detail string `json:"detail"`
	Change string `json:"change"`
	// Decisions are those of the next pass about the job, or for it.
	Decisions []Decision `json:"decisions"`
}

// Explain says where a job of the snapshot stands after one scheduling pass,
// and what that pass does about it.
func Explain(s Snapshot, job string) (standing Standing, err error) {
	err = play(s, func(r *runner) error {
		if r.job[job] == nil {
			return fmt.Errorf("the snapshot has no job %q", job)
		}
		round, err := r.round()
		if err == nil {
			standing = r.standing(job, &round)
		}
		return err
	})
	return standing, err
}

// standing says where the job stands after the round.
func (r *runner) standing(job string, round *Round) Standing {
	s := Standing{Job: job, Decisions: []Decision{}}
	for _, d := range round.Decisions {
		if d.Job == job || d.For == job {
			s.Decisions = append(s.Decisions, d)
		}
	}
	e, _ := r.engine.Explain(job)
	s.Waiting, s.Running, s.Leaving, s.Ahead = e.Waiting, e.Running, e.Leaving, e.Ahead
	s.State = state(&e)
	if e.Waiting > 0 {
		s.Reason, s.Detail, s.Change = e.Reason.String(), e.Detail+settled(&e, r.now), Change(e.Reason)
	}
	return s
}

// settled says how long it takes until the first may be evicted that is too young.
func settled(e *core.Explanation, now core.Time) string {
	if e.Settled == core.Never {
		return ""
	}
	return fmt.Sprintf("; the first may be evicted in %.3gs", (e.Settled - now).Seconds())
}

func state(e *core.Explanation) string {
	switch {
	case e.Waiting == 0 && e.Running == 0:
		return "leaving"
	case e.Waiting == 0:
		return "running"
	case e.Reason == core.Victims:
		return "nominated"
	case e.Reason == core.NoNode:
		return "impossible"
	}
	return "waiting"
}

// Change says what would have to change for a job that waits for the reason;
// empty when r is no reason to wait.
func Change(r core.Reason) string { return changes[r] }

// changes says, for each reason to wait, what would have to change.
var changes = map[core.Reason]string{
	core.QuotaExceeded:      "Jobs of the queue must end, other queues must lend more, or the queue needs a larger quota.",
	core.NoNode:             "The job must ask for smaller pods, for fewer at once, or for several GPU models by name, or the cluster needs more or larger nodes: no wait will help.",
	core.Resources:          "Running jobs must free GPUs, or nodes must be added.",
	core.Stranded:           "Enough GPUs must become free together on one node: smaller pods would fit now.",
	core.InsufficientCPU:    "The job must ask for less CPU, or CPU must become free beside the GPUs.",
	core.InsufficientMemory: "The job must ask for less memory, or memory must become free beside the GPUs.",
	core.InsufficientPods:   "Pods must end on nodes with free GPUs, or nodes must take more pods.",
	core.InsufficientOther:  "The job must ask for less of the resource that is short, or some must become free beside the GPUs.",
	core.TopologyTooTight:   "A domain of the required level must become free, or the job must accept a wider level.",
	core.Affinity:           "The job's selectors, tolerations or affinity must allow a node that has room.",
	core.HeldBack:           "The jobs before it must start first: the policy lets none pass.",
	core.BackOff:            "Nothing: it is tried again after a pause.",
	core.Victims:            "Nothing: the pods evicted for it must leave first.",
	core.MinRuntime:         "Nothing: jobs that use more than their queue's quota must run for their minimum time before they are evicted for it.",
	core.ExceedsQuota:       "The queue needs a larger quota or borrowing limit, or the job must ask for less at once, go to another queue, or, if it may not borrow, let itself be evicted: no wait will help.",
	core.MemberLost:         "Nothing: its own pods that were told to leave must leave first.",
}
