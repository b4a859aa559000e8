package core

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core/gputime"
)

// This file has what an engine tells so that another one can go on after it: GPU time received and deserved, and since when
// gangs are stale.

// Served is GPU time received and deserved: decimal numbers below 2^120, in millionths of a GPU times nanoseconds, where GPUs
// count by [Fairness].Rates. Empty is 0.
type Served struct{ Received, Deserved string }

// QueueTime is what a queue with all below it and, in Own, its own jobs have received and deserved.
type QueueTime struct {
	Queue    string
	All, Own Served
}

// JobTime is what a job has received and deserved.
type JobTime struct {
	Job string
	Served
}

// amounts reads what was received and deserved. The error begins with whose it is.
func (s Served) amounts(of string) (is gputime.Served, err error) {
	for _, f := range []struct {
		text string
		to   *gputime.Amount
	}{{s.Received, &is.Received}, {s.Deserved, &is.Deserved}} {
		ok := false
		if *f.to, ok = gputime.ParseAmount(f.text); !ok && f.text != "" {
			return is, fmt.Errorf("%sGPU time of %q, expected a whole number below 2^120", of, f.text)
		}
	}
	return is, nil
}

// Check reports what is wrong with the amounts.
func (s Served) Check() error {
	_, err := s.amounts("")
	return err
}

// servedText is the reverse of amounts.
func servedText(s gputime.Served) Served { return Served{s.Received.String(), s.Deserved.String()} }

// counted replaces what queues and jobs have received and deserved.
func (lt *longTerm) counted(now Time, ev GPUTimeCounted) error {
	// 1. Everything is checked before anything changes.
	if ev.At > now || ev.At < -MaxTime {
		return fmt.Errorf("GPU time counted at %.9gs, expected a time before now, %.9gs", ev.At.Seconds(), now.Seconds())
	}
	queues, jobs := make([][2]gputime.Served, len(ev.Queues)), make([]gputime.Served, len(ev.Jobs))
	for i := range ev.Queues {
		q, err := &ev.Queues[i], error(nil)
		if _, ok := lt.Engine.ledger.Lookup(q.Queue); !ok {
			return fmt.Errorf("queue %q is unknown", q.Queue)
		}
		if queues[i][0], err = q.All.amounts("queue " + q.Queue + ": "); err != nil {
			return err
		}
		if queues[i][1], err = q.Own.amounts("queue " + q.Queue + ": "); err != nil {
			return err
		}
	}
	for i := range ev.Jobs {
		_, err := lt.job(ev.Jobs[i].Job)
		if err == nil {
			jobs[i], err = ev.Jobs[i].amounts("job " + ev.Jobs[i].Job + ": ")
		}
		if err != nil {
			return err
		}
	}
	if lt.ledger == nil {
		return nil
	}

	// 2. The heaps of waiting jobs are in the order of the indexes that they noted: jobs leave them while these change.
	for i := range ev.Queues {
		lt.ledger.SetQueue(ev.Queues[i].Queue, queues[i][0], queues[i][1], ev.At)
	}
	lt.moved = true
	for i := range ev.Jobs {
		j, _ := lt.job(ev.Jobs[i].Job)
		waits := j.class != nil || lt.waiting.pausing(j)
		lt.waiting.dequeue(j)
		lt.ledger.SetJob(j.service.Job, jobs[i])
		if waits {
			lt.waiting.enqueue(j, now)
		}
	}
	return nil
}

// QueueTimes returns what all queues have received and deserved until now, which does not go back, by name; nil unless jobs are ordered
// by that.
func (e *Engine) QueueTimes(now Time) []QueueTime {
	lt := &e.longTerm
	if lt.ledger == nil {
		return nil
	}
	lt.advance(now)
	var out []QueueTime
	for q := range e.ledger.All() {
		all, own, _ := lt.ledger.Queue(q.Name)
		out = append(out, QueueTime{q.Name, servedText(all), servedText(own)})
	}
	slices.SortFunc(out, func(a, b QueueTime) int { return strings.Compare(a.Queue, b.Queue) })
	return out
}

// JobTime returns what a job has received and deserved until now, which does not go back, nothing unless jobs are ordered by
// that; false if the job is unknown or foreign.
func (e *Engine) JobTime(now Time, job string) (Served, bool) {
	lt, j := &e.longTerm, e.jobs.byName[job]
	if lt.ledger == nil || j == nil || j.Foreign {
		return Served{}, j != nil && !j.Foreign
	}
	lt.advance(now)
	return servedText(lt.ledger.Job(j.service.Job)), true
}

// Counter says what an engine has counted, for one that goes on after it: an [Engine] does.
type Counter interface {
	Counted(now Time) GPUTimeCounted
	Failures() FailuresFound
}

