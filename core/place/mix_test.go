package place

import (
	"testing"

	"github.com/muster-sched/muster/core/cluster"
)

// A GPU model that comes later has a value at once, not when so many requests
// have come that values are derived again: without one, its nodes come last.
func TestNewModelHasValue(t *testing.T) {
	s := cluster.New(nil)
	m := NewMix(s)
	for i, model := range []string{"A", "B"} {
		id, err := s.AddNode(cluster.NodeSpec{Name: model, GPUs: 8, Model: model})
		if err != nil {
			t.Fatal(err)
		}
		m.Observe(&cluster.Request{GPU: cluster.WholeGPU}, 2)
		if m.learn(); m.valueIn(s.Node(id).PoolNumber()) == nil {
			t.Errorf("model %d, %s, has no value", i, model)
		}
	}
}

// Nodes are counted again after they come or change, and only then.
func TestSurveyFollowsNodes(t *testing.T) {
	s := cluster.New(nil)
	m := NewMix(s)
	add := func(name string, gpus int) cluster.NodeID {
		id, err := s.AddNode(cluster.NodeSpec{Name: name, GPUs: gpus, Model: "A", CPUMilli: 1000})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	check := func(what string, devices, roomy int64) {
		t.Helper()
		m.survey()
		q := &mixed{requestKey: requestKey{gpu: 4 * cluster.WholeGPU, cpu: 1000}}
		if got := m.roomy(q); m.devices != devices || m.capacity["A"] != devices || got != roomy {
			t.Errorf("%s: %d devices, %d of A, %d for pods of 4; want %d, %d, %d", what, m.devices, m.capacity["A"], got, devices, devices, roomy)
		}
	}
	check("no node", 0, 0)
	small := add("small", 2)
	add("large", 8)
	check("two nodes", 10, 8)
	add("late", 4)
	check("a node more", 14, 12)
	spec := *s.Node(small + 1).Spec
	spec.CPUMilli = 500
	if _, err := s.ChangeNode(small+1, spec); err != nil {
		t.Fatal(err)
	}
	check("less CPU", 14, 4)
	s.SetZone(small, true)
	s.RemoveNode(small + 2)
	check("in the zone, and lost", 14, 4)
}

// However many different requests come, a bounded number is remembered, those that come often among them, and the
// values are derived from time to time as before.
func TestMixForgets(t *testing.T) {
	m := NewMix(cluster.New(nil))
	often, rounds := cluster.Request{GPU: cluster.WholeGPU}, 0
	for i := range int64(20 * mixRequests) {
		m.Observe(&cluster.Request{GPU: cluster.WholeGPU, CPUMilli: 1 + i}, 2)
		if i%100 == 0 {
			m.Observe(&often, 1)
		}
		if len(m.requests) > mixRequests {
			t.Fatalf("%d requests are remembered", len(m.requests))
		}
		if m.due <= 0 {
			m.learn()
			rounds++
		}
	}
	if q := m.requests[keyOf(&often)]; q == nil || q.pods < 20 {
		t.Errorf("the frequent request is remembered as %+v", q)
	}
	if rounds < 50 {
		t.Errorf("values were derived %d times", rounds)
	}
}
