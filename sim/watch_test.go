package sim_test

import (
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/runlog"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// curious is a sink that now and then asks why each waiting job waits.
type curious struct {
	*runlog.Writer
	waiting map[string]bool
	passes  int
	answers map[core.Reason]int
	last    bool
}

func (c *curious) Submitted(t core.Time, j *sim.Live) error {
	c.waiting[j.Name] = true
	return c.Writer.Submitted(t, j)
}

func (c *curious) Bound(t core.Time, j *sim.Live, pods []core.Placement, why core.Reason) error {
	delete(c.waiting, j.Name)
	return c.Writer.Bound(t, j, pods, why)
}

func (c *curious) Passed(_ core.Time, _ int, inquire func() sim.Inquiry, last bool) {
	c.last = last
	if c.passes++; c.passes%100 != 0 {
		return
	}
	q := inquire()
	for name := range c.waiting {
		if reason, _, waits := q.Why(name); waits {
			c.answers[reason]++
		}
	}
}

// To ask why jobs wait, in any order, changes no decision.
func TestAskingChangesNothing(t *testing.T) {
	const name = "kant-training"
	replay := func(policyName string, ask bool) string {
		o := workload.Options{Seed: 3, GPUs: 800, Length: 2 * 24 * 3600 * core.Second}
		c, err := workload.OpenCluster(name, o)
		if err != nil {
			t.Fatal(err)
		}
		o.Cluster = &c
		jobs, _, err := workload.OpenJobs(name, o)
		if err != nil {
			t.Fatal(err)
		}
		w, err := runlog.Create("", &c, metrics.Options{})
		if err != nil {
			t.Fatal(err)
		}
		d, _ := policy.ByName(policyName)
		var sink sim.Sink = w
		asks := &curious{Writer: w, waiting: map[string]bool{}, answers: map[core.Reason]int{}}
		if ask {
			sink = asks
		}
		if _, err := sim.Run(t.Context(), sim.Config{Cluster: c, Jobs: jobs, Policy: d.Policy, Seed: 3}, sink); err != nil {
			t.Fatal(err)
		}
		s, err := w.Close(runlog.Facts{})
		if err != nil {
			t.Fatal(err)
		}
		if ask && (!asks.last || len(asks.answers) == 0) {
			t.Errorf("%s: the answers were %v, the last pass was told of: %v", policyName, asks.answers, asks.last)
		}
		return s.DecisionSHA256
	}
	for _, name := range []string{"StrictFIFO", "default"} {
		if with, without := replay(name, true), replay(name, false); with != without {
			t.Errorf("%s: decisions are %s when it is asked why jobs wait, else %s", name, with, without)
		}
	}
}
