package mirror

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// A change of a queue takes no plan from a job that may go on to wait in its queue: the
// pods that were told to leave for it would have left for nothing.
func TestQueueChangeKeepsPlans(t *testing.T) {
	whole := asking(v1alpha1.GPUResource, "8")
	quota := func(n int64) v1alpha1.Quota { return v1alpha1.Quota{Model: "*", Nominal: GPUs(n)} }
	mine := queueObject("q", "", quota(16))
	mine.Spec.NamespaceSelector = selecting("team=mine")
	closed := queueObject("q", "", quota(16))
	closed.Spec.NamespaceSelector = selecting("team=other")
	ranked := queueObject("q", "", quota(16))
	ranked.Spec.PriorityClasses = []string{"low"}
	for name, test := range map[string]struct {
		queues []*v1alpha1.Queue
		team   string // of the namespace, when it changes
		want   string
	}{
		"its quota":           {[]*v1alpha1.Queue{queueObject("q", "", quota(12))}, "", core.Victims.String()},
		"another queue":       {[]*v1alpha1.Queue{queueObject("q", "", quota(16)), queueObject("other", "", quota(4))}, "", core.Victims.String()},
		"none, listed again":  {[]*v1alpha1.Queue{queueObject("q", "", quota(16))}, "", core.Victims.String()},
		"its namespaces":      {[]*v1alpha1.Queue{closed}, "", tables.ReasonQueueForbidden},
		"its PriorityClasses": {[]*v1alpha1.Queue{ranked}, "", tables.ReasonPriorityClassForbidden},
		"its namespace":       {[]*v1alpha1.Queue{mine}, "third", tables.ReasonQueueForbidden},
		"it is gone":          {nil, "", tables.ReasonQueueNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node("n", "r")
			w.m.namespaceSeen(&objects.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Labels: map[string]string{"team": "mine"}})
			w.m.queueSeen(mine)
			high := ranks("high", 9)
			w.ranked(high)
			w.pod("low", whole, inQueue("q"))
			w.on("low>n")
			w.now = w.now.Add(time.Hour)
			w.pod("high", whole, inQueue("q"), ofClass(high))
			pass := func() int {
				defer w.m.acts.Drop()
				return len(w.m.decide(core.Time(w.now.UnixNano())).Evict)
			}
			if n := pass(); n != 1 {
				t.Fatalf("%d pods are evicted, expected low", n)
			}
			if w.m.queuesListed(test.queues); test.team != "" {
				w.m.namespaceSeen(&objects.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Labels: map[string]string{"team": test.team}})
			}
			pass()
			g := w.m.Pods[w.pods["default/high"].UID].Group
			if w.m.reports.Report(w.m.engine, g); g.Waiting.Reason != test.want {
				t.Errorf("high waits: %s: %s; expected %s", g.Waiting.Reason, g.Waiting.Detail, test.want)
			}
		})
	}
}

// A job that waits because another user of its queue holds less says so, and the status of the queue says what each holds.
func TestTurnsOfUsersAreSaid(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r")
	q := queueObject("lab", "")
	q.Spec.FairBetween = "Users"
	w.m.queueSeen(q)
	for _, p := range [][3]string{{"a1", "ann", "5"}, {"b1", "bob", "3"}, {"a2", "ann", "4"}, {"b2", "bob", "4"}} {
		w.pod(p[0], inQueue("lab"), asking(v1alpha1.GPUResource, p[2]), noted(v1alpha1.UserAnnotation, p[1]))
	}
	w.on("a1,b1>n,n")
	w.waits("a2", core.Resources.String(), translate.TurnMark+"user ann holds 5 GPUs in queue lab; before this job comes default/pod/b2 of user bob, who holds 3 GPUs"+translate.AheadMark+"1")
	for _, s := range w.m.reports.Statuses(w.m.engine, metav1.NewTime(w.now)) {
		want := []v1alpha1.QueueUser{{Name: "ann", GPUs: GPUs(5), CPU: "0"}, {Name: "bob", GPUs: GPUs(3), CPU: "0"}}
		if q, ok := s.Object.(*v1alpha1.Queue); ok && q.Name == "lab" && slices.Equal(q.Status.Users, want) {
			return
		}
	}
	t.Error("the status of the queue does not have both users")
}
