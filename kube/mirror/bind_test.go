package mirror

import (
	"fmt"
	"maps"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/reports"
	"github.com/muster-sched/muster/kube/tables"
)

// gated gives a pod our scheduling gate.
func gated(p *v1.Pod) {
	p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, v1.PodSchedulingGate{Name: v1alpha1.QuotaGate})
}

// Autoscalers see a pod once its job has quota; before, and while the job is not whole,
// the gate stays on.
func TestQuotaGate(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "r1")
	w.m.queueSeen(queueObject("q", "", v1alpha1.Quota{Model: "*", Nominal: GPUs(4), BorrowingLimit: new(v1alpha1.GPUs)}))
	w.m.queueSeen(queueObject("other", "", v1alpha1.Quota{Model: "*", Nominal: GPUs(8)}))
	inQueue := labelled(v1alpha1.QueueLabel + "=q")
	w.pod("blocker", labelled(v1alpha1.QueueLabel+"=other"), asking(v1alpha1.GPUResource, "8"))
	w.on("blocker>n1")
	w.pod("has-quota", gated, inQueue, asking(v1alpha1.GPUResource, "4"))
	w.pod("has-none", gated, inQueue, asking(v1alpha1.GPUResource, "8"))
	w.pod("of-a-gang", gated, inQueue, gang("g", 2))
	w.settle()
	w.m.Explain(10)
	w.now = w.now.Add(time.Duration(2 * reports.After))
	w.settle()
	said := map[string]string{}
	for _, x := range w.m.Explain(10) {
		said[x.Name] = fmt.Sprintf("%s %t", x.Reason, x.Ungate)
	}
	if want := map[string]string{"has-quota": "Resources true", "has-none": "ExceedsQuota false", "of-a-gang": "Collecting false"}; !maps.Equal(said, want) {
		t.Errorf("why they wait, and whether the gate is taken off: %v; want %v", said, want)
	}
	w.onBind = func(b *tables.Binding) bool {
		if !b.Gated {
			t.Errorf("%s is bound with its gate on", b.Of.Object.Name)
		}
		return true
	}
	w.gone("blocker")
	w.on("has-quota>n1")
}
