package advisor

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/runlog"
	"github.com/muster-sched/muster/semantic/estimate"
	"github.com/muster-sched/muster/semantic/history"
	"github.com/muster-sched/muster/semantic/metadata"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// job is a job of a user's on GPUs that takes seconds.
func job(name, user string, gpus core.Milli, takes int) *workload.Job {
	var j workload.Job
	j.Name, j.User, j.Queue = name, user, "lab"
	j.Tasks = []core.Task{{Name: "worker", Pods: 1, Request: core.Request{GPU: gpus * core.WholeGPU}}}
	j.Duration = core.Time(takes) * core.Second
	return &j
}

// expect asks for the prediction of a job, in seconds.
func expect(t *testing.T, a sim.Advisor, now int, j *workload.Job, want float64) {
	t.Helper()
	got, err := a.Predict(core.Time(now)*core.Second, j)
	if err != nil || got.Seconds() != want {
		t.Errorf("%s of %s: %g s, %v, want %g", j.Name, j.User, got.Seconds(), err, want)
	}
}

func end(t *testing.T, a sim.Advisor, now int, j *workload.Job) {
	t.Helper()
	if err := a.Ended(core.Time(now)*core.Second, j, 0); err != nil {
		t.Fatal(err)
	}
}

func TestUserMean(t *testing.T) {
	a := &UserMean{}
	expect(t, a, 0, job("x", "ann", 1, 0), 0)
	end(t, a, 1, job("x-1", "ann", 1, 100))
	end(t, a, 2, job("x-2", "ann", 8, 300))
	expect(t, a, 3, job("y", "ann", 2, 0), 200)
	expect(t, a, 3, job("x-3", "bob", 1, 0), 0)
}

// Names first, then GPUs of the user, then GPUs of all.
func TestRolling(t *testing.T) {
	a := &Rolling{}
	expect(t, a, 0, job("bert-1", "ann", 1, 0), 0)
	end(t, a, 1, job("bert-large-1", "ann", 8, 100))
	end(t, a, 2, job("bert-large-2", "ann", 8, 300))
	end(t, a, 3, job("resnet", "ann", 8, 1000))
	expect(t, a, 4, job("bert-large-3", "ann", 1, 0), 200)
	expect(t, a, 4, job("bert-lange", "ann", 1, 0), 200) // a letter is another
	end(t, a, 5, job("bert-large-4", "ann", 8, 400))
	expect(t, a, 6, job("bert-large-5", "ann", 1, 0), 300) // the last counts half
	expect(t, a, 6, job("vit", "ann", 8, 0), 450)
	expect(t, a, 6, job("vit", "ann", 2, 0), 450)
	end(t, a, 7, job("vit", "eve", 2, 50))
	expect(t, a, 8, job("bert-large-6", "bob", 2, 0), 50)
	expect(t, a, 8, job("bert-large-6", "bob", 4, 0), 370)
}

// What a run adds to a file, the next run knows from its start; both runs may have jobs of the same names.
func TestHistoryOfTwoRuns(t *testing.T) {
	ctx := context.Background()
	kept, err := history.Open(ctx, filepath.Join(t.TempDir(), "jobs.db"), history.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	run := func(before, after float64) {
		t.Helper()
		a, err := NewHistory(ctx, kept, estimate.Default, true)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, a, 0, job("bert-3", "ann", 8, 0), before)
		end(t, a, 500, job("bert-1", "ann", 8, 500))
		failed := job("bert-2", "ann", 8, 1)
		failed.Outcome = workload.Failed
		end(t, a, 501, failed)
		expect(t, a, 600, job("bert-3", "ann", 8, 0), after)
		expect(t, a, 600, job("vit", "bob", 1, 0), 500) // it is like none: what jobs take
		known := job("vit", "bob", 1, 0)
		known.Estimate = core.Second
		expect(t, a, 600, known, 0) // the workload has an estimate of its own
		if err := errors.Join(a.Keep(ctx), a.Close()); err != nil {
			t.Fatal(err)
		}
	}
	run(0, 500)
	run(500, 500)
	if err := kept.Append(ctx, history.Job{ID: "x", User: "eve", Tenant: "other", End: time.Unix(9e8, 0), Ran: 2000 * time.Second, Outcome: history.Completed}); err != nil {
		t.Fatal(err)
	}
	a, err := NewHistory(ctx, kept, estimate.Default, true)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, a, 0, job("bert-3", "ann", 8, 0), 600) // two runs that took 500 s, and half a job that took 1,000, as all do
	expect(t, a, 0, job("vit", "bob", 1, 0), 1000)
	a.Close()
	jobs, err := kept.Jobs(ctx)
	if err != nil || len(jobs) != 5 {
		t.Errorf("%d jobs, %v, want 5", len(jobs), err)
	}
}

// Jobs of a run follow those that are known. A run whose jobs are known already is not counted twice; one that differs in a job is another.
func TestJobsOfRuns(t *testing.T) {
	job := func(name string, end core.Time) runlog.EndedJob {
		return runlog.EndedJob{
			Job: name, Queue: "lab", User: "ann", Kind: "training", Pods: 1, GPUs: 8 * core.WholeGPU,
			Submitted: 10 * core.Second, Started: 20 * core.Second, End: end * core.Second, Queued: 15 * core.Second, Outcome: "completed",
		}
	}
	one, other := []runlog.EndedJob{job("bert-9", 60), job("bert-8", 100)}, []runlog.EndedJob{job("bert-9", 60), job("bert-8", 101)}
	known := OfRun(one, nil)
	if len(known) != 2 || known[0].ID != "bert-9" || known[0].Ran != 35*time.Second || known[1].End.Unix() != 100 {
		t.Fatalf("of an empty history: %+v", known)
	}
	if again := OfRun(one, known); len(again) != 0 {
		t.Errorf("the same run again: %+v", again)
	}
	later := OfRun(other, known)
	if len(later) != 2 || later[0].ID != "bert-9@100" || later[0].End.Unix() != 160 {
		t.Fatalf("another run: %+v", later)
	}
	known = append(known, later...)
	for _, run := range [][]runlog.EndedJob{one, other, nil} {
		if again := OfRun(run, known); len(again) != 0 {
			t.Errorf("after both, again %+v", again)
		}
	}
}

// What was read in the code of jobs tells alike ones from others.
func TestCode(t *testing.T) {
	a, err := NewHistory(context.Background(), nil, estimate.Default, true)
	if err != nil {
		t.Fatal(err)
	}
	a.Code = func(j *workload.Job) (m metadata.Job) {
		m.Model.Name, m.Dataset.Train = map[string]string{"1": "llama", "2": "vit", "3": "vit", "4": "llama"}[j.Name], j.User
		return m
	}
	end(t, a, 1, job("1", "ann", 8, 5000))
	end(t, a, 2, job("2", "ann", 8, 60))
	if a, b := estimateOf(t, a, "3"), estimateOf(t, a, "4"); a < 60 || a > 500 || b < 4500 || b > 5000 {
		t.Errorf("the next ViT is expected to take %.0f s, the next llama %.0f s; others took 60 and 5000", a, b)
	}
}

func estimateOf(t *testing.T, a *History, name string) float64 {
	t.Helper()
	e, err := a.Estimate(3*core.Second, job(name, "ann", 8, 0))
	if err != nil {
		t.Fatal(err)
	}
	return e.Duration.Mean
}
