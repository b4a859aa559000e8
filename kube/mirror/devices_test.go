package mirror

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/devices"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// dra is a world whose nodes publish their GPUs by DRA.
type dra struct {
	*world
	claims  map[string]*resourceapi.ResourceClaim
	slices  map[string]*resourceapi.ResourceSlice
	version int
	// refuse says which claims cannot be written.
	refuse map[string]bool
}

func newDevices(t testing.TB) *dra {
	d := &dra{
		world: newWorld(t), claims: map[string]*resourceapi.ResourceClaim{}, slices: map[string]*resourceapi.ResourceSlice{}, refuse: map[string]bool{},
	}
	d.m.Devices.Serve()
	d.deviceClass("gpu.nvidia.com", `device.driver == "gpu.nvidia.com"`)
	d.deviceClass("nic", `device.driver == "dra.net"`)
	d.onBind = d.reserve
	d.onRelease = func(o translate.ClaimWrite) {
		c := d.claims[o.Name]
		c.Status.ReservedFor = slices.DeleteFunc(c.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID == o.Consumer.UID })
		if len(c.Status.ReservedFor) == 0 {
			c.Status.Allocation = nil
		}
		d.seen(c)
	}
	return d
}

func (d *dra) deviceClass(name, selector string) {
	inDevices((*devices.Index).ObserveClass)(d.m, devices.ClassOf(&resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{Selectors: celSelectors(selector)},
	}))
}

func celSelectors(list ...string) []resourceapi.DeviceSelector {
	var out []resourceapi.DeviceSelector
	for _, s := range list {
		out = append(out, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: s}})
	}
	return out
}

// published adds a node without GPUs of its own and a slice with so many.
func (d *dra) published(name, product string, gpus int, with ...change[*resourceapi.ResourceSlice]) {
	d.node(name, "", func(n *v1.Node) { delete(n.Status.Allocatable, v1alpha1.GPUResource) })
	d.slice(name, "gpu.nvidia.com", func(s *resourceapi.ResourceSlice) {
		for i := range gpus {
			s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{
				Name: fmt.Sprint("gpu-", i), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
					"type": {StringValue: ptr.To("gpu")}, "index": {IntValue: ptr.To(int64(i))}, "productName": {StringValue: &product},
					"resource.kubernetes.io/pcieRoot": {StringValue: ptr.To(fmt.Sprint("root", i))},
				},
			})
		}
		for _, f := range with {
			f(s)
		}
	})
}

// nics adds network interfaces to a node, one on the PCIe root of each GPU.
func (d *dra) nics(name string, count int) {
	d.slice(name, "dra.net", func(s *resourceapi.ResourceSlice) {
		for i := range count {
			s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{
				Name: fmt.Sprint("eth", count-1-i), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
					"dra.net/rdma":                    {BoolValue: ptr.To(true)},
					"resource.kubernetes.io/pcieRoot": {StringValue: ptr.To(fmt.Sprint("root", i))},
				},
			})
		}
	})
}

func (d *dra) slice(node, driver string, with ...change[*resourceapi.ResourceSlice]) {
	s := d.slices[node+driver]
	if s == nil {
		s = &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-" + driver}, Spec: resourceapi.ResourceSliceSpec{
			NodeName: &node, Driver: driver, Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		}}
		d.slices[node+driver] = s
	}
	for _, f := range with {
		f(s)
	}
	inDevices((*devices.Index).ObserveSlice)(d.m, translate.SliceOf(s))
}

// asksFor is a claim's request for devices of a class.
func asksFor(name, class string, count int64, selectors ...string) resourceapi.DeviceRequest {
	e := &resourceapi.ExactDeviceRequest{DeviceClassName: class, Count: count, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Selectors: celSelectors(selectors...)}
	if count == 0 {
		e.AllocationMode = resourceapi.DeviceAllocationModeAll
	}
	return resourceapi.DeviceRequest{Name: name, Exactly: e}
}

// deviceClaim adds a claim, or changes it.
func (d *dra) deviceClaim(name string, requests []resourceapi.DeviceRequest, with ...change[*resourceapi.ResourceClaim]) {
	c := d.claims[name]
	if c == nil {
		c = &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: d.uid()}}
		c.Spec.Devices.Requests = requests
		d.claims[name] = c
	}
	for _, f := range with {
		f(c)
	}
	d.seen(c)
}

