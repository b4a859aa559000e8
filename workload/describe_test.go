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
	if d := (Quantiles{Mean: 6 * 3600, P10: 3 * 3600, P25: 5 * 3600, P50: 5 * 3600, P75: 10 * 3600, P90: 10 * 3600, P99: 10 * 3600, Max: 10 * 3600}); s.Duration.Quantiles != d {
		t.Errorf("durations %+v, want %+v", s.Duration, d)
	}
}

// Demand is what jobs hold by the hour from the first submission to the last; the
// HP part is told of everything, and what part it is of a cluster.
func TestDescribeDemand(t *testing.T) {
	job := func(queue, model string, class core.Class, gpus int64, at, hours float64) Job {
		j := trainingJob("", gpus)
		j.Queue, j.Class = queue, class
		j.Tasks[0].Models = []string{model}
		j.Submitted, j.Duration = core.Time(at*3600)*core.Second, core.Time(hours*3600)*core.Second
		return j
	}
	// From 1 h on: 8 GPUs for 2.5 hours, 4 for a quarter, 2 that hold on; the last
	// submission is at 5 h.
	s, err := Describe(from(job("a", "X", core.HP, 8, 1, 2.5), job("a", "Y", core.LP, 4, 2.5, 0.25), job("b", "Y", core.HP, 2, 3.5, 100),
		job("b", "Y", core.HP, 1, 5, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if s.DemandHours != 4 {
		t.Errorf("demand is of %d hours, want 4", s.DemandHours)
	}
	// By the hour: 8, 8+1, 4+1, 2.
	if want := (Demand{MeanGPUs: 24.0 / 4, HPMeanGPUs: 23.0 / 4, PeakGPUs: 9}); s.All.Demand != want {
		t.Errorf("demand %+v, want %+v", s.All.Demand, want)
	}
	if q := s.Queues[0]; q.Name != "b" || q.Demand != (Demand{MeanGPUs: 3.0 / 4, HPMeanGPUs: 3.0 / 4, PeakGPUs: 2}) {
		t.Errorf("queue %+v", q)
	}
	if q := s.Queues[1]; q.HPJobShare != 0.5 || q.HPGPUShare != 20.0/21 {
		t.Errorf("HP part of queue %+v", q)
	}
	if w := s.Week; len(w) != 1 || !slices.Equal(w[0].Running, []float64{0, 8, 9, 5, 2}) || !slices.Equal(w[0].Submitted, []float64{0, 8, 4, 2, 0}) {
		t.Errorf("week %+v", w)
	}
	c, err := ParseSpec("2x8:Y,1x8:X", Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.Over(&c)
	if want := []Allocation{{"all", 3, 24, 23.0 / 96, 24.0 / 96}, {"Y", 2, 16, 3.0 / 64, 4.0 / 64}, {"X", 1, 8, 20.0 / 32, 20.0 / 32}}; !slices.Equal(s.Allocation, want) {
		t.Errorf("allocation %+v, want %+v", s.Allocation, want)
	}
}

// A week is averaged over the weeks there are, and begins on the first midnight
// of the workload's zero.
func TestDescribeWeeks(t *testing.T) {
	var jobs []Job
	for hour := range 3*hoursOfWeek + 12 {
		j := trainingJob("", int64(1+hour/hoursOfWeek)) // 1, 2, 3 and then 4 GPUs
		j.Submitted, j.Duration = core.Time(100*24+hour)*3600*core.Second, 3600*core.Second
		jobs = append(jobs, j)
	}
	s, err := Describe(from(jobs...))
	if err != nil {
		t.Fatal(err)
	}
	first := 100 * 24 % hoursOfWeek
	for i, want := range map[int]float64{first: 2.5, first + 10: 2.5, first + 12: 2, first - 1: 2} {
		if got := s.Week[0].Running[i]; math.Abs(got-want) > 1e-9 {
			t.Errorf("hour %d: %v GPUs run, want %v", i, got, want)
		}
		if got := s.Week[0].Submitted[i]; got != want {
			t.Errorf("hour %d: %v GPUs are submitted, want %v", i, got, want)
		}
	}
	if s.All.PeakGPUs < 3.99 || s.All.PeakGPUs > 4.01 {
		t.Errorf("peak %v, want 4", s.All.PeakGPUs)
	}
}

// Quantities are told by kind, class and size too.
func TestDescribeSpread(t *testing.T) {
	var jobs []Job
	for i := range int64(101) {
		j := trainingJob("", 1+i%2)
		j.Kind, j.Class = core.Kind(1+i%2), core.Class(i%2)
		j.Duration = core.Time(i) * core.Second
		j.Tasks[0].CPUMilli = 3000
		jobs = append(jobs, j)
	}
	s, err := Describe(from(jobs...))
	if err != nil {
		t.Fatal(err)
	}
	if d := s.Duration; d.P10 != 10 || d.P25 != 25 || d.P75 != 75 || d.P99 != 99 || d.Mean != 50 {
		t.Errorf("durations %+v", d.Quantiles)
	}
	for what, list := range map[string][]Distribution{
		"inference batch": s.Duration.ByKind, "HP LP": s.Duration.ByClass, "1 2": s.Duration.BySize,
	} {
		if names := list[0].Name + " " + list[1].Name; len(list) != 2 || names != what {
			t.Fatalf("distributions of %s, want %s", names, what)
		}
		if list[0].P50 != 50 || list[0].Max != 100 || list[1].P50 != 51 && list[1].P50 != 49 || list[1].Max != 99 {
			t.Errorf("%s: %+v", what, list)
		}
	}
	if g := s.GPUs; g.ByKind[0].Mean != 1 || g.ByKind[1].Mean != 2 {
		t.Errorf("GPUs %+v", g)
	}
	if r := s.TaskCoresPerGPU; r.ByKind[0].P50 != 3 || r.ByKind[1].P50 != 1.5 {
		t.Errorf("cores per GPU %+v", r)
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
