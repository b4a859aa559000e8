package reproduce

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/frag"
	"github.com/muster-sched/muster/sim"
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
		"GPU-hours of the largest job": 16 * 24, "recommendation of online inference": 50, "classical models, of its GPU-hours": 100 * 3.0 / 19,
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

// Inputs are shown and do not count as reproduced, but one that is off is a failure.
func TestInputsDoNotCount(t *testing.T) {
	rows := append(asInputs(within("load", 93, 93, 0, "%"), within("size", 2, 2, 0, "")), within("wait", 5, 5, 0, "s"))
	table := Table{Rows: rows}
	var out strings.Builder
	if err := table.Text(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 of 1.", "Inputs of the workload, which do not count: 2.", "0.00 %    input      the same"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if e := table.Report(); e.Figures[0].Judged || !e.Figures[2].Judged {
		t.Errorf("the page counts %+v", e.Figures)
	}
	if table.Rows[0].Within = false; table.Passed() {
		t.Error("passed with an input that is off")
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

// Large jobs are held up by leaf groups as the paper says, and placed together no fewer of
// them have a place.
func TestASITopology(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a day of asi")
	}
	r, err := asiTopology.Run(context.Background(), Options{Seeds: []int64{1}})
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]float64{}
	for _, row := range r.(*Table).Rows {
		ours[row.Figure] = row.Ours
		if !row.Within {
			t.Errorf("%s is %v, want %s", row.Figure, row.Ours, row.Claim)
		}
	}
	const waiting, place = "jobs of 64 to 2,048 GPUs that wait together", "each within one leaf group: jobs with a place"
	if first, together := ours["largest first, "+place], ours["together, "+place]; first == 0 || together < first || together > ours[waiting] {
		t.Errorf("of %v jobs %v have a place, %v with the largest first", ours[waiting], together, first)
	}
}

// Room is counted by model and leaf group, by what is free of GPUs and cores.
func TestFreeNodes(t *testing.T) {
	f := &freeNodes{index: map[string]int{}}
	for i, leaf := range []string{"a", "a", "b", "c"} {
		n := core.Node{Name: strings.Repeat("n", i+1), Model: "A", GPUs: 8, CPUMilli: 96_000, Domains: []string{leaf}}
		if err := f.Node(0, &n, i != 3); err != nil {
			t.Fatal(err)
		}
	}
	_ = f.Bound(0, nil, []core.Placement{{Node: "n", CPUMilli: 1000}, {Node: "nnn", GPUs: 1, GPU: 1000}}, core.Placed)
	_ = f.Released(0, nil, []core.Placement{{Node: "nnn", GPUs: 1, GPU: 1000}}, sim.Finished, sim.Eviction{})
	sh := frag.PaperJobs()[0].Shape
	if got := f.room(sh, 0); !slices.Equal(got["A"], []int{1, 1, 0}) || len(got) != 1 {
		t.Errorf("room %v, want 1, 1 and 0 in the groups of A", got)
	}
}
