package e2e

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube"
)

// keeping are the annotations by which a job says that it does not leave.
var keeping = map[string]string{
	v1alpha1.PreemptibleAnnotation: "false",
	v1alpha1.LockedAnnotation:      "true",
	v1alpha1.MinRuntimeAnnotation:  "876000h",
}

// A tenant who may make pods, and nothing else, does not keep what a queue lent to its own, neither by
// what it writes on its pods from the start, nor by what it writes later, nor by putting them on nodes
// itself, nor with finalizers and a grace of years. Who may also make disruption budgets does not, either.
func TestTenantKeepsNothingLent(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.queue("rich", 8)
	c.queue("poor", 0)
	tenant := c.tenant()
	var passed atomic.Int64 // on the scheduler's clock, beside what passes
	clock := func(k *kube.Config) {
		k.Now = func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
		k.Policy.Preempt.BudgetTimeout = 8 * core.Second
	}
	s := c.schedule(clock)

	// 1. What says from the start that it does not leave borrows nothing.
	for key, value := range keeping {
		name := "keeps-" + key[len("muster.sh/"):]
		c.createAs(tenant, pod(name, in("poor"), note(key, value)))
		c.waits(name, "ExceedsQuota")
	}

	// 2. What borrows says so when it runs.
	c.createAs(tenant, pod("edits", asks(2), in("poor")))
	c.bound("edits")
	annotations := ""
	for key, value := range keeping {
		annotations += fmt.Sprintf("%q: %q, ", key, value)
	}
	c.patchAs(tenant, "edits", fmt.Sprintf(`{"annotations": {%s%q: "rich"}, "labels": {%q: "rich"}}`, annotations, v1alpha1.QueueLabel, v1alpha1.QueueLabel))

	// 3. It is put on the node by the tenant.
	c.createAs(tenant, pod("placed", asks(2), in("poor"), func(p *v1.Pod) {
		p.Spec.NodeName = "n"
		for key, value := range keeping {
			p.Annotations[key] = value
		}
	}))

	// 4. It does not end when it is told to. Its node ends it after the grace that it was given;
	// its finalizer stays.
	c.createAs(tenant, pod("holds", asks(2), in("poor"), stays, func(p *v1.Pod) {
		p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1 << 30)
		p.Finalizers = []string{"tenant.example/never"}
	}))

	// 5. It is under a budget that lets none go, which takes the right to make budgets.
	_, err := admin.RbacV1().Roles(c.namespace).Update(ctx(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create", "get", "patch", "update"}},
			{APIGroups: []string{"policy"}, Resources: []string{"poddisruptionbudgets"}, Verbs: []string{"create"}},
		},
	}, metav1.UpdateOptions{})
	c.must(err)
	c.createAs(tenant, pod("budget", asks(2), in("poor"), label("app", "serve")))
	c.until("the tenant makes a budget", func() error {
		_, err := tenant.PolicyV1().PodDisruptionBudgets(c.namespace).Create(ctx(), &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: "none"},
			Spec: policyv1.PodDisruptionBudgetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "serve"}}, MaxUnavailable: ptr.To(intstr.FromInt32(0)),
			},
		}, metav1.CreateOptions{})
		return err
	})
	all := []string{"edits", "placed", "holds", "budget"}
	c.phase(v1.PodRunning, all...)
	var lent []*v1.Pod
	for _, name := range all {
		lent = append(lent, c.get(name))
	}

	// The next scheduler is told nothing but what the API has. The owner comes, and time passes.
	s.stop()
	c.schedule(clock)
	c.create(pod("owner", asks(8), in("rich")))
	passed.Store(int64(2 * time.Hour))
	c.until("the pod with a grace of years leaves", func() error {
		p := c.get("holds")
		if p.DeletionTimestamp == nil {
			return fmt.Errorf("it does not")
		}
		if grace := *p.DeletionGracePeriodSeconds; grace > 600 {
			t.Fatalf("it was given %d s to end", grace)
		}
		return nil
	})
	// As its node does when the grace is over.
	c.until("the node has ended it", func() error {
		p := c.get("holds")
		p.Status.Phase = v1.PodFailed
		_, err := admin.CoreV1().Pods(c.namespace).UpdateStatus(ctx(), p, metav1.UpdateOptions{})
		return err
	})
	c.bound("owner")
	c.gone(lent[0], lent[1], lent[3])
	c.until("the finalizer goes", func() error {
		p := c.get("holds")
		p.Finalizers = nil
		_, err := admin.CoreV1().Pods(c.namespace).Update(ctx(), p, metav1.UpdateOptions{})
		return err
	})
	c.unbound("keeps-preemptible", "keeps-locked", "keeps-min-runtime")
}
