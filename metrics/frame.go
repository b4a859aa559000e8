package metrics

import (
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/frag"
)

// Frame is what nodes and queues hold at an instant.
type Frame struct {
	// Nodes has a byte for every node, in the order in which they came: how
	// many of its GPUs are allocated, in steps of 1/[Full] of them all, or
	// [Cordoned] or [Lost]. A byte is 0 when all are wholly free, and Full when
	// all are wholly allocated, alone. Nodes without GPUs have 0.
	Nodes []byte
	// Queues is what the pods of each queue hold, in the order of
	// [Collector.Queues]; queues that came later are missing.
	Queues []core.Milli
	// Idle is what becomes of idle GPUs, in the order of [Collector.Shapes].
	Idle []frag.Split
}

// History is frames of a run: the i-th is the state after all events up to i
// times the interval, but for the last, which is that at the end.
type History struct {
	Interval, End core.Time
	Frames        []Frame
	// Queues names the queues of the frames, Shapes the shapes; the latter are missing in
	// runs of older versions.
	Queues, Shapes []string
}

// At returns when the i-th frame is.
func (h *History) At(i int) core.Time {
	if i == len(h.Frames)-1 {
		return h.End
	}
	return core.Time(i) * h.Interval
}

// The bytes of [Frame.Nodes] from Full on.
const (
	Full     = 200
	Cordoned = 254
	Lost     = 255
)

// Frame returns the state after the last event. O(nodes + queues).
func (c *Collector) Frame() Frame {
	f := Frame{Nodes: make([]byte, len(c.inv.nodes)), Queues: make([]core.Milli, len(c.queues.held)), Idle: slices.Concat(c.inv.tally.Splits, c.inv.tally.Gangs)}
	copy(f.Queues, c.queues.held)
	for i := range c.inv.nodes {
		f.Nodes[i] = c.inv.nodes[i].load()
	}
	return f
}

// load returns the node's byte in a Frame.
func (n *node) load() byte {
	all := core.Milli(len(n.frag.Free)) * core.WholeGPU
	switch {
	case !n.up:
		return Lost
	case n.frag.Spec.Cordoned:
		return Cordoned
	case n.sum == 0:
		return 0
	case n.sum == all:
		return Full
	}
	return byte(min(max((n.sum*Full+all/2)/all, 1), Full-1))
}

// Queues returns the names of the queues that had jobs, in the order of their
// first ones.
func (c *Collector) Queues() []string { return c.queues.names }

// Shapes returns the shapes, and then the jobs, for which it is known what becomes of idle GPUs.
func (c *Collector) Shapes() []string { return shapes(c.inv.tally) }

func shapes(t *frag.Tally) []string {
	var names []string
	for _, sh := range t.Shapes {
		names = append(names, sh.String())
	}
	for _, j := range t.Jobs {
		names = append(names, j.String())
	}
	return names
}

// queues is what the pods of each queue hold.
type queues struct {
	byName map[string]int32
	names  []string
	held   []core.Milli
}

func (q *queues) number(name string) int32 {
	i, ok := q.byName[name]
	if !ok {
		i = int32(len(q.names))
		q.byName[name] = i
		q.names = append(q.names, name)
		q.held = append(q.held, 0)
	}
	return i
}
