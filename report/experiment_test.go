package report

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// figure returns a figure that is published when theirs is not NaN, within a
// band that is open where a bound is NaN.
func figure(name string, theirs, ours, low, high float64) Figure {
	known := func(x float64) *float64 {
		if math.IsNaN(x) {
			return nil
		}
		return &x
	}
	f := Figure{Name: name, Ours: ours, Unit: "%", Theirs: known(theirs), Judged: !math.IsNaN(theirs), Low: known(low), High: known(high), How: "in a band of some kind"}
	f.Within = !(ours < low || ours > high)
	f.OursText = fmt.Sprintf("%.2f %%", ours)
	if f.Theirs != nil {
		f.TheirsText = fmt.Sprintf("%.2f %%", theirs)
	}
	if !f.Within {
		f.Note = "this is why"
	}
	return f
}

// experiments returns one of each kind.
func experiments(t *testing.T) map[string]*Experiment {
	none := math.NaN()
	figures := []Figure{
		figure("near a figure", 100, 99.5, 99, 101),
		figure("a figure that ours is far above, as one sees", 100, 140, 99, 101),
		figure("far below", 100, -30, 50, 200),
		figure("the same", 12, 12, 12, 12),
		figure("not the same", 12, 13, 12, 12),
		figure("at least", 0, 274, 10, none),
		figure("not at least", 50, 10, 50, none),
		figure("at most", 0, -25, none, 10),
		figure("not at most", 1, 1.2, none, 1),
		figure("nothing is published", none, 79, none, none),
		figure("nor here", none, 115, none, none),
	}
	var many []Figure
	for i := range 3 {
		for _, f := range figures[:9] {
			f.Name = fmt.Sprint(f.Name, " ", i)
			many = append(many, f)
		}
	}
	var lists []PodList
	for i := range 13 {
		l := PodList{Name: fmt.Sprintf("gpushare%d", 10*i)}
		for k, policy := range []string{"default", "FGD", "BestFit", "GPUPacking", "GPUClustering", "DotProduct", "Random"} {
			f := Filling{Policy: policy, Std: 0.1, Published: 96 - float64(k), How: "within 0.2 points of the published", Verdict: "pass"}
			if k == 0 {
				f.Published, f.Goal, f.How, f.Verdict = 0, 96.4-float64(i)/2, "at least the goal", "fail"
			}
			top := 96.5 - float64(k) - float64(i)/2
			for arrived := range 131 {
				f.Curve = append(f.Curve, top*math.Tanh(float64(arrived)/top*1.2))
			}
			l.Fillings = append(l.Fillings, f)
		}
		lists = append(lists, l)
	}
	jobs, _, err := workload.OpenJobs("kant-inference-i7", workload.Options{Seed: 1, Length: 24 * 3600 * core.Second})
	if err != nil {
		t.Fatal(err)
	}
	s, err := workload.Describe(jobs)
	if err != nil {
		t.Fatal(err)
	}
	notes := []string{"A paragraph.", "Another </script> one."}
	stacks := []Stack{
		{Title: "Hours", Unit: "GPU-hours", Note: "By cause.", Parts: []StackPart{{"used", []float64{0, 5, 2, 7}}, {"idle", []float64{0, 1, 8, 3}}}},
		{Title: "Time of a job", Unit: "h", Names: []string{"one policy", "another"}, Parts: []StackPart{{"runs", []float64{2, 2}}, {"waits", []float64{3, 1}}}},
	}
	return map[string]*Experiment{
		"stacks":   {Name: "some-stacks", Title: "Sums by their parts", Caption: "What was run", Stacks: stacks},
		"figures":  {Name: "some-figures", Title: "Figures of every kind", Caption: "What was run", Figures: figures, Notes: notes, Runs: "runs/report.html"},
		"lists":    {Name: "some-lists", Title: "Lists of pods", Caption: "What was run", Lists: lists},
		"one list": {Name: "one-list", Title: "A list of one's own", Lists: []PodList{{Name: "mine", Fillings: []Filling{{Policy: "default", Curve: lists[0].Fillings[0].Curve}}}}},
		"trade-offs": {Name: "trade-offs", Title: "What settings gain and cost", TradeOffs: []TradeOff{
			{Title: "training lost", X: "work, M core-hours", Y: "training lost, %", Lines: []TradeCurve{
				{"random", []TradePoint{{"random", 18.8, 10.7}}},
				{"LeastHarm", []TradePoint{{"reserve 0", 18.8, 9.3}, {"reserve 0.5", 17.8, 10.9}, {"reserve 1", 17, 10.8}}},
			}},
			{Title: "all alike", X: "work", Y: "lost", Lines: []TradeCurve{{"one", []TradePoint{{"a", 7.05, 93.5}, {"b", 7.05, 93.5}}}}},
		}},
		"workload": {Name: "a-workload", Title: "Many figures, and a workload", Figures: many, Workload: &s},
	}
}

// What pages about experiments show, in a real browser: every plot has marks, a
// choice of a list changes what is shown, the verdict counts the figures, and
// nothing goes wrong.
func TestExperimentPagesInABrowser(t *testing.T) {
	chromium := browser(t)
	verdicts := map[string]string{
		"figures": "5 of 9 figures are out of their bands.", "lists": "13 of 91 figures are out of their bands.",
		"workload": "15 of 27 figures are out of their bands.",
	}
	want := map[string][]string{
		"stacks":  {"stack-0", "stack-1"},
		"figures": {"strips-0", "untold-0"}, "lists": {"bars", "curves", "lists"}, "one list": {"bars", "curves"},
		"trade-offs": {"trade-off-0", "trade-off-1"},
		"workload":   {"strips-0", "strips-1", "hours", "spread-duration", "by-queue"},
	}
	for kind, e := range experiments(t) {
		var page bytes.Buffer
		if err := ExperimentHTML(&page, e); err != nil {
			t.Fatal(err)
		}
		for size, width := range map[string]int64{"desk": 1280, "phone": 390} {
			if size == "phone" && testing.Short() && kind != "lists" {
				continue
			}
			t.Run(kind+" "+size, func(t *testing.T) {
				p := open(t, chromium, page.Bytes(), width, 900)
				for _, scheme := range []string{"light", "dark"} {
					p.scheme(scheme)
					drawn := eval[map[string][]int](p, drawnIn)
					for _, figure := range want[kind] {
						if len(drawn[figure]) == 0 {
							t.Errorf("%s has no marks", figure)
						}
					}
					for _, bad := range eval[[]string](p, overlaps) {
						t.Error(bad)
					}
					p.shoot(fmt.Sprintf("experiment-%s-%s-%s", e.Name, size, scheme))
				}
				if got := eval[string](p, `document.getElementById('verdict')?.textContent ?? ''`); got != verdicts[kind] {
					t.Errorf("the page says %q, want %q", got, verdicts[kind])
				}
				if kind == "lists" {
					if texts := eval[[]string](p, textByRun("list")); len(texts) != 13 || len(slices.Compact(texts)) != 13 {
						t.Errorf("of %d lists, %d have different texts", len(texts), len(slices.Compact(texts)))
					}
				}
				p.quiet()
			})
		}
	}
}
