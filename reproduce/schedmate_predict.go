package reproduce

import (
	"cmp"
	"container/heap"
	"math"
	"slices"

	"github.com/muster-sched/muster/advisor"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// predicted is what a predictor said of a job, in seconds; 0 if it knew nothing.
type predicted struct {
	guess, truth float64
	before       int // how many runs of the same job had ended
}

// foretell asks a predictor for each job when it is submitted, and reports each job when it has ended: at the earliest, the
// moment at which it would end had it started at once. So the predictor knows more than it would in a cluster with a queue.
// same says of which jobs another is a run.
func foretell(jobs []workload.Job, by sim.Advisor, same func(*workload.Job) string) ([]predicted, error) {
	var (
		all  []predicted
		live endings
		runs = map[string]int{}
	)
	for i := range jobs {
		j := &jobs[i]
		for len(live) > 0 && live[0].end <= j.Submitted {
			e := heap.Pop(&live).(ending)
			runs[same(e.job)]++
			if err := by.Ended(e.end, e.job, e.job.Submitted); err != nil {
				return nil, err
			}
		}
		known := *j
		known.Duration, known.Estimate = 0, 0
		guess, err := by.Predict(j.Submitted, &known)
		if err != nil {
			return nil, err
		}
		all = append(all, predicted{guess.Seconds(), j.Duration.Seconds(), runs[same(j)]})
		heap.Push(&live, ending{j.Submitted + j.Duration, i, j})
	}
	return all, nil
}

// recurring returns the predictions of jobs of which at least so many runs had ended.
func recurring(all []predicted, runs int) []predicted {
	var of []predicted
	for _, p := range all {
		if p.before >= runs {
			of = append(of, p)
		}
	}
	return of
}

// leastError predicts the value with the least mean relative error, not the mean, by which jobs are ordered.
type leastError struct{ *advisor.History }

// Predict returns what muster advise shows.
func (a leastError) Predict(now core.Time, j *workload.Job) (core.Time, error) {
	e, err := a.Estimate(now, j)
	return core.Time(e.Duration.Value * float64(core.Second)), err
}

// ending is a job that runs; endings is a heap of them, by end and then by submission.
type ending struct {
	end    core.Time
	number int
	job    *workload.Job
}

type endings []ending

func (e endings) Len() int { return len(e) }

func (e endings) Less(a, b int) bool {
	return cmp.Or(cmp.Compare(e[a].end, e[b].end), cmp.Compare(e[a].number, e[b].number)) < 0
}

func (e endings) Swap(a, b int) { e[a], e[b] = e[b], e[a] }

func (e *endings) Push(x any) { *e = append(*e, x.(ending)) }

func (e *endings) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

// predictionErrors are how far predictions are off.
type predictionErrors struct {
	known    float64 // the share of jobs of which something was predicted
	below100 float64 // the share of all jobs with a relative error below 100 %; jobs without a prediction count as not
	twofold  float64 // the share of all jobs of which the prediction is from half to double of the truth
	median   float64 // of the relative error of those that were predicted
}

func errorsOf(all []predicted) predictionErrors {
	var (
		e     predictionErrors
		known []float64
	)
	n := float64(len(all))
	for _, p := range all {
		if p.guess <= 0 {
			continue
		}
		truth := max(1, p.truth)
		off := math.Abs(p.guess-truth) / truth
		known = append(known, off)
		if off < 1 {
			e.below100++
		}
		if p.guess >= truth/2 && p.guess <= 2*truth {
			e.twofold++
		}
	}
	slices.Sort(known)
	if len(known) > 0 {
		e.median = known[len(known)/2]
	}
	e.known, e.below100, e.twofold = float64(len(known))/n, e.below100/n, e.twofold/n
	return e
}
