package sim_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// steps is an application whose steps take a second, whatever the batch, and that gets as far as its batch is large: 8,000 samples in all, of at
// most 64 at a time, and 16 on a GPU. A start takes 20 s.
func steps() *workload.ElasticApp {
	a := &workload.ElasticApp{Name: "net", Steps: map[workload.ElasticPlace][]workload.StepTime{}, Restart: 20, Expected: 20, Slower: 1}
	for _, gpus := range []int{1, 2, 4} {
		for _, batch := range []float64{8, 16} {
			a.Steps[workload.ElasticPlace{Model: "A", Nodes: 1, GPUs: gpus}] = append(a.Steps[workload.ElasticPlace{Model: "A", Nodes: 1, GPUs: gpus}], workload.StepTime{Batch: batch, Step: 1, Sync: 0.001})
		}
	}
	for _, batch := range []int{8, 64} {
		a.Runs = append(a.Runs, workload.ElasticRun{Batch: batch, Epochs: []workload.ElasticEpoch{{Progress: 500, GradVar: 1}, {Progress: 1000, GradVar: 1}}})
	}
	return a
}

// trained plays measured jobs that are submitted at some times, on a node of four GPUs. Each asks for two GPUs and a batch of 16.
func trained(t *testing.T, name string, change func(*core.Policy), m sim.Models, submitted ...core.Time) (ends map[string]core.Time, stats sim.Stats) {
	t.Helper()
	app := steps()
	jobs := func(yield func(workload.Job, error) bool) {
		for i, at := range submitted {
			j := workload.Job{Training: &workload.Training{App: app, Batch: 16}}
			j.Name, j.Queue, j.Submitted, j.Gang = string(rune('a'+i)), "q", at*core.Second, true
			j.Tasks = []core.Task{{Pods: 1, Request: core.Request{GPU: 2 * core.WholeGPU}}}
			if !yield(j, nil) {
				return
			}
		}
	}
	d, _ := policy.ByName(name)
	if change != nil {
		change(&d.Policy)
	}
	c := workload.Cluster{Levels: []string{"leaf"}, Nodes: []core.Node{{Name: "n", Model: "A", GPUs: 4, Domains: []string{"l"}}}}
	e := &endings{at: map[string]core.Time{}}
	stats, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: d.Policy, Models: m}, e)
	if err != nil {
		t.Fatal(err)
	}
	return e.at, stats
}

func near(t *testing.T, what string, got core.Time, want float64) {
	t.Helper()
	if math.Abs(got.Seconds()-want) > 0.001 {
		t.Errorf("%s at %v s, want %v", what, got.Seconds(), want)
	}
}

// Under a policy that does not choose, a job runs as its user asked: steps of 16 on two GPUs are twice as far as those of 8. The third job waits for the
// first.
func TestTrainingAsItsUserAsked(t *testing.T) {
	ends, stats := trained(t, "LucidFIFO", nil, sim.Models{}, 0, 10, 20)
	near(t, "a ends", ends["a"], 20+500)
	near(t, "b ends", ends["b"], 10+20+500)
	near(t, "c ends", ends["c"], 520+20+500)
	if *stats.Trained != (sim.Trained{Jobs: 3}) {
		t.Errorf("%+v, want three jobs and no restarts", *stats.Trained)
	}
}

// A job that is alone starts on one GPU, and has twice as many in each round: what it has done is kept, a start takes 20 s each time. With all
// known it has four GPUs at once.
func TestTrainingThatGrows(t *testing.T) {
	profiled := func(p *core.Policy) { p.Goodput.Profile = 0 }
	ends, stats := trained(t, "Sia", profiled, sim.Models{}, 0)
	// On one GPU a second step is needed for a batch above 8, so it is 40 steps there; then 80 with 32 samples on two GPUs, and the rest with 64 on four.
	if stats.Trained.Restarts != 2 || ends["a"].Seconds() > 300 {
		t.Errorf("it ends at %v s with %d restarts, want two and before 300 s", ends["a"].Seconds(), stats.Trained.Restarts)
	}
	known, stats := trained(t, "Sia", profiled, sim.Models{Known: true}, 0)
	near(t, "with all known, it ends", known["a"], 20+125)
	if stats.Trained.Restarts != 0 || known["a"] >= ends["a"] {
		t.Errorf("with all known, it ends at %v s with %d restarts", known["a"].Seconds(), stats.Trained.Restarts)
	}
}

// A job is profiled for 30 s before it trains; one that comes later is like it, under SiaPlus, if the models say that such are found.
func TestTrainingIsProfiled(t *testing.T) {
	took := func(name string, similar float64) (core.Time, sim.Stats) {
		ends, stats := trained(t, name, nil, sim.Models{Similar: similar}, 0, 1800)
		return ends["b"] - 1800*core.Second, stats
	}
	profiled, stats := took("Sia", 1)
	if stats.Trained.Similar != 0 {
		t.Errorf("%d jobs have a similar one under Sia", stats.Trained.Similar)
	}
	plus, stats := took("SiaPlus", 1)
	if stats.Trained.Similar != 1 || plus > profiled-50*core.Second {
		t.Errorf("it takes %v s when one like it is known (%d), %v s with a profile", plus.Seconds(), stats.Trained.Similar, profiled.Seconds())
	}
	if none, stats := took("SiaPlus", 0); stats.Trained.Similar != 0 || none != profiled {
		t.Errorf("it takes %v s when none is found (%d), %v s with a profile", none.Seconds(), stats.Trained.Similar, profiled.Seconds())
	}
}

// Two jobs divide the GPUs, and the one that is left has all of them again.
func TestTrainingsShare(t *testing.T) {
	ends, stats := trained(t, "Sia", func(p *core.Policy) { p.Goodput.Profile = 0 }, sim.Models{Known: true}, 0, 60)
	alone := 20.0 + 125
	if a := ends["a"].Seconds(); a <= alone || stats.Trained.Restarts < 1 {
		t.Errorf("a ends at %v s, alone at %v; %d restarts", a, alone, stats.Trained.Restarts)
	}
	if stats.Ended != 2 {
		t.Errorf("%d jobs ended, want 2", stats.Ended)
	}
}

func TestTrainingOnOtherNodes(t *testing.T) {
	j := workload.Job{Training: &workload.Training{App: steps(), Batch: 16}}
	j.Name, j.Queue = "a", "q"
	j.Tasks = []core.Task{{Pods: 1, Request: core.Request{GPU: 1000}}}
	for _, c := range []struct {
		nodes []core.Node
		want  string
	}{
		{[]core.Node{{Name: "n", Model: "B", GPUs: 4}}, "job a: step times of one GPU of model B for application net, found none"},
		{[]core.Node{{Name: "n", Model: "A", GPUs: 4}, {Name: "m", Model: "A", GPUs: 2}}, "job a: nodes of GPU model A with as many GPUs each, a power of two; found 2 on m"},
		{[]core.Node{{Name: "n"}}, "job a: nodes with GPUs; found none"},
	} {
		jobs := func(yield func(workload.Job, error) bool) { yield(j, nil) }
		if _, err := sim.Run(context.Background(), sim.Config{Cluster: workload.Cluster{Nodes: c.nodes}, Jobs: jobs}); err == nil || !workload.IsBadInput(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.nodes, err, c.want)
		}
	}
}
