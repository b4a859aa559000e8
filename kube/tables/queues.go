package tables

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/quota"
	"github.com/muster-sched/muster/kube/settings"
	"github.com/muster-sched/muster/kube/stats"
	"github.com/muster-sched/muster/kube/translate"
)

const (
	// DefaultQueue is the queue of jobs that name none. Without a Queue object of that
	// name it owns no quota.
	DefaultQueue = "default"
	// OthersQueue holds the GPUs that pods of other schedulers use.
	OthersQueue = "muster-other-schedulers"
)

// Queues are the Queue objects, and what the engine knows about them.
type Queues struct {
	Objects map[string]*v1alpha1.Queue
	Told    map[string]core.Queue
	// Verdict is why an object is not in effect.
	Verdict map[string]settings.Verdict
}

func newQueues() Queues {
	return Queues{Objects: map[string]*v1alpha1.Queue{}, Told: map[string]core.Queue{}, Verdict: map[string]settings.Verdict{}}
}

// Depth is how far below the top a queue is; more than there are queues in a
// cycle.
func (q *Queues) Depth(name string) int {
	d := 0
	for o := q.Objects[name]; o != nil && o.Spec.Parent != "" && d <= len(q.Objects); o = q.Objects[o.Spec.Parent] {
		d++
	}
	return d
}

// classes are the PriorityClasses that a queue allows; none allows all.
func (q *Queues) classes(name string) []string {
	if o := q.Objects[name]; o != nil {
		return o.Spec.PriorityClasses
	}
	return nil
}

// Blocks says why a namespace's jobs cannot wait in a queue, "" when they can.
func (q *Queues) Blocks(t *Tables, name, namespace string) (reason, detail string) {
	o := q.Objects[name]
	_, told := q.Told[name]
	switch v := q.Verdict[name]; {
	case v.Reason != "":
		return ReasonQueueNotFound, fmt.Sprintf("queue %s is not ready: %s", name, v.Message)
	// The default queue exists without an object, and a queue that is gone stays with the engine
	// while jobs of it run.
	case !told || o == nil && name != DefaultQueue:
		return ReasonQueueNotFound, fmt.Sprintf("queue %s does not exist", name)
	case o == nil || o.Spec.NamespaceSelector == nil:
		return "", ""
	}
	s, err := metav1.LabelSelectorAsSelector(o.Spec.NamespaceSelector)
	if err != nil {
		return ReasonQueueNotFound, fmt.Sprintf("queue %s: namespaceSelector: %v", name, err)
	}
	if !s.Matches(labels.Set(t.Namespaces[namespace])) {
		return ReasonQueueForbidden, fmt.Sprintf("namespace %s cannot use queue %s: its labels do not match the queue's namespaceSelector", namespace, name)
	}
	return "", ""
}

// QueueOf names the queue of a group: what its pods say, else its namespace,
// else the default.
func (t *Tables) QueueOf(g *Group, a translate.Attributes) string {
	return cmp.Or(a.Queue, translate.NamespaceQueue(t.Namespaces[g.ID.Namespace]), DefaultQueue)
}

// TurnedAway says why a job cannot wait in its queue, or not with its PriorityClass; empty if
// it can.
func (t *Tables) TurnedAway(g *Group, p *Pod, a *translate.Attributes) (reason, detail string) {
	queue := t.QueueOf(g, *a)
	if reason, detail := t.Queues.Blocks(t, queue, g.ID.Namespace); reason != "" {
		return reason, detail
	}
	return t.Unranked(g, p, a, queue)
}

// MayStay reports whether a waiting job may go on waiting in its queue.
func (t *Tables) MayStay(g *Group) bool {
	ready := InOrder(g.Pods, (*Pod).Ready)
	if len(ready) == 0 {
		return false
	}
	a := t.AttributesOf(g, ready[0])
	reason, _ := t.TurnedAway(g, ready[0], &a)
	return reason == "" && t.QueueOf(g, a) == g.Queue
}

// QueueStatus is the status of a queue; st is nil when the engine does not know it.
func (t *Tables) QueueStatus(q *v1alpha1.Queue, st *stats.Queue, now metav1.Time) v1alpha1.QueueStatus {
	v, bad := t.Queues.Verdict[q.Name]
	if !bad {
		v = settings.Verdict{Reason: v1alpha1.QueueReady, Message: "the queue's jobs are scheduled"}
	}
	s := v1alpha1.QueueStatus{Conditions: v.On(q.Status.Conditions, !bad, q.Generation, now)}
	if st == nil {
		return s
	}
	s.PendingJobs, s.RunningJobs = int32(st.Subtree.Waiting), int32(st.Subtree.Running)
	s.WeightPermille = int32(st.WeightPermille)
	for _, u := range st.Subtree.Usage {
		s.Usage = append(s.Usage, v1alpha1.QueueUsage{
			Model: u.Model, Nominal: v1alpha1.GPUs(u.Nominal), Used: v1alpha1.GPUs(u.Used), Borrowed: v1alpha1.GPUs(u.Borrowed),
		})
		s.Nominal += v1alpha1.GPUs(u.Nominal)
		if u.Model != quota.AnyModel { // it counts the others again
			s.Used += v1alpha1.GPUs(u.Used)
		}
	}
	return s
}
