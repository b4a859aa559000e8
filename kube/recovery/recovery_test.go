package recovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// world is a handler with an API in memory, and an engine that knows the nodes n1 and n2.
type world struct {
	t       *testing.T
	api     *fake.Clientset
	h       *Handler
	engine  *core.Engine
	now     core.Time
	events  *record.FakeRecorder
	log     string // of all pods
	told    []core.Event
	strikes int  // that cordon a node
	tests   bool // the policy has nodes tested
	lost    bool // it no longer decides
}

func newWorld(t *testing.T, mode core.RecoveryMode) *world {
	w := &world{t: t, strikes: 1, api: fake.NewClientset(), events: record.NewFakeRecorder(100), now: core.Time(time.Now().Add(time.Minute).Truncate(time.Second).UnixNano())}
	w.h = w.handler()
	w.begin(mode)
	return w
}

// handler returns a handler that knows nothing.
func (w *world) handler() *Handler {
	return New(Config{
		Client: w.api, Events: w.events, Now: func() time.Time { return wall(w.now) }, Leads: func() bool { return !w.lost }, Tell: func(ev core.Event) { w.told = append(w.told, ev) },
		Logs: func(context.Context, *v1.Pod, string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(w.log)), nil
		},
	})
}

// begin begins an engine, as the mirror does. The nodes are made for the first one.
func (w *world) begin(mode core.RecoveryMode) {
	w.t.Helper()
	r := core.DefaultRecovery()
	r.Mode, r.Strikes, r.MaxCordoned, r.Tests = mode, w.strikes, 1000, w.tests
	c := core.Config{Policy: core.Policy{Recovery: r}}
	var err error
	if w.engine, err = core.New(c); err != nil {
		w.t.Fatal(err)
	}
	w.h.Began(w.now, c)
	w.apply(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
	for _, name := range []string{"n1", "n2", "n3"} {
		n, err := w.api.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			n = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
			if _, err = w.api.CoreV1().Nodes().Create(w.t.Context(), n, metav1.CreateOptions{}); err != nil {
				w.t.Fatal(err)
			}
		}
		w.apply(core.NodeAdded{Node: core.Node{Name: name, Model: "H800", GPUs: 8, Cordoned: n.Spec.Unschedulable}})
	}
	w.apply(w.h.Failures())
}

// restart lets another instance begin, which lists what the API has.
func (w *world) restart(mode core.RecoveryMode) {
	w.t.Helper()
	w.told = nil
	w.h = w.handler()
	pods, err := w.api.CoreV1().Pods("").List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range pods.Items {
		w.h.Observe(&pods.Items[i])
	}
	nodes, err := w.api.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range nodes.Items {
		w.h.ObserveNode(&nodes.Items[i])
	}
	w.begin(mode)
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
	return w.failsOf("train", name, node, log)
}

// failsOf does the same for a pod of another Job.
func (w *world) failsOf(owner, name, node, log string) *v1.Pod {
	w.t.Helper()
	p := w.pod(name, "uid-"+owner)
	p.OwnerReferences[0].Name = owner
	p.Spec.NodeName, p.Status.Phase = node, v1.PodFailed
	p.Status.StartTime = &metav1.Time{Time: wall(w.now).Add(-time.Minute)}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{
		Terminated: &v1.ContainerStateTerminated{ExitCode: 1, FinishedAt: metav1.NewTime(wall(w.now).Truncate(time.Second))},
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
		if d, ok := ev.(core.JobDiagnosed); ok {
			d.At = min(d.At, w.now)
			ev = d
		}
		w.apply(ev)
	}
	w.h.Decided(w.now, w.engine.Decide(w.now), w.engine)
	for len(w.h.todo) > 0 {
		d := <-w.h.todo
		w.h.carry(w.t.Context(), &d)
	}
	w.h.writeNodes(w.t.Context())
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
	job       = "team/job/train"
	fellOff   = "[9.1] NVRM: Xid (PCI:0000:5e:00): 79, pid=7, name=python, GPU has fallen off the bus.\n"
	strikeLog = "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution\n"
	missing   = "Traceback (most recent call last):\n  File \"train.py\", line 1, in <module>\n    import fo\nModuleNotFoundError: No module named 'fo'\n"
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
	for name, p := range map[string]*v1.Pod{
		"a retry":                           w.made("train-2", "uid-train", time.Minute),
		"a sibling of another owner before": w.made("train-3", "uid-of-another-job", -time.Minute),
		"a restart of the whole JobSet":     w.made("train-4", "uid-of-a-child", time.Minute, func(p *v1.Pod) { p.Labels = map[string]string{"jobset.sigs.k8s.io/restart-attempt": "1"} }),
	} {
		if w.h.Observe(p); len(w.told) > 0 {
			t.Errorf("%s: %+v", name, w.told)
		}
	}
	w.h.Observe(w.made("train-5", "uid-of-another-job", time.Minute))
	if want := []core.Event{core.JobReleased{Job: job}}; !slices.Equal(w.told, want) {
		t.Errorf("submitted again: %+v", w.told)
	}
}

