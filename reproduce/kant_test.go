package reproduce

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/runlog"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// The experiments of Kant, with fewer seeds than the commands use.
func TestKant(t *testing.T) {
	for _, e := range []Experiment{kantTraining, kantInference} {
		r, err := e.Run(context.Background(), Options{Seeds: []int64{0, 1, 2}})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range r.(*Table).Rows {
			if !row.Within {
				t.Errorf("%s: %s is %s %s, the paper's %s; want %s", e.Name, row.Figure, number(row.Ours), row.Unit, row.theirs(), row.How)
			}
		}
	}
}

// Out keeps a run of each side, a page that compares them, and the experiment's,
// which leads there.
func TestKeptRuns(t *testing.T) {
	dir := t.TempDir()
	result, err := kantInference.Run(context.Background(), Options{Seeds: []int64{5, 6}, Out: dir})
	if err != nil {
		t.Fatal(err)
	}
	shown := pageIn(t, dir, result)
	if n := len(result.(*Table).Rows); shown.Runs != "runs/report.html" || len(shown.Figures) != n || shown.Figures[n-1].Theirs != nil {
		t.Errorf("the page leads to %q and has %d figures of %d", shown.Runs, len(shown.Figures), n)
	}
	for _, c := range inferenceClusters {
		r, err := runlog.Read(filepath.Join(dir, Runs, c))
		if err != nil {
			t.Fatal(err)
		}
		if r.Summary.Seed != 5 || r.Summary.Policy != "EBinpack" {
			t.Errorf("%s is a run of %s with seed %d, want EBinpack with 5", c, r.Summary.Policy, r.Summary.Seed)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, Runs, runlog.Page))
	if err != nil || !strings.Contains(string(page), "i7") || !strings.Contains(string(page), "a10") {
		t.Errorf("the page does not name the clusters (%v)", err)
	}
}

// A quarter of a week with 2 GPUs and another with 6 of a quota of 4 make a mean
// of 2 and a peak of 6. What comes after the week does not count.
func TestQuotaUse(t *testing.T) {
	u := newQuotaUse(&workload.Cluster{
		Nodes:  []core.Node{{Name: "n", Model: "L", GPUs: 8}, {Name: "other", Model: "A", GPUs: 8}},
		Queues: []core.Queue{{Name: "q", Quota: []core.Quota{{Model: "L", Nominal: 4 * core.WholeGPU}}}},
	})
	job := &sim.Live{Job: workload.Job{Job: core.Job{Queue: "q"}}}
	pod := func(node string, gpus uint64) []core.Placement {
		return []core.Placement{{Node: node, GPUs: gpus, GPU: core.WholeGPU}}
	}
	two, four := pod("n", 0b11), pod("n", 0b111100)
	for _, err := range []error{
		u.Bound(0, job, two, core.Placed),
		u.Bound(0, job, pod("other", 0xff), core.Placed),
		u.Bound(week/4, job, four, core.Placed),
		u.Released(week/2, job, four, sim.Finished, sim.Eviction{}),
		u.Released(week/2, job, two, sim.Finished, sim.Eviction{}),
		u.Bound(2*week, job, two, core.Placed),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	all := u.until(week)
	if len(all) != 1 || all[0].gpus != 2 || all[0].peak != 6*core.WholeGPU {
		t.Errorf("the use is %+v, want a mean of 2 GPUs and a peak of 6", all)
	}
}

// What is in the band of a figure, of a bound, and of what has none.
func TestBands(t *testing.T) {
	for _, c := range []struct {
		row  Row
		want bool
	}{
		{roughly("", 8, 4, "%"), true},
		{roughly("", 8, 3.9, "%"), false},
		{roughly("", 8, 16.1, "%"), false},
		{roughly("", 8, -8, "%"), false},
		{atLeast("", 0, 10, 9, "%"), false},
		{atLeast("", 0, 10, 11, "%"), true},
		{atMost("", 1, 2, 1.5, "%"), true},
		{atMost("", 1, 2, 2.5, "%"), false},
		{withinPoints("", 93, 2, 91, "%"), true},
		{withinPoints("", 93, 2, 95.5, "%"), false},
		{count("", 8, 1, 7), true},
		{count("", 8, 1, 6), false},
	} {
		if c.row.Within != c.want {
			t.Errorf("%g for %s %g, %s: within is %v", c.row.Ours, c.row.Bound, c.row.Paper, c.row.How, c.row.Within)
		}
	}
}
