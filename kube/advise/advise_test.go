package advise

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/semantic/metadata"
)

// world is a handler with an API in memory, and an engine that starts short jobs first on one node of 8 GPUs.
type world struct {
	t      *testing.T
	api    *fake.Clientset
	h      *Handler
	engine *core.Engine
	now    core.Time
	late   []func() core.Event // what is to be told
	asked  []metadata.Submitted
	// answer is the advisor's.
	answer func(*metadata.Submitted) (core.Time, string, error)
	paused []time.Duration
	during func() // called in a pause
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, api: fake.NewClientset()}
	w.h = New(Config{
		Client: w.api, Advisor: w, Tell: func(ev func() core.Event) { w.late = append(w.late, ev) },
		Pod: func(_ context.Context, job string) (types.NamespacedName, bool) {
			return types.NamespacedName{Namespace: "team", Name: job[strings.LastIndexByte(job, '/')+1:] + "-0"}, true
		},
		Pause: func(_ context.Context, d time.Duration) {
			if w.paused = append(w.paused, d); w.during != nil {
				w.during()
			}
		},
	})
	c := core.Config{Policy: core.Policy{Queueing: core.Queueing{Mode: core.BestEffortFIFO, Order: core.ByEstimate}}}
	var err error
	if w.engine, err = core.New(c); err != nil {
		t.Fatal(err)
	}
	w.h.Began(w.now, c)
	w.tell(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
	w.tell(core.NodeAdded{Node: core.Node{Name: "n1", Model: "H800", GPUs: 8}})
	return w
}

// Advise answers as the test says.
func (w *world) Advise(_ context.Context, s *metadata.Submitted) (core.Time, string, error) {
	w.asked = append(w.asked, *s)
	return w.answer(s)
}

func (w *world) tell(ev core.Event) {
	w.t.Helper()
	if err := w.engine.Apply(w.now, ev); err != nil {
		w.t.Fatal(err)
	}
	w.h.Told(w.now, ev)
}

// submit submits a Job of 8 GPUs, with its pod.
func (w *world) submit(name string, estimate core.Time) {
	w.t.Helper()
	owned := true
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name + "-0", UID: types.UID("uid-" + name), OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "batch/v1", Kind: "Job", Name: name, UID: types.UID("uid-job-" + name), Controller: &owned,
		}}},
		Spec: v1.PodSpec{SchedulerName: v1alpha1.SchedulerName, Containers: []v1.Container{{Name: "main", Command: []string{"python", "train.py", "--model", name}}}},
	}
	if _, err := w.api.CoreV1().Pods("team").Create(w.t.Context(), p, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	j := core.Job{Name: "team/job/" + name, Queue: "q", User: "ann", Submitted: w.now, Estimate: estimate}
	j.Tasks = []core.Task{{Name: "main", Pods: 1, Request: core.Request{GPU: 8 * core.WholeGPU, Models: []string{"H800"}}}}
	w.tell(core.JobSubmitted{Job: j})
	w.now += core.Second
}

// goOn has the questions answered, and the engine told.
func (w *world) goOn() {
	w.t.Helper()
	for len(w.h.queue) > 0 {
		w.h.answer(w.t.Context(), <-w.h.queue)
	}
	late := w.late
	w.late = nil
	for _, event := range late {
		if ev := event(); ev != nil {
			w.tell(ev)
		}
	}
}

// starts returns the jobs that a pass starts.
func (w *world) starts() string {
	var names []string
	for _, d := range w.engine.Decide(w.now) {
		if d.Op == core.Bind {
			names = append(names, d.Job[strings.LastIndexByte(d.Job, '/')+1:])
		}
	}
	return strings.Join(names, " ")
}

