package reproduce

import (
	"context"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// Spot jobs fill what HP jobs leave, and HP jobs hold as much as without them: on a small
// fleet, with more spot jobs than fit. Victims at random cost more work.
func TestASISpot(t *testing.T) {
	cluster, err := workload.OpenCluster("spot", workload.Options{GPUs: 800})
	if err != nil {
		t.Fatal(err)
	}
	run := func(c spotCase) *spotRun {
		one, err := runSpot(context.Background(), &cluster, c, 1)
		if err != nil {
			t.Fatal(err)
		}
		sum := newSpotRun()
		sum.add(one, 0)
		return sum
	}
	alone, full, random := run(spotRuns[spotAlone]), run(spotRuns[spotFull]), run(spotCase{policy: "SpotGPUBaseline", load: spotAsked})
	if hp, all := alone.allocated(core.HP), full.allocated(core.HP)+full.allocated(core.LP); hp > 85 || all < 95 {
		t.Errorf("allocated: %.1f%% by HP jobs alone, %.1f%% with spot jobs", hp, all)
	}
	if is := full.allocated(core.HP) / alone.allocated(core.HP); is < 0.98 || is > 1.02 {
		t.Errorf("HP jobs hold %.3f times as many GPUs beside spot jobs", is)
	}
	if full.lost > random.lost*0.9 {
		t.Errorf("%.0f GPU-hours are lost, %.0f with random victims", full.lost/3.6e6, random.lost/3.6e6)
	}
}
