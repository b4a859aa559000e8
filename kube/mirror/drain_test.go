package mirror

import (
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/queues"
	"github.com/muster-sched/muster/kube/settings"
	"github.com/muster-sched/muster/kube/stats"
	"github.com/muster-sched/muster/kube/translate"
)

// drained asks for a node to be emptied.
func drained(asked string) change[*v1.Node] {
	return func(n *v1.Node) {
		n.Spec.Unschedulable = true
		n.Annotations = map[string]string{v1alpha1.DrainAnnotation: asked}
	}
}

// of makes a pod one of an owner's, which need not be asked for the queue.
func of(apiVersion, kind, name string) change[*v1.Pod] {
	return func(p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(kind + name), Controller: new(true)}}
		p.Labels[v1alpha1.QueueLabel] = queues.Default
	}
}

// replica makes a pod one of a Deployment's.
func replica(p *v1.Pod) {
	of("apps/v1", "ReplicaSet", "serve-5d4f")(p)
	p.Labels["app"], p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = "serve", "5d4f"
}

// leave makes a pass and returns who is to leave, and how: >name for a pod that
// another replaces first, name for one that does not wait for that, !name for one
// that leaves with its gang, =name for one that is told that it stays, and !!name where the owner is suspended.
func (w *world) leave() []string {
	w.t.Helper()
	w.now = w.now.Add(time.Second)
	acts := w.m.decide(core.Time(w.now.UnixNano()))
	var out []string
	for _, x := range acts.Move {
		if x.Replace {
			out = append(out, ">"+x.Name)
		} else {
			out = append(out, x.Name)
		}
	}
	for _, e := range acts.Evict {
		out = append(out, "!"+e.Of.Object.Name)
	}
	for _, x := range acts.Stay {
		out = append(out, "="+x.Name)
	}
	for _, s := range acts.Suspend {
		for _, e := range s.Evict {
			out = append(out, "!!"+e.Of.Object.Name)
		}
	}
	if len(acts.Bind) > 0 {
		w.t.Errorf("%d pods are bound", len(acts.Bind))
	}
	w.m.acts.Drop()
	slices.Sort(out)
	return out
}

func isLocked(p *v1.Pod) { p.Annotations[v1alpha1.LockedAnnotation] = "true" }

