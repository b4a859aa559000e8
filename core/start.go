package core

import (
	"slices"
	"sort"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// From a place found to pods that run: quota is weighed once more, then they are
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

	// 2. Quota once more, for all that was placed together: admission looked at each task
	// by itself, and pods of several models may count against one account.
	if !ps.affords(j, placed, u.Room) {
		ps.state.Rollback(0)
		if placed = ps.affordable(j, u, placed); len(placed) == 0 {
			return -1
		}
	}

	// 3. A pod of it may take from a nominated job what its affinities need.
	if j.labelled() && !ps.nominations.upheld() {
		ps.state.Rollback(0)
		return 0
	}
	ps.state.Commit()
	ps.bind(j, placed, ps.now, ps.howStarted(j))
	return len(placed)
}

// affordable places again as many of the first pods as the quota covers: pods
// of several models may count against one account. None of a gang.
func (e *Engine) affordable(j *job, u *place.Unit, placed []place.Placed) []place.Placed {
	n := 0
	if !u.Whole {
		n = sort.Search(len(placed), func(k int) bool { return !e.affords(j, placed[:k+1], u.Room) })
	}
	for i := range placed[:n] {
		e.state.Place(cluster.Owner{Job: j.slot, Pod: placed[i].Pod}, placed[i].Alloc)
	}
	return placed[:n]
}

// howStarted says whether the job starts past an earlier one.
func (e *Engine) howStarted(j *job) Reason {
	if e.policy.Queueing.Mode == StrictFIFO {
		return Placed
	}
	if e.waiting.passes(j) {
		return Backfilled
	}
	return Placed
}

// affords reports whether the queue has room for what was placed, task by task and
// model by model together: room says how much it has of a model.
func (e *Engine) affords(j *job, placed []place.Placed, room func(model string) Milli) bool {
	if !j.queue.Limited() {
		return true
	}
	book := func(by Milli) {
		for i := range placed {
			if gpu := placed[i].Alloc.GPU(); gpu > 0 {
				j.book(e.state.Pool(placed[i].Alloc.Node).Model, by*gpu)
			}
		}
	}
	book(1)
	ok := true
	for i := range placed {
		if placed[i].Alloc.GPUs == 0 {
			continue
		}
		model := e.state.Pool(placed[i].Alloc.Node).Model
		if room(model) < 0 || len(j.queue.Governing(model)) == 0 {
			ok = false
		}
	}
	book(-1)
	return ok
}

// bind counts placed pods as running and decides their binding.
func (e *Engine) bind(j *job, placed []place.Placed, now Time, why Reason) {
	e.dequeue(j)
	slices.SortFunc(placed, func(a, b place.Placed) int { return int(a.Pod - b.Pod) })
	from := len(e.places)
	e.setBackfilled(j, why == Backfilled)
	came := e.entitlement.starting(now)
	for i := range placed {
		p := &j.pods[placed[i].Pod]
		p.alloc, p.came = placed[i].Alloc, came
		e.bound(j, p, now)
		e.places = append(e.places, e.placement(j, int(placed[i].Pod)))
	}
	j.begun = true
	e.out = append(e.out, Decision{Op: Bind, Job: j.Name, Pods: e.places[from:len(e.places):len(e.places)], Reason: why})
	e.appeared(j)
	e.enqueue(j, now)
}

// appeared lets those try again that may have to be near pods of the job.
func (e *Engine) appeared(j *job) {
	if j.labelled() {
		e.tryAgain(func(Term) bool { return true })
	}
}

// tryAgain lets those jobs try again that found no room, or no victims for quota, and
// have an affinity that matters.
func (e *Engine) tryAgain(matters func(Term) bool) {
	for i := len(e.waiting.idle) - 1; i >= 0; i-- {
		if c := e.waiting.idle[i]; (c.state == classStuck || c.state == classOverrun) && c.head().requires(matters) {
			e.waiting.setClass(c, classActive)
		}
	}
}

// setBackfilled says whether a job started past an earlier one.
func (e *Engine) setBackfilled(j *job, backfilled bool) {
	if j.backfilled == backfilled {
		return
	}
	j.backfilled = backfilled
	if !j.evictable() {
		return
	}
	by := Milli(-1)
	if backfilled {
		by = 1
	}
	for i := range j.pods {
		if p := &j.pods[i]; p.state == podRunning {
			e.runs.loads[e.runs.modelOn(p.alloc.Node)].bypassed += by * e.gpuOf(j, p)
		}
	}
}

// bound counts a pod as running since a time.
func (e *Engine) bound(j *job, p *pod, since Time) {
	j.set(p, podRunning)
	p.started = since
	e.planner.dropSearches()
	e.charge(j, p, 1)
	if j.count[podRunning] == 1 {
		j.started, j.saved = since, since
		j.run = len(e.runs.jobs)
		e.runs.jobs = append(e.runs.jobs, j)
	}
	e.count(j, p, 1)
}

// stopped counts a pod as no longer running; its state is changed already.
func (e *Engine) stopped(j *job, p *pod) {
	e.count(j, p, -1)
	if j.count[podRunning] == 0 {
		last := e.runs.jobs[len(e.runs.jobs)-1]
		e.runs.jobs[j.run], last.run = last, j.run
		e.runs.jobs = e.runs.jobs[:len(e.runs.jobs)-1]
		j.run = -1
		e.unplaced(j)
	}
}

// gpuOf returns the GPU of a pod, at least 1 so that pods without GPUs count.
func (e *Engine) gpuOf(j *job, p *pod) Milli { return max(j.gpu(p), 1) }
