package translate

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/sharing"
)

// NodeName is the pseudo label under which the engine knows a node's name:
// what matchFields may select by.
const NodeName = "metadata.name"

// modelLabels say the GPU model of a node, the first that is there.
var modelLabels = []string{
	v1alpha1.GPUModelLabel, "nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator",
	"node.kubernetes.io/npu.chip.name", "gpu.intel.com/product",
}

// hbdLabels say the scale-up domain of a node, the first that is there.
var hbdLabels = []string{v1alpha1.HBDLabel, "nvidia.com/gpu.clique", "topology.k8s.aws/ultraserver-id", "accelerator.topograph.run/domain", "network.topology.nvidia.com/accelerator"}

// maxPods is the largest limit on the pods of a node that the engine knows.
const maxPods = 32766

// UnknownModel is the model of GPUs of which no label says what they are.
const UnknownModel = "gpu"

// A Level is a level of the topology: the node label that names a node's domain
// at it, and the name by which the engine knows it.
type Level struct{ Name, Label string }

// Node describes a node to the engine, but for its [Domains]. missing is how many of its GPUs its
// device plugin does not offer now (capacity less allocatable): which ones they are is unknown.
// An error says what part of the node cannot be used.
func Node(n *v1.Node) (node core.Node, missing int, err error) {
	capacity, allocatable := gpusOf(n, n.Status.Capacity), gpusOf(n, n.Status.Allocatable)
	gpus := max(capacity, allocatable)
	shared := sharing.Offered(n.Labels)
	if shared { // of more than the engine knows, it uses as many
		gpus = min(gpus, cluster.MaxGPUs)
	}
	if gpus > cluster.MaxGPUs {
		return core.Node{}, 0, fmt.Errorf("node %s has %d GPUs, expected at most 64", n.Name, gpus)
	}
	node = core.Node{
		Name: n.Name, GPUs: int(gpus),
		CPUMilli: thousandths(n.Status.Allocatable.Cpu()), MemMiB: mebibytes(n.Status.Allocatable.Memory(), false),
		MaxPods: int(min(whole(n.Status.Allocatable.Pods()), maxPods)),
		Others:  othersIn(n.Status.Allocatable),
		HBD:     first(n.Labels, hbdLabels), Cordoned: !Schedulable(n),
	}
	if gpus > 0 {
		node.Model = Model(n.Labels)
		node.Devices, _ = Positions(n)
		node.Blind, _ = sharing.Blind(n.Labels)
	}
	node.Labels = make(map[string]string, len(n.Labels)+2)
	for k, v := range n.Labels {
		node.Labels[k] = v
	}
	node.Labels[NodeName] = n.Name
	if shared && gpus > 0 {
		node.Labels[sharing.Label] = "true"
	}
	for _, r := range NodeGPUs(n) {
		node.Labels[ResourceLabel(r)] = "true"
	}
	for _, t := range n.Spec.Taints {
		if !passing(t.Key) {
			node.Taints = append(node.Taints, core.Taint{Key: t.Key, Value: taintValue(t.Value), Effect: string(t.Effect)})
		}
	}
	return node, int(gpus - min(allocatable, gpus)), nil
}

// NodeGPUs lists the resources by which device plugins offer a node's GPUs.
func NodeGPUs(n *v1.Node) []v1.ResourceName {
	list := GPUResources(n.Status.Capacity, n.Status.Allocatable)
	if i := slices.Index(list, sharing.Resource); i >= 0 && len(list) > 1 {
		list = slices.Delete(list, i, i+1) // of a node that has whole GPUs too, only these are used
	}
	return list
}

// gpusOf counts the GPUs in a list of a node's resources.
func gpusOf(n *v1.Node, list v1.ResourceList) int64 {
	sum := int64(0)
	for _, name := range NodeGPUs(n) {
		q := list[name]
		sum = cluster.Plus(sum, whole(&q))
	}
	return sum
}

