package sim_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/runlog"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// jobs yields jobs of whole GPUs, each a pod, submitted together.
func jobs(durations ...core.Time) workload.Jobs {
	return func(yield func(workload.Job, error) bool) {
		for i, d := range durations {
			j := workload.Job{Duration: d, Job: core.Job{
				Name: fmt.Sprintf("j%d", i), Queue: "q",
				Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: core.WholeGPU}}},
			}}
			if !yield(j, nil) {
				return
			}
		}
	}
}

// replay runs c on nodes of one GPU each, under the policy of that name.
func replay(t *testing.T, ctx context.Context, nodes int, name string, c sim.Config) (sim.Stats, metrics.Summary) {
	t.Helper()
	for i := range nodes {
		c.Cluster.Nodes = append(c.Cluster.Nodes, core.Node{Name: fmt.Sprintf("n%d", i), Model: "A10", GPUs: 1})
	}
	doc, ok := policy.ByName(name)
	if !ok {
		t.Fatalf("no policy %s", name)
	}
	c.Policy = doc.Policy
	w, err := runlog.Create("", &c.Cluster, metrics.Options{})
	if err != nil {
		t.Fatal(err)
	}
	stats, err := sim.Run(ctx, c, w)
	if err != nil {
		t.Fatal(err)
	}
	s, err := w.Close(runlog.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	return stats, s
}

// A run ends when the jobs that are left never end by themselves, or cannot
// start because of those.
func TestEndlessJobs(t *testing.T) {
	_, s := replay(t, t.Context(), 2, "default", sim.Config{
		Jobs: jobs(60*core.Second, workload.Endless, 60*core.Second, workload.Endless, workload.Endless),
	})
	want := metrics.Jobs{Submitted: 5, Completed: 2, Running: 2, Pending: 1}
	if s.Jobs != want || s.VirtualSeconds != 120 {
		t.Errorf("%+v in %v s, want %+v in 120 s", s.Jobs, s.VirtualSeconds, want)
	}
}

// Jobs of nearly a hundred years, one after the other, do not overflow the
// clock, which has 292.
func TestEndOfTime(t *testing.T) {
	d := workload.Endless - core.Second
	_, s := replay(t, t.Context(), 1, "default", sim.Config{Jobs: jobs(d, d, d, d)})
	want := metrics.Jobs{Submitted: 4, Completed: 2, Running: 1, Pending: 1}
	if s.Jobs != want {
		t.Errorf("%+v, want %+v", s.Jobs, want)
	}
}

// A job that no node lives long enough for does not keep the run going for
// ever; with checkpoints it ends.
func TestFailuresWithoutEnd(t *testing.T) {
	const day = 24 * 3600 * core.Second
	c := sim.Config{Jobs: jobs(day, 100*day), Models: sim.Models{MTBF: day, Repair: core.Second}}
	_, s := replay(t, t.Context(), 2, "default", c)
	if want := (metrics.Jobs{Submitted: 2, Completed: 1, Running: 1}); s.Jobs != want {
		t.Errorf("%+v, want %+v", s.Jobs, want)
	}
	c.Models.Checkpoint = 3600 * core.Second
	_, s = replay(t, t.Context(), 2, "default", c)
	if want := (metrics.Jobs{Submitted: 2, Completed: 2}); s.Jobs != want {
		t.Errorf("with checkpoints %+v, want %+v", s.Jobs, want)
	}
}

// A gang that loses a node works again when it has all of its pods, if that is within its grace period; what it
// did since its last checkpoint is lost. After the period it is stopped, and waits as a whole.
func TestGangGoesOnAfterALostNode(t *testing.T) {
	const minute = 60 * core.Second
	doc, _ := policy.ByName("default")
	for _, x := range []struct {
		grace, back, ends core.Time
	}{
		{grace: 10 * minute, back: 35 * minute, ends: 35*minute + 30*minute}, // pod 1 is back; 30 of 60 minutes were saved
		{grace: 2 * minute, back: 35 * minute, ends: 35*minute + 30*minute},  // both pods stopped, and start again then
		{back: 35 * minute, ends: 35*minute + 30*minute},
	} {
		p := doc.Policy
		p.Requeue.StaleGrace = x.grace
		stopped := core.Time(0)
		w := &passes{decided: func(now core.Time, d core.Decision) {
			if d.Op == core.Requeue {
				stopped = now
			}
		}}
		nodes := []core.Node{{Name: "a", Model: "H800", GPUs: 8}, {Name: "b", Model: "H800", GPUs: 8}}
		stats, err := sim.Run(t.Context(), sim.Config{
			Policy: p, Record: w, Models: sim.Models{Checkpoint: 30 * minute},
			Cluster: workload.Cluster{Nodes: nodes, Queues: []core.Queue{{Name: "q", Weight: 1}}},
			Changes: []workload.Change{
				{Event: core.NodeAdded{Node: nodes[0]}}, {Event: core.NodeAdded{Node: nodes[1]}},
				{At: 32 * minute, Event: core.NodeLost{Node: "b"}}, {At: x.back, Event: core.NodeAdded{Node: nodes[1]}},
			},
			Jobs: func(yield func(workload.Job, error) bool) {
				yield(workload.Job{Duration: 60 * minute, Job: core.Job{Name: "g", Queue: "q", Gang: true, Tasks: []core.Task{{Pods: 2, Request: core.Request{GPU: 8000}}}}}, nil)
			},
		})
		want := core.Time(0)
		switch {
		case x.grace == 0:
			want = 32 * minute
		case 32*minute+x.grace < x.back:
			want = 32*minute + x.grace
		}
		if err != nil || stats.End != x.ends || stopped != want {
			t.Errorf("grace of %gs: ends at %gs, stopped at %gs, %v; expected %gs and %gs", x.grace.Seconds(), stats.End.Seconds(), stopped.Seconds(), err, x.ends.Seconds(), want.Seconds())
		}
	}
}

// passes sees the decisions of a run.
type passes struct {
	decided func(core.Time, core.Decision)
}

func (*passes) Began(core.Time, core.Config) {}
func (*passes) Told(core.Time, core.Event)   {}
func (p *passes) Decided(now core.Time, ds []core.Decision, _ core.Counter) {
	for _, d := range ds {
		p.decided(now, d)
	}
}

// An interrupt does not wait for a workload that is being made up.
func TestInterruptBeforeTheFirstJob(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	begun, end := make(chan bool), make(chan bool)
	defer close(end)
	slow := func(func(workload.Job, error) bool) {
		close(begun)
		<-end
	}
	go func() {
		<-begun
		cancel()
	}()
	stats, s := replay(t, ctx, 1, "default", sim.Config{Jobs: slow}) // it would never end if it waited
	if !stats.Interrupted || s.Jobs.Submitted != 0 {
		t.Errorf("%+v, %+v", stats, s.Jobs)
	}
}
