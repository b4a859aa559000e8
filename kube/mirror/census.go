package mirror

import (
	"github.com/muster-sched/muster/kube/stats"
	"github.com/muster-sched/muster/kube/tables"
)

// census counts nodes and groups. To look at every pod takes long in a large cluster, so
// nodes and groups that change are noted, and only these are counted again when the
// figures are asked for.
type census struct {
	of            *tables.Tables
	sums          *stats.Census
	changedNodes  map[*tables.Node]struct{}
	changedGroups map[*tables.Group]struct{}
}

func newCensus(of *tables.Tables) census {
	return census{of: of, sums: stats.New(tables.OthersQueue), changedNodes: map[*tables.Node]struct{}{}, changedGroups: map[*tables.Group]struct{}{}}
}

// noteNode, noteGroup and notePod mark what changed, so that it is counted again.
func (c *census) noteNode(n *tables.Node) { c.changedNodes[n] = struct{}{} }

func (c *census) noteGroup(g *tables.Group) { c.changedGroups[g] = struct{}{} }

func (c *census) notePod(p *tables.Pod) {
	if p.Group != nil {
		c.noteGroup(p.Group)
	}
	if n := c.of.Nodes[p.Target]; n != nil {
		c.noteNode(n)
	}
}

// Stats brings the census up to date and returns its figures. It costs a look at the pods
// of what changed since the last call.
func (c *census) Stats() stats.Stats {
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
	st := c.sums.Stats(c.of.Queues.Told)
	st.Seen = c.of.Seen
	return st
}
