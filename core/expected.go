package core

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// An LP job that starts shortly before HP jobs need its GPUs is evicted, and does again what it has
// not saved. HP demand follows the day in production (ASI §3.2, Fig. 5; 68 % of the swings of the
// spot-GPU trace). So a policy may put off LP jobs that would lose all their work: those with an
// estimate that would not have saved their progress when the GPUs that are free now no longer
// suffice for the rise to come.
//
// A job that saves its progress is not put off: it has done something until it must leave. A job
// without an estimate is not, as it may end before. And no job is put off for longer than a day:
// when HP demand is at its highest, no rise is expected.

// Spot is how LP jobs share a cluster with HP jobs beyond [Preempt].
type Spot struct {
	// Period is the length of the day, or of another cycle, that HP demand follows; 0: what HP jobs
	// will need is not forecast, and no job is put off.
	Period Time
}

// slots is the parts of a period: the hours of a day. A job that is put off is tried again after a
// quarter of one. The means of earlier periods count oldParts to newParts, and of what HP jobs have
// beyond the mean keptBeyond tenths are left a slot later: on asi-spot, spot jobs repeat the least
// with 5 to 9.
const (
	slots              = 24
	oldParts, newParts = 3, 2
	keptBeyond         = 8
)

// expectedHP forecasts the GPU of HP jobs for each model, from what they had in the same part of the
// periods before. It forecasts nothing until it has seen a whole period.
type expectedHP struct {
	slot   Time // 0 if nothing is forecast
	models []hpDemand
	// until is up to when it has counted, if it has begun. whole says that it has seen all of the
	// slot so far, seen is how many whole slots it has seen.
	until        Time
	begun, whole bool
	seen         int
}

// hpDemand is what HP jobs have of a GPU model.
type hpDemand struct {
	use  Milli
	sum  int64 // of use so far in this slot, in milli-GPU milliseconds
	mean [slots]Milli
}

// of returns the demand for a model by its number.
func (o *expectedHP) of(model int) *hpDemand {
	for len(o.models) <= model {
		o.models = append(o.models, hpDemand{})
	}
	return &o.models[model]
}

// advance lets time go on: HP jobs had until now what they have. O(models and slots since).
func (o *expectedHP) advance(now Time) {
	if o.slot == 0 {
		return
	}
	if !o.begun { // what was before is not known
		o.begun, o.until, o.whole = true, now, now%o.slot == 0
	}
	for o.until < now {
		next := (floorDiv(o.until, o.slot) + 1) * o.slot
		end := min(now, next)
		for i := range o.models {
			d := &o.models[i]
			d.sum += int64(d.use) * int64(end/millisecond-o.until/millisecond)
			if end == next {
				o.finish(d)
			}
		}
		if end == next {
			if o.whole {
				o.seen++
			}
			o.whole = true
		}
		o.until = end
	}
}

const millisecond = Second / 1000

func floorDiv(a, b Time) Time {
	if a < 0 {
		return (a - b + 1) / b
	}
	return a / b
}

// finish ends the current slot for a model.
func (o *expectedHP) finish(d *hpDemand) {
	if o.whole {
		k := o.slotAt(o.until)
		mean := Milli(d.sum / int64(o.slot/millisecond))
		if o.seen >= slots {
			mean = (oldParts*d.mean[k] + newParts*mean) / (oldParts + newParts)
		}
		d.mean[k] = mean
	}
	d.sum = 0
}

// slotAt returns the slot of a time, from 0.
func (o *expectedHP) slotAt(t Time) int { return int((floorDiv(t, o.slot)%slots + slots) % slots) }

// rises yields when the next slots begin, and by how much more than now HP jobs are expected to have
// of a model then: what they had on average, and what they have now above that, or below, of which
// some is gone with every slot. O(slots).
func (o *expectedHP) rises(model int, now Time) iter.Seq2[Time, Milli] {
	return func(yield func(Time, Milli) bool) {
		if o.seen < slots {
			return
		}
		d, at := o.of(model), floorDiv(now, o.slot)*o.slot
		beyond := d.use - d.mean[o.slotAt(now)]
		for range slots {
			at += o.slot
			beyond = beyond * keptBeyond / 10
			if !yield(at, d.mean[o.slotAt(at)]+beyond-d.use) {
				return
			}
		}
	}
}

