package mirror

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/peers"
	"github.com/muster-sched/muster/kube/tables"
)

// This file applies the answers of the index of peers ([peers.Index]) to jobs: the engine
// receives changed labels and terms of running roles, and which jobs budgets protect.
//
// The pods of a role are alike in what they require and in what selects them. When a
// new selector selects only some of them, the job is submitted again with other roles.

// aroundChanged applies the labels and terms that have changed in the index of peers.
func (m *changes) aroundChanged(c peers.Change) {
	for _, uid := range c {
		switch p := m.Pods[uid]; {
		case p == nil:
		case p.Group != nil:
			m.relabel(p.Group)
		case m.Peers.Matters(&p.Around):
			m.enlist(p)
		}
	}
}

// admitTerms takes in the terms of pods for which their namespaces have room by now.
func (m *driver) admitTerms() {
	changed, again := m.Peers.Work(m.Now)
	m.aroundChanged(changed)
	m.acts.Wake = min(m.acts.Wake, again)
}

// budgetsChanged applies what has changed in the index of peers about which pods budgets
// protect.
func (m *changes) budgetsChanged(c peers.Change) {
	for _, uid := range c {
		if p := m.Pods[uid]; p != nil && p.Group != nil {
			m.touch(p.Group)
		}
	}
}

// inBudgets turns an observation of budgets into one of the tables.
func inBudgets[T any](observe func(*peers.Index, T) peers.Change) func(*Mirror, T) {
	return func(m *Mirror, o T) { m.budgetsChanged(observe(m.Peers, o)) }
}

// enlist makes a pod of another scheduler a job of the engine's. Before, what
// the pod takes was subtracted from its node.
func (m *changes) enlist(p *tables.Pod) {
	m.uncount(p)
	m.join(p)
}

// relabel marks a group, so that its labels are checked before the next decision.
func (m *changes) relabel(g *tables.Group) {
	g.Relabel = true
	m.touch(g)
}

// tellSurroundings brings the labels and terms of a live job up to date.
func (m *driver) tellSurroundings(g *tables.Group) {
	if !g.Relabel || !g.Submitted {
		return
	}
	g.Relabel = false
	now, ok := m.SurroundingsOfRoles(g)
	// A selector selects only some pods of a role: the roles are formed again, from all pods.
	if !ok {
		m.tellAnew(g)
		return
	}
	for _, t := range g.Tasks {
		if s := now[t]; s != nil && !s.Equal(&t.Around) {
			m.mustTell(core.JobRelabelled{Job: g.Job, Task: t.Name, Labels: s.Labels, Affinity: s.Terms})
			t.Around = *s
		}
	}
}

// tellAnew ends the job of a group in the engine; it is submitted again as it is now. Where others
// are on its GPUs, the engine is built again.
func (m *driver) tellAnew(g *tables.Group) {
	if g.Lenders() > 0 {
		m.torn = true
		return
	}
	m.reports.Keep(m.engine, g)
	m.mustTell(core.JobEnded{Job: g.Job})
	delete(m.Jobs, g.Job)
	m.startOver(g)
}

// tellShield tells the engine whether budgets allow the job of a group to be evicted for
// others, if that has changed.
func (m *driver) tellShield(g *tables.Group) {
	if !g.Submitted || g.ID.Kind == tables.Foreign || !m.Ours(g) {
		return
	}
	protected := false
	if m.Peers.HasBudgets(g.ID.Namespace) {
		for _, p := range g.Pods {
			if p.BudgetHolds() {
				protected = true
				break
			}
		}
	}
	if protected != g.DisruptionProtected {
		g.DisruptionProtected = protected
		m.mustTell(core.JobShielded{Job: g.Job, Shielded: protected})
	}
}
