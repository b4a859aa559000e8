package sim_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// twoProfiles are a job that computes all the time and one that computes little: together they run at 0.5 and 0.8 of their speeds.
func twoProfiles(t *testing.T) *workload.Profiles {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"single_data.csv": "model,dataset,batchsize,amp,gpu_util,gmem,label\nHard,D,1,0,99,4000,2\nEasy,D,1,0,20,2000,0\n",
		"colocate_info.csv": "model1,dataset1,batchsize1,amp1,speed1,model2,dataset2,batchsize2,amp2,speed2\n" +
			"Hard,D,1,0,0.5,Easy,D,1,0,0.8\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p, err := workload.OpenProfiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// packed plays a hard job of 1,000 s and, from 100 s on, an easy one of 160 s on one node. It returns when they ended.
func packed(t *testing.T, name string, m sim.Packing) (hard, easy float64, stats sim.Stats) {
	t.Helper()
	jobs := func(yield func(workload.Job, error) bool) {
		for _, j := range []workload.Job{{Duration: 1000 * core.Second, Profile: "Hard/D/1"}, {Duration: 160 * core.Second, Profile: "Easy/D/1"}} {
			j.Name, j.Queue, j.Estimate = j.Profile, "q", j.Duration
			j.Tasks = []core.Task{{Pods: 1, Request: core.Request{GPU: 8000}}}
			if j.Duration < 1000*core.Second {
				j.Submitted = 100 * core.Second
			}
			if !yield(j, nil) {
				return
			}
		}
	}
	d, _ := policy.ByName(name)
	c := workload.Cluster{Levels: []string{"leaf"}, Nodes: []core.Node{{Name: "n", Model: "A", GPUs: 8, Domains: []string{"l"}}}}
	e := &endings{at: map[string]core.Time{}}
	stats, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Policy: d.Policy, Models: sim.Models{Packing: m}}, e)
	if err != nil {
		t.Fatal(err)
	}
	return e.at["Hard/D/1"].Seconds(), e.at["Easy/D/1"].Seconds(), stats
}

// The easy job takes 160 s / 0.8 = 200 s; in these the hard one does 100 s of its work.
func TestPackedJobsSlowEachOther(t *testing.T) {
	p := twoProfiles(t)
	hard, easy, stats := packed(t, "Lucid", sim.Packing{Profiles: p})
	if hard != 1100 || easy != 300 || *stats.Packed != (sim.Packed{Jobs: 1}) {
		t.Errorf("the jobs end at %v and %v, packed %+v; want 1100, 300 and one packing", hard, easy, stats.Packed)
	}
	// Without profiles nothing is packed.
	if hard, easy, _ := packed(t, "Lucid", sim.Packing{}); hard != 1000 || easy != 1160 {
		t.Errorf("without profiles the jobs end at %v and %v, want 1000 and 1160", hard, easy)
	}
}

// At 150 s the tracker sees that the hard job has half of its throughput. The easy one leaves, and loses its work; it starts when the
// other one has ended, which did 25 s of work in those 50 s.
func TestPackingIsCancelledWhenTheHostIsTooSlow(t *testing.T) {
	p := twoProfiles(t)
	hard, easy, stats := packed(t, "LucidPlus", sim.Packing{Profiles: p, Tracked: 1, Settle: 50 * core.Second})
	if hard != 1025 || easy != 1185 || *stats.Packed != (sim.Packed{Jobs: 1, Cancelled: 1}) {
		t.Errorf("the jobs end at %v and %v, packed %+v; want 1025, 1185 and one cancelled", hard, easy, stats.Packed)
	}
	// A job whose log says nothing is left as it is.
	if _, _, stats := packed(t, "LucidPlus", sim.Packing{Profiles: p, Settle: 50 * core.Second}); stats.Packed.Cancelled != 0 {
		t.Error("a packing is cancelled for a job that is not tracked")
	}
}
