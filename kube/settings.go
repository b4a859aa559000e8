package kube

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/settings"
)

// What follows when something else counts for the whole cluster ([settings]): another
// policy, other levels of the topology, other priorities.

// inPolicies makes an observation of policies one of the tables.
func inPolicies[T any](observe func(*settings.Policies, T) settings.PolicyChange) func(*mirror, T) {
	return func(m *mirror, o T) {
		c := observe(m.policies, o)
		if c.Invalid != nil {
			m.log.Warn("the policy is invalid: the last valid policy stays in use", "policy", m.policies.Name, "error", c.Invalid)
		}
		if c.Other && m.engine != nil {
			m.log.Info("another policy is in use", "policy", m.policies.Policy().Name)
			m.outdated = true
		}
	}
}

// inTopologies makes an observation of topologies one of the tables.
func inTopologies[T any](observe func(*settings.Topologies, T) bool) func(*mirror, T) {
	return func(m *mirror, o T) {
		if observe(m.topologies, o) {
			m.chooseLevels()
		}
	}
}

// inClasses makes an observation of PriorityClasses one of the tables.
func inClasses[T any](observe func(settings.Classes, T) []string) func(*mirror, T) {
	return func(m *mirror, o T) {
		for _, name := range observe(m.priorities, o) {
			m.classChanged(name)
		}
	}
}

// chooseLevels has the engine built again if other levels count. Before all objects were
// listed it is too early to choose.
func (m *driver) chooseLevels() {
	if m.engine != nil && m.pickLevels() {
		m.outdated = true
	}
}

// pickLevels chooses the levels that count, and reports whether they are others.
func (m *changes) pickLevels() bool {
	if !m.topologies.Choose(m.now) {
		return false
	}
	m.log.Info("other topology levels are in use", "topology", m.topologies.Used(), "levels", m.topologies.Names())
	return true
}

// watchLabels chooses levels again when the labels of nodes suggest others.
func (m *driver) watchLabels() {
	if m.engine == nil {
		return
	}
	again, at := m.topologies.Suggest(m.now)
	if m.acts.wake = min(m.acts.wake, at); again {
		m.chooseLevels()
	}
}

// classChanged has the jobs submitted again that name a PriorityClass, and of which no
// pod has a place.
func (m *driver) classChanged(name string) {
	if m.engine == nil {
		return
	}
	for _, g := range m.groups {
		if g.id.Kind == others || g.runs() || g.leaving() || !m.names(g, name) {
			continue
		}
		if g.submitted {
			m.withdraw(g)
		}
		m.touch(g)
	}
}

// engineConfig is how the engine is to be built.
func (t *tables) engineConfig() core.Config {
	c := core.Config{Policy: *t.policies.Policy()}
	for _, l := range t.topologies.Levels() {
		c.Levels = append(c.Levels, l.Name)
	}
	return c
}
