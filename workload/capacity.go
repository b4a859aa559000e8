package workload

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
)

// Capacity knows what the empty nodes of a cluster can hold, so that jobs that could
// never run there are refused at once.
type Capacity struct {
	// shapes holds, by GPU model ("" for nodes without GPUs) and for all nodes
	// together, the node sizes that no other size exceeds in every respect.
	shapes map[string][]shape
	all    []shape
	queues map[string]bool
	levels []string
}

// podSize is the field of the error about a pod that no node could hold.
const podSize = "pod size"

// shape is the size of a node.
type shape struct {
	gpus             core.Milli
	cpuMilli, memMiB int64
}

func (s shape) holds(o shape) bool {
	return s.gpus >= o.gpus && s.cpuMilli >= o.cpuMilli && s.memMiB >= o.memMiB
}

// NewCapacity returns the capacity of a cluster.
func NewCapacity(c *Cluster) *Capacity {
	k := &Capacity{
		shapes: make(map[string][]shape),
		queues: make(map[string]bool, len(c.Queues)),
		levels: append([]string{"node", "hbd"}, c.Levels...),
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		s := shape{core.Milli(n.GPUs) * core.WholeGPU, n.CPUMilli, n.MemMiB}
		k.shapes[n.Model] = addShape(k.shapes[n.Model], s)
	}
	for _, shapes := range k.shapes {
		for _, s := range shapes {
			k.all = addShape(k.all, s)
		}
	}
	for i := range c.Queues {
		k.queues[c.Queues[i].Name] = true
	}
	return k
}

// addShape adds s to shapes and keeps only those that no other shape covers.
func addShape(shapes []shape, s shape) []shape {
	if slices.ContainsFunc(shapes, func(o shape) bool { return o.holds(s) }) {
		return shapes
	}
	return append(slices.DeleteFunc(shapes, s.holds), s)
}

// Check returns an *[Error], without file and line, if the job names a GPU model,
// topology level or (in a cluster with queues) queue that the cluster does not have, or
// has a pod that no node could hold if it were empty. It ignores labels and taints. It
// costs O(tasks) for clusters of few node sizes.
func (c *Capacity) Check(j *core.Job) error {
	if len(c.queues) > 0 && !c.queues[j.Queue] {
		return &Error{Field: "queue", Want: fmt.Sprintf("a queue of the cluster, found %q", j.Queue)}
	}
	for _, level := range []string{j.Topology.Required, j.Topology.Preferred} {
		if level != "" && !slices.Contains(c.levels, level) {
			return c.noLevel("topology", level)
		}
	}
	for i := range j.Tasks {
		for _, t := range j.Tasks[i].Affinity {
			if !slices.Contains(c.levels, t.Level) {
				return c.noLevel("affinity", t.Level)
			}
		}
		if err := c.checkRequest(&j.Tasks[i].Request); err != nil {
			return err
		}
	}
	return nil
}

func (c *Capacity) noLevel(field, found string) error {
	return &Error{Field: field, Want: fmt.Sprintf("a level of the cluster (%s), found %q", strings.Join(c.levels, ", "), found)}
}

func (c *Capacity) checkRequest(r *core.Request) error {
	want := shape{r.GPU, r.CPUMilli, r.MemMiB}
	fits := len(r.Models) == 0 && slices.ContainsFunc(c.all, func(s shape) bool { return s.holds(want) })
	for _, model := range r.Models {
		shapes, ok := c.shapes[model]
		if !ok || model == "" {
			return &Error{Field: "gpu_models", Want: fmt.Sprintf("GPU models of the cluster, found %q", model)}
		}
		fits = fits || slices.ContainsFunc(shapes, func(s shape) bool { return s.holds(want) })
	}
	if !fits {
		return &Error{Field: podSize, Want: fmt.Sprintf("a pod that an empty node can hold, found %v GPUs, %d milli-cores, %d MiB",
			float64(r.GPU)/float64(core.WholeGPU), r.CPUMilli, r.MemMiB)}
	}
	return nil
}
