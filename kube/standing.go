package kube

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core/quota"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/stats"
)

// How queues, policies and topologies stand, as their statuses say. The instance
// that decides writes them; what the API says already is not written again.

// standingPeriod is how often statuses are looked at.
const standingPeriod = 3 * time.Second

// standings returns the objects whose status is another now.
func (m *mirror) standings(now metav1.Time) []act.Status {
	if m.engine == nil || !m.shards.held[m.shards.rest] {
		return nil // another instance writes them
	}
	var out []act.Status
	if len(m.queues.objects) > 0 {
		byName := map[string]*stats.Queue{}
		st := m.stats()
		for i := range st.Queues {
			byName[st.Queues[i].Name] = &st.Queues[i]
		}
		for _, name := range sortedKeys(m.queues.objects) {
			q := *m.queues.objects[name]
			old := q.Status
			if q.Status = m.queueStatus(&q, byName[name], now); !equality.Semantic.DeepEqual(q.Status, old) {
				out = append(out, act.Status{Resource: "queues", Name: name, Object: &q})
			}
		}
	}
	for _, name := range sortedKeys(m.policies.objects) {
		p := *m.policies.objects[name]
		old := p.Status
		v := m.policies.verdict[name]
		p.Status = v1alpha1.SchedulingPolicyStatus{Conditions: v.on(old.Conditions, v.reason != v1alpha1.PolicyInvalid, p.Generation, now)}
		if !equality.Semantic.DeepEqual(p.Status, old) {
			out = append(out, act.Status{Resource: "schedulingpolicies", Name: name, Object: &p})
		}
	}
	for _, name := range sortedKeys(m.topologies.objects) {
		t := *m.topologies.objects[name]
		old := t.Status
		v := m.topologies.verdict[name]
		nodes := m.labelledNodes(&t)
		if nodes == 0 && v.reason == v1alpha1.TopologyInUse {
			v = verdict{v1alpha1.TopologyNoNodes, "no node has the labels of all levels"}
		}
		t.Status = v1alpha1.TopologyStatus{
			Nodes: int32(nodes), Conditions: v.on(old.Conditions, v.reason != v1alpha1.TopologyNoNodes, t.Generation, now),
		}
		if !equality.Semantic.DeepEqual(t.Status, old) {
			out = append(out, act.Status{Resource: "topologies", Name: name, Object: &t})
		}
	}
	return out
}

// queueStatus is how a queue stands; st is nil when the engine does not know it.
func (m *changes) queueStatus(q *v1alpha1.Queue, st *stats.Queue, now metav1.Time) v1alpha1.QueueStatus {
	v, bad := m.queues.verdict[q.Name]
	if !bad {
		v = verdict{v1alpha1.QueueReady, "the queue's jobs are scheduled"}
	}
	s := v1alpha1.QueueStatus{Conditions: v.on(q.Status.Conditions, !bad, q.Generation, now)}
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

// on returns a copy of the conditions in which Ready says the verdict.
func (v verdict) on(conditions []metav1.Condition, ready bool, generation int64, now metav1.Time) []metav1.Condition {
	out := append([]metav1.Condition(nil), conditions...)
	c := metav1.Condition{
		Type: v1alpha1.ReadyCondition, Status: metav1.ConditionFalse, Reason: v.reason, Message: v.message,
		ObservedGeneration: generation, LastTransitionTime: now,
	}
	if ready {
		c.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&out, c)
	return out
}
