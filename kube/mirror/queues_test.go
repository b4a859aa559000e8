package mirror

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/stats"
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

// A queue that is deleted owns nothing from then on, and with the end of its last job it is gone from the metrics: no other
// event has to come.
func TestDeletedQueue(t *testing.T) {
	w := newWorld(t)
	w.m.metrics = stats.NewMetrics()
	w.node("n", "r")
	quota := v1alpha1.Quota{Model: "*", Nominal: GPUs(4)}
	parent, q, other := queueObject("dept", "", quota), queueObject("q", "dept", quota), queueObject("other", "")
	parent.Spec.QuotaScope = "Subtree"
	w.m.queuesListed([]*v1alpha1.Queue{parent, q, other})
	w.pod("p", inQueue("q"), asking(v1alpha1.GPUResource, "2"))
	w.on("p>n")
	figures := func(queue string) (nominal, used core.Milli, there bool) {
		for _, s := range w.m.Stats().Queues {
			if s.Name == queue {
				for _, u := range s.Subtree.Usage {
					nominal, used = nominal+u.Nominal, max(used, u.Used)
				}
				return nominal, used, true
			}
		}
		return 0, 0, false
	}
	if nominal, _, _ := figures("dept"); nominal != 4000 {
		t.Errorf("dept owns %d with q, which it contains", nominal)
	}
	w.m.queueGone("q")
	if nominal, used, there := figures("q"); !there || nominal != 0 || used != 2000 {
		t.Errorf("a deleted queue owns %d, and its job uses %d", nominal, used)
	}
	if nominal, _, _ := figures("dept"); nominal != 4000 {
		t.Errorf("dept owns %d, its own again", nominal)
	}
	w.gone("p")
	w.settle()
	if _, _, there := figures("q"); there {
		t.Error("the queue is in the figures after its last job has ended")
	}
	for name := range scraped(w.m.metrics.Registry) {
		if strings.Contains(name, `queue="q"`) {
			t.Errorf("%s is still there", name)
		}
	}
}

// The status of a queue says that queues own more than there is, or that those below it own more than it has.
func TestQueuesOwnTooMuch(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r")
	dept := queueObject("dept", "", v1alpha1.Quota{Model: "*", Nominal: GPUs(4)})
	dept.Spec.QuotaScope = "Subtree"
	team := queueObject("team", "dept", v1alpha1.Quota{Model: "*", Nominal: GPUs(6)})
	endless := queueObject("endless", "", v1alpha1.Quota{Model: "*", Nominal: v1alpha1.NoLimit})
	said := func(queues ...*v1alpha1.Queue) map[string]string {
		w.m.queuesListed(queues)
		w.settle()
		out := map[string]string{}
		for _, s := range w.m.reports.Statuses(w.m.engine, metav1.NewTime(w.now)) {
			q, ok := s.Object.(*v1alpha1.Queue)
			if !ok {
				continue
			}
			w.m.Queues.Objects[q.Name] = q
			if c := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.ExceedsCapacityCondition); c != nil {
				out[q.Name] = c.Message
			}
			if q.Name == "endless" && q.Status.Nominal != v1alpha1.NoLimit {
				t.Errorf("a queue without limit owns %s", q.Status.Nominal)
			}
		}
		return out
	}
	want := map[string]string{"dept": "the queues below own 6 of GPUs, more than its 4: it owns none beside them"}
	if got := said(dept, team, endless); !maps.Equal(got, want) {
		t.Errorf("said: %v", got)
	}
	big := queueObject("team", "dept", v1alpha1.Quota{Model: "*", Nominal: GPUs(9)})
	both := "the queues own 9 of GPUs, and the nodes have 8"
	want = map[string]string{"dept": "the queues below own 9 of GPUs, more than its 4: it owns none beside them; " + both, "team": both, "endless": both}
	if got := said(dept, big, endless); !maps.Equal(got, want) {
		t.Errorf("said: %v", got)
	}
	small := queueObject("team", "dept", v1alpha1.Quota{Model: "*", Nominal: GPUs(2)})
	if got := said(w.m.Queues.Objects["dept"], small); len(got) > 0 {
		t.Errorf("said: %v", got)
	}
	if c := w.m.Queues.Objects["dept"].Status.Conditions; len(c) != 1 {
		t.Errorf("the condition stays: %v", c)
	}
}
