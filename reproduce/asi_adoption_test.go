package reproduce

import (
	"testing"

	"github.com/muster-sched/muster/core"
)

// On a small fleet: jobs that accept XPU-A use it, the more so the faster it is, and those that accept
// H20 alone then wait less.
func TestAdoption(t *testing.T) {
	var runs [len(adoptionCases)]*adoptionRun
	for k, c := range adoptionCases {
		r, err := c.play(t.Context(), 0, adoptionGPUs/4)
		if err != nil {
			t.Fatal(err)
		}
		runs[k] = newAdoptionRun()
		runs[k].add(r, func(string) bool { return true })
		of := adopters{"either", core.HP}
		if len(runs[k].waits[of]) < 50 || len(runs[k].times[of]) < 50 || len(runs[k].waits[of]) != len(runs[0].waits[of]) {
			t.Errorf("%s: %d jobs that may accept either, of %d the times, want the same number each time, and 50 at least", c, len(runs[k].waits[of]), len(runs[k].times[of]))
		}
		if len(r.rows("")) != 12 {
			t.Errorf("%d rows", len(r.rows("")))
		}
	}
	alone := runs[0]
	for k, r := range runs[1:] {
		if a, b := alone.allocated("XPU-A", core.HP), r.allocated("XPU-A", core.HP); b <= a {
			t.Errorf("%s: HP jobs hold %.1f %% of XPU-A, without %.1f %%", adoptionCases[k+1], b, a)
		}
		lp := adopters{"H20", core.LP}
		if a, b := meanOf(alone.waits[lp]), meanOf(r.waits[lp]); b > a {
			t.Errorf("%s: LP jobs for H20 alone wait %.0f s, without %.0f s", adoptionCases[k+1], b, a)
		}
		if all := r.allocated("XPU-A", core.HP) + r.allocated("XPU-A", core.LP); all > 100.001 {
			t.Errorf("%s: %.1f %% of XPU-A are allocated", adoptionCases[k+1], all)
		}
	}
	if as, optimized := runs[1].allocated("XPU-A", core.HP), runs[3].allocated("XPU-A", core.HP); optimized <= as {
		t.Errorf("HP jobs hold %.1f %% of optimized XPU-A, and %.1f %% of XPU-A as delivered", optimized, as)
	}
}
