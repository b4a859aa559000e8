package workload

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// Acme (Hu et al., NSDI '24), the completed GPU jobs of Kalos. Jobs are HP
// training jobs in DefaultQueue, gangs where they have several nodes, with a
// pod a node; pre-training has high priority, the rest normal. A GB of
// mem_per_pod_gb is read as a GiB.
var acmeJobs = jobFormat{
	columns: columns{required: []string{"job_id", "arrival_s", "nodes", "gpus_per_node",
		"cpus_per_gpu", "duration_s", "is_pretrain", "mem_per_pod_gb"}},
	start: rows(readAcmeJob),
}

func readAcmeJob(t *table, _ *Options) Job {
	const job, arrival, nodes, perNode, cpus, duration, pretrain, mem = 0, 1, 2, 3, 4, 5, 6, 7
	var j Job
	j.Name, j.Queue, j.Priority = string(t.name(job)), DefaultQueue, normalPriority
	if t.count(pretrain, 0, 1) == 1 {
		j.Priority = highPriority
	}
	gpus := t.count(perNode, 1, cluster.MaxGPUs)
	const gib = 1 << 10 // MiB
	j.Tasks = []core.Task{{Name: "worker", Pods: int(t.count(nodes, 1, maxPods)), Request: core.Request{
		GPU:      core.Milli(gpus) * core.WholeGPU,
		CPUMilli: gpus * t.milli(cpus, maxCPUMilli/1000/cluster.MaxGPUs),
		MemMiB:   t.milli(mem, maxMemMiB/gib) * gib / 1000,
	}}}
	j.Gang = j.Tasks[0].Pods > 1
	j.Submitted = t.seconds(arrival)
	j.Duration = t.seconds(duration)
	return j
}
