package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
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
		_, err := tenant.CoreV1().Pods(c.namespace).Create(ctx(), pod("probe", note(v1alpha1.GPUsAnnotation, "0")), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
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

// refused fails the test unless a policy refused something, and said so.
func (c *cluster) refused(what string, err error, says string) {
	c.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), says) {
		c.Errorf("%s: the answer is %v; expected that it is refused: %q", what, err, says)
	}
}

// limits has the first container of a pod ask for an amount of a resource, by its limits alone.
func limits(name v1.ResourceName, amount string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		list := v1.ResourceList{name: resource.MustParse(amount)}
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Limits: list} // what is requested, too
	}
}

// of has another scheduler place a pod.
func of(scheduler string, options ...func(*v1.Pod)) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.SchedulerName = scheduler
		for _, o := range options {
			o(p)
		}
	}
}

// placed has the author of a pod place it.
func placed(name string) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.NodeName = name } }

// By the chart's policy a tenant asks Muster for GPUs, in whichever way, chooses no node for them, and does not
// write what Muster writes, nor does a controller for it. All else it may do, and
// Muster binds its pods with these very annotations.
func TestTenantIsHeld(t *testing.T) {
	c := begin(t)
	c.node("n")
	tenant := c.tenant()
	c.holdTenants(tenant)
	c.queue("mine", 8)
	s := c.schedule()
	const (
		muster = "needs spec.schedulerName: muster"
		node   = "spec.nodeName must be empty"
	)
	refused := c.refused
	pods := tenant.CoreV1().Pods(c.namespace)
	for what, x := range map[string]struct {
		with func(*v1.Pod)
		says string
	}{
		"GPUs of another scheduler": {of("default-scheduler", asks(1)), muster},
		"GPUs of no scheduler":      {of("", asks(1)), muster},
		"GPUs by limits alone":      {of("another", limits(v1alpha1.GPUResource, "1")), muster},
		"GPUs of AMD":               {of("another", limits("amd.com/gpu", "1")), muster},
		"an Ascend":                 {of("another", limits("huawei.com/Ascend910", "1")), muster},
		"a part of a GPU":           {of("another", limits("nvidia.com/mig-1g.5gb", "1")), muster},
		"GPUs of a device class":    {of("another", limits("deviceclass.resource.kubernetes.io/gpu.nvidia.com", "1")), muster},
		"GPUs by a claim":           {of("another", asks(0), byClaim("mine")), muster},
		"GPUs by a template":        {of("another", asks(0), byTemplate("mine")), muster},
		"GPUs at first": {of("another", func(p *v1.Pod) {
			first := p.Spec.Containers[0]
			first.Name = "first"
			asks(0)(p)
			p.Spec.InitContainers = []v1.Container{first}
		}), muster},
		"a node for GPUs":       {placed("n"), node},
		"a node for CPUs":       {func(p *v1.Pod) { placed("n")(p); asks(0)(p) }, node},
		"its GPUs":              {note(v1alpha1.GPUsAnnotation, "0"), "only Muster writes"},
		"its share":             {note(v1alpha1.ShareAnnotation, "1"), "only Muster writes"},
		"that it moves":         {note(v1alpha1.MovingAnnotation, "x"), "only Muster writes"},
		"that it was suspended": {note(v1alpha1.SuspendedAnnotation, "x"), "only Muster writes"},
	} {
		_, err := pods.Create(ctx(), pod("p", x.with), metav1.CreateOptions{})
		refused(what, err, x.says)
	}
	c.createAs(tenant, pod("waits", asks(9), in("mine")))
	c.patchAs(tenant, "waits", `{"labels": {"muster.sh/queue": "theirs"}}`) // as it has no node
	c.createAs(tenant, pod("a", asks(2), in("mine")), pod("other", asks(0), func(p *v1.Pod) { p.Spec.SchedulerName = "another" }))
	c.bound("a")
	gpus := c.get("a").Annotations[v1alpha1.GPUsAnnotation]
	for _, value := range []string{`"7"`, "null"} {
		_, err := pods.Patch(ctx(), "a", types.MergePatchType, fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %s}}}`, v1alpha1.GPUsAnnotation, value), metav1.PatchOptions{})
		refused("GPUs are edited", err, "only Muster writes")
	}
	c.patchAs(tenant, "a", `{"annotations": {"example.com/note": "x"}, "labels": {"app": "x", "queue": "x"}}`)
	// Also while no scheduler runs, which would notice it.
	s.stop()
	for _, key := range []string{v1alpha1.QueueLabel, "kai.scheduler/queue", v1alpha1.UserAnnotation, "applicationId"} {
		for _, in := range []string{"labels", "annotations"} {
			_, err := pods.Patch(ctx(), "a", types.MergePatchType, fmt.Appendf(nil, `{"metadata": {%q: {%q: "theirs"}}}`, in, key), metav1.PatchOptions{})
			refused(key+" among "+in, err, "stays in its queue")
		}
	}
	_, err := pods.Patch(ctx(), "a", types.MergePatchType, []byte(`{"metadata": {"labels": {"muster.sh/queue": null}}}`), metav1.PatchOptions{})
	refused("the queue is taken away", err, "stays in its queue")
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

// Whoever has the scheduler's token can do with pods, nodes, claims, Jobs and other owners of pods only what the scheduler
// does, also where it may patch nodes, as for what failures point to.
func TestSchedulerIsHeld(t *testing.T) {
	c := begin(t)
	c.node("n")
	own, err := kubernetes.NewForConfig(identity)
	c.must(err)
	c.schedulerMayPatchNodes()
	first := func(p *v1.Pod) { p.Spec.InitContainers = []v1.Container{{Name: "first", Image: "example.com/first"}} }
	c.create(pod("a", note("example.com/note", "x"), first), pod("other", asks(0), asksCPU("2"), of("another")))
	bears, err := json.Marshal(append(c.get("a").Spec.Tolerations, v1.Toleration{Operator: v1.TolerationOpExists}))
	c.must(err)
	patch := func(name, p string, sub ...string) error {
		_, err := own.CoreV1().Pods(c.namespace).Patch(ctx(), name, types.StrategicMergePatchType, []byte(p), metav1.PatchOptions{}, sub...)
		return err
	}
	bind := func(labels, annotations map[string]string) error {
		return own.CoreV1().Pods(c.namespace).Bind(ctx(), &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: labels, Annotations: annotations}, Target: v1.ObjectReference{Kind: "Node", Name: "n"},
		}, metav1.CreateOptions{})
	}
	deviceClaims := own.ResourceV1().ResourceClaims(c.namespace)
	claimDevices := func(name string, annotations map[string]string) error {
		_, err := deviceClaims.Create(ctx(), &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: devices(1)}, metav1.CreateOptions{})
		return err
	}
	extended := map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"}
	c.claim("theirs", devices(1))
	patchDevices := func(p string) error {
		_, err := deviceClaims.Patch(ctx(), "theirs", types.StrategicMergePatchType, []byte(p), metav1.PatchOptions{})
		return err
	}
	patchNode := func(p string) error {
		_, err := own.CoreV1().Nodes().Patch(ctx(), "n", types.MergePatchType, []byte(p), metav1.PatchOptions{})
		return err
	}
	_, err = admin.CoreV1().PersistentVolumeClaims(c.namespace).Create(ctx(), &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "claim"},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: new(""), AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{})
	c.must(err)
	patchClaim := func(p string) error {
		_, err := own.CoreV1().PersistentVolumeClaims(c.namespace).Patch(ctx(), "claim", types.MergePatchType, []byte(p), metav1.PatchOptions{})
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
	torch := c.makeObject(kind("kubeflow.org", "v1", "PyTorchJob"), "torch", `{runPolicy: {suspend: true, cleanPodPolicy: None}, pytorchReplicaSpecs: {Worker: {replicas: 1}}}`)
	set := c.makeObject(kind("jobset.x-k8s.io", "v1alpha2", "JobSet"), "set", `{suspend: true, replicatedJobs: [{name: a, replicas: 1}]}`)
	ownAny, err := dynamic.NewForConfig(identity)
	c.must(err)
	patchOwner := func(o *unstructured.Unstructured, p string) error {
		_, err := ownAny.Resource(foreign(o.GroupVersionKind())).Namespace(c.namespace).Patch(ctx(), o.GetName(), types.MergePatchType, []byte(p), metav1.PatchOptions{})
		return err
	}
	probes := 0
	c.until("the policy is known", func() error {
		probes++ // what changes nothing is not refused
		if err := patch("a", fmt.Sprintf(`{"metadata": {"annotations": {"example.com/probe": "%d"}}}`, probes)); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("it answers %v", err)
		}
		return nil
	})
	c.until("the scheduler may patch nodes", func() error { return patchNode(`{"metadata": {"annotations": {"muster.sh/test": "wanted"}}}`) })
	const (
		keys    = "the scheduler writes only labels and annotations"
		deletes = "the scheduler deletes only pods"
		runs    = "the scheduler changes neither what a pod runs, nor for how long, nor where"
		claims  = "the scheduler creates and deletes only claims for extended resources"
		nodes   = "the scheduler cordons nodes"
		owners  = "the scheduler suspends and resumes owners of pods"
	)
	for what, x := range map[string]struct {
		err  error
		says string
	}{
		"another's annotation":         {patch("a", `{"metadata": {"annotations": {"example.com/note": "y"}}}`), keys},
		"another's annotation is gone": {patch("a", `{"metadata": {"annotations": {"example.com/note": null}}}`), keys},
		"a label":                      {patch("a", `{"metadata": {"labels": {"app": "y"}}}`), keys},
		"another image":                {patch("a", `{"spec": {"containers": [{"name": "main", "image": "example.com/evil"}]}}`), runs},
		"another image at first":       {patch("a", `{"spec": {"initContainers": [{"name": "first", "image": "example.com/evil"}]}}`), runs},
		"a label by a status":          {patch("a", `{"metadata": {"labels": {"app": "y"}}}`, "status"), keys},
		"a label of another's pod":     {patch("other", `{"metadata": {"labels": {"app": "y"}}}`, "status"), keys},
		"an annotation by a status":    {patch("a", `{"metadata": {"annotations": {"example.com/note": "y"}}}`, "status"), keys},
		"a label by a binding":         {bind(map[string]string{"app": "y"}, nil), keys},
		"an annotation by a binding":   {bind(nil, map[string]string{"example.com/note": "y"}), keys},
		"a deadline":                   {patch("a", `{"spec": {"activeDeadlineSeconds": 1}}`), runs},
		"a toleration":                 {patch("a", fmt.Sprintf(`{"spec": {"tolerations": %s}}`, bears)), runs},
		"another's pod is resized":     {patch("other", `{"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}`, "resize"), "the scheduler resizes only pods"},
		"a claim of its own":           {claimDevices("own", nil), claims},
		"a claim of others is deleted": {deviceClaims.Delete(ctx(), "theirs", metav1.DeleteOptions{}), claims},
		"a claim's label":              {patchDevices(`{"metadata": {"labels": {"app": "y"}}}`), keys},
		"a pod of others is deleted":   {own.CoreV1().Pods(c.namespace).Delete(ctx(), "other", metav1.DeleteOptions{}), deletes},
		"a node's annotation":          {patchNode(`{"metadata": {"annotations": {"example.com/note": "y"}}}`), keys},
		"a node's taint":               {patchNode(`{"spec": {"taints": [{"key": "muster.sh/x", "effect": "NoExecute"}]}}`), nodes},
		"a node's label":               {patchNode(`{"metadata": {"labels": {"muster.sh/pool": "mine"}}}`), nodes},
		"a claim's volume":             {patchClaim(`{"spec": {"volumeName": "of-another"}}`), "the scheduler writes only the node of a claim"},
		"what a Job runs":              {patchJob(`{"spec": {"suspend": false, "template": {"metadata": {"labels": {"a": "b"}}}}}`), owners},
		"how many pods a Job has":      {patchJob(`{"spec": {"suspend": false, "parallelism": 2}}`), owners},
		"when a Job goes":              {patchJob(`{"spec": {"suspend": false, "ttlSecondsAfterFinished": 1}}`), owners},
		"a Job's annotation":           {patchJob(`{"metadata": {"annotations": {"example.com/note": "y"}}}`), keys},
		"what a PyTorchJob runs":       {patchOwner(torch, `{"spec": {"runPolicy": {"suspend": false}, "pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}}`), owners},
		"a PyTorchJob's policy":        {patchOwner(torch, `{"spec": {"runPolicy": {"suspend": false, "cleanPodPolicy": "All"}}}`), owners},
		"a field of a PyTorchJob goes": {patchOwner(torch, `{"spec": {"runPolicy": {"cleanPodPolicy": null}}}`), owners},
		"a PyTorchJob's annotation":    {patchOwner(torch, `{"metadata": {"annotations": {"example.com/note": "y"}}}`), keys},
		"what a JobSet runs":           {patchOwner(set, `{"spec": {"suspend": false, "replicatedJobs": [{"name": "evil", "replicas": 1}]}}`), owners},
		"a field of a JobSet comes":    {patchOwner(set, `{"spec": {"ttlSecondsAfterFinished": 1}}`), owners},
	} {
		if !apierrors.IsInvalid(x.err) && !apierrors.IsForbidden(x.err) || !strings.Contains(x.err.Error(), x.says) {
			t.Errorf("%s: the answer is %v; expected that it is refused: %s", what, x.err, x.says)
		}
	}
	c.must(patch("a", `{"metadata": {"annotations": {"muster.sh/evicting": "true"}}}`))
	c.must(patch("a", `{"status": {"conditions": [{"type": "muster.sh/Waiting", "status": "True"}]}}`, "status"))
	c.must(claimDevices("extended", extended))
	c.must(patchDevices(`{"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}`))
	c.must(patchDevices(`{"metadata": {"$deleteFromPrimitiveList/finalizers": ["resource.kubernetes.io/delete-protection"]}}`))
	c.must(deviceClaims.Delete(ctx(), "extended", metav1.DeleteOptions{}))
	c.must(bind(nil, map[string]string{v1alpha1.GPUsAnnotation: "0"}))
	c.must(patchNode(`{"spec": {"unschedulable": true}}`))
	c.must(patchClaim(`{"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n"}}}`))
	c.must(patchJob(`{"spec": {"suspend": false}, "metadata": {"labels": {"muster.sh/suspended": "true"}}}`))
	c.must(patchOwner(torch, `{"spec": {"runPolicy": {"suspend": false}}, "metadata": {"annotations": {"muster.sh/suspended": "x"}}}`))
	c.must(patchOwner(set, `{"spec": {"suspend": false}, "metadata": {"labels": {"muster.sh/suspended": "true"}}}`))
	c.must(own.CoreV1().Pods(c.namespace).Delete(ctx(), "a", metav1.DeleteOptions{}))
}

// schedulerMayPatchNodes gives the scheduler's account what the chart gives it with rbac.recovery, for the time of the test.
func (c *cluster) schedulerMayPatchNodes() {
	c.Helper()
	roles, bindings := admin.RbacV1().ClusterRoles(), admin.RbacV1().ClusterRoleBindings()
	meta := metav1.ObjectMeta{Name: "e2e-nodes"}
	_, err := roles.Create(ctx(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"patch"}}}}, metav1.CreateOptions{})
	c.must(err)
	_, err = bindings.Create(ctx(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "muster", Namespace: systemNamespace}},
	}, metav1.CreateOptions{})
	c.must(err)
	c.Cleanup(func() {
		c.must(bindings.Delete(ctx(), meta.Name, metav1.DeleteOptions{}))
		c.must(roles.Delete(ctx(), meta.Name, metav1.DeleteOptions{}))
		c.until("the scheduler may no longer patch nodes", func() error {
			if may(ctx(), "patch", "", "nodes") == nil {
				return fmt.Errorf("it may")
			}
			return nil
		})
	})
}
