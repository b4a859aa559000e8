// Package estimate predicts how long a job takes, and what it uses, from finished jobs that are like it (SchedMate, §3.1,
// workload estimation). It may know nothing: then whoever asks goes on as without it.
package estimate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/muster-sched/muster/semantic/history"
)

// Estimate is what is predicted of a job.
type Estimate struct {
	Duration  Figure `json:"duration_s"` // how long it runs, without waiting
	SMUse     Figure `json:"sm_use"`     // the share (0 to 1) of its GPUs' SMs
	MemoryMiB Figure `json:"memory_mib"` // of a GPU
	// Confidence is from 0 to 1: see [From].
	Confidence float64 `json:"confidence"`
	// Weight is how much the jobs count by which the mean duration is: an earlier run of the same job 1, others less.
	Weight float64 `json:"weight,omitempty"`
	// Because has the jobs that the estimate rests on, the most similar first.
	Because []Reason `json:"because,omitempty"`
}

// Figure is a predicted number.
type Figure struct {
	// Value is the prediction: of the jobs' values the one with the least mean relative error to them all. It is below their
	// median, as an estimate that is far too high has a larger relative error than one that is far too low.
	Value float64 `json:"value,omitempty"`
	// Mean is the mean of the jobs: the paper's prediction. That of a duration is by [Options].K jobs and their weights: see [From].
	Mean float64 `json:"mean,omitempty"`
	// Low and High are the first and last decile of the jobs, of fewer than 10 jobs the least and the most of them.
	Low  float64 `json:"low,omitempty"`
	High float64 `json:"high,omitempty"`
	Jobs int     `json:"jobs,omitempty"` // on how many jobs it rests; 0 when unknown
}

// Reason is a job that an estimate rests on.
type Reason struct {
	Job   string  `json:"job"`
	Name  string  `json:"name,omitempty"`
	User  string  `json:"user,omitempty"`
	Score float64 `json:"score"`          // the cosine
	Same  bool    `json:"same,omitempty"` // it was an earlier run of the same job
	RanS  float64 `json:"ran_s"`
	// Scale is by how much more iterations the job trains.
	Scale float64   `json:"scale,omitempty"`
	Ended time.Time `json:"ended"`
}

// Known reports whether anything is predicted.
func (e *Estimate) Known() bool { return e.Duration.Jobs > 0 }

// Options say which jobs an estimate rests on.
type Options struct {
	K         int     // at most these many jobs: the mean duration is by all of them, the rest by the first 10
	Threshold float64 // with at least this cosine
	Shared    bool    // of all tenants
}

// Default is the options that muster uses: docs/history.md has figures for them.
var Default = Options{K: 100, Threshold: 0.5}

// Advisor estimates from a history.
type Advisor struct {
	History *history.History
	Options
}

// Estimate predicts a job that is submitted at job.Submit.
func (a *Advisor) Estimate(ctx context.Context, job history.Job) (Estimate, error) {
	matches, err := a.History.Similar(ctx, history.Query{Job: job, K: a.K, Threshold: a.Threshold, Shared: a.Shared})
	if err != nil {
		return Estimate{}, err
	}
	return From(&job, matches), nil
}

// mostScale bounds by how much a run time is scaled for more iterations, and for fewer.
const mostScale = 10

const (
	// nearest is how many matches the estimate rests on, but for the mean duration.
	nearest = 10
	// likeness is the power of the cosine that is a match's weight in the mean duration: of one with 0.9 it is 0.19, with 0.5 next to nothing. A mean is
	// pulled up by a few long jobs, so it needs more jobs than a median does; but not those that are less alike.
	likeness = 16
)

