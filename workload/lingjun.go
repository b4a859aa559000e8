package workload

import (
	"slices"

	"github.com/muster-sched/muster/core"
)

// Alibaba Lingjun 2023, the LLM training cluster of Crux (Cao et al., SIGCOMM
// '24). Jobs are HP training jobs in DefaultQueue, gangs of whole nodes of 8
// GPUs and one pod for the remainder. The topology is the real one: superspine
// DSW, spine PSW, leaf ASW. ASW names repeat under different PSWs and mean
// different switches, so the leaf groups are smaller than the names suggest.
var (
	lingjunJobs = jobFormat{
		columns: columns{required: []string{"job_id", "arrival_s", "gpus", "duration_s"}},
		start:   rows(readLingjunJob),
	}
	lingjunCluster = clusterFormat{
		columns: columns{required: []string{"host", "DSW", "PSW", "ASW"}},
		read:    readLingjunCluster,
	}
)

func readLingjunJob(t *table, _ *Options) Job {
	const job, arrival, gpus, duration = 0, 1, 2, 3
	j := trainingJob(string(t.name(job)), t.count(gpus, 1, maxJobGPUs))
	j.Submitted = t.seconds(arrival)
	j.Duration = t.seconds(duration)
	return j
}

func readLingjunCluster(t *table, _ *Options) (Cluster, error) {
	const host, dsw, psw, asw = 0, 1, 2, 3
	nodes, err := readNodes(t, func() core.Node {
		n := core.Node{
			Name:    string(t.name(host)),
			GPUs:    gpusPerNode,
			Model:   unknownModel,
			Domains: []string{string(t.name(dsw)), string(t.name(psw)), string(t.name(asw))},
		}
		sizeNode(&n)
		return n
	})
	return Cluster{Levels: slices.Clone(levels), Nodes: nodes}, err
}
