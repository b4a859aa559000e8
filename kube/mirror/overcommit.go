package mirror

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/tables"
)

// A GPU may have been given twice all the same: by an instance that was stopped
// between its look at the lease and the system call that sent a binding, or by a
// scheduler from before. The pod that was bound later yields and waits again: two pods on one
// GPU are worse than any pod that has to start again, also one that is locked or must
// not be preempted. A gang yields whole.
//
// No tenant can make another's pod yield by what it writes on its own pods. When a pod was
// bound is in its status, and its GPUs are in its spec; those are trusted. Its
// annotations and its owner are not: they never put a pod before another. Pods of
// other schedulers take no part. Pods are compared in two cases:
//
//   - The API shows a binding that is not ours. It names the devices itself. Of the
//     other pods the devices count that they name and that are booked for them.
//   - The engine refuses a pod for the GPUs that its node has. A pod yields if it names
//     a device that an earlier one names, and if the node has no room left for it after
//     all earlier ones. Without the second condition, an early pod that is edited to
//     name the device of a later one makes that one yield.
//
// A node that publishes fewer GPUs than before makes no pod yield: the devices of its
// pods differ.

// causeOvercommitted is why pods leave a GPU that was given to others before.
const causeOvercommitted = "Overcommitted"

// contest finds devices of p that are overcommitted, and makes the pods that were bound to
// them later yield. g is the group of p, or was before the engine refused p;
// late says that the API has just shown a binding of p that is not ours.
func (m *changes) contest(p *tables.Pod, g *tables.Group, late bool) {
	n := m.Nodes[p.Target]
	if n == nil || !n.Known {
		return
	}
	group := func(o *tables.Pod) *tables.Group {
		if o == p {
			return g
		}
		return o.Group
	}
	has := func(o *tables.Pod) uint64 {
		// With a late binding, the others count with devices that are both named and booked: a name
		// alone may be an edit, and a booking alone a guess (tables.DevicesOf).
		if late && o != p && o.Slot >= 0 {
			return o.Devices & o.AsBound()
		}
		return o.AsBound()
	}
	list := tables.InOrder(n.Pods, func(o *tables.Pod) bool {
		return o.Object.Ours && !o.Object.Deleting && o.State != tables.PodLeaving && !o.Yields && !o.Lends()
	})
	slices.SortFunc(list, tables.Earlier)
	over := tables.Overflow(list, n.Told.GPUs)
	// Each device goes to pods in the order in which they were bound. A pod that finds it full
	// yields.
	for _, d := range tables.DevicesIn(p.AsBound()) {
		given := core.Milli(0)
		for _, o := range list {
			if has(o)>>d&1 == 0 || o.Yields {
				continue
			}
			given += o.Share()
			if g := group(o); given > core.WholeGPU && (late || over[o]) && g != nil && !o.InFlight && m.Ours(g) {
				m.yield(o, g, fmt.Sprintf("GPU %d of node %s was allocated to other pods before", d, p.Target))
			}
		}
	}
}

// yield evicts a pod, and its gang with it.
func (m *changes) yield(p *tables.Pod, g *tables.Group, why string) {
	m.log.Warn("a GPU was allocated twice: evicting the pod that was bound later", "pod", p.Object.Namespace+"/"+p.Object.Name, "why", why)
	m.tellPod(p, tables.GPUsOvercommitted, why+": the pod leaves and waits again")
	m.metrics.Evicted(causeOvercommitted)
	p.Yields = true
	p.Cause = tables.Eviction{Of: p, Reason: causeOvercommitted, Message: why, Shard: g.Shard}
	if p.Group != nil {
		p.State = tables.PodLeaving
		m.NotePod(p)
	}
	list := []tables.Eviction{p.Cause}
	// A gang cannot go on without the pod: it yields whole, and starts again whole.
	if g.Gang() && g.Submitted {
		list = m.breakUp(g, causeOvercommitted, fmt.Sprintf("%s, and pod %s of the gang leaves the node", why, p.Object.Name), list)
		g.Draining, g.Broke = true, true
	}
	m.sendOff(g, list)
}
