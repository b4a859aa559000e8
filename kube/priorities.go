package kube

import (
	"fmt"
	"strings"

	"github.com/muster-sched/muster/kube/translate"
)

// From PriorityClasses to the priorities of jobs.

func (m *mirror) priorityClassSeen(o *priorityClassObject) {
	if old, ok := m.priorities[o.Name]; ok && old == o.value {
		return
	}
	m.priorities[o.Name] = o.value
	m.priorityClassChanged(o.Name)
}

func (m *mirror) priorityClassGone(name string) {
	delete(m.priorities, name)
	m.priorityClassChanged(name)
}

func (m *mirror) priorityClassesListed(list []*priorityClassObject) {
	compare(m.priorities, list, nameOf, m.priorityClassSeen, m.priorityClassGone)
}

// priorityClassChanged has the jobs that name a class weighed anew, of which no pod
// has a place.
func (m *mirror) priorityClassChanged(name string) {
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

// names reports whether a PriorityClass is named for a job, other than by its pods'
// specs.
func (m *mirror) names(g *group, class string) bool {
	for _, p := range g.pods {
		if m.attributesOf(g, p).PriorityClass == class {
			return true
		}
	}
	return false
}

// priorityOf returns the priority of a job: that of its PodGroup's class, else of the
// class that is named for it, else of a pod of it.
func (m *mirror) priorityOf(g *group, p *pod, a translate.Attributes) int32 {
	if pg := m.podGroupOf(g); pg != nil && pg.priority != nil {
		return *pg.priority
	}
	if value, ok := m.priorities[a.PriorityClass]; ok {
		return value
	}
	return p.object.priority
}

// unranked says that the PriorityClass named for a job does not exist; empty when
// none is named, or it does not count.
func (m *mirror) unranked(g *group, a translate.Attributes) string {
	if _, ok := m.priorities[a.PriorityClass]; ok || a.PriorityClass == "" {
		return ""
	}
	if pg := m.podGroupOf(g); pg != nil && pg.priority != nil {
		return ""
	}
	there := "there is none"
	if names := sortedKeys(m.priorities); len(names) > 0 {
		there = "expected one of " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("PriorityClass %s does not exist: %s", a.PriorityClass, there)
}
