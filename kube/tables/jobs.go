package tables

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/exclude"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/peers"
	"github.com/muster-sched/muster/kube/translate"
)

// PodGroupOf returns the PodGroup of a group, nil if it names none or the PodGroup does not
// exist.
func (t *Tables) PodGroupOf(g *Group) *objects.PodGroup {
	if !g.Native {
		return nil
	}
	return t.PodGroups[objects.Key(g.ID.Namespace, g.ID.Name)]
}

// termsOf returns the PodGroup of a group as it counts for it: as it was when a pod of
// the group got a place, while one has, else as it is. It is nil when there is none.
func (t *Tables) termsOf(g *Group) *objects.PodGroup {
	if g.Settled != nil {
		return g.Settled
	}
	return t.PodGroupOf(g)
}

// RequiredBy returns the levels that pods of a group require, separated by commas, and that of the job: a level that
// one role requires holds for all, for the engine has one for a job.
func RequiredBy(g *Group, a *translate.Attributes) string {
	levels := map[string]bool{}
	for _, p := range g.Pods {
		levels[p.Object.Attributes.Required] = true
	}
	levels[a.Required] = true
	delete(levels, "")
	return strings.Join(slices.Sorted(maps.Keys(levels)), ",")
}

// Excluded is the part of a message that says which conditions of the first waiting pod of a group exclude how many nodes of
// its shard; empty for none.
func (t *Tables) Excluded(g *Group) string {
	list := InOrder(g.Pods, func(p *Pod) bool { return p.State == PodWaiting && p.Ready() })
	if len(list) == 0 {
		return ""
	}
	r := list[0].Request()
	why := exclude.Nodes(&r, func(yield func(*core.Node) bool) {
		for _, n := range t.Nodes {
			if n.Known && n.Shard == g.Shard && !yield(&n.Told) {
				return
			}
		}
	})
	if why == "" {
		return ""
	}
	return "; " + why
}

// UnknownKeys says which keys of a group's objects and of one of its pods are not known, empty for none.
func (t *Tables) UnknownKeys(g *Group, p *Pod) string {
	list := []string{p.Object.Attributes.Unknown}
	if g.Says != nil {
		list = append(list, g.Says.Attributes.Unknown)
	}
	if pg := t.PodGroupOf(g); pg != nil {
		list = append(list, pg.Attributes.Unknown)
	}
	return strings.Join(slices.DeleteFunc(list, func(s string) bool { return s == "" }), "; ")
}

// AttributesOf returns the attributes of the job: those of the pod and, where it has none,
// those of the object that gives the gang's size, then those of the PodGroup.
func (t *Tables) AttributesOf(g *Group, p *Pod) translate.Attributes {
	a := p.Object.Attributes
	if g.Says != nil {
		a = a.Over(&g.Says.Attributes)
	}
	if pg := t.termsOf(g); pg != nil {
		a = a.Over(&pg.Attributes)
		if a.Required == "" {
			a.Required = pg.Required
		}
	}
	return a
}

// Inherit returns a pod with what its PodGroup or the object of the gang says about the job's
// GPUs, where the pod says nothing about them itself. An error says what contradicts.
func (t *Tables) Inherit(p *Pod) (*objects.Pod, error) {
	var job translate.Attributes
	if g := p.Group; g.Says != nil {
		job = g.Says.Attributes
	}
	if pg := t.termsOf(p.Group); pg != nil {
		job = job.Over(&pg.Attributes)
	}
	if !job.OfGPUs() {
		return p.Object, nil
	}
	o := *p.Object
	// Its claims say how many devices it gets, and which. Of the job's attributes, only the
	// models are a condition on the node.
	if len(o.DeviceClaims) > 0 {
		job = translate.Attributes{Models: job.Models}
	}
	return &o, translate.Inherit(&o.Request, &o.Attributes, &job)
}

// LookAround returns the current relations of affinity and spread between pods.
func (t *Tables) LookAround() *peers.View { return t.Peers.Look(t.Topologies.TermLevel) }

// SurroundingsOfRoles returns the labels and terms of each role of a group that has pods,
// and false if the pods of one role differ.
func (t *Tables) SurroundingsOfRoles(g *Group) (map[*Task]*peers.Surroundings, bool) {
	now, view := map[*Task]*peers.Surroundings{}, t.LookAround()
	if view.Empty() && (g.Says == nil || g.Says.Levels == nil) { // there is no need to look at each pod
		for _, t := range g.Tasks {
			now[t] = &peers.Surroundings{}
		}
		return now, true
	}
	for _, p := range g.Slots {
		if p == nil {
			continue
		}
		s := g.around(p, view)
		if now[p.Task] == nil {
			now[p.Task] = s
		} else if !s.Equal(now[p.Task]) {
			return nil, false
		}
	}
	return now, true
}

// WithNewLevels returns the groups whose terms may be about labels that nodes have since the last call, and none had before.
func (t *Tables) WithNewLevels() (list []*Group) {
	if !t.Topologies.NewKeys() {
		return nil
	}
	for _, g := range t.Groups {
		for _, p := range g.Pods {
			if len(p.Object.Terms) > 0 {
				list = append(list, g)
				break
			}
		}
	}
	return list
}

// Misplaced says what is wrong with where a job asks to be: a level of the job, or of a term of the group's pods, that the topology does
// not have, or a combination of GPU models; "" if nothing is.
func (t *Tables) Misplaced(g *Group, a *translate.Attributes) string {
	for _, l := range []string{RequiredBy(g, a), a.Preferred} {
		if _, ok := t.Topologies.Level(l); !ok {
			return fmt.Sprintf("unknown topology level %q: expected one of %s", l, t.Topologies.Names())
		}
	}
	for _, p := range g.Pods {
		for i := range p.Object.Terms {
			o := &p.Object.Terms[i]
			if _, ok := t.Topologies.TermLevel(o.Key); !ok && !o.Anti && (o.Weight == 0 || o.Group) { // without the label all nodes are apart
				return fmt.Sprintf("topologyKey %s is no label of any node", o.Key)
			}
		}
	}
	return cmp.Or(t.misplacedSubgroup(g), t.wrongCombinations(g, a))
}

// Pause returns how long a gang waits after its nth failed start in a row: as the engine
// pauses jobs, and at least a second, for a start is many requests.
func (t *Tables) Pause(failures int) core.Time {
	r := t.Policies.Policy().Requeue
	r.Backoff = max(r.Backoff, core.Second)
	if r.MaxBackoff > 0 {
		r.MaxBackoff = max(r.MaxBackoff, core.Second)
	}
	return r.Pause(failures)
}

// EngineConfig returns the configuration of a new engine.
func (t *Tables) EngineConfig() core.Config {
	c := core.Config{Policy: *t.Policies.Policy()}
	for _, l := range t.Topologies.Levels() {
		c.Levels = append(c.Levels, l.Name)
	}
	return c
}
