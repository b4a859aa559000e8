package mirror

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/queues"
	"github.com/muster-sched/muster/kube/settings"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// What a user may try whose only rights are to make, label and annotate pods in a
// namespace.

// ownedBy gives a pod a controller.
func ownedBy(apiVersion, kind, name string) change[*v1.Pod] {
	return func(p *v1.Pod) {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: "owner", Controller: &yes}}
	}
}

// queue makes a queue with so many GPUs, for the namespaces of a team; for all when
// team is empty.
func (w *world) queue(name string, gpus int, team string) {
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}}
	q.Spec.Mode = "Isolated"
	q.Spec.Quota = []v1alpha1.Quota{{Model: "*", Nominal: v1alpha1.GPUs(gpus) * 1000}}
	if team != "" {
		q.Spec.NamespaceSelector = selecting("team=" + team)
	}
	w.m.queueSeen(q)
}

// inQueue has a pod name its queue.
func inQueue(name string) change[*v1.Pod] { return labelled(v1alpha1.QueueLabel + "=" + name) }

// Whoever made a pod, it is subject to the rules of its queue.
func TestOwnersKindIsNoPassport(t *testing.T) {
	for _, kind := range []string{"Foreign", "foreign", "FOREIGN", "PodGroup", "Gang", "Pod", "Application"} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			w.node("n", "r")
			w.queue("mine", 0, "")
			w.queue("theirs", 8, "them")
			made := ownedBy("example.com/v1", kind, "x")
			w.pod("full", made, inQueue("mine"))
			w.pod("forbidden", ownedBy("example.com/v1", kind, "y"), inQueue("theirs"))
			w.pod("none", ownedBy("example.com/v1", kind, "z"), inQueue("nonexistent"))
			w.waits("full", "ExceedsQuota", "mine")
			w.waits("forbidden", tables.ReasonQueueForbidden, "theirs")
			w.waits("none", tables.ReasonQueueNotFound, "nonexistent")
		})
	}
}

// A pod whose owner is called as a PodGroup or a pod would be is not of theirs.
func TestOwnersKindIsNoMembership(t *testing.T) {
	w := newWorld(t)
	w.pod("x")
	w.pod("a", ownedBy("v1", "Pod", "x"))
	w.pod("b", ownedBy("batch/v1", "Job", "x"))
	w.pod("c", ownedBy("batch.volcano.sh/v1alpha1", "Job", "x"))
	w.pod("d", ownedBy("example.com/v1", "Job/x", "y"))
	w.pod("e", ownedBy("batch/v1", "Job", "x/y"))
	jobs := map[string]translate.Group{}
	for _, p := range w.m.Pods {
		if id, ok := jobs[p.Group.Job]; ok {
			t.Errorf("%v and %v are both job %s", id, p.Group.ID, p.Group.Job)
		}
		jobs[p.Group.Job] = p.Group.ID
	}
	if len(jobs) != 6 {
		t.Errorf("six pods are the jobs %v", jobs)
	}
}

// ranked makes PriorityClasses.
func (w *world) ranked(classes ...*schedulingv1.PriorityClass) {
	for _, c := range classes {
		inClasses(settings.Classes.Observe)(w.m, settings.ClassOf(c))
	}
}

// ranks is a PriorityClass, polite one whose jobs preempt no others.
func ranks(name string, value int32) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
}

func polite(c *schedulingv1.PriorityClass) *schedulingv1.PriorityClass {
	never := v1.PreemptNever
	c.PreemptionPolicy = &never
	return c
}

// ofClass has the spec of a pod name its PriorityClass, as the API server fills it in.
func ofClass(c *schedulingv1.PriorityClass) change[*v1.Pod] {
	return func(p *v1.Pod) {
		p.Spec.PriorityClassName, p.Spec.Priority, p.Spec.PreemptionPolicy = c.Name, &c.Value, c.PreemptionPolicy
	}
}

