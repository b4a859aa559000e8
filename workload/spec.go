package workload

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// maxNodes bounds generated clusters.
const maxNodes = 200_000

// isSpec reports whether a cluster's name has the form that [ParseSpec] reads:
// it begins with digits, an x and a digit. (A file of such a name is ./NAME.)
func isSpec(name string) bool {
	digits := func(s string) string { return strings.TrimLeft(s, "0123456789") }
	rest := digits(name)
	return rest != name && strings.HasPrefix(rest, "x") && digits(rest[1:]) != rest[1:]
}

// ParseSpec returns the cluster that a specification NODESxGPUS[:MODEL],… describes:
// "108x8" is 108 nodes of 8 GPUs, "64x8:H800,32x4:A10" a mixed cluster. Nodes have 24
// cores and 256 GiB per GPU (96 cores and 512 GiB without GPUs). The options determine
// the topology. Errors are of type *[Error].
func ParseSpec(spec string, opt Options) (Cluster, error) {
	var nodes []core.Node
	for part := range strings.SplitSeq(spec, ",") {
		size, model, _ := strings.Cut(part, ":")
		count, gpus, _ := strings.Cut(size, "x")
		n, err1 := strconv.Atoi(count)
		g, err2 := strconv.Atoi(gpus)
		switch {
		case err1 != nil || err2 != nil || n < 1 || len(nodes)+n > maxNodes || g < 0 || g > cluster.MaxGPUs:
			return Cluster{}, &Error{File: spec, Want: fmt.Sprintf("NODESxGPUS[:MODEL],… with at most %d nodes in all and %d GPUs a node, found %q",
				maxNodes, cluster.MaxGPUs, part)}
		case !validModel(model) || g == 0 && model != "":
			return Cluster{}, &Error{File: spec, Want: fmt.Sprintf("a GPU model after the colon of nodes with GPUs, found %q", part)}
		case g > 0 && model == "":
			model = unknownModel
		}
		nodes = appendNodes(nodes, n, core.Node{GPUs: g, Model: model})
	}
	return addTopology(nodes, &opt), nil
}

// appendNodes appends n nodes like the given one, with default CPU and memory where it
// has none. Their names are their positions.
func appendNodes(nodes []core.Node, n int, like core.Node) []core.Node {
	sizeNode(&like)
	for range n {
		like.Name = fmt.Sprintf("node-%05d", len(nodes))
		nodes = append(nodes, like)
	}
	return nodes
}

// validModel reports whether a GPU model, or an empty one, can be written to
// Muster's files, and is one.
func validModel(model string) bool {
	return printable(model) && !strings.ContainsAny(model, "|") && cluster.CheckModel(model) == nil
}
