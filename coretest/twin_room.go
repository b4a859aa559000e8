package coretest

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core"
)

// roomPlan is a plan by which pods go elsewhere for a job: until an event upsets it, the job
// and all of those pods run once they have left their places. By the same plan, others may be
// evicted.
type roomPlan struct {
	job            *job
	starts, upsets int
	restarted      []member
	moved          []member
	evicted        []member
}

type member struct {
	job *job
	pod int
}

func (m member) state() *pod { return &m.job.pods[m.pod] }

// room returns the current plan for a job, a new one if it has none.
func (w *Twin) room(f *job) *roomPlan {
	for _, p := range w.rooms {
		if p.job == f {
			return p
		}
	}
	p := &roomPlan{job: f, starts: f.starts, upsets: w.upsets}
	w.rooms = append(w.rooms, p)
	return p
}

// restart checks that pods may stop and start again elsewhere for a job, beyond what holds for
// all evictions, and notes it.
func (w *Twin) restart(j, f *job, d *core.Decision) error {
	switch {
	case w.policy.Room.MaxMoves == 0 || !w.policy.Room.Restarts:
		return fmt.Errorf("for %s, though the policy lets no job restart", f.Name)
	case j.Class < f.Class || j.Class == f.Class && j.Priority > f.Priority:
		return fmt.Errorf("for %s, which ranks lower", f.Name)
	}
	p := w.room(f)
	for _, at := range d.Pods {
		p.restarted = append(p.restarted, member{j, at.Pod})
	}
	return p.bounded(w)
}

// evicts notes that pods are evicted for a job, if others go elsewhere for it.
func (w *Twin) evicts(j, f *job, d *core.Decision) {
	for _, p := range w.rooms {
		for _, at := range d.Pods {
			if p.job == f {
				p.evicted = append(p.evicted, member{j, at.Pod})
			}
		}
	}
}

// bounded checks that the plan is no larger than the policy allows.
func (p *roomPlan) bounded(w *Twin) error {
	if n := len(p.restarted) + len(p.moved); n > w.policy.Room.MaxMoves {
		return fmt.Errorf("%d pods go elsewhere for %s, expected at most %d", n, p.job.Name, w.policy.Room.MaxMoves)
	}
	return nil
}

// moves notes that a pod moves for a job.
func (w *Twin) moves(j *job, d *core.Decision) error {
	f := w.jobs[d.For]
	j.pods[d.Pods[0].Pod].room = d.Reason == core.Consolidation
	if d.Reason != core.Consolidation {
		return nil
	}
	if f == nil {
		return fmt.Errorf("for %q, which is no live job", d.For)
	}
	f.quotaSet, f.nominated = w.quotaSet, true
	p := w.room(f)
	p.moved = append(p.moved, member{j, d.Pods[0].Pod})
	return p.bounded(w)
}

// upsetRooms drops the plans that an event about a job upsets, and that of the job.
func (w *Twin) upsetRooms(ev core.Event) {
	var name string
	switch ev := ev.(type) {
	case core.JobEnded:
		name = ev.Job
	case core.MoveFailed:
		name = ev.Job
	case core.PodsAdded:
		name = ev.Job
	default:
		return
	}
	is := func(m member) bool { return m.job.Name == name }
	w.rooms = slices.DeleteFunc(w.rooms, func(p *roomPlan) bool {
		return p.job.Name == name || slices.ContainsFunc(p.restarted, is) || slices.ContainsFunc(p.moved, is) || slices.ContainsFunc(p.evicted, is)
	})
}

// roomsMade checks, after a pass, that the plans of which all pods have left are over: the job
// and all that made room for it run.
func (w *Twin) roomsMade() error {
	left := w.rooms[:0]
	for _, p := range w.rooms {
		if p.upsets != w.upsets {
			continue
		}
		leaves := func(m member) bool { return m.state().state == leaving }
		waits := slices.ContainsFunc(p.restarted, leaves) || slices.ContainsFunc(p.evicted, leaves) ||
			slices.ContainsFunc(p.moved, func(m member) bool { return m.state().to != nil })
		if waits {
			left = append(left, p)
			continue
		}
		if p.job.starts == p.starts {
			return fmt.Errorf("job %s: others made room for it, and it has not started", p.job.Name)
		}
		for _, m := range p.restarted {
			if m.state().state != running {
				return fmt.Errorf("pod %d of job %s made room for job %s, and does not run", m.pod, m.job.Name, p.job.Name)
			}
		}
	}
	w.rooms = left
	return nil
}
