package mirror

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/settings"
	"github.com/muster-sched/muster/kube/storage"
	"github.com/muster-sched/muster/kube/tables"
)

func policyObject(name, base string, mode v1alpha1.QueueingMode) *v1alpha1.SchedulingPolicy {
	p := &v1alpha1.SchedulingPolicy{Spec: v1alpha1.SchedulingPolicySpec{Base: base, Queueing: &v1alpha1.Queueing{Mode: &mode}}}
	p.Name = name
	return p
}

// A policy object comes into effect while jobs run, and a mistake in it changes
// nothing.
func TestPolicyObject(t *testing.T) {
	y := newToy(t)
	y.Policies = settings.NewPolicies(core.Policy{})
	y.Policies.Name, y.Policies.Builtins = "night", builtins
	y.node("a", 8)
	if err := y.rebuild(); err == nil || !strings.Contains(err.Error(), "night") {
		t.Fatalf("without any policy: got %v", err)
	}
	inPolicies((*settings.Policies).Replace)(y.Mirror, []*v1alpha1.SchedulingPolicy{policyObject("night", "default", "StrictFIFO"), policyObject("day", "default", "Backfill")})
	y.start()
	if got := y.Policies.Verdict("night").Reason + y.Policies.Verdict("day").Reason; got != "InUseAccepted" {
		t.Errorf("verdicts %s", got)
	}

	// Under StrictFIFO a job that does not fit holds back a later one.
	y.see(newTestPod("first", 6))
	if at := y.run(); at["first"] != "a" {
		t.Fatalf("got %v", at)
	}
	y.see(newTestPod("large", 4))
	y.run()
	small := newTestPod("small", 1)
	small.CreationTimestamp.Time = startOfTime.Add(1e9)
	y.now += core.Second
	y.see(small)
	if at := y.run(); len(at) > 0 {
		t.Fatalf("StrictFIFO: got %v", at)
	}

	// A wrong one keeps it so.
	wrong := policyObject("night", "nobody", "BestEffortFIFO")
	inPolicies((*settings.Policies).Observe)(y.Mirror, wrong)
	if at := y.run(); len(at) > 0 || y.Policies.Verdict("night").Reason != v1alpha1.PolicyInvalid {
		t.Fatalf("got %v, %v", at, y.Policies.Verdict("night"))
	}

	// A right one lets it pass; what runs stays where it is.
	inPolicies((*settings.Policies).Observe)(y.Mirror, policyObject("night", "default", "BestEffortFIFO"))
	at := y.run()
	if want := map[string]string{"small": "a"}; !maps.Equal(at, want) {
		t.Fatalf("got %v, want %v", at, want)
	}
	if devices := y.Pods["first"].Devices; devices&y.Pods["small"].Devices != 0 || y.Pods["first"].Slot < 0 {
		t.Errorf("first has devices %b, small %b", devices, y.Pods["small"].Devices)
	}

	// A deleted one goes on until there is a built-in of its name to go by.
	inPolicies((*settings.Policies).Forget)(y.Mirror, policyObject("night", "default", ""))
	if y.run(); y.Policies.Policy().Name != "night" {
		t.Errorf("decides by %q", y.Policies.Policy().Name)
	}
}

// A wrong policy at the start, with nothing right before it, leaves the default.
func TestWrongPolicyAtStart(t *testing.T) {
	y := newToy(t)
	y.Policies = settings.NewPolicies(core.Policy{})
	y.Policies.Name, y.Policies.Builtins = "night", builtins
	inPolicies((*settings.Policies).Replace)(y.Mirror, []*v1alpha1.SchedulingPolicy{policyObject("night", "nobody", "StrictFIFO")})
	y.start()
	if v := y.Policies.Verdict("night"); y.Policies.Policy().Name != "default" || v.Reason != v1alpha1.PolicyInvalid || !strings.Contains(v.Message, "uses default") {
		t.Errorf("decides by %q, %v", y.Policies.Policy().Name, v)
	}
}

