package e2e

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// With the chart's admission policy pods wait behind a gate while their queue
// has no quota, so that autoscalers leave them alone; behind none when GPUs are
// what lacks.
func TestQuotaGate(t *testing.T) {
	c := begin(t)
	c.quotaGate()
	c.node("n")
	c.queue("team", 4, isolated)
	c.queue("other", 8, isolated)
	c.schedule()
	c.create(pod("first", asks(4), in("team")))
	c.bound("first")
	c.create(pod("second", asks(4), in("team")))
	c.waits("second", "QuotaExceeded")
	if !gated(c.get("second")) {
		t.Error("a pod that waits for quota has no gate")
	}
	c.create(pod("third", asks(8), in("other")))
	c.waits("third", "Resources")
	c.until("the pod that GPUs lack for has no gate", func() error {
		if gated(c.get("third")) {
			return fmt.Errorf("it has")
		}
		return nil
	})
	c.delete("third")
	c.editQueue("team", func(q *v1alpha1.Queue) { q.Spec.Quota[0].Nominal = 8000 })
	c.bound("second")
	if gated(c.get("second")) {
		t.Error("a pod with a node has a gate")
	}
}

// Gangs come through the gate whole.
func TestQuotaGateGang(t *testing.T) {
	c := begin(t)
	c.quotaGate()
	c.node("n")
	c.queue("team", 4, isolated)
	c.schedule()
	c.group("train", 3)
	pods := c.several("train", 0, 3, asks(2), in("team"), ofGroup("train"))
	for _, p := range pods {
		c.waits(p, "ExceedsQuota")
	}
	c.unbound(pods...)
	c.editQueue("team", func(q *v1alpha1.Queue) { q.Spec.Quota[0].Nominal = 8000 })
	c.bound(pods...)
}

func gated(p *v1.Pod) bool {
	for _, g := range p.Spec.SchedulingGates {
		if g.Name == v1alpha1.QuotaGate {
			return true
		}
	}
	return false
}

// quotaGate installs the chart's admission policy for the time of the test.
func (c *cluster) quotaGate() {
	c.Helper()
	gates := func(want bool) func() error {
		return func() error {
			p, err := admin.CoreV1().Pods(c.namespace).Create(ctx(), pod("probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil && gated(p) != want {
				err = fmt.Errorf("new pods have the gate: %t", !want)
			}
			return err
		}
	}
	for _, doc := range chart(c.T, "quotagate.yaml") {
		c.must(apply(ctx(), doc, ""))
	}
	c.until("new pods have the gate", gates(true))
	c.Cleanup(func() {
		for _, kind := range []string{"MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"} {
			c.must(anyKind.Resource(installed[kind]).Delete(ctx(), "muster-quota-gate", metav1.DeleteOptions{}))
		}
		c.until("new pods have no gate", gates(false))
	})
}
