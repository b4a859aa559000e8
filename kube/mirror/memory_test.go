package mirror

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// withMemory makes a node one of a model whose GPUs have so much memory.
func withMemory(model, mib string) change[*v1.Node] {
	return func(n *v1.Node) {
		n.Labels[v1alpha1.GPUModelLabel] = model
		if n.Labels[v1alpha1.MemoryLabel] = mib; mib == "" {
			delete(n.Labels, v1alpha1.MemoryLabel)
		}
	}
}

// A pod that asks for memory of a GPU gets the part that has so much on each model
// that is large enough.
func TestGPUMemory(t *testing.T) {
	w := newWorld(t)
	memory := func(mib string) change[*v1.Pod] {
		return func(p *v1.Pod) {
			asking("cpu", "1")(p)
			p.Annotations["gpu-memory"] = mib
		}
	}
	share := func(name, want string) {
		t.Helper()
		if got := w.pods["default/"+name].Annotations[v1alpha1.ShareAnnotation]; got != want {
			t.Errorf("%s has %s of a GPU, expected %s", name, got, want)
		}
	}
	w.node("small", "r1", withMemory("S", ""))
	w.pod("a", memory("10000"))
	w.waits("a", "NoNode", "10000 MiB of a GPU are requested: no node that the pod accepts has GPUs with that much memory according to its label nvidia.com/gpu.memory")
	w.node("small", "r1", withMemory("S", "16000"))
	w.on("a>small")
	share("a", "625")

	w.node("large", "r1", withMemory("L", "80000"))
	w.pod("b", memory("20000")) // S is too small for it
	w.on("b>large")
	share("b", "250")
	w.pod("c", memory("10000")) // enough on both
	w.settle()
	share("c", "625")
	w.pod("d", memory("10000"), noted("muster.sh/gpu-models", "L"))
	w.on("d>large")
	share("d", "125")
	w.pod("e", memory("16000"), noted("muster.sh/gpu-models", "S"))
	w.on("e>small")
	if p := w.pods["default/e"]; p.Annotations[v1alpha1.GPUsAnnotation] == "" {
		t.Error("e has no GPU")
	}
	share("e", "") // a whole one
	w.pod("f", memory("90000"))
	w.waits("f", "NoNode", "90000 MiB")

	// A new engine finds them with the parts that they have, whatever labels say now.
	w.node("small", "r1", withMemory("S", "32000"))
	if err := w.m.rebuild(); err != nil {
		t.Fatal(err)
	}
	w.settle()
	for name, want := range map[string]int64{"a": 625, "b": 250, "c": 625, "d": 125, "e": 1000} {
		if p := w.m.Pods[w.pods["default/"+name].UID]; int64(p.Task.Spec.GPU) != want {
			t.Errorf("%s is known to have %d", name, p.Task.Spec.GPU)
		}
	}
	w.node("small", "r1", func(n *v1.Node) { n.Labels[v1alpha1.MemoryLabel] = "100000" })
	w.on("f>small")
	share("f", "900")
	for name := range w.pods {
		w.gone(name[len("default/"):])
	}
	w.settle()
}

// Slices of a GPU by MIG are counted by their names, beside whole GPUs.
func TestMIGSlices(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "r1", func(n *v1.Node) {
		n.Status.Allocatable = amounts("cpu", "64", "memory", "512Gi", "pods", "110", "nvidia.com/gpu", "1", "nvidia.com/mig-1g.5gb", "2")
	})
	slice := func(n string) change[*v1.Pod] { return asking("cpu", "1", "nvidia.com/mig-1g.5gb", n) }
	w.pod("a", slice("1"))
	w.pod("b", slice("1"))
	w.pod("whole")
	w.pod("c", slice("1"))
	w.on("a,b,whole>n1,n1,n1")
	w.waits("c", "InsufficientOther", "nvidia.com/mig-1g.5gb")
	w.gone("a")
	w.on("c>n1")
}
