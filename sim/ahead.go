package sim

import (
	"context"

	"github.com/muster-sched/muster/workload"
)

// ahead reads jobs in a goroutine of its own, ahead of their submission.
type ahead struct {
	batch []pulled
	taken int // of the batch
	full  chan []pulled
	free  chan []pulled
	ended chan struct{} // no more are wanted
}

type pulled struct {
	job workload.Job
	err error
}

const (
	aheadJobs    = 256 // in a batch
	aheadBatches = 4
)

func readAhead(jobs workload.Jobs) *ahead {
	a := &ahead{full: make(chan []pulled, aheadBatches), free: make(chan []pulled, aheadBatches+1), ended: make(chan struct{})}
	go a.work(jobs)
	return a
}

func (a *ahead) work(jobs workload.Jobs) {
	defer close(a.full)
	var batch []pulled
	hand := func() bool {
		select {
		case a.full <- batch:
		case <-a.ended:
			return false
		}
		select {
		case batch = <-a.free:
		default:
			batch = nil
		}
		return true
	}
	for j, err := range jobs { // an error is the last
		batch = append(batch, pulled{j, err})
		if len(batch) >= aheadJobs && !hand() {
			return
		}
	}
	if len(batch) > 0 {
		hand()
	}
}

// next returns the next job, false after the last one or when the context ends.
func (a *ahead) next(ctx context.Context) (job workload.Job, more bool, err error) {
	if a.taken == len(a.batch) {
		select {
		case a.free <- a.batch[:0]:
		default:
		}
		select {
		case a.batch = <-a.full:
		case <-ctx.Done():
			a.batch = nil
		}
		if a.taken = 0; len(a.batch) == 0 {
			return workload.Job{}, false, nil
		}
	}
	p := &a.batch[a.taken]
	a.taken++
	return p.job, true, p.err
}
