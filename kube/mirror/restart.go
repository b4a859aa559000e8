package mirror

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/tables"
	"maps"
	"slices"
)

// This file asks the engine to restart jobs elsewhere: those that leave a node that is drained, and
// those that save their progress and that a user moves. The engine keeps a place for each pod, and
// decides in the same pass ([core.Evict] for [core.Requested]); the pods come back as in
// returning.go. If it does not, those of a drained node leave without a place.

// restart is what the engine was asked to restart in this pass.
type restart struct {
	pods []*tables.Pod
	// reason and message are for the pods; off is the node that is drained, nil for none.
	reason, message string
	off             *tables.Node
}

// askRestart asks the engine to restart pods of a group, each on the node at its place in nodes;
// nil stands for any.
func (m *driver) askRestart(g *tables.Group, x restart, nodes []string) error {
	ev := core.RestartRequested{Job: g.Job, Nodes: nodes}
	for _, p := range x.pods {
		ev.Pods = append(ev.Pods, p.Slot)
	}
	if err := m.tell(ev); err != nil {
		return err
	}
	m.restarting[g] = x
	return nil
}

// restartsOff asks the engine to restart a pod of a drained node elsewhere, and reports whether the
// engine may do so.
func (m *driver) restartsOff(p *tables.Pod) bool {
	if _, asked := m.restarting[p.Group]; asked {
		return true
	}
	n := m.Nodes[p.Target]
	pods := m.RestartsOff(p)
	return len(pods) > 0 && m.Decides(p.Group) && m.askRestart(p.Group, restart{pods, act.Drained, drainedWhy(n), n}, nil) == nil
}

// notRestarted makes pods leave drained nodes that the engine did not restart elsewhere, because
// something happened after it was asked.
func (m *driver) notRestarted() {
	for _, name := range slices.Sorted(maps.Keys(m.draining)) {
		for _, p := range tables.InOrder(m.draining[name].Pods, func(p *tables.Pod) bool { return m.restarting[p.Group].off != nil && m.MustLeave(p) }) {
			if m.MustLeave(p) {
				m.leaveDrained(p, m.Nodes[p.Target])
			}
		}
	}
	clear(m.restarting)
}
