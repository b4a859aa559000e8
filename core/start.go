package core

import (
	"slices"
	"sort"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// This file starts pods whose places were found: quota is checked once more, then the pods are
// bound and counted.

// start places what it can of a job and, if that is anything, binds it. It
// returns the number of pods bound, -1 when only quota is short.
func (ps *pass) start(j *job, u *place.Unit) int {
	// 1. Places by what is free.
	var placed []place.Placed
	if u.Whole {
		got, ok := ps.placer.Gang(u)
		if !ok {
			return 0
		}
		placed = got
	} else if placed = ps.placer.Pods(u); len(placed) == 0 {
		return 0
	}

	// 2. Bounds, then quota, once more, for all that was placed together. Admission looked at one model
	// after the other, and a queue with 6 GPUs of "*" may have placed 4 pods on each of two.
	if n := j.runnable(placed); n < len(placed) {
		ps.state.Rollback(0)
		placed = placeAgain(ps.state, j, placed[:n])
	}
	if !affords(ps.state, j, placed, u.Room) {
		ps.state.Rollback(0)
		if placed = affordable(ps.state, j, u, placed); len(placed) == 0 {
			return -1
		}
	}

	// 3. A start must not break a plan in progress: its pods may carry the label by which the pods
	// of a nominated job must be spread evenly, say. That plan would be dropped and made again,
	// and its victims would come back and be evicted again, for ever.
	if j.labelled() && !ps.nominations.upheld() {
		ps.state.Rollback(0)
		return 0
	}
	ps.state.Commit()
	ps.bind(j, placed, ps.now, ps.waiting.howStarted(j))
	return len(placed)
}

// affordable places again as many of the first pods as the queue has quota for; none of a
// gang.
func affordable(s *cluster.State, j *job, u *place.Unit, placed []place.Placed) []place.Placed {
	n := 0
	if !u.Whole {
		n = sort.Search(len(placed), func(k int) bool { return !affords(s, j, placed[:k+1], u.Room) })
	}
	return placeAgain(s, j, placed[:n])
}

// placeAgain places pods where they were before a rollback.
func placeAgain(s *cluster.State, j *job, placed []place.Placed) []place.Placed {
	for i := range placed {
		s.Place(cluster.Owner{Job: j.slot, Pod: placed[i].Pod}, placed[i].Alloc)
	}
	return placed
}

// affords reports whether the queue has quota for all that was placed together. room says
// how much it has left of a model.
func affords(s *cluster.State, j *job, placed []place.Placed, room func(model string) Milli) bool {
	if !j.queue.Limited() {
		return true
	}
	// With all of it booked, no room may be negative: this counts pods of several models that
	// count against one account.
	j.bookPlaced(s, placed, 1)
	ok := true
	for i := range placed {
		ok = ok && j.hasResources(j.pods[placed[i].Pod].task, room)
		if placed[i].Alloc.GPUs == 0 {
			continue
		}
		model := s.Pool(placed[i].Alloc.Node).Model
		if room(model) < 0 || !j.queue.MayUse(model) {
			ok = false
		}
	}
	j.bookPlaced(s, placed, -1)
	return ok
}

// bookPlaced books what pods that were placed take (by 1), or takes that back (by -1).
func (j *job) bookPlaced(s *cluster.State, placed []place.Placed, by Milli) {
	for i := range placed {
		j.bookPod(j.pods[placed[i].Pod].task, s.Pool(placed[i].Alloc.Node).Model, by)
	}
}

// bind counts placed pods as running and decides their binding.
func (e *Engine) bind(j *job, placed []place.Placed, now Time, why Reason) {
	// The pods of a job are bound in their order, in whichever they were placed.
	e.waiting.dequeue(j)
	if !inOrder(placed) {
		slices.SortFunc(placed, func(a, b place.Placed) int { return int(a.Pod - b.Pod) })
	}
	from := len(e.places)
	e.runs.setBackfilled(j, why == Backfilled)
	came := e.entitlement.starting(now)
	for i := range placed {
		p := &j.pods[placed[i].Pod]
		p.alloc, p.came = placed[i].Alloc, came
		e.bound(j, p, now)
		e.places = append(e.places, e.placement(j, int(placed[i].Pod)))
	}
	j.begun = true
	e.out = append(e.out, Decision{Op: Bind, Job: j.Name, Pods: e.places[from:len(e.places):len(e.places)], Reason: why})
	e.changes.podsAppeared(j)
	e.waiting.enqueue(j, now) // the pods that still wait
}

// inOrder reports whether pods are in order, as they most often are.
func inOrder(placed []place.Placed) bool {
	for i := 1; i < len(placed); i++ {
		if placed[i].Pod < placed[i-1].Pod {
			return false
		}
	}
	return true
}

// bound counts a pod as running since a time.
func (e *Engine) bound(j *job, p *pod, since Time) {
	e.set(j, p, podRunning)
	p.started = since
	e.recovery.started(j, since)
	j.charge(e.state, p, 1)
	if j.count[podRunning] == 1 {
		j.started, j.saved = since, since
		e.runs.add(j)
		e.alternatives.started(j)
	}
	e.changes.podStarted(j, p)
	e.packs.started(j)
}

// stopped counts a pod as no longer running, where its state is changed already.
func (e *Engine) stopped(j *job, p *pod) {
	e.changes.podStopped(j, p)
	if p.move() != nil {
		e.moves.abandon(p.move())
	}
	if j.count[podRunning] == 0 {
		e.packs.unlist(j)
		e.runs.remove(j)
		e.unplaced(j)
	}
}
