package reproduce

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// The workload asi has the published shape.
func TestASIShape(t *testing.T) {
	if testing.Short() {
		t.Skip("makes up 14 million jobs")
	}
	r, err := asiShape.Run(context.Background(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.(*Table).Rows {
		if !row.Within {
			t.Errorf("%s is %v, want about %v", row.Figure, row.Ours, row.Paper)
		}
	}
}

// What a summary does not tell is gathered from the jobs that pass by.
func TestASIJobs(t *testing.T) {
	const day = 24 * 3600 * core.Second
	job := func(kind core.Kind, models string, gpus int64, cores int64, days core.Time) workload.Job {
		var j workload.Job
		j.Kind, j.Duration, j.Submitted = kind, days*day, 36*3600*core.Second
		j.Tasks = []core.Task{{Name: models, Pods: 1, Request: core.Request{
			GPU: core.Milli(gpus) * core.WholeGPU, CPUMilli: gpus * cores * 1000, Models: []string{"XPU-A"},
		}}}
		return j
	}
	rec := job(core.Inference, "rec", 3, 24, 1)
	rec.Locked = true
	apart := job(core.Inference, "prefill", 8, 4, 1)
	apart.Tasks = append(apart.Tasks, apart.Tasks[0])
	late := job(core.Training, "genai", 4, 8, 1)
	late.Submitted = 140 * day
	a := newASIJobs()
	for _, err := range a.watch(context.Background(), func(yield func(workload.Job, error) bool) {
		_ = yield(rec, nil) && yield(apart, nil) && yield(late, nil)
	}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if a.disaggregated[1] != 8*24 || a.disaggregated[2] != 8*24 || a.disaggregated[3] != 0 {
		t.Errorf("GPU-hours by day %v", a.disaggregated[:4])
	}
	want := map[string]float64{
		"GPUs of a GenAI job, median": 4, "GPUs of a GenAI job, mean": 10, "GenAI of training": 100,
		"GPU-hours of the largest job, over": 16 * 24, "recommendation of online inference": 50, "classical models, of its GPU-hours": 100 * 3.0 / 19,
		"locked tasks": 25, "cores per GPU of rec (CTR), median": 24, "cores per GPU of genai (Qwen), median": 4,
		"HP demand for XPU-A after day 120 to before": (4.0 / 51) / (19.0 / 120),
	}
	found := 0
	for _, r := range a.rows() {
		if w, ok := want[r.Figure]; ok {
			found++
			if math.Abs(r.Ours-w) > 1e-9 {
				t.Errorf("%s is %v, want %v", r.Figure, r.Ours, w)
			}
		}
	}
	if found != len(want) {
		t.Errorf("%d of %d figures", found, len(want))
	}
}

// An interrupt ends the making up.
func TestASIInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := asiShape.Run(ctx, Options{}); err != context.Canceled {
		t.Errorf("error %v", err)
	}
}

func TestMedianAndTrendLine(t *testing.T) {
	if m := median(map[float64]int{1: 2, 2: 1, 9: 2}); m != 2 {
		t.Errorf("median %v, want 2", m)
	}
	if m := median(map[float64]int{1: 3, 9: 2}); m != 1 {
		t.Errorf("median %v, want 1", m)
	}
	first, last := trendLine([]float64{11, 10, 14, 13, 17}) // nearest: 10 to 16
	if math.Abs(first-10) > 1e-9 || math.Abs(last-16) > 1e-9 {
		t.Errorf("line from %v to %v", first, last)
	}
}

// Small figures are written with decimals, in text.
func TestTableText(t *testing.T) {
	var out strings.Builder
	table := Table{Rows: []Row{{Figure: "share", Paper: 2.5, Ours: 2.456, Unit: "%", Within: true}, {Figure: "time", Paper: 1000, Ours: 1000.4, Unit: "s"}}}
	if err := table.Text(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2.50 %  2.46 %", "1000 s  1000 s"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}
