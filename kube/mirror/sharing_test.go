package mirror

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-sched/muster/api/v1alpha1"
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
	w.node("whole", "2", func(o *v1.Node) { o.Labels["nvidia.com/gpu.product"] = "NVIDIA-H800" })
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
