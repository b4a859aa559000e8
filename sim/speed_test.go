package sim_test

import (
	"context"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// TestSpeeds: two jobs of 100 s prefer model A. The first has it; the other one starts on B, where it
// says that it is half as fast, times the speed of the cluster's B.
func TestSpeeds(t *testing.T) {
	c := workload.Cluster{Levels: []string{"leaf"}}
	for _, model := range []string{"A", "B"} {
		c.Nodes = append(c.Nodes, core.Node{Name: "on-" + model, Model: model, GPUs: 8, Domains: []string{"l"}})
	}
	jobs := func(yield func(workload.Job, error) bool) {
		for _, name := range []string{"first", "second"} {
			j := core.Job{Name: name, Queue: "q", Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: 8000}}}}
			if err := j.Tasks[0].Accept([]string{"B=0.5", "A"}); err != nil {
				t.Fatal(err)
			}
			if !yield(workload.Job{Job: j, Duration: 100 * core.Second}, nil) {
				return
			}
		}
	}
	p, _ := policy.ByName("default")
	e := &endings{at: map[string]core.Time{}}
	_, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: p.Policy, Models: sim.Models{Speed: map[string]float64{"B": 0.8}}}, e)
	if err != nil {
		t.Fatal(err)
	}
	if e.at["first"] != 100*core.Second || e.at["second"] != 250*core.Second {
		t.Errorf("ended at %v, want 100 s and 250 s", e.at)
	}
}