// seen has the mirror see a claim as it is.
func (d *dra) seen(c *resourceapi.ResourceClaim) {
	d.version++
	c.ResourceVersion = fmt.Sprint(d.version)
	inDevices((*devices.Index).ObserveClaim)(d.m, devices.ClaimOf(c.DeepCopy()))
}

// claiming makes a pod ask by claims alone.
func claiming(names ...string) change[*v1.Pod] {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = amounts("cpu", "1")
		for _, name := range names {
			p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: name, ResourceClaimName: &name})
		}
	}
}

// asker adds a pod, and a claim of its name for some GPUs, 0 for all of a node.
func (d *dra) asker(name string, gpus int64, selectors ...string) {
	d.deviceClaim(name, []resourceapi.DeviceRequest{asksFor("x", "gpu.nvidia.com", gpus, selectors...)})
	d.pod(name, claiming(name))
}

// reserve writes the claims of a binding as the API would.
func (d *dra) reserve(b *tables.Binding) bool {
	for _, o := range b.Claims {
		c := d.claims[o.Name]
		if o.Wrong != "" || c == nil || c.UID != o.UID || d.refuse[o.Name] {
			return false
		}
		if c.Status.Allocation == nil {
			if o.Allocation == nil {
				d.t.Errorf("claim %s is to be used and has no devices", o.Name)
				return false
			}
			for _, id := range translate.AllocatedDevices(o.Allocation) {
				for _, other := range d.claims {
					if slices.Contains(translate.AllocatedDevices(other.Status.Allocation), id) {
						d.t.Errorf("device %v is given to claim %s and is %s's", id, o.Name, other.Name)
					}
				}
			}
			c.Status.Allocation = o.Allocation
		}
		c.Status.ReservedFor = append(c.Status.ReservedFor, o.Consumer)
		d.seen(c)
	}
	return true
}

// over ends a pod: its claims stay its until released.
func (d *dra) over(name string) { d.gone(name) }

// freed does what the controller does when the last consumer of a claim is gone.
func (d *dra) freed(name string) {
	c := d.claims[name]
	c.Status.ReservedFor, c.Status.Allocation = nil, nil
	d.seen(c)
}

// has returns the devices of a claim as request:pool/device.
func (d *dra) has(name string) string {
	var out []string
	if a := d.claims[name].Status.Allocation; a != nil {
		for _, r := range a.Devices.Results {
			out = append(out, r.Request+":"+r.Pool+"/"+r.Device)
		}
	}
	return strings.Join(out, " ")
}

func (d *dra) holds(want ...string) {
	d.t.Helper()
	for _, w := range want {
		name, devices, _ := strings.Cut(w, "=")
		if got := d.has(name); got != devices {
			d.t.Errorf("claim %s has %q; want %q", name, got, devices)
		}
	}
}

func TestClaim(t *testing.T) {
	d := newDevices(t)
	d.published("a", "NVIDIA H800", 4)
	d.deviceClaim("c", []resourceapi.DeviceRequest{asksFor("x", "gpu.nvidia.com", 1), asksFor("y", "gpu.nvidia.com", 2)})
	d.pod("p", claiming("c"))
	d.on("p>a")
	d.holds("c=x:a/gpu-0 y:a/gpu-1 y:a/gpu-2")
	c := d.claims["c"]
	if r := c.Status.ReservedFor; len(r) != 1 || r[0].Resource != "pods" || r[0].UID != d.pods["default/p"].UID {
		t.Errorf("the claim is reserved for %+v", r)
	}
	if s := c.Status.Allocation.NodeSelector.NodeSelectorTerms[0].MatchFields[0]; s.Key != "metadata.name" || s.Values[0] != "a" {
		t.Errorf("the devices can be reached from %+v", s)
	}
	if got := d.pods["default/p"].Annotations[v1alpha1.GPUsAnnotation]; got != "0,1,2" {
		t.Errorf("the annotation is %q", got)
	}
	if n := d.m.Nodes["a"]; n.Told.Model != "H800" {
		t.Errorf("the model is %q", n.Told.Model)
	}
}

