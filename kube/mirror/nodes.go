package mirror

import (
	"math/bits"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/feed"
	"github.com/muster-sched/muster/kube/lost"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// This file turns the nodes of the API into the engine's.

// nodeSeen handles the current state of a node.
func (m *changes) nodeSeen(o *objects.Node) {
	n := m.Nodes[o.Name]
	if n != nil && o.Unread && !n.Gone {
		return
	}
	if n == nil {
		n = &tables.Node{Pods: map[types.UID]*tables.Pod{}}
		m.Nodes[o.Name] = n
	}
	if o.Miscounted != "" && (n.Object == nil || n.Object.Miscounted != o.Miscounted) {
		m.log.Warn("a node's count of evictions is 0", "node", o.Name, "why", o.Miscounted)
	}
	for _, problem := range o.Problems() {
		m.log.Warn(problem[0], "node", o.Name, "why", problem[1])
	}
	if n.Gone { // the engine refused the pods that are there: it did not know the node
		for _, p := range n.Unbooked() {
			m.enlist(p)
		}
	}
	n.Object, n.Gone, n.Suspect = o, false, n.Suspect && !o.Closed
	m.Devices.ObserveNode(n.ForDevices())
	m.Topologies.ObserveNode(o.Name, o.Node.Labels)
	delete(m.draining, o.Name)
	if o.Drain != nil {
		m.draining[o.Name] = n
	}
	m.Lost.Observe(m.Now, lost.Node{Name: o.Name, Zone: o.Zone, Apart: o.Apart, Ready: o.Unready.IsZero()})
	m.dirtyNodes[o.Name] = n
}

// nodeGone handles the deletion of a node. Its pods hold their places until the garbage
// collector has deleted them.
func (m *changes) nodeGone(name string) {
	if n := m.Nodes[name]; n != nil && !n.Gone {
		n.Gone = true
		m.Devices.ForgetNode(name)
		m.Topologies.ForgetNode(name)
		m.Lost.Forget(name)
		delete(m.draining, name)
		m.dirtyNodes[name] = n
	}
}

// nodesListed handles the list of all nodes.
func (m *Mirror) nodesListed(list []*objects.Node) {
	feed.Compare(m, m.Nodes, list, nameOf, m.nodeSeen, m.nodeGone)
}

// tellNode tells the engine the current state of a node.
func (m *driver) tellNode(n *tables.Node) {
	if m.engine == nil {
		return
	}
	m.NoteNode(n)
	name := n.Object.Name
	if n.Gone || n.Object.Wrong != "" {
		switch {
		case len(n.Pods) > 0 && n.Known && !n.Told.Cordoned:
			n.Told.Cordoned = true
			m.mustTell(core.NodeCordoned{Node: name, Cordoned: true})
		case len(n.Pods) == 0:
			if n.Known {
				m.nodeLost(name)
				n.Known = false
			}
			if n.Gone {
				delete(m.Nodes, name)
			}
		}
		return
	}
	want := n.Object.Node
	want.Domains = translate.Domains(want.Labels, m.Topologies.Levels())
	// The engine does not know pods of other schedulers, so what they take is subtracted.
	want.CPUMilli = tables.LeftOf(want.CPUMilli, n.Others.CPUMilli)
	want.MemMiB = tables.LeftOf(want.MemMiB, n.Others.MemMiB)
	want.Others = translate.Left(translate.AddOthers(want.Others, m.Storage.Attachable(name), 1), n.Others.Others)
	if want.MaxPods > 0 { // 0 would be no limit
		want.Cordoned = want.Cordoned || n.Count >= want.MaxPods
		want.MaxPods = max(1, want.MaxPods-n.Count)
	}
	m.Devices.Describe(&want)
	n.Closed = want.Cordoned
	want.Cordoned = m.shut(n, &want) || n.Closed || n.Suspect || m.panics.Untold > 0 && n.Untold()
	switch {
	case !n.Known:
		if err := m.tell(core.NodeAdded{Node: want, Evictions: max(n.Evictions, n.Object.Evictions)}); err != nil {
			m.log.Warn("cannot use a node", "node", name, "why", err)
			return
		}
		n.Known = true
	case n.Told.GPUs != want.GPUs || n.Told.Model != want.Model:
		// Another machine under the same name, or a driver that came late.
		// The engine cannot change the GPUs of a node under its pods: a new one takes pods and node
		// together.
		if n.Hosts() {
			n.Told = want
			if err := m.rebuild(); err != nil {
				m.log.Error("cannot rebuild the engine", "error", err)
			}
			return
		}
		m.nodeLost(name)
		m.mustTell(core.NodeAdded{Node: want})
		n.Sick = 0
	default:
		if n.Told.Cordoned != want.Cordoned {
			m.mustTell(core.NodeCordoned{Node: name, Cordoned: want.Cordoned})
		}
		if n.Outdated(&want) {
			m.mustTell(core.NodeChanged{Node: want})
		}
	}
	n.Told = want
	m.tellHealth(n)
}

// tellHealth tells the engine which devices of a node pods must not have.
func (m *driver) tellHealth(n *tables.Node) {
	want := m.Unusable(n)
	for s := n.Sick ^ want; s != 0; s &= s - 1 {
		g := bits.TrailingZeros64(s)
		m.mustTell(core.DeviceHealth{Node: n.Object.Name, GPU: g, Healthy: want>>g&1 == 0})
	}
	n.Sick = want
}
