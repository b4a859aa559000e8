package recovery

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	podresources "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// This file tests nodes: for the engine's decision Test it makes a Job on the node from the operator's template, and tells the engine how
// that ended. Which nodes are to be tested is an annotation of the nodes, and which Jobs test them is one of the Jobs: so any instance goes on.

// DiagnosticKey is the key of the ConfigMap with the template: a Job of batch/v1 as YAML.
const DiagnosticKey = "job.yaml"

// Values of [v1alpha1.DiagnosticLabel].
const (
	testRuns    = "running"
	testPassed  = "passed"
	testFailed  = "failed"
	testRefused = "refused" // no container of it ran, so it says nothing about the node
)

// Bounds of the template where it has none.
const (
	testLasts = time.Hour      // at most
	testStays = 24 * time.Hour // its Job, when it has ended
)

// testNodes makes the Jobs that are to test nodes, and tells the engine how those ended that have.
func (h *Handler) testNodes(ctx context.Context) {
	h.mu.Lock()
	on := h.begun && h.mode == core.Recover && len(h.tests) > 0
	h.mu.Unlock()
	if !on || h.config.Diagnostic.Name == "" || !h.config.Leads() {
		return
	}
	running, err := h.endedTests(ctx)
	if err != nil {
		h.mayNot(ctx, "cannot list the Jobs that test nodes", "", err)
		return
	}
	h.mu.Lock()
	wanted := slices.Sorted(maps.Keys(h.tests))
	h.mu.Unlock()
	for _, node := range wanted {
		if running[node] {
			continue
		}
		if err := h.startTest(ctx, node); err != nil {
			h.mayNot(ctx, "cannot test a node: it is tried again", node, err)
		}
	}
}

// mayNot logs an error, the same one once.
func (h *Handler) mayNot(ctx context.Context, what, node string, err error) {
	if text := what + node + err.Error(); text != h.lastError && ctx.Err() == nil {
		h.lastError = text
		h.config.Log.Warn(what, "node", node, "error", err)
	}
}