// The classes of the system are not for jobs that a label raises, wherever the label
// comes from.
func TestNoSystemClassByLabel(t *testing.T) {
	for _, key := range []string{v1alpha1.PriorityClassAnnotation, "priorityClassName", "ray.io/priority-class-name"} {
		w := newWorld(t)
		w.node("n", "r")
		w.ranked(ranks("system-node-critical", 2_000_001_000), ranks("high", 9))
		whole := asking(v1alpha1.GPUResource, "8")
		w.pod("theirs", whole)
		w.on("theirs>n")
		w.pod("mine", whole, labelled(key+"=system-node-critical"))
		w.waits("mine", tables.ReasonPriorityClassForbidden, "kube-system")
		w.on("theirs>n")
		w.gone("mine")
		w.pod("kube-system/agent", whole, labelled(key+"=system-node-critical"))
		w.settle()
		if p := w.pods["kube-system/agent"]; p.Spec.NodeName != "n" {
			t.Error("the system's own does not get its room")
		}
	}
}

// A pod that runs and is given a class of the system keeps its own priority, when the
// engine is built again too.
func TestNoSystemClassForWhatRuns(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r")
	w.ranked(ranks("system-node-critical", 2_000_001_000), ranks("high", 9))
	whole := asking(v1alpha1.GPUResource, "8")
	w.pod("mine", whole)
	w.on("mine>n")
	w.pod("mine", labelled(v1alpha1.PriorityClassAnnotation+"=system-node-critical"))
	if err := w.m.rebuild(); err != nil {
		t.Fatal(err)
	}
	w.pod("theirs", whole, ofClass(ranks("high", 9)))
	w.now = w.now.Add(time.Hour)
	w.settle()
	if w.pods["default/mine"] != nil || w.pods["default/theirs"].Spec.NodeName != "n" {
		t.Error("a label made it the strongest of all")
	}
}

// A queue may say which classes its jobs have, wherever they name them.
func TestClassesOfAQueue(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r")
	low, high := ranks("low", 1), ranks("high", 9)
	w.ranked(low, high)
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
	q.Spec.PriorityClasses = []string{"low"}
	w.m.queueSeen(q)
	mine := inQueue("q")
	w.pod("label", mine, labelled(v1alpha1.PriorityClassAnnotation+"=high"))
	w.pod("spec", mine, ofClass(high))
	w.pod("allowed", mine, ofClass(low))
	w.pod("none", mine)
	w.pod("elsewhere", ofClass(high))
	w.waits("label", tables.ReasonPriorityClassForbidden, "queue q does not accept PriorityClass high: expected one of low, or no class")
	w.waits("spec", tables.ReasonPriorityClassForbidden, "expected one of low")
	w.on("allowed>n", "none>n", "elsewhere>n")
	more := q.DeepCopy()
	more.Spec.PriorityClasses = []string{"low", "high"}
	w.m.queueSeen(more)
	w.on("label>n", "spec>n")
}

// A pod that its author put on a node takes no class past its queue for the pods of its
// job that wait, however the class and the queue are named.
func TestFootInTheDoor(t *testing.T) {
	low, high := ranks("low", 1), ranks("high", 9)
	for what, c := range map[string]struct {
		with   change[*v1.Pod]
		reason string
	}{
		"class by label": {labelled(v1alpha1.QueueLabel+"=q", v1alpha1.PriorityClassAnnotation+"=high"), tables.ReasonPriorityClassForbidden},
		"class by spec":  {func(p *v1.Pod) { inQueue("q")(p); ofClass(high)(p) }, tables.ReasonPriorityClassForbidden},
		"both": {func(p *v1.Pod) {
			labelled(v1alpha1.QueueLabel+"=q", v1alpha1.PriorityClassAnnotation+"=none")(p)
			ofClass(high)(p)
		}, tables.ReasonPriorityClassNotFound},
		"queue not there": {func(p *v1.Pod) { inQueue("nonexistent")(p); ofClass(high)(p) }, tables.ReasonQueueNotFound},
	} {
		for _, how := range lives {
			t.Run(what+" "+how, func(t *testing.T) {
				w := newWorld(t)
				w.node("n", "r")
				w.ranked(low, high)
				w.m.namespaceSeen(&objects.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Labels: map[string]string{v1alpha1.QueueLabel: "q"}})
				q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
				q.Spec.PriorityClasses = []string{"low"}
				w.m.queueSeen(q)
				whole := asking(v1alpha1.GPUResource, "8")
				w.pod("victim", whole, inQueue("q"), ofClass(low))
				w.on("victim>n")
				w.now = w.now.Add(time.Hour)
				mine := func(p *v1.Pod) { p.Labels[v1alpha1.GangLabel] = "g"; c.with(p) }
				w.pod("foot", mine, asking("cpu", "1"), func(p *v1.Pod) { p.Spec.NodeName = "n" })
				w.pod("big", mine, whole)
				w.rebuilt(how)
				w.now = w.now.Add(time.Hour)
				if w.settle(); w.pods["default/victim"] == nil {
					t.Fatal("it evicts one of an allowed class")
				}
				w.on("victim>n", "big>")
				if len(w.told("foot", c.reason)) == 0 {
					t.Errorf("people are told %v", w.warned)
				}
				w.gone("victim")
				w.on("big>n")
			})
		}
	}
}

