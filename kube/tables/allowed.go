package tables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// Disallowed says why a queue does not accept a job for what its labels and annotations say;
// empty if it accepts it.
func (q *Queues) Disallowed(name string, g *Group, a *translate.Attributes) (reason, detail string) {
	o := q.Objects[name]
	if o == nil {
		return "", ""
	}
	s := &o.Spec
	kind := g.Kind
	if a.KindGiven {
		kind = a.Kind
	}
	no := func(format string, args ...any) (string, string) {
		return ReasonJobForbidden, fmt.Sprintf("queue "+name+" does not accept "+format, args...)
	}
	switch {
	case len(s.Classes) > 0 && !slices.Contains(s.Classes, v1alpha1.JobClass(a.Class.String())):
		return no("jobs of class %s: expected %s", a.Class, oneOf(s.Classes))
	case len(s.Kinds) > 0 && !slices.Contains(s.Kinds, v1alpha1.JobKind(kind.String())):
		return no("jobs of kind %s: expected %s", kind, oneOf(s.Kinds))
	case s.MaxWalltime > 0 && a.Estimate > core.Time(s.MaxWalltime):
		return no("jobs with an expected run time of %s: expected at most %s", v1alpha1.Duration(a.Estimate), s.MaxWalltime)
	case s.Protection == "Forbidden" && a.Locked:
		return no("locked jobs")
	case s.Protection == "Forbidden" && a.NotPreemptible:
		return no("jobs that are not preemptible")
	}
	return "", ""
}

func oneOf[T ~string](list []T) string {
	var all []string
	for _, x := range list {
		all = append(all, string(x))
	}
	return strings.Join(all, " or ")
}
