package e2e

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// Who has to make room is one that its disruption budget lets go, though another
// would be the cheaper to evict; who is under a budget goes once that has room.
func TestPriorityAndBudgets(t *testing.T) {
	c := begin(t)
	c.node("n")
	high := c.priority("e2e-high", 1000)
	c.budget(policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1))})
	c.schedule()
	c.create(pod("free", asks(4)))
	c.bound("free")
	c.create(pod("held", asks(4), label("app", "serve"))) // it came last: it would go first
	c.phase(v1.PodRunning, "held")
	free, held := c.get("free"), c.get("held")
	c.create(pod("strong", asks(4), high))
	c.bound("strong")
	c.gone(free)
	c.create(pod("stronger", asks(4), high))
	c.waits("stronger", "Resources", "must not be evicted now hold 4 GPUs")
	if p := c.get("held"); p.UID != held.UID || p.DeletionTimestamp != nil {
		t.Error("a pod was evicted whose budget lets none go")
	}
	_, err := admin.PolicyV1().PodDisruptionBudgets(c.namespace).Patch(ctx(), "serve", types.MergePatchType,
		[]byte(`{"spec":{"minAvailable":0}}`), metav1.PatchOptions{})
	c.must(err)
	c.gone(held)
	c.bound("stronger")
}
