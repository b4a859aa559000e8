package metrics

import (
	"math"

	"github.com/muster-sched/muster/core"
)

// A share is the distribution over time of a ratio between 0 and 1. Its mean
// is exact, its quantiles are exact to half a resolution step.
type share struct {
	held  [resolution + 1]core.Time // how long the ratio was i/resolution
	total core.Time
	sum   float64 // of ratio times seconds
}

const resolution = 10000

// add records that the ratio part/whole lasted for dt. Time in which whole is 0 is left
// out.
func (s *share) add(part, whole int64, dt core.Time) {
	if whole == 0 {
		return
	}
	r := float64(part) / float64(whole)
	s.held[min(int(math.Round(r*resolution)), resolution)] += dt
	s.total += dt
	s.sum += r * dt.Seconds()
}

func (s *share) mean() float64 {
	if s.total == 0 {
		return 0
	}
	return s.sum / s.total.Seconds()
}

// quantile returns the smallest ratio that was not exceeded for at least the
// share q of the time.
func (s *share) quantile(q float64) float64 {
	want := core.Time(math.Ceil(q * float64(s.total)))
	var seen core.Time
	for i, dt := range s.held {
		seen += dt
		if seen > 0 && seen >= want {
			return float64(i) / resolution
		}
	}
	return 0
}

// ratios returns what summary.json contains of s.
func (s *share) ratios() Ratios {
	return Ratios{Mean: s.mean(), P5: s.quantile(0.05), P50: s.quantile(0.50), P95: s.quantile(0.95)}
}
