package core

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// candidate is a waiting job, and the part of it that must start now: a gang, pods that start
// one by one, or the part of them for which a plan is sought. See units.prepare.
type candidate struct {
	*job
	unit *place.Unit
}

// overrun reports whether the job's queue lacks quota for what is to start: the whole gang,
// or one pod of a job that starts pod by pod (static quota admission, Kant §3.2.1).
func (c candidate) overrun() bool { return c.queue.Limited() && c.lacks(c.room) }

// lacks reports whether the job needs more quota than is left; room returns how much is left
// of a model or resource.
func (c candidate) lacks(room func(model string) Milli) bool {
	return c.lacksAlone(room) || c.unit.Whole && (len(c.unit.Tasks) > 1 || c.unit.Tasks[0].Mixed) && c.lackTogether(room)
}

// lacksAlone is lacks for each task by itself.
func (c candidate) lacksAlone(room func(model string) Milli) bool {
	short := false
	for t := range c.unit.Tasks {
		task := &c.unit.Tasks[t]
		n := len(task.Pods)
		if n > 0 && !c.unit.Whole {
			n = 1
		}
		lacks := n > 0 && (task.GPU() > 0 && task.Allowed(room) < n || c.lacksResource(room, task, n))
		// A gang that lacks quota for one task does not start. Another job starts if it has
		// quota for a pod of one task.
		if n > 0 && lacks == c.unit.Whole {
			return lacks
		}
		short = short || lacks
	}
	return short
}

// lacksResource reports whether the queue lacks a resource for a number of pods of a task.
func (c candidate) lacksResource(room func(account string) Milli, task *place.Task, pods int) bool {
	return slices.ContainsFunc(c.queue.Limits(), func(r string) bool {
		takes := cluster.Times(pods, task.Takes(r))
		return takes > 0 && room(r) < takes
	})
}

// shortSomewhere reports whether the job lacks quota on some of the models that it
// accepts: room returns how much is left of a model. Then it may start on more of them
// when the queue may be given more, and evict more when its nominal quota has more left.
func (c candidate) shortSomewhere(room func(model string) Milli) bool {
	if !c.queue.Limited() {
		return false
	}
	for t := range c.unit.Tasks {
		task := &c.unit.Tasks[t]
		need, pods := task.GPU(), 1
		if c.unit.Whole {
			pods = len(task.Pods)
			need *= Milli(pods)
		}
		if len(task.Pods) > 0 && c.lacksResource(room, task, pods) {
			return true
		}
		for _, m := range task.Models() {
			if need > 0 && len(task.Pods) > 0 && room(m) < need {
				return true
			}
		}
	}
	return false
}

// lackTogether is lacks for the tasks of a gang together, which may count against the same
// accounts: two tasks of 4 GPUs each, on A and on B, lack quota where "*" has 6.
func (c candidate) lackTogether(room func(model string) Milli) bool {
	for _, r := range c.queue.Limits() {
		takes := Milli(0)
		for t := range c.unit.Tasks {
			task := &c.unit.Tasks[t]
			takes = cluster.Plus(takes, cluster.Times(len(task.Pods), task.Takes(r)))
		}
		if takes > 0 && room(r) < takes {
			return true
		}
	}
	return !c.divides(room)
}

// mayBorrow reports whether a job that found no room within a bound may find some beyond it: on a
// model for which it has no quota there, or for another task.
func (c candidate) mayBorrow(b bound) bool {
	if !c.queue.Limited() || len(c.Tasks) == 1 && len(c.class.accepts()) == 1 {
		return false
	}
	more := func(account string) bool { return c.room(account) > b.room(c.queue, account) }
	return slices.ContainsFunc(c.unit.Tasks, func(t place.Task) bool {
		return len(t.Pods) > 0 && (t.GPU() > 0 && slices.ContainsFunc(t.Models(), more) ||
			slices.ContainsFunc(c.queue.Limits(), func(r string) bool { return t.Takes(r) > 0 && more(r) }))
	})
}

// needed returns how much GPU must be free for the job to start: that of the whole gang, or
// of the smallest pod of another job.
func (c candidate) needed() Milli {
	need, smallest := Milli(0), cluster.MaxGPUs*WholeGPU
	for t := range c.unit.Tasks {
		if n := len(c.unit.Tasks[t].Pods); n > 0 {
			gpu := c.unit.Tasks[t].GPU()
			need, smallest = need+Milli(n)*gpu, min(smallest, gpu)
		}
	}
	if !c.unit.Whole && need > 0 {
		return smallest
	}
	return need
}

// largest returns how many devices the largest pods take, and how many pods start at once.
func (c candidate) largest() (devices, pods int) {
	for t := range c.unit.Tasks {
		devices = max(devices, c.unit.Tasks[t].GPUs)
		pods += len(c.unit.Tasks[t].Pods)
	}
	if !c.unit.Whole {
		pods = 1
	}
	return devices, pods
}
