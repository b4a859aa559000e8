package devices

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// world is an index and the pods that are resolved with it.
type world struct {
	*testing.T
	*Index
	pods    map[types.UID]State
	version int
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, Index: New(), pods: map[types.UID]State{}}
	w.Serve()
	for name, driver := range map[string]string{"gpu": "gpu.nvidia.com", "nic": "dra.net"} {
		w.ObserveClass(ClassOf(&resourceapi.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{Selectors: cel(`device.driver == "` + driver + `"`)},
		}))
	}
	return w
}

func cel(list ...string) []resourceapi.DeviceSelector {
	var out []resourceapi.DeviceSelector
	for _, s := range list {
		out = append(out, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: s}})
	}
	return out
}

// slice is what a driver publishes of a node: so many GPUs, or network devices.
func slice(node, driver string, n int) *translate.Slice {
	s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + driver}, Spec: resourceapi.ResourceSliceSpec{
		NodeName: &node, Driver: driver, Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
	}}
	for i := range n {
		root := resourceapi.DeviceAttribute{StringValue: ptr.To(fmt.Sprint("root", i))}
		d := resourceapi.Device{Name: fmt.Sprint(driver[:3], i), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"resource.kubernetes.io/pcieRoot": root}}
		if driver == "dra.net" {
			d.Attributes["dra.net/rdma"] = resourceapi.DeviceAttribute{BoolValue: ptr.To(true)}
		} else {
			d.Attributes["type"] = resourceapi.DeviceAttribute{StringValue: ptr.To("gpu")}
			d.Attributes["uuid"] = resourceapi.DeviceAttribute{StringValue: ptr.To(fmt.Sprint(node, "-", i))}
			d.Attributes["index"] = resourceapi.DeviceAttribute{IntValue: ptr.To(int64(i))}
		}
		s.Spec.Devices = append(s.Spec.Devices, d)
	}
	return translate.SliceOf(s)
}

// asks is a claim's request for devices of a class, 0 for all.
func asks(class string, count int64, selectors ...string) resourceapi.DeviceRequest {
	e := &resourceapi.ExactDeviceRequest{DeviceClassName: class, Count: count, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Selectors: cel(selectors...)}
	if count == 0 {
		e.AllocationMode = resourceapi.DeviceAllocationModeAll
	}
	return resourceapi.DeviceRequest{Name: "x" + class, Exactly: e}
}

// claim has the index observe a claim; has are the devices of a node that it has, of
// which the first is for a pod.
func (w *world) claim(name string, requests []resourceapi.DeviceRequest, with ...func(*resourceapi.ResourceClaim)) Change {
	w.version++
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: fmt.Sprint(w.version)}}
	c.Spec.Devices.Requests = requests
	for _, f := range with {
		f(c)
	}
	return w.ObserveClaim(ClaimOf(c))
}

// allocated gives a claim devices of a node and reserves it for a pod.
func allocated(node, pod string, names ...string) func(*resourceapi.ResourceClaim) {
	return func(c *resourceapi.ResourceClaim) {
		c.Status.Allocation = &resourceapi.AllocationResult{}
		for _, d := range names {
			c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{Driver: "gpu.nvidia.com", Pool: node, Device: d})
		}
		if pod != "" {
			c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod, UID: types.UID(pod)}}
		}
	}
}

// pod is a pod that refers to claims.
func (w *world) pod(name string, claims ...string) *Pod {
	p := &Pod{State: State{UID: types.UID(name), Name: name}, Namespace: "ns"}
	for _, c := range claims {
		p.Claims = append(p.Claims, ClaimRef{Name: c, Source: c, Claim: c})
	}
	w.Refer(p.UID, p.Namespace, p.Claims)
	w.pods[p.UID] = p.State
	return p
}

// resolve resolves a pod, as it stands among the others.
func (w *world) resolve(p *Pod) (*Needs, Change) {
	w.pods[p.UID] = p.State
	return w.Resolve(p, func(uid types.UID) (State, bool) {
		s, there := w.pods[uid]
		return s, there
	})
}

// waits fails the test unless a pod cannot be placed for a reason that has the text.
func (w *world) waits(p *Pod, reason, text string) Change {
	w.Helper()
	n, c := w.resolve(p)
	if n == nil || n.Reason != reason || !strings.Contains(n.Detail, text) {
		w.Errorf("%s: %+v; expected %s and %q", p.Name, n, reason, text)
	}
	return c
}

