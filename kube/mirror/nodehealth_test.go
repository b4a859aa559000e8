package mirror

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// What conditions of a node say about its GPUs keeps pods with GPUs off it, and others not; what runs there stays.
func TestNodeConditionsOfGPUs(t *testing.T) {
	w := newWorld(t)
	w.node("a", "1")
	w.pod("runs", asking("nvidia.com/gpu", "1"))
	w.on("runs>a")
	condition := func(status v1.ConditionStatus) change[*v1.Node] {
		return func(n *v1.Node) {
			n.Status.Conditions = append(n.Status.Conditions[:1:1], v1.NodeCondition{Type: "XIDErrors", Status: status, Message: "Xid 79"})
		}
	}
	w.node("a", "", condition(v1.ConditionTrue))
	w.pod("gpu", asking("nvidia.com/gpu", "1"))
	w.pod("cpu", asking("cpu", "1"))
	w.on("runs>a", "gpu>", "cpu>a")
	if st := w.m.Stats(); st.Models[0].Unhealthy != 8 {
		t.Errorf("%d GPUs are unhealthy, expected 8", st.Models[0].Unhealthy)
	}
	w.node("a", "", condition(v1.ConditionFalse))
	w.on("runs>a", "gpu>a", "cpu>a")
}
