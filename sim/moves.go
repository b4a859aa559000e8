package sim

import (
	"slices"

	"github.com/muster-sched/muster/core"
)

// Running pods move by make before break: the pod works on at its old place while another
// instance starts at the new one.

// A Mover is a [Sink] that receives the moves of pods too. A pod that is released while it is
// being moved gives up its new place first.
type Mover interface {
	Sink
	// Moving reports that a bound pod is being moved: from now on it holds this place too.
	// forJob is the job for which the move makes room, or empty.
	Moving(t core.Time, j *Live, to core.Placement, why core.Reason, forJob string) error
	// MoveOver reports that one of the two places of a pod is free again: the old one if
	// the pod has moved to the new one, else the new one; then to is nil.
	MoveOver(t core.Time, j *Live, free core.Placement, to *core.Placement) error
}

// transfer is a move under way.
type transfer struct{ to core.Placement }

// migrate begins to move a pod.
func (r *run) migrate(now core.Time, s *state, d *core.Decision) error {
	r.stats.Decisions += len(d.Pods)
	for i := range d.Pods {
		m := &transfer{d.Pods[i]}
		s.moves = append(s.moves, m)
		r.placed(now, &m.to, s, 1)
		r.plan(event{at: now + r.Models.StartDelay + r.Models.HandOver, do: arrive, job: s, move: m})
		if err := r.sinks.job(now, s, told{call: tellMoving, reason: d.Reason, eviction: Eviction{For: d.For}}, d.Pods[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// arrive ends a move, unless it was given up: the pod is at its new place.
func (r *run) arrive(now core.Time, s *state, m *transfer) error {
	at := slices.Index(s.moves, m)
	if at < 0 {
		return nil
	}
	s.moves = slices.Delete(s.moves, at, at+1)
	pod := m.to.Pod
	old := s.placed[pod]
	s.placed[pod] = m.to
	r.placed(now, &old, s, -1)
	if err := r.tell(now, core.PodMoved{Job: s.Name, Pod: pod}); err != nil {
		return err
	}
	r.reachedSpeed(now, s, pod)
	return r.sinks.job(now, s, told{call: tellMoveOver}, []core.Placement{old, m.to})
}

// giveUp ends the moves of which that holds. The engine knows what ended them.
func (r *run) giveUp(now core.Time, s *state, which func(*transfer) bool) error {
	for i := 0; i < len(s.moves); {
		m := s.moves[i]
		if !which(m) {
			i++
			continue
		}
		s.moves = slices.Delete(s.moves, i, i+1)
		r.placed(now, &m.to, s, -1)
		if err := r.sinks.job(now, s, told{call: tellMoveOver}, []core.Placement{m.to}); err != nil {
			return err
		}
	}
	return nil
}

// giveUpOf ends the moves of some pods.
func (r *run) giveUpOf(now core.Time, s *state, pods []int) error {
	if len(s.moves) == 0 {
		return nil
	}
	return r.giveUp(now, s, func(m *transfer) bool { return slices.Contains(pods, m.to.Pod) })
}

// reachedSpeed lets the runner of a pod that has moved go on at the speed of its new places.
// What it has done counts as done.
func (r *run) reachedSpeed(now core.Time, s *state, pod int) {
	i := pod
	if s.Gang {
		i = 0
	}
	w := &s.runners[i]
	if w.speed == 0 || w.speed == r.speedOf(s, w.pods) {
		return
	}
	w.left -= min(w.banked+core.Time(float64(max(0, now-w.started))*w.speed), w.left)
	r.stop(now, w)
	r.startAt(max(now, w.started), s, i)
}

// placed counts a pod of a job that comes to a place (by 1) or leaves it (by -1).
func (r *run) placed(now core.Time, at *core.Placement, s *state, by int) {
	n := r.nodes[at.Node]
	if r.Models.Interference.on() {
		r.coresTaken(now, n, s, at.CPUMilli, int64(by))
	}
	if n.jobs == nil {
		return
	}
	if n.jobs[s] += by; n.jobs[s] == 0 {
		delete(n.jobs, s)
	}
}

// planMove plans the next request to move a pod.
func (r *run) planMove(now core.Time) {
	if r.Models.MoveEvery > 0 {
		r.plan(event{at: r.after(now, r.Models.MoveEvery), do: ask})
	}
}

// askMove asks for some pod of some job to be moved to wherever it fits best or, if it cannot move and
// saves its progress, to restart there. Many requests are refused: of jobs that stay, of pods that do
// not run, or for lack of room.
func (r *run) askMove(now core.Time) error {
	r.planMove(now)
	if len(r.live) == 0 {
		return nil
	}
	s := r.live[r.rng.IntN(len(r.live))]
	pod := r.rng.IntN(s.Pods)
	if r.tell(now, core.MoveRequested{Job: s.Name, Pod: pod}) != nil && s.Checkpoint > 0 {
		_ = r.tell(now, core.RestartRequested{Job: s.Name, Pods: []int{pod}})
	}
	return nil
}
