package core

import (
	"slices"

	"github.com/muster-sched/muster/core/place"
)

// Whether quotas have room for the GPUs of a gang depends on which of its pods are on which model: accounts of several models
// may be the same. A gang for which they have room on no models must not be taken for one that lacks nodes: under StrictFIFO it
// would hold up all others, for ever.

// division divides the pods of a gang among the models that they accept.
type division struct {
	candidate
	room  func(model string) Milli
	steps int
}

// mostDivisions bounds how many numbers of pods on a model are tried. What was not tried may have room.
const mostDivisions = 256

// divides reports whether quotas have room for all pods of the gang together. False is certain.
func (c candidate) divides(room func(model string) Milli) bool {
	d := division{candidate: c, room: room}
	if len(c.Combinations) > 0 {
		return slices.ContainsFunc(c.Combinations, d.combination)
	}
	// 1. Tasks that name one model, and those that name none: these are on the same model, all of them.
	var bases []string
	var one []modelGPU
	unnamed := Milli(0)
	for t := range c.unit.Tasks {
		task := &c.unit.Tasks[t]
		need := needOf(task)
		switch models := task.Models(); {
		case need == 0 || task.Mixed:
		case task.Named && len(models) > 0:
			one = append(one, modelGPU{models[0], need})
		case task.Named:
			return false
		case unnamed == 0:
			bases, unnamed = models, need
		default:
			bases, unnamed = slices.DeleteFunc(bases, func(m string) bool { return !slices.Contains(models, m) }), unnamed+need
		}
	}
	if unnamed == 0 {
		return d.with(one, func() bool { return d.mixed(0) })
	}
	return d.with(one, func() bool {
		return slices.ContainsFunc(bases, func(base string) bool {
			return d.with([]modelGPU{{base, unnamed}}, func() bool { return d.mixed(0) })
		})
	})
}

// needOf returns what all pods of a task take.
func needOf(t *place.Task) Milli { return Milli(len(t.Pods)) * t.GPU() }

// combination reports whether there is room for the tasks on the models of one of the job's combinations.
func (d *division) combination(x Combination) bool {
	var takes []modelGPU
	for t := range d.unit.Tasks {
		if need := needOf(&d.unit.Tasks[t]); need > 0 && t < len(x.Models) {
			takes = append(takes, modelGPU{x.Models[t], need})
		}
	}
	return d.with(takes, func() bool { return true })
}

// modelGPU is GPUs of a model.
type modelGPU struct {
	model string
	gpu   Milli
}

// with books GPUs, and reports whether there is room for them and for the rest. A model without an account has no room, before it is
// booked and after.
func (d *division) with(takes []modelGPU, rest func() bool) bool {
	booked := 0
	for _, x := range takes {
		if d.room(x.model) < x.gpu {
			break
		}
		d.book(x.model, x.gpu)
		booked++
	}
	ok := booked == len(takes) && rest()
	for _, x := range takes[:booked] {
		d.book(x.model, -x.gpu)
	}
	return ok
}

// mixed reports whether there is room for the tasks from t on that name several models.
func (d *division) mixed(t int) bool {
	for ; t < len(d.unit.Tasks); t++ {
		if task := &d.unit.Tasks[t]; task.Mixed && needOf(task) > 0 {
			return d.split(t, task.Models(), len(task.Pods))
		}
	}
	return true
}

// split reports whether there is room for pods of a task on some models, and for the tasks after it. It tries as many as possible
// on the first.
func (d *division) split(t int, models []string, pods int) bool {
	if pods == 0 {
		return d.mixed(t + 1)
	}
	if len(models) == 0 {
		return false
	}
	gpu := d.unit.Tasks[t].GPU()
	for n := min(pods, int(max(d.room(models[0]), 0)/gpu)); n >= 0; n-- {
		if d.steps++; d.steps > mostDivisions {
			return true
		}
		d.book(models[0], Milli(n)*gpu)
		ok := d.split(t, models[1:], pods-n)
		d.book(models[0], -Milli(n)*gpu)
		if ok {
			return true
		}
	}
	return false
}
