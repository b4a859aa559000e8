package sim

import (
	"slices"

	"github.com/muster-sched/muster/core"
)

// suspend lets a job stop work, and free its GPUs after the time that its pause takes. What it has done is banked: it loses
// that only if it does not go on.
func (r *run) suspend(now core.Time, s *state, d *core.Decision) error {
	r.stats.Decisions += len(d.Pods)
	pods := make([]int, 0, len(d.Pods))
	for i := range d.Pods {
		pods = append(pods, d.Pods[i].Pod)
	}
	for i := range s.runners {
		if w := &s.runners[i]; w.speed > 0 {
			w.banked += core.Time(float64(max(0, now-w.started)) * w.speed)
			r.stop(now, w)
		}
	}
	s.suspended = true
	l := &leave{pods: pods, why: Suspended, by: Eviction{d.For, now, false}}
	s.leaving = append(s.leaving, l)
	r.plan(event{at: now + s.Suspend.Pause, do: depart, job: s, leave: l})
	return r.giveUpOf(now, s, pods)
}

// goOn lets a suspended job work again, after the time that its resumption takes.
func (r *run) goOn(now core.Time, s *state, d *core.Decision) error {
	if err := r.place(now, s, d); err != nil {
		return err
	}
	s.suspended = false
	for i := range s.runners {
		if !s.runners[i].over {
			r.workFrom(now+s.Suspend.Resume, s, i)
		}
	}
	return nil
}

// drop ends the suspension of a job: what it did since its last checkpoint is lost. Pods that free their GPUs still leave when
// they have; the others do after their grace.
func (r *run) drop(now core.Time, s *state) {
	s.suspended = false
	for i := range s.runners {
		w := &s.runners[i]
		kept := core.Time(0)
		if s.Checkpoint > 0 {
			kept = w.banked / s.Checkpoint * s.Checkpoint
		}
		w.left -= min(kept, w.left)
		gpus := core.Milli(0)
		for _, p := range w.pods {
			gpus += s.taskOf(p).GPU
		}
		s.Lost += float64(gpus) * (w.banked - kept).Seconds()
		w.banked = 0
	}
	if slices.ContainsFunc(s.leaving, func(l *leave) bool { return len(l.pods) > 0 }) {
		return
	}
	l := &leave{images: true}
	s.leaving = append(s.leaving, l)
	r.plan(event{at: now + r.Models.Grace, do: depart, job: s, leave: l})
}
