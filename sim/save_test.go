package sim_test

import (
	"slices"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// lost records the work that jobs lost.
type lost struct {
	ends
	of map[string]float64 // GPU-seconds
}

func (l *lost) Ended(t core.Time, j *sim.Live, r *sim.Rejection) error {
	l.of[j.Name] = j.Lost / 1000
	return l.ends.Ended(t, j, r)
}

// A job of 1000 s has worked for 400 s on 8 GPUs when a stronger one of 100 s comes. If it can save its progress when it is asked to, it stands still for
// that time, and then goes on with all that it had done.
func TestJobSavesItsWorkFirst(t *testing.T) {
	const second = core.Second
	doc, _ := policy.ByName("default")
	for _, x := range []struct {
		name       string
		within     core.Time
		model      core.Time // of jobs that do not say it
		checkpoint core.Time
		grace      core.Time // evictGrace
		least      int       // pods of the gang
		left       string
		ends       core.Time // of the weak job
		lost       float64   // GPU-seconds
	}{
		{name: "it does not say so", left: "410s 2 pods of weak preempted", ends: 510*second + 1000*second, lost: 8 * 400},
		{name: "it does", within: 20 * second, left: "430s 2 pods of weak preempted", ends: 530*second + 600*second, lost: 8 * 20},
		{name: "all do", model: 20 * second, left: "430s 2 pods of weak preempted", ends: 530*second + 600*second, lost: 8 * 20},
		{name: "beside checkpoints", within: 20 * second, checkpoint: 150 * second, left: "430s 2 pods of weak preempted", ends: 530*second + 600*second, lost: 8 * 20},
		{name: "in the time that it has", within: 20 * second, grace: 20 * second, left: "430s 2 pods of weak preempted", ends: 530*second + 600*second, lost: 8 * 20},
		{name: "longer than it has", within: 20 * second, grace: 19 * second, checkpoint: 150 * second, left: "410s 2 pods of weak preempted", ends: 510*second + 700*second, lost: 8 * 100},
		{name: "a gang that can lose pods", within: 20 * second, least: 1, left: "410s 2 pods of weak preempted", ends: 510*second + 1000*second, lost: 8 * 400},
	} {
		p := doc.Policy
		p.Preempt.Delay, p.Preempt.MinRuntime, p.Preempt.EvictGrace = 0, 0, x.grace
		weak := workload.Job{Duration: 1000 * second, Job: core.Job{Name: "weak", Queue: "q", Class: core.LP, Gang: true,
			Checkpoint: x.checkpoint, SaveWithin: x.within, Tasks: []core.Task{{Pods: 2, MinPods: x.least, Request: core.Request{GPU: 4 * core.WholeGPU}}}}}
		strong := workload.Job{Duration: 100 * second, Job: core.Job{Name: "strong", Queue: "q", Priority: 10, Submitted: 400 * second,
			Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: 8 * core.WholeGPU}}}}}
		found := &lost{ends{ended: map[string]core.Time{}}, map[string]float64{}}
		c := sim.Config{Policy: p, Models: sim.Models{Grace: 10 * second, SaveWithin: x.model},
			Jobs: func(yield func(workload.Job, error) bool) { _ = yield(weak, nil) && yield(strong, nil) }}
		c.Cluster.Nodes = []core.Node{{Name: "n", Model: "A", GPUs: 8}}
		if _, err := sim.Run(t.Context(), c, found); err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
		if !slices.Equal(found.left, []string{x.left}) || found.ended["weak"] != x.ends || found.of["weak"] != x.lost {
			t.Errorf("%s: %q, it ends at %gs and lost %g; expected %q, %gs and %g", x.name, found.left, found.ended["weak"].Seconds(), found.of["weak"], x.left, x.ends.Seconds(), x.lost)
		}
	}
}

// A gang that loses a node, and with it a pod, has nothing whole to save: the other pod leaves at once.
func TestBrokenGangSavesNothing(t *testing.T) {
	const second = core.Second
	doc, _ := policy.ByName("default")
	nodes := []core.Node{{Name: "a", Model: "A", GPUs: 8}, {Name: "b", Model: "A", GPUs: 8}}
	found := &lost{ends{ended: map[string]core.Time{}}, map[string]float64{}}
	c := sim.Config{Policy: doc.Policy, Models: sim.Models{Grace: 10 * second, SaveWithin: 20 * second}, Changes: []workload.Change{
		{Event: core.NodeAdded{Node: nodes[0]}}, {Event: core.NodeAdded{Node: nodes[1]}},
		{At: 400 * second, Event: core.NodeLost{Node: "b"}}, {At: 600 * second, Event: core.NodeAdded{Node: nodes[1]}},
	}, Jobs: func(yield func(workload.Job, error) bool) {
		yield(workload.Job{Duration: 1000 * second, Job: core.Job{Name: "gang", Queue: "q", Gang: true, Tasks: []core.Task{{Pods: 2, Request: core.Request{GPU: 8 * core.WholeGPU}}}}}, nil)
	}}
	c.Cluster.Nodes, c.Policy.Requeue.StaleGrace = nodes, 0
	if _, err := sim.Run(t.Context(), c, found); err != nil {
		t.Fatal(err)
	}
	left := []string{"400s 1 pods of gang node_lost", "410s 1 pods of gang node_lost"}
	if !slices.Equal(found.left, left) || found.ended["gang"] != 1600*second || found.of["gang"] != 16*400 {
		t.Errorf("%q, it ends at %gs and lost %g; expected %q, 1600s and 6400", found.left, found.ended["gang"].Seconds(), found.of["gang"], left)
	}
}
