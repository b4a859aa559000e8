package tables

import (
	"slices"
	"strings"

	"github.com/muster-sched/muster/kube/lease"
	"github.com/muster-sched/muster/kube/translate"
)

// ShardTable has the shards of the cluster, and which of them are ours.
type ShardTable struct {
	byPool map[string]int
	names  []string
	Rest   int    // the shard of pools that no other names
	Held   []bool // by shard: it is ours
}

// oneShard is the table of a scheduler that decides on all.
func oneShard() ShardTable { return ShardTable{Held: []bool{true}} }

// NewShardTable is the table of an instance that holds none of the shards yet.
func NewShardTable(shards []lease.Shard) ShardTable {
	t := ShardTable{byPool: map[string]int{}, Rest: lease.RestOf(shards), Held: make([]bool, len(shards))}
	for i, s := range shards {
		t.names = append(t.names, s.Name())
		for _, pool := range s {
			t.byPool[pool] = i
		}
	}
	return t
}

// Several reports whether the cluster is divided at all.
func (t *ShardTable) Several() bool { return len(t.Held) > 1 }

// Of is the shard of a pool.
func (t *ShardTable) Of(pool string) int {
	if i, ok := t.byPool[pool]; ok {
		return i
	}
	return t.Rest
}

// Within is a text that says which nodes count for jobs that wait, where other instances
// decide on some.
func (t *ShardTable) Within() string {
	if !slices.Contains(t.Held, false) {
		return ""
	}
	var ours []string
	for i, held := range t.Held {
		if held {
			ours = append(ours, t.names[i])
		}
	}
	return "; only nodes of these shards count: " + strings.Join(ours, " ")
}

// Holds reports whether this instance decides on a shard.
func (t *Tables) Holds(shard int) bool { return t.Shards.Held[shard] }

// Ours reports whether this instance decides on a group. Pods of other schedulers count as
// ours for all instances, which know them as they are.
func (t *Tables) Ours(g *Group) bool { return t.Shards.Held[g.Shard] || g.ID.Kind == Foreign }

// Decides reports whether this instance decides on a group, and nothing keeps it from
// that.
func (t *Tables) Decides(g *Group) bool { return t.Ours(g) && g.Quarantine == nil }

// Whose is the shard of a pod: its group's, or the rest for one that is known by
// what it takes alone.
func (t *Tables) Whose(p *Pod) int {
	if p.Group == nil {
		return t.Shards.Rest
	}
	return p.Group.Shard
}

// ShardOf finds the shard of a group. One without pods, of which some may come
// again, stays where it is.
func (t *Tables) ShardOf(g *Group) int {
	if !t.Shards.Several() || g.ID.Kind == Foreign || len(g.Pods) == 0 {
		return g.Shard
	}
	pool := translate.NamespacePool(t.Namespaces[g.ID.Namespace])
	if pg := t.termsOf(g); pg != nil {
		pool = pool.Or(pg.Pool)
	}
	for _, p := range g.Pods {
		pool = pool.Or(p.Object.Pool)
	}
	return t.Shards.Of(pool.Name)
}

// UnderWay reports whether a binding is in flight for a job of the shard, or to a node of
// it.
func (t *Tables) UnderWay(shard int) bool {
	if t.Devices.InFlight() {
		return true
	}
	for _, p := range t.Pods {
		if !p.InFlight {
			continue
		}
		n := t.Nodes[p.Target]
		// A pod without a group, or on an unknown node, may belong to any shard.
		if p.Group == nil || p.Group.Shard == shard || n == nil || n.Shard == shard {
			return true
		}
	}
	return false
}
