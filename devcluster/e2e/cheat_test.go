package e2e

import (
	"fmt"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/tables"
)

// tenant returns a client of a user who may make, label and annotate the pods, Jobs and ResourceClaims of
// the test's namespace, and nothing else.
func (c *cluster) tenant() kubernetes.Interface {
	c.Helper()
	_, err := admin.CoreV1().ServiceAccounts(c.namespace).Create(ctx(), &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}, metav1.CreateOptions{})
	c.must(err)
	_, err = admin.RbacV1().Roles(c.namespace).Create(ctx(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"", "batch", "resource.k8s.io"}, Resources: []string{"pods", "jobs", "resourceclaims"}, Verbs: []string{"create", "get", "patch", "update"}}},
	}, metav1.CreateOptions{})
	c.must(err)
	_, err = admin.RbacV1().RoleBindings(c.namespace).Create(ctx(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "tenant"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "tenant", Namespace: c.namespace}},
	}, metav1.CreateOptions{})
	c.must(err)
	config := rest.AnonymousClientConfig(address)
	config.BearerToken = c.tokenOf("tenant")
	client, err := kubernetes.NewForConfig(config)
	c.must(err)
	return client
}

// tokenOf returns a token of a ServiceAccount of the test's namespace.
func (c *cluster) tokenOf(account string) string {
	c.Helper()
	token, err := admin.CoreV1().ServiceAccounts(c.namespace).CreateToken(ctx(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	c.must(err)
	return token.Status.Token
}

// createAs makes pods as a user, once the user's rights have reached the API server.
func (c *cluster) createAs(client kubernetes.Interface, pods ...*v1.Pod) {
	c.Helper()
	for _, p := range pods {
		c.until("a tenant makes a pod", func() error {
			_, err := client.CoreV1().Pods(c.namespace).Create(ctx(), p, metav1.CreateOptions{})
			return err
		})
	}
}

// patchAs changes the metadata of a pod as a user.
func (c *cluster) patchAs(client kubernetes.Interface, name, metadata string) {
	c.Helper()
	_, err := client.CoreV1().Pods(c.namespace).Patch(ctx(), name, types.MergePatchType, fmt.Appendf(nil, `{"metadata": %s}`, metadata), metav1.PatchOptions{})
	c.must(err)
}

// toldOf waits for an event on a pod.
func (c *cluster) toldOf(name, reason string) {
	c.Helper()
	c.until(name+" has the event "+reason, func() error {
		l, err := admin.CoreV1().Events(c.namespace).List(ctx(), metav1.ListOptions{FieldSelector: "reason=" + reason + ",involvedObject.name=" + name})
		if err == nil && len(l.Items) == 0 {
			err = fmt.Errorf("there is none")
		}
		return err
	})
}

// A tenant changes nothing of what its pods that run are charged for, and to whom:
// not at once, and not for the next scheduler.
func TestTenantEditsWhatRuns(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.node("m")
	c.queue("mine", 8, isolated)
	c.queue("theirs", 8, isolated, func(q *v1alpha1.Queue) {
		q.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "them"}}
	})
	them := c.newNamespace(map[string]string{"team": "them"})
	tenant := c.tenant()
	s := c.schedule()
	c.createAs(tenant, pod("a", asks(8), in("mine")))
	on := c.bound("a")[0]
	c.patchAs(tenant, "a", fmt.Sprintf(`{"labels": {%q: "theirs", %q: "g"}, "annotations": {%q: "0", %q: "true"}}`,
		v1alpha1.QueueLabel, v1alpha1.GangLabel, v1alpha1.GPUsAnnotation, v1alpha1.LockedAnnotation))
	c.toldOf("a", tables.ChangeIgnored)
	c.until("what counts is in its status", func() error {
		if condition(c.get("a"), v1alpha1.AdmittedCondition) == nil {
			return fmt.Errorf("it is not")
		}
		return nil
	})
	_, err := tenant.CoreV1().Pods(c.namespace).Patch(ctx(), "a", types.MergePatchType, []byte(`{"status": {"conditions": []}}`), metav1.PatchOptions{}, "status")
	if !apierrors.IsForbidden(err) {
		t.Errorf("the tenant writes the status of its pod: %v", err)
	}
	c.createAs(tenant, pod("b", asks(1), in("mine")))
	c.waits("b", "QuotaExceeded")

	s.stop()
	c.schedule()
	c.createAs(tenant, pod("c", asks(1), in("mine")))
	c.waits("c", "QuotaExceeded", "mine")
	owner := pod("owner", asks(8), in("theirs"))
	_, err = admin.CoreV1().Pods(them).Create(ctx(), owner, metav1.CreateOptions{})
	c.must(err)
	c.until("the owner of the queue runs on the other node", func() error {
		p, err := admin.CoreV1().Pods(them).Get(ctx(), "owner", metav1.GetOptions{})
		if err == nil && (p.Spec.NodeName == "" || p.Spec.NodeName == on) {
			err = fmt.Errorf("it is on %q", p.Spec.NodeName)
		}
		return err
	})
	a := c.get("a")
	c.delete("a") // the audit reads what it says
	c.gone(a)
}

