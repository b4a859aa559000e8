package tables

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/translate"
)

// BenchmarkCountNode counts a node with eight pods, as for each node that changed since the
// last scrape.
func BenchmarkCountNode(b *testing.B) {
	t := New(core.Policy{}, nil)
	n := &Node{Object: &objects.Node{}, Known: true, Pods: map[types.UID]*Pod{}, Told: core.Node{Name: "n", Model: "A10", GPUs: 8, CPUMilli: 128_000}}
	n.Object.Name = "n"
	t.Nodes["n"] = n
	for i := range 8 {
		p := &Pod{Object: &objects.Pod{Amounts: translate.Amounts{CPUMilli: 8000}}, Group: &Group{}, Task: &Task{Spec: core.Request{GPU: core.WholeGPU}}}
		if i < 5 {
			p.Devices = 1 << i
		}
		p.Volumes = t.Storage.Needs("")
		n.Pods[types.UID(fmt.Sprint(i))] = p
	}
	for b.Loop() {
		t.CountNode(n)
	}
}
