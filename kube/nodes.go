package kube

import (
	"maps"
	"math/bits"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/lost"
	"github.com/muster-sched/muster/kube/translate"
)

// From the nodes of the API to the engine's.

// nodeSeen takes in a node as it is now.
func (m *changes) nodeSeen(o *nodeObject) {
	n := m.nodes[o.Name]
	if n != nil && o.unread && !n.gone {
		return
	}
	if n == nil {
		n = &node{pods: map[types.UID]*pod{}}
		m.nodes[o.Name] = n
	}
	if o.wrong != "" {
		m.log.Warn("cannot use a node", "node", o.Name, "why", o.wrong)
	}
	n.object, n.gone = o, false
	m.devices.ObserveNode(n.forDevices())
	m.topologies.ObserveNode(o.Name, o.node.Labels)
	if o.undrained != "" {
		m.log.Warn("cannot drain a node", "node", o.Name, "why", o.undrained)
	}
	delete(m.draining, o.Name)
	if o.drain != nil {
		m.draining[o.Name] = n
	}
	m.lost.Observe(m.now, lost.Node{Name: o.Name, Zone: o.zone, Apart: o.apart, Ready: o.unready.IsZero()})
	m.dirtyNodes[o.Name] = n
}

// nodeGone takes in that a node was deleted. Its pods hold their places until
// the garbage collector has taken them away.
func (m *changes) nodeGone(name string) {
	if n := m.nodes[name]; n != nil && !n.gone {
		n.gone = true
		m.devices.ForgetNode(name)
		m.topologies.ForgetNode(name)
		m.lost.Forget(name)
		delete(m.draining, name)
		m.dirtyNodes[name] = n
	}
}

// nodesListed takes in all nodes there are.
func (m *mirror) nodesListed(list []*nodeObject) {
	compare(m, m.nodes, list, nameOf, m.nodeSeen, m.nodeGone)
}

// tellNode tells the engine how a node is now.
func (m *driver) tellNode(n *node) {
	if m.engine == nil {
		return
	}
	m.noteNode(n)
	name := n.object.Name
	if n.gone || n.object.wrong != "" {
		switch {
		case len(n.pods) > 0 && n.known && !n.told.Cordoned:
			n.told.Cordoned = true
			m.mustTell(core.NodeCordoned{Node: name, Cordoned: true})
		case len(n.pods) == 0:
			if n.known {
				m.mustTell(core.NodeLost{Node: name})
				n.known = false
			}
			if n.gone {
				delete(m.nodes, name)
			}
		}
		return
	}
	want := n.object.node
	want.Domains = translate.Domains(want.Labels, m.topologies.Levels())
	want.CPUMilli = max(0, want.CPUMilli-n.others.CPUMilli)
	want.MemMiB = max(0, want.MemMiB-n.others.MemMiB)
	want.Others = translate.Left(translate.AddOthers(want.Others, m.storage.Attachable(name), 1), n.others.Others)
	if want.MaxPods > 0 { // 0 would be no limit
		want.Cordoned = want.Cordoned || n.count >= want.MaxPods
		want.MaxPods = max(1, want.MaxPods-n.count)
	}
	m.devices.Describe(&want)
	n.closed = want.Cordoned
	want.Cordoned = m.shut(n, &want) || n.closed || m.untoldOn(n)
	switch {
	case !n.known:
		if err := m.tell(core.NodeAdded{Node: want}); err != nil {
			m.log.Warn("cannot use a node", "node", name, "why", err)
			return
		}
		n.known = true
	case n.told.GPUs != want.GPUs || n.told.Model != want.Model:
		// Another machine under the same name, or a driver that came late.
		if n.hosts() {
			n.told = want
			if err := m.rebuild(); err != nil {
				m.log.Error("cannot rebuild the engine", "error", err)
			}
			return
		}
		m.mustTell(core.NodeLost{Node: name})
		m.mustTell(core.NodeAdded{Node: want})
		n.sick = 0
	default:
		if n.told.Cordoned != want.Cordoned {
			m.mustTell(core.NodeCordoned{Node: name, Cordoned: want.Cordoned})
		}
		if !sameNode(&n.told, &want) {
			m.mustTell(core.NodeChanged{Node: want})
		}
	}
	n.told = want
	m.tellHealth(n)
}

// sameNode reports whether the engine needs no NodeChanged.
func sameNode(a, b *core.Node) bool {
	return a.CPUMilli == b.CPUMilli && a.MemMiB == b.MemMiB && a.MaxPods == b.MaxPods && a.HBD == b.HBD && slices.Equal(a.Others, b.Others) &&
		maps.Equal(a.Labels, b.Labels) && slices.Equal(a.Taints, b.Taints) && slices.Equal(a.Domains, b.Domains)
}

// hosts reports whether pods that the engine knows are on the node.
func (n *node) hosts() bool {
	for _, p := range n.pods {
		if p.slot >= 0 {
			return true
		}
	}
	return false
}

// tellHealth makes devices unhealthy: as many as the device plugin does not offer, and as pods
// have that the engine could not be told of. Which ones is not known: free devices are taken
// first, and those that were taken before stay.
func (m *driver) tellHealth(n *node) {
	used, unbooked := uint64(0), 0
	for _, p := range n.pods {
		used |= p.devices
		unbooked += p.unbooked()
	}
	if want, ok := m.devices.Unusable(&n.told, used); ok {
		for g := n.told.GPUs - 1; g >= 0 && unbooked > 0; g-- {
			if (want|used)>>g&1 == 0 {
				want |= 1 << g
				unbooked--
			}
		}
		for s := n.sick ^ want; s != 0; s &= s - 1 {
			g := bits.TrailingZeros64(s)
			m.mustTell(core.DeviceHealth{Node: n.object.Name, GPU: g, Healthy: want>>g&1 == 0})
		}
		n.sick = want
		return
	}
	missing := min(n.object.missing+unbooked, n.told.GPUs)
	for bits.OnesCount64(n.sick) > missing {
		g := bits.TrailingZeros64(n.sick)
		n.sick &^= 1 << g
		m.mustTell(core.DeviceHealth{Node: n.object.Name, GPU: g, Healthy: true})
	}
	for _, free := range []bool{true, false} {
		for g := n.told.GPUs - 1; g >= 0 && bits.OnesCount64(n.sick) < missing; g-- {
			if n.sick>>g&1 == 0 && (used>>g&1 == 0) == free {
				n.sick |= 1 << g
				m.mustTell(core.DeviceHealth{Node: n.object.Name, GPU: g, Healthy: false})
			}
		}
	}
}