// takes fails the test unless a pod can be placed and takes so many GPUs.
func (w *world) takes(p *Pod, gpus int) *Needs {
	w.Helper()
	n, _ := w.resolve(p)
	if n == nil || n.Reason != "" || n.Request.GPU != core.Milli(gpus)*core.WholeGPU {
		w.Errorf("%s: %+v; expected %d GPUs", p.Name, n, gpus)
	}
	return n
}

func (w *world) says(c Change, pods, nodes string) {
	w.Helper()
	var got []string
	for _, uid := range c.Pods {
		got = append(got, string(uid))
	}
	if p, n := strings.Join(got, " "), strings.Join(c.Nodes, " "); p != pods || n != nodes {
		w.Errorf("changed pods %q and nodes %q; expected %q and %q", p, n, pods, nodes)
	}
}

// A claim becomes a number of GPUs, and a label that the nodes have which have them.
func TestClaim(t *testing.T) {
	w := newWorld(t)
	p := w.pod("p", "c")
	w.waits(p, ReasonClaimPending, "resource claim c does not exist yet")
	w.says(w.claim("c", []resourceapi.DeviceRequest{asks("gpu", 2)}), "p", "")
	w.waits(p, ReasonClaimPending, "no node publishes such a device")
	c := w.ObserveSlice(slice("a", "gpu.nvidia.com", 4))
	if w.says(c, "", "a"); !c.Rebuild {
		t.Error("pods that ask for GPUs by a resource are to be kept off a")
	}
	if c, _ := w.Again(); len(c.Pods) != 1 {
		t.Errorf("%v are to be resolved again, expected p", c.Pods)
	}
	if c, _ := w.Again(); len(c.Pods) != 0 {
		t.Errorf("%v are to be resolved again, though nothing has changed", c.Pods)
	}
	n := w.takes(p, 2)
	node, plain := core.Node{Name: "a", Labels: map[string]string{}}, core.Node{Name: "b"}
	if w.Describe(&node); node.GPUs != 4 || !Described(&node) || !n.Request.Allows(node.Labels) || n.Request.Allows(plain.Labels) {
		t.Errorf("p is not for %+v", node)
	}
	granted, _ := w.Grant([]Start{{Needs: n, Node: "a", GPUs: 0b1010}})
	x := granted[0].Claims
	if len(x) != 1 || x[0].Wrong != "" || fmt.Sprint(translate.AllocatedDevices(x[0].Allocation)) != "[{gpu.nvidia.com a gpu1} {gpu.nvidia.com a gpu3}]" {
		t.Errorf("granted: %+v", x)
	}
	if got, ok := w.Has(n, "ns", "", "a"); !ok || !slices.Equal(got, []int{1, 3}) {
		t.Errorf("p has GPUs %v", got)
	}
	w.Refuse(n)
	if got, _ := w.Has(n, "ns", "", "a"); len(got) > 0 {
		t.Errorf("p has GPUs %v, which were not written", got)
	}
}

// Devices that a claim has, or is about to, are not to be used.
func TestDevicesThatAreTaken(t *testing.T) {
	w := newWorld(t)
	w.ObserveSlice(slice("a", "gpu.nvidia.com", 4))
	node := core.Node{Name: "a", Labels: map[string]string{}}
	if _, ok := w.Unusable(&node, 0); ok {
		t.Error("a is not described yet")
	}
	w.Describe(&node)
	unusable := func(used, want uint64) {
		t.Helper()
		if got, _ := w.Unusable(&node, used); got != want {
			t.Errorf("unusable are %b, expected %b", got, want)
		}
	}
	unusable(0, 0)
	w.says(w.claim("c", nil, allocated("a", "gone", "gpu1")), "", "a")
	unusable(0, 0b10)
	unusable(0b10, 0) // of a pod that is known
	w.Lift("q", "a", 0b100)
	if unusable(0b10, 0b100); !w.InFlight() {
		t.Error("the claims of q are being written")
	}
	w.says(w.Land("q"), "", "a")
	rule := &translate.TaintRule{Name: "r"}
	w.says(w.ObserveTaintRule(rule), "", "a") // it names no driver: it concerns all nodes
	w.says(w.ReplaceTaintRules(nil), "", "a")
	if w.says(w.ForgetTaintRule(rule), "", ""); w.InFlight() {
		t.Error("nothing is being written any more")
	}
	w.says(w.ForgetClaim(ClaimOf(&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}})), "", "a")
	unusable(0, 0)
	w.says(w.ForgetSlice(slice("a", "gpu.nvidia.com", 4)), "", "")
	if w.Publishes("a") {
		t.Error("a is forgotten with its last slice, for there is no such node")
	}
}

