package recovery

import (
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// template tests a node with all of its GPUs.
const template = `apiVersion: batch/v1
kind: Job
metadata: {name: gpu-test, labels: {team: operations}}
spec:
  template:
    spec:
      containers:
      - name: test
        image: example.org/dcgm
        command: [dcgmi, diag, -r, "2"]
        resources: {limits: {nvidia.com/gpu: 8}}
`

// doubtful is the log of a job of which the table says that its node is to be tested.
const doubtful = "RuntimeError: Failed to initialize NVML: Driver/library version mismatch\n"

// newTested returns a world whose nodes have 8 GPUs, and are tested by a template.
func newTested(t *testing.T, mode core.RecoveryMode, text string) *world {
	w := newWorld(t, mode)
	w.tests = true
	w.h.config.Diagnostic = types.NamespacedName{Namespace: "ops", Name: "diagnostic"}
	w.begin(mode)
	m := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: "diagnostic"}, Data: map[string]string{DiagnosticKey: text}}
	if _, err := w.api.CoreV1().ConfigMaps("ops").Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	made := 0
	w.api.PrependReactor("create", "jobs", func(a clienttesting.Action) (bool, runtime.Object, error) {
		made++
		j := a.(clienttesting.CreateAction).GetObject().(*batchv1.Job)
		j.Name = fmt.Sprintf("%s%d", j.GenerateName, made)
		return false, nil, nil
	})
	n := w.node("n1")
	n.Status.Allocatable = v1.ResourceList{v1alpha1.GPUResource: resource.MustParse("8")}
	if _, err := w.api.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) node(name string) *v1.Node {
	w.t.Helper()
	n, err := w.api.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// jobs are the Jobs that test nodes.
func (w *world) jobs() []batchv1.Job {
	w.t.Helper()
	list, err := w.api.BatchV1().Jobs("ops").List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// ends lets a Job end, with a pod of which a container ran or not, and everything happen that follows.
func (w *world) ends(j *batchv1.Job, how batchv1.JobConditionType, ran bool) {
	w.t.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", GenerateName: "x", Name: "pod-" + string(how) + strings.Repeat("x", len(w.jobs())), Labels: map[string]string{batchv1.JobNameLabel: j.Name}}}
	if p.Status.Phase = v1.PodFailed; ran {
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "test", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}}
	}
	if _, err := w.api.CoreV1().Pods("ops").Create(w.t.Context(), p, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: how, Status: v1.ConditionTrue})
	if _, err := w.api.BatchV1().Jobs("ops").UpdateStatus(w.t.Context(), j, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.tick()
}

// tick is what happens every few seconds, and what follows from it.
func (w *world) tick() {
	w.t.Helper()
	w.told = nil
	w.h.writeNodes(w.t.Context())
	w.h.testNodes(w.t.Context())
	w.goOn()
}

// A node under suspicion is tested by a Job on it, and takes pods again when that succeeds. The Job has the template's labels, and bounds.
func TestNodePasses(t *testing.T) {
	w := newTested(t, core.Recover, template)
	w.fails("p0", "n1", doubtful)
	if is, _ := w.cordoned("n1"); !is || w.node("n1").Annotations[v1alpha1.TestAnnotation] == "" {
		t.Fatalf("n1: cordoned %v, %v", is, w.node("n1").Annotations)
	}
	jobs := w.jobs()
	if len(jobs) != 1 {
		t.Fatalf("%d Jobs; events: %s", len(jobs), w.said())
	}
	j := jobs[0]
	s := &j.Spec
	if s.Template.Spec.NodeName != "n1" || j.Labels["team"] != "operations" || j.Labels[v1alpha1.DiagnosticLabel] != testRuns || j.Annotations[v1alpha1.TestsAnnotation] != "n1" ||
		*s.BackoffLimit != 0 || *s.ActiveDeadlineSeconds != 3600 || s.Template.Spec.RestartPolicy != v1.RestartPolicyNever || !strings.Contains(j.Annotations[v1alpha1.CordonedAnnotation], "infrastructure/gpu") {
		t.Errorf("the Job is %+v", j)
	}
	w.tick()
	if n := len(w.jobs()); n != 1 {
		t.Errorf("%d Jobs test one node", n)
	}
	w.ends(&j, batchv1.JobComplete, true)
	if is, _ := w.cordoned("n1"); is || w.node("n1").Annotations[v1alpha1.TestAnnotation] != "" {
		t.Errorf("n1 passed: cordoned %v, %v", is, w.node("n1").Annotations)
	}
	if got := w.jobs()[0].Labels[v1alpha1.DiagnosticLabel]; got != testPassed {
		t.Errorf("the Job says %s", got)
	}
	if said := w.said(); !strings.Contains(said, "NodeTest infrastructure/gpu in job team/job/train") || !strings.Contains(said, " passed") || !strings.Contains(said, "NodeUncordoned") {
		t.Errorf("events: %s", said)
	}
}