// preemptionPolicy: Never is heeded, wherever it is said.
func TestNeverPreempts(t *testing.T) {
	whole := asking(v1alpha1.GPUResource, "8")
	for name, with := range map[string]struct {
		class *schedulingv1.PriorityClass
		says  change[*v1.Pod]
	}{
		"pod":        {polite(ranks("high", 9)), ofClass(polite(ranks("high", 9)))},
		"annotation": {polite(ranks("high", 9)), labelled(v1alpha1.PriorityClassAnnotation + "=high")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node("n", "r")
			w.ranked(with.class)
			w.pod("low", whole)
			w.on("low>n")
			w.now = w.now.Add(time.Hour)
			w.pod("high", whole, with.says)
			w.on("low>n", "high>")
			w.gone("low")
			w.on("high>n")
		})
	}
}

// record lets happen what the mirror asks to be written into the status of pods.
func (w *world) record(list []act.Record) {
	for _, x := range list {
		p := w.pods[x.Namespace+"/"+x.Name]
		p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1alpha1.AdmittedCondition })
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1alpha1.AdmittedCondition, Status: v1.ConditionTrue, Message: x.Said})
		w.m.recorded(x.UID)
		w.m.podSeen(objects.TrimPod(p))
	}
}

// rebuilt has the engine built again, by this instance or another.
func (w *world) rebuilt(how string) {
	w.settle()
	switch how {
	case "rebuilt":
		if err := w.m.rebuild(); err != nil {
			w.t.Fatal(err)
		}
	case "restarted":
		w.restart()
	}
}

var lives = []string{"at once", "rebuilt", "restarted"}

// used is how many GPUs the books have as used on a node, those that no pod may have
// now included.
func (w *world) used(node string) int {
	w.settle()
	c := w.m.CountNode(w.m.Nodes[node])
	return c.GPUs - int(c.Free/core.WholeGPU)
}

// told returns the events of a reason on a pod.
func (w *world) told(name, reason string) (out []string) {
	for _, x := range w.warned {
		if x.Name == name && x.Reason == reason {
			out = append(out, x.Message)
		}
	}
	return out
}

// What a pod was given stays its own in the books, whatever is written on it then.
func TestEditsFreeNoGPUs(t *testing.T) {
	part := func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = amounts("cpu", "1")
		p.Annotations[v1alpha1.GPUFractionAnnotation] = "0.9"
	}
	whole := asking(v1alpha1.GPUResource, "8")
	edit := func(key, value string) change[*v1.Pod] {
		return func(p *v1.Pod) {
			if p.Annotations[key] = value; value == "" {
				delete(p.Annotations, key)
			}
		}
	}
	for name, test := range map[string]struct {
		pod   change[*v1.Pod]
		edits []change[*v1.Pod]
		used  int
	}{
		"fewer devices":     {whole, []change[*v1.Pod]{edit(v1alpha1.GPUsAnnotation, "0")}, 8},
		"no devices":        {whole, []change[*v1.Pod]{edit(v1alpha1.GPUsAnnotation, "")}, 8},
		"malformed devices": {whole, []change[*v1.Pod]{edit(v1alpha1.GPUsAnnotation, "none")}, 8},
		"a part":            {whole, []change[*v1.Pod]{edit(v1alpha1.GPUFractionAnnotation, "0.1"), edit(v1alpha1.ShareAnnotation, "1")}, 8},
		"smaller part":      {part, []change[*v1.Pod]{edit(v1alpha1.GPUFractionAnnotation, "0.1"), edit(v1alpha1.ShareAnnotation, "100")}, 1},
		"no part":           {part, []change[*v1.Pod]{edit(v1alpha1.GPUFractionAnnotation, ""), edit(v1alpha1.ShareAnnotation, ""), edit(v1alpha1.GPUsAnnotation, "")}, 1},
		"malformed part":    {part, []change[*v1.Pod]{edit(v1alpha1.GPUFractionAnnotation, "lots"), edit(v1alpha1.ShareAnnotation, "-")}, 1},
		"memory, no part":   {part, []change[*v1.Pod]{edit(v1alpha1.GPUFractionAnnotation, ""), edit(v1alpha1.GPUMemoryAnnotation, "1")}, 1},
	} {
		for _, how := range lives {
			t.Run(name+" "+how, func(t *testing.T) {
				w := newWorld(t)
				w.node("n", "r", func(n *v1.Node) { n.Labels[v1alpha1.MemoryLabel] = "80000" })
				w.pod("mine", test.pod)
				w.on("mine>n")
				for _, e := range test.edits {
					w.pod("mine", e)
				}
				w.rebuilt(how)
				if got := w.used("n"); got != test.used {
					t.Errorf("%d GPUs are used; it has %d", got, test.used)
				}
				w.pod("theirs", asking(v1alpha1.GPUResource, fmt.Sprint(9-test.used)))
				w.on("theirs>")
				if len(w.told("mine", tables.ChangeIgnored)) == 0 {
					t.Errorf("people are told %v", w.warned)
				}
			})
		}
	}
}