// Devices are free when the claim lets go of them, not when the pod ends.
func TestClaimFreed(t *testing.T) {
	d := newDevices(t)
	d.published("a", "NVIDIA H800", 2)
	d.deviceClaim("one", []resourceapi.DeviceRequest{asksFor("x", "gpu.nvidia.com", 2)})
	d.deviceClaim("two", []resourceapi.DeviceRequest{asksFor("x", "gpu.nvidia.com", 1)})
	d.pod("p", claiming("one"))
	d.on("p>a")
	d.pod("q", claiming("two"))
	d.on("q>")
	d.over("p")
	d.on("q>")
	d.freed("one")
	d.on("q>a")
}

// What was allocated is found again when everything is built again, whatever the
// annotation says.
func TestClaimsRebuilt(t *testing.T) {
	d := newDevices(t)
	d.published("a", "NVIDIA H800", 4)
	for _, name := range []string{"one", "two"} {
		d.asker(name, 1)
	}
	d.on("one,two>a,a")
	d.over("one")
	d.freed("one")
	d.settle()
	delete(d.pods["default/two"].Annotations, v1alpha1.GPUsAnnotation)
	d.m.podSeen(objects.TrimPod(d.pods["default/two"]))
	if err := d.m.rebuild(); err != nil {
		t.Fatal(err)
	}
	d.settle()
	if p := d.m.Pods[d.pods["default/two"].UID]; p.Devices != 1<<1 {
		t.Errorf("the pod has the devices %b, and its claim %s", p.Devices, d.has("two"))
	}
	d.asker("rest", 3)
	d.on("rest>a")
}

func TestClaimSelectors(t *testing.T) {
	d := newDevices(t)
	d.published("a", "NVIDIA A100", 4)
	d.published("b", "NVIDIA H800", 4)
	d.node("plain", "") // eight GPUs of a device plugin
	d.asker("h", 4, `device.attributes["gpu.nvidia.com"].productName == "NVIDIA H800"`)
	d.on("h>b")
	d.deviceClaim("two", []resourceapi.DeviceRequest{{Name: "x", FirstAvailable: []resourceapi.DeviceSubRequest{
		{Name: "h", DeviceClassName: "gpu.nvidia.com", Count: 4, Selectors: celSelectors(`device.attributes["gpu.nvidia.com"].productName == "NVIDIA H800"`)},
		{Name: "a", DeviceClassName: "gpu.nvidia.com", Count: 4, Selectors: celSelectors(`device.attributes["gpu.nvidia.com"].productName == "NVIDIA A100"`)},
	}}})
	d.pod("two", claiming("two"))
	d.on("two>a")
	d.holds("two=x/a:a/gpu-0 x/a:a/gpu-1 x/a:a/gpu-2 x/a:a/gpu-3")
	d.asker("more", 1)
	d.waits("more", "Affinity", "8 fit, 0 of them where selectors")
	// And the other way round: the resource is not to be had from DRA.
	d.pod("nine", asking(v1alpha1.GPUResource, "8"))
	d.on("nine>plain")
}

func TestClaimAll(t *testing.T) {
	d := newDevices(t)
	d.published("a", "NVIDIA A100", 4)
	d.asker("all", 0)
	d.on("all>a")
	d.holds("all=x:a/gpu-0 x:a/gpu-1 x:a/gpu-2 x:a/gpu-3")
	d.published("b", "NVIDIA H800", 8)
	d.asker("again", 0)
	d.waits("again", tables.ReasonMisconfigured, "nodes have 4 or 8 such GPUs")
}

// Each GPU comes with the NIC on its PCIe root.
func TestClaimNICs(t *testing.T) {
	d := newDevices(t)
	d.published("a", "NVIDIA H800", 4)
	nic := func(n int64) []resourceapi.DeviceRequest {
		return []resourceapi.DeviceRequest{asksFor("gpu", "gpu.nvidia.com", n), asksFor("nic", "nic", n)}
	}
	d.deviceClaim("c", nic(1), func(c *resourceapi.ResourceClaim) {
		root := resourceapi.FullyQualifiedName("resource.kubernetes.io/pcieRoot")
		c.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &root}}
	})
	d.pod("p", claiming("c"))
	d.waits("p", tables.ReasonClaimPending, "request nic: no node publishes such a device")
	d.nics("a", 4)
	d.on("p>a")
	d.holds("c=gpu:a/gpu-0 nic:a/eth3")
	d.deviceClaim("three", nic(3))
	d.pod("q", claiming("three"))
	d.on("q>a")
	d.holds("three=gpu:a/gpu-1 gpu:a/gpu-2 gpu:a/gpu-3 nic:a/eth2 nic:a/eth1 nic:a/eth0")
	d.deviceClaim("alone", []resourceapi.DeviceRequest{asksFor("nic", "nic", 1)})
	d.pod("r", claiming("alone"))
	d.waits("r", tables.ReasonMisconfigured, "expected at most one network device per GPU")
}

