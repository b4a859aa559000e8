package metrics

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim"
)

// HPForecast says how good the forecast of HP demand was for a GPU model, made some time ahead: the mean of what
// HP jobs held, and by how much it differed on average from what was expected, and from what they had held when
// the forecast was made.
type HPForecast struct {
	Model     string  `json:"model"`
	Ahead     float64 `json:"ahead_s"`
	Samples   int     `json:"samples"`
	Mean      float64 `json:"mean_gpus"`
	Error     float64 `json:"error_gpus"`
	Unchanged float64 `json:"unchanged_error_gpus"`
}

// HPSample is what HP jobs held, and were expected to hold: a row of forecast.csv.
type HPSample = sim.HPSample

// NewHPForecast compares samples with what was expected; period is that of HP demand. nil if nothing was expected.
func NewHPForecast(rows []sim.HPSample, period core.Time) []HPForecast {
	slot := period / 24
	held := map[string]map[core.Time]core.Milli{} // by model and number of the slot
	var out []HPForecast
	for k, h := range sim.Ahead {
		byModel := map[string]*HPForecast{}
		for _, r := range rows {
			if held[r.Model] == nil {
				held[r.Model] = map[core.Time]core.Milli{}
			}
			held[r.Model][r.T/slot] = r.GPU
			was, ok := held[r.Model][r.T/slot-core.Time(h)]
			if r.Expected[k] < 0 || !ok {
				continue
			}
			x := byModel[r.Model]
			if x == nil {
				x = &HPForecast{Model: r.Model, Ahead: (core.Time(h) * slot).Seconds()}
				byModel[r.Model] = x
			}
			x.Samples++
			x.Mean += inGPUs(r.GPU)
			x.Error += inGPUs(max(r.Expected[k]-r.GPU, r.GPU-r.Expected[k]))
			x.Unchanged += inGPUs(max(was-r.GPU, r.GPU-was))
		}
		for _, x := range byModel { // sorted below
			n := float64(x.Samples)
			x.Mean, x.Error, x.Unchanged = x.Mean/n, x.Error/n, x.Unchanged/n
			out = append(out, *x)
		}
	}
	slices.SortFunc(out, func(a, b HPForecast) int { return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Ahead, b.Ahead)) })
	return out
}

func inGPUs(m core.Milli) float64 { return float64(m) / float64(core.WholeGPU) }