// A pod that its author put on a node has there at least what its spec asks for,
// whatever else it says; what no pod can have is nobody's.
func TestNodeNameFreesNoGPUs(t *testing.T) {
	for key, values := range map[string][]string{
		v1alpha1.GPUsAnnotation: {"", "0", "none", "0,0", "63", "0,1,2,3,4,5,6,7", "-1"}, v1alpha1.GPUFractionAnnotation: {"0.1", "x"},
		v1alpha1.ShareAnnotation: {"1", "x"}, v1alpha1.KindAnnotation: {"x"}, v1alpha1.GPUModelsAnnotation: {"x", "|"},
		v1alpha1.GPUMemoryAnnotation: {"1", "x"}, v1alpha1.MinMemberAnnotation: {"x", "7", "a=0"}, v1alpha1.RequiredTopologyAnnotation: {"x"},
		v1alpha1.MinRuntimeAnnotation: {"100y", "x"}, v1alpha1.QueueLabel: {"nonexistent", queues.Others}, v1alpha1.GangLabel: {"other"},
		v1alpha1.MovingAnnotation: {"x", `{"owner": {"name": "x"}, "hash": "h"}`}, v1alpha1.PriorityClassAnnotation: {"x"},
	} {
		for _, value := range values {
			for _, how := range lives {
				t.Run(fmt.Sprintf("%s=%s %s", key, value, how), func(t *testing.T) {
					w := newWorld(t)
					w.node("n", "r")
					mine := func(p *v1.Pod) {
						p.Spec.NodeName = "n"
						p.Annotations[key] = value
						p.Spec.Containers[0].Resources.Requests = amounts(v1alpha1.GPUResource, "5")
					}
					w.pod("mine", mine)
					w.rebuilt(how)
					w.pod("theirs", asking(v1alpha1.GPUResource, "4"))
					w.on("theirs>")
					if got := w.used("n"); got != 5 {
						t.Errorf("%d GPUs are used; it has 5", got)
					}
					w.pod("small", asking(v1alpha1.GPUResource, "3"))
					w.on("small>n")
					// There is no room for another; when there is, it is in the books again.
					w.pod("more", mine)
					w.rebuilt(how)
					if got := w.used("n"); got != 8 {
						t.Errorf("%d GPUs are used; all are", got)
					}
					if len(w.told("more", tables.GPUsOvercommitted)) == 0 {
						t.Errorf("people are told %v", w.warned)
					}
					w.gone("mine")
					w.pod("one", asking(v1alpha1.GPUResource, "1"))
					w.on("one>")
					w.gone("more")
					w.on("one>n")
				})
			}
		}
	}
}

