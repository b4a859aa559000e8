package reproduce

import (
	"testing"

	"github.com/muster-sched/muster/sim"
)

// Each load has two plots, with a point for each of its settings.
func TestCPUTradeOffs(t *testing.T) {
	settings := cpuSettings()
	sums := make([]cpuOutcome, len(settings))
	for i := range sums {
		sums[i] = cpuOutcome{CPUBesideGPU: sim.CPUBesideGPU{CPUOnlyCoreHours: 1e6 * float64(i), TrainingGPUHours: 200, SlowedGPUHours: float64(i)}, gar: float64(i)}
	}
	plots := cpuTradeOffs(settings, sums)
	if len(plots) != 4 {
		t.Fatalf("%d plots, expected 4", len(plots))
	}
	for k, p := range plots {
		i := len(settings) / 2 * (k / 2)
		for _, l := range p.Lines {
			for _, point := range l.Points {
				y := 100 * float64(i)
				if k%2 == 0 {
					y /= 200 // hours
				}
				if point.X != float64(i) || point.Y != y {
					t.Errorf("%s, %s, %s: %v, expected %d, %v", p.Title, l.Name, point.Label, point, i, y)
				}
				i++
			}
		}
		if i != len(settings)/2*(k/2+1) || len(p.Lines) != 2 || p.Lines[0].Points[0].Label != "random" || p.Lines[1].Points[1].Label != "reserve 0.25" {
			t.Errorf("%s: %+v", p.Title, p.Lines)
		}
	}
}
