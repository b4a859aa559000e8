package workload

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"

	"github.com/muster-sched/muster/core"
)

// Sia (Subramanya et al., SOSP 2023): trainings of a few applications that can run on any number of GPUs. A file has several samples of
// jobs. How fast the applications are is read from the files profile_*.csv beside it. Each job requests as many GPUs as its user
// tuned, which a policy may change.
var siaJobs = jobFormat{
	columns:  columns{required: []string{"workload", "name", "time", "application", "num_replicas", "batch_size"}},
	start:    startSia,
	unsorted: true,
}

func startSia(t *table, opt *Options) nextJob {
	apps, err := OpenElastic(filepath.Dir(t.file))
	sample := max(1, opt.Sample)
	found := false
	return func() (Job, int, error) {
		for err == nil {
			if err = t.next(); err == io.EOF && !found {
				err = &Error{File: t.file, Field: "workload", Want: fmt.Sprintf("jobs of sample %d, found none", sample)}
			}
			if err == nil && int(t.count(0, 1, 1000)) == sample {
				found = true
				j := readSiaJob(t, apps)
				if t.err != nil {
					return Job{}, t.line, t.err
				}
				return j, t.line, nil
			}
			if err == nil && t.err != nil {
				err = t.err
			}
		}
		return Job{}, t.line, err
	}
}

func readSiaJob(t *table, apps *Elastic) Job {
	const name, submit, app, gpus, batch = 1, 2, 3, 4, 5
	var j Job
	j.Name, j.Queue, j.Priority, j.Gang = string(t.name(name)), DefaultQueue, normalPriority, true
	j.Submitted = t.seconds(submit)
	j.Training = &Training{App: apps.App(string(t.name(app))), Batch: int(t.count(batch, 1, math.MaxInt32))}
	if j.Training.App == nil {
		t.wrong(app, "an application that was measured")
	}
	// Pods of the largest power of two that divides the number, up to 4: no node of Sia's clusters has fewer GPUs.
	n := t.count(gpus, 1, maxJobGPUs)
	per := min(n&-n, 4)
	j.Tasks = []core.Task{{Name: "worker", Pods: int(n / per), Request: core.Request{GPU: core.Milli(per) * core.WholeGPU}}}
	return j
}

// Samples is how many samples of jobs a file of Sia's workloads has: see [Options].Sample.
func Samples(path string) (most int, err error) {
	err = eachRow(filepath.Dir(path), strings.TrimSuffix(filepath.Base(path), ".gz"), []string{"workload"}, func(t *table) {
		most = max(most, int(t.count(0, 1, 1000)))
	})
	return most, err
}