// Tainted devices, and those that their driver does not publish any more, are not
// used; a pod that has them stays.
func TestDeviceHealth(t *testing.T) {
	d := newDevices(t)
	d.published("a", "NVIDIA H800", 3)
	d.slice("a", "gpu.nvidia.com", func(s *resourceapi.ResourceSlice) {
		s.Spec.Devices[0].Taints = []resourceapi.DeviceTaint{{Key: "bad", Effect: resourceapi.DeviceTaintEffectNoExecute}}
		s.Spec.Devices[1].Taints = []resourceapi.DeviceTaint{{Key: "odd", Effect: "None"}}
	})
	rule := &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: resourceapi.DeviceTaintRuleSpec{
		DeviceSelector: &resourceapi.DeviceTaintSelector{Pool: ptr.To("a"), Device: ptr.To("gpu-2")},
		Taint:          resourceapi.DeviceTaint{Key: "worn", Effect: resourceapi.DeviceTaintEffectNoSchedule},
	}}
	inDevices((*devices.Index).ObserveTaintRule)(d.m, translate.TaintRuleOf(rule))
	for _, name := range []string{"one", "two", "three"} {
		d.asker(name, 1)
	}
	d.on("one>a", "two>", "three>")
	d.holds("one=x:a/gpu-1")
	inDevices((*devices.Index).ForgetTaintRule)(d.m, translate.TaintRuleOf(rule))
	d.on("two>a", "three>")
	d.holds("two=x:a/gpu-2")
	// The driver restarts: for a while there is no slice.
	gone := d.slices["agpu.nvidia.com"]
	inDevices((*devices.Index).ForgetSlice)(d.m, translate.SliceOf(gone))
	d.on("one>a", "two>a", "three>")
	gone.Spec.Devices[0].Taints = nil
	inDevices((*devices.Index).ObserveSlice)(d.m, translate.SliceOf(gone))
	d.on("three>a")
	d.holds("three=x:a/gpu-0")
}

// Devices of another pod's claim are not used.
func TestClaimOfOthers(t *testing.T) {
	d := newDevices(t)
	d.published("a", "NVIDIA H800", 2)
	d.deviceClaim("theirs", nil, func(c *resourceapi.ResourceClaim) {
		c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
			{Request: "x", Driver: "gpu.nvidia.com", Pool: "a", Device: "gpu-0"},
		}}}
		c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "theirs", UID: "x"}}
	})
	d.deviceClaim("ours", []resourceapi.DeviceRequest{asksFor("x", "gpu.nvidia.com", 1)})
	d.pod("p", claiming("ours"))
	d.on("p>a")
	d.holds("ours=x:a/gpu-1")
}

// A claim that cannot be written is tried again; one that was written for nothing
// is given back first.
func TestClaimConflict(t *testing.T) {
	d := newDevices(t)
	d.published("a", "NVIDIA H800", 1)
	d.deviceClaim("c", []resourceapi.DeviceRequest{asksFor("x", "gpu.nvidia.com", 1)})
	d.refuse["c"] = true
	tries := 0
	d.onBind = func(b *tables.Binding) bool {
		if tries++; tries == 3 {
			d.refuse["c"] = false
		}
		return d.reserve(b)
	}
	d.pod("p", claiming("c"))
	for range 10 {
		d.settle()
		d.now = d.now.Add(time.Minute)
	}
	d.on("p>a")
	if tries != 3 {
		t.Errorf("it was tried %d times", tries)
	}

	d.over("p")
	d.freed("c")
	d.pods["default/q"] = nil
	delete(d.pods, "default/q")
	d.pod("q", claiming("c"), func(p *v1.Pod) {
		d.deviceClaim("c", nil, func(c *resourceapi.ResourceClaim) {
			c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
				{Request: "x", Driver: "gpu.nvidia.com", Pool: "a", Device: "gpu-0"},
			}}}
			c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "q", UID: p.UID}}
		})
	})
	d.on("q>a")
	if n := len(d.claims["c"].Status.ReservedFor); n != 1 {
		t.Errorf("the claim is reserved for %d pods", n)
	}
}

