// Package advisor predicts the run times of simulated jobs from those that ended before: by what jobs have in common
// (SchedMate, §3.1), and, to compare with, as the predictors of other schedulers do.
package advisor

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/runlog"
	"github.com/muster-sched/muster/semantic/estimate"
	"github.com/muster-sched/muster/semantic/history"
	"github.com/muster-sched/muster/workload"
)

// Names lists the predictors, for help texts.
var Names = []string{"history", "rolling", "user-mean"}

// History predicts from a history of finished jobs, to which it adds those that end.
type History struct {
	known   *history.History // in memory: what was kept, and what has ended since
	kept    *history.History // nil if nothing is kept
	options estimate.Options
	begin   time.Time // of the virtual time
	untold  []history.Job
	predict bool
	typical mean // what jobs took that ended here
}

// batch is after how many jobs the kept history receives them.
const batch = 500

// NewHistory returns a predictor that knows the jobs of kept, which may be nil, and adds to it the jobs that end. The virtual
// time begins when the last of them has ended. Without predict it predicts nothing, and only adds.
func NewHistory(ctx context.Context, kept *history.History, o estimate.Options, predict bool) (*History, error) {
	known, err := history.Open(ctx, "memory:", history.Options{})
	if err != nil {
		return nil, err
	}
	a := &History{known: known, kept: kept, options: o, begin: time.Unix(0, 0).UTC(), predict: predict}
	if kept == nil {
		return a, nil
	}
	jobs, err := kept.Jobs(ctx)
	if err == nil {
		a.begin, err = lastEnd(ctx, kept)
	}
	if err == nil {
		err = known.Append(ctx, jobs...)
	}
	return a, err
}

// Predict returns what jobs that are like j took; if there is none, what all jobs took so far: SJF would start a job
// of which it knows nothing before all others.
func (a *History) Predict(now core.Time, j *workload.Job) (core.Time, error) {
	if !a.predict {
		return 0, nil
	}
	e, err := a.Estimate(now, j)
	switch {
	case err != nil:
		return 0, err
	case e.Known():
		return seconds(e.Duration.Mean), nil
	case j.Estimate > 0:
		return 0, nil // the workload knows better
	}
	return seconds(a.typical.value()), nil
}

// Estimate returns all that is predicted of a job that is submitted now.
func (a *History) Estimate(now core.Time, j *workload.Job) (estimate.Estimate, error) {
	job := a.job(j)
	job.Submit = a.at(now)
	return (&estimate.Advisor{History: a.known, Options: a.options}).Estimate(context.Background(), job)
}

// Ended adds a job.
func (a *History) Ended(now core.Time, j *workload.Job, started core.Time) error {
	job := a.job(j)
	job.End, job.Ran = a.at(now), time.Duration(j.Duration)
	if started >= 0 {
		job.Start = a.at(started)
	}
	job.Outcome = history.Outcome(j.Outcome.String())
	if job.Outcome == history.Completed {
		a.typical.add(j.Duration.Seconds())
	}
	if a.kept != nil {
		if a.untold = append(a.untold, job); len(a.untold) >= batch {
			if err := a.flush(); err != nil {
				return err
			}
		}
	}
	return a.known.Append(context.Background(), job)
}

// Close adds what is left to the history that is kept, which stays open.
func (a *History) Close() error { return errors.Join(a.flush(), a.known.Close()) }

func (a *History) flush() error {
	if len(a.untold) == 0 {
		return nil
	}
	err := a.kept.Append(context.Background(), a.untold...)
	a.untold = nil
	return err
}

func (a *History) at(t core.Time) time.Time { return a.begin.Add(time.Duration(t)) }

// job returns what is known of a job when it is submitted.
func (a *History) job(j *workload.Job) history.Job {
	job := described(j.Name, a.begin, j.Kind.String(), j.Pods(), int(j.Priority))
	job.User, job.Tenant, job.Submit = j.User, j.Queue, a.at(j.Submitted)
	job.GPUs, job.Model = gpus(j.GPUs()), modelsOf(&j.Job)
	return job
}

// described returns what simulated jobs have in common. The ID also has when the virtual time began, as another run may have a
// job of the same name.
func described(name string, begin time.Time, kind string, pods, priority int) history.Job {
	job := history.Job{ID: name, Name: name, Labels: map[string]string{"kind": kind}}
	if begin.Unix() > 0 {
		job.ID += "@" + strconv.FormatInt(begin.Unix(), 10)
	}
	if pods > 1 {
		job.Labels["pods"] = strconv.Itoa(pods)
	}
	if priority != 0 {
		job.Labels["priority"] = strconv.Itoa(priority)
	}
	return job
}

func gpus(m core.Milli) float64 { return float64(m) / float64(core.WholeGPU) }

// Import adds jobs of a run to a history, and returns how many. The run's time 0 is when the last job that the history knows has
// ended.
func Import(ctx context.Context, h *history.History, jobs []runlog.EndedJob) (int, error) {
	begin, err := lastEnd(ctx, h)
	if err != nil {
		return 0, err
	}
	at := func(t core.Time) time.Time { return begin.Add(time.Duration(t)) }
	var all []history.Job
	for i := range jobs {
		j := &jobs[i]
		job := described(j.Job, begin, j.Kind, j.Pods, j.Priority)
		job.User, job.Tenant, job.GPUs, job.Outcome = j.User, j.Queue, gpus(j.GPUs), history.Outcome(j.Outcome)
		job.Submit, job.Start, job.End = at(j.Submitted), at(j.Started), at(j.End)
		job.Ran = time.Duration(max(0, j.End-j.Submitted-j.Queued))
		all = append(all, job)
	}
	return len(all), h.Append(ctx, all...)
}

// lastEnd returns when the last job of a history ended, 1970 if there is none.
func lastEnd(ctx context.Context, h *history.History) (time.Time, error) {
	jobs, err := h.Jobs(ctx)
	if err != nil || len(jobs) == 0 {
		return time.Unix(0, 0).UTC(), err
	}
	return jobs[len(jobs)-1].End, nil
}

func seconds(s float64) core.Time { return core.Time(s * float64(core.Second)) }

// mean is a running mean.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(x float64) { m.sum, m.n = m.sum+x, m.n+1 }

func (m *mean) value() float64 {
	if m.n == 0 {
		return 0
	}
	return m.sum / float64(m.n)
}
