package stats

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-sched/muster/core"
)

// What is added and taken back leaves nothing; a queue's subtree has what all below it own
// and use; what a queue uses beyond its quota is borrowed.
func TestCensus(t *testing.T) {
	c := New("others")
	n := Node{There: 1, Open: 1, Model: Model{Model: "H800", GPUs: 8, Used: 6000, Free: 2000, Fragmented: 1}}
	g := Group{Queue: "a", Jobs: 1, Bound: 1, Running: 1, JobRuns: 1}
	g.Use("H800", 4000)
	g.Use("H800", 2000)
	w := Group{Queue: "b", Reason: "QuotaExceeded", Jobs: 1, Waiting: 2, JobWaits: 1}
	queues := map[string]core.Queue{
		"top":    {Name: "top", Weight: 1, Quota: []core.Quota{{Model: "H800", Nominal: 8000}}},
		"a":      {Name: "a", Parent: "top", Weight: 1, Quota: []core.Quota{{Model: "H800", Nominal: 4000}}},
		"b":      {Name: "b", Parent: "top", Weight: 3},
		"others": {Name: "others", Weight: 1},
	}
	c.AddNode(&n, 1)
	for _, x := range []*Group{&g, &w} {
		c.AddGroup(x, 1)
	}
	st := c.Stats(queues)
	if st.Nodes != 1 || st.Open != 1 || st.Jobs != 2 || st.Waiting != 2 || st.Bound != 1 || st.Running != 1 || !reflect.DeepEqual(st.Reasons, map[string]int{"QuotaExceeded": 1}) {
		t.Errorf("got %+v", st)
	}
	if len(st.Models) != 1 || !reflect.DeepEqual(st.Models[0], Model{Model: "H800", Nodes: 1, GPUs: 8, Used: 6000, Free: 2000, Fragmented: 1}) {
		t.Errorf("the models are %+v", st.Models)
	}
	want := []Queue{
		{Name: "a", Used: map[string]core.Milli{"H800": 6000}, Running: 1, WeightPermille: 250,
			Subtree: Subtree{Running: 1, Usage: []Usage{{Model: "H800", Nominal: 4000, Used: 6000, Borrowed: 2000}}}},
		{Name: "b", Used: map[string]core.Milli{}, Waiting: 1, WeightPermille: 750, Subtree: Subtree{Waiting: 1}},
		{Name: "others", Used: map[string]core.Milli{}},
		{Name: "top", Used: map[string]core.Milli{}, WeightPermille: 1000,
			Subtree: Subtree{Waiting: 1, Running: 1, Usage: []Usage{{Model: "H800", Nominal: 12000, Used: 6000}}}},
	}
	if !reflect.DeepEqual(st.Queues, want) {
		t.Errorf("the queues are\n%+v; want\n%+v", st.Queues, want)
	}
	c.AddNode(&n, -1)
	for _, x := range []*Group{&g, &w} {
		c.AddGroup(x, -1)
	}
	if st := c.Stats(nil); !reflect.DeepEqual(st, Stats{Reasons: map[string]int{}}) {
		t.Errorf("what is left is %+v", st)
	}
	if len(c.queues) > 0 {
		t.Errorf("queues are left: %v", c.queues)
	}
}

// A scrape has what HP jobs are expected to have, by hour from now.
func TestExpectedGauge(t *testing.T) {
	x := core.Expected{Model: "H800"}
	x.GPU[0], x.GPU[24] = 4000, 6500
	r := prometheus.NewRegistry()
	r.MustRegister(&Gauges{Now: time.Now, Stats: func(context.Context) (Stats, error) { return Stats{Expected: []core.Expected{x}}, nil }})
	families, err := r.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "muster_expected_hp_gpus" || len(families[0].Metric) != 25 {
		t.Fatalf("%v, %v", families, err)
	}
	got := map[string]float64{}
	for _, m := range families[0].Metric {
		got[m.Label[1].GetValue()+" in "+m.Label[0].GetValue()] = m.Gauge.GetValue()
	}
	if got["H800 in 0"] != 4 || got["H800 in 1"] != 0 || got["H800 in 24"] != 6.5 {
		t.Errorf("got %v", got)
	}
}
