package kube

import (
	"cmp"
	"fmt"
	"math/bits"
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
// Nobody can make another's pod yield by what he writes on his own. Pods are compared
// where the API shows a binding that is not ours, which says the devices itself, and
// where the engine refuses a pod for the GPUs that its node has; there, to name other
// devices than one has does not help, for any that are free are booked. When a pod was
// bound is in its status. And a node that publishes fewer GPUs than before makes nobody
// yield: the devices of its pods differ.

// causeOvercommitted is why pods leave a GPU that others were given before.
const causeOvercommitted = "Overcommitted"

// contest makes the pods yield that were bound later to devices of p of which pods on
// the node have more than all. g is the group of p, or was before the engine refused p.
// Pods of other schedulers and of DaemonSets keep what they have.
func (m *mirror) contest(p *pod, g *group) {
	n := m.nodes[p.target]
	if n == nil {
		return
	}
	group := func(o *pod) *group {
		if o == p {
			return g
		}
		return o.group
	}
	stays := func(o *pod) bool {
		g := group(o)
		return g == nil || g.id.Kind == others || !o.object.ours || o.inFlight || o.object.owner != nil && o.object.owner.Kind == "DaemonSet"
	}
	for _, d := range devicesIn(p.asBound()) {
		list := inOrder(n.pods, func(o *pod) bool {
			return !o.object.deleting && o.state != podLeaving && !o.yields && slices.Contains(devicesIn(o.asBound()), d)
		})
		slices.SortFunc(list, func(a, b *pod) int {
			if x, y := stays(a), stays(b); x != y {
				return map[bool]int{true: -1, false: 1}[x]
			}
			return cmp.Or(a.object.started.Compare(b.object.started), strings.Compare(string(a.object.UID), string(b.object.UID)))
		})
		given := core.Milli(0)
		for _, o := range list {
			if given += o.share(); given > core.WholeGPU && !stays(o) && m.ours(group(o)) {
				m.yield(o, group(o), fmt.Sprintf("GPU %d of node %s was given to other pods before", d, p.target))
			}
		}
	}
}

// asBound is the GPUs that the API says a pod was bound with, or that were sent; none
// when these are not as many as it has, for then it was not bound so.
func (p *pod) asBound() uint64 {
	set := p.given
	for _, d := range p.object.gpus {
		set |= 1 << d
	}
	o := p.object
	gpu := max(core.Milli(o.amounts.GPUs)*core.WholeGPU, o.request.GPU, o.held)
	if core.Milli(bits.OnesCount64(set)) != (gpu+core.WholeGPU-1)/core.WholeGPU {
		return 0
	}
	return set
}

// yield makes a pod leave, and its gang with it.
func (m *mirror) yield(p *pod, g *group, why string) {
	m.log.Warn("a GPU was given twice: the pod that was bound later leaves", "pod", p.object.Namespace+"/"+p.object.Name, "why", why)
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
		list = m.breakUp(g, causeOvercommitted, fmt.Sprintf("%s, and pod %s of the gang leaves it", why, p.object.Name), list)
		g.draining, g.broke = true, true
	}
	m.sendOff(g, list)
}