// made returns a pod that was made some time after now.
func (w *world) made(name, maker string, after time.Duration, with ...func(*v1.Pod)) *v1.Pod {
	p := w.pod(name, maker)
	p.CreationTimestamp = metav1.NewTime(wall(w.now).Add(after))
	for _, f := range with {
		f(p)
	}
	return p
}

// A pod that a sibling's owner made before the job was held tells who its owners are: another one of theirs is a retry.
func TestKnownMakers(t *testing.T) {
	w := newWorld(t, core.Recover)
	w.submit()
	if _, err := w.api.CoreV1().Pods("team").Create(t.Context(), w.made("worker-1", "uid-of-workers", -time.Minute), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.fails("train-1", "n1", missing)
	w.told = nil
	if w.h.Observe(w.made("worker-2", "uid-of-workers", time.Minute)); len(w.told) > 0 {
		t.Errorf("a retry: %+v", w.told)
	}
}

func (w *world) submit() {
	w.t.Helper()
	w.apply(core.JobSubmitted{Job: core.Job{Name: job, Queue: "q", Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: 1000}}}}})
}

// held says why the job is held, as the engine decides it.
func (w *world) heldFor() string {
	for _, j := range w.engine.Failures().Jobs {
		if j.Job == job {
			return j.Held
		}
	}
	return ""
}

// What was decided is not lost when the scheduler restarts: the job stays held, the node has its strike, and restarts count.
func TestRestart(t *testing.T) {
	w := newWorld(t, core.Recover)
	w.strikes = 2
	w.h = w.handler()
	w.begin(core.Recover)
	w.submit()
	w.fails("train-1", "n1", strikeLog)
	before := w.engine.Failures()
	if len(before.Nodes) != 1 || len(before.Nodes[0].Strikes) != 1 || len(before.Jobs) != 1 || len(before.Jobs[0].Restarts) != 1 {
		t.Fatalf("%+v", before)
	}
	w.restart(core.Recover)
	if after := w.engine.Failures(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("after a restart\n%+v, before\n%+v", after, before)
	}
	if len(w.h.pods) > 0 {
		t.Error("a pod is read again of which the failure was handled")
	}

	// The second strike cordons the node, and the next instance knows of the cordon.
	w.submit()
	w.startsAgain(20 * core.Second)
	w.now += core.Second
	w.fails("train-2", "n1", strikeLog)
	if is, _ := w.cordoned("n1"); !is {
		t.Fatal("two strikes did not cordon the node")
	}
	w.restart(core.Recover)
	if is := w.engine.Failures(); len(is.Nodes) != 1 || !is.Nodes[0].Cordoned || len(is.Nodes[0].Strikes) != 2 {
		t.Errorf("after a restart: %+v", is.Nodes)
	}

	// An operator uncordons it: nothing is held against it, also not by the next instance.
	n, err := w.api.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Spec.Unschedulable = false
	if _, err := w.api.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.apply(core.NodeCordoned{Node: "n1"})
	w.goOn()
	if n, err = w.api.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{}); err != nil || len(n.Annotations) > 0 {
		t.Errorf("it still has %v, %v", n.Annotations, err)
	}
	w.restart(core.Recover)
	if is := w.engine.Failures(); len(is.Nodes) > 0 {
		t.Errorf("after a restart: %+v", is.Nodes)
	}
}