// An engine that is built again while bindings are under way and a gang drains
// forgets neither.
func TestRebuildUnderWay(t *testing.T) {
	y := newToy(t)
	y.node("a", 8)
	y.start()
	low := newTestGang("low", 2, 4)
	y.see(low...)
	y.run()
	high := newTestPod("high", 8)
	high.Spec.Priority = new(int32)
	*high.Spec.Priority = 1000
	y.see(high)
	y.now += 3600 * core.Second
	if _, evict := y.pass(); len(evict) != 2 {
		t.Fatalf("%d evictions", len(evict))
	}
	y.outdated = true
	again := newTestPod("low-2", 4) // the owner makes a new pod at once
	again.Labels, again.Annotations = low[0].Labels, low[0].Annotations
	y.see(again)
	if at := y.run(); len(at) > 0 {
		t.Fatalf("before the old pods are gone: got %v", at)
	}
	if g := y.Pods["low-2"].Group; !g.Draining || len(g.Slots) != 2 || y.Pods["low-2"].Slot >= 0 {
		t.Errorf("the engine knows %d pods of the gang that drains", len(g.Slots))
	}
	for _, p := range low {
		y.podGone(p.UID)
	}
	bind, _ := y.pass()
	if len(bind) != 1 || bind[0].Of.Object.Name != "high" {
		t.Fatalf("got %v", bind)
	}
	y.outdated = true
	y.pass()
	y.bound("high", false, false) // the answer to a binding that an earlier engine decided
	y.now += 60 * core.Second
	if at := y.run(); at["high"] != "a" {
		t.Errorf("got %v", at)
	}
}

func topologyObject(name string, labels ...string) *v1alpha1.Topology {
	t := &v1alpha1.Topology{}
	t.Name = name
	for _, l := range labels {
		_, alias, _ := strings.Cut(l, "/")
		t.Spec.Levels = append(t.Spec.Levels, v1alpha1.TopologyLevel{NodeLabel: l, Alias: alias})
	}
	return t
}

func TestTopologyObject(t *testing.T) {
	y := newToy(t)
	for i := range 4 {
		y.node(fmt.Sprint("n", i), 8, "x/spine", "s", "x/leaf", fmt.Sprint("l", i/2), "topology.kubernetes.io/zone", "z",
			"fabric.topograph.run/tier-1", "up", "fabric.topograph.run/tier-0", fmt.Sprint("t", i/2))
	}
	y.start()
	if got := y.Topologies.Names(); got != "tier-1, tier-0, node, hbd" {
		t.Errorf("by labels: levels %s", got)
	}

	// The only object is in use, and a gang that needs one of its levels runs.
	gang := newTestGang("g", 2, 8)
	for _, p := range gang {
		p.Annotations[v1alpha1.RequiredTopologyAnnotation] = "leaf"
	}
	y.see(gang...)
	if at := y.run(); len(at) > 0 {
		t.Fatalf("a level that is not there: got %v", at)
	}
	inTopologies((*settings.Topologies).Observe)(y.Mirror, topologyObject("net", "x/spine", "x/leaf", "kubernetes.io/hostname"))
	at := y.run()
	if a, b := at["g-0"], at["g-1"]; a == "" || a[1]/2 != b[1]/2 {
		t.Errorf("got %v", at)
	}

	// A second one changes nothing, unless it is named.
	other := topologyObject("other", "x/leaf")
	other.CreationTimestamp.Time = startOfTime
	inTopologies((*settings.Topologies).Observe)(y.Mirror, other)
	if y.run(); y.Topologies.Names() != "spine, leaf, node, hbd" || y.Topologies.Verdict("other").Reason != v1alpha1.TopologyAccepted {
		t.Errorf("levels %s, %v", y.Topologies.Names(), y.Topologies.Verdict("other"))
	}
	y.Topologies.Name = "other"
	y.chooseLevels()
	if y.run(); y.Topologies.Names() != "leaf, node, hbd" || y.Topologies.Verdict("other").Reason != v1alpha1.TopologyInUse {
		t.Errorf("levels %s, %v", y.Topologies.Names(), y.Topologies.Verdict("other"))
	}
	if l, ok := y.Topologies.Level("hostname"); ok {
		t.Errorf("no alias of nodes: got %q", l)
	}
}

