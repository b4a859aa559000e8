package sim_test

import (
	"context"
	"math"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// TestShutdown evicts thousands of pods that shut down as ASI measured (§4.2): 13 s on average,
// 48 s at P95, fewer than 5 % killed after 60 s. The HP job starts when the last has left.
func TestShutdown(t *testing.T) {
	const rounds = 400
	c := workload.Cluster{Levels: []string{"leaf"}}
	for _, name := range []string{"a", "b"} {
		c.Nodes = append(c.Nodes, core.Node{Name: name, Model: "A", GPUs: 8, Domains: []string{"l"}})
	}
	one := func(gpus core.Milli, pods int) []core.Task {
		return []core.Task{{Pods: pods, Request: core.Request{GPU: gpus * core.WholeGPU}}}
	}
	jobs := func(yield func(workload.Job, error) bool) {
		lp := workload.Job{Job: core.Job{Name: "lp", Queue: "q", Class: core.LP, Tasks: one(1, 16), Checkpoint: core.Second}, Duration: workload.Endless}
		if !yield(lp, nil) {
			return
		}
		for i := range rounds {
			hp := workload.Job{Job: core.Job{Name: "hp" + string(rune('a'+i%26)) + string(rune('a'+i/26)), Queue: "q", Submitted: core.Time(1000+i*1000) * core.Second,
				Gang: true, Tasks: one(8, 2)}, Duration: 100 * core.Second}
			if !yield(hp, nil) {
				return
			}
		}
	}
	run := func(seed uint64) metrics.Summary {
		p, _ := policy.ByName("SpotGPU")
		m := metrics.New(metrics.Options{Levels: 1})
		_, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: p.Policy, Seed: seed, Until: (rounds + 2) * 1000 * core.Second, Models: sim.Models{
			Grace: 60 * core.Second, Shutdown: sim.Shutdown{Mean: 13 * core.Second, P95: 48 * core.Second},
		}}, m)
		if err != nil {
			t.Fatal(err)
		}
		return m.Summary()
	}
	s := run(1)
	e := s.Evictions
	if e.Pods != 16*rounds || math.Abs(e.Mean-13) > 0.7 || math.Abs(e.P95-48) > 3 || e.Killed == 0 || e.Killed >= 0.05 {
		t.Errorf("%d pods left after %.1fs, P95 %.1fs, %.1f%% killed; want %d, 13s, 48s, below 5%%", e.Pods, e.Mean, e.P95, 100*e.Killed, 16*rounds)
	}
	if s.Jobs.Completed != rounds {
		t.Errorf("%d HP jobs completed, want %d", s.Jobs.Completed, rounds)
	}
	if again := run(1).Evictions; *again != *e {
		t.Errorf("the same seed gives %+v, then %+v", *e, *again)
	}
	if other := run(2).Evictions; *other == *e {
		t.Errorf("seeds 1 and 2 both give %+v", *e)
	}
}
