package kube

import (
	"cmp"
	"context"
	"math/bits"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/lease"
	"github.com/muster-sched/muster/kube/stats"
)

// Stats returns the figures of the cluster. It waits for the scheduler's pass under way.
func (s *Scheduler) Stats(ctx context.Context) (stats.Stats, error) {
	answer := make(chan stats.Stats, 1)
	s.box.put(func(m *mirror) { answer <- m.stats() })
	select {
	case a := <-answer:
		return a, nil
	case <-ctx.Done():
		return stats.Stats{}, ctx.Err()
	}
}

// ownStats returns the figures that this instance reports: the holder of the rest reports
// on the whole cluster, the others only on the reasons of their own jobs. So sums over all
// instances are right.
func (s *Scheduler) ownStats(ctx context.Context) (stats.Stats, error) {
	st, err := s.Stats(ctx)
	if !s.held[lease.RestOf(s.config.Shards)].Load() {
		st = stats.Stats{Reasons: st.Reasons}
	}
	return st, err
}

// census counts nodes and groups. To look at every pod takes long in a large cluster, so
// nodes and groups that change are noted, and only these are counted again when the
// figures are asked for.
type census struct {
	of            *tables
	sums          *stats.Census
	changedNodes  map[*node]struct{}
	changedGroups map[*group]struct{}
}

func newCensus(of *tables) census {
	return census{of: of, sums: stats.New(OthersQueue), changedNodes: map[*node]struct{}{}, changedGroups: map[*group]struct{}{}}
}

// noteNode, noteGroup and notePod have what changed counted again.
func (c *census) noteNode(n *node)   { c.changedNodes[n] = struct{}{} }
func (c *census) noteGroup(g *group) { c.changedGroups[g] = struct{}{} }

func (c *census) notePod(p *pod) {
	if p.group != nil {
		c.noteGroup(p.group)
	}
	if n := c.of.nodes[p.target]; n != nil {
		c.noteNode(n)
	}
}

// stats brings the census up to date and returns its figures. It costs a look at the pods
// of what changed since the last call.
func (c *census) stats() stats.Stats {
	for n := range c.changedNodes {
		c.sums.AddNode(&n.counted, -1)
		n.counted = c.of.countNode(n)
		c.sums.AddNode(&n.counted, 1)
	}
	clear(c.changedNodes)
	for g := range c.changedGroups {
		c.sums.AddGroup(&g.counted, -1)
		g.counted = c.of.countGroup(g)
		c.sums.AddGroup(&g.counted, 1)
	}
	clear(c.changedGroups)
	st := c.sums.Stats(c.of.queues.told)
	st.Seen = c.of.seen
	return st
}

// countNode counts a node.
func (t *tables) countNode(n *node) stats.Node {
	if n.gone || !n.known || t.nodes[n.object.Name] != n {
		return stats.Node{}
	}
	out := stats.Node{There: 1, Model: stats.Model{Model: n.told.Model, GPUs: n.told.GPUs, Unhealthy: bits.OnesCount64(n.sick)}}
	if !n.closed {
		out.Open = 1
	}
	var used [64]core.Milli
	for _, p := range n.pods {
		for d := p.devices; d != 0; d &= d - 1 {
			used[bits.TrailingZeros64(d)] += p.share()
		}
	}
	free, full := true, true
	for d := range n.told.GPUs {
		out.Used += used[d]
		if rest := max(0, core.WholeGPU-used[d]); n.closed || n.sick>>d&1 == 1 {
			out.Unavailable += rest
		} else {
			out.Free += rest
		}
		free = free && used[d] == 0
		full = full && used[d] >= core.WholeGPU
	}
	if !free && !full {
		out.Fragmented = 1
	}
	return out
}

// countGroup counts a group, in the memory of its last count.
func (t *tables) countGroup(g *group) (out stats.Group) {
	out.Used = g.counted.Used[:0]
	if t.groups[g.id] != g {
		return out
	}
	var first *pod
	for _, p := range g.pods {
		first = p
		if p.state == podWaiting {
			out.Waiting++
			continue
		}
		out.Bound++
		if p.object.phase == v1.PodRunning {
			out.Running++
		}
		if n := t.nodes[p.target]; n != nil && p.devices != 0 {
			out.Use(n.told.Model, core.Milli(bits.OnesCount64(p.devices))*p.share())
		}
	}
	if first == nil {
		return out
	}
	if out.Waiting > 0 {
		out.JobWaits = 1
		if t.ours(g) {
			out.Reason = cmp.Or(g.waiting.reason, "New")
		}
	}
	if g.id.Kind == others {
		out.Queue = OthersQueue
		return out
	}
	if out.Bound > 0 {
		out.JobRuns = 1
	}
	out.Jobs = 1
	if out.Queue = g.queue; !g.submitted {
		out.Queue = t.queueOf(g, t.attributesOf(g, first))
	}
	return out
}
