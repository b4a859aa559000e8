package translate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core/cluster"
)

// dev writes a device: its name, then attributes as k=v, where v is a whole
// number, true, false, or text.
func dev(name string, attributes ...string) resourceapi.Device {
	d := resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}}
	for _, a := range attributes {
		k, v, _ := strings.Cut(a, "=")
		var n int64
		var value resourceapi.DeviceAttribute
		if _, err := fmt.Sscanf(v, "%d", &n); err == nil && fmt.Sprint(n) == v {
			value.IntValue = &n
		} else if v == "true" || v == "false" {
			value.BoolValue = ptr.To(v == "true")
		} else {
			value.StringValue = &v
		}
		d.Attributes[resourceapi.QualifiedName(k)] = value
	}
	return d
}

func sliceOn(node, driver string, devices ...resourceapi.Device) *Slice {
	return SliceOf(&resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + driver}, Spec: resourceapi.ResourceSliceSpec{
		NodeName: &node, Driver: driver, Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}, Devices: devices,
	}})
}

// places writes the devices in their order, and where each GPU is.
func places(v *Inventory) string {
	var out []string
	for i := range v.GPUs {
		out = append(out, fmt.Sprintf("%s:%d/%d", v.GPUs[i].Name, v.Layout[i].NUMA, v.Layout[i].NIC))
	}
	return strings.Join(out, " ")
}

func TestInventory(t *testing.T) {
	const root, numa = "resource.kubernetes.io/pcieRoot=", "resource.kubernetes.io/numaNode="
	for _, test := range []struct {
		name   string
		slices []*Slice
		want   string // name:NUMA/NIC of each GPU
		model  string
		paired bool
	}{
		{name: "by name", slices: []*Slice{sliceOn("n", "gpu.nvidia.com", dev("gpu-10"), dev("gpu-9"))}, want: "gpu-9:-1/-1 gpu-10:-1/-1"},
		{
			name: "by index, one missing", model: "H800",
			slices: []*Slice{sliceOn("n", "gpu.nvidia.com", dev("x", "index=2", "productName=NVIDIA H800", numa+"1"), dev("y", "index=0", "productName=NVIDIA H800", numa+"0"))},
			want:   "y:0/-1 :-1/-1 x:1/-1",
		},
		{name: "the same index twice", slices: []*Slice{sliceOn("n", "gpu.nvidia.com", dev("b", "index=1"), dev("a", "index=1"))}, want: "a:-1/-1 b:-1/-1"},
		{
			name: "no parts and no other drivers", slices: []*Slice{
				sliceOn("n", "gpu.nvidia.com", dev("gpu-0", "type=gpu"), dev("mig-0", "type=mig")), sliceOn("n", "tpu.example.com", dev("t")),
			}, want: "gpu-0:-1/-1",
		},
		{
			name: "NICs by PCIe root, before NUMA node", paired: true, slices: []*Slice{
				sliceOn("n", "gpu.nvidia.com", dev("gpu-0", root+"a", numa+"0"), dev("gpu-1", root+"b", numa+"0")),
				sliceOn("n", "dra.net", dev("eth0", root+"b", "dra.net/numaNode=0"), dev("eth1", root+"a", "dra.net/numaNode=1"), dev("tcp", root+"a", "dra.net/rdma=false")),
			}, want: "gpu-0:0/1 gpu-1:0/0",
		},
		{
			name: "NICs by NUMA node, in turn", slices: []*Slice{
				sliceOn("n", "gpu.nvidia.com", dev("gpu-0", numa+"0"), dev("gpu-1", numa+"0"), dev("gpu-2", numa+"0"), dev("gpu-3", numa+"1")),
				sliceOn("n", "dra.net", dev("eth0", "dra.net/numaNode=0"), dev("eth1", "dra.net/numaNode=0")),
			}, want: "gpu-0:0/0 gpu-1:0/1 gpu-2:0/0 gpu-3:1/-1",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := InventoryOf(test.slices)
			if got := places(v); got != test.want {
				t.Errorf("the GPUs are %s; want %s", got, test.want)
			}
			if v.Product != test.model || v.Paired != test.paired || !v.Complete {
				t.Errorf("model %q, paired %t, complete %t; want %q, %t, true", v.Product, v.Paired, v.Complete, test.model, test.paired)
			}
		})
	}
}

// Of a pool that is being replaced, the newest slices count, and all of them.
func TestInventoryGenerations(t *testing.T) {
	old := sliceOn("n", "gpu.nvidia.com", dev("gpu-0"), dev("gpu-1"))
	young := sliceOn("n", "gpu.nvidia.com", dev("gpu-2"))
	young.Name, young.Generation, young.Slices = "young", 2, 2
	v := InventoryOf([]*Slice{old, young})
	if got := places(v); got != "gpu-2:-1/-1" || v.Complete {
		t.Errorf("the GPUs are %s, complete %t", got, v.Complete)
	}
	rest := sliceOn("n", "gpu.nvidia.com", dev("gpu-3"))
	rest.Name, rest.Generation, rest.Slices = "rest", 2, 2
	if v = InventoryOf([]*Slice{old, young, rest}); places(v) != "gpu-2:-1/-1 gpu-3:-1/-1" || !v.Complete {
		t.Errorf("the GPUs are %s, complete %t", places(v), v.Complete)
	}
}

