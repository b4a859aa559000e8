package reproduce

import (
	"context"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// oracle notes what it is told.
type oracle struct {
	t     *testing.T
	ended []string
}

func (o *oracle) Predict(now core.Time, j *workload.Job) (core.Time, error) {
	if j.Duration != 0 {
		o.t.Errorf("%s: its run time %v is not known yet", j.Name, j.Duration)
	}
	return core.Time(len(o.ended)) * core.Second, nil
}

func (o *oracle) Ended(now core.Time, j *workload.Job, _ core.Time) error {
	o.ended = append(o.ended, j.Name)
	return nil
}

// A predictor knows what ended by the submission of a job, and nothing later.
func TestForetellDoesNotPeek(t *testing.T) {
	job := func(name string, at, takes core.Time) workload.Job {
		var j workload.Job
		j.Name, j.Submitted, j.Duration = name, at*core.Second, takes*core.Second
		return j
	}
	jobs := []workload.Job{job("a", 0, 100), job("b", 0, 10), job("c", 10, 5), job("d", 99, 1), job("e", 100, 1)}
	p, err := foretell(jobs, &oracle{t: t}, func(*workload.Job) string { return "all" })
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{0, 0, 1, 2, 4} {
		if p[i].before != want || p[i].guess != float64(want) {
			t.Errorf("%s: %d jobs had ended, predicted after %g, want %d", jobs[i].Name, p[i].before, p[i].guess, want)
		}
	}
	if n := len(recurring(p, 2)); n != 2 {
		t.Errorf("%d jobs recur, want 2", n)
	}
}

func TestErrorsOf(t *testing.T) {
	e := errorsOf([]predicted{{guess: 0, truth: 10}, {guess: 10, truth: 10}, {guess: 19, truth: 10}, {guess: 20, truth: 10}, {guess: 1, truth: 10}})
	if want := (predictionErrors{known: 0.8, below100: 0.6, twofold: 0.6, median: 0.9}); e != want {
		t.Errorf("%+v, want %+v", e, want)
	}
}

// The generated jobs are as the notes say, and the advisor finds those that recur.
func TestRecurringJobs(t *testing.T) {
	r := recurringJobs{jobs: 3000, days: 14, spread: 0.25, seed: 7}
	jobs := r.make()
	runs := map[string]int{}
	for i := range jobs {
		runs[sameRecurring(&jobs[i])]++
	}
	often := 0
	for _, n := range runs {
		if n >= 5 {
			often += n
		}
	}
	if share := float64(often) / float64(len(jobs)); share < 0.55 || share > 0.75 {
		t.Errorf("%.2f of the jobs recur at least 5 times, want about %g", share, recurringShare)
	}
	s := predictionSet{"generated", jobs, sameRecurring, 4}
	rows, err := s.rows(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if got := rows[1]; !got.Within || got.Ours < 90 {
		t.Errorf("%s: %.1f %%", got.Figure, got.Ours)
	}
}

// Where a cluster is full, orders by estimates of recurring jobs are ahead of first come, first served.
func TestStandalone(t *testing.T) {
	ctx := context.Background()
	r := recurringJobs{jobs: 400, days: 1, spread: 0.25, seed: 7}
	arms := standaloneArms(ctx)
	jct, err := runStandalone(ctx, arms, r.make(), "20x8", nil)
	if err != nil {
		t.Fatal(err)
	}
	rows := standaloneRows("generated", arms, jct)
	of := map[string]float64{}
	for _, r := range rows {
		of[r.Figure] = r.Ours
	}
	fifo, ours, exact := of["generated: mean JCT, FIFO"], of["generated: mean JCT, SchedMate"], of["generated: mean JCT, SJF, exact run times"]
	if !(0 < exact && exact < ours && ours < fifo) {
		t.Errorf("mean JCT: exact run times %.0f, SchedMate %.0f, FIFO %.0f: expected this order", exact, ours, fifo)
	}
}
