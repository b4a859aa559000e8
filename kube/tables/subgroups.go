package tables

import (
	"fmt"
	"maps"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/peers"
)

// Subgroups of a gang of which one domain of a level holds all pods, or should: those of KAI's PodGroup. The engine knows each by a
// label of its pods, and each pod must be near it, or prefers to be, as pods in segments are.

// around returns what the engine is told of a pod and the pods around it: what those say of each other, and in which of the
// group's subgroups it is.
func (g *Group) around(p *Pod, view *peers.View) *peers.Surroundings {
	s := view.Of(&p.Around)
	if g == nil || g.Says == nil || len(g.Says.Levels[p.Object.Membership.Role]) == 0 {
		return s
	}
	with := &peers.Surroundings{Labels: slices.Clone(s.Labels), Terms: slices.Clone(s.Terms), Prefers: slices.Clone(s.Prefers)}
	for _, in := range g.Says.Levels[p.Object.Membership.Role] {
		if level, ok := view.Level(in.Level); ok {
			label := fmt.Sprintf("subgroup: %s of %s", in.Subgroup, g.Job)
			if !slices.Contains(with.Labels, label) {
				with.Labels = append(with.Labels, label)
			}
			if in.Preferred {
				with.Prefers = append(with.Prefers, core.Preference{Weight: cluster.MaxWeight, Level: level, Label: label, Group: true})
			} else {
				with.Terms = append(with.Terms, core.Term{Level: level, Label: label})
			}
		}
	}
	return with
}

// misplacedSubgroup says which level of a subgroup the topology does not have; "" if it has all.
func (t *Tables) misplacedSubgroup(g *Group) string {
	if g.Says == nil {
		return ""
	}
	for _, role := range slices.Sorted(maps.Keys(g.Says.Levels)) {
		for _, in := range g.Says.Levels[role] {
			if _, ok := t.Topologies.Level(in.Level); !ok {
				return fmt.Sprintf("unknown topology level %q of subgroup %s: expected one of %s", in.Level, in.Subgroup, t.Topologies.Names())
			}
		}
	}
	return ""
}
