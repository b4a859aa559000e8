package tables

import (
	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/objects"
)

// doneFor is how long a gang waits for more pods that would have all it needs if those counted that
// have succeeded. Their owner makes no others in their place; but it may make more, of a
// later wave, and makes these together.
const doneFor = 5 * core.Second

// NoteDone takes note of a pod of a job that has succeeded.
func (t *Tables) NoteDone(o *objects.Pod) {
	if o.Ours && o.Phase == v1.PodSucceeded {
		t.Done.Observe(o.UID, &o.Membership)
	}
}

// PatienceOf is how long a gang waits for pods that it lacks: 0 or [core.Never] for ever.
func (t *Tables) PatienceOf(g *Group) core.Time {
	any := func(*Pod) bool { return true }
	if t.Done.Count(g.ID, "") == 0 || g.Count("", any)+t.Done.Count(g.ID, "") < g.Min {
		return g.Patience
	}
	for role, least := range g.Roles {
		if g.Count(role, any)+t.Done.Count(g.ID, role) < least {
			return g.Patience
		}
	}
	if g.Patience == 0 || g.Patience > doneFor && g.Patience != core.Never {
		return doneFor
	}
	return g.Patience
}
