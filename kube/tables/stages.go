package tables

import (
	"strings"

	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/owners"
	"github.com/muster-sched/muster/kube/translate"
)

// Owners that start their pods in stages, such as a JobSet whose workers wait for its driver, have a job for each
// stage: the pods of a stage start together, and do not wait for pods that are made later. Which stages there are
// is known once the owner was read. From then on pods belong to the job of their stage.

// Stages has what such owners say, by the group that their pods would be without stages.
type Stages map[translate.Group]*owners.Gang

// Stage makes a pod a member of the stage in which its owner starts it, as far as that is known.
func (t *Tables) Stage(o *objects.Pod) {
	m := &o.Membership
	says := t.Stages[m.Group]
	if says == nil {
		return
	}
	if stage := says.StageOf(m.Role); stage != "" {
		m.In(stage)
		m.Min, m.Roles = 0, nil // of all stages
	}
}

// Forget forgets a group without pods, and what their owner said of its stages: it is asked again when pods come.
func (t *Tables) Forget(g *Group) {
	delete(t.Groups, g.ID)
	delete(t.buckets[PartOf(g.Job, buckets)].groups, g)
	if g.Stage != "" {
		id := g.ID
		id.Name = strings.TrimSuffix(id.Name, "/"+g.Stage)
		delete(t.Stages, id)
	}
}