// A tenant cannot have the scheduler work for long on one pod, nor use a class or a protection that its
// queue does not accept, nor use a queue any longer when its namespace has lost the label for it. Others run.
func TestTenantStarves(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.queue("mine", 8, func(q *v1alpha1.Queue) {
		q.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "us"}}
		q.Spec.PriorityClasses = []string{"low"}
	})
	c.queue("all", 8)
	c.queue("strict", 8, func(q *v1alpha1.Queue) {
		q.Spec.Classes, q.Spec.Protection = []v1alpha1.JobClass{"LP"}, "Forbidden"
	})
	c.labelNamespace("team", "us")
	c.priority("high", 1000)
	noHigh, err := admin.CoreV1().ResourceQuotas(c.namespace).Create(ctx(), &v1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "no-high"},
		Spec: v1.ResourceQuotaSpec{
			Hard: v1.ResourceList{v1.ResourcePods: resource.MustParse("0")},
			ScopeSelector: &v1.ScopeSelector{MatchExpressions: []v1.ScopedResourceSelectorRequirement{
				{ScopeName: v1.ResourceQuotaScopePriorityClass, Operator: v1.ScopeSelectorOpIn, Values: []string{"high"}},
			}},
		},
	}, metav1.CreateOptions{})
	c.must(err)
	noHigh.Status = v1.ResourceQuotaStatus{Hard: noHigh.Spec.Hard, Used: noHigh.Spec.Hard} // as its controller does
	_, err = admin.CoreV1().ResourceQuotas(c.namespace).UpdateStatus(ctx(), noHigh, metav1.UpdateOptions{})
	c.must(err)
	tenant := c.tenant()
	c.schedule()
	labels := func(n int) func(*v1.Pod) {
		return func(p *v1.Pod) {
			for i := range n {
				p.Labels[fmt.Sprintf("muster.sh/unknown-%d", i)] = "v"
			}
		}
	}
	c.createAs(tenant,
		pod("labels", in("all"), labels(20_000)),
		pod("terms", in("all"), func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{}}
			for i := range 1000 {
				p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, v1.PodAffinityTerm{
					TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{fmt.Sprint("k", i): "v"}}, NamespaceSelector: &metav1.LabelSelector{},
				})
			}
		}),
		pod("high", asks(1), in("mine"), note(v1alpha1.PriorityClassAnnotation, "high")),
		pod("hp", asks(1), in("strict")),
		pod("locked", asks(1), in("strict"), note(v1alpha1.ClassAnnotation, "LP"), note(v1alpha1.LockedAnnotation, "true")),
		pod("lp", asks(1), in("strict"), note(v1alpha1.ClassAnnotation, "LP")),
		pod("mine", asks(1), in("mine")))
	c.bound("mine", "lp")
	// What the namespace's ResourceQuota refuses in the spec, the queue does in an annotation.
	c.until("the class is refused in the spec", func() error {
		_, err := tenant.CoreV1().Pods(c.namespace).Create(ctx(), pod("by-spec", in("mine"), func(p *v1.Pod) { p.Spec.PriorityClassName = "high" }), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("the answer is %v", err)
		}
		return nil
	})
	c.waits("hp", tables.ReasonJobForbidden, "class HP")
	c.waits("locked", tables.ReasonJobForbidden, "locked")
	c.waits("labels", tables.ReasonTooComplex, "labels")
	c.waits("terms", tables.ReasonTooComplex, "terms")
	c.waits("high", tables.ReasonPriorityClassForbidden, "mine")
	_, err = admin.CoreV1().Namespaces().Patch(ctx(), c.namespace, types.MergePatchType, []byte(`{"metadata": {"labels": {"team": null}}}`), metav1.PatchOptions{})
	c.must(err)
	c.createAs(tenant, pod("late", asks(1), in("mine")))
	c.waits("late", tables.ReasonQueueForbidden, "mine")
	c.create(pod("other", asks(1), in("all")))
	c.bound("other")
	c.unbound("labels", "terms", "high", "late")
}

