package mirror

import (
	"time"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// This file carries out the engine's moves ([core.Migrate]) by make before break:
//
//  1. The pod is detached from its owner (act.Move), which makes another pod: the double.
//  2. The double is bound to the place that the engine holds. The engine does not know it as a
//     pod: for the engine it is the pod itself, at its new place.
//  3. When the double is ready, the pod is evicted. When the pod is gone, the double has its
//     number in the engine's job (PodMoved).
//
// If the pod goes earlier, its double has its number if it has its place; else the pod has ended.
// If the double goes or cannot be bound, or the pod is returned to its owner, the move has
// failed: the engine receives what is left of the double as a pod before it decides again. If
// the engine is built again, or another instance decides, both are pods like any other, and the
// pod leaves as from a node that is drained.

// migrate begins a move that the engine decided, and reports whether it could.
func (m *driver) migrate(d *core.Decision) bool {
	g := m.Jobs[d.Job]
	p := g.Slots[d.Pods[0].Pod]
	if p == nil || !m.Decides(g) || !m.Movable(p) || m.Mobility(g, p) != core.Replaceable {
		return false
	}
	request := m.Clock().UTC().Format(time.RFC3339Nano)
	if d.Reason == core.Requested && p.Object.MoveRequest != nil {
		request = p.Object.MoveRequest.String()
	}
	x := m.MoveOf(p, request)
	x.Replace, x.Why, x.To = true, d.Reason.String(), d.Pods[0].Node
	m.acts.Move = append(m.acts.Move, x)
	p.Moves, p.Transfer = true, &tables.Transfer{To: d.Pods[0]}
	m.transfers[p.Object.UID] = p
	return true
}

// pair makes new pods of a group the doubles of those that were detached from its owner.
func (m *driver) pair(g *tables.Group) {
	if len(m.transfers) == 0 {
		return
	}
	for _, pair := range m.Doubles(g) {
		p, o := pair[0], pair[1]
		p.Transfer.Double, o.DoubleOf = o, p
		delete(g.Loose, o.Object.UID)
		m.doubles = append(m.doubles, o)
	}
}

// bindDoubles binds the doubles that were found since the last pass.
func (m *driver) bindDoubles() {
	for _, o := range m.doubles {
		p := o.DoubleOf
		if p == nil {
			continue // the move is over
		}
		if n := m.Nodes[p.Transfer.To.Node]; n == nil || !n.Known || n.Told.Cordoned {
			m.failMove(p)
			m.acts.Wake = m.Now // the double waits for another place
			continue
		}
		m.send(p.Group, []*tables.Pod{o}, []core.Placement{p.Transfer.To}, core.Placed)
	}
	m.doubles = m.doubles[:0]
}

// arrive gives the double of a pod that is gone the pod's number, and reports whether there
// is a double that has a place.
func (m *driver) arrive(p *tables.Pod) bool {
	if p.Transfer == nil || p.Transfer.Double == nil || p.Transfer.Double.State == tables.PodWaiting {
		return false
	}
	g, o, slot, task := p.Group, p.Transfer.Double, p.Slot, p.Task
	m.unpair(p)
	m.mustTell(core.PodMoved{Job: g.Job, Pod: slot})
	p.Slot, p.Task, p.Devices = -1, nil, 0
	g.Has(o, slot, task)
	return true
}

// failMove ends the move of a pod in the engine.
func (m *driver) failMove(p *tables.Pod) {
	m.unpair(p)
	m.mustTell(core.MoveFailed{Job: p.Group.Job, Pod: p.Slot})
}

// unpair forgets a move that is over. The double is a pod like any other.
func (m *changes) unpair(p *tables.Pod) {
	g, o := p.Group, p.Transfer.Double
	p.Transfer = nil
	delete(m.transfers, p.Object.UID)
	if o != nil {
		o.DoubleOf = nil
		g.Loose[o.Object.UID] = o
	}
	m.touch(g)
}

// nodeLost tells the engine that a node without pods is gone; moves to it are over.
func (m *driver) nodeLost(name string) {
	m.mustTell(core.NodeLost{Node: name})
	m.vacantLost(name)
	for _, p := range tables.InOrder(m.transfers, func(p *tables.Pod) bool { return p.Transfer != nil && p.Transfer.To.Node == name }) {
		m.unpair(p)
	}
}

// noteMove records whether a pod is out of its owner's hands, or a user asks to move it, or has it
// lend its GPUs.
func (m *driver) noteMove(p *tables.Pod) {
	o := p.Object
	if o.Move.Active() && o.Node != "" {
		m.moving[o.UID] = p
	} else {
		delete(m.moving, o.UID)
	}
	if o.MoveRequest != nil && o.Node != "" {
		m.asked[o.UID] = p
	} else {
		delete(m.asked, o.UID)
	}
	m.lenders.Note(p)
}

// requestMoves tells the engine which pods users ask to move. It returns those that the engine
// accepted.
func (m *driver) requestMoves() []*tables.Pod {
	if len(m.asked) == 0 {
		return nil
	}
	var out []*tables.Pod
	list := tables.InOrder(m.asked, func(p *tables.Pod) bool {
		return m.Movable(p) && m.Decides(p.Group) && p.Asked != p.Object.MoveRequest.String()
	})
	for _, p := range list {
		if p.Asked == p.Object.MoveRequest.String() {
			continue // asked for with others of its job
		}
		with, err := []*tables.Pod{p}, error(nil)
		switch {
		case m.Mobility(p.Group, p) == core.Replaceable:
			err = m.tell(core.MoveRequested{Job: p.Group.Job, Pod: p.Slot, Node: p.Object.MoveRequest.Node})
		case m.Restartable(p.Group, p):
			with = tables.AskedWith(p, list)
			if len(with) < p.Object.MoveRequest.Together() {
				continue // the others are not asked for yet
			}
			err = m.restartAt(p.Group, with)
		default:
			err = tables.ErrNotMoved
		}
		for _, p := range with {
			p.Asked = p.Object.MoveRequest.String()
			if err != nil {
				m.refuse(p, err.Error())
			} else {
				out = append(out, p)
			}
		}
	}
	return out
}

// restartAt asks the engine to restart pods of a job where users ask to move them.
func (m *driver) restartAt(g *tables.Group, pods []*tables.Pod) error {
	var nodes []string
	for _, p := range pods {
		nodes = append(nodes, p.Object.MoveRequest.Node)
	}
	return m.askRestart(g, restart{pods: pods, reason: act.Moving, message: "the pod stops, and starts again elsewhere in a place that is reserved for it: " + core.Requested.String()}, nodes)
}

// refuse says on a pod that it is not moved as a user asked.
func (m *changes) refuse(p *tables.Pod, why string) {
	m.acts.Stay = append(m.acts.Stay, act.Stay{Pod: p.Ref(), Reason: v1alpha1.MovingRefused, Message: translate.RefusedMove(why, p.Asked)})
}
