package coretest

import (
	"slices"

	"github.com/muster-sched/muster/core"
)

// How long gangs run with fewer pods than their minimum.

// staleGrace is how long a job may; 0: it stops at once, or never.
func (w *Twin) staleGrace(j *job) core.Time {
	succeeded := slices.ContainsFunc(j.pods, func(p pod) bool { return p.state == done })
	switch {
	case !j.Gang || j.Foreign || j.StaleGrace < 0 || succeeded:
		return 0
	case j.StaleGrace == 0 && !(j.Locked && w.protects(j)):
		return w.policy.Requeue.StaleGrace
	}
	return j.StaleGrace
}

// short reports whether fewer pods of a gang run, or are done, than its minimum.
func (j *job) short() bool {
	for t, have := range j.members() {
		if have < minimum(&j.Tasks[t]) {
			return true
		}
	}
	return false
}

// stalls reports whether a gang runs with fewer pods than its minimum, and may not do so for ever.
func (w *Twin) stalls(j *job) bool { return j.running() > 0 && j.short() && w.staleGrace(j) > 0 }

// startsLater reports whether pods of a task wait as their gang is stale and lacks pods of other tasks, which wait, too.
func (w *Twin) startsLater(j *job, task int) bool {
	if !w.stalls(j) || j.members()[task] < minimum(&j.Tasks[task]) {
		return false
	}
	return slices.ContainsFunc(j.pods, func(p pod) bool {
		return p.state == waiting && j.members()[p.task] < minimum(&j.Tasks[p.task])
	})
}

// gangsBefore returns the gangs that an event may make stale, and whether each had its minimum: those that have begun.
func (w *Twin) gangsBefore(ev core.Event) map[*job]bool {
	had := map[*job]bool{}
	for _, j := range w.jobs {
		hit := false
		switch ev := ev.(type) {
		case core.PodEnded:
			hit = ev.Job == j.Name && j.pods[ev.Pod].on()
		case core.BindFailed:
			hit = ev.Job == j.Name && j.pods[ev.Pod].started > j.started
		case core.NodeLost:
			hit = slices.ContainsFunc(j.pods, func(p pod) bool { return p.on() && p.at.Node == ev.Node })
		}
		if hit && w.staleGrace(j) > 0 && j.whole() {
			had[j] = !j.short()
		}
	}
	return had
}

// gangsAfter notes which gangs an event made stale.
func (w *Twin) gangsAfter(now core.Time, ev core.Event, had map[*job]bool) {
	for j, had := range had {
		if !w.stalls(j) {
			continue
		}
		if j.stale == nil || had {
			j.stale = &now
		}
		j.lack()
	}
	switch ev := ev.(type) {
	case core.BindFailed:
		j := w.jobs[ev.Job]
		if _, goesOn := had[j]; !goesOn {
			j.stale = nil
			clear(j.lacks)
		}
	case core.GangStale:
		j := w.jobs[ev.Job]
		leaves := slices.ContainsFunc(j.pods, func(p pod) bool { return p.state == leaving })
		if !j.whole() && w.stalls(j) && !leaves {
			j.stale = &ev.Since
			j.lack()
		}
	}
}

// lack notes how many pods the gang goes on without.
func (j *job) lack() {
	for t, have := range j.members() {
		j.lacks[t] = max(0, minimum(&j.Tasks[t])-have)
	}
}

// staleDue forgets which gangs were stale and are no longer, and returns those that must stop now.
func (w *Twin) staleDue(now core.Time) map[*job]bool {
	due := map[*job]bool{}
	for _, j := range w.jobs {
		switch {
		case j.stale == nil:
		case !w.stalls(j):
			j.stale = nil
		case now >= *j.stale+w.staleGrace(j):
			due[j], j.stale = true, nil
			clear(j.lacks)
		}
	}
	return due
}
