package sim

import (
	"slices"

	"github.com/muster-sched/muster/core"
)

// A Lender is a [Sink] that receives, too, which pods are on standby. A pod that is released while
// it is on standby is so no longer.
type Lender interface {
	Sink
	// Standby reports that a bound pod lends its GPUs from now on, and all of its CPU and memory
	// but for what the placement has.
	Standby(t core.Time, j *Live, pod core.Placement) error
	// Resumed reports that a pod goes on, which it was told to at a time.
	Resumed(t core.Time, j *Live, pod core.Placement, told core.Time) error
}

// What a pod on standby keeps of its CPU and memory: its main process sleeps (ASI §4.2).
const (
	standbyCPUMilli = 1000
	standbyMemMiB   = 2048
)

const day = 24 * 3600 * core.Second

// window is when a job is on standby next: until a time, as it says, and to the end, if it takes its
// GPUs back before that.
type window struct{ from, until, end core.Time }

// nextWindow returns the window of a job that is open at a time, or the next one that opens.
func (s *state) nextWindow(now core.Time) (next window, ok bool) {
	for _, w := range s.Standby {
		from, until, end := w.From, w.Until, w.End()
		if w.Daily && now >= end {
			days := (now-end)/day + 1
			from, until, end = from+days*day, until+days*day, end+days*day
		}
		if end > now && (!ok || from < next.from) {
			next, ok = window{from, until, end}, true
		}
	}
	return next, ok
}

// planStandby plans when pods of a job are to be on standby next.
func (r *run) planStandby(now core.Time, s *state) {
	if len(s.Standby) == 0 || s.Class != core.HP {
		return
	}
	if w, ok := s.nextWindow(now); ok {
		r.plan(event{at: max(now, w.from), do: lend, job: s})
	}
}

// lend puts the pods of a job on standby that run and have whole GPUs.
func (r *run) lend(now core.Time, s *state) error {
	w, ok := s.nextWindow(now)
	if r.jobs[s.Name] != s || !ok || w.from > now {
		return nil
	}
	ev := core.StandbyBegan{Job: s.Name, Until: w.until, CPUMilli: standbyCPUMilli, MemMiB: standbyMemMiB}
	for i := range s.placed {
		p := &s.placed[i]
		if p.Node != "" && p.GPUs != 0 && p.GPU == core.WholeGPU && s.standing[i] == 0 && !s.leaves(i) &&
			!slices.ContainsFunc(s.moves, func(m *transfer) bool { return m.to.Pod == i }) {
			ev.Pods = append(ev.Pods, i)
		}
	}
	if len(ev.Pods) == 0 {
		return nil
	}
	if err := r.tell(now, ev); err != nil {
		return err
	}
	if w.end < w.until {
		r.plan(event{at: w.end, do: takeBack, job: s})
	}
	for _, i := range ev.Pods {
		if s.standing == nil {
			s.standing = map[int]core.Time{}
		}
		s.standing[i] = w.until
		kept := s.placed[i]
		kept.CPUMilli, kept.MemMiB = min(kept.CPUMilli, standbyCPUMilli), min(kept.MemMiB, standbyMemMiB)
		if err := r.sinks.job(now, s, told{call: tellStandby}, []core.Placement{kept}); err != nil {
			return err
		}
	}
	return nil
}

// takeBack asks for the pods of a job that are on standby to go on now.
func (r *run) takeBack(now core.Time, s *state) error {
	ev := core.StandbyEnded{Job: s.Name}
	for i, until := range s.standing {
		if until > now && !s.leaves(i) {
			ev.Pods = append(ev.Pods, i)
		}
	}
	if r.jobs[s.Name] != s || len(ev.Pods) == 0 {
		return nil
	}
	slices.Sort(ev.Pods)
	for _, i := range ev.Pods {
		s.standing[i] = now
	}
	return r.tell(now, ev)
}

// leaves reports whether a pod is leaving its node.
func (s *state) leaves(pod int) bool {
	return slices.ContainsFunc(s.leaving, func(l *leave) bool { return slices.Contains(l.pods, pod) })
}

// resume lets pods on standby go on.
func (r *run) resume(now core.Time, s *state, d *core.Decision) error {
	r.stats.Decisions += len(d.Pods)
	for i := range d.Pods {
		pod := d.Pods[i].Pod
		until := s.standing[pod]
		delete(s.standing, pod)
		if err := r.sinks.job(now, s, told{call: tellResumed, eviction: Eviction{Told: until}}, d.Pods[i:i+1]); err != nil {
			return err
		}
	}
	if len(s.standing) == 0 {
		r.planStandby(now, s)
	}
	return nil
}
