package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/coretest/audit"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/runlog"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// Under a policy with a forecast of HP demand, the files of a run show that no LP job starts that should be
// put off; and that some do where the policy has none.
func TestForecastAudited(t *testing.T) {
	for _, forecasts := range []bool{true, false} {
		o := workload.Options{GPUs: 300, Length: 3 * 24 * 3600 * core.Second}
		cluster, err := workload.OpenCluster("spot", o)
		if err != nil {
			t.Fatal(err)
		}
		o.Cluster = &cluster
		jobs, _, err := workload.OpenJobs("spot", o)
		if err != nil {
			t.Fatal(err)
		}
		doc, _ := policy.ByName("SpotGPU")
		if forecasts {
			doc.Policy.Spot.Period = 24 * 3600 * core.Second
		}
		dir := t.TempDir() + "/run"
		w, err := runlog.Create(dir, &cluster, metrics.Options{})
		if err != nil {
			t.Fatal(err)
		}
		grace := sim.Models{Grace: 60 * core.Second, Shutdown: sim.Shutdown{Mean: 13 * core.Second, P95: 48 * core.Second}}
		stats, err := sim.Run(t.Context(), sim.Config{Cluster: cluster, Policy: doc.Policy, Jobs: jobs, Estimates: true, Models: grace}, w)
		if err != nil {
			t.Fatal(err)
		}
		doc.Policy.Spot.Period = 24 * 3600 * core.Second
		rules := metrics.NewRules(&doc.Policy, grace.Grace)
		rules.Estimates = true
		summary, err := w.Close(runlog.Facts{Rules: rules, Grace: grace.Grace, Forecast: stats.Forecast, Period: doc.Policy.Spot.Period})
		if err != nil {
			t.Fatal(err)
		}
		back, err := runlog.Read(dir)
		if err != nil || !slices.EqualFunc(back.Forecast, stats.Forecast, alike) || (len(back.Forecast) > 0) != forecasts || (len(summary.HPForecast) > 0) != forecasts {
			t.Errorf("with a forecast: %v: read back %d samples, %v; there were %d, and %d errors", forecasts, len(back.Forecast), err, len(stats.Forecast), len(summary.HPForecast))
		}
		r, err := audit.Audit(dir)
		if err != nil || r.OK() != forecasts || !forecasts && !strings.Contains(r.String(), audit.HPExpected) {
			t.Errorf("with a forecast: %v: %v, %v", forecasts, err, r)
		}
	}
}

// alike reports whether samples are the same, but for how exactly the file says when.
func alike(a, b sim.HPSample) bool {
	near := max(a.T-b.T, b.T-a.T) < core.Second/100
	a.T = b.T
	return near && a == b
}

// What HP jobs do every day at the same hours is forecast exactly a day before.
func TestForecastOfEqualDays(t *testing.T) {
	const hour = 3600 * core.Second
	c := workload.Cluster{Levels: []string{"leaf"}, Nodes: []core.Node{{Name: "a", Model: "A", GPUs: 8, Domains: []string{"l"}}}}
	jobs := func(yield func(workload.Job, error) bool) {
		for h := range 5 * 24 {
			// An LP job an hour; an HP job of four GPUs from six o'clock to nine.
			j := workload.Job{Duration: core.Second, Job: core.Job{
				Name: fmt.Sprint("j", h), Queue: "q", Class: core.LP, Submitted: core.Time(h) * hour, Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: core.WholeGPU}}},
			}}
			if h%24 == 6 {
				j.Class, j.Duration, j.Tasks[0].GPU = core.HP, 3*hour, 4*core.WholeGPU
			}
			if !yield(j, nil) {
				return
			}
		}
	}
	doc, _ := policy.ByName("SpotGPU")
	doc.Policy.Spot.Period = 24 * hour
	stats, err := sim.Run(t.Context(), sim.Config{Cluster: c, Jobs: jobs, Policy: doc.Policy})
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, r := range stats.Forecast {
		want := core.Milli(0)
		if h := r.T / hour % 24; h >= 6 && h < 9 {
			want = 4 * core.WholeGPU
		}
		if r.Model != "A" || r.GPU != want {
			t.Errorf("at %v HP jobs held %d of %s, want %d", r.T, r.GPU, r.Model, want)
		}
		if r.Expected[2] >= 0 {
			compared++
			if r.Expected[2] != want {
				t.Errorf("at %v %d were expected a day before, want %d", r.T, r.Expected[2], want)
			}
		}
		if first := r.T < 25*hour; first == (r.Expected[0] >= 0) {
			t.Errorf("at %v the forecast an hour before says %d", r.T, r.Expected[0])
		}
	}
	if compared < 70 {
		t.Errorf("%d forecasts a day before", compared)
	}
}
