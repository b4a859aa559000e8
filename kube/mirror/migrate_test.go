package mirror

import (
	"testing"

	"github.com/muster-sched/muster/core"
)

// A pod that the engine moves stays where it is, and its new place is free again: nothing moves
// pods on a cluster yet.
func TestMovesAreRefused(t *testing.T) {
	y := newToy(t)
	y.node("a", 1)
	y.node("b", 1)
	y.start()
	job := core.Job{Name: "j", Queue: "q", Mobility: core.Replaceable, Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: core.WholeGPU}}}}
	for _, ev := range []core.Event{
		core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}}, core.JobSubmitted{Job: job},
		core.PodRunning{Job: "j", Node: "a", GPUs: []int{0}, Started: y.now}, core.MoveRequested{Job: "j"},
	} {
		if err := y.tell(ev); err != nil {
			t.Fatalf("%T: %v", ev, err)
		}
	}
	y.pass()
	if x, ok := y.engine.Explain("j"); !ok || x.Running != 1 || x.Moving != 0 {
		t.Errorf("got %+v, want one pod that runs and is not being moved", x)
	}
}
