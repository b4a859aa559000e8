package core

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// This file handles gangs that run with fewer pods than their minimum, because some failed or were lost, and
// that may do so for a while: see [RequeuePolicy.StaleGrace]. Such a gang is stale. It counts as begun, so
// that the pods it lacks start one by one as soon as they are there. The name, the default of the site and
// the exception for gangs of which pods succeeded are those of KAI's action stalegangeviction.

// staleGangs are the gangs that may be stale, in the order in which they became so.
//
// Invariant: every gang that is stale is listed. One that is listed may have its minimum again, or be over.
type staleGangs struct {
	*Engine
	all []staleGang
}

// staleGang is a gang and since when it is stale.
type staleGang struct {
	job   *job
	since Time
}

// grace returns how long the job may be stale; 0: not at all, or for ever, as the event says that makes it so.
func (s *staleGangs) grace(j *job) Time {
	switch {
	case !j.Gang || j.Foreign || j.StaleGrace < 0 || j.count[podDone] > 0:
		return 0
	case j.StaleGrace > 0:
		return j.StaleGrace
	case j.Locked:
		return 0
	}
	return s.policy.Requeue.StaleGrace
}

// had reports whether the gang has its minimum, before an event that takes pods off it. It saves the
// look at all pods where there is no grace period.
func (s *staleGangs) had(j *job) bool { return s.grace(j) > 0 && j.viable() }

// short reports whether the gang is stale: pods of it run, and they are too few.
func (s *staleGangs) short(j *job) bool {
	return s.jobs.slots[j.slot] == j && s.grace(j) > 0 && j.begun && j.count[podRunning] > 0 && !j.viable()
}

// lost decides what becomes of a gang that pods have left; had says whether it had its minimum
// before. It reports whether the gang goes on although it has too few.
func (s *staleGangs) lost(now Time, j *job, had bool) bool {
	if !s.short(j) {
		return false
	}
	i := slices.IndexFunc(s.all, func(g staleGang) bool { return g.job == j })
	switch {
	case i < 0:
		s.all = append(s.all, staleGang{j, now})
	case had: // it had recovered meanwhile
		s.all[i].since = now
	}
	return true
}

// found handles a gang that was found with too few pods. From now on those that it lacks start one by one.
func (s *staleGangs) found(now Time, ev GangStale) error {
	j, err := s.job(ev.Job)
	if err != nil {
		return err
	}
	if ev.Since > now || ev.Since < -MaxTime {
		return fmt.Errorf("job %s: stale since %.9gs, expected a time before now, %.9gs", ev.Job, ev.Since.Seconds(), now.Seconds())
	}
	if s.grace(j) == 0 || j.begun || j.count[podRunning] == 0 || j.count[podLeaving] > 0 {
		return nil
	}
	s.waiting.dequeue(j)
	s.nominations.denominate(j)
	j.begun = true
	s.lost(ev.Since, j, false)
	s.waiting.enqueue(j, now)
	return nil
}

// stop stops the gangs whose grace period is over, and asks for a call when the next one is.
func (s *staleGangs) stop(now Time) {
	if len(s.all) == 0 {
		return
	}
	s.all = slices.DeleteFunc(s.all, func(g staleGang) bool {
		j := g.job
		if !s.short(j) {
			return true
		}
		until := cluster.Plus(g.since, s.grace(j))
		if until > now {
			s.wakes.at(now, until)
			return false
		}
		s.waiting.dequeue(j)
		s.breakGang(j, StaleGang, fmt.Sprintf("it has had fewer pods than its minimum for %s: %s", secondsText(now-g.since), j.few()))
		return true
	})
}

// until returns when the job is stopped because it is stale; Never if it is not.
func (s *staleGangs) until(j *job) Time {
	for _, g := range s.all {
		if g.job == j && s.short(j) {
			return cluster.Plus(g.since, s.grace(j))
		}
	}
	return Never
}

// lacking says of which tasks a stale gang has fewer pods than their minimum, if pods of those wait, else nil. They start
// before the others: what those would hold is of no use to the gang, which is stopped unless it gets its minimum.
func (s *staleGangs) lacking(j *job) []bool {
	if len(j.Tasks) == 1 || s.until(j) == Never {
		return nil
	}
	out, waits := make([]bool, len(j.Tasks)), false
	waiting := j.waitingByTask()
	for t, n := range j.membersByTask() {
		out[t] = n < j.Tasks[t].Minimum()
		waits = waits || out[t] && waiting[t] > 0
	}
	if !waits {
		return nil
	}
	return out
}

// few says how many pods of its minimum a gang runs.
func (j *job) few() string {
	for t, n := range j.membersByTask() {
		if minimum := j.Tasks[t].Minimum(); n < minimum {
			return fmt.Sprintf("%d of %d", n, minimum)
		}
	}
	return ""
}
