package kube

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/peers"
)

// What the answers of the index of peers ([peers.Index]) mean for jobs: the engine is
// told of other labels and terms of the roles that run, and which jobs budgets keep.
//
// The pods of a role are alike in what they require and in what selects them. When a
// selector comes that selects some of them alone, the job is submitted again with other
// roles.

// aroundChanged takes over what the index of peers answers otherwise now: of labels and
// terms.
func (m *changes) aroundChanged(c peers.Change) {
	for _, uid := range c {
		switch p := m.pods[uid]; {
		case p == nil:
		case p.group != nil:
			m.relabel(p.group)
		case m.peers.Matters(&p.around):
			m.enlist(p)
		}
	}
}

// budgetsChanged takes over what the index of peers answers otherwise now: of which
// pods budgets keep.
func (m *changes) budgetsChanged(c peers.Change) {
	for _, uid := range c {
		if p := m.pods[uid]; p != nil && p.group != nil {
			m.touch(p.group)
		}
	}
}

// inBudgets makes an observation of budgets one of the tables.
func inBudgets[T any](observe func(*peers.Index, T) peers.Change) func(*mirror, T) {
	return func(m *mirror, o T) { m.budgetsChanged(observe(m.peers, o)) }
}

// amongPeers is a pod as the index of peers knows it.
func amongPeers(o *podObject) peers.Pod {
	return peers.Pod{UID: o.UID, Namespace: o.Namespace, Labels: o.labels, Terms: o.terms, Ports: o.ports, Ours: o.ours}
}

// lookAround returns how pods stand to each other now.
func (t *tables) lookAround() *peers.View { return t.peers.Look(t.topologies.Level) }

// enlist makes a pod of another scheduler a job of the engine's. Before, the engine
// knew what its node has less for it.
func (m *changes) enlist(p *pod) {
	m.uncount(p)
	m.join(p)
}

// relabel has the labels of a group looked at before the next decision.
func (m *changes) relabel(g *group) {
	g.relabel = true
	m.touch(g)
}

// tellSurroundings brings the labels and terms of a live job up to date.
func (m *driver) tellSurroundings(g *group) {
	if !g.relabel || !g.submitted {
		return
	}
	g.relabel = false
	now, ok := m.surroundingsOfRoles(g)
	if !ok {
		m.tellAnew(g)
		return
	}
	for _, t := range g.tasks {
		if s := now[t]; s != nil && !s.Equal(&t.around) {
			m.mustTell(core.JobRelabelled{Job: g.job, Task: t.name, Labels: s.Labels, Affinity: s.Terms})
			t.around = *s
		}
	}
}

// surroundingsOfRoles returns what the engine is to be told of each role of a group
// that has pods, and false when the pods of one differ.
func (t *tables) surroundingsOfRoles(g *group) (map[*task]*peers.Surroundings, bool) {
	now, view := map[*task]*peers.Surroundings{}, t.lookAround()
	if view.Empty() { // there is no need to look at each pod
		for _, t := range g.tasks {
			now[t] = &peers.Surroundings{}
		}
		return now, true
	}
	for _, p := range g.slots {
		if p == nil {
			continue
		}
		s := view.Of(&p.around)
		if now[p.task] == nil {
			now[p.task] = s
		} else if !s.Equal(now[p.task]) {
			return nil, false
		}
	}
	return now, true
}

// tellAnew ends the job of a group in the engine; it is submitted again as it is now.
func (m *driver) tellAnew(g *group) {
	m.mustTell(core.JobEnded{Job: g.job})
	delete(m.jobs, g.job)
	m.startOver(g)
}

// termWithoutLevel says which term of a group's pods has no level of the topology, ""
// when all have one.
func (t *tables) termWithoutLevel(g *group) string {
	for _, p := range g.pods {
		for i := range p.object.terms {
			if _, ok := t.topologies.Level(p.object.terms[i].Key); !ok {
				return fmt.Sprintf("topologyKey %s is not a level of the topology: expected one of %s", p.object.terms[i].Key, t.topologies.Names())
			}
		}
	}
	return ""
}

// budgetHolds reports whether a budget keeps a pod from leaving its node. One that
// has not started may always leave.
func (p *pod) budgetHolds() bool {
	return p.runs() && p.around.Kept() && p.object.phase != v1.PodPending
}

// tellShield tells the engine whether the job of a group may be evicted for others,
// as far as budgets go, where that has changed.
func (m *driver) tellShield(g *group) {
	if !g.submitted || g.id.Kind == others || !m.ours(g) {
		return
	}
	shielded := false
	if m.peers.HasBudgets(g.id.Namespace) {
		for _, p := range g.pods {
			if p.budgetHolds() {
				shielded = true
				break
			}
		}
	}
	if shielded != g.shielded {
		g.shielded = shielded
		m.mustTell(core.JobShielded{Job: g.job, Shielded: shielded})
	}
}
