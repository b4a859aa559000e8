package sim

import "github.com/muster-sched/muster/core"

// Ahead is how long before a time its forecast was made, in 24ths of the period of HP demand: hours of
// a day.
var Ahead = [...]int{1, 6, 24}

// HPSample is what HP jobs held of a GPU model at T, early in a 24th of the period, and what they had been
// expected to hold then, earlier by [Ahead]; -1 where nothing was forecast.
type HPSample struct {
	T        core.Time
	Model    string
	GPU      core.Milli
	Expected [len(Ahead)]core.Milli
}

// forecasts compares what the engine forecasts with what comes.
type forecasts struct {
	slot core.Time // 0 if the policy forecasts nothing
	last int64     // the number of the last slot in which a sample was taken, from 1
	// made are the last forecasts by model, each at the number of its slot modulo their count.
	made map[string]*[25]made
	rows []HPSample
}

// made is a forecast that was made in a slot.
type made struct {
	slot int64
	core.Expected
}

// sample takes a sample if a new slot has begun.
func (f *forecasts) sample(now core.Time, e *core.Engine) {
	if f.slot == 0 || int64(now/f.slot)+1 == f.last {
		return
	}
	f.last = int64(now/f.slot) + 1
	for _, x := range e.Expected() {
		if f.made == nil {
			f.made = map[string]*[25]made{}
		}
		all := f.made[x.Model]
		if all == nil {
			all = new([25]made)
			f.made[x.Model] = all
		}
		row := HPSample{T: now, Model: x.Model, GPU: x.GPU[0]}
		for k, h := range Ahead {
			row.Expected[k] = -1
			if from := f.last - int64(h); from > 0 && all[from%25].slot == from {
				row.Expected[k] = all[from%25].GPU[h]
			}
		}
		all[f.last%25] = made{f.last, x}
		f.rows = append(f.rows, row)
	}
}