// said returns the condition of a job's pod.
func (w *world) said(name string) string {
	w.t.Helper()
	p, err := w.api.CoreV1().Pods("team").Get(w.t.Context(), name+"-0", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1alpha1.EstimateCondition {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

func hours(h int) core.Time { return core.Time(h) * 3600 * core.Second }

// Estimates order the jobs that wait. What the user says counts more, and of what nothing is known nothing is said.
func TestJobsAreOrdered(t *testing.T) {
	w := newWorld(t)
	known := map[string]int{"bert": 5, "vit": 1, "gpt": 9}
	w.answer = func(s *metadata.Submitted) (core.Time, string, error) {
		n := known[s.ID[strings.LastIndexByte(s.ID, '/')+1:]]
		return hours(n), fmt.Sprintf("%dh", n), nil
	}
	w.submit("first", hours(1))
	if got := w.starts(); got != "first" {
		t.Fatalf("starts %q", got)
	}
	w.submit("bert", 0)
	w.submit("vit", 0)
	w.submit("gpt", hours(2))
	w.goOn()
	w.tell(core.PodEnded{Job: "team/job/first"})
	for _, want := range []string{"vit", "gpt", "bert"} {
		if got := w.starts(); got != want {
			t.Errorf("starts %q, want %q", got, want)
		}
		w.tell(core.PodEnded{Job: "team/job/" + want})
	}
	w.submit("new", 0)
	w.goOn()
	for name, want := range map[string]string{"first": "", "bert": "History: 5h", "vit": "History: 1h", "gpt": "", "new": ""} {
		if got := w.said(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	s := w.asked[1]
	want := metadata.Submitted{
		ID: "team/job/bert", Name: "team/job/bert", User: "ann", Queue: "q", Kind: "training", Pods: 1, GPUs: 8, Models: []string{"H800"}, At: time.Unix(1, 0).UTC(),
		Launch: metadata.Launch{Command: "python train.py --model bert"},
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("asked about %+v, want %+v", s, want)
	}
}

// A walltime that a user sets while the advisor is asked counts; one that is taken away is replaced by an estimate.
func TestUserSpeaks(t *testing.T) {
	w := newWorld(t)
	w.answer = func(*metadata.Submitted) (core.Time, string, error) { return hours(3), "3h", nil }
	w.submit("bert", 0)
	w.h.answer(t.Context(), <-w.h.queue)
	w.tell(core.JobEstimated{Job: "team/job/bert", Estimate: hours(1)})
	if ev := w.late[0](); ev != nil {
		t.Errorf("the engine is told %+v", ev)
	}
	w.late = nil
	w.tell(core.JobEstimated{Job: "team/job/bert"})
	w.h.answer(t.Context(), <-w.h.queue)
	if ev := w.late[0](); ev != (core.JobEstimated{Job: "team/job/bert", Estimate: hours(3)}) {
		t.Errorf("the engine is told %+v", ev)
	}
}

// Of a job that has ended, or that another has the name of, nothing is told.
func TestJobEnds(t *testing.T) {
	w := newWorld(t)
	w.answer = func(*metadata.Submitted) (core.Time, string, error) { return hours(3), "3h", nil }
	w.submit("bert", 0)
	w.h.answer(t.Context(), <-w.h.queue)
	w.tell(core.JobEnded{Job: "team/job/bert"})
	if ev := w.late[0](); ev != nil {
		t.Errorf("the engine is told %+v", ev)
	}
	w.tell(core.JobSubmitted{Job: core.Job{Name: "team/job/bert", Queue: "q", Tasks: []core.Task{{Name: "main", Pods: 1}}}})
	if ev := w.late[0](); ev != nil {
		t.Errorf("the engine is told %+v of another job", ev)
	}
}

// An advisor that has no answer is asked again, for a while; jobs that end meanwhile are not asked about.
func TestAdvisorFails(t *testing.T) {
	w := newWorld(t)
	fails := 2
	w.answer = func(*metadata.Submitted) (core.Time, string, error) {
		if fails--; fails == 0 {
			panic("what a user wrote")
		} else if fails > 0 {
			return 0, "", errors.New("no connection")
		}
		return hours(3), "3h", nil
	}
	w.submit("bert", 0)
	w.goOn()
	if got := w.said("bert"); got != "History: 3h" || !reflect.DeepEqual(w.paused, []time.Duration{time.Second, 2 * time.Second}) {
		t.Errorf("%q after %v", got, w.paused)
	}

	fails, w.paused = 1000, nil
	w.submit("vit", 0)
	w.goOn()
	if len(w.paused) != mostTries-1 || w.paused[mostTries-2] != mostPause {
		t.Errorf("pauses of %v", w.paused)
	}

	w.asked, w.during = nil, func() { w.tell(core.JobEnded{Job: "team/job/gpt"}) }
	w.submit("gpt", 0)
	w.goOn()
	if len(w.asked) != 1 {
		t.Errorf("asked %d times about a job that ended", len(w.asked))
	}
}

// What waits is bounded, and telling never waits.
func TestQueueIsBounded(t *testing.T) {
	w := newWorld(t)
	w.h.queue = make(chan question, 2)
	w.answer = func(*metadata.Submitted) (core.Time, string, error) { return hours(3), "3h", nil }
	for _, name := range []string{"a", "b", "c"} {
		w.submit(name, 0)
	}
	w.goOn()
	if len(w.asked) != 2 {
		t.Errorf("asked about %d jobs", len(w.asked))
	}
}

func TestLaunchOf(t *testing.T) {
	pod := func(containers ...v1.Container) *v1.Pod { return &v1.Pod{Spec: v1.PodSpec{Containers: containers}} }
	gpu := v1.ResourceRequirements{Requests: v1.ResourceList{v1alpha1.GPUResource: resource.MustParse("8")}}
	side := v1.Container{Name: "side", Image: "proxy", Command: []string{"envoy"}}
	annotated := pod(side, v1.Container{Name: "main", Command: []string{"python", "train.py"}})
	annotated.Annotations = map[string]string{"kubectl.kubernetes.io/default-container": "main"}
	for _, c := range []struct {
		name string
		pod  *v1.Pod
		want metadata.Launch
	}{
		{"none", pod(), metadata.Launch{}},
		{"the container with GPUs", pod(side, v1.Container{Name: "main", Image: "registry:5000/lab/nanogpt:v3@sha256:ab", Resources: gpu}), metadata.Launch{Image: "nanogpt"}},
		{"the first", pod(side, v1.Container{Name: "other"}), metadata.Launch{Image: "proxy", Command: "envoy"}},
		{"the one that is named", annotated, metadata.Launch{Command: "python train.py"}},
		{"words, variables and secrets", pod(v1.Container{
			Command: []string{"bash", "-c"}, Args: []string{"python train.py --lr $(LR) --out '$HOME' $$x $(NONE)"},
			Env: []v1.EnvVar{
				{Name: "BASE", Value: "1"}, {Name: "LR", Value: "$(BASE)e-3"}, {Name: "not-a-name", Value: "x"},
				{Name: "TOKEN", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Key: "token"}}},
			},
		}), metadata.Launch{Command: `bash -c 'python train.py --lr 1e-3 --out '\''$HOME'\'' $x $(NONE)'`, Env: []string{"BASE=1", "LR=1e-3"}}},
		{"too long", pod(v1.Container{Command: []string{"python", strings.Repeat("x", mostCommand)}}), metadata.Launch{}},
	} {
		if got := LaunchOf(c.pod); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// Variables that name each other twice, a hundred times over, and what a shell would make of them, take no memory and no time to speak of.
func TestHostilePod(t *testing.T) {
	c := v1.Container{Env: []v1.EnvVar{{Name: "V0", Value: strings.Repeat("x", 100)}}}
	for i := range 100 {
		c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprintf("V%d", i+1), Value: fmt.Sprintf("$(V%d)$(V%d)", i, i)})
	}
	c.Command = []string{"sh", "-c", strings.Repeat("a=$a$V3$(V3);", 1000)}
	l := LaunchOf(&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{c}}})
	size := len(l.Command)
	for _, e := range l.Env {
		size += len(e)
	}
	if size > mostCommand+mostEnv*(mostValue+10) || len(l.Env) < 4 {
		t.Errorf("%d bytes, %d variables", size, len(l.Env))
	}
}
