package tables

import (
	"github.com/muster-sched/muster/internal/fit"
	"github.com/muster-sched/muster/kube/queues"
	"github.com/muster-sched/muster/kube/stats"
)

// Census counts nodes and groups. To look at every pod takes long in a large cluster, so
// nodes and groups that change are noted, and only these are counted again when the
// figures are asked for.
type Census struct {
	of            *Tables
	sums          *stats.Census
	changedNodes  map[*Node]struct{}
	changedGroups map[*Group]struct{}
	most          int // see fit.Map
}

// NewCensus returns a census of tables in which nothing was noted.
func NewCensus(of *Tables) Census {
	return Census{of: of, sums: stats.New(queues.Others), changedNodes: map[*Node]struct{}{}, changedGroups: map[*Group]struct{}{}}
}

// NoteNode marks a node that changed, so that it is counted again.
func (c *Census) NoteNode(n *Node) { c.changedNodes[n] = struct{}{} }

// NoteGroup marks a group that changed.
func (c *Census) NoteGroup(g *Group) { c.changedGroups[g] = struct{}{} }

// NotePod marks the group and the node of a pod that changed.
func (c *Census) NotePod(p *Pod) {
	if p.Group != nil {
		c.NoteGroup(p.Group)
	}
	if n := c.of.Nodes[p.Target]; n != nil {
		c.NoteNode(n)
	}
}

// Stats brings the census up to date and returns its figures.
func (c *Census) Stats() stats.Stats {
	c.Count()
	st := c.sums.Stats(c.of.Queues.Told)
	st.Seen = c.of.Seen
	return st
}

// Count brings the census up to date. It costs a look at the pods of what changed since the
// last call. What has changed is kept until then, also groups that are gone: so it has to be
// called from time to time, whether anybody asks for the figures or not.
func (c *Census) Count() {
	for n := range c.changedNodes {
		c.sums.AddNode(&n.Counted, -1)
		n.Counted = c.of.CountNode(n)
		c.sums.AddNode(&n.Counted, 1)
	}
	clear(c.changedNodes)
	for g := range c.changedGroups {
		c.sums.AddGroup(&g.Counted, -1)
		g.Counted = c.of.CountGroup(g)
		c.sums.AddGroup(&g.Counted, 1)
	}
	clear(c.changedGroups)
	c.changedGroups = fit.Map(c.changedGroups, &c.most)
}

// Pending is how many nodes and groups have changed since the last count.
func (c *Census) Pending() int { return len(c.changedNodes) + len(c.changedGroups) }
