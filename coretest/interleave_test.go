package coretest

import (
	"fmt"
	"testing"

	"github.com/muster-sched/muster/core"
)

// TestGangsInterleave places gangs whose pods find places only if those of one task come between those of another.
func TestGangsInterleave(t *testing.T) {
	type node struct{ leaf, hbd, model string }
	one := func(name string, labels []string, pods int, terms ...core.Term) core.Task {
		t := core.Task{Name: name, Pods: pods, Labels: labels, Affinity: terms}
		t.GPU = 1000
		return t
	}
	on := func(model string, t core.Task) core.Task {
		t.Models = []string{model}
		return t
	}
	spread := core.Term{Level: "leaf", Label: "pod", MaxSkew: 1, AnyLabel: true}
	for name, x := range map[string]struct {
		nodes []node
		tasks []core.Task
	}{
		// The second leader is near the worker of the first, and its worker near it.
		"chain": {[]node{{"l0", "h0", "A"}, {"l1", "h0", "B"}, {"l1", "h1", "A"}, {"l2", "h1", "B"}}, []core.Task{
			on("A", one("leader", []string{"pod", "leader"}, 2, core.Term{Level: "leaf", Label: "pod"})),
			on("B", one("worker", []string{"pod"}, 2, core.Term{Level: "hbd", Label: "leader"})),
		}},
		// Of two tasks on models of their own, each would be too many on its side, without the other.
		"skew": {[]node{{"l0", "", "A"}, {"l0", "", "A"}, {"l1", "", "B"}, {"l1", "", "B"}}, []core.Task{
			on("A", one("a", []string{"pod"}, 2, spread)), on("B", one("b", []string{"pod"}, 2, spread)),
		}},
		// The first of one task may be anywhere; the second goes where the other task has gone.
		"first": {[]node{{"l0", "", "A"}, {"l1", "", "B"}, {"l1", "", "A"}}, []core.Task{
			on("A", one("a", []string{"pod"}, 2, core.Term{Level: "leaf", Label: "pod"})), on("B", one("b", []string{"pod"}, 1)),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWorld(t, core.Config{Policy: core.Policy{Queueing: core.Queueing{Mode: core.BestEffortFIFO}}, Levels: testLevels})
			w.Must(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
			for i, n := range x.nodes {
				w.Must(core.NodeAdded{Node: core.Node{Name: fmt.Sprint("n", i), GPUs: 1, Model: n.model, HBD: n.hbd, Domains: []string{"z", "s", n.leaf}}})
			}
			w.Must(core.JobSubmitted{Job: core.Job{Name: "j", Queue: "q", Gang: true, Tasks: x.tasks}})
			w.Decide()
			w.CheckIdle()
			// Without its own search, the twin would not know.
			if _, run, _ := w.Twin.Counts("j"); run == 0 {
				t.Errorf("it waits, and the twin finds no place")
			}
		})
	}
}