func TestUnusable(t *testing.T) {
	tainted := dev("gpu-1", "productName=NVIDIA H800")
	tainted.Taints = []resourceapi.DeviceTaint{{Key: "k", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	whole, part := dev("gpu-4", "productName=NVIDIA H800"), dev("mig", "type=mig")
	whole.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: "gpu-4"}}
	part.ConsumesCounters = whole.ConsumesCounters
	shared := dev("gpu-5")
	shared.AllowMultipleAllocations = ptr.To(true)
	v := InventoryOf([]*Slice{sliceOn("n", "gpu.nvidia.com", dev("gpu-0", "productName=NVIDIA H800"), tainted, dev("gpu-2", "productName=NVIDIA A100"),
		dev("gpu-3", "productName=NVIDIA H800"), whole, part, shared)})
	if len(v.GPUs) != 5 {
		t.Fatalf("the GPUs are %s", places(v))
	}
	rule := func(d DeviceID) bool { return d.Name == "gpu-3" }
	if got := v.Unusable(rule, func(DeviceID) bool { return false }); got != 0b01110 {
		t.Errorf("%05b are unusable", got)
	}
	if got := v.Unusable(rule, func(d DeviceID) bool { return d.Name == "mig" }); got != 0b11110 {
		t.Errorf("%05b are unusable while a part is in use", got)
	}
}

func TestConstraint(t *testing.T) {
	v := InventoryOf([]*Slice{
		sliceOn("n", "gpu.nvidia.com", dev("gpu-0", "resource.kubernetes.io/pcieRoot=a", "model=x", "odd=1"), dev("gpu-1", "resource.kubernetes.io/pcieRoot=b", "model=x")),
		sliceOn("n", "dra.net", dev("eth0", "resource.kubernetes.io/pcieRoot=a"), dev("eth1", "resource.kubernetes.io/pcieRoot=b")),
	})
	for _, test := range []struct {
		attribute  string
		distinct   bool
		gpus, nics int
		aligned    bool
		want       bool
	}{
		{attribute: "gpu.nvidia.com/model", gpus: 2, want: true},
		{attribute: "gpu.nvidia.com/odd", gpus: 2},
		{attribute: "gpu.nvidia.com/odd", gpus: 1, want: true},
		{attribute: "resource.kubernetes.io/pcieRoot", gpus: 2},
		{attribute: "resource.kubernetes.io/pcieRoot", gpus: 2, distinct: true, want: true},
		{attribute: "resource.kubernetes.io/pcieRoot", gpus: 1, nics: 1},
		{attribute: "resource.kubernetes.io/pcieRoot", gpus: 1, nics: 1, aligned: true, want: true},
		{attribute: "resource.kubernetes.io/pcieRoot", gpus: 1, nics: 1, aligned: true, distinct: true},
		{attribute: "gpu.nvidia.com/model", gpus: 1, nics: 1, aligned: true},
	} {
		k := Constraint{Attribute: test.attribute, Distinct: test.distinct}
		if got := k.Holds(v, test.gpus, test.nics, test.aligned); got != test.want {
			t.Errorf("%+v: %t; want %t", test, got, test.want)
		}
	}
}

// The allocation has the configuration of the class for its requests, and that of
// the claim where it concerns them.
func TestAllocation(t *testing.T) {
	opaque := func(name string) resourceapi.DeviceConfiguration {
		return resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: name, Parameters: runtime.RawExtension{}}}
	}
	tolerations := []resourceapi.DeviceToleration{{Key: "k", Operator: resourceapi.DeviceTolerationOpExists}}
	c, err := DeviceClaimOf(&resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
		Requests: []resourceapi.DeviceRequest{
			{Name: "a", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu", Count: 2, Tolerations: tolerations}},
			{Name: "b", FirstAvailable: []resourceapi.DeviceSubRequest{{Name: "x", DeviceClassName: "big", Count: 1}, {Name: "y", DeviceClassName: "gpu", Count: 1}}},
		},
		Config: []resourceapi.DeviceClaimConfiguration{
			{DeviceConfiguration: opaque("all")}, {Requests: []string{"b/x"}, DeviceConfiguration: opaque("x")}, {Requests: []string{"b"}, DeviceConfiguration: opaque("b")},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	class := []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: opaque("class")}}
	a := c.Allocation("n", []Grant{
		{Need: &c.Requests[0].Any[0], Devices: []DeviceID{{"d", "p", "0"}, {"d", "p", "1"}}, Config: class},
		{Need: &c.Requests[1].Any[1], Devices: []DeviceID{{"d", "p", "2"}}, Config: class},
	})
	var got []string
	for _, r := range a.Devices.Results {
		got = append(got, fmt.Sprintf("%s:%s/%s/%s:%d", r.Request, r.Driver, r.Pool, r.Device, len(r.Tolerations)))
	}
	for _, k := range a.Devices.Config {
		got = append(got, fmt.Sprintf("%s:%s:%s", k.Source, k.Opaque.Driver, strings.Join(k.Requests, ",")))
	}
	if want := "a:d/p/0:1 a:d/p/1:1 b/y:d/p/2:0 FromClass:class:a,b/y FromClaim:all: FromClaim:b:b"; strings.Join(got, " ") != want {
		t.Errorf("the allocation is %s\nwant %s", strings.Join(got, " "), want)
	}
	if want := []DeviceID{{"d", "p", "0"}, {"d", "p", "1"}, {"d", "p", "2"}}; fmt.Sprint(AllocatedDevices(a)) != fmt.Sprint(want) {
		t.Errorf("it has %v", AllocatedDevices(a))
	}
}

