package mirror

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/tables"
)

// pass decides once, and carries out nothing but bindings. It returns the names of the pods that
// are to be evicted.
func (w *world) pass() (evicted []string) {
	w.t.Helper()
	w.now = w.now.Add(time.Second)
	acts := w.m.decide(core.Time(w.now.UnixNano()))
	for _, e := range acts.Evict {
		evicted = append(evicted, e.Of.Object.Name)
	}
	binds := slices.Clone(acts.Bind)
	w.m.acts.Drop()
	for i := range binds {
		w.bind(&binds[i])
	}
	return evicted
}

// withGPUs gives a node a number of GPUs.
func withGPUs(n string) change[*v1.Node] {
	return func(o *v1.Node) { maps.Copy(o.Status.Allocatable, amounts(v1alpha1.GPUResource, n)) }
}

// A pod of a gang leaves that the gang could spare, and then the others end. The pods that are to
// take their places start with enough of each other, not beside the pod that leaves.
func TestGangBesideLeavingPod(t *testing.T) {
	w := newWorld(t, func(p *core.Policy) { p.Preempt.MinRuntime = 0 })
	w.node("n", "r", withGPUs("3"))
	for _, name := range []string{"a", "b", "c"} {
		w.pod(name, gang("g", 2))
	}
	w.on("a>n", "b>n", "c>n")
	w.pod("urgent", func(p *v1.Pod) { p.Spec.Priority = new(int32(9)) })
	var left []string
	for range 3 {
		left = append(left, w.pass()...)
	}
	if len(left) != 1 {
		t.Fatalf("%v leave, expected one of the gang", left)
	}
	for _, name := range []string{"a", "b", "c"} {
		if name != left[0] {
			w.gone(name)
		}
	}
	w.pod("d", gang("g", 2))
	w.pass()
	w.pass()
	if at := w.pods["default/d"].Spec.NodeName; at != "" {
		t.Errorf("d starts alone on %s, beside %s, which leaves", at, left[0])
	}
	w.gone(left[0])
	w.on("d>")
	w.pod("e", gang("g", 2))
	w.on("d>n", "e>n")
}

// A scheduler that starts finds a gang of which one pod terminates and another one, which replaces
// a pod that is gone, waits: it does not start beside the one that terminates.
func TestGangBesideTerminatingPod(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r")
	terminating := func(p *v1.Pod) {
		p.Spec.NodeName, p.DeletionTimestamp = "n", &metav1.Time{Time: w.now}
		p.Annotations[v1alpha1.GPUsAnnotation] = "0"
	}
	w.pod("a", gang("g", 2), terminating)
	w.pod("b", gang("g", 2))
	w.on("b>")
	w.pod("c", gang("g", 2))
	w.on("b>", "c>")
	w.gone("a")
	w.on("b>n", "c>n")
}

// A gang goes on while the owner of one of its pods replaces it.
func TestGangGoesOnBesideTerminatingPod(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r")
	found := func(gpu string, with ...change[*v1.Pod]) change[*v1.Pod] {
		return func(p *v1.Pod) {
			p.Spec.NodeName, p.Annotations[v1alpha1.GPUsAnnotation] = "n", gpu
			for _, f := range with {
				f(p)
			}
		}
	}
	w.pod("a", gang("g", 2), found("0", func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: w.now} }))
	w.pod("b", gang("g", 2), found("1"))
	w.pod("c", gang("g", 2))
	w.on("c>n")
}

// A pod that is taken out of its owner's hands keeps its GPUs: a pod of another scheduler, for which
// the node has no GPU left, does not get them first.
func TestOtherOwnerSameDevices(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r", withGPUs("2"))
	w.pod("a", of("apps/v1", "ReplicaSet", "s"), asking(v1alpha1.GPUResource, "2"))
	w.on("a>n")
	w.pod("other", foreign("n"), asking(v1alpha1.GPUResource, "1"))
	w.settle()
	if p := w.m.Pods[w.pods["default/other"].UID]; p.Group != nil {
		t.Fatal("the engine has room for the other pod")
	}
	w.pod("a", func(p *v1.Pod) { p.OwnerReferences = nil })
	w.settle()
	a, other := w.m.Pods[w.pods["default/a"].UID], w.m.Pods[w.pods["default/other"].UID]
	if a.Group == nil || a.Devices != 0b11 || other.Group != nil {
		t.Errorf("a has GPUs %b of the node, expected 11; the other has %b", a.Devices, other.Devices)
	}
}

// A pod that is told to leave while its binding is in flight, and that the engine then refuses where
// it is, is evicted by the instance that decided so.
func TestEvictionOfRefusedPod(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r")
	w.pod("a")
	w.now = w.now.Add(time.Second)
	w.m.decide(core.Time(w.now.UnixNano()))
	w.m.acts.Drop()
	p := w.m.Pods[w.pods["default/a"].UID]
	p.Group.Shard, p.State, p.Cause = 3, tables.PodLeaving, tables.Eviction{Of: p, Reason: core.MemberLost.String()}
	w.m.outside(p, errors.New("the node is lost"))
	w.m.bound(p.Object.UID, true, false)
	if len(w.m.acts.Evict) != 1 {
		t.Fatalf("%d evictions, expected 1", len(w.m.acts.Evict))
	}
	if x := w.m.acts.Evict[0].Value(tables.Notice{Grace: 60}); x.Shard != 3 {
		t.Errorf("it is evicted for shard %d, expected 3", x.Shard)
	}
}
