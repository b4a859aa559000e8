package e2e

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/peers"
	"github.com/muster-sched/muster/kube/tables"
)

// Who may be HP, locked or unpreemptible, of which kind jobs are and how long, is for the queue to say, and no
// pod's annotations get round it: neither at first, nor when they are changed while it waits.
func TestTenantOutsideItsQueuesTerms(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.queue("strict", 8, func(q *v1alpha1.Queue) {
		q.Spec.Classes, q.Spec.Kinds = []v1alpha1.JobClass{"LP"}, []v1alpha1.JobKind{"batch", "training"}
		q.Spec.MaxWalltime, q.Spec.Protection = hour, "Forbidden"
	})
	tenant := c.tenant()
	c.schedule()
	for name, x := range map[string]struct{ key, value, says string }{
		"hp":            {v1alpha1.ClassAnnotation, "HP", "jobs of class HP: expected LP"},
		"kind":          {v1alpha1.KindAnnotation, "inference", "kind inference: expected batch or training"},
		"walltime":      {v1alpha1.WalltimeAnnotation, "61m", "run time of 1h1m: expected at most 1h"},
		"locked":        {v1alpha1.LockedAnnotation, "true", "locked jobs"},
		"unpreemptible": {v1alpha1.PreemptibleAnnotation, "false", "not preemptible"},
	} {
		c.createAs(tenant, pod(name, in("strict"), note(v1alpha1.ClassAnnotation, "LP"), note(x.key, x.value)))
		c.waits(name, tables.ReasonJobForbidden, x.says)
	}
	c.createAs(tenant, pod("fits", in("strict"), note(v1alpha1.ClassAnnotation, "LP"), note(v1alpha1.KindAnnotation, "batch"), note(v1alpha1.WalltimeAnnotation, "60m")))
	c.bound("fits")
	c.createAs(tenant, pod("grows", asks(8), in("strict"), note(v1alpha1.ClassAnnotation, "LP"), note(v1alpha1.WalltimeAnnotation, "60m")))
	c.waits("grows", "QuotaExceeded")
	c.patchAs(tenant, "grows", `{"annotations": {"muster.sh/walltime": "1000d"}}`)
	c.waits("grows", tables.ReasonJobForbidden, "run time of 1000d")
	// What is written on a pod that waits counts as if it had been there from the start.
	for name, x := range map[string]struct{ key, value, says string }{
		"becomes-hp":            {v1alpha1.ClassAnnotation, "HP", "jobs of class HP"},
		"becomes-inference":     {v1alpha1.KindAnnotation, "inference", "kind inference"},
		"becomes-locked":        {v1alpha1.LockedAnnotation, "true", "locked jobs"},
		"becomes-unpreemptible": {v1alpha1.PreemptibleAnnotation, "false", "not preemptible"},
		"becomes-peers":         {"kai.scheduler/preemptibility", "non-preemptible", "not preemptible"},
	} {
		c.createAs(tenant, pod(name, asks(8), in("strict"), note(v1alpha1.ClassAnnotation, "LP")))
		c.waits(name, "QuotaExceeded")
		c.patchAs(tenant, name, fmt.Sprintf(`{"annotations": {%q: %q}}`, x.key, x.value))
		c.waits(name, tables.ReasonJobForbidden, x.says)
	}
	c.patchAs(tenant, "kind", `{"annotations": {"muster.sh/kind": "training"}}`)
	c.patchAs(tenant, "walltime", `{"annotations": {"muster.sh/walltime": "59m"}}`)
	c.bound("kind", "walltime")
	c.unbound("hp", "grows", "locked", "unpreemptible")
}

// On a cluster with closed queues a Queue is for the namespaces that it selects alone, and a tenant whose namespace none
// selects uses none, on a node of its own choice neither.
func TestTenantAtClosedQueues(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.queue("plain", 8)
	c.queue("theirs", 8, func(q *v1alpha1.Queue) {
		q.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "them"}}
	})
	c.queue("all", 1, isolated, func(q *v1alpha1.Queue) { q.Spec.NamespaceSelector = &metav1.LabelSelector{} })
	tenant := c.tenant()
	c.schedule(func(k *kube.Config) { k.ClosedQueues = true })
	c.createAs(tenant, pod("a", in("plain")), pod("b", in("theirs")), pod("c", in("all")),
		pod("placed", in("plain"), func(p *v1.Pod) { p.Spec.NodeName = "n" }))
	c.bound("c")
	c.waits("a", tables.ReasonQueueForbidden, "no namespaceSelector")
	c.waits("b", tables.ReasonQueueForbidden, "theirs")
	c.toldOf("placed", tables.ReasonQueueForbidden)
	c.unbound("a", "b")
	c.editQueue("plain", func(q *v1alpha1.Queue) { q.Spec.NamespaceSelector = &metav1.LabelSelector{} })
	c.bound("a")
	placed := c.get("placed")
	c.delete("placed") // the audit reads which GPUs it says it has
	c.gone(placed)
}

const hour = v1alpha1.Duration(3600 * 1e9)

// A tenant whose pods keep away from nearly all pods of all namespaces, each by other words, has as many such selectors as a namespace may.
// Pods of others start beside it.
func TestTenantOfManyTerms(t *testing.T) {
	const many = peers.MaxElsewhere + 50
	c := begin(t)
	c.node("n")
	tenant := c.tenant()
	theirs := c.namespace
	ours := c.newNamespace(nil)
	c.schedule()
	excluding := func(k int) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				TopologyKey: v1.LabelHostname, NamespaceSelector: &metav1.LabelSelector{},
				LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{fmt.Sprint(k)}},
				}},
			}}}}
		}
	}
	var pods []*v1.Pod
	for k := range many {
		pods = append(pods, pod(fmt.Sprintf("apart-%d", k), asks(64), excluding(k))) // more than the node has
	}
	c.createAs(tenant, pods...)
	c.waits(fmt.Sprintf("apart-%d", many-1), tables.ReasonTooComplex, fmt.Sprintf("in other namespaces by %d different selectors", peers.MaxElsewhere))
	c.namespace = ours
	c.create(pod("other"))
	c.bound("other")
	c.namespace = theirs
	c.createAs(tenant, pod("plain"))
	c.bound("plain")
}
