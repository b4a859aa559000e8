package audit

import "slices"

// Under a policy that forecasts the GPUs of HP jobs, no LP job starts that would lose all its work when
// they need its GPUs (docs/spot.md). The forecast follows from what HP jobs had in the run so far, by
// GPU model and hour.

// forecast is what HP jobs have, and had, of each model.
type forecast struct {
	period, hour int64 // in nanoseconds; 0 if nothing is forecast
	models       map[string]*demand
	until        int64
	// starts are LP jobs that should not have started, unless an HP pod was leaving then, which the
	// engine did not count any longer: its release tells later.
	starts []start
	// unsure says that HP gangs broke: when their pods were told to leave is not in the files.
	unsure bool
}

// demand is what HP jobs have of a model, in milli-GPU, and had in each hour so far, in milli-GPU
// milliseconds.
type demand struct {
	now  int64
	sums []int64
}

// start is a job that started at t.
type start struct {
	t   int64
	job string
}

const (
	hoursOfDay  = 24
	millisecond = 1_000_000
)

func newForecast(r *rules) *forecast {
	f := &forecast{models: map[string]*demand{}}
	if r != nil && r.Forecast > 0 && r.Estimates {
		f.period = int64(r.Forecast * 1e9)
		f.hour = f.period / hoursOfDay
	}
	return f
}

func (f *forecast) of(model string) *demand {
	d := f.models[model]
	if d == nil {
		d = &demand{}
		f.models[model] = d
	}
	return d
}

// add counts GPU of a model in the time from one instant to another.
func (f *forecast) add(d *demand, gpu, from, to int64) {
	for from < to {
		k := from / f.hour
		end := min(to, (k+1)*f.hour)
		for int64(len(d.sums)) <= k {
			d.sums = append(d.sums, 0)
		}
		d.sums[k] += gpu * (end/millisecond - from/millisecond)
		from = end
	}
}

// advance lets time go on to t.
func (f *forecast) advance(t int64) {
	if f.hour == 0 || t <= f.until {
		return
	}
	for _, d := range f.models { // sums do not depend on the order
		f.add(d, d.now, f.until, t)
	}
	f.until = t
}

// held counts a pod of a job that is bound (by 1), or released (by -1).
func (f *forecast) held(j *job, p *pod, by int64) {
	if f.hour > 0 && j.class == "HP" {
		f.of(p.node.model).now += by * p.amount()
	}
}

// left notes that a pod was told to leave before it left: from then on its GPUs did not count.
func (f *forecast) left(j *job, p *pod, d *decision) {
	if f.hour == 0 || j.class != "HP" || p.amount() == 0 {
		return
	}
	if string(d.reason) == "node_lost" && j.gang {
		f.unsure = true
	}
	if d.told < d.t {
		f.add(f.of(p.node.model), -p.amount(), d.told, d.t)
		f.starts = slices.DeleteFunc(f.starts, func(s start) bool { return s.t >= d.told })
	}
}

// startsAgainst notes that an LP job starts though it should be put off. What is free is counted as all
// that no pod has: less may be, so this cannot tell in all cases.
func (a *auditor) startsAgainst(j *job, d *decision) {
	f, why := a.forecast, string(d.reason)
	if f.hour == 0 || f.unsure || j.class != "LP" || j.bound > 0 || j.duration == 0 || j.gpu() == 0 || why != "Placed" && why != "Backfilled" {
		return
	}
	free := map[string]int64{}
	for _, n := range a.nodes { // sums do not depend on the order
		if !n.up || len(n.devices) == 0 {
			continue
		}
		for g := range n.devices {
			free[n.model] += max(0, wholeGPU-n.devices[g].milli)
		}
	}
	some := false
	for model, is := range free {
		if !j.accepts(model) {
			continue
		}
		if some = true; !f.short(j, model, is, d.t) {
			return
		}
	}
	if some {
		f.starts = append(f.starts, start{d.t, j.name})
	}
}

// accepts reports whether a pod of the job may be on a model.
func (j *job) accepts(model string) bool {
	return slices.ContainsFunc(j.tasks, func(t task) bool { return len(t.models) == 0 || t.gpu == 0 || slices.Contains(t.models, model) })
}

// short reports whether HP jobs are expected to need more of a model than a job leaves free, before it
// ends or has saved its progress.
func (f *forecast) short(j *job, model string, free, t int64) bool {
	mean, known := f.means(model)
	if !known {
		return false
	}
	needs := int64(0)
	for i := range j.tasks {
		if task := &j.tasks[i]; j.gang {
			needs += int64(task.min) * task.gpu
		} else {
			needs = max(needs, task.gpu)
		}
	}
	has := f.of(model).now
	beyond := has - mean[t/f.hour%hoursOfDay]
	for k := int64(1); k <= hoursOfDay; k++ {
		at := (t/f.hour + k) * f.hour
		beyond = beyond * 8 / 10
		if at >= t+j.duration || j.checkpoint > 0 && at >= t+j.checkpoint {
			return false
		}
		if mean[at/f.hour%hoursOfDay]+beyond-has > max(0, free-needs) {
			return true
		}
	}
	return false
}

// means returns what HP jobs had on average of a model in each hour of the day, the last day counting two
// fifths; false before a whole day was seen.
func (f *forecast) means(model string) (mean [hoursOfDay]int64, known bool) {
	whole := f.until / f.hour
	d := f.of(model)
	for k := range whole {
		is := int64(0)
		if k < int64(len(d.sums)) {
			is = d.sums[k] / (f.hour / millisecond)
		}
		if k >= hoursOfDay {
			is = (3*mean[k%hoursOfDay] + 2*is) / 5
		}
		mean[k%hoursOfDay] = is
	}
	return mean, whole >= hoursOfDay
}

// putOff reports the jobs that should have been put off before t: no pod can have been leaving then
// that has not left by now.
func (a *auditor) putOff(t int64) {
	f := a.forecast
	for len(f.starts) > 0 && float64(t-f.starts[0].t) > a.summary.Rules.EvictGrace*1e9 {
		s := f.starts[0]
		f.starts = f.starts[1:]
		a.breach(HPExpected, "%s starts at %s, though HP jobs are expected to need its GPUs before it ends or has saved its progress", s.job, seconds(s.t))
	}
}
