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

// interfering plays a training gang of 1,000 s on two nodes of 64 cores, of which it requests 20 each,
// and a job of 30 cores without GPUs that comes at 100 s. It returns the end of the training and
// what was measured.
func interfering(t *testing.T, cpuJob core.Time, m sim.Models) (core.Time, *sim.CPUBesideGPU) {
	t.Helper()
	c := workload.Cluster{Levels: []string{"leaf"}}
	for _, name := range []string{"a", "b"} {
		c.Nodes = append(c.Nodes, core.Node{Name: name, Model: "A", GPUs: 8, CPUMilli: 64000, Domains: []string{"l"}})
	}
	jobs := func(yield func(workload.Job, error) bool) {
		train := core.Job{Name: "train", Queue: "q", Gang: true, Checkpoint: core.Second,
			Tasks: []core.Task{{Pods: 2, Request: core.Request{GPU: 8000, CPUMilli: 20000}}}}
		cpu := core.Job{Name: "cpu", Queue: "q", Kind: core.Batch, Submitted: 100 * core.Second,
			Tasks: []core.Task{{Pods: 1, Request: core.Request{CPUMilli: 30000}}}}
		_ = yield(workload.Job{Job: train, Duration: 1000 * core.Second}, nil) && yield(workload.Job{Job: cpu, Duration: cpuJob}, nil)
	}
	p, _ := policy.ByName("default")
	e := &endings{at: map[string]core.Time{}}
	stats, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: p.Policy, Seed: 1, Models: m}, metrics.New(metrics.Options{Levels: 1}), e)
	if err != nil {
		t.Fatal(err)
	}
	return e.at["train"], stats.CPU
}

// endings is a sink that keeps when jobs ended.
type endings struct {
	sim.Sink
	at map[string]core.Time
}

func (e *endings) Node(core.Time, *core.Node, bool) error                          { return nil }
func (e *endings) Submitted(core.Time, *sim.Live) error                            { return nil }
func (e *endings) Bound(core.Time, *sim.Live, []core.Placement, core.Reason) error { return nil }
func (e *endings) Released(core.Time, *sim.Live, []core.Placement, sim.Release, sim.Eviction) error {
	return nil
}

func (e *endings) Ended(t core.Time, j *sim.Live, _ *sim.Rejection) error {
	e.at[j.Name] = t
	return nil
}

// TestInterference: while the job without GPUs uses more cores than the gang on one of its nodes, the
// whole gang is slower, and no longer.
func TestInterference(t *testing.T) {
	on := sim.Models{Interference: sim.Interference{Median: 0.1, P90: 0.1, GPUJobsUse: 1}}
	for _, x := range []struct {
		name string
		cpu  core.Time
		m    sim.Models
		want float64
	}{
		{"off", 200 * core.Second, sim.Models{}, 1000},
		{"for 200 s at 0.9", 200 * core.Second, on, 1020},
		{"to the end", 100_000 * core.Second, on, 100 + 900/0.9},
		{"all of it used, 30 of 20 cores", 50 * core.Second, on, 1005},
	} {
		end, measured := interfering(t, x.cpu, x.m)
		if math.Abs(end.Seconds()-x.want) > 1e-6 {
			t.Errorf("%s: the training ends at %.3fs, want %.3fs", x.name, end.Seconds(), x.want)
		}
		if (measured == nil) != (x.name == "off") {
			t.Errorf("%s: measured %+v", x.name, measured)
		}
	}
	_, got := interfering(t, 200*core.Second, on)
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > 1e-9*math.Max(1, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	near("core-hours without GPUs", got.CPUOnlyCoreHours, 30*200/3600.0)
	near("training GPU-hours", got.TrainingGPUHours, 16*1020/3600.0)
	near("slowed GPU-hours", got.SlowedGPUHours, 16*200*0.1/3600)
	near("dominant nodes", got.Dominant, 200.0/2/1020)

	// With half of their cores in use, jobs with GPUs still use less than 30.
	on.Interference.GPUJobsUse = 0.5
	if end, _ := interfering(t, 200*core.Second, on); end != 1020*core.Second {
		t.Errorf("at half use the training ends at %vs", end.Seconds())
	}
}
