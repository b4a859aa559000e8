package reports

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/stats"
)

// Statuses returns the queues, policies and topologies whose status has changed. The instance that
// holds the rest of the cluster writes them; a status that the API has already is not written
// again.
func (r *Reporter) Statuses(e Engine, now metav1.Time) []act.Status {
	if !r.Shards.Held[r.Shards.Rest] {
		return nil // another instance writes them
	}
	var out []act.Status
	if len(r.Queues.Objects) > 0 {
		byName, shares := map[string]*stats.Queue{}, map[string][]core.Share(nil)
		var resources map[string][]stats.Usage
		r.Guarded(nil, func() { shares, resources = e.Shares(), e.ResourceUsage() })
		st := r.Census.Stats()
		for i := range st.Queues {
			st.Queues[i].Subtree.Shares = shares[st.Queues[i].Name]
			st.Queues[i].Subtree.Resources = resources[st.Queues[i].Name]
			byName[st.Queues[i].Name] = &st.Queues[i]
		}
		for _, name := range slices.Sorted(maps.Keys(r.Queues.Objects)) {
			q := *r.Queues.Objects[name]
			old := q.Status
			if q.Status = r.QueueStatus(&q, byName[name], now); !equality.Semantic.DeepEqual(q.Status, old) {
				out = append(out, act.Status{Resource: "queues", Name: name, Object: &q})
			}
		}
	}
	for _, p := range r.Policies.Statuses(now) {
		out = append(out, act.Status{Resource: "schedulingpolicies", Name: p.Name, Object: p})
	}
	for _, t := range r.Topologies.Statuses(now) {
		out = append(out, act.Status{Resource: "topologies", Name: t.Name, Object: t})
	}
	return out
}
