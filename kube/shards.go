package kube

import (
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/lease"
	"github.com/muster-sched/muster/kube/translate"
)

// Which groups and nodes this instance decides on, where several share a cluster.

// shardTable is which shards there are, and which are ours.
type shardTable struct {
	byPool map[string]int
	names  []string
	rest   int
	held   []bool
}

// handOver is a shard that is being given up.
type handOver struct {
	shard int
	over  func()
}

// oneShard is the table of a scheduler that decides on all.
func oneShard() shardTable { return shardTable{held: []bool{true}} }

func newShardTable(shards []lease.Shard) shardTable {
	t := shardTable{byPool: map[string]int{}, rest: lease.RestOf(shards), held: make([]bool, len(shards))}
	for i, s := range shards {
		t.names = append(t.names, s.Name())
		for _, pool := range s {
			t.byPool[pool] = i
		}
	}
	return t
}

// several reports whether the cluster is divided at all.
func (t *shardTable) several() bool { return len(t.held) > 1 }

// within is a text that says which nodes count for jobs that wait, where other instances
// decide on some.
func (t *shardTable) within() string {
	if !slices.Contains(t.held, false) {
		return ""
	}
	var ours []string
	for i, held := range t.held {
		if held {
			ours = append(ours, t.names[i])
		}
	}
	return "; only nodes of these shards count: " + strings.Join(ours, " ")
}

func (t *shardTable) of(pool string) int {
	if i, ok := t.byPool[pool]; ok {
		return i
	}
	return t.rest
}

// ours reports whether this instance decides on a group. Pods of other schedulers count as
// ours for all instances, which know them as they are.
func (t *tables) ours(g *group) bool { return t.shards.held[g.shard] || g.id.Kind == others }

// decides reports whether this instance decides on a group, and nothing keeps it from
// that.
func (t *tables) decides(g *group) bool { return t.ours(g) && g.quarantine == nil }

// whose is the shard of a pod: its group's, or the rest for one that is known by
// what it takes alone.
func (t *tables) whose(p *pod) int {
	if p.group == nil {
		return t.shards.rest
	}
	return p.group.shard
}

// shardOf finds the shard of a group. One without pods, of which some may come
// again, stays where it is.
func (t *tables) shardOf(g *group) int {
	if !t.shards.several() || g.id.Kind == others || len(g.pods) == 0 {
		return g.shard
	}
	pool := translate.NamespacePool(t.namespaces[g.id.Namespace])
	if pg := t.termsOf(g); pg != nil {
		pool = pool.Or(pg.pool)
	}
	for _, p := range g.pods {
		pool = pool.Or(p.object.pool)
	}
	return t.shards.of(pool.Name)
}

// regroup finds the shard of a group again. When the group becomes ours, or another
// instance's, it leaves the engine, and is told of again.
func (m *driver) regroup(g *group) {
	shard := m.shardOf(g)
	if shard == g.shard {
		return
	}
	was := m.ours(g)
	g.shard = shard
	if is := m.ours(g); was != is {
		m.withdraw(g)
		if was {
			m.letGo(g)
		}
	}
}

// follow brings the engine's picture of a job up to date on which another instance decides:
// the engine knows those of its pods that have a place.
func (m *driver) follow(g *group) {
	placed := false
	for _, p := range g.pods {
		if p.state != podWaiting {
			placed = true
			m.resolve(p)
		}
	}
	switch {
	case !placed:
		m.withdraw(g)
		if len(g.pods) == 0 && !m.stays(g) {
			delete(m.groups, g.id)
		}
	case !g.submitted:
		m.submit(g)
	default:
		m.add(g)
	}
}

// letGo forgets what was under way for a group on which another instance decides
// from now on. Bindings that were sent are waited for, volumes are not.
func (m *driver) letGo(g *group) {
	g.said, g.waiting, g.journey = said{}, waiting{}, nil
	g.draining, g.broke = false, false
	for _, p := range g.pods {
		p.said, p.dismissed, p.moves = "", false, false
		if p.withheld != nil {
			m.storage.GiveUp(p.object.UID) // the choice stays for the other instance
			p.withheld = nil
			m.bound(p.object.UID, false, false)
		}
		if p.state == podLeaving && !p.object.deleting {
			// The other instance decides whether it has to leave.
			if p.state = podBound; p.inFlight {
				p.state = podBinding
			}
		}
		m.notePod(p)
	}
}

// holds reports whether this instance decides on a shard.
func (t *tables) holds(shard int) bool { return t.shards.held[shard] }

// take makes a shard ours, and has the engine built again.
func (m *mirror) take(shard int) error {
	m.shards.held[shard] = true
	if m.engine == nil {
		return m.rebuild()
	}
	m.reshard()
	return nil
}

// giveUp ends deciding on a shard. over is called when nothing of what was
// decided there is under way any more.
func (m *mirror) giveUp(shard int, over func()) {
	for _, g := range m.groups {
		if g.shard == shard && g.id.Kind != others {
			m.letGo(g)
		}
	}
	m.shards.held[shard] = false
	m.handed = append(m.handed, handOver{shard, over})
	m.reshard()
}

func (m *changes) reshard() {
	m.outdated = true
	m.lost.Again() // pods on nodes that are lost may be ours to evict now
}

// handOver reports the shards that were given up where nothing is under way any more.
func (m *changes) handOver() {
	m.handed = slices.DeleteFunc(m.handed, func(h handOver) bool {
		if m.underWay(h.shard) {
			return false
		}
		h.over()
		return true
	})
}

// underWay reports whether a binding was sent and not answered that is of a job
// of the shard, or to a node of it.
func (t *tables) underWay(shard int) bool {
	if t.devices.InFlight() {
		return true
	}
	for _, p := range t.pods {
		if !p.inFlight {
			continue
		}
		n := t.nodes[p.target]
		if p.group == nil || p.group.shard == shard || n == nil || n.shard == shard {
			return true
		}
	}
	return false
}

// arrivalPause is how long a node takes no pods that came from another shard. After it, all
// that the instance had under way which decided there has been answered or given up, and
// observed here.
const arrivalPause = core.Time(act.Patience) + 5*core.Second

// shut reports whether a node takes no pods because it is not ours, or not yet. want is the
// node as the engine is to know it.
func (m *changes) shut(n *node, want *core.Node) bool {
	if !m.shards.several() {
		return false
	}
	shard := m.shards.of(translate.NodePool(want.Labels, want.Model))
	if n.sharded && shard != n.shard && !m.shards.held[n.shard] {
		n.opens = m.now + arrivalPause
	}
	n.shard, n.sharded = shard, true
	if m.now < n.opens {
		m.arrived[n.object.Name] = n
		m.acts.wake = min(m.acts.wake, n.opens)
	}
	return !m.shards.held[shard] || m.now < n.opens
}

// openArrived has nodes looked at again that came from another shard.
func (m *changes) openArrived() {
	for name, n := range m.arrived {
		if m.now < n.opens {
			m.acts.wake = min(m.acts.wake, n.opens)
			continue
		}
		delete(m.arrived, name)
		if m.nodes[name] == n {
			m.dirtyNodes[name] = n
		}
	}
}
