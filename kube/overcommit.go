package kube

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
)

// A GPU may have been given twice all the same: by an instance that was stopped
// between its look at the lease and the system call that sent a binding, or by a
// scheduler from before. What was bound later yields and waits again: two pods on one
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

// causeOvercommitted is why pods leave a GPU that others were given before.
const causeOvercommitted = "Overcommitted"

// contest makes the pods yield that were bound later to devices of p of which pods on
// the node have more than all. g is the group of p, or was before the engine refused p;
// late says that the API has just shown a binding of p that is not ours.
func (m *changes) contest(p *pod, g *group, late bool) {
	n := m.nodes[p.target]
	if n == nil || !n.known {
		return
	}
	group := func(o *pod) *group {
		if o == p {
			return g
		}
		return o.group
	}
	has := func(o *pod) uint64 {
		if late && o != p && o.slot >= 0 {
			return o.devices & o.asBound()
		}
		return o.asBound()
	}
	list := inOrder(n.pods, func(o *pod) bool {
		return o.object.ours && !o.object.deleting && o.state != podLeaving && !o.yields
	})
	slices.SortFunc(list, earlier)
	over := overflow(list, n.told.GPUs)
	for _, d := range devicesIn(p.asBound()) {
		given := core.Milli(0)
		for _, o := range list {
			if has(o)>>d&1 == 0 || o.yields {
				continue
			}
			given += o.share()
			if g := group(o); given > core.WholeGPU && (late || over[o]) && g != nil && !o.inFlight && m.ours(g) {
				m.yield(o, g, fmt.Sprintf("GPU %d of node %s was allocated to other pods before", d, p.target))
			}
		}
	}
}

// earlier compares pods by when they were bound. A binding that is under way is first: it
// cannot be taken back. A pod that has GPUs by its annotations alone, which no
// scheduler has recorded, is last: they may have been written at any time.
func earlier(a, b *pod) int {
	rank := func(p *pod) int {
		o := p.object
		switch {
		case p.inFlight:
			return 0
		case o.amounts.GPUs == 0 && len(o.deviceClaims) == 0 && o.record == "" && p.given == 0:
			return 2
		}
		return 1
	}
	return cmp.Or(rank(a)-rank(b), a.object.started.Compare(b.object.started), strings.Compare(string(a.object.UID), string(b.object.UID)))
}

// overflow returns the pods for which a node with this many GPUs has no room after those
// before them in the list. A pod takes the devices that it names or, if another has
// them, any with room.
func overflow(list []*pod, gpus int) map[*pod]bool {
	over := map[*pod]bool{}
	free := make([]core.Milli, gpus)
	for i := range free {
		free[i] = core.WholeGPU
	}
	for _, o := range list {
		var named, room []int
		want := o.devicesWanted()
		for d := range free {
			if free[d] < o.share() {
				continue
			}
			if o.asBound()>>d&1 == 1 {
				named = append(named, d)
			}
			room = append(room, d)
		}
		switch {
		case len(named) == want:
			room = named
		case len(room) < want:
			over[o] = true
			continue
		}
		for _, d := range room[:want] {
			free[d] -= o.share()
		}
	}
	return over
}

// yield makes a pod leave, and its gang with it.
func (m *changes) yield(p *pod, g *group, why string) {
	m.log.Warn("a GPU was allocated twice: evicting the pod that was bound later", "pod", p.object.Namespace+"/"+p.object.Name, "why", why)
	m.tellPod(p, GPUsOvercommitted, why+": the pod leaves and waits again")
	m.metrics.evicted(causeOvercommitted)
	p.yields = true
	p.cause = evictAct{pod: p, reason: causeOvercommitted, message: why, shard: g.shard}
	if p.group != nil {
		p.state = podLeaving
		m.notePod(p)
	}
	list := []evictAct{p.cause}
	if g.gang() && g.submitted {
		list = m.breakUp(g, causeOvercommitted, fmt.Sprintf("%s, and pod %s of the gang leaves the node", why, p.object.Name), list)
		g.draining, g.broke = true, true
	}
	m.sendOff(g, list)
}