// Who leaves a node that is drained, and how.
func TestDrained(t *testing.T) {
	here := func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{host: "n"} }
	there := func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{host: "o"} }
	mode := func(m v1.PersistentVolumeAccessMode) change[*v1.PersistentVolumeClaim] {
		return func(c *v1.PersistentVolumeClaim) { c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{m} }
	}
	onFailure := func(p *v1.Pod) { p.Annotations[v1alpha1.OnFailureAnnotation] = "replace" }
	for name, c := range map[string]struct {
		asked string
		make  func(w *world)
		want  []string
	}{
		"a Deployment's":        {"10m now", func(w *world) { w.pod("a", replica, here); w.pod("b", replica, there) }, []string{">a"}},
		"without patience":      {"0s", func(w *world) { w.pod("a", replica, here) }, []string{"a"}},
		"a ReplicaSet's own":    {"10m", func(w *world) { w.pod("a", of("apps/v1", "ReplicaSet", "r"), here) }, []string{"a"}},
		"a StatefulSet's":       {"10m", func(w *world) { w.pod("a", of("apps/v1", "StatefulSet", "s"), here) }, []string{"a"}},
		"a DaemonSet's":         {"10m", func(w *world) { w.pod("a", of("apps/v1", "DaemonSet", "d"), here) }, nil},
		"a made-up DaemonSet's": {"10m", func(w *world) { w.pod("a", of("example.com/v1", "DaemonSet", "d"), here) }, []string{"a"}},
		"a locked Deployment's": {"10m", func(w *world) { w.pod("a", replica, here, isLocked) }, []string{"=a"}},
		"a locked gang": {"10m", func(w *world) {
			w.pod("a", gang("g", 2), here, isLocked)
			w.pod("b", gang("g", 2), there, isLocked)
		}, []string{"=a"}},
		"nobody's":            {"10m", func(w *world) { w.pod("a", here) }, []string{"a"}},
		"another scheduler's": {"10m", func(w *world) { w.pod("a", foreign("n")) }, nil},
		"not understood":      {"soon", func(w *world) { w.pod("a", here) }, nil},
		"with a volume of its node": {"10m", func(w *world) {
			w.claim("data", "", mode(v1.ReadWriteOnce))
			w.volume("data", "")
			w.pod("a", replica, using("data"), here)
		}, []string{"a"}},
		"with a volume of all nodes": {"10m", func(w *world) {
			w.claim("data", "", mode(v1.ReadWriteMany))
			w.volume("data", "")
			w.pod("a", replica, using("data"), here)
		}, []string{">a"}},
		"with a claim of its own": {"10m", func(w *world) {
			w.pod("a", replica, here, func(p *v1.Pod) {
				p.Spec.NodeName = "n"
				p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "x", ResourceClaimTemplateName: new("x")}}
			})
		}, []string{">a"}},
		"with a claim of all": {"10m", func(w *world) {
			w.pod("a", replica, here, func(p *v1.Pod) {
				p.Spec.NodeName = "n"
				p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "x", ResourceClaimName: new("x")}}
			})
		}, []string{"a"}},
		"a gang": {"10m", func(w *world) { w.pod("a", gang("g", 2), here); w.pod("b", gang("g", 2), there) }, []string{"!a", "!b"}},
		"a gang with one to spare": {"10m", func(w *world) {
			w.pod("a", gang("g", 2), here)
			w.pod("b", gang("g", 2), there)
			w.pod("c", gang("g", 2), there)
		}, []string{"a"}},
		"a gang that replaces": {"10m", func(w *world) {
			w.pod("a", gang("g", 2), onFailure, here)
			w.pod("b", gang("g", 2), onFailure, there)
		}, []string{"a"}},
		"a Job": {"10m", func(w *world) { w.pod("a", of("batch/v1", "Job", "j"), here) }, []string{"!!a"}},
		"a Job in part": {"10m", func(w *world) {
			w.pod("a", of("batch/v1", "Job", "j"), here)
			w.pod("b", of("batch/v1", "Job", "j"), there)
		}, []string{"a"}},
		"a gang of a Job": {"10m", func(w *world) {
			w.pod("a", of("batch/v1", "Job", "j"), gang("g", 2), here)
			w.pod("b", of("batch/v1", "Job", "j"), gang("g", 2), there)
		}, []string{"!!a", "!!b"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node("n", "r1")
			w.node("o", "r1")
			c.make(w)
			w.settle()
			w.node("n", "", drained(c.asked))
			if got := w.leave(); !slices.Equal(got, c.want) {
				t.Errorf("got %v; want %v", got, c.want)
			}
			if got := w.leave(); len(got) > 0 {
				t.Errorf("%v are told again", got)
			}
		})
	}
}

