package mirror

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// replicas has a node offer its GPUs several times each, as so many devices of a resource.
func replicas(name v1.ResourceName, n int) change[*v1.Node] {
	return func(o *v1.Node) {
		o.Labels["nvidia.com/gpu.product"], o.Labels["nvidia.com/gpu.replicas"] = "NVIDIA-H800", "4"
		if name == v1alpha1.GPUResource {
			o.Labels["nvidia.com/gpu.product"] += "-SHARED"
		}
		delete(o.Status.Allocatable, v1alpha1.GPUResource)
		o.Status.Allocatable[name] = resource.MustParse(fmt.Sprint(n))
		o.Status.Capacity = o.Status.Allocatable
	}
}

// mixed lets a node have pods that its device plugin counts beside others that have GPUs.
func mixed(o *v1.Node) { o.Labels[v1alpha1.GPUSharingLabel] = v1alpha1.GPUSharingMixed }

// Where a device plugin chooses GPUs, a node has one kind of pods at a time, and what its label says may change.
func TestBlindNodes(t *testing.T) {
	w := newWorld(t)
	w.node("a", "1")
	w.pod("part", asking("cpu", "1"), noted(v1alpha1.GPUFractionAnnotation, "0.5"))
	w.pod("memory", asking("cpu", "1"), noted(v1alpha1.GPUMemoryAnnotation, "1000"))
	w.pod("count", asking("cpu", "1"), noted(v1alpha1.GPUCountAnnotation, "2"))
	w.pod("whole")
	w.on("part>a", "count>a", "whole>", "memory>")
	w.waits("whole", core.GPUSharing.String(), "1 have pods whose GPUs are parts")
	w.node("a", "1", withMemory("H800", "80000"))
	w.on("memory>a", "whole>")

	// Pods of other schedulers have what the kubelet chooses.
	w.node("b", "1")
	w.pod("theirs", func(p *v1.Pod) { p.Spec.SchedulerName, p.Spec.NodeName = "other", "b" })
	w.pod("part2", asking("cpu", "1"), noted(v1alpha1.GPUFractionAnnotation, "0.5"), func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{host: "b"} })
	w.on("part2>", "whole>b")
	w.waits("part2", core.GPUSharing.String(), "where selectors, taints and affinity allow, take 0: others have pods whose GPUs their nodes picked")

	// A new engine knows it; the label of a node takes effect when it comes, and when it goes.
	if err := w.m.rebuild(); err != nil {
		t.Fatal(err)
	}
	w.pod("whole2", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{host: "a"} })
	w.on("part2>", "whole2>")
	w.node("b", "1", mixed)
	w.on("part2>b", "whole2>")
	w.node("b", "1", func(o *v1.Node) { o.Labels[v1alpha1.GPUSharingLabel] = "yes" })
	w.pod("whole3", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{host: "b"} })
	w.on("whole3>")
	w.gone("part2")
	w.on("whole3>b")
}

// GPUs that are offered several times each are of a model of their own, and only for pods that ask for them, unless there are no others.
func TestSharedGPUs(t *testing.T) {
	w := newWorld(t)
	w.node("shared", "1", replicas(v1alpha1.GPUResource, 80))
	w.pod("any", asking("nvidia.com/gpu", "1"))
	w.on("any>shared") // there are no others
	if st := w.m.Stats(); st.Models[0].Model != "H800-SHARED" || st.Models[0].GPUs != 64 {
		t.Errorf("models %+v", st.Models[0])
	}
	w.pod("part", asking("cpu", "1"), noted(v1alpha1.GPUFractionAnnotation, "0.5"))
	w.on("part>")
	w.node("whole", "2", mixed, func(o *v1.Node) { o.Labels["nvidia.com/gpu.product"] = "NVIDIA-H800" })
	w.on("part>whole")
	for i := range 8 {
		w.pod(fmt.Sprint("p", i), asking("nvidia.com/gpu", "1"))
	}
	w.pod("model", asking("nvidia.com/gpu", "1"), noted(v1alpha1.GPUModelsAnnotation, "H800-SHARED"))
	w.pod("product", asking("nvidia.com/gpu", "1"), func(p *v1.Pod) {
		p.Spec.NodeSelector = map[string]string{"nvidia.com/gpu.product": "NVIDIA-H800-SHARED"}
	})
	w.pod("bears", asking("nvidia.com/gpu", "1"), func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}} })
	w.pod("cpu", asking("cpu", "1"), func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{host: "shared"} })
	w.on("p0>whole", "p6>whole", "p7>", "bears>", "cpu>shared", "model>shared", "product>shared")
	w.node("renamed", "3", replicas("nvidia.com/gpu.shared", 32))
	w.pod("renamed", asking("nvidia.com/gpu.shared", "1"))
	w.on("renamed>renamed", "p7>")
}
