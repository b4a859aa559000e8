package mirror

import (
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// This file determines the groups and nodes that this instance decides on, where several
// instances share a cluster.

// handOver is a shard that is being given up.
type handOver struct {
	shard int
	over  func()
}

// regroup determines the shard of a group again. When the group becomes ours, or another
// instance's, it leaves the engine, and is submitted again.
func (m *driver) regroup(g *tables.Group) {
	shard := m.ShardOf(g)
	if shard == g.Shard {
		return
	}
	was := m.Ours(g)
	g.Shard = shard
	if is := m.Ours(g); was != is {
		m.withdraw(g)
		if was {
			m.letGo(g)
		}
	}
}

// follow updates the engine's picture of a job that another instance decides on: the engine
// knows those of its pods that have a place.
func (m *driver) follow(g *tables.Group) {
	// The other instance decides on the pods that wait. Those that have a place take devices
	// here, too.
	placed := false
	for _, p := range g.Pods {
		if p.State != tables.PodWaiting {
			placed = true
			m.resolve(p)
		}
	}
	switch {
	case !placed:
		m.withdraw(g)
		if len(g.Pods) == 0 && !m.stays(g) {
			m.forget(g)
		}
	case !g.Submitted:
		m.submit(g)
	default:
		m.add(g, nil)
	}
}

// letGo forgets what was in progress for a group that another instance decides on from
// now on. It waits for bindings that were sent, but not for volumes.
func (m *driver) letGo(g *tables.Group) {
	g.Reported, g.Waiting, g.Journey = tables.Report{}, tables.Waiting{}, nil
	g.Draining, g.Broke = false, false
	m.unfollow(g)
	for _, p := range g.Pods {
		p.Said, p.Dismissed, p.Moves, p.Pause = "", false, false, nil
		if p.Withheld != nil {
			m.Storage.GiveUp(p.Object.UID) // the choice stays for the other instance
			p.Withheld = nil
			m.bound(p.Object.UID, false, false)
		}
		if p.State == tables.PodLeaving && !p.Object.Deleting {
			// The other instance decides whether it has to leave.
			if p.State = tables.PodBound; p.InFlight {
				p.State = tables.PodBinding
			}
		}
		m.NotePod(p)
	}
}

// Take makes a shard ours, and has the engine built again.
func (m *Mirror) Take(shard int) error {
	m.Shards.Held[shard] = true
	if m.engine == nil {
		return m.rebuild()
	}
	m.reshard()
	return nil
}

// GiveUp ends deciding on a shard. over is called when no act of the shard is in flight.
func (m *Mirror) GiveUp(shard int, over func()) {
	// This comes first: while the shard is ours, a binding that is given up has failed.
	for _, g := range m.Groups {
		if g.Shard == shard && g.ID.Kind != tables.Foreign {
			m.letGo(g)
		}
	}
	m.Shards.Held[shard] = false
	m.handed = append(m.handed, handOver{shard, over})
	m.reshard()
}

func (m *changes) reshard() {
	m.outdated = true
	m.Lost.Again() // pods on nodes that are lost may be ours to evict now
}

// handOver reports the shards that were given up and have no act in flight.
func (m *changes) handOver() {
	m.handed = slices.DeleteFunc(m.handed, func(h handOver) bool {
		if m.UnderWay(h.shard) {
			return false
		}
		h.over()
		return true
	})
}

// arrivalPause is how long a node that came from another shard takes no pods. After it, every
// request of the instance that decided there has been answered or given up, and observed
// here.
const arrivalPause = core.Time(act.Patience) + 5*core.Second

// shut reports whether a node takes no pods because it is not ours, or not yet. want is the
// node as the engine is to know it.
func (m *changes) shut(n *tables.Node, want *core.Node) bool {
	if !m.Shards.Several() {
		return false
	}
	shard := m.Shards.Of(translate.NodePool(want.Labels, want.Model))
	// The instance that decided on the node may have bound pods there that are not observed here
	// yet. The node takes none until they must have been.
	if n.Sharded && shard != n.Shard && !m.Shards.Held[n.Shard] {
		n.Opens = m.Now + arrivalPause
	}
	n.Shard, n.Sharded = shard, true
	if m.Now < n.Opens {
		m.arrived[n.Object.Name] = n
		m.acts.Wake = min(m.acts.Wake, n.Opens)
	}
	return !m.Shards.Held[shard] || m.Now < n.Opens
}

// openArrived marks nodes that came from another shard, so that they are checked again.
func (m *changes) openArrived() {
	for name, n := range m.arrived {
		if m.Now < n.Opens {
			m.acts.Wake = min(m.acts.Wake, n.Opens)
			continue
		}
		delete(m.arrived, name)
		if m.Nodes[name] == n {
			m.dirtyNodes[name] = n
		}
	}
}
