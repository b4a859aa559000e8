package metrics

import (
	"slices"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim"
)

func TestFrame(t *testing.T) {
	r := newRun(t, Options{Levels: 1})
	for _, name := range []string{"idle", "part", "full", "tiny", "lost", "cordoned"} {
		r.node(0, name, "l")
	}
	r.ok(r.Node(0, &core.Node{Name: "cpu"}, true))
	r.submit(0, "a", false, task(1, 3), task(1, 8))
	r.bind(0, "a", on("part", 0, 0, 3), on("full", 1, 0, 8))
	r.submit(0, "b", false, core.Task{Pods: 1, Request: core.Request{GPU: 1}})
	r.bind(0, "b", core.Placement{Node: "tiny", GPUs: 1, GPU: 1})
	r.ok(r.Node(1, &core.Node{Name: "lost", GPUs: 8}, false))
	r.ok(r.Node(1, &core.Node{Name: "cordoned", GPUs: 8, Cordoned: true}, true))
	f := r.Frame()
	if want := []byte{0, Full * 3 / 8, Full, 1, Lost, Cordoned, 0}; !slices.Equal(f.Nodes, want) {
		t.Errorf("nodes are %v, want %v", f.Nodes, want)
	}
	if want := []core.Milli{11001}; !slices.Equal(f.Queues, want) {
		t.Errorf("queues hold %v, want %v", f.Queues, want)
	}
	r.release(2, "a", sim.Preempted, on("full", 1, 0, 8))
	if f := r.Frame(); f.Nodes[2] != 0 || f.Queues[0] != 3001 {
		t.Errorf("after an eviction the node has %d, the queue %d", f.Nodes[2], f.Queues[0])
	}
}
