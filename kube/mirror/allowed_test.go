package mirror

import (
	"maps"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/queues"
	"github.com/muster-sched/muster/kube/tables"
)

// A queue says which classes and kinds its jobs have, how long they are, and whether they can be
// protected, whatever their labels and annotations say.
func TestJobsOfAQueue(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r")
	q := queueObject("q", "", v1alpha1.Quota{Model: "*", Nominal: GPUs(8)})
	q.Spec.Classes, q.Spec.Kinds = []v1alpha1.JobClass{"LP"}, []v1alpha1.JobKind{"batch", "training"}
	q.Spec.MaxWalltime, q.Spec.Protection = v1alpha1.Duration(3600*core.Second), "Forbidden"
	w.m.queueSeen(q)
	lp := v1alpha1.ClassAnnotation + "=LP"
	for name, c := range map[string]struct{ says, want string }{
		"class":         {v1alpha1.ClassAnnotation + "=HP", "class HP: expected LP"},
		"no-class":      {v1alpha1.UserAnnotation + "=x", "class HP: expected LP"},
		"kind":          {v1alpha1.KindAnnotation + "=inference", "kind inference: expected batch or training"},
		"long":          {v1alpha1.WalltimeAnnotation + "=61m", "run time of 1h1m: expected at most 1h"},
		"locked":        {v1alpha1.LockedAnnotation + "=true", "locked jobs"},
		"unpreemptible": {v1alpha1.PreemptibleAnnotation + "=false", "not preemptible"},
		"fits":          {v1alpha1.WalltimeAnnotation + "=60m", ""},
	} {
		says := []string{c.says}
		if name != "class" && name != "no-class" {
			says = append(says, lp)
		}
		w.pod(name, inQueue("q"), labelled(says...))
		if c.want == "" {
			w.on(name + ">n")
		} else {
			w.waits(name, tables.ReasonJobForbidden, c.want)
		}
	}
	q = q.DeepCopy()
	q.Spec.Classes = nil
	w.m.queueSeen(q)
	w.on("class>n", "kind>")

	// How long a job runs is corrected while it waits, or made longer.
	edit := func(name, walltime string) {
		p := w.pods["default/"+name]
		p.Labels = maps.Clone(p.Labels)
		p.Labels[v1alpha1.WalltimeAnnotation] = walltime
		w.m.podSeen(objects.TrimPod(p))
	}
	edit("long", "59m")
	w.on("long>n")
	w.pod("grows", inQueue("q"), labelled(v1alpha1.WalltimeAnnotation+"=60m"), asking(v1alpha1.GPUResource, "8"))
	w.settle()
	edit("grows", "2h")
	w.waits("grows", tables.ReasonJobForbidden, "run time of 2h")
}

// What its author put on a node is not turned away, and has none of what the queue does not
// accept: it leaves for others, and the waiting pods of its job start as others do.
func TestFootInTheDoorOfAQueue(t *testing.T) {
	whole := asking(v1alpha1.GPUResource, "8")
	for what, says := range map[string][]string{
		"class":         {v1alpha1.ClassAnnotation + "=HP"},
		"no class":      {},
		"locked":        {v1alpha1.ClassAnnotation + "=LP", v1alpha1.LockedAnnotation + "=true"},
		"unpreemptible": {v1alpha1.ClassAnnotation + "=LP", v1alpha1.PreemptibleAnnotation + "=false"},
		"kind":          {v1alpha1.ClassAnnotation + "=LP", v1alpha1.KindAnnotation + "=inference"},
	} {
		for _, how := range lives {
			t.Run(what+" "+how, func(t *testing.T) {
				w := newWorld(t)
				w.node("n", "r")
				q := queueObject("q", "", v1alpha1.Quota{Model: "*", Nominal: GPUs(8)})
				q.Spec.Classes, q.Spec.Kinds, q.Spec.Protection = []v1alpha1.JobClass{"LP"}, []v1alpha1.JobKind{"batch", "training"}, "Forbidden"
				w.m.queueSeen(q)
				w.pod("foot", inQueue("q"), whole, labelled(says...), func(p *v1.Pod) { p.Spec.NodeName = "n" })
				w.rebuilt(how)
				w.settle()
				j := w.m.Pods[w.pods["default/foot"].UID].Group.Admitted
				if j == nil || j.Class() != core.LP {
					t.Errorf("it counts as %+v", j)
				}
				if got := w.told("foot", tables.ReasonJobForbidden); len(got) == 0 {
					t.Errorf("people are told %v", w.warned)
				}
				high := ranks("high", 9)
				w.ranked(high)
				w.now = w.now.Add(time.Hour)
				w.pod("other", inQueue("q"), whole, labelled(v1alpha1.ClassAnnotation+"=LP"), ofClass(high))
				if w.settle(); w.pods["default/foot"] != nil {
					t.Fatal("it stays though others come before it")
				}
				w.on("other>n")
			})
		}
	}
}

// On a cluster with closed queues, one without a selector is for no namespace, for pods that
// their authors put on nodes neither.
func TestClosedQueues(t *testing.T) {
	w := newWorld(t)
	w.m.Queues.Closed = true
	w.node("n", "r")
	w.queue("plain", 8, "")
	w.queue("mine", 8, "us")
	w.m.namespaceSeen(&objects.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Labels: map[string]string{"team": "us"}})
	w.pod("a", inQueue("plain"))
	w.pod("b", inQueue("mine"))
	w.pod("c", inQueue("plain"), func(p *v1.Pod) { p.Spec.NodeName = "n" })
	w.waits("a", tables.ReasonQueueForbidden, "no namespaceSelector")
	w.on("b>n")
	if g := w.m.Pods[w.pods["default/c"].UID].Group; g.Queue != queues.Default {
		t.Errorf("it is charged to %s", g.Queue)
	}
	open := queueObject("plain", "", v1alpha1.Quota{Model: "*", Nominal: GPUs(8)})
	open.Spec.NamespaceSelector = &metav1.LabelSelector{}
	w.m.queueSeen(open)
	w.on("a>n")
}
