package coretest

import (
	"fmt"
	"testing"

	"github.com/muster-sched/muster/core"
)

// On a large cluster, a search for victims that was in vain is not repeated for every pod that
// comes or goes, but at once when a job is disruption-protected no longer.
func TestUnshieldedIsTriedAtOnce(t *testing.T) {
	const nodes = 40
	w := NewWorld(t, core.Config{Policy: core.Policy{Preempt: core.Preempt{Priority: core.InCluster}}, Levels: testLevels})
	w.Must(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
	for i := range nodes {
		w.Must(core.NodeAdded{Node: core.Node{
			Name: fmt.Sprint("n", i), Model: "A", GPUs: 8, CPUMilli: 8000, MemMiB: 1024, Domains: []string{"a", "a", "a"},
		}})
	}
	job := func(name string, pods int, gpu core.Milli, change func(*core.Job)) {
		j := core.Job{Name: name, Queue: "q", Tasks: []core.Task{{Pods: pods, Request: core.Request{GPU: gpu}}}}
		if change != nil {
			change(&j)
		}
		w.Must(core.JobSubmitted{Job: j})
	}
	runs := func(name string, pod, node int, gpus ...int) {
		w.Must(core.PodRunning{Job: name, Pod: pod, Node: fmt.Sprint("n", node), GPUs: gpus})
	}
	// Each node but the first has a pod that may be evicted, and seven that may not.
	job("firm", 7*(nodes-1)+4, core.WholeGPU, func(j *core.Job) { j.NotPreemptible = true })
	job("weak", nodes-1, core.WholeGPU, nil)
	job("held", 1, 4*core.WholeGPU, nil)
	for k := range 7 * (nodes - 1) {
		runs("firm", k, 1+k/7, k%7)
	}
	for k := range 4 {
		runs("firm", 7*(nodes-1)+k, 0, k)
	}
	for k := range nodes - 1 {
		runs("weak", k, 1+k, 7)
	}
	runs("held", 0, 0, 4, 5, 6, 7)
	w.Must(core.JobShielded{Job: "held", Shielded: true})
	job("high", 1, 4*core.WholeGPU, func(j *core.Job) { j.Priority = 9 })
	evicted := func() int {
		n := 0
		for _, d := range w.Decide() {
			if d.Op == core.Evict {
				n += len(d.Pods)
			}
		}
		return n
	}
	if n := evicted(); n != 0 {
		t.Fatalf("%d pods are evicted, though none makes room", n)
	}
	w.Now += core.Second
	w.Must(core.JobShielded{Job: "held"})
	if n := evicted(); n != 1 {
		t.Errorf("%d pods are evicted, expected the one whose shield is lifted", n)
	}
	w.CheckReplay()
}
