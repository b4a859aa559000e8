package mirror

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/stats"
)

// This file computes the statuses of queues, policies and topologies. The instance that holds
// the rest of the cluster writes them; a status that the API has already is not written again.

// Statuses returns the objects whose status has changed.
func (m *Mirror) Statuses(now metav1.Time) []act.Status {
	if m.engine == nil || !m.Shards.Held[m.Shards.Rest] {
		return nil // another instance writes them
	}
	var out []act.Status
	if len(m.Queues.Objects) > 0 {
		byName := map[string]*stats.Queue{}
		st := m.Stats()
		for i := range st.Queues {
			byName[st.Queues[i].Name] = &st.Queues[i]
		}
		for _, name := range sortedKeys(m.Queues.Objects) {
			q := *m.Queues.Objects[name]
			old := q.Status
			if q.Status = m.QueueStatus(&q, byName[name], now); !equality.Semantic.DeepEqual(q.Status, old) {
				out = append(out, act.Status{Resource: "queues", Name: name, Object: &q})
			}
		}
	}
	for _, p := range m.Policies.Statuses(now) {
		out = append(out, act.Status{Resource: "schedulingpolicies", Name: p.Name, Object: p})
	}
	for _, t := range m.Topologies.Statuses(now) {
		out = append(out, act.Status{Resource: "topologies", Name: t.Name, Object: t})
	}
	return out
}