// A node that is annotated and open is not drained; a requested drain
// goes on with each new instance, and a pod that could not be replaced is left alone until
// a user asks again.
func TestDrainedAgain(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r1")
	w.pod("a", replica)
	w.on("a>n")
	w.node("n", "", drained("10m first"), func(n *v1.Node) { n.Spec.Unschedulable = false })
	if got := w.leave(); len(got) > 0 {
		t.Errorf("%v leave an open node", got)
	}
	w.node("n", "", drained("10m first"))
	if got := w.leave(); !slices.Equal(got, []string{">a"}) {
		t.Fatalf("got %v", got)
	}
	uid := w.pods["default/a"].UID
	w.m.movedOff(uid, new("first"))
	if got := w.leave(); len(got) > 0 {
		t.Errorf("%v, which could not be replaced, is asked again", got)
	}
	// The next instance reads it on the pod.
	w.pod("a", func(p *v1.Pod) {
		p.Annotations[v1alpha1.MovingAnnotation] = (&translate.Move{Owner: p.OwnerReferences[0], Hash: "5d4f", Request: "first", Kept: v1alpha1.MovingNotReplaced}).String()
		p.Status.Conditions = []v1.PodCondition{{Type: v1alpha1.MovingCondition, Status: v1.ConditionFalse, Reason: v1alpha1.MovingNotReplaced}}
	})
	w.restart()
	if got := w.leave(); len(got) > 0 {
		t.Errorf("%v, which could not be replaced, is asked again by a new instance", got)
	}
	w.node("n", "", drained("10m second"))
	if got := w.leave(); !slices.Equal(got, []string{">a"}) {
		t.Errorf("after a new request: %v", got)
	}
	// One that came back because the node was opened is asked again in any case.
	w.m.movedOff(uid, nil)
	w.pod("a", func(p *v1.Pod) {
		p.Annotations[v1alpha1.MovingAnnotation] = (&translate.Move{Owner: p.OwnerReferences[0], Hash: "5d4f", Request: "second", Kept: v1alpha1.MovingCancelled}).String()
	})
	if got := w.leave(); !slices.Equal(got, []string{">a"}) {
		t.Errorf("after the node was closed again: %v", got)
	}
}

// A pod that moves is a job of its own, with the GPUs it has, and one of its owner's
// again when it was given back; a new instance goes on with what it finds.
func TestMovingPodInTheTables(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r1")
	w.node("o", "r1")
	w.pod("a", replica, asking(v1alpha1.GPUResource, "8"))
	w.pod("b", replica, asking(v1alpha1.GPUResource, "8"))
	w.on("a,b>n,o")
	node := w.pods["default/a"].Spec.NodeName
	w.node(node, "", drained("10m"))
	if got := w.leave(); !slices.Equal(got, []string{">a"}) {
		t.Fatalf("got %v", got)
	}
	owner := w.pods["default/a"].OwnerReferences
	w.pod("a", func(p *v1.Pod) {
		p.Annotations[v1alpha1.MovingAnnotation] = (&translate.Move{Owner: owner[0], Hash: "5d4f"}).String()
		p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = translate.MovingHash("5d4f")
	})
	w.inGroup("a", "pod/a", 16)
	w.pod("a", func(p *v1.Pod) { p.OwnerReferences = nil })
	w.inGroup("a", "pod/a", 16)
	w.pod("c", replica, asking(v1alpha1.GPUResource, "8"))
	w.waits("c", "Resources", "")
	if got := w.leave(); len(got) > 0 {
		t.Errorf("%v are told again", got)
	}
	w.restart()
	if got := w.leave(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("a new instance finds %v on the way", got)
	}
	// It was given back, and that has not been seen yet.
	w.m.movedOff(w.pods["default/a"].UID, new(""))
	if got := w.leave(); len(got) > 0 {
		t.Errorf("%v, which could not be replaced, is told again", got)
	}
	w.inGroup("a", "pod/a", 16)
	w.node("p", "r1")
	w.on("c>p")
	w.pod("a", func(p *v1.Pod) {
		p.OwnerReferences = owner
		p.Annotations[v1alpha1.MovingAnnotation] = (&translate.Move{Owner: owner[0], Hash: "5d4f", Kept: v1alpha1.MovingNotReplaced}).String()
		p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = "5d4f"
	})
	w.inGroup("a", "replicaset/serve-5d4f", 24)
}

// A pod whose group a label names stays in it while it moves: an instance that only saw
// that happen brings it to an end, and does nothing once it was given back.
func TestMovingPodOfAGroup(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r1")
	w.pod("a", replica, labelled(v1alpha1.GangLabel+"=g"))
	w.on("a>n")
	move := translate.Move{Owner: w.pods["default/a"].OwnerReferences[0], Hash: "5d4f"}
	w.pod("a", noted(v1alpha1.MovingAnnotation, move.String()))
	if got := w.leave(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("on the way is %v", got)
	}
	move.Kept = v1alpha1.MovingCancelled
	w.pod("a", noted(v1alpha1.MovingAnnotation, move.String()))
	w.m.movedOff(w.pods["default/a"].UID, nil)
	if got := w.leave(); len(got) > 0 {
		t.Errorf("%v is told again", got)
	}
}