// Positions returns where the GPUs of a node are, that its device plugin offers: as its annotation
// says, else in one NVLink island, the NUMA nodes half each, with unknown PCIe switches and NICs.
// An error says why an annotation has no effect.
func Positions(n *v1.Node) ([]core.Device, error) {
	gpus := int(max(gpusOf(n, n.Status.Capacity), gpusOf(n, n.Status.Allocatable)))
	if sharing.Offered(n.Labels) {
		gpus = min(gpus, cluster.MaxGPUs)
	}
	if gpus <= 0 || gpus > cluster.MaxGPUs { // Node refuses what is too many
		return nil, nil
	}
	list := make([]core.Device, gpus)
	for i := range list {
		list[i] = core.Device{PCIe: -1, NUMA: int8(2 * i / gpus), NIC: -1}
	}
	text, ok := n.Annotations[v1alpha1.GPUPositionsAnnotation]
	if !ok {
		return list, nil
	}
	if said, ok := cluster.ParseDevices(text); ok && len(said) == gpus {
		return said, nil
	}
	return list, fmt.Errorf("annotation %s: expected island/pcie/numa/nic of each of the %d GPUs, separated by |, such as 0/0/0/0|0/0/1/-; found %q",
		v1alpha1.GPUPositionsAnnotation, gpus, text)
}

// Evictions returns the count of evictions that a node has, 0 if it has none. An error says why an
// annotation has no effect.
func Evictions(n *v1.Node) (int, error) {
	text, ok := n.Annotations[v1alpha1.EvictionsAnnotation]
	if !ok {
		return 0, nil
	}
	count, err := strconv.Atoi(text)
	if err != nil || count < 0 || count > core.MaxEvictions {
		return 0, fmt.Errorf("annotation %s: expected a whole number, 0 to %d; found %q", v1alpha1.EvictionsAnnotation, core.MaxEvictions, text)
	}
	return count, nil
}

// Domains returns the topology domains of a node with the labels, one a level.
func Domains(labels map[string]string, levels []Level) []string {
	var out []string
	for _, l := range levels {
		out = append(out, labels[l.Label])
	}
	return out
}

// Model returns the GPU model that a node's labels name. Names as GPU Feature
// Discovery writes them lose the maker: "NVIDIA-H800" is H800. GPUs that are offered
// several times are of a model of their own, H800-SHARED, unless our own label says what they are.
func Model(labels map[string]string) string {
	m := cmp.Or(plainModel(first(labels, modelLabels)), UnknownModel)
	if labels[v1alpha1.GPUModelLabel] == "" && sharing.Offered(labels) && !strings.HasSuffix(m, sharing.Suffix) {
		m += sharing.Suffix
	}
	return m
}

// plainModel takes the maker off the name of a GPU model.
func plainModel(m string) string {
	for _, maker := range []string{"NVIDIA-", "Tesla-", "nvidia-", "AMD-"} {
		m = strings.TrimPrefix(m, maker)
	}
	return m
}

func first(labels map[string]string, keys []string) string {
	for _, k := range keys {
		if v := labels[k]; v != "" {
			return v
		}
	}
	return ""
}

// Schedulable reports whether a node takes new pods: it is Ready, not cordoned,
// and none of Kubernetes' own taints keeps pods off it for the time being.
func Schedulable(n *v1.Node) bool {
	if n.Spec.Unschedulable || n.DeletionTimestamp != nil {
		return false
	}
	for i := range n.Spec.Taints {
		if t := &n.Spec.Taints[i]; t.Effect != v1.TaintEffectPreferNoSchedule && passing(t.Key) {
			return false
		}
	}
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == v1.NodeReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// passing reports whether a taint is one of those that Kubernetes sets and takes
// away as a node comes, fails or is drained. They close a node; they do not
// make another kind of it.
func passing(key string) bool {
	return strings.HasPrefix(key, "node.kubernetes.io/") || strings.HasPrefix(key, "node.cloudprovider.kubernetes.io/") ||
		key == "ToBeDeletedByClusterAutoscaler" || key == "DeletionCandidateOfClusterAutoscaler"
}

// taintValue is the value of a taint in the engine, where an empty one is told from any value.
func taintValue(value string) string { return "=" + value }

// Repelling returns the taints of a node that keep most pods off it. Pods that request GPUs
// commonly tolerate a taint whose key is the node's GPU resource, and those of Kubernetes say
// what the state of the node says.
func Repelling(n *core.Node) []core.Taint {
	return slices.DeleteFunc(slices.Clone(n.Taints), func(t core.Taint) bool {
		_, isGPU := n.Labels[ResourceLabel(v1.ResourceName(t.Key))]
		return t.Soft() || isGPU || strings.HasPrefix(t.Key, "node.kubernetes.io/")
	})
}