// From predicts a job from matches, the most similar first. A job that trains twice as many iterations as the match, of the same unit, is expected to
// take twice as long.
//
// Confidence is the mean cosine × n/(n+1) for n jobs × √(Low/High) of their durations: three equal jobs that are the same
// give 0.75, one of which the others take four times as long 0.38.
func From(job *history.Job, matches []history.Match) Estimate {
	var (
		e                Estimate
		ran, use, memory []float64
		scores           float64
	)
	total := 0.0
	for i := range matches {
		m := &matches[i]
		r := Reason{Job: m.Job.ID, Name: m.Job.Name, User: m.Job.User, Score: m.Score, Same: m.Same, RanS: m.Job.Ran.Seconds(), Ended: m.Job.End}
		takes := r.RanS
		if scale := scaleOf(job, &m.Job); scale != 1 {
			r.Scale = scale
			takes *= scale
		}
		weight := max(math.Pow(m.Score, likeness), 1e-9)
		e.Weight, total = e.Weight+weight, total+weight*takes
		if i >= nearest {
			continue
		}
		ran = append(ran, takes)
		scores += m.Score
		if m.Job.SMUse > 0 {
			use = append(use, m.Job.SMUse)
		}
		if m.Job.MemoryMiB > 0 {
			memory = append(memory, float64(m.Job.MemoryMiB))
		}
		e.Because = append(e.Because, r)
	}
	e.Duration, e.SMUse, e.MemoryMiB = figure(ran), figure(use), figure(memory)
	if n := float64(len(ran)); n > 0 {
		e.Duration.Mean = total / e.Weight
		e.Confidence = scores / n * n / (n + 1)
		if e.Duration.High > 0 {
			e.Confidence *= math.Sqrt(e.Duration.Low / e.Duration.High)
		}
	}
	return e
}

// scaleOf returns how many times the iterations of one job another trains; 1 when that is not known.
func scaleOf(job, match *history.Job) float64 {
	a, b := &job.Metadata.Training, &match.Metadata.Training
	if a.Iterations <= 0 || b.Iterations <= 0 || a.Unit != b.Unit {
		return 1
	}
	return min(mostScale, max(1.0/mostScale, float64(a.Iterations)/float64(b.Iterations)))
}

// figure sums values up.
func figure(values []float64) Figure {
	if len(values) == 0 {
		return Figure{}
	}
	slices.Sort(values)
	n, tenth := len(values), len(values)/10
	f := Figure{Low: values[tenth], High: values[n-1-tenth], Jobs: n}
	inverse := 0.0
	for _, v := range values {
		f.Mean += v / float64(n)
		inverse += 1 / max(v, 1e-9)
	}
	// The least mean of |x - v| / v is at the median of the values with the weights 1/v.
	below := 0.0
	for _, v := range values {
		f.Value = v
		if below += 1 / max(v, 1e-9); below >= inverse/2 {
			break
		}
	}
	return f
}

// Line says in a line how long the job is expected to run: the mean of the jobs, by which schedulers order.
func (e *Estimate) Line() string {
	d := &e.Duration
	return fmt.Sprintf("%s (%s to %s), confidence %.2f", seconds(d.Mean), seconds(d.Low), seconds(d.High), e.Confidence)
}

// String says what is predicted and why, in lines.
func (e *Estimate) String() string {
	if !e.Known() {
		return "unknown: no finished job is similar enough"
	}
	d := &e.Duration
	b := &strings.Builder{}
	fmt.Fprintf(b, "duration    %s (%s to %s)\n", seconds(d.Value), seconds(d.Low), seconds(d.High))
	if u := &e.SMUse; u.Jobs > 0 {
		fmt.Fprintf(b, "SM use      %.0f %% (%.0f to %.0f)\n", 100*u.Value, 100*u.Low, 100*u.High)
	}
	if m := &e.MemoryMiB; m.Jobs > 0 {
		fmt.Fprintf(b, "GPU memory  %.0f MiB (%.0f to %.0f)\n", m.Value, m.Low, m.High)
	}
	fmt.Fprintf(b, "confidence  %.2f\n", e.Confidence)
	jobs := "this job"
	if n := len(e.Because); n > 1 {
		jobs = fmt.Sprintf("these %d jobs", n)
	}
	fmt.Fprintf(b, "because of %s:", jobs)
	for i := range e.Because {
		r := &e.Because[i]
		what := fmt.Sprintf("%.0f %% alike", 100*r.Score)
		if r.Same {
			what = "an earlier run"
		}
		if r.Scale != 0 {
			what += fmt.Sprintf(", %.2g × the iterations", r.Scale)
		}
		name := r.Job
		if r.Name != "" && r.Name != r.Job {
			name += " (" + r.Name + ")"
		}
		if r.User != "" {
			name += " of " + r.User
		}
		fmt.Fprintf(b, "\n  %s: ran %s, %s", name, seconds(r.RanS), what)
	}
	return b.String()
}

// seconds writes a duration as 2h3m, or in seconds below ten minutes.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d < 10*time.Minute {
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}