// The labels of nodes suggest levels: those that most nodes have, and others
// when nodes come that are labelled otherwise, but not at once.
func TestLevelsFromLabels(t *testing.T) {
	y := newToy(t)
	y.start()
	zone := []string{"topology.kubernetes.io/zone", "z"}
	y.node("a", 8, zone...)
	if y.run(); y.Topologies.Names() != "zone, node, hbd" {
		t.Fatalf("levels %s", y.Topologies.Names())
	}
	rack := append(zone, "cloud.provider.com/topology-block", "b", "cloud.provider.com/topology-rack", "r")
	for i := range 3 {
		y.node(fmt.Sprint("r", i), 8, rack...)
	}
	y.now += core.Second
	a := y.decide(y.now)
	wake := a.Wake
	y.acts.Drop()
	if y.Topologies.Names() != "zone, node, hbd" || wake != y.now-core.Second+60*core.Second {
		t.Fatalf("levels %s, wakes in %v", y.Topologies.Names(), wake-y.now)
	}
	y.now = wake
	if y.run(); y.Topologies.Names() != "block, rack, node, hbd" {
		t.Fatalf("levels %s", y.Topologies.Names())
	}
	y.nodeGone("r0")
	y.nodeGone("r1")
	y.nodeGone("r2")
	y.now += 60 * core.Second
	if y.run(); y.Topologies.Names() != "zone, node, hbd" {
		t.Errorf("levels %s", y.Topologies.Names())
	}
}

// What a pod takes that is resized in place counts at once, of ours and of others.
func TestResizedInPlace(t *testing.T) {
	w := newWorld(t)
	w.node("n", "1")
	w.pod("a", gang("g", 2), asking("cpu", "20", v1alpha1.GPUResource, "1"))
	w.pod("b", gang("g", 2), asking("cpu", "20", v1alpha1.GPUResource, "1"))
	w.pod("others", foreign("n"), asking("cpu", "20", v1alpha1.GPUResource, "1"))
	w.on("a>n", "b>n")
	w.pod("next", asking("cpu", "26"))
	w.on("next>")
	devices := w.m.Pods[w.pods["default/a"].UID].Devices
	w.pod("a", asking("cpu", "4", v1alpha1.GPUResource, "1"))
	w.on("next>")
	w.pod("others", asking("cpu", "10", v1alpha1.GPUResource, "1"))
	w.on("next>n")
	if got := w.m.Pods[w.pods["default/a"].UID].Devices; got != devices {
		t.Errorf("the pod had devices %b, and has %b", devices, got)
	}

	// Larger too: then there is too little for anybody.
	w.pod("small", asking("cpu", "3"))
	w.on("small>n")
	w.gone("small")
	w.pod("b", asking("cpu", "64", v1alpha1.GPUResource, "1"))
	w.pod("none", asking("cpu", "1"))
	w.on("none>")
	w.pod("b", asking("cpu", "1", v1alpha1.GPUResource, "1"))
	w.on("none>n")
}

