package mirror

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// This file drains nodes. A pod whose owner makes a replacement leaves when the replacement
// is ready (act.Move); any other pod is evicted. A gang that would keep too few pods leaves
// as a whole, and so does a group that can be suspended: it starts again in places that the engine
// keeps (restart.go) or, without such places, waits again, in its old place in the queue.

// sweepDraining makes pods leave the nodes that are drained:
//
//  1. Moves that an instance before this one began are finished.
//  2. Locked pods get a condition which says that they stay.
//  3. Of the others, those that must leave do: as a whole group, or one by one, after their
//     replacement is ready where that is possible. The engine is asked first for places of those
//     that come again.
func (m *driver) sweepDraining() {
	clear(m.restarting)
	for _, p := range tables.InOrder(m.moving, func(p *tables.Pod) bool { return !p.Moves && p.Stayed == nil && m.Shards.Held[m.Whose(p)] }) {
		p.Moves = true
		x := m.MoveOf(p, p.Object.Move.Request)
		x.Found = true
		m.acts.Move = append(m.acts.Move, x)
	}
	for _, name := range slices.Sorted(maps.Keys(m.draining)) {
		n := m.draining[name]
		request := n.Object.Drain.Request
		for _, p := range tables.InOrder(n.Pods, func(p *tables.Pod) bool {
			return m.MayLeave(p) && m.Locked(p) && (p.Stayed == nil || *p.Stayed != request)
		}) {
			p.Stayed = &request
			m.acts.Stay = append(m.acts.Stay, act.Stay{Pod: p.Ref(), Reason: v1alpha1.MovingLocked, Message: translate.LockedMessage(request)})
		}
		for _, p := range tables.InOrder(n.Pods, m.MustLeave) {
			if !m.MustLeave(p) {
				continue // it has gone with its gang
			}
			if !m.restartsOff(p) {
				m.leaveDrained(p, n)
			}
		}
	}
}

// leaveDrained makes a pod leave a node that is drained, with its group where that must leave whole.
func (m *changes) leaveDrained(p *tables.Pod, n *tables.Node) {
	// Moved one by one, the pods of a gang would break it at the first.
	if g := p.Group; m.LeavesWhole(p) {
		list := m.breakUp(g, act.Drained, drainedWhy(n), nil)
		g.Draining, g.Broke = g.Gang(), false
		m.sendOff(g, list)
		return
	}
	p.Moves = true
	x := m.MoveOf(p, n.Object.Drain.Request)
	x.Replace = m.Replaced(p, n.Object.Drain)
	m.acts.Move = append(m.acts.Move, x)
}

func drainedWhy(n *tables.Node) string { return fmt.Sprintf("node %s is drained", n.Object.Name) }

// movedOff handles the end of a pod's move; stayed is the request of the drain for which it
// could not leave, nil if it may be requested again.
func (m *driver) movedOff(uid types.UID, stayed *string) {
	p := m.Pods[uid]
	if p == nil {
		return
	}
	p.Moves, p.Stayed = false, stayed
	if p.Transfer != nil {
		m.failMove(p)
	}
}

// noteUncounted records whether a pod was removed from what the Job controller counts.
func (m *changes) noteUncounted(o *objects.Pod) {
	if o.Uncounted {
		m.uncounted[o.UID] = act.Pod{Namespace: o.Namespace, Name: o.Name, UID: o.UID}
	} else {
		delete(m.uncounted, o.UID)
	}
}

// countsAgain finds the pods that an instance before this one was about to evict, and did
// not evict: their finalizers are put back.
func (m *changes) countsAgain() {
	for uid, x := range m.uncounted {
		p := m.Pods[uid]
		if p == nil && m.Shards.Held[m.Shards.Rest] || p != nil && p.State == tables.PodBound && !p.Moves && m.Shards.Held[m.Whose(p)] {
			m.acts.Count = append(m.acts.Count, x)
			delete(m.uncounted, uid)
		}
	}
}
