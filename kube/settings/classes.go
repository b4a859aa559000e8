package settings

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/kube/translate"
)

// Priority is what a PriorityClass gives to jobs.
type Priority struct {
	Value int32
	Never bool // they preempt no others
}

// Class is what is kept of a PriorityClass.
type Class struct {
	metav1.ObjectMeta
	Priority
}

// ClassOf cuts a PriorityClass down.
func ClassOf(c *schedulingv1.PriorityClass) *Class {
	never := c.PreemptionPolicy != nil && *c.PreemptionPolicy == v1.PreemptNever
	return &Class{translate.Identity(&c.ObjectMeta), Priority{c.Value, never}}
}

// Classes are the PriorityClasses that there are, by name.
type Classes map[string]Priority

// Observe records the present state of a class, and returns the names of those that changed.
func (cs Classes) Observe(c *Class) (changed []string) {
	if old, ok := cs[c.Name]; ok && old == c.Priority {
		return nil
	}
	cs[c.Name] = c.Priority
	return []string{c.Name}
}

// Forget records that a class was deleted, and returns its name.
func (cs Classes) Forget(c *Class) (changed []string) {
	delete(cs, c.Name)
	return []string{c.Name}
}

// Replace replaces all known classes, and returns the names of those that
// changed, sorted.
func (cs Classes) Replace(list []*Class) (changed []string) {
	there := map[string]bool{}
	for _, c := range list {
		there[c.Name] = true
		changed = append(changed, cs.Observe(c)...)
	}
	for name := range cs {
		if !there[name] {
			delete(cs, name)
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	return changed
}

// Names lists the classes, sorted.
func (cs Classes) Names() []string { return slices.Sorted(maps.Keys(cs)) }
