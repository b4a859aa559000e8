package kube

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/translate"
)

// Nodes that are drained. A pod whose owner makes another in its place leaves when the other
// is ready (act.Move); any other is evicted. A gang that would keep too few pods leaves
// whole, and so does a group that can be suspended: it waits again, in its old place in the
// queue.

// sweepDraining makes pods leave the nodes that are drained:
//
//  1. Moves that an instance before this one began are finished.
//  2. Locked pods get a condition that says that they stay.
//  3. Of the others, those leave that must: their group whole, or one by one, after their
//     replacement where that is possible.
func (m *changes) sweepDraining() {
	for _, p := range inOrder(m.moving, func(p *pod) bool { return !p.moves && p.stayed == nil && m.shards.held[m.whose(p)] }) {
		p.moves = true
		x := m.moveOf(p, p.object.move.Request)
		x.Found = true
		m.acts.move = append(m.acts.move, x)
	}
	for _, name := range sortedKeys(m.draining) {
		n := m.draining[name]
		why := fmt.Sprintf("node %s is drained", name)
		request := n.object.drain.Request
		for _, p := range inOrder(n.pods, func(p *pod) bool { return m.mayLeave(p) && m.locked(p) && (p.stayed == nil || *p.stayed != request) }) {
			p.stayed = &request
			m.acts.stay = append(m.acts.stay, act.Stay{Pod: p.ref(), Request: request})
		}
		for _, p := range inOrder(n.pods, m.mustLeave) {
			if !m.mustLeave(p) {
				continue // it has gone with its gang
			}
			g := p.group
			if m.leavesWhole(p) {
				list := m.breakUp(g, act.Drained, why, nil)
				g.draining, g.broke = g.gang(), false
				m.sendOff(g, list)
				continue
			}
			p.moves = true
			x := m.moveOf(p, n.object.drain.Request)
			x.Replace = m.replaced(p, n.object.drain)
			m.acts.move = append(m.acts.move, x)
		}
	}
}

// moveOf asks for the move of a pod for the request of a drain.
func (t *tables) moveOf(p *pod, request string) act.Move {
	return act.Move{Pod: p.ref(), Node: p.target, Request: request, Shard: t.whose(p)}
}

// mayLeave reports whether a pod of a drained node could be evicted now. Pods of DaemonSets
// belong to the node.
func (t *tables) mayLeave(p *pod) bool {
	o := p.object
	if p.group == nil || p.group.id.Kind == others || p.state != podBound || p.inFlight || p.moves || o.deleting || !t.ours(p.group) {
		return false
	}
	return !translate.OfDaemonSet(o.owner)
}

// locked reports whether a pod is never moved: not for others, and not off a node
// that is drained or lost.
func (t *tables) locked(p *pod) bool { return t.attributesOf(p.group, p).Locked }

// mustLeave reports whether a pod of a drained node is to leave now. One that could not
// leave is asked again when the drain is requested again.
func (t *tables) mustLeave(p *pod) bool {
	if !t.mayLeave(p) || t.locked(p) {
		return false
	}
	o := p.object
	request := t.nodes[p.target].object.drain.Request
	if p.stayed != nil {
		return *p.stayed != request
	}
	return !o.staysAsTold || !o.move.NotReplaced(request)
}

// leavesWhole reports whether all pods of a group leave when those do that are on the
// node of one.
func (t *tables) leavesWhole(p *pod) bool {
	g, node := p.group, p.target
	stays := func(p *pod) bool { return p.state == podBinding || p.state == podBound && p.target != node }
	if g.gang() && g.broken(stays) {
		return t.attributesOf(g, p).OnFailure != "replace"
	}
	return g.count("", stays) == 0 && t.suspendable(g)
}

// replaced reports whether another pod is to be ready before one leaves. That is impossible
// where both would need a volume, or devices, of one node.
func (t *tables) replaced(p *pod, d *translate.Drain) bool {
	if d.Wait == 0 || !p.object.replaceable || p.group.gang() {
		return false
	}
	for _, r := range p.object.deviceClaims {
		if !r.Template {
			return false
		}
	}
	for _, c := range p.object.claims {
		if !c.Ephemeral && !t.storage.Shared(p.object.Namespace, c.Name) {
			return false
		}
	}
	return true
}

// movedOff takes in that a pod is not being moved any more; stayed is the request of the
// drain for which it could not leave, nil when it may be asked to leave again.
func (m *changes) movedOff(uid types.UID, stayed *string) {
	if p := m.pods[uid]; p != nil {
		p.moves, p.stayed = false, stayed
	}
}

// noteMove records whether a pod is out of its owner's hands.
func (m *changes) noteMove(p *pod) {
	if o := p.object; o.move.Active() && o.node != "" {
		m.moving[o.UID] = p
	} else {
		delete(m.moving, o.UID)
	}
}

// noteUncounted records whether a pod was removed from what the Job controller counts.
func (m *changes) noteUncounted(o *podObject) {
	if o.uncounted {
		m.uncounted[o.UID] = act.Pod{Namespace: o.Namespace, Name: o.Name, UID: o.UID}
	} else {
		delete(m.uncounted, o.UID)
	}
}

// countsAgain finds the pods that an instance before this one was about to evict, and did
// not evict: their finalizers are put back.
func (m *changes) countsAgain() {
	for uid, x := range m.uncounted {
		p := m.pods[uid]
		if p == nil && m.shards.held[m.shards.rest] || p != nil && p.state == podBound && !p.moves && m.shards.held[m.whose(p)] {
			m.acts.count = append(m.acts.count, x)
			delete(m.uncounted, uid)
		}
	}
}