func TestExtendedRequests(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	container := func(name, gpus string, policy *v1.ContainerRestartPolicy) v1.Container {
		c := v1.Container{Name: name, RestartPolicy: policy, Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("1")}}}
		if gpus != "" {
			c.Resources.Requests["nvidia.com/gpu"] = resource.MustParse(gpus)
		}
		return c
	}
	for _, test := range []struct {
		name       string
		init, main []v1.Container
		want       string
		wrong      string
	}{
		{name: "two containers and one without", main: []v1.Container{container("a", "1", nil), container("b", "", nil), container("c", "2", nil)},
			want: "container-0-request-1=1 container-2-request-1=2 a>container-0-request-1 c>container-2-request-1"},
		{name: "an init container uses what others have", init: []v1.Container{container("i", "2", nil), container("s", "1", &always)}, main: []v1.Container{container("a", "2", nil)},
			want: "container-1-request-1=1 container-2-request-1=2 s>container-1-request-1 a>container-2-request-1 i>container-1-request-1 i>container-2-request-1"},
		{name: "an init container with more", init: []v1.Container{container("i", "2", nil)}, main: []v1.Container{container("a", "1", nil)},
			wrong: "init container i requests 1 nvidia.com/gpu more"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &v1.Pod{Spec: v1.PodSpec{InitContainers: test.init, Containers: test.main}}
			requests, mappings, err := ExtendedRequests(p, "nvidia.com/gpu", "class")
			if test.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), test.wrong) {
					t.Fatalf("%v; want %s", err, test.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range requests {
				got = append(got, fmt.Sprintf("%s=%d", r.Name, r.Exactly.Count))
			}
			for _, k := range mappings {
				got = append(got, k.ContainerName+">"+k.RequestName)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("%s\nwant %s", strings.Join(got, " "), test.want)
			}
		})
	}
	two := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container("a", "1", nil)}}}
	if got := GPUResource(two); got != "nvidia.com/gpu" {
		t.Errorf("the resource is %q", got)
	}
	two.Spec.Containers[0].Resources.Requests["amd.com/gpu"] = resource.MustParse("1")
	if got := GPUResource(two); got != "" {
		t.Errorf("the resource of two is %q", got)
	}
}

// GPUs with the same PCIe root are behind one switch.
func TestPCIeRoots(t *testing.T) {
	const root = "resource.kubernetes.io/pcieRoot="
	v := InventoryOf([]*Slice{sliceOn("n", "gpu.nvidia.com", dev("gpu-0", root+"pci0000:10"), dev("gpu-1", root+"pci0000:20"), dev("gpu-2"), dev("gpu-3", root+"pci0000:10"))})
	var got []int8
	for _, d := range v.Layout {
		got = append(got, d.PCIe)
	}
	if want := []int8{0, 1, -1, 0}; !slices.Equal(got, want) {
		t.Errorf("switches %v, expected %v", got, want)
	}
}

// The annotation says where GPUs are. What is wrong with it is reported, and the usual positions count.
func TestPositions(t *testing.T) {
	for text, want := range map[string]string{
		"":                "0/0/-|0/1/-",
		"0/1/0/2|1/1/0/3": "0/1/0/2|1/1/0/3",
		"1/0/-|1/0/0":     "1/0/-|1/0/0",
		"0/1/0/2":         "0/0/-|0/1/- wrong",
		"0/1/0/2|0/1/0/x": "0/0/-|0/1/- wrong",
	} {
		n := &v1.Node{Status: v1.NodeStatus{Capacity: v1.ResourceList{v1alpha1.GPUResource: resource.MustParse("2")}}}
		if text != "" {
			n.Annotations = map[string]string{v1alpha1.GPUPositionsAnnotation: text}
		}
		devices, err := Positions(n)
		got := string(cluster.AppendDevices(nil, devices))
		if err != nil {
			got += " wrong"
		}
		if got != want {
			t.Errorf("%q: %s (%v), expected %s", text, got, err, want)
		}
	}
}
