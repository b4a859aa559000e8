package mirror

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/objects"
)

// A node's device plugin offers fewer GPUs than the node has, and does not say which. The kubelet admits pods by the number that it
// offers. A GPU fails while pods have all of them; when some of them leave, as many are free as the kubelet admits, and no more.
func TestMissingGPUsAreFreeOnes(t *testing.T) {
	offers := func(w *world, gpus string) {
		n := w.nodes["n"]
		n.Status.Capacity, n.Status.Allocatable = n.Status.Allocatable.DeepCopy(), n.Status.Allocatable.DeepCopy()
		n.Status.Capacity[v1alpha1.GPUResource], n.Status.Allocatable[v1alpha1.GPUResource] = resource.MustParse("8"), resource.MustParse(gpus)
		w.m.nodeSeen(objects.TrimNode(n))
	}
	takes := func(gpus string) change[*v1.Pod] {
		return func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests[v1alpha1.GPUResource] = resource.MustParse(gpus)
		}
	}
	for _, restart := range []bool{false, true} {
		for _, leaves := range []string{"a", "b", "c", "d"} {
			w := newWorld(t)
			w.node("n", "r")
			for _, name := range []string{"a", "b", "c", "d"} {
				w.pod(name, takes("2"))
			}
			w.on("a>n", "b>n", "c>n", "d>n")
			offers(w, "7")
			w.on("a>n")
			w.gone(leaves)
			if restart {
				w.restart()
			}
			w.pod("two", takes("2"))
			w.on("two>")
			w.pod("one", takes("1"))
			w.pod("another", takes("1"))
			w.on("one>n", "another>", "two>")
			if t.Failed() {
				t.Fatalf("after %s has left, with a restart: %v", leaves, restart)
			}
		}
	}
}

// A scheduler starts while a node is gone, and the engine refuses the pods there. When the node is back, they are their jobs' again: they count
// against quota, and have their GPUs.
func TestPodsOfNodeThatReturns(t *testing.T) {
	w := newWorld(t)
	w.queue("lab", 2, "")
	in := inQueue("lab")
	w.node("n", "r")
	for _, name := range []string{"a", "b"} {
		w.pod(name, in, func(p *v1.Pod) {
			p.Spec.NodeName = "late"
			p.Annotations[v1alpha1.GPUsAnnotation] = map[string]string{"a": "0", "b": "5"}[name]
		})
	}
	w.settle()
	w.node("late", "r")
	w.pod("more", in)
	w.on("more>")
	if got := w.used("late"); got != 2 {
		t.Errorf("%d GPUs of the node are used, expected 2", got)
	}
}
