package kube

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/translate"
)

// What somebody may try who has nothing but the right to make, label and annotate
// pods in a namespace.

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
			w.waits("full", "QuotaExceeded", "mine")
			w.waits("forbidden", ReasonQueueForbidden, "theirs")
			w.waits("none", ReasonQueueNotFound, "nonexistent")
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
	for _, p := range w.m.pods {
		if id, ok := jobs[p.group.job]; ok {
			t.Errorf("%v and %v are both job %s", id, p.group.id, p.group.job)
		}
		jobs[p.group.job] = p.group.id
	}
	if len(jobs) != 6 {
		t.Errorf("six pods are the jobs %v", jobs)
	}
}

// What Muster writes of a group on its owner can be read, whatever a gang is called.
func TestMarkOfAnyName(t *testing.T) {
	for _, name := range []string{"train", "a b", "a/b", "100%", "ä+ö"} {
		mark := suspendMark{since: startOfTime, selector: "a=b"}
		id := translate.Group{Namespace: "ns", Kind: translate.ByGang, Name: name}
		mark.of(id)
		got, ok := readSuspendMark(mark.String())
		if back := (&suspended{namespace: "ns", mark: got}).group(); !ok || back != id {
			t.Errorf("%q is read as %v, %t", mark, back, ok)
		}
	}
}

// ranked makes PriorityClasses.
func (w *world) ranked(classes ...*schedulingv1.PriorityClass) {
	for _, c := range classes {
		w.m.priorityClassSeen(trimPriorityClass(c))
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
		w.waits("mine", ReasonPriorityClassForbidden, "kube-system")
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
// engine is built anew too.
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
	w.waits("label", ReasonPriorityClassForbidden, "queue q takes no jobs of PriorityClass high: expected one of low, or none")
	w.waits("spec", ReasonPriorityClassForbidden, "expected one of low")
	w.on("allowed>n", "none>n", "elsewhere>n")
	more := q.DeepCopy()
	more.Spec.PriorityClasses = []string{"low", "high"}
	w.m.queueSeen(more)
	w.on("label>n", "spec>n")
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
