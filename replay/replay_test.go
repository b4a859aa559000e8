package replay_test

import (
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/coretest/audit"
	"github.com/muster-sched/muster/eventlog"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/replay"
	"github.com/muster-sched/muster/runlog"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// simulate runs c, and returns what it came to. dir may be empty.
func simulate(t *testing.T, dir string, c sim.Config) metrics.Summary {
	t.Helper()
	w, err := runlog.Create(dir, &c.Cluster, metrics.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sim.Run(t.Context(), c, w); err != nil {
		t.Fatal(err)
	}
	s, err := w.Close(runlog.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// record runs c, and returns the folder of its event log.
func record(t *testing.T, c sim.Config) (log string, s metrics.Summary) {
	t.Helper()
	log = t.TempDir()
	w, err := eventlog.NewWriter(eventlog.Config{Dir: log})
	if err != nil {
		t.Fatal(err)
	}
	c.Record = w
	s = simulate(t, "", c)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return log, s
}

func generated(t *testing.T, name, policyName string, o workload.Options) sim.Config {
	t.Helper()
	c, err := workload.OpenCluster(name, o)
	if err != nil {
		t.Fatal(err)
	}
	o.Cluster = &c
	jobs, _, err := workload.OpenJobs(name, o)
	if err != nil {
		t.Fatal(err)
	}
	completed := func(yield func(workload.Job, error) bool) { // a log does not say how jobs ended
		for j, err := range jobs {
			j.Outcome = workload.Completed
			if !yield(j, err) {
				return
			}
		}
	}
	return sim.Config{Cluster: c, Jobs: completed, Policy: policyOf(t, policyName), Seed: o.Seed}
}

func policyOf(t *testing.T, name string) core.Policy {
	t.Helper()
	doc, ok := policy.ByName(name)
	if !ok {
		t.Fatalf("no policy %s", name)
	}
	return doc.Policy
}

func config(r *replay.Recording) sim.Config {
	return sim.Config{Cluster: r.Cluster, Changes: r.Changes, Jobs: r.Jobs(), Policy: r.Policy, Until: r.End}
}

// Where nothing in the log depends on chance, the policy that decided decides the
// same again, byte for byte.
func TestSamePolicySameDecisions(t *testing.T) {
	const day = 24 * 3600 * core.Second
	for _, x := range []struct {
		workload, policy string
		o                workload.Options
		mtbf             core.Time
	}{
		{"kant-training", "default", workload.Options{Seed: 1, GPUs: 256, Length: 3 * day, Load: 1.1}, 0},
		{"kant-training", "StrictFIFO", workload.Options{Seed: 2, GPUs: 256, Length: 3 * day, Load: 1.1}, 0},
		{"kant-inference", "default", workload.Options{Seed: 3, GPUs: 128, Length: day}, 0},
		{"kant-training", "default", workload.Options{Seed: 4, GPUs: 256, Length: 3 * day, Load: 0.9}, 30 * day},
	} {
		c := generated(t, x.workload, x.policy, x.o)
		c.Models = sim.Models{MTBF: x.mtbf, Repair: day / 4, Checkpoint: 1800 * core.Second}
		log, want := record(t, c)
		r, err := replay.Read(log)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		got := simulate(t, dir, config(r))
		if got.DecisionSHA256 != want.DecisionSHA256 {
			t.Errorf("%s, %s: %+v, recorded %+v", x.workload, x.policy, got.Jobs, want.Jobs)
		}
		t.Logf("%s %s: %+v %d preemptions", x.workload, x.policy, got.Jobs, got.Preemptions)
		report, err := audit.Audit(dir)
		if err != nil || !report.OK() {
			t.Errorf("%s, %s: %v %v", x.workload, x.policy, report, err)
		}
	}
}
