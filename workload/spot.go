package workload

import (
	"fmt"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// The Alibaba spot-GPU fleet (GFS, ASPLOS '26): nodes only. CPU is the number of vCPUs,
// memory is 256 GiB per GPU, and the topology is generated.
var spotCluster = clusterFormat{
	columns: columns{required: []string{"gpu_model", "gpu_capacity_num", "cpu_num", "node_name"}},
	read:    readSpotCluster,
}

func readSpotCluster(t *table, opt *Options) (Cluster, error) {
	const model, gpus, cpus, name = 0, 1, 2, 3
	nodes, err := readNodes(t, func() core.Node {
		n := core.Node{
			Name:     fmt.Sprintf("node-%s", t.name(name)),
			GPUs:     int(t.count(gpus, 0, cluster.MaxGPUs)),
			CPUMilli: t.count(cpus, 0, maxCPUMilli/1000) * 1000,
		}
		n.Model = t.model(model, n.GPUs)
		sizeNode(&n)
		return n
	})
	if err != nil {
		return Cluster{}, err
	}
	return addTopology(nodes, opt), nil
}
