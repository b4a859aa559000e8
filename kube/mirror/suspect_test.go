package mirror

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/core"
)

// A node that failures cordon stays cordoned until an operator uncordons it, also if it is not ready for a moment before the API shows the cordon, and if the
// engine is built again.
func TestSuspectStaysCordoned(t *testing.T) {
	w := newWorld(t, func(p *core.Policy) {
		p.Recovery = core.DefaultRecovery()
		p.Recovery.Mode = core.Recover
	})
	ready := func(is v1.ConditionStatus) change[*v1.Node] {
		return func(n *v1.Node) { n.Status.Conditions[0].Status = is }
	}
	closed := func(is bool) change[*v1.Node] { return func(n *v1.Node) { n.Spec.Unschedulable = is } }
	w.node("a", "r1")
	w.m.Tell(core.JobDiagnosed{Job: "old", Class: "infrastructure/gpu", Suspects: []string{"a"}, Confidence: 1000, Remedy: core.Remedy{Node: core.CordonNode}})
	w.settle()
	w.pod("p")
	w.on("p>")

	w.node("a", "", ready(v1.ConditionFalse))
	w.settle()
	w.node("a", "", ready(v1.ConditionTrue))
	w.on("p>")

	before := w.m.Failures()
	w.m.failures = func() core.FailuresFound { return before }
	w.m.outdated = true
	w.on("p>")
	if is := w.m.Failures(); len(is.Nodes) != 1 || !is.Nodes[0].Cordoned {
		t.Errorf("another engine knows of %+v", is.Nodes)
	}

	w.node("a", "", closed(true))
	w.settle()
	w.node("a", "", closed(false))
	w.on("p>a")
}
