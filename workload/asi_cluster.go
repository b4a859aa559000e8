package workload

import (
	"fmt"
	"math"
	"slices"

	"github.com/muster-sched/muster/core"
)

// asiPool is the nodes of one GPU model of the cluster asi.
type asiPool struct {
	model string
	nodes int
	gpus  int // of a node
	cores int64
	// leaf is the maximum number of nodes of a leaf group (ASW).
	leaf int
	// hp and all are the shares of the pool's GPU-time that HP jobs and all jobs request,
	// in per cent. alike is the second model of the few jobs that accept two.
	hp, all float64
	alike   string
}

// asiFleet is the cluster of document 000 (ASI). Published are its totals, 37,707 nodes
// and 155,410 GPUs, the names of the 12 models, leaf groups of 32–64 nodes of one model,
// that an H20 or XPU-A node has 8 GPUs, an H20 node 192 cores, an A10 node one GPU and
// 128 cores; of what is asked for, that HP jobs hold 68 % of all GPUs and all jobs 93 %,
// that 83 % and 85 % of what A10 and L20 run is HP, that LP prefers models such as the
// H800, and that HP requests XPU-A much less than other models. The number of nodes of
// each model is assumed (figure 4 only draws it): A10 nodes, the older ones, are as
// common as in the fleet of GFS (ASPLOS 2026), and with 8 GPUs in every other large node
// the 4-GPU nodes and the pairs make the totals come out. So are the cores of other nodes
// (A100 and H800 as in GFS), the sizes of leaf groups within 32–64, and the columns hp
// and all beyond the figures above.
var asiFleet = []asiPool{
	{"H20", 5000, 8, 192, 64, 69.7, 94.2, "H800"},
	{"H800", 1500, 8, 192, 36, 57, 95, "H20"},
	{"A10", 20004, 1, 128, 64, 77, 92.8, "A30"},
	{"A30", 703, 2, 64, 64, 75, 90, "A10"},
	{"A100", 1800, 8, 128, 48, 70, 94, "A800"},
	{"A800", 1000, 8, 128, 48, 70, 94, "A100"},
	{"L20", 2400, 8, 192, 64, 80, 94.1, "A30"},
	{"XPU-A", 3000, 8, 192, 40, 46, 88, "H20"},
	{"XPU-B", 1000, 8, 192, 40, 76, 94, "XPU-C"},
	{"XPU-C", 500, 8, 128, 40, 76, 94, "XPU-B"},
	{"XPU-D", 300, 8, 128, 40, 76, 94, "XPU-C"},
	{"XPU-E", 500, 4, 96, 64, 74, 92, "XPU-D"},
}

const (
	// asiDepartments have a queue each. Their number is published; their demand, in
	// proportion to 1, 1/2, 1/3…, is assumed.
	asiDepartments = 81
	// asiNodeMiB is the memory of a node per core, and asiPodMiB the memory that a pod
	// requests per core. Both are assumed: memory never runs out first.
	asiNodeMiB = 8 << 10
	asiPodMiB  = 6 << 10
)

// asiPools returns the fleet for a cluster of about this number of GPUs: exactly the
// published fleet for the published number, otherwise in proportion, with at least one
// node of each model.
func asiPools(gpus int) []asiPool {
	pools := slices.Clone(asiFleet)
	usual := asiGPUs(pools)
	for i := range pools {
		p := &pools[i]
		p.nodes = max(1, int(math.Round(float64(p.nodes)*float64(gpus)/float64(usual))))
	}
	return pools
}

// asiGPUs returns the number of GPUs of pools.
func asiGPUs(pools []asiPool) int {
	n := 0
	for _, p := range pools {
		n += p.nodes * p.gpus
	}
	return n
}

func asiCluster(o *Options) Cluster {
	pools := asiPools(or(o.GPUs, asiGPUs(asiFleet)))
	c := Cluster{Levels: slices.Clone(levels)}
	leaf := 0
	for _, p := range pools {
		from := len(c.Nodes)
		c.Nodes = appendNodes(c.Nodes, p.nodes, core.Node{
			GPUs: p.gpus, Model: p.model, CPUMilli: p.cores * 1000, MemMiB: p.cores * asiNodeMiB,
		})
		leaves := p.leaves(o)
		for i := range p.nodes {
			c.Nodes[from+i].Domains = domains(leaf+i*leaves/p.nodes, or(o.SpineSize, spineSize))
		}
		leaf += leaves
	}
	for d := range asiDepartments {
		c.Queues = append(c.Queues, core.Queue{Name: asiQueue(d), Weight: 1})
	}
	return c
}

// leaves returns the number of leaf groups of a pool. The groups are as equal as
// possible.
func (p *asiPool) leaves(o *Options) int {
	most := or(o.LeafSize, p.leaf)
	return (p.nodes + most - 1) / most
}

// asiQueue returns the name of a department's queue.
func asiQueue(i int) string { return fmt.Sprintf("dept-%02d", i) }
