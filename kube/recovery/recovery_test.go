package recovery

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// world is a handler with an API in memory, and an engine that knows the nodes n1 and n2.
type world struct {
	t      *testing.T
	api    *fake.Clientset
	h      *Handler
	engine *core.Engine
	now    core.Time
	events *record.FakeRecorder
	log    string // of all pods
	told   []core.Event
}

func newWorld(t *testing.T, mode core.RecoveryMode) *world {
	w := &world{t: t, api: fake.NewClientset(), events: record.NewFakeRecorder(100), now: core.Time(time.Now().Add(time.Minute).UnixNano())}
	w.h = New(Config{
		Client: w.api, Events: w.events, Tell: func(ev core.Event) { w.told = append(w.told, ev) },
		Logs: func(context.Context, *v1.Pod, string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(w.log)), nil
		},
	})
	r := core.DefaultRecovery()
	r.Mode, r.Strikes, r.MaxCordoned = mode, 1, 1000
	c := core.Config{Policy: core.Policy{Recovery: r}}
	var err error
	if w.engine, err = core.New(c); err != nil {
		t.Fatal(err)
	}
	w.h.Began(w.now, c)
	w.apply(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
	for _, name := range []string{"n1", "n2"} {
		w.apply(core.NodeAdded{Node: core.Node{Name: name, Model: "H800", GPUs: 8}})
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
		if _, err := w.api.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) apply(ev core.Event) {
	w.t.Helper()
	if err := w.engine.Apply(w.now, ev); err != nil {
		w.t.Fatal(err)
	}
	w.h.Told(w.now, ev)
}

// pod returns a pod of the Job train, of which uid is the Job's.
func (w *world) pod(name, uid string) *v1.Pod {
	owned := true
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name), OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: types.UID(uid), Controller: &owned,
		}}},
		Spec: v1.PodSpec{SchedulerName: v1alpha1.SchedulerName, Containers: []v1.Container{{Name: "main"}}},
	}
}

// fails lets a pod fail on a node, with a log, and everything happen that follows: its log is read, the engine is told and decides, and that is carried out.
func (w *world) fails(name, node, log string) *v1.Pod {
	w.t.Helper()
	p := w.pod(name, "uid-train")
	p.Spec.NodeName, p.Status.Phase = node, v1.PodFailed
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{
		Terminated: &v1.ContainerStateTerminated{ExitCode: 1, FinishedAt: metav1.NewTime(time.Unix(0, int64(w.now)))},
	}}}
	if _, err := w.api.CoreV1().Pods("team").Create(w.t.Context(), p, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.log = log
	w.h.Observe(p)
	w.h.Observe(p) // a watch shows it more than once
	w.goOn()
	got, err := w.api.CoreV1().Pods("team").Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

func (w *world) goOn() {
	w.t.Helper()
	for len(w.h.pods) > 0 {
		w.h.read(w.t.Context(), <-w.h.pods)
	}
	for _, ev := range w.told {
		w.apply(ev)
	}
	w.h.Decided(w.now, w.engine.Decide(w.now), nil)
	for len(w.h.todo) > 0 {
		d := <-w.h.todo
		w.h.carry(w.t.Context(), &d)
	}
}

// said are the events since the last call.
func (w *world) said() string {
	var all []string
	for len(w.events.Events) > 0 {
		all = append(all, <-w.events.Events)
	}
	return strings.Join(all, "\n")
}

func (w *world) cordoned(node string) (bool, string) {
	w.t.Helper()
	n, err := w.api.CoreV1().Nodes().Get(w.t.Context(), node, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return n.Spec.Unschedulable, n.Annotations[v1alpha1.CordonedAnnotation]
}

func recoveryOf(p *v1.Pod) (reason, message string) {
	for _, c := range p.Status.Conditions {
		if c.Type == v1alpha1.RecoveryCondition {
			return c.Reason, c.Message
		}
	}
	return "", ""
}

const (
	job     = "team/job/train"
	fellOff = "[9.1] NVRM: Xid (PCI:0000:5e:00): 79, pid=7, name=python, GPU has fallen off the bus.\n"
	missing = "Traceback (most recent call last):\n  File \"train.py\", line 1, in <module>\n    import fo\nModuleNotFoundError: No module named 'fo'\n"
)

// A GPU that fell off the bus: the job restarts elsewhere, and its node is cordoned.
func TestNodeIsCordoned(t *testing.T) {
	w := newWorld(t, core.Recover)
	w.apply(core.JobSubmitted{Job: core.Job{Name: job, Queue: "q", Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: 1000}}}}})
	p := w.fails("train-1", "n1", fellOff)
	if reason, message := recoveryOf(p); reason != "JobRestarts" || message != "infrastructure/gpu: restart 1 of 3 within a day, not on n1 for 1d" {
		t.Errorf("condition %s: %s", reason, message)
	}
	if is, why := w.cordoned("n1"); !is || !strings.Contains(why, "infrastructure/gpu in job team/job/train") {
		t.Errorf("cordoned: %v, %q", is, why)
	}
	if is, _ := w.cordoned("n2"); is {
		t.Error("the other node is cordoned")
	}
	if said := w.said(); strings.Count(said, "JobRestarts") != 2 || strings.Count(said, "NodeCordoned") != 1 {
		t.Errorf("events:\n%s", said)
	}
	if n := len(w.told); n != 1 {
		t.Errorf("the engine was told %d times", n)
	}

	// It passed a test.
	w.told = []core.Event{core.NodeTested{Node: "n1", Passed: true}}
	w.goOn()
	if is, why := w.cordoned("n1"); is || why != "" {
		t.Errorf("after a test: cordoned: %v, %q", is, why)
	}
}

