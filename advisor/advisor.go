// Package advisor predicts the run times of simulated jobs from those that ended before: by what jobs have in common
// (SchedMate, §3.1), and, to compare with, as the predictors of other schedulers do.
package advisor

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/runlog"
	"github.com/muster-sched/muster/semantic/estimate"
	"github.com/muster-sched/muster/semantic/history"
	"github.com/muster-sched/muster/semantic/metadata"
	"github.com/muster-sched/muster/workload"
)

// Names lists the predictors, for help texts.
var Names = []string{"history", "rolling", "user-mean"}

// History predicts from a history of finished jobs, and of those that end in the run.
type History struct {
	known   *history.History // in memory: what was kept, and what has ended since
	kept    *history.History // nil if nothing is kept
	options estimate.Options
	begin   time.Time // of the virtual time
	untold  []history.Job
	predict bool
	typical mean // what all jobs took that completed
	// Code, if set, returns what was read in the code of a job that is submitted.
	Code func(*workload.Job) metadata.Job
}

// NewHistory returns a predictor that knows the jobs of kept, which may be nil. [History.Keep] adds to it the jobs that ended. The
// virtual time begins when the last of them has ended. Without predict it predicts nothing, and only adds.
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
	if err != nil {
		return a, err
	}
	a.begin = lastEnd(jobs)
	jobs = slices.DeleteFunc(jobs, func(j history.Job) bool { return j.Check() != nil }) // of older versions, which refused less
	for i := range jobs {
		if jobs[i].Outcome == history.Completed {
			a.typical.add(jobs[i].Ran.Seconds())
		}
	}
	return a, known.Append(ctx, jobs...)
}

// anyWeight is the weight of what all jobs took on average, beside the jobs that are like one: half of that of an earlier run. So an estimate is far from that
// only if several jobs say so, or some that are much alike.
const anyWeight = 0.5

// Predict returns what jobs that are like j took, and a little of what all jobs took so far; if there is none, what all took: SJF would start a job
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
		return seconds((e.Weight*e.Duration.Mean + anyWeight*a.typical.value()) / (e.Weight + anyWeight)), nil
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
		a.untold = append(a.untold, job)
	}
	return a.known.Append(context.Background(), job)
}

// Keep adds the jobs that ended to the history that is kept: all of them, or none. Jobs of a run that failed are not worth keeping.
func (a *History) Keep(ctx context.Context) error {
	if a.kept == nil {
		return nil
	}
	jobs := a.untold
	a.untold = nil
	return a.kept.Append(ctx, jobs...)
}

// Close frees what the predictor holds. The history that is kept stays open.
func (a *History) Close() error { return a.known.Close() }

func (a *History) at(t core.Time) time.Time { return a.begin.Add(time.Duration(t)) }

// job returns what is known of a job when it is submitted.
func (a *History) job(j *workload.Job) history.Job {
	job := described(j.Name, a.begin, j.Kind.String(), j.Pods(), int(j.Priority))
	job.User, job.Tenant, job.Submit = j.User, j.Queue, a.at(j.Submitted)
	job.GPUs, job.Model = gpus(j.GPUs()), modelsOf(&j.Job)
	if a.Code != nil {
		job.Metadata = a.Code(j)
	}
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

// OfRun returns the jobs of a run as a history keeps them that knows other jobs. The run's time 0 is when the last of these has ended.
// It returns none if the history knows the run: if all its jobs are there, and as far apart.
func OfRun(run []runlog.EndedJob, known []history.Job) []history.Job {
	byName := map[string][]*history.Job{}
	for i := range known {
		byName[known[i].Name] = append(byName[known[i].Name], &known[i])
	}
	if len(run) > 0 {
		first := ofRun(&run[0], time.Unix(0, 0))
		for _, k := range byName[first.Name] {
			if isAt(run, k.End.Add(-time.Duration(run[0].End)), byName) {
				return nil
			}
		}
	}
	begin := lastEnd(known)
	var all []history.Job
	for i := range run {
		all = append(all, ofRun(&run[i], begin))
	}
	return all
}

// isAt reports whether all jobs of a run that began at a time are among others, which are sorted by their names.
func isAt(run []runlog.EndedJob, begin time.Time, byName map[string][]*history.Job) bool {
	for i := range run {
		j := ofRun(&run[i], begin)
		if !slices.ContainsFunc(byName[j.Name], func(k *history.Job) bool {
			return k.User == j.User && k.Tenant == j.Tenant && k.GPUs == j.GPUs && k.Outcome == j.Outcome && k.Ran == j.Ran && k.Submit.Equal(j.Submit) && k.Start.Equal(j.Start) && k.End.Equal(j.End)
		}) {
			return false
		}
	}
	return true
}

// ofRun returns a job of a run that began at a time.
func ofRun(j *runlog.EndedJob, begin time.Time) history.Job {
	at := func(t core.Time) time.Time { return begin.Add(time.Duration(t)) }
	job := described(j.Job, begin, j.Kind, j.Pods, j.Priority)
	job.User, job.Tenant, job.GPUs, job.Outcome = j.User, j.Queue, gpus(j.GPUs), history.Outcome(j.Outcome)
	job.Submit, job.Start, job.End = at(j.Submitted), at(j.Started), at(j.End)
	job.Ran = time.Duration(max(0, j.End-j.Submitted-j.Queued))
	return job
}

// lastEnd returns when the last of some jobs ended, 1970 if there is none.
func lastEnd(jobs []history.Job) time.Time {
	last := time.Unix(0, 0).UTC()
	for i := range jobs {
		if jobs[i].End.After(last) {
			last = jobs[i].End
		}
	}
	return last
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
