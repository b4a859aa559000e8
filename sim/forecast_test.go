package sim_test

import (
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
		if _, err = sim.Run(t.Context(), sim.Config{Cluster: cluster, Policy: doc.Policy, Jobs: jobs, Estimates: true, Models: grace}, w); err != nil {
			t.Fatal(err)
		}
		doc.Policy.Spot.Period = 24 * 3600 * core.Second
		rules := metrics.NewRules(&doc.Policy, grace.Grace)
		rules.Estimates = true
		if _, err := w.Close(runlog.Facts{Rules: rules, Grace: grace.Grace}); err != nil {
			t.Fatal(err)
		}
		r, err := audit.Audit(dir)
		if err != nil || r.OK() != forecasts || !forecasts && !strings.Contains(r.String(), audit.HPExpected) {
			t.Errorf("with a forecast: %v: %v, %v", forecasts, err, r)
		}
	}
}