// An operator uncordons a node while no instance runs. The next one holds nothing against it, and says so on the node: else a later cordon of the operator's
// would count as one for failures.
func TestUncordonedMeanwhile(t *testing.T) {
	w := newWorld(t, core.Recover)
	w.submit()
	w.fails("train-1", "n1", fellOff)
	if is, why := w.cordoned("n1"); !is || why == "" {
		t.Fatal("the node is not cordoned")
	}
	n, err := w.api.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Spec.Unschedulable = false
	if _, err := w.api.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.restart(core.Recover)
	if is := w.engine.Failures(); len(is.Nodes) > 0 {
		t.Errorf("after a restart: %+v", is.Nodes)
	}
	w.goOn()
	if n, err = w.api.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{}); err != nil || len(n.Annotations) > 0 || n.Spec.Unschedulable {
		t.Errorf("it still has %v, cordoned %v, %v", n.Annotations, n.Spec.Unschedulable, err)
	}
}

// A job stays held when the scheduler restarts, until it is released; then it stays released.
func TestRestartHeld(t *testing.T) {
	w := newWorld(t, core.Recover)
	w.submit()
	w.fails("train-1", "n1", missing)
	w.restart(core.Recover)
	if why := w.heldFor(); why != "user_script/software: it would fail again" {
		t.Fatalf("held for %q", why)
	}
	w.submit()
	w.goOn()

	// The pod of the maker of before is a retry, after a restart, too.
	if w.h.Observe(w.made("train-2", "uid-train", time.Minute)); len(w.told) > 0 {
		t.Errorf("a retry: %+v", w.told)
	}
	name, err := Release(t.Context(), w.api, "team", "train", wall(w.now-3600*core.Second)) // the clock of that machine is an hour late
	if err != nil || name != job {
		t.Fatal(name, err)
	}
	// Killed before the scheduler saw it, or after.
	w.restart(core.Recover)
	if why := w.heldFor(); why != "" {
		t.Errorf("held for %q after it was released", why)
	}
	if _, err := Release(t.Context(), w.api, "team", "job/train", wall(w.now)); err == nil || !strings.Contains(err.Error(), "is not held") {
		t.Errorf("released twice: %v", err)
	}
}

// muster release releases a job that is held, and the pod that failed says so.
func TestRelease(t *testing.T) {
	w := newWorld(t, core.Recover)
	w.submit()
	w.fails("train-1", "n1", missing)
	w.told = nil
	if _, err := Release(t.Context(), w.api, "team", "team/job/train", wall(w.now)); err != nil {
		t.Fatal(err)
	}
	p, err := w.api.CoreV1().Pods("team").Get(t.Context(), "train-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.h.Observe(p)
	w.h.Observe(p)
	if want := []core.Event{core.JobReleased{Job: job}}; !slices.Equal(w.told, want) {
		t.Fatalf("%+v", w.told)
	}
	w.goOn()
	if p, err = w.api.CoreV1().Pods("team").Get(t.Context(), "train-1", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if reason, _ := recoveryOf(p); reason != "JobReleased" || p.Annotations[v1alpha1.RecoveryAnnotation] != "" {
		t.Errorf("it has the reason %s, and %v", reason, p.Annotations)
	}
	for _, name := range []string{"nobody", "job/nobody"} {
		if _, err := Release(t.Context(), w.api, "team", name, wall(w.now)); err == nil || !strings.Contains(err.Error(), "has no such job") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A write on a node that fails is tried again, and nobody is kept waiting for it.
func TestNodeIsWrittenLater(t *testing.T) {
	w := newWorld(t, core.Recover)
	w.submit()
	down := true
	w.api.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return down, nil, errors.New("the API is away")
	})
	p := w.fails("train-1", "n1", fellOff)
	if reason, _ := recoveryOf(p); reason != "JobRestarts" {
		t.Errorf("condition %s", reason)
	}
	if is, _ := w.cordoned("n1"); is {
		t.Fatal("it was written")
	}
	down = false
	w.goOn()
	if is, _ := w.cordoned("n1"); !is {
		t.Error("it was not tried again")
	}
}

// An instance that no longer decides reads no log, and tells the engine nothing. The next one reads the pod.
func TestNotWithoutTheLease(t *testing.T) {
	w := newWorld(t, core.Recover)
	w.submit()
	w.h.config.Logs = func(context.Context, *v1.Pod, string) (io.ReadCloser, error) {
		w.lost = true // in the middle of it
		return io.NopCloser(strings.NewReader(w.log)), nil
	}
	p := w.pod("train-1", "uid-train")
	p.Spec.NodeName, p.Status.Phase = "n1", v1.PodFailed
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{
		Terminated: &v1.ContainerStateTerminated{ExitCode: 1, FinishedAt: metav1.NewTime(wall(w.now))},
	}}}
	if _, err := w.api.CoreV1().Pods("team").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.log = fellOff
	w.h.Observe(p)
	w.h.read(t.Context(), <-w.h.pods)
	if len(w.told) > 0 {
		t.Errorf("told %+v", w.told)
	}
	w.h.Observe(w.pod("train-2", "uid-train"))
	w.h.Rest()
	if w.h.Began(w.now, core.Config{Policy: core.Policy{Recovery: core.Recovery{Mode: core.Recover}}}); w.h.begun {
		t.Error("it goes on without a shard")
	}
	w.lost = false
	w.restart(core.Recover)
	if len(w.h.pods) != 1 {
		t.Errorf("the next instance reads %d pods", len(w.h.pods))
	}
}