// What runs stays charged to the queue that it was admitted to, with the priority that
// it had.
func TestRelabellingMovesNoCharge(t *testing.T) {
	for name, edit := range map[string]change[*v1.Pod]{
		"queue":   inQueue("theirs"),
		"gang":    labelled(v1alpha1.GangLabel+"=g", v1alpha1.QueueLabel+"=theirs"),
		"other's": labelled("kai.scheduler/queue=theirs", "kueue.x-k8s.io/queue-name=theirs"),
		"moving": func(p *v1.Pod) {
			inQueue("theirs")(p)
			p.Annotations[v1alpha1.MovingAnnotation] = `{"owner": {"name": "x"}, "hash": "h"}`
		},
		"owner":    func(p *v1.Pod) { inQueue("theirs")(p); ownedBy("apps/v1", "ReplicaSet", "x")(p) },
		"locked":   func(p *v1.Pod) { inQueue("theirs")(p); p.Annotations[v1alpha1.LockedAnnotation] = "true" },
		"none":     func(p *v1.Pod) { delete(p.Labels, v1alpha1.QueueLabel) },
		"unknown":  inQueue("nonexistent"),
		"reserved": inQueue(queues.Others),
	} {
		for _, how := range lives {
			t.Run(name+" "+how, func(t *testing.T) {
				w := newWorld(t)
				w.node("n", "r")
				w.node("m", "r")
				w.queue("mine", 8, "")
				w.queue("theirs", 8, "them")
				w.m.namespaceSeen(&objects.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "them"}, Labels: map[string]string{"team": "them"}})
				whole := asking(v1alpha1.GPUResource, "8")
				w.pod("a", whole, inQueue("mine"))
				w.settle()
				w.pod("a", edit)
				w.rebuilt(how)
				w.pod("them/b", whole, inQueue("theirs"))
				w.settle()
				if w.pods["them/b"].Spec.NodeName == "" {
					t.Error("the owner of the queue is refused")
				}
				w.pod("c", asking(v1alpha1.GPUResource, "1"), inQueue("mine"))
				w.waits("c", "QuotaExceeded", "queue mine")
				if len(w.told("a", tables.ChangeIgnored)) == 0 {
					t.Errorf("people are told %v", w.warned)
				}
			})
		}
	}
}

// An instance that starts, and finds a pod that was relabelled while none ran, charges
// no queue that the namespace may not use.
func TestRelabelledMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r")
	w.node("m", "r")
	w.queue("mine", 8, "")
	w.queue("theirs", 8, "them")
	w.m.namespaceSeen(&objects.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "them"}, Labels: map[string]string{"team": "them"}})
	w.m.namespaceSeen(&objects.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Labels: map[string]string{v1alpha1.QueueLabel: "mine"}})
	whole := asking(v1alpha1.GPUResource, "8")
	w.pod("a", whole)
	w.settle()
	w.pods["default/a"].Labels[v1alpha1.QueueLabel] = "theirs"
	w.restart()
	w.pod("them/b", whole, inQueue("theirs"))
	w.settle()
	if w.pods["them/b"].Spec.NodeName == "" {
		t.Error("the owner of the queue is refused")
	}
	w.pod("c", asking(v1alpha1.GPUResource, "1"))
	w.waits("c", "QuotaExceeded", "queue mine")
	if got := w.told("a", tables.ReasonQueueForbidden); len(got) == 0 || !strings.Contains(got[0], "charged to queue mine") {
		t.Errorf("people are told %v", w.warned)
	}
}

func groupQueue(name string) change[*schedulingv1beta1.PodGroup] {
	return func(g *schedulingv1beta1.PodGroup) { g.Labels = map[string]string{v1alpha1.QueueLabel: name} }
}

func groupLocked(g *schedulingv1beta1.PodGroup) { g.Annotations[v1alpha1.LockedAnnotation] = "true" }