// While slices are being replaced, nothing is placed on a node.
func TestSlicesThatAreReplaced(t *testing.T) {
	w := newWorld(t)
	w.ObserveNode(Node{Name: "a"})
	w.ObserveSlice(slice("a", "gpu.nvidia.com", 4))
	node := core.Node{Name: "a", Labels: map[string]string{}}
	w.Describe(&node)
	half := slice("a", "gpu.nvidia.com", 2)
	half.Generation, half.Slices = 2, 2
	w.says(w.ObserveSlice(half), "", "a")
	if got, _ := w.Unusable(&node, 0); got != 0b1111 {
		t.Errorf("unusable are %b, expected all", got)
	}
	w.says(w.ReplaceSlices(nil), "", "a")
	if !w.Publishes("a") {
		t.Error("what a node had stays while it is there")
	}
	many := w.ObserveSlice(slice("b", "gpu.nvidia.com", 65))
	if len(many.Warnings) != 1 || many.Warnings[0].Node != "b" || !strings.Contains(many.Warnings[0].Why, "65 GPUs, expected at most 64") {
		t.Errorf("warned: %+v", many.Warnings)
	}
}

// One pod carries the devices of a claim. The others of its gang go where it is; other
// pods wait until it has them.
func TestSharedClaim(t *testing.T) {
	w := newWorld(t)
	w.ObserveSlice(slice("a", "gpu.nvidia.com", 4))
	w.claim("c", []resourceapi.DeviceRequest{asks("gpu", 1)})
	p, q, r := w.pod("p", "c"), w.pod("q", "c"), w.pod("r", "c")
	p.Job, q.Job = translate.Group{Name: "gang"}, translate.Group{Name: "gang"}
	p.Together, q.Together = true, true
	w.takes(p, 1)
	if n := w.takes(q, 0); !n.Together {
		t.Error("q shares the devices of p, and is not kept near it")
	}
	w.waits(r, ReasonClaimPending, "the devices of resource claim c must first be allocated to pod p")
	p.Stuck = true
	w.pods[p.UID] = p.State
	if _, c := w.resolve(r); len(c.Stale) != 1 || c.Stale[0] != "p" {
		t.Errorf("stale are %v; expected p, in the place of which r goes", c.Stale)
	}
	w.says(w.Unrefer("r", "ns", r.Claims), "p q", "")
	p.Stuck = false
	w.takes(p, 1)

	// Once the claim has devices, they are those of the pod that has a place.
	p.Placed, p.Node = true, "a"
	w.pods[p.UID] = p.State
	w.says(w.claim("c", []resourceapi.DeviceRequest{asks("gpu", 1)}, allocated("a", "p", "gpu2")), "p q", "a")
	if got, _ := w.Has(w.takes(p, 1), "ns", "", "a"); !slices.Equal(got, []int{2}) {
		t.Errorf("p has GPUs %v, expected 2", got)
	}
	w.takes(q, 0)

	// It leaves, and the claim stays reserved for it: others wait for that, then the
	// devices are given back.
	delete(w.pods, "p")
	w.Unrefer("p", "ns", p.Claims)
	w.waits(q, ReasonClaimPending, "resource claim c is still reserved for pods p")
	w.claim("c", []resourceapi.DeviceRequest{asks("gpu", 1)}, allocated("a", "", "gpu2"))
	c := w.waits(q, ReasonClaimPending, "the devices of resource claim c are being released")
	if len(c.Release) != 1 || c.Release[0].Name != "c" || !c.Release[0].Last {
		t.Errorf("to be given back: %+v", c.Release)
	}
}

func TestClaimsThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		request      resourceapi.DeviceRequest
		reason, text string
	}{
		{asks("none", 1), ReasonClaimPending, "device class none does not exist"},
		{asks("gpu", 1, "device.driver =="), ReasonMisconfigured, "request xgpu"},
		{asks("nic", 1, `device.attributes["resource.kubernetes.io"].pcieRoot == "root1"`), ReasonMisconfigured, "1 network devices and 0 GPUs are requested"},
		{asks("gpu", 0), ReasonMisconfigured, "nodes have 2 or 4 such GPUs"},
		{asks("nic", 1), ReasonMisconfigured, "1 network devices and 0 GPUs are requested"},
		{asks("gpu", 65), ReasonMisconfigured, "65 devices are requested, expected at most 64"},
	} {
		w := newWorld(t)
		w.ObserveSlice(slice("a", "gpu.nvidia.com", 4))
		w.ObserveSlice(slice("b", "gpu.nvidia.com", 2))
		w.ObserveSlice(slice("a", "dra.net", 4))
		p := w.pod("p", "c")
		w.claim("c", []resourceapi.DeviceRequest{c.request})
		w.waits(p, c.reason, c.text)
	}
	w := &world{T: t, Index: New(), pods: map[types.UID]State{}}
	w.waits(w.pod("p", "c"), ReasonMisconfigured, "this cluster does not serve resource.k8s.io/v1")
}

// Partitions of GPUs are refused in words, whether their driver makes them on request, from counters, or has made them; so
// are selectors of single partitions.
func TestPartitionsAreRefused(t *testing.T) {
	for _, counters := range map[string][]resourceapi.DeviceCounterConsumption{
		"made on request": {{CounterSet: "gpu-0-counter-set", Counters: map[string]resourceapi.Counter{"memory": {}}}}, "made before": nil,
	} {
		w := newWorld(t)
		w.ObserveSlice(slice("a", "gpu.nvidia.com", 4))
		node, text := "a", func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
		w.ObserveSlice(translate.SliceOf(&resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "migs"}, Spec: resourceapi.ResourceSliceSpec{
			NodeName: &node, Driver: "gpu.nvidia.com", Pool: resourceapi.ResourcePool{Name: "migs", Generation: 1, ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "gpu-0-mig-19-0-1", ConsumesCounters: counters, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"type": text("mig"), "profile": text("1g.5gb"), "parentUUID": text("GPU-0"),
			}}},
		}}))
		w.ObserveClass(ClassOf(&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "mig"}, Spec: resourceapi.DeviceClassSpec{
			Selectors: cel(`device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "mig"`),
		}}))
		for k, request := range []resourceapi.DeviceRequest{asks("mig", 1), asks("mig", 1, `device.attributes["gpu.nvidia.com"].profile == "1g.5gb"`)} {
			p := w.pod(fmt.Sprint("p", k), fmt.Sprint("c", k))
			w.claim(fmt.Sprint("c", k), []resourceapi.DeviceRequest{request})
			w.waits(p, ReasonMisconfigured, "request xmig: its selectors match partitions of GPUs (MIG), which Muster does not allocate")
		}
		p := w.pod("whole", "whole")
		w.claim("whole", []resourceapi.DeviceRequest{asks("gpu", 1, `device.attributes["gpu.nvidia.com"].type == "gpu"`)})
		w.takes(p, 1)
	}
}

// A template's claim belongs to the pod for which it was made.
func TestClaimOfATemplate(t *testing.T) {
	w := newWorld(t)
	w.ObserveSlice(slice("a", "gpu.nvidia.com", 4))
	p := w.pod("p", "c")
	p.Claims[0].Template = true
	w.claim("c", []resourceapi.DeviceRequest{asks("gpu", 1)})
	w.waits(p, ReasonClaimPending, "resource claim c belongs to another pod")
	w.claim("c", []resourceapi.DeviceRequest{asks("gpu", 1)}, func(c *resourceapi.ResourceClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "p", UID: "p", Controller: ptr.To(true)}}
	})
	w.takes(p, 1)
	p.PodGroup = &PodGroup{Name: "g", UID: "g", Claims: []ClaimRef{{Name: "c", Source: "c", Template: true}}}
	granted, _ := w.Grant([]Start{{Needs: w.takes(p, 1), Node: "a", GPUs: 1}})
	if by := granted[0].Claims[0].Consumer; by.Resource != "podgroups" || by.Name != "g" {
		t.Errorf("the claim is reserved for %+v, expected the PodGroup", by)
	}
}