// Jobs of pods that are gone are forgotten, and of many jobs the oldest.
func TestForgets(t *testing.T) {
	w := newWorld(t, core.Recover)
	w.submit()
	p := w.fails("train-1", "n1", missing)
	w.h.Observe(p)
	if len(w.h.failed) != 1 || len(w.h.records) != 1 {
		t.Fatalf("%d, %d", len(w.h.failed), len(w.h.records))
	}
	w.h.Gone(p)
	if len(w.h.failed) != 0 || len(w.h.records) != 0 {
		t.Errorf("%d, %d are remembered of a pod that is gone", len(w.h.failed), len(w.h.records))
	}
	for i := range mostJobs + 10 {
		w.h.noteFailed(fmt.Sprint(i), p)
	}
	if len(w.h.failed) != mostJobs || w.h.failed["9"] != nil || w.h.failed["10"] == nil {
		t.Errorf("%d jobs are remembered", len(w.h.failed))
	}
	w.h.Only(true, nil)
	if len(w.h.failed) != 0 {
		t.Errorf("%d jobs are remembered after a list without their pods", len(w.h.failed))
	}
}

// startsAgain lets the job start again some time after its pod failed.
func (w *world) startsAgain(after core.Time) {
	w.t.Helper()
	if is, _ := w.engine.Explain(job); is.Running > 0 {
		w.apply(core.PodEnded{Job: job, Pod: 0, Failed: true})
	}
	w.told = nil
	w.now += after
	w.goOn()
	if is, _ := w.engine.Explain(job); is.Running != 1 {
		w.t.Fatalf("%+v", is)
	}
}

// A pod that fails within the second in which it started failed after it started: the time is that at which it was seen.
func TestFastCrash(t *testing.T) {
	w := newWorld(t, core.Recover)
	w.now = (w.now/core.Second)*core.Second + 900*core.Second/1000
	w.submit()
	w.fails("train-1", "n1", fellOff)
	w.startsAgain(20*core.Second + 400*core.Second/1000)
	w.now += 400 * core.Second / 1000 // FinishedAt has the same second as the start
	p := w.fails("train-2", "n2", fellOff)
	if _, message := recoveryOf(p); !strings.Contains(message, "restart 2 of 3") {
		t.Errorf("the second failure: %q", message)
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

// A job runs on several nodes. The GPU of one falls off the bus, and the pods of the others say that a collective timed out: their nodes are no suspects,
// however often that happens.
func TestNodesThatWaited(t *testing.T) {
	w := newWorld(t, core.Recover)
	const waited = "[rank8]:[E ProcessGroupNCCL.cpp:621] [Rank 8] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
	for i := range 3 {
		w.fails(fmt.Sprintf("train-b%d", i), "n2", waited)
		w.now += 3600 * core.Second
	}
	w.fails("train-a", "n1", fellOff)
	if on, _ := w.cordoned("n2"); on {
		t.Error("the node of a pod that waited was cordoned")
	}
	if on, _ := w.cordoned("n1"); !on {
		t.Error("the node whose GPU fell off the bus was not cordoned")
	}
}