// A pod that goes while its claims are being written leaves its devices when that
// is over.
func TestClaimInFlight(t *testing.T) {
	d := newDevices(t)
	d.published("a", "NVIDIA H800", 1)
	for _, name := range []string{"one", "two"} {
		d.asker(name, 1)
	}
	acts := d.m.decide(d.m.Now)
	if len(acts.Bind) != 1 || acts.Bind[0].Of.Object.Name != "one" {
		t.Fatalf("%+v", acts)
	}
	uid := acts.Bind[0].Of.Object.UID
	d.m.acts.Drop()
	d.gone("one")
	d.on("two>")
	d.m.bound(uid, false, true)
	d.on("two>a")
}

func TestClaimTemplates(t *testing.T) {
	d := newDevices(t)
	d.published("a", "NVIDIA H800", 4)
	d.pod("p", func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = amounts("cpu", "1")
		p.Spec.ResourceClaims = []v1.PodResourceClaim{
			{Name: "gpus", ResourceClaimTemplateName: ptr.To("two")}, {Name: "nothing", ResourceClaimTemplateName: ptr.To("none")},
		}
	})
	d.waits("p", tables.ReasonClaimPending, "resource claim gpus does not exist yet")
	d.pod("p", func(p *v1.Pod) {
		p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpus", ResourceClaimName: ptr.To("p-gpus-x")}, {Name: "nothing"}}
	})
	d.waits("p", tables.ReasonClaimPending, "resource claim p-gpus-x does not exist yet")
	d.deviceClaim("p-gpus-x", []resourceapi.DeviceRequest{asksFor("x", "gpu.nvidia.com", 2)})
	d.waits("p", tables.ReasonClaimPending, "belongs to another pod")
	d.deviceClaim("p-gpus-x", nil, func(c *resourceapi.ResourceClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{UID: d.pods["default/p"].UID, Controller: ptr.To(true)}}
	})
	d.on("p>a")
	d.holds("p-gpus-x=x:a/gpu-0 x:a/gpu-1")
}

// Pods that share a claim go where its devices are, one after the other; a gang
// goes there at once.
func TestClaimShared(t *testing.T) {
	d := newDevices(t)
	d.published("a", "NVIDIA H800", 4)
	d.published("b", "NVIDIA H800", 4)
	d.deviceClaim("c", []resourceapi.DeviceRequest{asksFor("x", "gpu.nvidia.com", 3)})
	d.pod("p", claiming("c"))
	d.pod("q", claiming("c"))
	d.on("p,q>a,a")
	if n := len(d.claims["c"].Status.ReservedFor); n != 2 {
		t.Errorf("the claim is reserved for %d pods", n)
	}
	d.over("p")
	d.asker("more", 4)
	d.on("more>b")

	d.over("more")
	d.freed("more")
	d.deviceClaim("gang", []resourceapi.DeviceRequest{asksFor("x", "gpu.nvidia.com", 4)})
	group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "g", UID: "g"}}
	group.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: 3}
	group.Spec.ResourceClaims = []schedulingv1beta1.PodGroupResourceClaim{{Name: "gang", ResourceClaimName: ptr.To("gang")}}
	d.m.podGroupSeen(objects.TrimPodGroup(group))
	for _, name := range []string{"g1", "g2", "g3"} {
		d.pod(name, claiming("gang"), func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To("g")} })
	}
	d.on("g1,g2,g3>b,b,b")
	for _, r := range d.claims["gang"].Status.ReservedFor {
		if r.Resource != "podgroups" || r.UID != types.UID("g") {
			t.Errorf("the gang's claim is reserved for %+v", r)
		}
	}
}