// Expected is what HP jobs are expected to have of a GPU model.
type Expected struct {
	Model string
	// GPU is what they have now, and then what they are expected to have at the beginning of each of
	// the next slots: the next hours.
	GPU [1 + slots]Milli
}

// Expected returns what HP jobs are expected to have of each model, by name; nothing if the
// policy does not forecast, or no whole period was seen yet.
func (e *Engine) Expected() []Expected {
	if e.expected.slot == 0 || e.expected.seen < slots {
		return nil
	}
	var out []Expected
	for name, m := range e.runs.models {
		if name == "" {
			continue // nodes without GPUs
		}
		x := Expected{Model: name}
		x.GPU[0] = e.expected.of(m).use
		k := 0
		for _, rise := range e.expected.rises(m, e.now) {
			k++
			x.GPU[k] = max(0, x.GPU[0]+rise)
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b Expected) int { return cmp.Compare(a.Model, b.Model) })
	return out
}

// count adds to what HP jobs have, or takes from it.
func (o *expectedHP) count(model int, class Class, gpu Milli) {
	if class == HP {
		o.of(model).use += gpu
	}
}

// delay is why a job is put off.
type delay struct {
	model string
	rise  Milli // expected
	free  Milli // of the model, when the job was tried
	after Time  // until the rise is expected, then
}

// putOff puts a job off, and reports whether it did: an LP job whose work would be lost.
func (ps *pass) putOff(j *job) bool {
	if ps.expected.slot == 0 || j.Class != LP || j.Estimate == 0 || j.GPUs() == 0 || j.count[podRunning]+j.count[podLeaving] > 0 {
		return false
	}
	// 1. On every model that it accepts HP jobs will need more than is free, before it has saved its
	// progress, or ends.
	d := delay{}
	for k, m := range j.class.models {
		found, short := ps.shortage(j, m)
		if !short {
			return false
		}
		if k == 0 || found.after < d.after {
			d = found
		}
	}
	if len(j.class.models) == 0 {
		return false
	}

	// 2. It pauses, and does not hold up others meanwhile.
	ps.waiting.dequeue(j)
	j.delay = &d
	quarter := max(1, ps.expected.slot/4)
	j.notBefore = (floorDiv(ps.now, quarter) + 1) * quarter
	ps.waiting.enqueue(j, ps.now)
	ps.wakes.at(ps.now, j.notBefore)
	return true
}

// shortage says when HP jobs are expected to need more of a model than the job would leave free;
// false if that is not before it has saved its progress, or ends. O(slots).
func (ps *pass) shortage(j *job, model int) (delay, bool) {
	safe := cluster.Plus(ps.now, j.Estimate)
	if most := j.mostUnsaved(); most > 0 {
		safe = min(safe, cluster.Plus(ps.now, most))
	}
	d := delay{}
	for i, p := range ps.state.Pools() {
		if ps.runs.poolModels()[i] == model && !p.Lent {
			d.model = p.Model
			d.free += p.FreeMilli()
		}
	}
	needs := j.startsWith()
	for at, rise := range ps.expected.rises(model, ps.now) {
		if at >= safe {
			break
		}
		if rise > max(0, d.free-needs) {
			d.rise, d.after = rise, at-ps.now
			return d, true
		}
	}
	return d, false
}

// startsWith returns the GPU of the pods that start together: the minimum of a gang, or one pod.
func (j *job) startsWith() Milli {
	sum := Milli(0)
	for t := range j.Tasks {
		task := &j.Tasks[t]
		if !j.Gang {
			sum = max(sum, task.GPU)
			continue
		}
		sum += Milli(task.Minimum()) * task.GPU
	}
	return sum
}

// text says why the job is put off. It does not change before the job is tried again.
func (d *delay) text(slot Time) string {
	const minute = 60 * Second
	after := d.after
	if after > minute {
		after = (after + minute - 1) / minute * minute
	}
	return fmt.Sprintf("HP jobs are expected to use %s more GPUs of %s in %s, and %s are free: the job would be evicted before it has saved its work; it is tried every %s",
		d.rise.GPUs(), d.model, durationText(after), d.free.GPUs(), durationText(slot/4))
}
