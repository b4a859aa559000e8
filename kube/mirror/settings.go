package mirror

import (
	"github.com/muster-sched/muster/kube/settings"
	"github.com/muster-sched/muster/kube/tables"
)

// This file handles changes of the settings of the whole cluster ([settings]): the policy, the
// levels of the topology, and priorities.

// inPolicies turns an observation of policies into one of the tables.
func inPolicies[T any](observe func(*settings.Policies, T) settings.PolicyChange) func(*Mirror, T) {
	return func(m *Mirror, o T) {
		c := observe(m.Policies, o)
		if c.Invalid != nil {
			m.log.Warn("the policy is invalid: the last valid policy stays in use", "policy", m.Policies.Name, "error", c.Invalid)
		}
		if c.Other && m.engine != nil {
			m.log.Info("another policy is in use", "policy", m.Policies.Policy().Name)
			m.outdated = true
		}
	}
}

// inTopologies turns an observation of topologies into one of the tables.
func inTopologies[T any](observe func(*settings.Topologies, T) bool) func(*Mirror, T) {
	return func(m *Mirror, o T) {
		if observe(m.Topologies, o) {
			m.chooseLevels()
		}
	}
}

// inClasses turns an observation of PriorityClasses into one of the tables.
func inClasses[T any](observe func(settings.Classes, T) []string) func(*Mirror, T) {
	return func(m *Mirror, o T) {
		for _, name := range observe(m.Priorities, o) {
			m.classChanged(name)
		}
	}
}

// chooseLevels has the engine built again if other levels count. Before all objects have been
// listed, it is too early to choose.
func (m *driver) chooseLevels() {
	if m.engine != nil && m.pickLevels() {
		m.outdated = true
	}
}

// pickLevels chooses the levels that count, and reports whether they have changed.
func (m *changes) pickLevels() bool {
	if !m.Topologies.Choose(m.Now) {
		return false
	}
	m.log.Info("other topology levels are in use", "topology", m.Topologies.Used(), "levels", m.Topologies.Names())
	return true
}

// watchLabels chooses levels again when the labels of nodes suggest others.
func (m *driver) watchLabels() {
	if m.engine == nil {
		return
	}
	for _, g := range m.WithNewLevels() {
		m.relabel(g)
	}
	again, at := m.Topologies.Suggest(m.Now)
	if m.acts.Wake = min(m.acts.Wake, at); again {
		m.chooseLevels()
	}
}

// classChanged submits again the jobs that name a PriorityClass and have no pod with a
// place.
func (m *driver) classChanged(name string) {
	if m.engine == nil {
		return
	}
	for _, g := range m.Groups {
		if g.ID.Kind == tables.Foreign || g.Runs() || g.Leaving() || !m.Names(g, name) {
			continue
		}
		if g.Submitted {
			m.withdraw(g)
		}
		m.touch(g)
	}
}
