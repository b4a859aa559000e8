package translate

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"

	"github.com/muster-sched/muster/core"
)

// gpuResources are the extended resources that stand for whole GPUs. A name
// that ends in "/" or "*" is a prefix.
var gpuResources = []string{
	"nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "huawei.com/Ascend*", "iluvatar.com/gpu",
	"metax-tech.com/gpu", "mthreads.com/gpu", "cambricon.com/mlu", "hygon.com/dcu", "kunlunxin.com/xpu",
}

// isGPU reports whether an extended resource stands for GPUs.
func isGPU(name v1.ResourceName) bool {
	for _, g := range gpuResources {
		if prefix, ok := strings.CutSuffix(g, "*"); ok && strings.HasPrefix(string(name), prefix) || g == string(name) {
			return true
		}
	}
	return false
}

// gpusIn counts the GPUs in a list of resources.
func gpusIn(list v1.ResourceList) int64 {
	var n int64
	for name, q := range list {
		if isGPU(name) {
			n += q.Value()
		}
	}
	return n
}

// Amounts is what a pod asks for of a node.
type Amounts struct {
	GPUs             int64 // whole devices
	CPUMilli, MemMiB int64
}

// Requests sums what a pod's containers ask for, init containers, sidecars,
// pod-level requests and overhead included, as Kubernetes does.
func Requests(p *v1.Pod) Amounts {
	list := podresources.PodRequests(p, podresources.PodResourcesOptions{UseStatusResources: true})
	return Amounts{GPUs: gpusIn(list), CPUMilli: list.Cpu().MilliValue(), MemMiB: mebibytes(list.Memory(), true)}
}

// mebibytes rounds what is asked for up and what there is down.
func mebibytes(q *resource.Quantity, up bool) int64 {
	const mi = 1 << 20
	b := q.Value()
	if up {
		b += mi - 1
	}
	return b / mi
}

// milli is whole GPUs in the engine's unit.
func milli(gpus int64) core.Milli { return core.Milli(gpus) * core.WholeGPU }