// A pod that is taken out of its owner's hands while its binding has not been answered
// is a job of its own once it has.
func TestMovingPodThatIsBeingBound(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r1")
	w.pod("a", replica)
	w.now = w.now.Add(time.Second)
	for _, g := range w.m.decide(core.Time(w.now.UnixNano())).Ask {
		w.answer(g)
	}
	w.m.acts.Drop()
	b := w.m.decide(core.Time(w.now.UnixNano())).Bind[0]
	w.m.acts.Drop()
	owner := w.pods["default/a"].OwnerReferences[0]
	w.pod("a", func(p *v1.Pod) {
		p.Spec.NodeName = b.Node
		p.Annotations[v1alpha1.GPUsAnnotation] = b.Annotations[v1alpha1.GPUsAnnotation]
	}, noted(v1alpha1.MovingAnnotation, (&translate.Move{Owner: owner, Hash: "5d4f"}).String()))
	w.inGroup("a", "replicaset/serve-5d4f", 1)
	w.m.bound(b.Of.Object.UID, true, false)
	w.pod("a", labelled("seen=again"))
	w.inGroup("a", "pod/a", 1)
}

// Pods that share a device with a pod that is taken out of its owner's hands, or given
// back, are none the worse.
func TestMovingPodWithDevices(t *testing.T) {
	d := newDevices(t)
	d.published("a", "NVIDIA H800", 4)
	d.deviceClaim("x", []resourceapi.DeviceRequest{asksFor("x", "gpu.nvidia.com", 1)})
	d.pod("p", claiming("x"), of("apps/v1", "ReplicaSet", "r"))
	d.pod("hog", asking("cpu", "60"))
	d.on("p>a", "hog>a")
	d.pod("u", claiming("x"), asking("cpu", "10"))
	d.on("u>")
	d.pod("p", func(p *v1.Pod) { p.OwnerReferences = nil })
	d.on("u>", "p>a")
	d.gone("hog")
	d.on("u>a", "p>a")
}

// inGroup fails the test unless a pod is counted in a group, and so many GPUs are
// used in all.
func (w *world) inGroup(name, group string, used core.Milli) {
	w.t.Helper()
	w.settle()
	g := w.m.Pods[w.pods["default/"+name].UID].Group
	if got := g.ID.String(); got != group {
		w.t.Errorf("%s is in %s; want %s", name, got, group)
	}
	for _, q := range w.m.Stats().Queues {
		if got := q.Used[""] + q.Used[translate.UnknownModel]; q.Name == queues.Default && got != used*core.WholeGPU {
			w.t.Errorf("%d are used; want %d: %v", got, used, q.Used)
		}
	}
}

// restart has another mirror take in all there is.
func (w *world) restart() {
	old := w.m
	w.m = New(Config{Policy: *old.Policies.Policy(), Levels: old.Topologies.Levels(), Log: old.log})
	w.m.metrics, w.m.Now = stats.NewMetrics(), old.Now
	w.m.record = newTape(w.t)
	w.m.queuesListed(slices.Collect(maps.Values(old.Queues.Objects)))
	for name, class := range old.Priorities {
		inClasses(settings.Classes.Observe)(w.m, &settings.Class{ObjectMeta: metav1.ObjectMeta{Name: name}, Priority: class})
	}
	for name, labels := range old.Namespaces {
		w.m.namespaceSeen(&objects.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Labels: labels})
	}
	for _, g := range old.PodGroups {
		w.m.podGroupSeen(g)
	}
	for _, n := range w.nodes {
		w.m.nodeSeen(objects.TrimNode(n))
	}
	for _, p := range w.pods {
		w.m.podSeen(objects.TrimPod(p))
	}
	w.m.Ledgers.Replace(slices.Collect(maps.Values(old.Ledgers.Objects)))
	if err := w.m.rebuild(); err != nil {
		w.t.Fatal(err)
	}
}
