package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// tenantPolicy is the name of the chart's policy for those who make pods, and of its binding.
const tenantPolicy = "muster-tenants"

func isTenantPolicy(doc string) bool {
	return strings.Contains(doc, "kind: ValidatingAdmissionPolicy") && strings.Contains(doc, "\n  name: "+tenantPolicy+"\n")
}

// holdTenants installs the chart's policy for tenants for the time of the test.
func (c *cluster) holdTenants(tenant kubernetes.Interface) {
	c.Helper()
	data, err := os.ReadFile(filepath.Join(root, "deploy/kustomize/base/muster.yaml"))
	c.must(err)
	n := 0
	for doc := range strings.SplitSeq(string(data), "\n---\n") {
		if isTenantPolicy(doc) {
			c.must(apply(ctx(), doc, systemNamespace))
			n++
		}
	}
	if n != 2 {
		c.Fatalf("%d objects of the policy for tenants; expected it and its binding", n)
	}
	known := func() error {
		_, err := tenant.CoreV1().Pods(c.namespace).Create(ctx(), pod("probe", func(p *v1.Pod) { p.Spec.NodeName = "n" }), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	c.until("a tenant may make pods", known)
	c.Cleanup(func() {
		api := admin.AdmissionregistrationV1()
		c.must(api.ValidatingAdmissionPolicyBindings().Delete(ctx(), tenantPolicy, metav1.DeleteOptions{}))
		c.must(api.ValidatingAdmissionPolicies().Delete(ctx(), tenantPolicy, metav1.DeleteOptions{}))
		c.until("the policy is forgotten", known)
	})
	c.until("the policy is known", func() error {
		if known() == nil {
			return fmt.Errorf("it is not")
		}
		return nil
	})
}

// By the chart's policy a tenant asks Muster for GPUs, chooses no node for them, and does not
// write what Muster writes, nor does a controller for it. All else it may do, and
// Muster binds its pods with these very annotations.
func TestTenantIsHeld(t *testing.T) {
	c := begin(t)
	c.node("n")
	tenant := c.tenant()
	c.holdTenants(tenant)
	c.schedule()
	refused := func(what string, err error, says string) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: the answer is %v; expected that it is refused: %q", what, err, says)
		}
	}
	pods := tenant.CoreV1().Pods(c.namespace)
	for what, x := range map[string]struct {
		with func(*v1.Pod)
		says string
	}{
		"GPUs of another scheduler": {func(p *v1.Pod) { p.Spec.SchedulerName = "default-scheduler"; asks(1)(p) }, "needs spec.schedulerName: muster"},
		"GPUs of no scheduler":      {func(p *v1.Pod) { p.Spec.SchedulerName = ""; asks(1)(p) }, "needs spec.schedulerName: muster"},
		"a node for GPUs":           {func(p *v1.Pod) { p.Spec.NodeName = "n"; asks(1)(p) }, "spec.nodeName must be empty"},
		"a node":                    {func(p *v1.Pod) { p.Spec.NodeName = "n" }, "spec.nodeName must be empty"},
		"its GPUs":                  {note(v1alpha1.GPUsAnnotation, "0"), "only Muster writes"},
		"its share":                 {note(v1alpha1.ShareAnnotation, "1"), "only Muster writes"},
		"that it moves":             {note(v1alpha1.MovingAnnotation, "x"), "only Muster writes"},
		"that it was suspended":     {note(v1alpha1.SuspendedAnnotation, "x"), "only Muster writes"},
	} {
		_, err := pods.Create(ctx(), pod("p", x.with), metav1.CreateOptions{})
		refused(what, err, x.says)
	}
	c.createAs(tenant, pod("a", asks(2)), pod("other", asks(0), func(p *v1.Pod) { p.Spec.SchedulerName = "another" }))
	c.bound("a")
	gpus := c.get("a").Annotations[v1alpha1.GPUsAnnotation]
	for _, value := range []string{`"7"`, "null"} {
		_, err := pods.Patch(ctx(), "a", types.MergePatchType, fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %s}}}`, v1alpha1.GPUsAnnotation, value), metav1.PatchOptions{})
		refused("GPUs are edited", err, "only Muster writes")
	}
	c.patchAs(tenant, "a", `{"annotations": {"example.com/note": "x"}, "labels": {"app": "x"}}`)
	if now := c.get("a").Annotations[v1alpha1.GPUsAnnotation]; now != gpus || gpus == "" {
		t.Errorf("the pod has GPUs %q, and had %q", now, gpus)
	}

	// The controllers of this test's API server are of system:masters; elsewhere they are not.
	as := rest.CopyConfig(address)
	as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:job-controller", Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	controller, err := kubernetes.NewForConfig(as)
	c.must(err)
	_, err = controller.CoreV1().Pods(c.namespace).Create(ctx(), pod("of-a-job", asks(1), func(p *v1.Pod) { p.Spec.SchedulerName = "default-scheduler" }), metav1.CreateOptions{})
	refused("a controller", err, "needs spec.schedulerName: muster")
}

// Whoever has the scheduler's token can do with pods, nodes and Jobs only what the scheduler
// does.
func TestSchedulerIsHeld(t *testing.T) {
	c := begin(t)
	c.node("n")
	own, err := kubernetes.NewForConfig(identity)
	c.must(err)
	c.create(pod("a", note("example.com/note", "x")), pod("other", asks(0), func(p *v1.Pod) { p.Spec.SchedulerName = "another" }))
	patch := func(name, p string) error {
		_, err := own.CoreV1().Pods(c.namespace).Patch(ctx(), name, types.StrategicMergePatchType, []byte(p), metav1.PatchOptions{})
		return err
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job"}}
	job.Spec.Template.Spec = pod("x").Spec
	job.Spec.Template.Spec.RestartPolicy = v1.RestartPolicyNever
	job.Spec.Suspend = new(true)
	_, err = admin.BatchV1().Jobs(c.namespace).Create(ctx(), job, metav1.CreateOptions{})
	c.must(err)
	patchJob := func(p string) error {
		_, err := own.BatchV1().Jobs(c.namespace).Patch(ctx(), "job", types.MergePatchType, []byte(p), metav1.PatchOptions{})
		return err
	}
	c.until("the policy is known", func() error {
		if err := patch("a", `{"metadata": {"annotations": {"example.com/probe": "y"}}}`); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("it answers %v", err)
		}
		return nil
	})
	for what, err := range map[string]error{
		"another's annotation":         patch("a", `{"metadata": {"annotations": {"example.com/note": "y"}}}`),
		"another's annotation is gone": patch("a", `{"metadata": {"annotations": {"example.com/note": null}}}`),
		"a label":                      patch("a", `{"metadata": {"labels": {"app": "y"}}}`),
		"another image":                patch("a", `{"spec": {"containers": [{"name": "main", "image": "example.com/evil"}]}}`),
		"what a Job runs":              patchJob(`{"spec": {"suspend": false, "template": {"metadata": {"labels": {"a": "b"}}}}}`),
		"a Job's annotation":           patchJob(`{"metadata": {"annotations": {"example.com/note": "y"}}}`),
		"a pod of others is deleted":   own.CoreV1().Pods(c.namespace).Delete(ctx(), "other", metav1.DeleteOptions{}),
	} {
		if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "the scheduler") {
			t.Errorf("%s: the answer is %v; expected that it is refused", what, err)
		}
	}
	c.must(patch("a", `{"metadata": {"annotations": {"muster.sh/evicting": "true"}}}`))
	c.must(patchJob(`{"spec": {"suspend": false}, "metadata": {"labels": {"muster.sh/suspended": "true"}}}`))
	c.must(own.CoreV1().Pods(c.namespace).Delete(ctx(), "a", metav1.DeleteOptions{}))
}