// After a watch was lost all is listed again: what is not there any more is gone.
func TestListedAnew(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"old", "new"} {
		w.node(name, "r1")
		w.attaches(name, 2)
		w.pod(name, asking(v1alpha1.GPUResource, "8"))
		w.claim(name, name)
		w.class(name, true)
		w.m.podGroupSeen(&objects.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
		w.m.queueSeen(queueObject(name, ""))
	}
	w.on("old,new>new,old")
	w.m.nodesListed([]*objects.Node{objects.TrimNode(w.nodes["new"])})
	inStorage((*storage.Index).ReplaceLimits)(w.m, nil)
	w.m.podsListed([]*objects.Pod{objects.TrimPod(w.pods["default/new"])})
	inStorage((*storage.Index).ReplaceClaims)(w.m, []*storage.Claim{storage.ClaimOf(w.claims["default/new"])})
	inStorage((*storage.Index).ReplaceClasses)(w.m, nil)
	w.m.podGroupsListed([]*objects.PodGroup{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new"}}})
	w.m.queuesListed([]*v1alpha1.Queue{queueObject("new", "")})
	delete(w.pods, "default/old")
	w.settle()
	m := w.m
	if n := m.Nodes["old"]; n != nil && !n.Gone {
		t.Error("a node is still there")
	}
	for what, n := range map[string]int{"pods": len(m.Pods), "PodGroups": len(m.PodGroups), "queues": len(m.Queues.Objects)} {
		if n != 1 {
			t.Errorf("%s: %d; expected 1", what, n)
		}
	}
}

// A node that is full of others' pods takes no more, and one that is gone none, while
// its pods are still there.
func TestNodesThatTakeNoPods(t *testing.T) {
	w := newWorld(t)
	w.node("full", "r1", func(n *v1.Node) { n.Status.Allocatable[v1.ResourcePods] = resource.MustParse("1") })
	w.pod("agent", foreign("full"))
	w.pod("p")
	w.on("p>")
	w.node("n", "r1")
	w.on("p>n")
	w.m.nodeGone("n")
	w.pod("q")
	w.on("q>")
}

// Devices that a node does not offer any more are taken for those that are free.
func TestDevicesThatFail(t *testing.T) {
	y := newToy(t)
	n := y.node("a", 2)
	p := newTestPod("p", 1)
	p.Spec.NodeName, p.Annotations[v1alpha1.GPUsAnnotation] = "a", "1"
	y.see(p)
	y.start()
	y.run()
	n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	n.Status.Allocatable[v1alpha1.GPUResource] = resource.MustParse("1")
	y.nodeSeen(objects.TrimNode(n))
	y.run()
	if got := y.Nodes["a"].Sick; got != 1<<0 {
		t.Errorf("these are unhealthy: %b; expected the one that is free", got)
	}
}

// A job that waits in a queue that goes says so.
func TestQueueGoes(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "r1")
	w.m.queueSeen(queueObject("q", "", v1alpha1.Quota{Model: "*", Nominal: GPUs(16)}))
	inQueue := labelled(v1alpha1.QueueLabel + "=q")
	w.pod("blocker", inQueue, asking(v1alpha1.GPUResource, "8"))
	w.on("blocker>n1")
	w.pod("p", inQueue)
	w.waits("p", core.Resources.String(), "")
	w.m.queueGone("q")
	w.waits("p", tables.ReasonQueueNotFound, "q")
}

// A pod that runs may say again how long it takes, and when it last wrote a checkpoint.
func TestPodThatRunsSaysMore(t *testing.T) {
	y := newToy(t)
	y.node("a", 8)
	y.start()
	p := newTestPod("p", 1)
	y.see(p)
	y.run()
	p.Spec.NodeName, p.Annotations[v1alpha1.GPUsAnnotation] = "a", "0"
	y.see(p)
	rec := &tape{}
	y.record = rec
	p.Annotations[v1alpha1.WalltimeAnnotation] = "2h"
	y.see(p)
	p.Annotations[v1alpha1.LastCheckpointAnnotation] = startOfTime.Format(time.RFC3339)
	y.see(p)
	y.see(p)
	var got []core.Event
	for _, s := range rec.steps {
		got = append(got, s.event)
	}
	want := []core.Event{
		core.JobEstimated{Job: "default/pod/p", Estimate: 7200 * core.Second},
		core.Checkpointed{Job: "default/pod/p", At: core.Time(startOfTime.UnixNano())},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the engine is told %+v; expected %+v", got, want)
	}
}