// What is made of a PodGroup of which a pod runs does not count, and people are told;
// when no pod of it has a place, it does.
func TestEditedPodGroup(t *testing.T) {
	for _, how := range lives {
		for what, edit := range map[string]func(w *world){
			"changed": func(w *world) { w.podGroup("g", groupQueue("yours"), groupLocked) },
			"deleted": func(w *world) { w.m.podGroupGone(objects.Key("default", "g")) },
		} {
			t.Run(what+" "+how, func(t *testing.T) {
				w := newWorld(t)
				w.node("n", "r")
				w.node("m", "r")
				w.queue("mine", 8, "")
				w.queue("yours", 8, "")
				w.podGroup("g", groupQueue("mine"))
				w.pod("a", asking(v1alpha1.GPUResource, "8"), inPodGroup("g"))
				w.settle()
				edit(w)
				w.rebuilt(how)
				w.pod("b", asking(v1alpha1.GPUResource, "1"), inQueue("mine"))
				w.waits("b", "QuotaExceeded", "queue mine")
				if got := w.told("a", tables.ChangeIgnored); len(got) == 0 || !strings.Contains(got[0], v1alpha1.QueueLabel+" of PodGroup g") {
					t.Errorf("people are told %v", w.warned)
				}
				at := w.pods["default/a"].Spec.NodeName
				w.node(at, "", drained("0 now"))
				w.gone("b")
				if got := w.leave(); !slices.Equal(got, []string{"a"}) {
					t.Errorf("%v leave the drained node, want a", got)
				}
				w.node(at, "", func(n *v1.Node) { n.Spec.Unschedulable, n.Annotations = false, nil })
				w.podGroup("g", groupQueue("yours"))
				w.gone("a")
				w.settle()
				w.pod("c", asking(v1alpha1.GPUResource, "8"), inQueue("mine"))
				w.pod("d", asking(v1alpha1.GPUResource, "8"), inPodGroup("g"))
				w.on("c,d>m,n")
			})
		}
	}
}

// The annotation that says that a pod could not be replaced keeps none on a node that
// is drained, unless its status says so too.
func TestStaysByAnnotation(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r")
	w.pod("a")
	w.on("a>n")
	w.pod("a", func(p *v1.Pod) {
		p.Annotations[v1alpha1.MovingAnnotation] = (&translate.Move{Owner: metav1.OwnerReference{Name: "x"}, Hash: "h", Request: "now", Kept: v1alpha1.MovingNotReplaced}).String()
	})
	w.node("n", "", drained("10m now"))
	if got := w.leave(); len(got) != 1 {
		t.Errorf("%v leave", got)
	}
}

// A part of a GPU is recorded as soon as the pod is bound, before anybody edits it.
func TestPartIsRecorded(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r", mixed)
	w.pod("whole")
	w.pod("part", asking("cpu", "1"), func(p *v1.Pod) { p.Annotations[v1alpha1.GPUFractionAnnotation] = "0.5" })
	w.on("whole>n", "part>n")
	if got, _ := translate.Record(w.pods["default/part"]); !strings.Contains(got, v1alpha1.GPUFractionAnnotation) {
		t.Errorf("the record is %q", got)
	}
	if got, _ := translate.Record(w.pods["default/whole"]); got != "" {
		t.Errorf("a pod of which its spec says all has the record %q", got)
	}
}

// A pod that is taken out of its owner's hands is charged as before, though its
// namespace has another queue by now.
func TestChangedOwnerKeepsCharge(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r")
	w.queue("mine", 8, "")
	w.queue("yours", 8, "")
	namespace := func(queue string) {
		w.m.namespaceSeen(&objects.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Labels: map[string]string{v1alpha1.QueueLabel: queue}})
	}
	namespace("mine")
	w.pod("a", ownedBy("apps/v1", "ReplicaSet", "x"))
	w.on("a>n")
	namespace("yours")
	w.pod("a", func(p *v1.Pod) { p.OwnerReferences = nil })
	w.settle()
	if g := w.m.Pods[w.pods["default/a"].UID].Group; g.ID.Kind != translate.ByItself || g.Queue != "mine" {
		t.Errorf("it is of %v, charged to %s", g.ID, g.Queue)
	}
}

// What runs in a queue that it may not use is not charged to its namespace's queue if
// it may not use that either.
func TestChargeable(t *testing.T) {
	for own, want := range map[string]string{"": queues.Default, "mine": "mine", "others": queues.Default, "nonexistent": queues.Default, "theirs": queues.Default} {
		w := newWorld(t)
		w.node("n", "r")
		w.queue("mine", 8, "")
		w.queue("others", 8, "others")
		w.queue("theirs", 8, "them")
		w.m.namespaceSeen(&objects.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Labels: map[string]string{v1alpha1.QueueLabel: own}})
		w.pod("a", inQueue("theirs"), func(p *v1.Pod) { p.Spec.NodeName = "n" })
		w.settle()
		if g := w.m.Pods[w.pods["default/a"].UID].Group; g.Queue != want {
			t.Errorf("in a namespace of queue %q it is charged to %s, want %s", own, g.Queue, want)
		}
	}
}
