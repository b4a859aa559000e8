package snapshot

import (
	"fmt"

	"github.com/muster-sched/muster/core"
)

// Explanation says what state a job is in and, if some of it waits, why.
type Explanation struct {
	Job string `json:"job"`
	// State is running, waiting, nominated (its places are reserved, evicted pods
	// are leaving them), leaving (its pods are evicted) or impossible (it can
	// never run on these nodes).
	State   string `json:"state"`
	Waiting int    `json:"waiting_pods"`
	Running int    `json:"running_pods"`
	Leaving int    `json:"leaving_pods"`
	// Ahead counts the waiting jobs before it; [core.MostAhead] stands for as many or more.
	Ahead int `json:"ahead"`
	// Reason says why pods wait, Detail gives the numbers, Change what would
	// have to change; all are empty when none waits.
	Reason string `json:"reason"`
	Detail string `json:"detail"`
	Change string `json:"change"`
	// Nearest says where the least would have to be freed, if what is free is in the wrong
	// places; the least first.
	Nearest []string `json:"nearest,omitempty"`
	// Stops says when the job's gang, which has too few pods, is stopped; if pods wait, Detail says it.
	Stops string `json:"stops,omitempty"`
	// Owed says what the queue is owed of the GPU models that the job accepts, where the policy has fair
	// shares.
	Owed []string `json:"owed,omitempty"`
	// Turn says which queue or job is before it because it received less of the GPU time that it deserved, or because its user
	// holds less, in a queue that is fair between users.
	Turn string `json:"turn,omitempty"`
	// Decisions are those of the next pass about the job, or for it.
	Decisions []Decision `json:"decisions"`
}

// Explain says where a job of the snapshot stands after one scheduling pass,
// and what that pass does about it.
func Explain(s Snapshot, job string) (x Explanation, err error) {
	err = play(s, func(r *runner) error {
		if r.job[job] == nil {
			return fmt.Errorf("the snapshot has no job %q", job)
		}
		round, err := r.round()
		if err == nil {
			x = r.explain(job, &round)
		}
		return err
	})
	return x, err
}

// nearest is how many places an explanation names.
const nearest = 3

// explain says what state the job is in after the round.
func (r *runner) explain(job string, round *Round) Explanation {
	s := Explanation{Job: job, Decisions: []Decision{}}
	for _, d := range round.Decisions {
		if d.Job == job || d.For == job {
			s.Decisions = append(s.Decisions, d)
		}
	}
	e, _ := r.engine.Explain(job)
	s.Waiting, s.Running, s.Leaving, s.Ahead = e.Waiting, e.Running, e.Leaving, e.Ahead
	s.State = state(&e)
	if e.Stops != core.Never && e.Waiting == 0 {
		s.Stops = fmt.Sprintf("in %.3gs, unless the gang has its minimum of pods by then", (e.Stops - r.now).Seconds())
	}
	if e.Waiting > 0 {
		s.Reason, s.Detail, s.Change = e.Reason.String(), e.Detail+settled(&e, r.now), e.Advice()
		for _, f := range r.engine.Nearest(job, nearest) {
			s.Nearest = append(s.Nearest, f.Advice())
		}
		s.Turn = e.Turn
		for i := range e.Owed {
			s.Owed = append(s.Owed, fmt.Sprintf("queue %s: %s", r.job[job].Queue, e.Owed[i].String()))
		}
	}
	return s
}

// settled returns the time until the first job that is too young may be evicted, and until the job may
// evict others.
func settled(e *core.Explanation, now core.Time) string {
	said := ""
	if e.Settled != core.Never {
		said = fmt.Sprintf("; the first can be evicted in %.3gs", (e.Settled - now).Seconds())
	}
	if e.EvictsAt != core.Never {
		said += fmt.Sprintf("; in %.3gs it evicts %s", (e.EvictsAt - now).Seconds(), e.EvictsText())
	}
	if e.Delayed != core.Never {
		said += fmt.Sprintf("; it evicts no pods for another %.3gs", (e.Delayed - now).Seconds())
	}
	if e.Stops != core.Never {
		said += fmt.Sprintf("; its gang has too few pods, and is stopped in %.3gs", (e.Stops - now).Seconds())
	}
	return said
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
