package metrics

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/frag"
)

// An inventory knows what every node has and what of it is allocated, and
// keeps the sums that GAR and GFR are made of. A change costs O(GPUs changed),
// a node's coming and going O(its GPUs).
type inventory struct {
	levels int // of the topology; a node's leaf group is its domain at the last
	byName map[string]int32
	nodes  []node
	pools  map[string]*pool
	leaves map[string]int32

	// The sums over nodes that are up. A GPU is available when it is healthy
	// and its node not cordoned; allocated counts available GPUs alone, so it
	// never exceeds available.
	allocated  core.Milli
	available  int64
	fragmented int64
	gpuNodes   int64
	// tally says what becomes of idle GPUs, and why.
	tally *frag.Tally
}

// node is a node and what pods hold of it.
type node struct {
	pool *pool
	leaf int32
	up   bool
	// frag is what is idle of it, at counts where.
	frag frag.Node
	at   frag.Place
	// Of the healthy devices: what is allocated, and how many are wholly free
	// and wholly allocated.
	sum        core.Milli
	free, full int
	// shared are the devices that two jobs have whole: they count once.
	shared uint64
}

// pool is the nodes of one GPU model: the most that any of them has of each
// resource, and the most nodes that any leaf group has.
type pool struct {
	gpus     int
	cpuMilli int64
	memMiB   int64
	inLeaf   map[int32]int
	leafSize int
}

func newInventory(levels int) inventory {
	return inventory{
		levels: levels,
		byName: map[string]int32{},
		pools:  map[string]*pool{},
		leaves: map[string]int32{},
		tally:  frag.NewTally(frag.PaperShapes(), frag.PaperJobs(), levels-1),
	}
}

// set records that n exists as described, or is lost. Pods stay where they are.
func (v *inventory) set(n *core.Node, up bool) {
	i, known := v.byName[n.Name]
	if !known {
		i = v.add(n)
	}
	d := &v.nodes[i]
	v.count(d, -1)
	d.up = up
	spec := *n
	d.frag.Describe(&spec)
	d.at = v.tally.Place(&d.frag)
	d.recount()
	v.count(d, +1)
}

func (v *inventory) add(n *core.Node) int32 {
	i := int32(len(v.nodes))
	v.byName[n.Name] = i
	p := v.pools[n.Model]
	if p == nil {
		p = &pool{inLeaf: map[int32]int{}}
		v.pools[n.Model] = p
	}
	leaf := v.leaf(n)
	p.gpus = max(p.gpus, n.GPUs)
	p.cpuMilli, p.memMiB = max(p.cpuMilli, n.CPUMilli), max(p.memMiB, n.MemMiB)
	p.inLeaf[leaf]++
	p.leafSize = max(p.leafSize, p.inLeaf[leaf])
	v.nodes = append(v.nodes, node{pool: p, leaf: leaf, frag: frag.Empty(n)})
	return i
}

// leaf numbers the leaf group of n. A node with a name missing on the path to
// it is a group of its own.
func (v *inventory) leaf(n *core.Node) int32 {
	path := "node\x00" + n.Name
	if v.levels > 0 && len(n.Domains) == v.levels && !slices.Contains(n.Domains, "") {
		path = strings.Join(n.Domains, "\x00")
	}
	id, ok := v.leaves[path]
	if !ok {
		id = int32(len(v.leaves))
		v.leaves[path] = id
	}
	return id
}

func (n *node) recount() {
	n.sum, n.free, n.full = 0, 0, 0
	for d, free := range n.frag.Free {
		if n.frag.Healthy>>d&1 == 1 {
			n.tally(core.WholeGPU-free, +1)
		}
	}
}

// tally counts a healthy device of which held is allocated, or uncounts it.
func (n *node) tally(held core.Milli, sign int) {
	n.sum += core.Milli(sign) * held
	switch held {
	case 0:
		n.free += sign
	case core.WholeGPU:
		n.full += sign
	}
}

// count adds what n contributes to the sums, or takes it off.
func (v *inventory) count(n *node, sign int64) {
	if !n.up || len(n.frag.Free) == 0 {
		return
	}
	v.tally.Count(&n.frag, n.at, int(sign))
	healthy := bits.OnesCount64(n.frag.Healthy)
	v.gpuNodes += sign
	if n.free != healthy && n.full != healthy {
		v.fragmented += sign
	}
	if !n.frag.Spec.Cordoned {
		v.allocated += core.Milli(sign) * n.sum
		v.available += sign * int64(healthy)
	}
}

// hold gives p's share of its devices to a pod, or (sign -1) takes it back. It
// returns the node's index.
func (v *inventory) hold(p *core.Placement, sign int) (int32, error) {
	i, ok := v.byName[p.Node]
	if !ok {
		return 0, fmt.Errorf("pod %d: unknown node %q", p.Pod, p.Node)
	}
	n := &v.nodes[i]
	if p.GPUs>>len(n.frag.Free) != 0 {
		return 0, fmt.Errorf("pod %d: node %s has no GPU %d", p.Pod, p.Node, bits.Len64(p.GPUs)-1)
	}
	v.count(n, -1)
	gpus := n.once(p, sign)
	for rest := gpus & n.frag.Healthy; rest != 0; rest &= rest - 1 {
		held := core.WholeGPU - n.frag.Free[bits.TrailingZeros64(rest)]
		n.tally(held, -1)
		n.tally(held+core.Milli(sign)*p.GPU, +1)
	}
	n.frag.Take(gpus, p.GPU, p.CPUMilli, p.MemMiB, sign)
	v.count(n, +1)
	return i, nil
}

// once returns the devices of a pod that come into use with it (sign 1), or go out of use without it (-1): not those that
// another job has, too.
func (n *node) once(p *core.Placement, sign int) uint64 {
	if p.GPU != core.WholeGPU {
		return p.GPUs
	}
	both := p.GPUs & n.shared
	if sign > 0 {
		both = 0
		for rest := p.GPUs; rest != 0; rest &= rest - 1 {
			if d := bits.TrailingZeros64(rest); n.frag.Free[d] == 0 {
				both |= 1 << d
			}
		}
	}
	n.shared ^= both
	return p.GPUs &^ both
}

// perNode returns how many pods that ask for r the pool's largest node holds,
// at least 1.
func (p *pool) perNode(r *core.Request) int64 {
	fit := int64(1 << 62)
	switch {
	case r.GPU >= core.WholeGPU:
		fit = int64(core.Milli(p.gpus) * core.WholeGPU / r.GPU)
	case r.GPU > 0:
		fit = int64(core.WholeGPU/r.GPU) * int64(p.gpus)
	}
	if r.CPUMilli > 0 {
		fit = min(fit, p.cpuMilli/r.CPUMilli)
	}
	if r.MemMiB > 0 {
		fit = min(fit, p.memMiB/r.MemMiB)
	}
	return max(fit, 1)
}
