package mirror

import (
	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/kube/tables"
)

// setOff records that a job was submitted to the engine for the first time.
func (m *changes) setOff(g *tables.Group) {
	if m.traced == nil || g.Ran || g.ID.Kind == tables.Foreign || !m.Ours(g) {
		return
	}
	g.Journey = &tables.Tracked{Journey: tables.Journey{Job: g.Job, Queue: g.Queue, Created: g.Created, Submitted: m.Clock()}}
}

// decidedOn records that the first places of a job were chosen.
func (m *changes) decidedOn(g *tables.Group, pods int) {
	if j := g.Journey; j != nil && j.Decided.IsZero() {
		j.Decided, j.Pods = m.Clock(), pods
	}
}

// boundAll records that no binding of a job is in flight.
func (m *changes) boundAll(g *tables.Group) {
	if j := g.Journey; j != nil && j.Bound.IsZero() && !j.Decided.IsZero() {
		j.Bound = m.Clock()
		m.arrive(g)
	}
}

// movesOn records that a pod has begun to run.
func (m *changes) movesOn(g *tables.Group, from, to v1.PodPhase) {
	if j := g.Journey; j != nil && from != to && to == v1.PodRunning {
		j.Runs++
		m.arrive(g)
	}
}

// arrive reports a journey that is over.
func (m *changes) arrive(g *tables.Group) {
	j := g.Journey
	if j.Bound.IsZero() || j.Runs < j.Pods {
		return
	}
	j.Running = m.Clock()
	g.Journey = nil
	m.traced(&j.Journey)
}
