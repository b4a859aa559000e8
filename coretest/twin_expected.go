package coretest

import (
	"fmt"

	"github.com/muster-sched/muster/core"
)

// What HP jobs are expected to need, and which LP jobs are put off for that.

const hours = 24 // the parts of a period

// had is all that HP jobs had of each model: milli-GPU milliseconds by hour since time 0.
type had struct {
	until core.Time
	first core.Time // the first hour that was seen from its beginning
	sums  map[core.Time]map[string]int64
}

// lapse lets time go on to now.
func (w *Twin) lapse(now core.Time) {
	hour := w.policy.Spot.Period / hours
	if hour == 0 {
		return
	}
	if w.had == nil {
		w.had = &had{until: now, first: (now + hour - 1) / hour, sums: map[core.Time]map[string]int64{}}
	}
	const ms = core.Second / 1000
	for w.had.until < now {
		k := w.had.until / hour
		end := min(now, (k+1)*hour)
		if w.had.sums[k] == nil {
			w.had.sums[k] = map[string]int64{}
		}
		for model, gpu := range w.hpHas() {
			w.had.sums[k][model] += int64(gpu) * int64(end/ms-w.had.until/ms)
		}
		w.had.until = end
	}
}

// hpHas returns what the pods of HP jobs have of each model.
func (w *Twin) hpHas() map[string]core.Milli {
	out := map[string]core.Milli{}
	for _, j := range w.jobs {
		for i := range j.pods {
			if p := &j.pods[i]; j.Class == core.HP && p.state == running {
				out[w.node(p.at.Node).Model] += j.Tasks[p.task].GPU
			}
		}
	}
	return out
}

// means returns what HP jobs had on average of a model in each hour of the day, the last days
// counting most; false before a whole day was seen.
func (w *Twin) means(model string) (mean [hours]core.Milli, known bool) {
	hour := w.policy.Spot.Period / hours
	last := w.had.until/hour - 1
	for k := w.had.first; k <= last; k++ {
		is := core.Milli(w.had.sums[k][model] / int64(hour/(core.Second/1000)))
		if k-w.had.first >= hours {
			is = (3*mean[k%hours] + 2*is) / 5
		}
		mean[k%hours] = is
	}
	return mean, last-w.had.first+1 >= hours
}

// putOff reports whether a job must be put off on a model of which this much is free.
func (w *Twin) putOff(j *job, model string, free core.Milli, now core.Time) bool {
	mean, known := w.means(model)
	if !known {
		return false
	}
	hour := w.policy.Spot.Period / hours
	has, needs := w.hpHas()[model], core.Milli(0)
	for t := range j.Tasks {
		if task := &j.Tasks[t]; j.Gang {
			needs += core.Milli(minimum(task)) * task.GPU
		} else {
			needs = max(needs, task.GPU)
		}
	}
	beyond := has - mean[now/hour%hours]
	for k := core.Time(1); k <= hours; k++ {
		at := (now/hour + k) * hour
		beyond = beyond * 8 / 10
		if at >= now+j.Estimate || j.Checkpoint > 0 && at >= now+j.Checkpoint || j.SaveWithin > 0 && at >= now+j.SaveWithin {
			return false
		}
		if rise := mean[at/hour%hours] + beyond - has; rise > max(0, free-needs) {
			return true
		}
	}
	return false
}

// notPutOff checks that no job starts now that must be put off. It counts as free all that no pod
// has: less may be, so it cannot tell in all cases.
func (w *Twin) notPutOff(j *job, d *core.Decision, now core.Time) error {
	if w.had == nil || j.Class != core.LP || j.Estimate == 0 || j.GPUs() == 0 || d.Reason != core.Placed && d.Reason != core.Backfilled {
		return nil
	}
	for i := range j.pods {
		if j.pods[i].on() {
			return nil
		}
	}
	free := map[string]core.Milli{}
	for _, n := range w.nodes {
		free[n.Model] += 0
		if n.up {
			u := w.use(n)
			for g := range n.GPUs {
				free[n.Model] += max(0, core.WholeGPU-u.gpu[g])
			}
		}
	}
	off := false
	for model, is := range free {
		if j.accepts(model) {
			if !w.putOff(j, model, is, now) {
				return nil
			}
			off = true
		}
	}
	if !off {
		return nil
	}
	return fmt.Errorf("HP jobs are expected to need its GPUs before it ends or has saved its progress")
}

// accepts reports whether a pod of the job may be on a model.
func (j *job) accepts(model string) bool {
	for t := range j.Tasks {
		task := &j.Tasks[t]
		if len(task.Models) == 0 || task.GPU == 0 {
			return true
		}
		for _, m := range task.Models {
			if m == model {
				return true
			}
		}
	}
	return false
}

// mayBePutOff checks that the forecast may put a job off.
func (w *Twin) mayBePutOff(name string) error {
	j := w.jobs[name]
	if w.had == nil || j.Class != core.LP || j.Estimate == 0 && !j.estimated || j.GPUs() == 0 || j.running() > 0 {
		return fmt.Errorf("job %s is put off: only LP jobs with an estimate may be, before they start", name)
	}
	if _, known := w.means(""); !known {
		return fmt.Errorf("job %s is put off before a whole period was seen", name)
	}
	return nil
}
