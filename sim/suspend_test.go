package sim_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// ends records when jobs end, and why pods leave.
type ends struct {
	ended map[string]core.Time
	left  []string
}

func (e *ends) Node(core.Time, *core.Node, bool) error { return nil }
func (e *ends) Submitted(core.Time, *sim.Live) error   { return nil }
func (e *ends) Bound(core.Time, *sim.Live, []core.Placement, core.Reason) error {
	return nil
}
func (e *ends) Released(t core.Time, l *sim.Live, pods []core.Placement, why sim.Release, _ sim.Eviction) error {
	if why != sim.Finished {
		e.left = append(e.left, fmt.Sprintf("%gs %d pods of %s %s", t.Seconds(), len(pods), l.Name, why))
	}
	return nil
}
func (e *ends) Ended(t core.Time, l *sim.Live, _ *sim.Rejection) error {
	e.ended[l.Name] = t
	return nil
}

// A job of 1000 s has worked for 400 s when a stronger one of 100 s comes. Evicted, it starts again; suspended, it goes on. If it
// is suspended for too long it loses what it did since its last checkpoint.
func TestSuspendedJobKeepsItsWork(t *testing.T) {
	const second = core.Second
	doc, _ := policy.ByName("default")
	takes := core.Suspension{Pause: 5 * second, Resume: 10 * second, HostMemMiB: 100}
	for _, x := range []struct {
		name       string
		suspend    core.Suspension
		longest    core.Time // maxSuspended
		memory     int64
		checkpoint core.Time
		strong     core.Time // how long the stronger job takes
		left       string
		ends       core.Time // of the weak job
	}{
		{name: "suspended", suspend: takes, longest: 3600 * second, memory: 1000, strong: 100 * second,
			left: "405s 2 pods of weak suspended", ends: 400*second + (5+100+10)*second + 600*second},
		{name: "no room for images", suspend: takes, longest: 3600 * second, memory: 250, strong: 100 * second,
			left: "400s 2 pods of weak preempted", ends: 400*second + 100*second + 1000*second},
		{name: "not in this policy", suspend: takes, memory: 1000, strong: 100 * second,
			left: "400s 2 pods of weak preempted", ends: 400*second + 100*second + 1000*second},
		{name: "not this job", longest: 3600 * second, memory: 1000, strong: 100 * second,
			left: "400s 2 pods of weak preempted", ends: 400*second + 100*second + 1000*second},
		{name: "for too long", suspend: takes, longest: 50 * second, memory: 1000, checkpoint: 150 * second, strong: 100 * second,
			left: "405s 2 pods of weak suspended", ends: 400*second + (5+100)*second + 700*second}, // 300 s were saved
		{name: "a checkpoint is near", suspend: takes, longest: 3600 * second, memory: 1000, checkpoint: 50 * second, strong: 100 * second,
			left: "400s 2 pods of weak preempted", ends: 400*second + 100*second + 600*second}, // nothing is lost
	} {
		p := doc.Policy
		p.Preempt.MaxSuspended, p.Preempt.Delay, p.Preempt.MinRuntime = x.longest, 0, 0
		request := core.Request{GPU: 4 * core.WholeGPU, MemMiB: 50}
		weak := workload.Job{Duration: 1000 * second, Job: core.Job{Name: "weak", Queue: "q", Class: core.LP, Gang: true,
			Checkpoint: x.checkpoint, Suspend: x.suspend, Tasks: []core.Task{{Pods: 2, Request: request}}}}
		strong := workload.Job{Duration: x.strong, Job: core.Job{Name: "strong", Queue: "q", Priority: 10, Submitted: 400 * second,
			Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: 8 * core.WholeGPU, MemMiB: 50}}}}}
		found := &ends{ended: map[string]core.Time{}}
		c := sim.Config{Policy: p, Jobs: func(yield func(workload.Job, error) bool) { _ = yield(weak, nil) && yield(strong, nil) }}
		c.Cluster.Nodes = []core.Node{{Name: "n", Model: "A", GPUs: 8, MemMiB: x.memory}}
		if _, err := sim.Run(t.Context(), c, found); err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
		if !slices.Equal(found.left, []string{x.left}) || found.ended["weak"] != x.ends {
			t.Errorf("%s: %q, and it ends at %gs; expected %q and %gs", x.name, found.left, found.ended["weak"].Seconds(), x.left, x.ends.Seconds())
		}
	}
}
