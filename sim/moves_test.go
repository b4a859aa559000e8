package sim_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
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

// moved runs a job of 100 s on one of two nodes, while changes happen.
func moved(t *testing.T, m sim.Models, changes ...workload.Change) (sim.Stats, metrics.Summary) {
	t.Helper()
	c := sim.Config{Models: m, Jobs: func(yield func(workload.Job, error) bool) {
		yield(workload.Job{Duration: 100 * core.Second, Job: core.Job{
			Name: "j", Queue: "q", Mobility: core.Replaceable,
			Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: core.WholeGPU}}},
		}}, nil)
	}}
	c.Changes = append(c.Changes, workload.Change{Event: core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}}})
	for i := range 2 {
		n := core.Node{Name: fmt.Sprintf("n%d", i), Model: "A10", GPUs: 1}
		c.Cluster.Nodes = append(c.Cluster.Nodes, n)
		c.Changes = append(c.Changes, workload.Change{Event: core.NodeAdded{Node: n}})
	}
	c.Changes = append(c.Changes, changes...)
	doc, _ := policy.ByName("default")
	c.Policy = doc.Policy
	w, err := runlog.Create("", &c.Cluster, metrics.Options{})
	if err != nil {
		t.Fatal(err)
	}
	stats, err := sim.Run(context.Background(), c, w)
	if err != nil {
		t.Fatal(err)
	}
	s, err := w.Close(runlog.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	return stats, s
}

// A pod that is moved works on, and holds both places until the new instance has started and
// the old one is gone.
func TestMoveTakesNoWork(t *testing.T) {
	at := func(s int, ev core.Event) workload.Change {
		return workload.Change{At: core.Time(s) * core.Second, Event: ev}
	}
	m := sim.Models{StartDelay: 10 * core.Second, HandOver: 5 * core.Second}
	ask := at(20, core.MoveRequested{Job: "j"})
	for _, test := range []struct {
		name    string
		changes []workload.Change
		end     float64 // 10 s to start, 100 s of work
		second  float64 // GPU-seconds
		moves   int64
	}{
		{"it moves", []workload.Change{ask}, 110, 15, 1},
		{"the old node is lost when it has moved", []workload.Change{ask, at(40, core.NodeLost{Node: "n0"})}, 110, 15, 1},
		{"the new node is lost", []workload.Change{ask, at(30, core.NodeLost{Node: "n1"})}, 110, 10, 0},
		{"the old node is lost", []workload.Change{ask, at(30, core.NodeLost{Node: "n0"})}, 140, 10, 0},
		{"it ends before", []workload.Change{at(100, core.MoveRequested{Job: "j"})}, 110, 10, 0},
	} {
		stats, s := moved(t, m, test.changes...)
		if stats.End.Seconds() != test.end || s.Migrations != test.moves || s.MigrationGPUHours*3600 != test.second || s.Jobs.Completed != 1 {
			t.Errorf("%s: end at %v, %d moved, %v GPU-seconds, %+v; want %v, %d, %v", test.name, stats.End.Seconds(), s.Migrations, s.MigrationGPUHours*3600, s.Jobs,
				test.end, test.moves, test.second)
		}
	}
}

// However pods are moved, evicted, restarted elsewhere and lost with their nodes, no invariant breaks.
func TestMovesAudited(t *testing.T) {
	for seed := range uint64(4) {
		o := workload.Options{Seed: seed, GPUs: 128, Length: 2 * 24 * 3600 * core.Second, Load: 1.2}
		name := [...]string{"kant-inference", "kant-training"}[seed%2]
		cluster, err := workload.OpenCluster(name, o)
		if err != nil {
			t.Fatal(err)
		}
		o.Cluster = &cluster
		jobs, _, err := workload.OpenJobs(name, o)
		if err != nil {
			t.Fatal(err)
		}
		doc, _ := policy.ByName([...]string{"default", "StrictFIFO"}[seed/2])
		doc.Policy.Defrag = core.Defrag{Every: 3600 * core.Second, Restarts: core.AllRestarts, MaxLost: 300 * core.Second}
		dir := t.TempDir() + "/run"
		w, err := runlog.Create(dir, &cluster, metrics.Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = sim.Run(t.Context(), sim.Config{
			Cluster: cluster, Policy: doc.Policy, Seed: seed,
			Jobs: func(yield func(workload.Job, error) bool) {
				n := 0
				for j, err := range jobs {
					if n++; n%2 == 0 {
						j.Mobility = core.Replaceable
					}
					if !yield(j, err) {
						return
					}
				}
			},
			Models: sim.Models{
				StartDelay: 30 * core.Second, HandOver: 900 * core.Second, MoveEvery: 600 * core.Second,
				Grace: 20 * core.Second, MTBF: 100 * 3600 * core.Second, Repair: 3600 * core.Second, Checkpoint: 600 * core.Second,
				SpreadCost: 0.27, CommShare: 0.5,
			},
		}, w)
		if err != nil {
			t.Fatal(err)
		}
		s, err := w.Close(runlog.Facts{Rules: metrics.NewRules(&doc.Policy, 20*core.Second), Grace: 20 * core.Second})
		if err != nil {
			t.Fatal(err)
		}
		r, err := audit.Audit(dir)
		if err != nil || !r.OK() || s.Migrations == 0 {
			t.Errorf("seed %d: %d moves, %v, %v", seed, s.Migrations, err, r)
		}
		asked, freed := restarts(t, dir)
		if asked == 0 || freed == 0 {
			t.Errorf("seed %d: %d pods restart as requested, %d so that a node is free", seed, asked, freed)
		}
		t.Logf("seed %d: %d asked, %d freed, %d moves, %.1f GPU hours, %d preemptions, %+v", seed, asked, freed, s.Migrations, s.MigrationGPUHours, s.Preemptions, s.Jobs)
	}
}

// restarts counts the pods of a run that started again elsewhere as requested, and so that a node is free.
func restarts(t *testing.T, dir string) (asked, freed int) {
	f, err := os.Open(filepath.Join(dir, "decisions.jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if bind := strings.Contains(lines.Text(), `"op":"bind"`); bind && strings.Contains(lines.Text(), `"reason":"Requested"`) {
			asked++
		} else if bind && strings.Contains(lines.Text(), `"reason":"Defragmentation"`) {
			freed++
		}
	}
	return asked, freed
}