// GPUs by a resource: where nodes have several kinds, pods go to those of their kind.
func TestResources(t *testing.T) {
	w := newWorld(t)
	ask := func(r v1.ResourceName) *Pod {
		return &Pod{State: State{UID: "p", Name: "p"}, Request: core.Request{GPU: core.WholeGPU}, Resource: r}
	}
	w.ObserveNode(Node{Name: "a", Resources: []v1.ResourceName{"nvidia.com/gpu"}, GPUs: 8})
	if _, byResource := w.Again(); !byResource {
		t.Error("a kind has come")
	}
	if n, _ := w.resolve(ask("nvidia.com/gpu")); n != nil {
		t.Errorf("all nodes have the same: %+v", n)
	}
	w.waits(ask("amd.com/gpu"), core.NoNode.String(), "no node has GPUs of resource amd.com/gpu")
	w.ObserveNode(Node{Name: "b", Resources: []v1.ResourceName{"amd.com/gpu"}, GPUs: 8})
	if n, _ := w.resolve(ask("nvidia.com/gpu")); n == nil || len(n.Request.Selector) != 1 || n.Request.Selector[0].Key != translate.ResourceLabel("nvidia.com/gpu") {
		t.Errorf("p goes to the nodes of its kind: %+v", n)
	}
	w.ForgetNode("b")
	if _, byResource := w.Again(); byResource || len(w.plugins.count) != 1 {
		t.Error("there are the kinds that there were")
	}
}

// Memory of a GPU: the part that is enough on each model that the pod may use.
func TestMemory(t *testing.T) {
	w := newWorld(t)
	ask := func(mib int64) *Pod {
		return &Pod{State: State{UID: "p", Name: "p"}, Memory: mib}
	}
	w.waits(ask(1000), core.NoNode.String(), "no node that the pod accepts has GPUs with that much memory")
	w.ObserveNode(Node{Name: "a", GPUs: 8, Model: "A100", Memory: 40_000})
	w.ObserveNode(Node{Name: "b", GPUs: 8, Model: "H100", Memory: 80_000})
	if c, _ := w.Again(); len(c.Pods) != 1 {
		t.Errorf("%v are to be resolved again, expected p", c.Pods)
	}
	check := func(p *Pod, gpu core.Milli, models ...string) {
		t.Helper()
		if n, _ := w.resolve(p); n == nil || n.Request.GPU != gpu || !slices.Equal(n.Request.Models, models) {
			t.Errorf("%+v; expected %d of %q", n, gpu, models)
		}
	}
	check(ask(10_000), 250, "A100", "H100")
	check(ask(60_000), 750, "H100")
	placed := ask(10_000)
	placed.Placed, placed.Node, placed.NodeMemory = true, "b", 80_000
	check(placed, 125)
	placed.Held = 500 // it was bound with more
	check(placed, 500)
	w.ForgetPod("p", "")
	w.ForgetNode("a")
	if c, _ := w.Again(); len(c.Pods) != 0 || len(w.plugins.pods) != 0 {
		t.Errorf("%v are to be resolved again, of which none is there", c.Pods)
	}
}

// What is older than what is known is passed over: what was written is taken in at once.
func TestClaimsThatComeLate(t *testing.T) {
	w := newWorld(t)
	w.pod("p", "c")
	at := func(version, uid string) *Claim {
		return ClaimOf(&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: types.UID(uid), ResourceVersion: version}})
	}
	w.says(w.ObserveWritten(at("5", "c")), "", "") // it is not known: it was deleted meanwhile
	w.says(w.ObserveClaim(at("7", "c")), "p", "")
	w.says(w.ObserveWritten(at("9", "c")), "p", "")
	w.says(w.ObserveClaim(at("8", "c")), "", "")
	w.says(w.ObserveClaim(at("8", "another")), "p", "")
	w.says(w.ReplaceClaims(nil), "p", "")
	if w.Claim("ns", "c") != nil || len(w.claims) != 1 {
		t.Error("p refers to the name still")
	}
	w.Unrefer("p", "ns", []ClaimRef{{Claim: "c"}})
	if len(w.claims) != 0 {
		t.Error("a claim is left")
	}
}
