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
