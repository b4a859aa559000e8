package reports

import (
	"maps"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/translate"
)

// noteEvery is the time between two rounds in which counts of evictions are written on nodes: a node
// is written at most once in each, however many pods were evicted from it.
const noteEvery = 30 * core.Second

// Evictions returns the counts that nodes of this instance do not have yet, by name, where the policy
// places pods by them. What was counted since the last round is lost if the scheduler ends.
func (r *Reporter) Evictions(e Engine) (out []act.Evictions) {
	if r.Now < r.noted+noteEvery || !r.Policies.Policy().CountsEvictions() {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(r.Nodes)) {
		n := r.Nodes[name]
		count := min(e.Evictions(name), core.MaxEvictions)
		if !n.Known || n.Gone || count == n.Object.Evictions {
			continue
		}
		if shard := r.Shards.Of(translate.NodePool(n.Told.Labels, n.Told.Model)); r.Shards.Held[shard] {
			out = append(out, act.Evictions{Node: name, UID: n.Object.UID, Count: count, Shard: shard})
		}
	}
	if len(out) > 0 {
		r.noted = r.Now
	}
	return out
}
