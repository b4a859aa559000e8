package workload

import (
	"bytes"

	"github.com/muster-sched/muster/core"
)

// Chronus (Gao et al., SoCC '21): weeks of Philly with deadlines and
// best-effort jobs. Times are minutes. Jobs are training jobs as in philly,
// their queue the virtual cluster (without the prefix vc_, so that philly's
// cluster serves them); best-effort jobs are LP of low priority. Jobs of no GPU
// are CPU-only jobs of one core. Deadlines are not read.
var chronusJobs = jobFormat{
	columns: columns{required: []string{"job_id", "user", "num_gpu", "submit_time", "duration", "best_effort"}},
	start:   rows(readChronusJob),
}

func readChronusJob(t *table, opt *Options) Job {
	const (
		job, user, gpus, submit, duration, bestEffort = 0, 1, 2, 3, 4, 5
		minute                                        = 60 * core.Second
	)
	j := trainingJob(string(t.name(job)), t.count(gpus, 0, maxJobGPUs))
	if len(j.Tasks) == 0 {
		j.Tasks = []core.Task{{Name: "worker", Pods: 1, Request: core.Request{CPUMilli: 1000}}}
	}
	if t.count(bestEffort, 0, 1) == 1 {
		j.Class, j.Priority = core.LP, lowPriority
	}
	j.Queue = opt.queue(bytes.TrimPrefix(t.text(user), []byte("vc_")))
	j.Submitted = t.time(submit, minute, "minutes")
	j.Duration = t.time(duration, minute, "minutes")
	return j
}