// A dry run says the same, and changes no node.
func TestDryRun(t *testing.T) {
	w := newWorld(t, core.RecoveryDryRun)
	w.apply(core.JobSubmitted{Job: core.Job{Name: job, Queue: "q", Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: 1000}}}}})
	p := w.fails("train-1", "n1", fellOff)
	if _, message := recoveryOf(p); !strings.HasPrefix(message, "dry run: infrastructure/gpu: restart 1 of 3") {
		t.Errorf("condition: %s", message)
	}
	if is, why := w.cordoned("n1"); is || why != "" {
		t.Errorf("cordoned: %v, %q", is, why)
	}
	if said := w.said(); !strings.Contains(said, "NodeCordoned dry run: ") {
		t.Errorf("events:\n%s", said)
	}
}

// A script that fails everywhere is held, until its owner submits another job of the name: a new pod of the same Job is a retry.
func TestHeldUntilSubmittedAgain(t *testing.T) {
	w := newWorld(t, core.Recover)
	w.apply(core.JobSubmitted{Job: core.Job{Name: job, Queue: "q", Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: 1000}}}}})
	p := w.fails("train-1", "n1", missing)
	if reason, message := recoveryOf(p); reason != "JobHeld" || message != "user_script/software: it would fail again" {
		t.Errorf("condition %s: %s", reason, message)
	}
	if is, _ := w.cordoned("n1"); is {
		t.Error("the node is cordoned for an error of the script")
	}
	w.told = nil
	w.h.Observe(w.pod("train-2", "uid-train"))
	if len(w.told) > 0 {
		t.Errorf("a retry: %+v", w.told)
	}
	w.h.Observe(w.pod("train-3", "uid-of-another-job"))
	if want := []core.Event{core.JobReleased{Job: job}}; !slices.Equal(w.told, want) {
		t.Errorf("submitted again: %+v", w.told)
	}
}

// No log is read while recovery is off, of pods of other schedulers, of pods that failed before this instance began, and of pods that are being deleted.
func TestNotRead(t *testing.T) {
	for name, change := range map[string]func(w *world, p *v1.Pod){
		"off":      func(w *world, _ *v1.Pod) { w.h.Began(w.now, core.Config{}) },
		"not ours": func(_ *world, p *v1.Pod) { p.Spec.SchedulerName = "default-scheduler" },
		"long ago": func(_ *world, p *v1.Pod) {
			p.Status.ContainerStatuses[0].State.Terminated.FinishedAt = metav1.Unix(1, 0)
		},
		"deleted":   func(_ *world, p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} },
		"no node":   func(_ *world, p *v1.Pod) { p.Spec.NodeName = "" },
		"succeeded": func(_ *world, p *v1.Pod) { p.Status.Phase = v1.PodSucceeded },
	} {
		w := newWorld(t, core.Recover)
		p := w.pod("train-1", "uid-train")
		p.Spec.NodeName, p.Status.Phase = "n1", v1.PodFailed
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{
			Terminated: &v1.ContainerStateTerminated{ExitCode: 1, FinishedAt: metav1.NewTime(time.Unix(0, int64(w.now)))},
		}}}
		change(w, p)
		if w.h.Observe(p); len(w.h.pods) > 0 {
			t.Errorf("%s: its log is read", name)
		}
	}
}

// A log without a failure says nothing, and what cannot be read neither.
func TestUnknown(t *testing.T) {
	w := newWorld(t, core.Recover)
	if p := w.fails("train-1", "n1", "step 1/2 loss 3.0\n"); len(p.Status.Conditions) > 0 || len(w.told) > 0 || w.said() != "" {
		t.Errorf("%+v, %+v", p.Status.Conditions, w.told)
	}
}
