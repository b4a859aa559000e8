package kube

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core/quota"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/settings"
	"github.com/muster-sched/muster/kube/stats"
)

// The statuses of queues, policies and topologies. The instance that decides on the cluster as
// a whole writes them; what the API has already is not written again.

// statusesPeriod is the time between two looks at statuses.
const statusesPeriod = 3 * time.Second

// statuses returns the objects whose status has changed.
func (m *mirror) statuses(now metav1.Time) []act.Status {
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
	for _, p := range m.policies.Statuses(now) {
		out = append(out, act.Status{Resource: "schedulingpolicies", Name: p.Name, Object: p})
	}
	for _, t := range m.topologies.Statuses(now) {
		out = append(out, act.Status{Resource: "topologies", Name: t.Name, Object: t})
	}
	return out
}

// queueStatus is the status of a queue; st is nil when the engine does not know it.
func (t *tables) queueStatus(q *v1alpha1.Queue, st *stats.Queue, now metav1.Time) v1alpha1.QueueStatus {
	v, bad := t.queues.verdict[q.Name]
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
