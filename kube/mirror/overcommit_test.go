package mirror

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// boundAt has a pod be on node n with devices since a second.
func boundAt(second int64, gpus string) change[*v1.Pod] {
	return func(p *v1.Pod) {
		p.Spec.NodeName, p.Annotations[v1alpha1.GPUsAnnotation] = "n", gpus
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.Unix(second, 0)}}
	}
}

// yielded decides once and returns the names of the pods that are told to leave for a
// GPU that was given twice, in order.
func (w *world) yielded() string {
	w.t.Helper()
	w.now = w.now.Add(time.Second)
	acts := w.m.decide(core.Time(w.now.UnixNano()))
	defer w.m.acts.Drop()
	var names []string
	for _, e := range acts.Evict {
		if e.Reason != causeOvercommitted {
			w.t.Errorf("%s leaves for %s: %s", e.Of.Object.Name, e.Reason, e.Message)
		}
		names = append(names, e.Of.Object.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// Of pods that were given the same GPU those yield that were bound later, whatever is
// said of them, with their gangs; found at the start.
func TestDoublesAtTheStart(t *testing.T) {
	gang := func(p *v1.Pod) {
		p.Labels[v1alpha1.GangLabel], p.Annotations[v1alpha1.MinMemberAnnotation] = "g", "2"
	}
	daemon := func(p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "d", Controller: new(true)}}
	}
	locked := func(p *v1.Pod) {
		p.Annotations[v1alpha1.LockedAnnotation], p.Annotations[v1alpha1.PreemptibleAnnotation] = "true", "false"
	}
	for _, c := range []struct {
		what string
		pods func(w *world)
		want string
	}{
		{"the later", func(w *world) { w.pod("a", boundAt(2, "0")); w.pod("b", boundAt(1, "0")) }, "a"},
		{"in the same second", func(w *world) { w.pod("a", boundAt(1, "0")); w.pod("b", boundAt(1, "0")) }, "b"},
		{"a locked one", func(w *world) { w.pod("a", boundAt(1, "0")); w.pod("b", boundAt(2, "0"), locked) }, "b"},
		{"all but one", func(w *world) {
			w.pod("a", boundAt(3, "0"))
			w.pod("b", boundAt(1, "0"))
			w.pod("c", boundAt(2, "0"))
		}, "a c"},
		{"a gang", func(w *world) {
			w.node("m", "r")
			w.pod("g0", gang, boundAt(2, "0"))
			w.pod("g1", gang, boundAt(2, "0"), func(p *v1.Pod) { p.Spec.NodeName = "m" })
			w.pod("a", boundAt(1, "0"))
		}, "g0 g1"},
		{"one of a DaemonSet", func(w *world) { w.pod("a", boundAt(1, "0")); w.pod("b", boundAt(2, "0"), daemon) }, "b"},
		{"others' stay", func(w *world) {
			w.pod("a", boundAt(1, "0"), func(p *v1.Pod) { p.Spec.SchedulerName = "other" })
			w.pod("b", boundAt(2, "0"), func(p *v1.Pod) { p.Spec.SchedulerName = "other" })
		}, ""},
		{"one that goes already", func(w *world) {
			w.pod("a", boundAt(1, "0"))
			w.pod("b", boundAt(2, "0"), func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: w.now} })
		}, ""},
		{"another GPU", func(w *world) { w.pod("a", boundAt(1, "0")); w.pod("b", boundAt(2, "1")) }, ""},
		{"fewer GPUs than before", func(w *world) { w.pod("a", boundAt(1, "0")); w.pod("b", boundAt(2, "3")) }, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newWorld(t)
			w.node("n", "r", func(n *v1.Node) {
				n.Status.Allocatable = amounts("cpu", "64", "memory", "512Gi", "pods", "110", v1alpha1.GPUResource, "1")
			})
			c.pods(w)
			if err := w.m.rebuild(); err != nil {
				t.Fatal(err)
			}
			if got := w.yielded(); got != c.want {
				t.Errorf("%q yield; want %q", got, c.want)
			}
			if got := w.yielded(); got != "" {
				t.Errorf("%q yield once more", got)
			}
		})
	}
}

// A binding of an instance that was stopped comes late, to a GPU that is another's by
// now: it yields also where its node has other GPUs that are free.
func TestLateBinding(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r")
	w.pod("mine")
	w.settle()
	gpu := w.pods["default/mine"].Annotations[v1alpha1.GPUsAnnotation]
	w.pod("late", func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "x"}} })
	w.settle()
	w.pod("late", boundAt(w.now.Unix()+10, gpu))
	if got := w.yielded(); got != "late" {
		t.Errorf("%q yield; want late", got)
	}
	// What a tenant writes on a pod that runs makes nobody yield.
	w.gone("late")
	w.pod("other")
	w.settle()
	w.pod("other", func(p *v1.Pod) { p.Annotations[v1alpha1.GPUsAnnotation] = gpu })
	if got := w.yielded(); got != "" {
		t.Errorf("%q yield", got)
	}
}