// A tenant's pod is Muster's whoever is said to have made it, a tenant names no class
// of the system, and what it puts on a node by itself has what its spec asks for, and a whole GPU where it
// cannot be read how much of one.
func TestTenantClaims(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.queue("mine", 0, isolated)
	c.queue("all", 8)
	tenant := c.tenant()
	c.schedule()
	c.createAs(tenant,
		pod("owned", in("mine"), func(p *v1.Pod) {
			yes := true
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Foreign", Name: "x", UID: "x", Controller: &yes}}
		}),
		pod("ranked", in("all"), note(v1alpha1.PriorityClassAnnotation, "system-node-critical")),
		pod("part", in("all"), asks(0), note("gpu-fraction", "none"), func(p *v1.Pod) { p.Spec.NodeName = "n" }),
		pod("placed", in("all"), asks(5), note(v1alpha1.GPUsAnnotation, "none"), note(v1alpha1.KindAnnotation, "none"), func(p *v1.Pod) { p.Spec.NodeName = "n" }))
	c.waits("owned", "ExceedsQuota", "mine")
	c.waits("ranked", tables.ReasonPriorityClassForbidden)
	c.create(pod("large", asks(3), in("all")))
	c.waits("large", "QuotaExceeded")
	c.create(pod("small", asks(2), in("all")))
	c.bound("small")
	c.unbound("large", "owned", "ranked")
	placed, part := c.get("placed"), c.get("part")
	c.delete("placed", "part") // the audit reads what they say
	c.gone(placed, part)
}

// A pod whose owner is of a kind that the scheduler has a word for is a pod as any other: its queue bounds it, and is
// not every namespace's; it leaves for who owns what it borrows; it goes to no node that is cordoned or tainted; and
// it is of no other's group.
func TestTenantInventsOwners(t *testing.T) {
	for _, kind := range []string{"Foreign", "PodGroup", "Gang", "Pod"} {
		t.Run(kind, func(t *testing.T) {
			c := begin(t)
			c.node("n")
			c.node("cordoned", func(n *v1.Node) { n.Spec.Unschedulable = true })
			c.node("tainted", func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}} })
			c.queue("rich", 8)
			c.queue("poor", 0)
			c.queue("none", 0, isolated)
			c.queue("theirs", 8, func(q *v1alpha1.Queue) {
				q.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "them"}}
			})
			tenant := c.tenant()
			c.schedule()
			owned := func(by string) func(*v1.Pod) {
				return func(p *v1.Pod) {
					p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: kind, Name: by, UID: "x", Controller: new(true)}}
				}
			}
			c.createAs(tenant, pod("borrows", asks(8), in("poor"), owned("x")))
			if on := c.bound("borrows")[0]; on != "n" {
				t.Fatalf("it is on %s", on)
			}
			c.createAs(tenant,
				pod("forbidden", in("theirs"), owned("w")), pod("full", in("none"), owned("borrows")),
				pod("tainted", in("poor"), owned("y")), pod("cordoned", in("poor"), owned("z")))
			c.waits("forbidden", tables.ReasonQueueForbidden, "theirs")
			c.waits("full", "ExceedsQuota", "none")
			c.waits("tainted", "Resources")
			c.waits("cordoned", "Resources")
			borrower := c.get("borrows")
			c.create(pod("owner", asks(8), in("rich")))
			c.bound("owner")
			c.gone(borrower)
			c.unbound("forbidden", "full", "tainted", "cordoned")
		})
	}
}