// Counted returns all that QueueTimes and JobTime say, by name, for an engine that goes on after this one; no queues and no jobs unless
// jobs are ordered by that.
func (e *Engine) Counted(now Time) GPUTimeCounted {
	ev := GPUTimeCounted{At: now, Queues: e.QueueTimes(now)}
	if e.longTerm.ledger == nil {
		return ev
	}
	for name := range e.jobs.byName {
		if is, ok := e.JobTime(now, name); ok {
			ev.Jobs = append(ev.Jobs, JobTime{name, is})
		}
	}
	slices.SortFunc(ev.Jobs, func(a, b JobTime) int { return strings.Compare(a.Job, b.Job) })
	return ev
}

// Standing is where a queue stands under the orders by what was received or is held, for people: what it and those below it have received and
// deserved, in GPU-seconds, and the index by which its turn comes, the lowest first; it may be infinite.
type Standing struct{ Received, Deserved, Index float64 }

// Standings returns where all queues stand now, which does not go back; nil under other policies.
func (e *Engine) Standings(now Time) map[string]Standing {
	lt := &e.longTerm
	if lt.ledger == nil {
		return nil
	}
	lt.advance(now)
	out := map[string]Standing{}
	for q := range e.ledger.All() {
		all, _, index := lt.ledger.Queue(q.Name)
		s := Standing{all.Received.GPUSeconds(), all.Deserved.GPUSeconds(), float64(index) / gputime.IndexOne}
		if index == gputime.MostIndex {
			s.Index = math.Inf(1)
		}
		out[q.Name] = s
	}
	return out
}

// turn says which waiting job is the first, and why it comes before this one; "" if none does for what queues or jobs have received.
func (lt *longTerm) turn(j *job) string {
	if lt.ledger == nil {
		return ""
	}
	first := j
	for _, o := range lt.jobs.byName {
		if o.class != nil && lt.comesBefore(o, first) {
			first = o
		}
	}
	if !lt.policy.byQueue() {
		return lt.jobTurn(first, j, "")
	}
	x, y := lt.ledger.Rivals(first.service.Job, j.service.Job)
	switch {
	case first == j || first.Class != j.Class:
		return ""
	case x != nil:
		what := "indexes"
		if lt.ledger.Dominant {
			what = "dominant shares by weight"
		}
		return fmt.Sprintf("%s is before %s: %s %s and %s", x, y, what, shareText(lt.ledger.Index(x)), shareText(lt.ledger.Index(y)))
	case lt.ledger.Dominant || j.queue.FairUsers:
		return ""
	}
	return lt.jobTurn(first, j, " of the same queue")
}

// jobTurn says why a job comes before another one by what the two have received; "" if something else decides.
func (lt *longTerm) jobTurn(first, j *job, which string) string {
	a, b := lt.indexOf(first), lt.indexOf(j)
	if first.key.precedence != j.key.precedence || a == b {
		return ""
	}
	said := fmt.Sprintf("job %s%s is before it: ", first.Name, which)
	switch o := lt.policy.jobOrder(); {
	case lt.policy.byRemaining() && first.Estimate == 0:
		return said + "it has no estimate"
	case o == LongTermFairness:
		return said + fmt.Sprintf("indexes %s and %s", shareText(a), shareText(b))
	case o == BySubmission:
		return said + "it was submitted earlier"
	}
	return said + fmt.Sprintf("%s and %s", lt.indexText(a), lt.indexText(b))
}

// shareText says what an index of a queue, or of a job under [LongTermFairness], means.
func shareText(index int64) string {
	if index == gputime.MostIndex {
		return "infinite"
	}
	return fmt.Sprintf("%.2f", float64(index)/gputime.IndexOne)
}

// indexText says what an index means that is none of those.
func (lt *longTerm) indexText(index int64) string {
	switch lt.policy.jobOrder() {
	case ShortestRemaining:
		return fmt.Sprintf("%.9g s left", Time(index).Seconds())
	case GittinsIndex:
		level, rank := index>>levelShift, index&neverEnds
		if rank == neverEnds {
			return fmt.Sprintf("level %d, not expected to end there", level)
		}
		return fmt.Sprintf("level %d, %.9g GPU-seconds for each job that ends", level, float64(rank)/1000)
	case FinishTimeFairness:
		return fmt.Sprintf("rho %.2f", gputime.IndexOne/float64(index))
	}
	if len(lt.policy.Fairness.Levels) == 0 {
		return fmt.Sprintf("%.9g GPU-seconds received", float64(index)/1e6)
	}
	return fmt.Sprintf("level %d", index)
}

// StaleSince returns since when a gang has had fewer pods than its minimum, if it is to be stopped for that.
func (e *Engine) StaleSince(job string) (Time, bool) {
	for _, g := range e.staleGangs.all {
		if g.job.Name == job && e.staleGangs.short(g.job) {
			return g.since, true
		}
	}
	return 0, false
}
