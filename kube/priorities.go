package kube

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/kube/settings"
	"github.com/muster-sched/muster/kube/translate"
)

// From PriorityClasses to the priorities of jobs.

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
func (t *tables) priorityOf(g *group, p *pod, a *translate.Attributes) settings.Priority {
	if pg := t.podGroupOf(g); pg != nil && pg.priority != nil {
		return settings.Priority{Value: *pg.priority, Never: pg.never || t.priorities[pg.class].Never}
	}
	if c, ok := t.priorities[a.PriorityClass]; ok && translate.MayNameClass(a.PriorityClass, g.id.Namespace) {
		return c
	}
	return settings.Priority{Value: p.object.priority, Never: p.object.never}
}

// bearable returns the priority of a job of which pods were found on nodes: that of its
// PriorityClass if jobs of the queue may have it, else at most 0, as without a class. A
// job with a pod that its author put on a node is not turned away as others are, and
// its waiting pods start with its priority.
func (m *changes) bearable(g *group, p *pod, a *translate.Attributes, queue string, rank settings.Priority) settings.Priority {
	reason, detail := m.unranked(g, p, a, queue)
	if reason == "" {
		return rank
	}
	rank.Value = min(rank.Value, 0)
	m.tellPod(p, reason, fmt.Sprintf("%s; the job has priority %d", detail, rank.Value))
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
			if names := t.priorities.Names(); len(names) > 0 {
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
