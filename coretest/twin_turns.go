package coretest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core"
)

// Which users' jobs come next in the queues that are fair between users.

// takeTurns reports whether two jobs take turns with each other: they are of one such queue, and both have GPUs, or neither.
func (w *Twin) takeTurns(a, b *job) bool {
	return a.Queue == b.Queue && w.queue(a.Queue).FairUsers && (a.GPUs() > 0) == (b.GPUs() > 0)
}

// rate returns what a GPU of a model counts, in thousandths.
func (w *Twin) rate(model string) int64 {
	for _, r := range w.policy.Fairness.Rates {
		if r.Model == model {
			return r.Rate
		}
	}
	return 1000
}

// heldByUser adds up what the jobs of the user of j hold that take turns with it.
func (w *Twin) heldByUser(j *job) int64 {
	sum := int64(0)
	for _, o := range w.jobs {
		if o.User != j.User || !w.takeTurns(o, j) {
			continue
		}
		for i := range o.pods {
			switch t := &o.Tasks[o.pods[i].task]; {
			case o.pods[i].state != running:
			case j.GPUs() == 0:
				sum += t.CPUMilli
			case t.GPU > 0:
				sum += int64(t.GPU) * w.rate(w.node(o.pods[i].at.Node).Model)
			}
		}
	}
	return sum
}

// knowsHeld reports whether the engine surely keeps no place for any pod.
func (w *Twin) knowsHeld() bool {
	for _, j := range w.jobs {
		again := slices.ContainsFunc(j.pods, func(p pod) bool { return p.state == waiting && p.again })
		// What is left of a gang that lost a pod must leave, from before the pass that says so.
		broken := j.Gang && j.running() > 0 && slices.ContainsFunc(j.pods, func(p pod) bool { return p.state == waiting })
		if j.nominated || j.restarts != core.Placed || again || broken {
			return false
		}
	}
	return w.Settled() && len(w.rooms) == 0 && len(w.asked) == 0
}

// turns checks in which order users take turns.
type turns struct {
	*Twin
	left []*job
	more map[string]int64 // what users would hold more after those before, by queue, kind and user
	held bool
	// out are the jobs that take no turn now. The twin does not know of which the engine has found that even empty nodes do not hold
	// them: these may be, and so may what their users would hold.
	out, perhaps map[*job]bool
}

// turnsOf begins to check the order of jobs that wait; why says for which reason each does.
func (w *Twin) turnsOf(names []string, why func(string) core.Reason) *turns {
	t := &turns{Twin: w, more: map[string]int64{}, held: w.knowsHeld(), out: map[*job]bool{}, perhaps: map[*job]bool{}}
	for _, name := range names {
		j := w.jobs[name]
		t.left = append(t.left, j)
		switch why(name) {
		case core.BackOff, core.HPExpected, core.Held, core.MemberLost:
			t.out[j] = true
		case core.NoNode:
			t.perhaps[j] = true
		}
	}
	return t
}

// unsure reports whether the twin does not know who takes turns with a job.
func (t *turns) unsure(j *job) bool {
	return slices.ContainsFunc(t.left, func(o *job) bool { return t.perhaps[o] && t.takeTurns(o, j) })
}

// would returns what the user of a job would hold.
func (t *turns) would(j *job) int64 {
	return t.heldByUser(j) + t.more[fmt.Sprint(j.Queue, j.GPUs() > 0, j.User)]
}

// comparePlaces compares the places of jobs of one class and priority in the order, as far as the twin knows them.
func comparePlaces(a, b *job) int {
	return cmp.Or(cmp.Compare(a.estimate, b.estimate), cmp.Compare(a.width, b.width), cmp.Compare(a.ordered, b.ordered))
}

// take checks that it is the turn of a job, the i-th of all, and returns whose place in the order it takes: that of the first one that is left;
// nil if the twin does not know the places of all of these.
func (t *turns) take(i int, j *job) (*job, error) {
	at := j
	switch {
	case !t.queue(j.Queue).FairUsers || t.out[j]:
		return at, nil
	case t.unsure(j):
		return nil, nil
	}
	known := true
	for _, o := range t.left[i:] {
		if o == j || t.out[o] || !t.takeTurns(o, j) || o.Class != j.Class || o.Priority != j.Priority {
			continue
		}
		if o.unordered {
			known = false
			continue
		}
		if comparePlaces(o, at) < 0 {
			at = o
		}
		if !t.held {
			continue
		}
		x, y := t.would(o), t.would(j)
		if x < y || x == y && comparePlaces(o, j) < 0 {
			return nil, fmt.Errorf("job %s of user %q, who would hold %d, comes before %s of user %q, who would hold %d", j.Name, j.User, y, o.Name, o.User, x)
		}
	}
	t.start(j)
	if !known {
		at = nil
	}
	return at, nil
}

// start counts what a job waits for as held by its user.
func (t *turns) start(j *job) {
	wants := int64(0)
	for k := range j.pods {
		task := &j.Tasks[j.pods[k].task]
		switch {
		case j.pods[k].state != waiting:
		case j.GPUs() == 0:
			wants += task.CPUMilli
		case task.GPU > 0:
			wants += int64(task.GPU) * t.requestRate(task)
		}
	}
	t.more[fmt.Sprint(j.Queue, j.GPUs() > 0, j.User)] += wants
}

// requestRate returns the greatest rate among the models that a task accepts.
func (w *Twin) requestRate(t *core.Task) int64 {
	if len(t.Models) > 0 {
		return w.rate(slices.MaxFunc(t.Models, func(a, b string) int { return int(w.rate(a) - w.rate(b)) }))
	}
	most := int64(1000)
	for _, r := range w.policy.Fairness.Rates {
		most = max(most, r.Rate)
	}
	return most
}