func TestClaimRefused(t *testing.T) {
	half := resourceapi.CapacityRequirements{}
	for _, test := range []struct {
		name    string
		request resourceapi.DeviceRequest
		alter   func(*resourceapi.ResourceClaim)
		pod     change[*v1.Pod]
		reason  string
		text    string
	}{
		{name: "admin access", request: func() resourceapi.DeviceRequest {
			r := asksFor("x", "gpu.nvidia.com", 1)
			r.Exactly.AdminAccess = ptr.To(true)
			return r
		}(), text: "request x: adminAccess is not supported"},
		{name: "a part of a device", request: func() resourceapi.DeviceRequest {
			r := asksFor("x", "gpu.nvidia.com", 1)
			r.Exactly.Capacity = &half
			return r
		}(), text: "request x: parts of a device's capacity are not supported"},
		{name: "some devices or others", request: resourceapi.DeviceRequest{Name: "x", FirstAvailable: []resourceapi.DeviceSubRequest{
			{Name: "a", DeviceClassName: "gpu.nvidia.com", Count: 2, Selectors: celSelectors(`device.attributes["gpu.nvidia.com"].index > 1`)},
			{Name: "b", DeviceClassName: "gpu.nvidia.com", Count: 2},
		}}, text: "its selectors match some GPUs of a node but not all; with several alternatives, expected a count of 1"},
		{name: "no selector", request: asksFor("x", "gpu.nvidia.com", 1, `device.`), text: `request x: selector "device."`},
		{name: "no class", request: asksFor("x", "other", 1), reason: tables.ReasonClaimPending, text: "device class other does not exist"},
		{name: "no device", request: asksFor("x", "gpu.nvidia.com", 1, `device.driver == "tpu"`), reason: tables.ReasonClaimPending, text: "no node publishes such a device"},
		{name: "different counts", request: resourceapi.DeviceRequest{Name: "x", FirstAvailable: []resourceapi.DeviceSubRequest{
			{Name: "a", DeviceClassName: "gpu.nvidia.com", Count: 1}, {Name: "b", DeviceClassName: "gpu.nvidia.com", Count: 2},
		}}, text: "the alternatives in firstAvailable request different numbers"},
		{name: "constraint", request: asksFor("x", "gpu.nvidia.com", 2), alter: func(c *resourceapi.ResourceClaim) {
			root := resourceapi.FullyQualifiedName("resource.kubernetes.io/pcieRoot")
			c.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &root}}
		}, text: "the constraint on resource.kubernetes.io/pcieRoot is not supported"},
		{name: "both", request: asksFor("x", "gpu.nvidia.com", 2), pod: func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = amounts(v1alpha1.GPUResource, "1")
		}, text: "expected one of them"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDevices(t)
			d.published("a", "NVIDIA H800", 4)
			d.deviceClaim("c", []resourceapi.DeviceRequest{test.request}, func(c *resourceapi.ResourceClaim) {
				if test.alter != nil {
					test.alter(c)
				}
			})
			d.pod("p", claiming("c"), func(p *v1.Pod) {
				if test.pod != nil {
					test.pod(p)
				}
			})
			reason := test.reason
			if reason == "" {
				reason = tables.ReasonMisconfigured
			}
			d.waits("p", reason, test.text)
		})
	}
}

// A node that gets its devices after its pods, and one whose pool is being
// replaced.
func TestSlicesLate(t *testing.T) {
	d := newDevices(t)
	d.node("a", "", func(n *v1.Node) { delete(n.Status.Allocatable, v1alpha1.GPUResource) })
	d.pod("cpu", asking("cpu", "1"))
	d.on("cpu>a")
	d.deviceClaim("c", []resourceapi.DeviceRequest{asksFor("x", "gpu.nvidia.com", 1)})
	d.pod("p", claiming("c"))
	d.waits("p", tables.ReasonClaimPending, "no node publishes such a device")
	d.published("a", "NVIDIA H800", 2)
	d.on("p>a", "cpu>a")

	d.slice("a", "gpu.nvidia.com", func(s *resourceapi.ResourceSlice) {
		s.Spec.Pool.Generation, s.Spec.Pool.ResourceSliceCount = 2, 2
		s.Spec.Devices = s.Spec.Devices[:1]
	})
	d.deviceClaim("e", []resourceapi.DeviceRequest{asksFor("x", "gpu.nvidia.com", 1)})
	d.pod("q", claiming("e"))
	d.on("q>")
	second := d.slices["agpu.nvidia.com"].DeepCopy()
	second.Name = "a-2"
	second.Spec.Devices[0].Name = "gpu-1"
	second.Spec.Devices[0].Attributes["index"] = resourceapi.DeviceAttribute{IntValue: ptr.To[int64](1)}
	inDevices((*devices.Index).ObserveSlice)(d.m, translate.SliceOf(second))
	d.on("q>a", "p>a")
	d.holds("e=x:a/gpu-1")
}
