package coretest

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core"
)

// What bounds of queues on running jobs and GPUs allow.

// runs adds up what the running and leaving pods of jobs of a queue and of all below it run, or those of one user there.
func (w *Twin) runs(queue string, perUser bool, user string) core.Running {
	sum := core.Running{}
	for _, j := range w.jobs {
		if j.Queue != queue && !w.under(j.Queue, queue) || perUser && j.User != user {
			continue
		}
		some := false
		for i := range j.pods {
			if p := &j.pods[i]; p.on() {
				some = true
				sum.GPU += j.Tasks[p.task].GPU
			}
		}
		if some {
			sum.Jobs++
		}
	}
	return sum
}

// bound is a bound of a queue that counts for a job, and what runs.
type bound struct {
	queue      string
	perUser    bool
	most, runs core.Running
}

// boundsOf lists the bounds that count for a job.
func (w *Twin) boundsOf(j *job) []bound {
	var out []bound
	for name := j.Queue; name != ""; name = w.queue(name).Parent {
		q := w.queue(name)
		if q.MaxRunning != (core.Running{}) {
			out = append(out, bound{name, false, q.MaxRunning, w.runs(name, false, "")})
		}
		if q.MaxRunningPerUser != (core.Running{}) {
			out = append(out, bound{name, true, q.MaxRunningPerUser, w.runs(name, true, j.User)})
		}
	}
	return out
}

// withinBounds checks, after pods of a job have started, that no bound is exceeded that the start counts
// against. first says that no pod of it ran before.
func (w *Twin) withinBounds(j *job, start []core.Placement, first bool) error {
	gpu := core.Milli(0)
	for _, at := range start {
		gpu += j.Tasks[j.pods[at.Pod].task].GPU
	}
	for _, b := range w.boundsOf(j) {
		if first && b.most.Jobs > 0 && b.runs.Jobs > b.most.Jobs || gpu > 0 && b.most.GPU > 0 && b.runs.GPU > b.most.GPU {
			return fmt.Errorf("queue %s allows %+v (for each user: %t), and %+v runs", b.queue, b.most, b.perUser, b.runs)
		}
	}
	return nil
}

// boundsAllow reports whether bounds surely let so many more pods of a task, or all that a gang lacks, start. Places that the
// engine keeps are not known here.
func (w *Twin) boundsAllow(j *job, gpu core.Milli) bool {
	first := !slices.ContainsFunc(j.pods, func(p pod) bool { return p.on() })
	for _, b := range w.boundsOf(j) {
		if first && b.most.Jobs > 0 && b.runs.Jobs >= b.most.Jobs || gpu > 0 && b.most.GPU > 0 && b.runs.GPU+gpu > b.most.GPU {
			return false
		}
	}
	return true
}
