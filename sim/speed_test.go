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

// TestCombinations: a job of two roles is fastest on A and B within one leaf group, slower one level apart, and slowest on two of A.
// Each job of 100 s takes what the combination and the distance make of that.
func TestCombinations(t *testing.T) {
	c := workload.Cluster{Levels: []string{"spine", "leaf"}, Nodes: []core.Node{
		{Name: "a", Model: "A", GPUs: 4, Domains: []string{"s", "l"}},
		{Name: "b", Model: "B", GPUs: 1, Domains: []string{"s", "l"}},
		{Name: "far-b", Model: "B", GPUs: 1, Domains: []string{"s", "m"}},
	}}
	jobs := func(yield func(workload.Job, error) bool) {
		for _, name := range []string{"near", "apart", "alike"} {
			j := core.Job{Name: name, Queue: "q", Gang: true, Tasks: []core.Task{{Name: "one", Pods: 1}, {Name: "two", Pods: 1}}}
			for i := range j.Tasks {
				j.Tasks[i].GPU = core.WholeGPU
			}
			var err error
			if j.Combinations, err = core.ParseCombinations([]string{"A+B=4/2", "A+A=1"}, j.Tasks); err != nil {
				t.Fatal(err)
			}
			for i := range j.Tasks {
				j.Tasks[i].Models = core.CombinedModels(j.Combinations, i)
			}
			if !yield(workload.Job{Job: j, Duration: 100 * core.Second}, nil) {
				return
			}
		}
	}
	p, _ := policy.ByName("default")
	e := &endings{at: map[string]core.Time{}}
	if _, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: p.Policy}, e); err != nil {
		t.Fatal(err)
	}
	if e.at["near"] != 25*core.Second || e.at["apart"] != 50*core.Second || e.at["alike"] != 100*core.Second {
		t.Errorf("ended at %v, want 25, 50 and 100 s", e.at)
	}
}
