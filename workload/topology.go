package workload

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core"
)

// levels are the topology levels of every cluster of this package, widest first. Clusters
// from files have those levels for which the file has values.
var levels = []string{"superspine", "spine", "leaf"}

// Defaults of generated topologies.
const (
	leafSize       = 32
	spineSize      = 16
	superspineSize = 16
)

// Defaults of nodes whose CPU and memory are not known, large enough that GPUs are the
// scarce resource.
const (
	cpuMilliPerGPU = 24_000
	memMiBPerGPU   = 256 << 10
	cpuNodeMilli   = 96_000
	cpuNodeMiB     = 512 << 10
)

// unknownModel is the GPU model of nodes whose model is not known.
const unknownModel = "GPU"

// sizeNode gives a node the default CPU and memory for its GPUs where it has
// none.
func sizeNode(n *core.Node) {
	cpu, mem := int64(n.GPUs)*cpuMilliPerGPU, int64(n.GPUs)*memMiBPerGPU
	if n.GPUs == 0 {
		cpu, mem = cpuNodeMilli, cpuNodeMiB
	}
	if n.CPUMilli == 0 {
		n.CPUMilli = cpu
	}
	if n.MemMiB == 0 {
		n.MemMiB = mem
	}
}

// addTopology gives nodes without one a topology: leaf groups of nodes of one
// GPU model, in the nodes' order (models in the order of their first node),
// then spines of consecutive leaf groups and superspines of consecutive spines.
func addTopology(nodes []core.Node, opt *Options) Cluster {
	perLeaf, perSpine := opt.LeafSize, opt.SpineSize
	if perLeaf <= 0 {
		perLeaf = leafSize
	}
	if perSpine <= 0 {
		perSpine = spineSize
	}
	leaf := 0
	for _, pool := range pools(nodes) {
		for i, n := range pool {
			if i > 0 && i%perLeaf == 0 {
				leaf++
			}
			nodes[n].Domains = domains(leaf, perSpine)
		}
		leaf++
	}
	return Cluster{Levels: slices.Clone(levels), Nodes: nodes}
}

// domains returns the topology domains, widest first, of a node in a leaf group.
func domains(leaf, perSpine int) []string {
	spine := leaf / perSpine
	return []string{
		fmt.Sprintf("superspine-%d", spine/superspineSize),
		fmt.Sprintf("spine-%d", spine),
		fmt.Sprintf("leaf-%d", leaf),
	}
}

// pools returns the indices of the nodes of each GPU model.
func pools(nodes []core.Node) [][]int {
	var all [][]int
	number := make(map[string]int)
	for i := range nodes {
		p, ok := number[nodes[i].Model]
		if !ok {
			p = len(all)
			number[nodes[i].Model] = p
			all = append(all, nil)
		}
		all[p] = append(all[p], i)
	}
	return all
}
