package replay

import (
	"math"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/coretest/audit"
	"github.com/muster-sched/muster/eventlog"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/runlog"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// simulate runs c, and returns what it came to. dir may be empty.
func simulate(t *testing.T, dir string, c sim.Config) metrics.Summary {
	t.Helper()
	return simulateWindow(t, dir, c, metrics.Options{})
}

func simulateWindow(t *testing.T, dir string, c sim.Config, window metrics.Options) metrics.Summary {
	t.Helper()
	w, err := runlog.Create(dir, &c.Cluster, window)
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
	return recordWindow(t, c, metrics.Options{})
}

func recordWindow(t *testing.T, c sim.Config, window metrics.Options) (log string, s metrics.Summary) {
	t.Helper()
	log = t.TempDir()
	w, err := eventlog.NewWriter(eventlog.Config{Dir: log})
	if err != nil {
		t.Fatal(err)
	}
	c.Record = w
	s = simulateWindow(t, "", c, window)
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

func config(r *Recording) sim.Config {
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
		r, err := Read(log)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		got := simulate(t, dir, config(r))
		if got.DecisionSHA256 != want.DecisionSHA256 {
			t.Errorf("%s, %s: %+v, recorded %+v", x.workload, x.policy, got.Jobs, want.Jobs)
		}
		report, err := audit.Audit(dir)
		if err != nil || !report.OK() {
			t.Errorf("%s, %s: %v %v", x.workload, x.policy, report, err)
		}
	}
}

// fromMiddle reads a log as if what was before a time were gone, and counts the
// jobs that ended since.
func fromMiddle(t *testing.T, log string, from core.Time) (r *Recording, ended int) {
	t.Helper()
	before, f := eventlog.NewTables(), newFold()
	var header eventlog.Header
	take := func(e *eventlog.Entry) {
		if err := f.take(e); err != nil {
			t.Fatal(err)
		}
	}
	for e, err := range eventlog.Read(log) {
		switch {
		case err != nil:
			t.Fatal(err)
		case e.Now < from:
			if e.Begin != nil {
				header = *e.Begin
			}
			if err := before.Take(&e); err != nil {
				t.Fatal(err)
			}
			continue
		case !f.begun:
			snapshot := before.Snapshot(from)
			header.Snapshot = len(snapshot)
			take(&eventlog.Entry{Now: from, Begin: &header})
			for i := range snapshot {
				take(&snapshot[i])
			}
		}
		if _, ok := e.Event.(core.JobEnded); ok {
			ended++
		}
		take(&e)
	}
	return f.finish(), ended
}

// A log of which the beginning is gone begins with what ran and waited then. The
// policy that decided makes of that nearly what it made of it: the share of the
// GPUs that is allocated differs by less than a hundredth, the number of jobs that
// end by less than a twentieth. Another one can be tried.
func TestFromTheMiddle(t *testing.T) {
	const day = 24 * 3600 * core.Second
	for seed := range uint64(3) {
		c := generated(t, "kant-training", "default", workload.Options{Seed: seed, GPUs: 256, Length: 6 * day, Load: 1})
		c.Models = sim.Models{MTBF: 30 * day, Repair: day / 4, Checkpoint: 1800 * core.Second, Grace: 10 * core.Second}
		c.Until = 6 * day
		log, want := recordWindow(t, c, metrics.Options{From: 3 * day, To: 6 * day})
		r, ended := fromMiddle(t, log, 3*day)
		dir := t.TempDir()
		again := config(r)
		again.Models.Grace = c.Models.Grace
		got := simulate(t, dir, again)
		report, err := audit.Audit(dir)
		if err != nil || !report.OK() {
			t.Errorf("%v %v", report, err)
		}
		if d := math.Abs(got.GAR.Mean - want.GAR.Mean); d > 0.01 {
			t.Errorf("GAR %.4f, recorded %.4f", got.GAR.Mean, want.GAR.Mean)
		}
		if d := math.Abs(float64(got.Jobs.Completed)/float64(ended) - 1); d > 0.05 {
			t.Errorf("%d jobs end, recorded %d", got.Jobs.Completed, ended)
		}
		t.Logf("GAR %.4f, recorded %.4f; %d jobs end, recorded %d", got.GAR.Mean, want.GAR.Mean, got.Jobs.Completed, ended)
		again.Policy = policyOf(t, "StrictFIFO")
		dir = t.TempDir()
		other := simulate(t, dir, again)
		if report, err := audit.Audit(dir); err != nil || !report.OK() {
			t.Errorf("%v %v", report, err)
		}
		if other.GAR.Mean >= got.GAR.Mean {
			t.Errorf("StrictFIFO, which lets nobody pass, has GAR %.4f, more than %.4f", other.GAR.Mean, got.GAR.Mean)
		}
	}
}
