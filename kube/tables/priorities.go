package tables

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/internal/spelling"
	"github.com/muster-sched/muster/kube/settings"
	"github.com/muster-sched/muster/kube/translate"
)

// This file turns PriorityClasses into the priorities of jobs.

// Names reports whether a PriorityClass is named for a job, other than by its pods'
// specs.
func (t *Tables) Names(g *Group, class string) bool {
	for _, p := range g.Pods {
		if t.AttributesOf(g, p).PriorityClass == class {
			return true
		}
	}
	return false
}

// PriorityOf returns the priority of a job, and whether it evicts no others: as the
// class of its PodGroup says, else the class that is named for it, else a pod of it.
func (t *Tables) PriorityOf(g *Group, p *Pod, a *translate.Attributes) settings.Priority {
	if pg := t.PodGroupOf(g); pg != nil && pg.Priority != nil {
		return settings.Priority{Value: *pg.Priority, Never: pg.Never || t.Priorities[pg.Class].Never}
	}
	if c, ok := t.Priorities[a.PriorityClass]; ok && translate.MayNameClass(a.PriorityClass, g.ID.Namespace) {
		return c
	}
	return settings.Priority{Value: p.Object.Priority, Never: p.Object.Never}
}

// Unranked says why a job of a queue may not have the PriorityClass that it names; empty
// when it may, or names none.
func (t *Tables) Unranked(g *Group, p *Pod, a *translate.Attributes, queue string) (reason, detail string) {
	class := p.Object.Class
	if pg := t.PodGroupOf(g); pg != nil && pg.Priority != nil {
		class = pg.Class
	} else if a.PriorityClass != "" {
		class = a.PriorityClass
		if _, ok := t.Priorities[class]; !ok {
			there := "no PriorityClass exists"
			if names := t.Priorities.Names(); len(names) > 0 {
				there = "expected one of " + strings.Join(names, ", ")
				if meant := spelling.Nearest(class, names); meant != "" {
					there += "; did you mean " + meant + "?"
				}
			}
			return ReasonPriorityClassNotFound, fmt.Sprintf("PriorityClass %s does not exist: %s", class, there)
		}
		if !translate.MayNameClass(class, g.ID.Namespace) {
			return ReasonPriorityClassForbidden, fmt.Sprintf("a label or annotation names PriorityClass %s: names that begin with %s are reserved for jobs of namespace %s",
				class, translate.SystemClasses, metav1.NamespaceSystem)
		}
	}
	if allowed := t.Queues.classes(queue); class != "" && len(allowed) > 0 && !slices.Contains(allowed, class) {
		return ReasonPriorityClassForbidden, fmt.Sprintf("queue %s does not accept PriorityClass %s: expected one of %s, or no class",
			queue, class, strings.Join(allowed, ", "))
	}
	return "", ""
}
