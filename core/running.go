package core

import (
	"slices"

	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/quota"
)

// This file counts what runs against the bounds of queues, and finds the jobs that must wait for them.
//
// A job counts from the moment at which a pod of it has a place, be that kept for it while others leave,
// until no pod has one and evicted ones have left. A job at a bound waits for jobs of the same queue or
// user to end: it evicts none of them, as in Slurm, and holds up no others.

// set moves a pod to another state, and counts what it takes where a policy or queue asks for that.
func (e *Engine) set(j *job, p *pod, s podState) {
	if e.longTerm.ledger == nil && !e.ledger.Follows() {
		j.set(p, s)
		return
	}
	was, had, kept := p.runs(), p.onNode(), p.placed()
	j.set(p, s)
	switch keeps := p.placed(); {
	case keeps && !kept:
		e.longTerm.place(j, p, 1)
		e.turns.place(j, p, 1)
	case kept && !keeps:
		e.longTerm.place(j, p, -1)
		e.turns.place(j, p, -1)
	}
	switch has := p.onNode(); {
	case has && !had:
		e.longTerm.hold(j, p, 1)
	case had && !has:
		e.longTerm.hold(j, p, -1)
	}
	if is := p.runs(); was != is && e.ledger.Bounded() {
		by := -1
		if is {
			by = 1
		}
		e.count(j, p, by)
		if by < 0 {
			e.changes.boundsLeft()
		}
		if j.class != nil && int(j.counted) == (by+1)/2 {
			e.jobs.recounted = append(e.jobs.recounted, j)
		}
	}
}

// runs reports whether the pod counts as running for bounds.
func (p *pod) runs() bool { return p.placed() || p.state == podLeaving }

// count counts a pod as running, or with -1 no longer, and its job with its first pod.
func (e *Engine) count(j *job, p *pod, by int) {
	before := j.counted
	j.counted += int32(by)
	jobs := int(min(j.counted, 1) - min(before, 1))
	j.queue.Run(j.User, jobs, Milli(by)*j.gpu(p))
}

// recount counts all that runs again, after queues have changed.
func (e *Engine) recount() {
	e.ledger.Recount()
	for _, j := range e.jobs.slots {
		if j == nil {
			continue
		}
		j.counted = 0
		for i := range j.pods {
			if p := &j.pods[i]; p.runs() && e.ledger.Bounded() {
				e.count(j, p, 1)
			}
		}
	}
}

// refile files the waiting jobs again of which the first pod has got a place, or the last one has left
// its: a bound on jobs keeps those only that do not run.
func (e *Engine) refile(now Time) {
	for _, j := range e.jobs.recounted {
		if j.class != nil {
			e.waiting.dequeue(j)
			e.waiting.enqueue(j, now)
		}
	}
	e.jobs.recounted = e.jobs.recounted[:0]
}

// crowded returns the bound that keeps all of a gang, or each pod of another job, from starting; false
// if none does.
func (c candidate) crowded() (quota.Crowd, bool) {
	if bounded, _ := c.queue.Bounded(); !bounded {
		return quota.Crowd{}, false
	}
	jobs := int(1 - min(c.counted, 1))
	return c.queue.Crowded(c.User, jobs, c.needed())
}

// trim takes the tasks out of a unit that starts pod by pod of which bounds on running GPUs have no room for
// one pod; none if they have room for no task, see candidate.crowded.
func (us *units) trim(j *job) {
	us.trimmed = false
	if bounded, _ := j.queue.Bounded(); !bounded || us.unit.Whole || len(us.tasks) == 1 {
		return
	}
	room := j.queue.RunRoom(j.User)
	fits := func(t *place.Task) bool { return t.GPU() == 0 || t.GPU() <= room }
	if !slices.ContainsFunc(us.tasks, func(t place.Task) bool { return len(t.Pods) > 0 && fits(&t) }) {
		return
	}
	for t := range us.tasks {
		if !fits(&us.tasks[t]) {
			us.trimmed = us.trimmed || len(us.tasks[t].Pods) > 0
			us.tasks[t].Pods = nil
		}
	}
}

// runnable returns how many of the first pods that were placed bounds on running GPUs let start.
func (j *job) runnable(placed []place.Placed) int {
	if bounded, _ := j.queue.Bounded(); !bounded {
		return len(placed)
	}
	room := j.queue.RunRoom(j.User)
	for n := range placed {
		gpu := placed[n].Alloc.GPU()
		if gpu > 0 && gpu > room {
			return n
		}
		if room != Unlimited {
			room -= gpu
		}
	}
	return len(placed)
}
