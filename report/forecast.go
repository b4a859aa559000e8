package report

import (
	"slices"

	"github.com/muster-sched/muster/internal/table"
	"github.com/muster-sched/muster/metrics"
)

// pageForecast is what HP jobs held of a model over time, and what they had been expected to hold, one 24th of
// the period and six earlier; null where nothing was forecast.
type pageForecast struct {
	Model string     `json:"model"`
	T     []float64  `json:"t"`
	Held  []float64  `json:"held"`
	One   []*float64 `json:"one"`
	Six   []*float64 `json:"six"`
}

// mostModels is for how many models the page shows the forecast: those of which HP jobs held most.
const mostModels = 8

func newForecast(rows []metrics.HPSample) []pageForecast {
	var all []pageForecast
	for i := range rows {
		r := &rows[i]
		at := slices.IndexFunc(all, func(f pageForecast) bool { return f.Model == r.Model })
		if at < 0 {
			at = len(all)
			all = append(all, pageForecast{Model: r.Model})
		}
		f := &all[at]
		f.T, f.Held = append(f.T, r.T.Seconds()), append(f.Held, inGPUs(r.GPU))
		for k, to := range []*[]*float64{&f.One, &f.Six} {
			var x *float64
			if r.Expected[k] >= 0 {
				x = new(float64)
				*x = round(inGPUs(r.Expected[k]), 10)
			}
			*to = append(*to, x)
		}
	}
	most := func(f *pageForecast) float64 { return slices.Max(f.Held) }
	slices.SortStableFunc(all, func(a, b pageForecast) int { return int(most(&b) - most(&a)) })
	all = all[:min(len(all), mostModels)]
	for i := range all {
		all[i].thin()
	}
	return all
}

// thin drops points beyond the maximum, at equal distances.
func (f *pageForecast) thin() {
	every := (len(f.T) + points - 1) / points
	n := 0
	for i := 0; i < len(f.T); i += every {
		f.T[n], f.Held[n], f.One[n], f.Six[n] = f.T[i], f.Held[i], f.One[i], f.Six[i]
		n++
	}
	f.T, f.Held, f.One, f.Six = f.T[:n], f.Held[:n], f.One[:n], f.Six[:n]
}

// forecast is how good the forecast of HP demand was, by model.
func forecast(s *metrics.Summary) *table.Table {
	t := new(table.Table)
	t.Add("GPU model", "ahead", "HP GPUs, mean", "error", "if nothing changed")
	for i := range s.HPForecast {
		f := &s.HPForecast[i]
		t.Add(f.Model, duration(f.Ahead), short(f.Mean), short(f.Error), short(f.Unchanged))
	}
	return t
}
