package fleet

import (
	"fmt"
	"math/bits"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/core"
)

// Names and labels of nodes.
const (
	// GPUResource is the resource of a GPU, unless nodes publish their GPUs by DRA.
	GPUResource corev1.ResourceName = "nvidia.com/gpu"
	// Driver is the DRA driver of GPUs, and the name of their DeviceClass.
	Driver = "gpu.nvidia.com"
	// FailedGPUs annotates a node with the indices of its failed GPUs, such as "0,3".
	FailedGPUs = "devcluster.muster.sh/failed-gpus"

	labelProduct = "nvidia.com/gpu.product"
	labelFamily  = "nvidia.com/gpu.family"
	labelCount   = "nvidia.com/gpu.count"
	labelMemory  = "nvidia.com/gpu.memory"
	labelMajor   = "nvidia.com/gpu.compute.major"
	labelMinor   = "nvidia.com/gpu.compute.minor"
	labelClique  = "nvidia.com/gpu.clique"
	labelModel   = "muster.sh/gpu-model"
)

const (
	kubeletVersion = "v1.37.1"
	driverVersion  = "580.95.5"
	cudaVersion    = "13.0"
	// podsPerNode is the maximum number of pods on a node: a usual setting for large
	// nodes.
	podsPerNode = 250
	// diskPerNode is a node's ephemeral storage.
	diskPerNode = "1Ti"
)

// LevelLabel returns the node label of a topology level, as NVIDIA's Topograph
// writes them; what it calls core is a superspine here.
func LevelLabel(level string) string {
	if level == "superspine" {
		level = "core"
	}
	return "network.topology.nvidia.com/" + level
}

// node returns the i-th node of a cluster as its kubelet and GPU Feature
// Discovery would have written it, Ready. With dra, its GPUs are not a resource:
// they are in the node's [slice].
func node(i int, spec *core.Node, levels []string, dra bool) *corev1.Node {
	name := nodeName(spec)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: nodeLabels(name, spec, levels)}}
	n.Spec.Unschedulable = spec.Cordoned
	for _, t := range spec.Taints {
		effect := corev1.TaintEffectNoSchedule
		if t.Soft() {
			effect = corev1.TaintEffectPreferNoSchedule
		}
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: t.Key, Value: labelValue(t.Value), Effect: effect})
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewMilliQuantity(spec.CPUMilli, resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(spec.MemMiB<<20, resource.BinarySI),
		corev1.ResourceEphemeralStorage: resource.MustParse(diskPerNode),
		corev1.ResourcePods:             *resource.NewQuantity(podsPerNode, resource.DecimalSI),
	}
	if spec.GPUs > 0 && !dra {
		capacity[GPUResource] = *resource.NewQuantity(int64(spec.GPUs), resource.DecimalSI)
	}
	n.Status.Capacity, n.Status.Allocatable = capacity, capacity.DeepCopy()
	if len(spec.Unhealthy) > 0 {
		failed := newIndices(spec.Unhealthy...)
		n.Annotations = map[string]string{FailedGPUs: failed.String()}
		if !dra {
			n.Status.Allocatable[GPUResource] = *resource.NewQuantity(int64(spec.GPUs-failed.count()), resource.DecimalSI)
		}
	}
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("172.%d.%d.%d", 16+i>>16&15, i>>8&255, i&255)},
		{Type: corev1.NodeHostName, Address: name},
	}
	n.Status.NodeInfo = corev1.NodeSystemInfo{
		KubeletVersion: kubeletVersion, OperatingSystem: "linux", Architecture: "amd64",
		ContainerRuntimeVersion: "simulated://1", OSImage: "simulated",
	}
	n.Status.Conditions = conditions()
	return n
}

// nodeName returns the Kubernetes name of a node, which has only lower case.
func nodeName(spec *core.Node) string { return strings.ToLower(spec.Name) }

