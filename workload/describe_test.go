package workload

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
)

// from returns jobs as a workload.
func from(jobs ...Job) Jobs {
	return func(yield func(Job, error) bool) {
		for _, j := range jobs {
			if !yield(j, nil) {
				return
			}
		}
	}
}

func TestDescribe(t *testing.T) {
	job := func(queue string, gpus int64, at, hours core.Time) Job {
		j := trainingJob("", gpus)
		if gpus == 0 {
			j.Tasks = []core.Task{{Pods: 1, Request: core.Request{CPUMilli: 4000}}}
		}
		j.Queue, j.Submitted, j.Duration = queue, at*3600*core.Second, hours*3600*core.Second
		return j
	}
	failed := job("b", 4, 1, 5)
	failed.Outcome, failed.Class, failed.Kind = Failed, core.LP, core.Dev
	failed.Tasks[0].Models = []string{"A10", "T4"}
	failed.Tasks[0].CPUMilli = 80_000
	forever := job("c", 1, 50, 0)
	forever.Duration = Endless
	s, err := Describe(from(job("a", 20, 0, 3), failed, job("a", 0, 25, 10), forever))
	if err != nil {
		t.Fatal(err)
	}
	if s.Jobs != 4 || s.Pods != 6 || s.Gangs != 1 || s.Endless != 1 || s.GPUHours != 80 || s.AllQueues != 3 {
		t.Errorf("totals %+v", s)
	}
	if s.FirstSeconds != 0 || s.LastSeconds != 50*3600 || s.ArrivalsByHour[0] != 1 || s.ArrivalsByHour[1] != 2 || s.ArrivalsByHour[2] != 1 {
		t.Errorf("arrivals %v..%v %v", s.FirstSeconds, s.LastSeconds, s.ArrivalsByHour)
	}
	if s.CoresPerGPU != 80.0*5/80 {
		t.Errorf("cores a GPU %v", s.CoresPerGPU)
	}
	for what, got := range map[string][]Share{
		"training:3:60:0.75:0.75 dev:1:20:0.25:0.25":                        s.Kinds,
		"HP:3:60:0.75:0.75 LP:1:20:0.25:0.25":                               s.Classes,
		"completed:3:60:0.75:0.75 failed:1:20:0.25:0.25":                    s.Outcomes,
		"a:2:60:0.5:0.75 b:1:20:0.25:0.25 c:1:0:0.25:0":                     s.Queues,
		"any:2:60:0.5:0.75 A10|T4:1:20:0.25:0.25 none:1:0:0.25:0":           s.Models,
		"0:1:0:0.25:0 1:1:0:0.25:0 3-4:1:20:0.25:0.25 17-32:1:60:0.25:0.75": s.Sizes,
	} {
		if short := shares(t, got); short != what {
			t.Errorf("got  %s\nwant %s", short, what)
		}
	}
	if d := (Quantiles{Mean: 6 * 3600, P10: 3 * 3600, P50: 5 * 3600, P90: 10 * 3600, P99: 10 * 3600, Max: 10 * 3600}); s.Duration != d {
		t.Errorf("durations %+v, want %+v", s.Duration, d)
	}
}

// shares writes shares shortly.
func shares(t *testing.T, list []Share) string {
	t.Helper()
	var all []string
	for _, s := range list {
		var fields []string
		for _, v := range []any{s.Jobs, s.GPUHours, s.JobShare, s.GPUShare} {
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			fields = append(fields, string(b))
		}
		all = append(all, s.Name+":"+strings.Join(fields, ":"))
	}
	return strings.Join(all, " ")
}

func TestSizeNames(t *testing.T) {
	for milli, want := range map[core.Milli]string{
		0: "0", 1: "<1", 999: "<1", 1000: "1", 1500: "2", 2000: "2", 3000: "3-4", 4000: "3-4", 5000: "5-8", 8000: "5-8",
		9000: "9-16", 16000: "9-16", 256000: "129-256", 257000: "257-512", 2048000: "1025-2048", 2049000: ">2048",
	} {
		if got := sizeName(milli); got != want {
			t.Errorf("%d: got %s, want %s", milli, got, want)
		}
	}
}

// Durations of more jobs than are kept are estimated closely.
func TestSampledQuantiles(t *testing.T) {
	n := 3 * sampleSize
	jobs := func(yield func(Job, error) bool) {
		for i := range n {
			var j Job
			j.Duration = core.Time(i) * core.Second
			if !yield(j, nil) {
				return
			}
		}
	}
	s, err := Describe(jobs)
	if err != nil {
		t.Fatal(err)
	}
	for p, got := range map[float64]float64{0.1: s.Duration.P10, 0.5: s.Duration.P50, 0.9: s.Duration.P90, 0.99: s.Duration.P99} {
		if want := p * float64(n); math.Abs(got-want) > 0.01*float64(n) {
			t.Errorf("quantile %v is %v, want about %v", p, got, want)
		}
	}
	if s.Duration.Max != float64(n-1) {
		t.Errorf("max is %v", s.Duration.Max)
	}
}

func TestDescribeNothing(t *testing.T) {
	s, err := Describe(from())
	if err != nil || s.Jobs != 0 || len(s.Kinds) != 0 {
		t.Errorf("got %+v, %v", s, err)
	}
	if _, err := json.Marshal(s); err != nil {
		t.Error(err)
	}
}

func TestDescribeBadInput(t *testing.T) {
	bad := errors.New("bad")
	if _, err := Describe(func(yield func(Job, error) bool) { yield(Job{}, bad) }); err != bad {
		t.Errorf("got %v", err)
	}
}

// The lists of a summary are in order whatever the order of the jobs.
func TestDescribeOrder(t *testing.T) {
	jobs := jobsIn("q", "p", "r")
	first, _ := Describe(from(jobs...))
	slices.Reverse(jobs)
	second, _ := Describe(from(jobs...))
	if !slices.Equal(first.Queues, second.Queues) {
		t.Errorf("got %v and %v", first.Queues, second.Queues)
	}
}

// jobsIn returns alike jobs in the given queues.
func jobsIn(names ...string) []Job {
	var jobs []Job
	for _, q := range names {
		j := trainingJob(q, 1)
		j.Queue = q
		jobs = append(jobs, j)
	}
	return jobs
}
