package tables

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/quota"
	"github.com/muster-sched/muster/kube/queues"
	"github.com/muster-sched/muster/kube/settings"
	"github.com/muster-sched/muster/kube/stats"
	"github.com/muster-sched/muster/kube/translate"
)

// Queues are the Queue objects, and what the engine knows about them.
type Queues struct {
	queues.Index
	// Closed says that a Queue without a namespaceSelector is for no namespace; else it is for all.
	Closed bool
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
	case !told || o == nil && name != queues.Default:
		return ReasonQueueNotFound, fmt.Sprintf("queue %s does not exist", name)
	case o == nil || o.Spec.NamespaceSelector == nil && !q.Closed:
		return "", ""
	case o.Spec.NamespaceSelector == nil:
		return ReasonQueueForbidden, fmt.Sprintf("namespace %s cannot use queue %s: the queue has no namespaceSelector, and such queues are closed on this cluster (--closed-queues)", namespace, name)
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
	return cmp.Or(a.Queue, translate.NamespaceQueue(t.Namespaces[g.ID.Namespace]), queues.Default)
}

// UserOf names the user of a group: what its pods say, else its namespace.
func UserOf(g *Group, a *translate.Attributes) string { return cmp.Or(a.User, g.ID.Namespace) }

// TurnedAway says why a job cannot wait in its queue, or not with its PriorityClass; empty if
// it can.
func (t *Tables) TurnedAway(g *Group, p *Pod, a *translate.Attributes) (reason, detail string) {
	queue := t.QueueOf(g, *a)
	if reason, detail := t.Queues.Blocks(t, queue, g.ID.Namespace); reason != "" {
		return reason, detail
	}
	if reason, detail := t.Queues.Disallowed(queue, g, a); reason != "" {
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
	s.Resources = resourceUsage(&st.Subtree)
	nominal := core.Milli(0)
	for _, u := range st.Subtree.Usage {
		usage := v1alpha1.QueueUsage{
			Model: u.Model, Nominal: v1alpha1.GPUsOwned(u.Nominal), Used: v1alpha1.GPUs(u.Used), Borrowed: v1alpha1.GPUs(u.Borrowed),
		}
		for _, sh := range st.Subtree.Shares {
			if sh.Model == u.Model || u.Model == quota.AnyModel {
				usage.Requested += v1alpha1.GPUs(sh.Requested)
				usage.Owed += v1alpha1.GPUs(sh.Fair)
			}
		}
		s.Usage = append(s.Usage, usage)
		nominal = cluster.Plus(nominal, u.Nominal)
		if u.Model != quota.AnyModel { // it counts the others again
			s.Used += v1alpha1.GPUs(u.Used)
		}
	}
	s.Nominal = v1alpha1.GPUsOwned(nominal)
	// What is requested of models of which the queue has no quota, and no GPUs yet.
	for _, sh := range st.Subtree.Shares {
		if _, isResource := cluster.ResourceOf(sh.Model); !isResource && !slices.ContainsFunc(s.Usage, func(u v1alpha1.QueueUsage) bool { return u.Model == sh.Model }) {
			s.Usage = append(s.Usage, v1alpha1.QueueUsage{Model: sh.Model, Requested: v1alpha1.GPUs(sh.Requested), Owed: v1alpha1.GPUs(sh.Fair)})
		}
	}
	slices.SortFunc(s.Usage, func(a, b v1alpha1.QueueUsage) int { return strings.Compare(a.Model, b.Model) })
	return s
}

// Exceeds says in the status of a queue that there is less of what it owns than queues own, or than those below it do.
func (t *Tables) Exceeds(q *v1alpha1.Queue, overbooked []core.Overbooked, now metav1.Time) {
	var texts []string
	if beyond := t.Queues.Beyond[q.Name]; beyond != "" {
		texts = append(texts, beyond)
	}
	for _, o := range overbooked {
		lists := slices.ContainsFunc(q.Spec.Quota, func(e v1alpha1.Quota) bool { return e.Model == o.Account && e.Nominal != 0 }) ||
			slices.ContainsFunc(q.Spec.Resources, func(e v1alpha1.ResourceQuota) bool { return cluster.AccountOf(string(e.Name)) == o.Account })
		if lists {
			texts = append(texts, o.String())
		}
	}
	if len(texts) == 0 {
		meta.RemoveStatusCondition(&q.Status.Conditions, v1alpha1.ExceedsCapacityCondition)
		return
	}
	meta.SetStatusCondition(&q.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ExceedsCapacityCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.MoreThanThereIs, Message: strings.Join(texts, "; "),
		ObservedGeneration: q.Generation, LastTransitionTime: now,
	})
}

// resourceUsage is what a queue and all below it own, use and are owed of CPU, memory and other resources.
func resourceUsage(of *stats.Subtree) []v1alpha1.ResourceUsage {
	var out []v1alpha1.ResourceUsage
	for _, u := range of.Resources {
		resource, _ := cluster.ResourceOf(u.Model)
		name := v1alpha1.ResourceName(resource)
		text := func(amount core.Milli) v1alpha1.Quantity { return v1alpha1.QuantityOf(name, amount) }
		usage := v1alpha1.ResourceUsage{Name: name, Nominal: text(u.Nominal), Used: text(u.Used), Borrowed: text(u.Borrowed)}
		for _, sh := range of.Shares {
			if sh.Model == u.Model {
				usage.Requested, usage.Owed = text(sh.Requested), text(sh.Fair)
			}
		}
		out = append(out, usage)
	}
	return out
}
