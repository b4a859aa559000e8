package sim_test

import (
	"context"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// week replays a week of kant-training under a policy.
func week(t *testing.T, name string, seed uint64) metrics.Summary {
	t.Helper()
	o := workload.Options{Seed: seed}
	c, err := workload.OpenCluster("kant-training", o)
	if err != nil {
		t.Fatal(err)
	}
	o.Cluster = &c
	jobs, _, err := workload.OpenJobs("kant-training", o)
	if err != nil {
		t.Fatal(err)
	}
	d, _ := policy.ByName(name)
	m := metrics.New(metrics.Options{To: 7 * 24 * 3600 * core.Second})
	if _, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: d.Policy, Seed: seed}, m); err != nil {
		t.Fatal(err)
	}
	return m.Summary()
}

// waiting returns the mean wait of a class of jobs, in seconds.
func waiting(s *metrics.Summary, class string) float64 {
	for _, w := range s.JWTD {
		if w.Class == class {
			return w.Mean
		}
	}
	return 0
}

// What Kant §5.1 finds at 8,000 GPUs: letting jobs pass the first one fills the
// cluster better; the largest jobs pay for it, unless those that passed leave
// again (§5.1.2); and E-Binpack all but ends the fragmentation that spreading
// makes (§5.1.3: from 8.5 % of the nodes to below 1 %).
func TestKantTraining(t *testing.T) {
	for seed := range uint64(3) {
		strict, best, backfill := week(t, "StrictFIFO", seed), week(t, "BestEffortFIFO", seed), week(t, "Backfill", seed)
		if backfill.SOR <= strict.SOR {
			t.Errorf("seed %d: Backfill has SOR %.3f, StrictFIFO %.3f; want more", seed, backfill.SOR, strict.SOR)
		}
		const largest = "1025-2048"
		if b, k := waiting(&best, largest), waiting(&backfill, largest); b < 2*k {
			t.Errorf("seed %d: jobs of %s GPUs wait %.0f s under BestEffortFIFO, %.0f s under Backfill; want twice as long", seed, largest, b, k)
		}
		spread, packed := week(t, "Spread", seed), week(t, "EBinpack", seed)
		if spread.GFR.Mean < 0.05 || packed.GFR.Mean > 0.01 {
			t.Errorf("seed %d: mean GFR is %.4f under Spread and %.4f under E-Binpack; want above 0.05 and below 0.01", seed, spread.GFR.Mean, packed.GFR.Mean)
		}
	}
}
