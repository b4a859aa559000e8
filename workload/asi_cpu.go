package workload

import (
	"github.com/muster-sched/muster/core"
)

// The jobs without GPUs of asi-cpu. Published are two aggregates (ASI §5.2): half of the nodes use
// at most 31 % of their cores, and on 80 % of the nodes jobs without GPUs use more cores than jobs
// with GPUs. asiCPULoad, the share of all cores that jobs without GPUs request, is chosen so that
// both hold if pods without GPUs go to random nodes, and jobs with GPUs use ASIGPUJobsUse of the
// cores that they request. The rest is
// assumed: sizes and durations as of batch jobs, steady over the day, HP as the other jobs of
// production, none of them locked.
const (
	asiCPULoad = 0.26
	// ASIGPUJobsUse is the share of the cores they request that jobs with GPUs of asi-cpu use.
	ASIGPUJobsUse = 0.2
)

// asiCPUSizes are the pods and the cores of each; equally many jobs have each.
var asiCPUSizes = []struct {
	pods  int
	cores int64
}{{1, 4}, {1, 8}, {1, 16}, {4, 8}, {8, 16}, {4, 32}}

// asiCPUEntries returns the jobs without GPUs for pools.
func asiCPUEntries(pools []asiPool, o *Options) []asiEntry {
	total, each := int64(0), int64(0)
	for _, p := range pools {
		total += int64(p.nodes) * p.cores
	}
	life := logNormal{4 * hour, 1}
	for _, s := range asiCPUSizes {
		each += int64(s.pods) * s.cores
	}
	rate := or(o.CPULoad, asiCPULoad) * float64(total) / (float64(each) * life.cutMean(asiLongest.Seconds()))
	entries := make([]asiEntry, len(asiCPUSizes))
	for i, s := range asiCPUSizes {
		entries[i] = asiEntry{life: life, rate: rate, trend: steady, job: Job{Job: core.Job{
			Kind: core.Batch, Class: core.HP, Priority: normalPriority, Checkpoint: 600 * core.Second,
			Tasks: []core.Task{{Name: "cpu", Pods: s.pods, Request: core.Request{CPUMilli: s.cores * 1000, MemMiB: s.cores * (4 << 10)}}},
		}}}
	}
	return entries
}