// A node that does not pass stays cordoned, and is not tested again.
func TestNodeDoesNotPass(t *testing.T) {
	w := newTested(t, core.Recover, template)
	w.fails("p0", "n1", doubtful)
	w.ends(&w.jobs()[0], batchv1.JobFailed, true)
	w.tick()
	if is, _ := w.cordoned("n1"); !is || len(w.jobs()) != 1 || w.jobs()[0].Labels[v1alpha1.DiagnosticLabel] != testFailed {
		t.Errorf("n1: cordoned %v, Jobs %v", is, w.jobs())
	}
}

// A test of which no container ran says nothing about the node: there is another one.
func TestRefused(t *testing.T) {
	w := newTested(t, core.Recover, template)
	w.fails("p0", "n1", doubtful)
	j := w.jobs()[0]
	w.ends(&j, batchv1.JobFailed, false)
	if is, _ := w.cordoned("n1"); !is || len(w.told) != 0 {
		t.Errorf("n1: cordoned %v, told %v", is, w.told)
	}
	w.tick()
	if n := len(w.jobs()); n != 2 {
		t.Errorf("%d Jobs; expected another test", n)
	}
}

// A test waits for the GPUs that it requests: what runs on the node goes on.
func TestWaitsForRoom(t *testing.T) {
	w := newTested(t, core.Recover, template)
	other := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "other"}, Spec: v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{
		Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1alpha1.GPUResource: resource.MustParse("1")}},
	}}}}
	if _, err := w.api.CoreV1().Pods("team").Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.fails("p0", "n1", doubtful)
	w.tick()
	if n := len(w.jobs()); n != 0 {
		t.Fatalf("%d Jobs beside a pod that has one of the GPUs", n)
	}
	if err := w.api.CoreV1().Pods("team").Delete(t.Context(), "other", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.tick()
	if n := len(w.jobs()); n != 1 {
		t.Errorf("%d Jobs when all GPUs are free", n)
	}
}

// Another instance goes on with a test that has begun, and begins one that has not.
func TestTestedByTheNext(t *testing.T) {
	for _, begun := range []bool{false, true} {
		w := newTested(t, core.Recover, template)
		if !begun {
			w.h.config.Diagnostic.Name = "nothing"
		}
		w.fails("p0", "n1", doubtful)
		w.restart(core.Recover)
		w.h.config.Diagnostic = types.NamespacedName{Namespace: "ops", Name: "diagnostic"}
		w.tick()
		if n := len(w.jobs()); n != 1 {
			t.Fatalf("%d Jobs", n)
		}
		w.ends(&w.jobs()[0], batchv1.JobComplete, true)
		if is, _ := w.cordoned("n1"); is {
			t.Error("n1 passed, and is cordoned")
		}
	}
}

// A node that an operator uncordons before its test begins is not tested.
func TestUncordonedBeforeTheTest(t *testing.T) {
	w := newTested(t, core.Recover, template)
	w.h.config.Diagnostic.Name = "nothing"
	w.fails("p0", "n1", doubtful)
	n := w.node("n1")
	n.Spec.Unschedulable = false
	if _, err := w.api.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.h.config.Diagnostic.Name = "diagnostic"
	w.tick()
	w.tick()
	if n := w.node("n1"); len(w.jobs()) != 0 || n.Annotations[v1alpha1.TestAnnotation] != "" {
		t.Errorf("%d Jobs, annotations %v", len(w.jobs()), n.Annotations)
	}
}

// A dry run makes no Job.
func TestNoTestInADryRun(t *testing.T) {
	w := newTested(t, core.RecoveryDryRun, template)
	w.fails("p0", "n1", doubtful)
	w.tick()
	if said := w.said(); len(w.jobs()) != 0 || !strings.Contains(said, "NodeTest dry run: infrastructure/gpu in job team/job/train") {
		t.Errorf("%d Jobs, events: %s", len(w.jobs()), said)
	}
}

func TestParseDiagnostic(t *testing.T) {
	for text, want := range map[string]string{
		template:                          "",
		"":                                "expected a Job; found nothing",
		"kind: Pod\napiVersion: v1\n":     `found "v1" and "Pod"`,
		template + "  parallel: 2\n":      `unknown field "parallel"`,
		template + "      nodeName: n1\n": "spec.template.spec.nodeName",
		"apiVersion: batch/v1\nkind: Job": "expected a container; found none",
		"- x":                             "expected a Job; ",
	} {
		_, err := ParseDiagnostic("ops/diagnostic", text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "ConfigMap ops/diagnostic: job.yaml: ")) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
