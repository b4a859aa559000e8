package runlog

import (
	"path/filepath"

	"github.com/muster-sched/muster/core"
)

// EndedJob is a job of a run that ended by itself, as jobs.csv has it.
type EndedJob struct {
	Job, Queue, User, Kind string
	Priority               int
	Pods                   int
	GPUs                   core.Milli
	Submitted, End         core.Time
	Started                core.Time // when it first ran whole
	Queued                 core.Time // all its waiting
	Outcome                string    // completed, failed or cancelled
}

// ReadJobs returns the jobs of a run folder that ended by themselves, in the order of their ends. The error is bad input when
// dir is not a run folder.
func ReadJobs(dir string) ([]EndedJob, error) {
	var jobs []EndedJob
	err := eachRow(filepath.Join(dir, Jobs), jobsHeader, func(f *fields) {
		j := EndedJob{Job: f.text(), Queue: f.text(), Kind: f.text()}
		f.text() // class
		j.Priority = int(f.int())
		f.text() // gang
		j.Pods, j.GPUs, j.Submitted = int(f.int()), f.gpus(), f.time()
		started := f.row[f.next] != "" && f.row[f.next+1] != ""
		if !started {
			return // it did not start, or has not ended
		}
		j.Started, j.End = f.time(), f.time()
		f.text() // wait_s
		j.Queued = f.time()
		j.User, j.Outcome = f.row[len(f.row)-1], f.row[len(f.row)-2]
		if j.Outcome != "rejected" {
			jobs = append(jobs, j)
		}
	})
	return jobs, err
}
