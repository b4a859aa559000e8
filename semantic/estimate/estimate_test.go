package estimate

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/semantic/history"
	"github.com/muster-sched/muster/semantic/metadata"
)

var day = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// ran is a match that ran for a time.
func ran(id string, d time.Duration, score float64) history.Match {
	return history.Match{Job: history.Job{ID: id, User: "ana", End: day, Ran: d, Outcome: history.Completed}, Score: score}
}

func TestNothingIsUnknown(t *testing.T) {
	e := From(&history.Job{}, nil)
	if e.Known() || e.Confidence != 0 || e.String() != "unknown: no finished job is similar enough" {
		t.Errorf("%+v", e)
	}
}

func TestBecauseTheseThree(t *testing.T) {
	matches := []history.Match{ran("a", 2*time.Hour, 1), ran("b", 3*time.Hour, 0.9), ran("c", time.Hour, 0.8)}
	matches[0].Same = true
	matches[0].Job.SMUse, matches[2].Job.SMUse = 0.5, 0.7
	matches[1].Job.MemoryMiB = 40000
	e := From(&history.Job{}, matches)
	b, c := math.Pow(0.9, 16), math.Pow(0.8, 16)
	if mean := (7200 + 10800*b + 3600*c) / (1 + b + c); math.Abs(e.Duration.Mean-mean) > 1e-6 || math.Abs(e.Weight-(1+b+c)) > 1e-12 {
		t.Errorf("mean duration %g of the weight %g, want %g", e.Duration.Mean, e.Weight, mean)
	}
	if d := e.Duration; d.Jobs != 3 || d.Low != 3600 || d.High != 10800 {
		t.Errorf("duration %+v", d)
	}
	if e.SMUse.Jobs != 2 || e.SMUse.Mean != 0.6 || e.MemoryMiB.Jobs != 1 || e.MemoryMiB.Value != 40000 {
		t.Errorf("SM use %+v, memory %+v", e.SMUse, e.MemoryMiB)
	}
	if want := 0.9 * 3 / 4 * math.Sqrt(1.0/3); math.Abs(e.Confidence-want) > 1e-9 {
		t.Errorf("confidence %g, want %g", e.Confidence, want)
	}
	want := `duration    1h0m (1h0m to 3h0m)
SM use      50 % (50 to 70)
GPU memory  40000 MiB (40000 to 40000)
confidence  0.39
because of these 3 jobs:
  a of ana: ran 2h0m, an earlier run
  b of ana: ran 3h0m, 90 % alike
  c of ana: ran 1h0m, 80 % alike`
	if got := e.String(); got != want {
		t.Errorf("text\n%s\nwant\n%s", got, want)
	}
}

// The mean duration is by all matches, each by how much it is alike; the rest is by the first ten.
func TestMeanOfMany(t *testing.T) {
	var matches []history.Match
	for i := range 40 {
		d := time.Minute
		if i >= 20 {
			d = 3 * time.Minute
		}
		matches = append(matches, ran(fmt.Sprint(i), d, 1))
	}
	e := From(&history.Job{}, matches)
	if d := e.Duration; d.Jobs != 10 || len(e.Because) != 10 || d.Value != 60 || d.High != 60 || d.Mean != 120 || e.Weight != 40 {
		t.Errorf("40 runs, half of 1 and half of 3 minutes: %+v, weight %g", d, e.Weight)
	}
	for i := 20; i < 40; i++ {
		matches[i].Score = 0.6
	}
	if d := From(&history.Job{}, matches).Duration; d.Mean > 61 {
		t.Errorf("runs of a minute, and jobs that are little like them: the mean is %g s", d.Mean)
	}
	if e := From(&history.Job{}, []history.Match{ran("a", time.Minute, 0)}); math.Abs(e.Duration.Mean-60) > 1e-9 {
		t.Errorf("a match with nothing in common: the mean is %g s, want its 60", e.Duration.Mean)
	}
}

// Twice the iterations take twice as long, if they are of the same unit.
func TestIterationsScale(t *testing.T) {
	job := func(n int64, u metadata.Unit) history.Job {
		var j history.Job
		j.Metadata.Training.Iterations, j.Metadata.Training.Unit = n, u
		return j
	}
	for name, c := range map[string]struct {
		job, match history.Job
		want       float64 // seconds, of a match that took 100
	}{
		"twice":          {job(2000, metadata.Step), job(1000, metadata.Step), 200},
		"half":           {job(500, metadata.Step), job(1000, metadata.Step), 50},
		"another unit":   {job(2000, metadata.Step), job(1000, metadata.Epoch), 100},
		"not known":      {job(0, metadata.Step), job(1000, metadata.Step), 100},
		"at most so far": {job(1_000_000, metadata.Step), job(1, metadata.Step), 1000},
	} {
		m := ran("a", 100*time.Second, 1)
		m.Job.Metadata = c.match.Metadata
		if e := From(&c.job, []history.Match{m}); e.Duration.Value != c.want {
			t.Errorf("%s: %g s, want %g", name, e.Duration.Value, c.want)
		}
	}
}

// No value of the jobs has a smaller mean relative error to them than the prediction, which is between Low and High.
func TestLeastRelativeError(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(1, 1e6), 1, 10).Draw(t, "seconds")
		off := func(x float64) (sum float64) {
			for _, v := range values {
				sum += math.Abs(x-v) / v
			}
			return sum
		}
		var matches []history.Match
		for i, v := range values {
			matches = append(matches, ran(fmt.Sprint(i), time.Duration(v*1e9), 1))
		}
		e := From(&history.Job{}, matches)
		for _, v := range values {
			if off(e.Duration.Value) > off(v)+1e-6 {
				t.Fatalf("%g is off by %g, %g by %g", e.Duration.Value, off(e.Duration.Value), v, off(v))
			}
		}
		if e.Duration.Low > e.Duration.High || e.Confidence < 0 || e.Confidence > 1 {
			t.Fatalf("%+v", e)
		}
	})
}

// An advisor finds the jobs itself, and none that ended later.
func TestAdvisor(t *testing.T) {
	ctx := context.Background()
	h, err := history.Open(ctx, "memory:", history.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for i := range 4 {
		j := history.Job{ID: fmt.Sprint("run-", i), Name: fmt.Sprint("bert-", i), User: "ana", End: day.Add(time.Duration(i) * time.Hour), Ran: time.Minute * time.Duration(i+1), Outcome: history.Completed}
		if err := h.Append(ctx, j); err != nil {
			t.Fatal(err)
		}
	}
	a := Advisor{History: h, Options: Default}
	e, err := a.Estimate(ctx, history.Job{Name: "bert-9", User: "ana", Submit: day.Add(time.Hour)})
	if err != nil || e.Duration.Jobs != 2 || e.Duration.Mean != 90 || !strings.Contains(e.String(), "run-1 (bert-1) of ana") {
		t.Errorf("%v %s", err, e.String())
	}
	if e, err = a.Estimate(ctx, history.Job{Name: "resnet", User: "bo", Submit: day.Add(9 * time.Hour)}); err != nil || e.Known() {
		t.Errorf("%v %+v", err, e)
	}
}
