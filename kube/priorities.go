package kube

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/kube/translate"
)

// From PriorityClasses to the priorities of jobs.

// priorityClass is what a PriorityClass says.
type priorityClass struct {
	value int32
	never bool // its jobs preempt no others
}

func (m *mirror) priorityClassSeen(o *priorityClassObject) {
	if old, ok := m.priorities[o.Name]; ok && old == o.priorityClass {
		return
	}
	m.priorities[o.Name] = o.priorityClass
	m.priorityClassChanged(o.Name)
}

func (m *mirror) priorityClassGone(name string) {
	delete(m.priorities, name)
	m.priorityClassChanged(name)
}

func (m *mirror) priorityClassesListed(list []*priorityClassObject) {
	compare(m, m.priorities, list, nameOf, m.priorityClassSeen, m.priorityClassGone)
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
func (t *tables) names(g *group, class string) bool {
	for _, p := range g.pods {
		if t.attributesOf(g, p).PriorityClass == class {
			return true
		}
	}
	return false
}

// priorityOf returns the priority of a job, and whether it evicts no others: as the
// class of its PodGroup says, else the class that is named for it, else a pod of it.
func (t *tables) priorityOf(g *group, p *pod, a *translate.Attributes) priorityClass {
	if pg := t.podGroupOf(g); pg != nil && pg.priority != nil {
		return priorityClass{*pg.priority, pg.never || t.priorities[pg.class].never}
	}
	if c, ok := t.priorities[a.PriorityClass]; ok && translate.MayNameClass(a.PriorityClass, g.id.Namespace) {
		return c
	}
	return priorityClass{p.object.priority, p.object.never}
}

// bearable returns the priority of a job of which pods were found on nodes: that of its
// PriorityClass if jobs of the queue may have it, else at most 0, as without a class. A
// job with a pod that its author put on a node is not turned away as others are, and
// its waiting pods start with its priority.
func (m *changes) bearable(g *group, p *pod, a *translate.Attributes, queue string, rank priorityClass) priorityClass {
	reason, detail := m.unranked(g, p, a, queue)
	if reason == "" {
		return rank
	}
	rank.value = min(rank.value, 0)
	m.tellPod(p, reason, fmt.Sprintf("%s; the job has priority %d", detail, rank.value))
	return rank
}

// unranked says why a job of a queue may not have the PriorityClass that it names; empty
// when it may, or names none.
func (t *tables) unranked(g *group, p *pod, a *translate.Attributes, queue string) (reason, detail string) {
	class := p.object.class
	if pg := t.podGroupOf(g); pg != nil && pg.priority != nil {
		class = pg.class
	} else if a.PriorityClass != "" {
		class = a.PriorityClass
		if _, ok := t.priorities[class]; !ok {
			there := "no PriorityClass exists"
			if names := sortedKeys(t.priorities); len(names) > 0 {
				there = "expected one of " + strings.Join(names, ", ")
			}
			return ReasonPriorityClassNotFound, fmt.Sprintf("PriorityClass %s does not exist: %s", class, there)
		}
		if !translate.MayNameClass(class, g.id.Namespace) {
			return ReasonPriorityClassForbidden, fmt.Sprintf("a label or annotation names PriorityClass %s: names that begin with %s are reserved for jobs of namespace %s",
				class, translate.SystemClasses, metav1.NamespaceSystem)
		}
	}
	if allowed := t.queues.classes(queue); class != "" && len(allowed) > 0 && !slices.Contains(allowed, class) {
		return ReasonPriorityClassForbidden, fmt.Sprintf("queue %s does not accept PriorityClass %s: expected one of %s, or no class",
			queue, class, strings.Join(allowed, ", "))
	}
	return "", ""
}

// classes are the PriorityClasses that a queue allows; none allows all.
func (q *queues) classes(name string) []string {
	if o := q.objects[name]; o != nil {
		return o.Spec.PriorityClasses
	}
	return nil
}