// Nobody makes another's pods yield by what he writes on pods of his own: at most the
// pod that came later, and says so, yields.
func TestNobodyMakesAnotherYield(t *testing.T) {
	atAll := func(p *v1.Pod) { p.Spec.NodeName, p.Annotations[v1alpha1.GPUsAnnotation] = "n", "0,1,2,3,4,5,6,7" }
	locked := func(p *v1.Pod) { p.Annotations[v1alpha1.LockedAnnotation] = "true" }
	others := func(p *v1.Pod) { p.Spec.SchedulerName = "default-scheduler" }
	for _, c := range []struct {
		what string
		with change[*v1.Pod]
		want string
	}{
		{"a pod with a node", func(*v1.Pod) {}, "cheat"},
		{"of another scheduler", others, ""},
		{"of another scheduler, that started long ago", func(p *v1.Pod) { boundAt(1, "")(p); atAll(p); others(p) }, ""},
		{"of a kind called DaemonSet", ownedBy("example.com/v1", "DaemonSet", "x"), "cheat"},
		{"of a DaemonSet", ownedBy("apps/v1", "DaemonSet", "x"), "cheat"},
	} {
		for _, how := range lives {
			t.Run(c.what+" "+how, func(t *testing.T) {
				w := newWorld(t)
				w.node("n", "r")
				names := []string{"v0", "v1", "v2", "v3"}
				for _, name := range names {
					w.pod(name, asking(v1alpha1.GPUResource, "2"), locked)
				}
				w.on("v0,v1,v2,v3>n,n,n,n")
				for _, name := range names {
					w.pod(name, boundAt(w.now.Unix(), w.pods["default/"+name].Annotations[v1alpha1.GPUsAnnotation]))
				}
				w.now = w.now.Add(time.Minute)
				w.pod("evil/cheat", asking(v1alpha1.GPUResource, "8"), atAll, c.with)
				switch how {
				case "rebuilt":
					if err := w.m.rebuild(); err != nil {
						t.Fatal(err)
					}
				case "restarted":
					w.restart()
				}
				if got := w.yielded(); got != c.want {
					t.Errorf("%q yield; want %q", got, c.want)
				}
			})
		}
	}
}

// A pod that names another's device makes that one yield neither to it nor with the
// help of a second pod, for which the node has no room, whichever the engine is told of
// first.
func TestNamingAnothersDevice(t *testing.T) {
	part := func(p *v1.Pod) {
		p.Annotations[v1alpha1.GPUFractionAnnotation], p.Annotations[v1alpha1.ShareAnnotation] = "0.9", "900"
		p.Annotations[v1alpha1.GPUsAnnotation] = "1"
	}
	names := func(gpu string) change[*v1.Pod] {
		return func(p *v1.Pod) { p.Spec.NodeName, p.Annotations[v1alpha1.GPUsAnnotation] = "n", gpu }
	}
	old := labelled(v1alpha1.GangLabel + "=g") // its group came before the victim
	for what, c := range map[string]struct{ first, edit, second change[*v1.Pod] }{
		"a GPU for another": {func(p *v1.Pod) { old(p); names("0")(p) }, names("0"), func(p *v1.Pod) { old(p); names("0")(p) }},
		"no GPU":            {func(p *v1.Pod) { old(p); names("0")(p) }, names("0"), func(p *v1.Pod) { old(p); names("")(p) }},
		"a part of a GPU":   {func(p *v1.Pod) { asking("cpu", "1")(p); p.Spec.NodeName = "n" }, part, foreign("n")},
	} {
		for _, how := range lives {
			t.Run(what+" "+how, func(t *testing.T) {
				w := newWorld(t)
				w.node("n", "r", func(n *v1.Node) {
					n.Status.Allocatable = amounts("cpu", "64", "memory", "512Gi", "pods", "110", v1alpha1.GPUResource, "2")
				})
				w.pod("before")
				w.on("before>n")
				w.pod("first", c.first)
				w.settle()
				w.gone("before")
				for _, name := range []string{"v0", "v1"} {
					w.now = w.now.Add(time.Minute)
					w.pod(name)
					w.settle()
					if p := w.pods["default/"+name]; p.Spec.NodeName != "" {
						w.pod(name, boundAt(w.now.Unix(), p.Annotations[v1alpha1.GPUsAnnotation]))
					}
				}
				w.now = w.now.Add(time.Minute)
				w.pod("first", c.edit)
				w.pod("second", c.second)
				switch how {
				case "rebuilt":
					if err := w.m.rebuild(); err != nil {
						t.Fatal(err)
					}
				case "restarted":
					w.restart()
				}
				if got := w.yielded(); strings.Contains(got, "v") {
					t.Errorf("%q yield", got)
				}
			})
		}
	}
}