// conditions are those of a healthy node.
func conditions() []corev1.NodeCondition {
	now := metav1.Now()
	well := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now}
	}
	return []corev1.NodeCondition{
		well(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		well(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		well(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		readyCondition(now),
	}
}

func readyCondition(now metav1.Time) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
}

func nodeLabels(name string, spec *core.Node, levels []string) map[string]string {
	labels := map[string]string{
		corev1.LabelHostname:   name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: "amd64",
	}
	if spec.GPUs > 0 {
		g := gpuOf(spec.Model)
		major, minor, _ := strings.Cut(g.compute, ".")
		labels["nvidia.com/gpu.present"] = "true"
		labels[labelProduct] = g.product
		labels[labelFamily] = g.family
		labels[labelCount] = strconv.Itoa(spec.GPUs)
		labels["nvidia.com/gpu.machine"] = "simulated"
		labels["nvidia.com/gpu.mode"] = "compute"
		labels["nvidia.com/gpu.replicas"] = "1"
		labels["nvidia.com/gpu.sharing-strategy"] = "none"
		labels[labelMajor], labels[labelMinor] = major, minor
		if g.memoryMiB > 0 {
			labels[labelMemory] = strconv.FormatInt(g.memoryMiB, 10)
		}
		if g.overrideName != "" {
			labels[labelModel] = g.overrideName
		}
	}
	for i, domain := range spec.Domains {
		if domain != "" {
			labels[LevelLabel(levels[i])] = labelValue(domain)
		}
	}
	if spec.HBD != "" {
		labels[labelClique] = labelValue(spec.HBD)
	}
	for k, v := range spec.Labels {
		labels[k] = labelValue(v)
	}
	return labels
}

var notInLabels = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// labelValue turns s into a valid label value: invalid characters become dashes, and a
// long value is cut.
func labelValue(s string) string {
	s = notInLabels.ReplaceAllString(s, "-")
	return strings.Trim(s[:min(len(s), validation.LabelValueMaxLength)], "._-")
}

// slice returns the GPUs of a node as NVIDIA's DRA driver publishes them, nil
// when the node has none or they are a resource. Failed ones have a taint.
func slice(n *corev1.Node) *resourceapi.ResourceSlice {
	count, _ := strconv.Atoi(n.Labels[labelCount])
	if _, isResource := n.Status.Capacity[GPUResource]; count == 0 || isResource {
		return nil
	}
	failed, _ := parseIndices(n.Annotations[FailedGPUs])
	s := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: sliceName(n.Name),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID, Controller: ptr.To(true),
			}},
		},
		Spec: resourceapi.ResourceSliceSpec{
			Driver:   Driver,
			NodeName: ptr.To(n.Name),
			Pool:     resourceapi.ResourcePool{Name: n.Name, Generation: 1, ResourceSliceCount: 1},
		},
	}
	for i := range count {
		s.Spec.Devices = append(s.Spec.Devices, device(n, i, count))
		if failed.has(i) {
			s.Spec.Devices[i].Taints = []resourceapi.DeviceTaint{unhealthy()}
		}
	}
	return s
}

func sliceName(node string) string { return node + "-" + Driver }

// unhealthy is the taint of a failed GPU.
func unhealthy() resourceapi.DeviceTaint {
	return resourceapi.DeviceTaint{
		Key: Driver + "/unhealthy", Effect: resourceapi.DeviceTaintEffectNoExecute, TimeAdded: ptr.To(metav1.Now()),
	}
}

// device returns the i-th GPU of a node: each has a PCIe root of its own, and each of the
// two NUMA nodes has half of the GPUs.
func device(n *corev1.Node, i, count int) resourceapi.Device {
	text := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
	version := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{VersionValue: &s} }
	number := func(n int) resourceapi.DeviceAttribute {
		return resourceapi.DeviceAttribute{IntValue: ptr.To(int64(n))}
	}
	bus := fmt.Sprintf("0000:%02x:00.0", 0x10+i)
	memory, _ := strconv.ParseInt(n.Labels[labelMemory], 10, 64)
	return resourceapi.Device{
		Name: fmt.Sprintf("gpu-%d", i),
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"type":                  text("gpu"),
			"index":                 number(i),
			"uuid":                  text(gpuUUID(n.Name, i)),
			"productName":           text(strings.ReplaceAll(n.Labels[labelProduct], "-", " ")),
			"brand":                 text("Nvidia"),
			"architecture":          text(n.Labels[labelFamily]),
			"cudaComputeCapability": version(n.Labels[labelMajor] + "." + n.Labels[labelMinor] + ".0"),
			"driverVersion":         version(driverVersion),
			"cudaDriverVersion":     version(cudaVersion + ".0"),
			"pcieBusID":             text(bus),
			deviceattribute.StandardDeviceAttributePCIBusID: text(bus),
			deviceattribute.StandardDeviceAttributePCIeRoot: text(fmt.Sprintf("pci0000:%02x", 0x10+i)),
			deviceattribute.StandardDeviceAttributeNUMANode: number(2 * i / count),
		},
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			"memory": {Value: *resource.NewQuantity(memory<<20, resource.BinarySI)},
		},
	}
}

// gpuUUID is the UUID of a GPU, always the same.
func gpuUUID(node string, i int) string {
	return "GPU-" + uuid.NewSHA1(uuid.NameSpaceDNS, fmt.Appendf(nil, "%d.%s", i, node)).String()
}

// deviceClass is the class of all GPUs. Because of it, pods that request the resource get
// GPUs through DRA too.
func deviceClass() *resourceapi.DeviceClass {
	return &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: Driver},
		Spec: resourceapi.DeviceClassSpec{
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
				Expression: fmt.Sprintf("device.driver == %q && device.attributes[%q].type == 'gpu'", Driver, Driver),
			}}},
			ExtendedResourceName: ptr.To(string(GPUResource)),
		},
	}
}

// indices is a set of GPUs of a node.
type indices uint64

func newIndices(list ...int) indices {
	var s indices
	for _, i := range list {
		s |= 1 << i
	}
	return s
}

// parseIndices parses the output of String.
func parseIndices(text string) (indices, error) {
	var s indices
	if text == "" {
		return 0, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		i, err := strconv.ParseUint(part, 10, 6)
		if err != nil {
			return 0, fmt.Errorf("expected indices of GPUs such as 0,3; found %q", text)
		}
		s |= 1 << i
	}
	return s, nil
}

func (s indices) has(i int) bool { return s&(1<<i) != 0 }

func (s indices) count() int { return bits.OnesCount64(uint64(s)) }

func (s indices) String() string {
	var list []string
	for i := range 64 {
		if s.has(i) {
			list = append(list, strconv.Itoa(i))
		}
	}
	return strings.Join(list, ",")
}
