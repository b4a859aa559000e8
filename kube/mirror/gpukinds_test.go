package mirror

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/owners"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// offering makes a node of one that has these GPUs alone.
func offering(list ...string) change[*v1.Node] {
	return func(n *v1.Node) {
		delete(n.Status.Allocatable, v1alpha1.GPUResource)
		having(list...)(n)
	}
}

// A kubelet gives GPUs of one maker to the pods that ask for these.
func TestGPUKinds(t *testing.T) {
	w := newWorld(t)
	w.node("nvidia", "r1")
	w.pod("amd", asking("amd.com/gpu", "1"))
	w.pod("first")
	w.on("amd>", "first>nvidia")
	w.waits("amd", core.NoNode.String(), "no node has GPUs of resource amd.com/gpu")
	w.node("amd", "r1", offering("amd.com/gpu", "2"), mixed)
	w.on("amd>amd")

	// Of each kind there is what its nodes have.
	w.pod("amd2", asking("amd.com/gpu", "2"))
	w.pod("seven", asking(v1alpha1.GPUResource, "7"))
	w.pod("last")
	for _, name := range []string{"g1", "g2"} {
		w.pod(name, gang("g", 2), asking("amd.com/gpu", "1"))
	}
	w.on("amd2>", "seven>nvidia", "last>", "g1,g2>,")
	w.waits("last", core.Affinity.String(), "1 fit, 0 of them where selectors, taints and affinity allow")

	// Whoever asks for a part takes any.
	w.pod("part", asking("cpu", "1"), noted(v1alpha1.GPUFractionAnnotation, "0.5"))
	w.on("part>amd")
	w.gone("part")

	// They come and go while pods run and wait.
	w.gone("amd")
	w.on("amd2>amd")
	w.m.nodeGone("amd")
	w.gone("seven")
	w.on("last>nvidia", "g1,g2>,")
	w.node("amd3", "r1", offering("amd.com/gpu", "2"))
	w.on("g1,g2>amd3,amd3")
	if err := w.m.rebuild(); err != nil {
		t.Fatal(err)
	}
	w.pod("more")
	w.on("more>nvidia")

	w.pod("both", asking("amd.com/gpu", "1", v1alpha1.GPUResource, "1"))
	w.on("both>")
	if got := w.m.Pods[w.pods["default/both"].UID].Object.Wrong; got != "GPUs are requested as amd.com/gpu and as nvidia.com/gpu: expected one of them" {
		t.Error(got)
	}
}

// A node may have GPUs of two kinds: a display's beside those of the pods.
func TestGPUKindsOfOneNode(t *testing.T) {
	w := newWorld(t)
	w.node("a", "r1", having("gpu.intel.com/i915", "1"))
	w.node("b", "r1", offering("amd.com/gpu", "8"))
	w.pod("p", asking(v1alpha1.GPUResource, "8"))
	w.on("p>a")
}

// What a PodGroup, or the object of a gang, says of GPUs holds for the pods that say
// nothing of them.
func TestGPUsOfTheJob(t *testing.T) {
	w := newWorld(t)
	w.node("a", "r1", withMemory("A", "16000"), mixed)
	w.node("b", "r1", withMemory("B", "32000"), mixed)
	w.node("c", "r1", withMemory("C", "64000"), mixed)
	group := func(name string, annotations map[string]string) {
		w.m.podGroupSeen(objects.TrimPodGroup(&schedulingv1beta1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: w.uid(), Annotations: annotations},
			Spec: schedulingv1beta1.PodGroupSpec{
				SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}},
			},
		}))
	}
	in := func(name string) change[*v1.Pod] {
		return func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &name} }
	}
	share := func(name, want string) {
		t.Helper()
		if got := w.pods["default/"+name].Annotations[v1alpha1.ShareAnnotation]; got != want {
			t.Errorf("%s has %q of a GPU, expected %q", name, got, want)
		}
	}
	w.pod("m1", in("models"))
	w.pod("m2", in("models"), noted(v1alpha1.GPUModelsAnnotation, "C"))
	group("models", map[string]string{v1alpha1.GPUModelsAnnotation: "B"}) // after its pods
	w.on("m1>b", "m2>c")

	group("parts", map[string]string{v1alpha1.GPUFractionAnnotation: "0.25", v1alpha1.GPUModelsAnnotation: "C"})
	w.pod("p1", in("parts"), asking("cpu", "1"))
	w.pod("p2", in("parts"))
	w.on("p1,p2>c,c")
	share("p1", "250")
	share("p2", "")

	group("memory", map[string]string{v1alpha1.GPUMemoryAnnotation: "8000", v1alpha1.GPUModelsAnnotation: "D"})
	w.pod("g1", in("memory"), asking("cpu", "1"))
	w.pod("g2", in("memory"), asking("cpu", "1"), noted(v1alpha1.GPUFractionAnnotation, "0.5"))
	w.on("g1>", "g2>")
	group("memory", map[string]string{v1alpha1.GPUMemoryAnnotation: "8000", v1alpha1.GPUModelsAnnotation: "B"})
	w.on("g1,g2>b,b")
	share("g1", "250")
	share("g2", "500")

	group("wrong", map[string]string{v1alpha1.GPUMemoryAnnotation: "8000", v1alpha1.GPUFractionAnnotation: "0.5"})
	w.pod("w1", in("wrong"), asking("cpu", "1"))
	w.pod("w2", in("wrong"), asking("cpu", "1"))
	w.on("w1,w2>,")
	if n := w.m.Pods[w.pods["default/w1"].UID].Needs; n == nil || n.Reason != tables.ReasonMisconfigured {
		t.Errorf("memory and a part are asked for: %+v", n)
	}

	// An object that is read when its pods are there.
	ray := func(p *v1.Pod) { p.Labels["ray.io/cluster"] = "x" }
	w.pod("r1", ray)
	w.settle()
	w.m.asked(translate.Group{Namespace: "default", Kind: "raycluster", Name: "x"}, &owners.Gang{Min: 1, Attributes: translate.Attributes{Models: []string{"C"}}}, nil)
	w.on("r1>c")
	if got := w.pods["default/r1"].Annotations[v1alpha1.GPUModelsAnnotation]; got != "C" {
		t.Errorf("models noted on the pod: %q", got)
	}

	// A new engine knows them as they are.
	if err := w.m.rebuild(); err != nil {
		t.Fatal(err)
	}
	w.settle()
	for name, want := range map[string]int64{"m1": 1000, "p1": 250, "p2": 1000, "g1": 250, "g2": 500, "r1": 1000} {
		if p := w.m.Pods[w.pods["default/"+name].UID]; int64(p.Task.Spec.GPU) != want {
			t.Errorf("%s is known to have %d", name, p.Task.Spec.GPU)
		}
	}
}