// endedTests takes in the outcomes of tests, and returns the nodes with one that goes on.
func (h *Handler) endedTests(ctx context.Context) (running map[string]bool, err error) {
	jobs := h.config.Client.BatchV1().Jobs(h.config.Diagnostic.Namespace)
	list, err := jobs.List(ctx, metav1.ListOptions{LabelSelector: labels.Set{v1alpha1.DiagnosticLabel: testRuns}.String()})
	if err != nil {
		return nil, err
	}
	running = map[string]bool{}
	for i := range list.Items {
		j := &list.Items[i]
		node := j.Annotations[v1alpha1.TestsAnnotation]
		outcome, err := h.outcome(ctx, j)
		if err != nil {
			return nil, err
		}
		if outcome == testRuns {
			running[node] = true
			continue
		}
		h.config.Log.Info("a node was tested", "node", node, "job", j.Namespace+"/"+j.Name, "outcome", outcome)
		if outcome != testRefused {
			// The engine is told before the Job says so: told twice is the same as once.
			h.config.Tell(core.NodeTested{Node: node, Passed: outcome == testPassed})
			h.mu.Lock()
			delete(h.tests, node)
			h.wish(node).tested = true
			h.mu.Unlock()
			h.nodeEvent(&task{Decision: core.Decision{Node: node, Detail: fmt.Sprintf("Job %s/%s %s", j.Namespace, j.Name, outcome)}}, nodeTested)
		}
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"labels":{%q:%q}}}`, j.UID, v1alpha1.DiagnosticLabel, outcome)
		if _, err := jobs.Patch(ctx, j.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return running, nil
}

// outcome says how a test ended, or that it goes on.
func (h *Handler) outcome(ctx context.Context, j *batchv1.Job) (string, error) {
	for _, c := range j.Status.Conditions {
		switch {
		case c.Status != v1.ConditionTrue:
		case c.Type == batchv1.JobComplete:
			return testPassed, nil
		case c.Type == batchv1.JobFailed:
			ran, err := h.ran(ctx, j)
			if err != nil || ran {
				return testFailed, err
			}
			return testRefused, nil
		}
	}
	return testRuns, nil
}

// ran reports whether a container of a Job began. A kubelet that lacks what a pod requests fails the pod without.
func (h *Handler) ran(ctx context.Context, j *batchv1.Job) (bool, error) {
	list, err := h.config.Client.CoreV1().Pods(j.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.Set{batchv1.JobNameLabel: j.Name}.String()})
	if err != nil {
		return false, err
	}
	for i := range list.Items {
		s := &list.Items[i].Status
		for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
			if c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil {
				return true, nil
			}
		}
	}
	return len(list.Items) == 0, nil // they were deleted, as at the deadline
}

// startTest makes the Job that tests a node, if what it requests is free there: what runs goes on.
func (h *Handler) startTest(ctx context.Context, name string) error {
	n, err := h.config.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		h.mu.Lock()
		delete(h.tests, name)
		h.mu.Unlock()
		return nil
	} else if err != nil {
		return err
	}
	h.mu.Lock()
	over := h.wishes[name] == nil && (!n.Spec.Unschedulable || n.Annotations[v1alpha1.TestAnnotation] == "") // an operator uncordoned it, or another instance tested it
	if over {
		delete(h.tests, name)
		h.wish(name).tested = true
	}
	h.mu.Unlock()
	if over || !n.Spec.Unschedulable {
		return nil
	}
	j, err := h.template(ctx)
	if err != nil {
		return err
	}
	on, err := h.config.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", name).String()})
	if err != nil || !hasRoom(n, on.Items, &j.Spec.Template.Spec) {
		return err
	}
	pin(j, name, n.Annotations[v1alpha1.CordonedAnnotation])
	j, err = h.config.Client.BatchV1().Jobs(j.Namespace).Create(ctx, j, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the Job: %w", err)
	}
	h.nodeEvent(&task{Decision: core.Decision{Node: name, Detail: fmt.Sprintf("Job %s/%s tests the node", j.Namespace, j.Name)}}, nodeTest)
	return nil
}

// template reads the template.
func (h *Handler) template(ctx context.Context) (*batchv1.Job, error) {
	at := h.config.Diagnostic
	m, err := h.config.Client.CoreV1().ConfigMaps(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	j, err := ParseDiagnostic(at.String(), m.Data[DiagnosticKey])
	if err == nil {
		j.Namespace = at.Namespace
	}
	return j, err
}

// ParseDiagnostic reads the template of a test, which is in a ConfigMap of that name.
func ParseDiagnostic(configMap, text string) (*batchv1.Job, error) {
	j := &batchv1.Job{}
	wrong := func(format string, args ...any) (*batchv1.Job, error) {
		return nil, fmt.Errorf("ConfigMap %s: %s: %s", configMap, DiagnosticKey, fmt.Sprintf(format, args...))
	}
	if text == "" {
		return wrong("expected a Job; found nothing")
	}
	if err := yaml.UnmarshalStrict([]byte(text), j); err != nil {
		return wrong("expected a Job; %v", err)
	}
	switch {
	case j.APIVersion != "batch/v1" || j.Kind != "Job":
		return wrong("expected apiVersion batch/v1 and kind Job; found %q and %q", j.APIVersion, j.Kind)
	case len(j.Spec.Template.Spec.Containers) == 0:
		return wrong("spec.template.spec.containers: expected a container; found none")
	case j.Spec.Template.Spec.NodeName != "" || j.Spec.Suspend != nil && *j.Spec.Suspend:
		return wrong("spec.template.spec.nodeName, spec.suspend: expected neither; the scheduler says where it runs, and when")
	}
	return j, nil
}

// pin makes a template the Job that tests a node, for a reason, in the namespace of its ConfigMap. Its pods are bound by that: no scheduler is asked, as none places pods on a
// cordoned node.
func pin(j *batchv1.Job, node, why string) {
	prefix := "diagnostic-"
	if j.Name != "" {
		prefix = j.Name + "-"
	}
	j.ObjectMeta = metav1.ObjectMeta{GenerateName: prefix, Namespace: j.Namespace, Labels: maps.Clone(j.Labels), Annotations: maps.Clone(j.Annotations)}
	metav1.SetMetaDataLabel(&j.ObjectMeta, v1alpha1.DiagnosticLabel, testRuns)
	metav1.SetMetaDataAnnotation(&j.ObjectMeta, v1alpha1.TestsAnnotation, node)
	if why != "" {
		metav1.SetMetaDataAnnotation(&j.ObjectMeta, v1alpha1.CordonedAnnotation, why)
	}
	s := &j.Spec
	s.Template.Spec.NodeName = node
	if s.BackoffLimit == nil {
		s.BackoffLimit = ptr.To[int32](0)
	}
	if s.ActiveDeadlineSeconds == nil {
		s.ActiveDeadlineSeconds = ptr.To(int64(testLasts.Seconds()))
	}
	if s.TTLSecondsAfterFinished == nil {
		s.TTLSecondsAfterFinished = ptr.To(int32(testStays.Seconds()))
	}
	if s.Template.Spec.RestartPolicy == "" {
		s.Template.Spec.RestartPolicy = v1.RestartPolicyNever
	}
}

// hasRoom reports whether a node with some pods has what one more requests, of which the API server has not set requests to limits yet.
func hasRoom(n *v1.Node, on []v1.Pod, spec *v1.PodSpec) bool {
	one := &v1.Pod{Spec: *spec.DeepCopy()}
	for _, list := range [][]v1.Container{one.Spec.InitContainers, one.Spec.Containers} {
		for i := range list {
			requests := maps.Clone(list[i].Resources.Limits)
			if requests != nil {
				maps.Copy(requests, list[i].Resources.Requests)
				list[i].Resources.Requests = requests
			}
		}
	}
	for name, need := range podresources.PodRequests(one, podresources.PodResourcesOptions{}) {
		free := n.Status.Allocatable[name].DeepCopy()
		for i := range on {
			if p := &on[i]; p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
				free.Sub(podresources.PodRequests(p, podresources.PodResourcesOptions{})[name])
			}
		}
		if free.Cmp(need) < 0 {
			return false
		}
	}
	return true
}
