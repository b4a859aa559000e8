package e2e

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/devcluster/fleet"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/recovery"
)

// testsNodes gives the scheduler the permissions of rbac.recovery and of diagnostic, here, and a template of which the pods end so.
func (c *cluster) testsNodes(outcome string) {
	c.Helper()
	who := []rbacv1.Subject{{Kind: "ServiceAccount", Name: "muster", Namespace: systemNamespace}}
	meta := metav1.ObjectMeta{Name: c.namespace, Namespace: c.namespace}
	_, err := admin.RbacV1().ClusterRoles().Create(ctx(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"patch"}},
	}}, metav1.CreateOptions{})
	c.must(err)
	_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: c.namespace}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: c.namespace}, Subjects: who,
	}, metav1.CreateOptions{})
	c.must(err)
	c.Cleanup(func() {
		c.must(admin.RbacV1().ClusterRoleBindings().Delete(ctx(), c.namespace, metav1.DeleteOptions{}))
		c.must(admin.RbacV1().ClusterRoles().Delete(ctx(), c.namespace, metav1.DeleteOptions{}))
	})
	_, err = admin.RbacV1().Roles(c.namespace).Create(ctx(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}},
		{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"create", "list", "patch"}},
	}}, metav1.CreateOptions{})
	c.must(err)
	_, err = admin.RbacV1().RoleBindings(c.namespace).Create(ctx(), &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: c.namespace}, Subjects: who}, metav1.CreateOptions{})
	c.must(err)
	_, err = admin.CoreV1().ConfigMaps(c.namespace).Create(ctx(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "diagnostic"}, Data: map[string]string{recovery.DiagnosticKey: fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: gpu-test}
spec:
  template:
    metadata: {annotations: {%s: 100ms, %s: %s}}
    spec:
      containers:
      - {name: test, image: example.org/dcgm, resources: {limits: {nvidia.com/gpu: 8}}}
`, fleet.Duration, fleet.Outcome, outcome)}}, metav1.CreateOptions{})
	c.must(err)
}

// A pod fails, and its log says that the GPU driver of its node does not answer: a Job on the node tests it. The node takes pods again if the
// Job succeeds, and none if it fails.
func TestNodesAreTested(t *testing.T) {
	for _, outcome := range []string{"succeeded", "failed"} {
		t.Run(outcome, func(t *testing.T) {
			c := begin(t)
			c.node("a")
			c.testsNodes(outcome)
			c.start(func(k *kube.Config) {
				k.Policy.Recovery = core.DefaultRecovery()
				k.Policy.Recovery.Mode, k.Policy.Recovery.Tests = core.Recover, true
				k.Diagnostic = types.NamespacedName{Namespace: c.namespace, Name: "diagnostic"}
				k.Logs = func(context.Context, *v1.Pod, string) (io.ReadCloser, error) {
					return io.NopCloser(strings.NewReader("RuntimeError: Failed to initialize NVML: Driver/library version mismatch\n")), nil
				}
			})
			c.create(pod("train", asks(8), note(fleet.Duration, "100ms"), note(fleet.Outcome, "failed")))
			c.until("a Job has tested the node", func() error {
				list, err := admin.BatchV1().Jobs(c.namespace).List(ctx(), metav1.ListOptions{})
				want := map[string]string{"succeeded": "passed", "failed": "failed"}[outcome]
				if err != nil || len(list.Items) == 1 && list.Items[0].Labels[v1alpha1.DiagnosticLabel] == want {
					return err
				}
				return fmt.Errorf("%d Jobs: %v", len(list.Items), labelsOf(list.Items))
			})
			c.until("the node says the same", func() error {
				n, err := admin.CoreV1().Nodes().Get(ctx(), "a", metav1.GetOptions{})
				if _, waits := n.Annotations[v1alpha1.TestAnnotation]; err != nil || !waits && n.Spec.Unschedulable == (outcome == "failed") {
					return err
				}
				return fmt.Errorf("unschedulable %v, %v", n.Spec.Unschedulable, n.Annotations)
			})
			if c.create(pod("next", asks(8))); outcome == "succeeded" {
				c.bound("next")
			} else {
				c.waits("next", "Resources")
			}
		})
	}
}

func labelsOf(jobs []batchv1.Job) (out []map[string]string) {
	for i := range jobs {
		out = append(out, jobs[i].Labels)
	}
	return out
}

// Pods fail, and their logs have nothing but a lack of memory. The driver of one node has reported an ECC error meanwhile, which the node's
// agent published: there the GPU is to blame, and no more pods come.
func TestFailureAfterDriverError(t *testing.T) {
	c := begin(t)
	c.installAgentRole()
	c.nodesNamed("n", 2)
	c.testsNodes("succeeded") // for the right to close nodes
	bad := c.watched("n0", []string{"GPU-0", "GPU-1", "GPU-2", "GPU-3", "GPU-4", "GPU-5", "GPU-6", "GPU-7"})
	c.until("the agent of the chart may write", func() error {
		if bad.reads(); bad.gpuCondition() != "True NoFault" {
			return fmt.Errorf("the node says %q", bad.gpuCondition())
		}
		return nil
	})
	c.start(func(k *kube.Config) {
		k.Policy.Recovery = core.DefaultRecovery()
		k.Policy.Recovery.Mode, k.Policy.Recovery.Strikes, k.Policy.Recovery.MaxCordoned = core.Recover, 1, 1000
		k.Logs = func(context.Context, *v1.Pod, string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB\n")), nil
		}
	})
	c.create(pod("a", asks(8)), pod("b", asks(8)))
	c.bound("a", "b")
	bad.hears(1, "NVRM: Xid (PCI:0000:12:00): 48, pid=7, name=python, DBE (double bit error) ECC")
	bad.reads()
	first, last := c.get("a"), c.get("b")
	if first.Spec.NodeName == "n0" {
		first, last = last, first
	}
	c.fails(first, 1) // on the node without errors: it is diagnosed first
	c.fails(last, 1)
	c.until("the node with the error is closed", func() error {
		n, err := admin.CoreV1().Nodes().Get(ctx(), "n0", metav1.GetOptions{})
		if err != nil || n.Spec.Unschedulable {
			return err
		}
		return fmt.Errorf("it is not: %v", n.Annotations)
	})
	n, err := admin.CoreV1().Nodes().Get(ctx(), "n1", metav1.GetOptions{})
	c.must(err)
	if n.Spec.Unschedulable {
		t.Errorf("so is the other: %v", n.Annotations)
	}
}
