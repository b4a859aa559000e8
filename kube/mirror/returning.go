package mirror

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/tables"
)

// This file brings pods back that restart elsewhere, so that a job has room (an [core.Evict] for
// [core.Consolidation]). The engine keeps a place for each, and its number in the job. On a
// cluster the pod that starts again is another one, which its owner makes:
//
//  1. The pods are evicted, or their owner is suspended, as for any eviction. The group stays
//     submitted.
//  2. When a pod is gone, the engine is told so (PodsGone). Its number is vacant.
//  3. The engine binds the number when all its places are free. There may be no pod yet.
//  4. A new pod of the group gets a vacant number: that of the pod with the same index or, without
//     indexes, of any that is alike. It is bound to the place that the engine has for it.
//
// If no pod came back for a number in time, the pod has ended for the engine, and its place is
// free. If the engine is built again, or another instance decides, the pods wait like any other:
// no place is kept for them.

// returnWithin is how long places are kept for pods that restart elsewhere, from when the last of
// them is gone, or their owner was resumed.
const returnWithin = 2 * 60 * core.Second

// comeback is a pod that came back after the engine had bound its number.
type comeback struct {
	tables.Back
	task *tables.Task // it had then
	to   core.Placement
}

// restarts marks the pods of a group that are evicted to start again elsewhere.
func (m *changes) restarts(g *tables.Group, p *tables.Pod) {
	p.Returns = true
	if g.Returning == nil {
		g.Returning = &tables.Returning{Vacant: map[int]*tables.Vacancy{}, Until: core.Never}
	}
	m.returning[g] = true
}

// vacate tells the engine that a pod which restarts elsewhere is gone, and reports whether it is
// such a pod.
func (m *driver) vacate(p *tables.Pod) bool {
	g := p.Group
	if !p.Returns || p.Slot < 0 || g.Returning == nil {
		return false
	}
	m.mustTell(core.PodsGone{Job: g.Job, Pods: []int{p.Slot}})
	g.Vacate(p)
	m.touch(g)
	return true
}

// comeBack gives new pods of a group the numbers of those that restart elsewhere. It returns the
// pods for which there will be a number, once the pods that have it are gone.
func (m *driver) comeBack(g *tables.Group) (early map[*tables.Pod]bool) {
	back, early := m.Back(g)
	for _, b := range back {
		if to := g.Return(b.Pod, b.Slot); to != nil {
			m.back = append(m.back, comeback{b, b.Pod.Task, *to})
		}
	}
	return early
}

// bindBack binds the pods that came back since the last pass to the places that the engine has
// for them.
func (m *driver) bindBack() {
	for _, b := range m.back {
		p, g := b.Pod, b.Pod.Group
		if g == nil || p.Slot != b.Slot || p.Task != b.task || p.State != tables.PodWaiting {
			continue // the job was submitted again, and the engine has not bound it
		}
		if n := m.Nodes[b.to.Node]; n == nil || !n.Known || n.Told.Cordoned {
			if n != nil && n.Known {
				m.mustTell(core.BindFailed{Job: g.Job, Pod: p.Slot})
			}
			continue // it waits for another place
		}
		m.send(g, []*tables.Pod{p}, []core.Placement{b.to}, core.Consolidation)
	}
	m.back = m.back[:0]
}

// await gives up the numbers of a group's pods that did not come back in time.
func (m *driver) await(g *tables.Group) {
	r := g.Returning
	switch {
	case r == nil:
		delete(m.returning, g)
		return
	case g.Leaving():
		r.Until = core.Never
		return
	case len(r.Vacant) == 0:
		g.Returning = nil
		delete(m.returning, g)
		return
	case r.Until == core.Never:
		r.Until = m.Now + returnWithin
	}
	if m.Now < r.Until {
		m.later = append(m.later, g)
		m.acts.Wake = min(m.acts.Wake, r.Until)
		return
	}
	m.log.Info("pods that restart elsewhere did not come back in time: their places are free", "job", g.Job, "pods", len(r.Vacant))
	for _, slot := range g.Forgo() {
		m.mustTell(core.PodEnded{Job: g.Job, Pod: slot})
	}
	delete(m.returning, g)
}

// bindVacant records where the engine has bound a number without a pod.
func bindVacant(g *tables.Group, at *core.Placement) {
	to := *at
	g.Returning.Vacant[at.Pod].To = &to
}

// evictVacant records that the engine has evicted a number without a pod: it is gone already.
func (m *changes) evictVacant(g *tables.Group, slot int) {
	g.Returning.Vacant[slot].To = nil
	m.after = append(m.after, core.PodsGone{Job: g.Job, Pods: []int{slot}})
}

// vacantLost forgets the places on a node that is gone: so has the engine.
func (m *changes) vacantLost(node string) {
	for g := range m.returning {
		g.Returning.Lose(node)
	}
}
