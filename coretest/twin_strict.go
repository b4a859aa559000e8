package coretest

import (
	"slices"

	"github.com/muster-sched/muster/core"
)

// Which jobs wait under StrictFIFO because of others, where queues have quotas: a job that has quota and does not fit holds up
// all that come after it, and if it would borrow, those that would borrow, too. A job without quota holds up none.

// heldUp reports whether a job that could start may have to wait for another one. names are the jobs that wait, in their order,
// and why says for which reason each does. What is not known here holds it up.
func (w *Twin) heldUp(name string, names []string, why func(string) core.Reason) bool {
	j := w.jobs[name]
	w.nominal = true
	owns := w.Startable(name) != ""
	w.nominal = false
	before := true // j
	for _, other := range names {
		if other == name {
			before = false
			continue
		}
		b := w.jobs[other]
		switch why(other) {
		case core.BackOff, core.HPExpected, core.Held, core.MemberLost:
			continue
		}
		if b.rejected && why(other) == core.NoNode || b.suspended == nil && !w.mayHaveQuota(b, false) {
			continue
		}
		// Users who take turns come in another order than their jobs, and in a tree of queues jobs that borrow from near come first.
		first := before || w.queue(j.Queue).FairUsers || w.queue(b.Queue).FairUsers ||
			!owns && (w.inTree(j.Queue) || w.inTree(b.Queue))
		ownsToo := b.suspended != nil || w.mayHaveQuota(b, true)
		if owns && ownsToo && first || !owns && (ownsToo || first) {
			return true
		}
	}
	return false
}

// inTree reports whether a queue is below another one, or above.
func (w *Twin) inTree(name string) bool {
	return w.queue(name).Parent != "" || slices.ContainsFunc(w.queues, func(q core.Queue) bool { return q.Parent == name })
}

// mayHaveQuota reports whether quotas and bounds have room for what a waiting job would start, on some models,
// whatever is free on nodes; within nominal quota if nominal says so.
func (w *Twin) mayHaveQuota(j *job, nominal bool) bool {
	w.nominal, w.perhaps = nominal, true
	defer func() { w.nominal, w.perhaps = false, false }()
	if !j.Gang || j.whole() {
		return slices.ContainsFunc(j.pods, func(p pod) bool {
			t := &j.Tasks[p.task]
			return p.state == waiting && slices.ContainsFunc(w.acceptedBy(t), func(m string) bool { return w.allowsJob(j, t, m) })
		})
	}
	var pods []int // the tasks of the pods that the gang starts with
	gpu := core.Milli(0)
	for t, have := range j.members() {
		for range minimum(&j.Tasks[t]) - have {
			pods = append(pods, t)
			gpu += j.Tasks[t].GPU
		}
	}
	return w.boundsAllow(j, gpu) && w.onModels(j, pods, w.base(j), nil)
}

// acceptedBy lists the models of nodes that a task accepts, "" for pods without GPUs.
func (w *Twin) acceptedBy(t *core.Task) []string {
	if t.GPU == 0 {
		return []string{""}
	}
	var out []string
	for _, n := range w.nodes {
		if n.GPUs > 0 && !slices.Contains(out, n.Model) && (len(t.Models) == 0 || slices.Contains(t.Models, n.Model)) {
			out = append(out, n.Model)
		}
	}
	return out
}

// onModels reports whether quotas have room for pods of these tasks on some models, beside what others of the gang take. base is the
// model of those that name none.
func (w *Twin) onModels(j *job, pods []int, base string, beside []extra) bool {
	if len(pods) == 0 {
		return w.allows(beside) && (!w.pinned(j) || len(beside) == 0 || w.pinnedRoom(j.Queue, beside, beside, false) == nil)
	}
	t := &j.Tasks[pods[0]]
	models := w.acceptedBy(t)
	if anyModel(t) && base != "" {
		models = []string{base}
	}
	for _, m := range models {
		as := base
		if anyModel(t) {
			as = m
		}
		more := append(slices.Clip(beside), w.takes(j, t, m)...)
		if w.allows(more) && w.onModels(j, pods[1:], as, more) {
			return true
		}
	}
	return false
}

// withinOwn reports whether a queue stays within nominal quota with so much more.
func (w *Twin) withinOwn(more []extra) bool {
	for _, x := range more {
		q := w.counting(x.queue, x.model)
		for _, m := range w.weighing(x.queue, x.model) {
			own, _ := limit(q, m)
			used := w.countedAll(q, m)
			for _, y := range more {
				used += w.counted(q, m, y)
			}
			if used > own.Nominal {
				return false
			}
		}
	}
	return true
}
