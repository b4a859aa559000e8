package kube

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// A job whose pods all leave is suspended, and its next pods wait where it did.
func TestGangOfAJobIsSuspended(t *testing.T) {
	y := newToy(t)
	y.node("a", 8)
	y.start()
	job := func(generation int) []*v1.Pod {
		var out []*v1.Pod
		for i := range 2 {
			p := newTestPod(fmt.Sprintf("train-%d-%d", generation, i), 4)
			p.Annotations[v1alpha1.MinMemberAnnotation], p.Labels[v1alpha1.QueueLabel] = "2", DefaultQueue
			p.CreationTimestamp.Time = startOfTime.Add(time.Duration(generation) * time.Hour)
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "job", Controller: new(true)}}
			out = append(out, p)
		}
		return out
	}
	old := job(0)
	y.see(old...)
	y.run()
	high := newTestPod("high", 8)
	high.Spec.Priority = new(int32(1000))
	y.see(high)
	y.now += 3600 * core.Second
	a := y.decide(y.now)
	if len(a.evict) != 0 || len(a.suspend) != 1 {
		t.Fatalf("%d evictions, %d suspensions", len(a.evict), len(a.suspend))
	}
	x := a.suspend[0].onItsWay()
	y.done()
	if len(x.owners) != 1 || x.owners[0].Name != "train" || len(x.pods) != 2 || len(x.members) != 2 || !x.since.Equal(startOfTime) {
		t.Errorf("got %+v", x)
	}
	for _, p := range old {
		y.podGone(p.UID)
	}
	if at := y.run(); at["high"] != "a" {
		t.Fatalf("got %v", at)
	}
	id := translate.Group{Namespace: "default", Kind: "job", Name: "train"}
	if g := y.groups[id]; g == nil || g.submitted {
		t.Fatal("the place of the job is lost")
	}
	y.resumed(id)
	y.see(job(1)...)
	y.run()
	if g := y.groups[id]; !g.created.Equal(startOfTime) || !g.submitted || g.parked != nil {
		t.Errorf("waits since %v, submitted %v", g.created, g.submitted)
	}

	// A place that nobody comes for is given up.
	for _, p := range job(1) {
		y.podGone(p.UID)
	}
	y.park(id, startOfTime)
	y.resumed(id)
	y.run()
	a = y.decide(y.now)
	wake := a.wake
	y.done()
	if y.now = wake; y.groups[id] == nil || wake == core.Never {
		t.Fatal("the place is given up at once")
	}
	if y.run(); y.groups[id] != nil {
		t.Error("the place is kept for good")
	}

	// Pods that have come before their owner is found suspended wait since it was.
	y.see(job(2)...)
	if y.park(id, startOfTime); !y.groups[id].created.Equal(startOfTime) {
		t.Errorf("they wait since %v", y.groups[id].created)
	}
}

// owners is a scheduler with a fake API that has owners of pods.
type owners struct {
	*Scheduler
	t *testing.T
}

var ownerKinds = []*metav1.APIResourceList{
	{GroupVersion: "batch/v1", APIResources: []metav1.APIResource{{Name: "jobs", Kind: "Job", Namespaced: true}}},
	{GroupVersion: "jobset.x-k8s.io/v1alpha2", APIResources: []metav1.APIResource{{Name: "jobsets", Kind: "JobSet", Namespaced: true}}},
	{GroupVersion: "kubeflow.org/v1", APIResources: []metav1.APIResource{{Name: "pytorchjobs", Kind: "PyTorchJob", Namespaced: true}}},
	{GroupVersion: "ray.io/v1", APIResources: []metav1.APIResource{{Name: "rayjobs", Kind: "RayJob", Namespaced: true}, {Name: "rayclusters", Kind: "RayCluster", Namespaced: true}}},
}

func newOwners(t *testing.T, objects ...*unstructured.Unstructured) *owners {
	client := fake.NewClientset()
	client.Resources = ownerKinds
	lists := map[schema.GroupVersionResource]string{}
	for _, l := range ownerKinds {
		gv, _ := schema.ParseGroupVersion(l.GroupVersion)
		for _, r := range l.APIResources {
			lists[gv.WithResource(r.Name)] = r.Kind + "List"
		}
	}
	var all []runtime.Object
	for _, o := range objects {
		all = append(all, o)
	}
	dyn := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, all...)
	return &owners{t: t, Scheduler: &Scheduler{
		held: decidesOnAll(), log: slog.New(slog.DiscardHandler), now: func() time.Time { return startOfTime }, client: client, dynamic: dyn,
		box: newMailbox(), evicting: make(chan struct{}, 1), metrics: newMetrics(),
	}}
}

// owner is an object that owns pods, or owners.
func owner(apiVersion, kind, name string, by *unstructured.Unstructured) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": map[string]any{}}}
	o.SetName(name)
	o.SetNamespace("default")
	o.SetUID(types.UID(kind + name))
	if by != nil {
		o.SetOwnerReferences([]metav1.OwnerReference{refTo(by)})
	}
	return o
}

func refTo(o *unstructured.Unstructured) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID(), Controller: new(true)}
}

// pods adds pods that run, with a label.
func (o *owners) pods(key, value string, names ...string) {
	for _, name := range names {
		p := newTestPod(name, 1)
		p.Labels[key], p.Spec.NodeName, p.Status.Phase = value, "a", v1.PodRunning
		if _, err := o.client.CoreV1().Pods("default").Create(context.Background(), p, metav1.CreateOptions{}); err != nil {
			o.t.Fatal(err)
		}
	}
}

func (o *owners) noPods() {
	list, _ := o.client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{})
	for _, p := range list.Items {
		if err := o.client.CoreV1().Pods("default").Delete(context.Background(), p.Name, metav1.DeleteOptions{}); err != nil {
			o.t.Fatal(err)
		}
	}
}

// state is how an owner stands: whether it is suspended, and by us.
func (o *owners) state(x *unstructured.Unstructured, field ...string) string {
	r, err := o.resource(x.GroupVersionKind())
	if err != nil {
		o.t.Fatal(err)
	}
	got, err := o.dynamic.Resource(r).Namespace("default").Get(context.Background(), x.GetName(), metav1.GetOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
	on, found, _ := unstructured.NestedBool(got.Object, field...)
	_, mark := got.GetAnnotations()[v1alpha1.SuspendedAnnotation]
	_, label := got.GetLabels()[v1alpha1.SuspendedLabel]
	if mark != label {
		o.t.Errorf("annotation %v, label %v", mark, label)
	}
	switch {
	case on && mark:
		return "suspended by us"
	case on:
		return "suspended"
	case mark:
		return "marked"
	case found:
		return "resumed"
	}
	return "never suspended"
}

// leaving is what asks for the pods a and b to leave.
func leaving(by *unstructured.Unstructured) *suspension {
	x := &suspension{
		id: translate.Group{Namespace: "default", Kind: "job", Name: "train"}, since: startOfTime,
		owners: []metav1.OwnerReference{refTo(by)}, members: map[types.UID]bool{"a": true, "b": true},
	}
	for _, name := range []string{"a", "b"} {
		x.pods = append(x.pods, departure{namespace: "default", name: name, uid: types.UID(name), reason: core.PriorityPreemption.String(), message: "room"})
	}
	return x
}

func TestSuspendAndResume(t *testing.T) {
	ctx := context.Background()
	job := owner("batch/v1", "Job", "train", nil)
	job.SetResourceVersion("7")
	o := newOwners(t, job)
	o.pods("batch.kubernetes.io/job-name", "train", "a", "b")
	o.suspend(ctx, leaving(job))
	if got := o.state(job, "spec", "suspend"); got != "suspended by us" {
		t.Fatalf("the job is %s", got)
	}
	for _, a := range o.dynamic.(*dynamicfake.FakeDynamicClient).Actions() {
		if p, ok := a.(clienttesting.PatchAction); ok && !strings.Contains(string(p.GetPatch()), `"resourceVersion":"7"`) {
			t.Errorf("whatever has changed since it was read, it is suspended: %s", p.GetPatch())
		}
	}
	for _, name := range []string{"a", "b"} {
		p, _ := o.client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if len(p.Status.Conditions) != 1 || p.Status.Conditions[0].Type != v1.DisruptionTarget || p.Status.Conditions[0].Reason != v1alpha1.PreemptionReason {
			t.Errorf("%s: conditions %v", name, p.Status.Conditions)
		}
	}
	o.resumeGone(ctx)
	if got := o.state(job, "spec", "suspend"); got != "suspended by us" {
		t.Fatalf("while its pods are there, the job is %s", got)
	}

	if err := o.findSuspended(ctx); err != nil { // as one that takes another shard does
		t.Fatal(err)
	}
	if n := len(o.suspensions.list); n != 1 {
		t.Errorf("of one owner, %d are to be resumed", n)
	}

	// Another instance finds it, and finishes.
	next := newOwners(t)
	next.Scheduler.client, next.Scheduler.dynamic = o.client, o.dynamic
	if err := next.findSuspended(ctx); err != nil {
		t.Fatal(err)
	}
	m := newToy(t)
	for _, f := range next.box.take(nil) {
		f(m.mirror)
	}
	if g := m.groups[translate.Group{Namespace: "default", Kind: "job", Name: "train"}]; g == nil || !g.created.Equal(startOfTime) {
		t.Errorf("the place of the job is lost")
	}
	next.noPods()
	next.resumeGone(ctx)
	if got := o.state(job, "spec", "suspend"); got != "resumed" || len(next.suspensions.list) != 0 {
		t.Errorf("when its pods are gone, the job is %s", got)
	}
	o.resumeGone(ctx)
	if len(o.suspensions.list) != 0 {
		t.Error("who suspended it goes on looking at it")
	}
}

// The topmost owner is suspended, if all above the pods are of kinds that are
// known, and have no other pods.
func TestWhichOwnerIsSuspended(t *testing.T) {
	ctx := context.Background()
	set := owner("jobset.x-k8s.io/v1alpha2", "JobSet", "train", nil)
	inSet := owner("batch/v1", "Job", "train-w-0", set)
	torch := owner("kubeflow.org/v1", "PyTorchJob", "train", nil)
	workflow := owner("batch/v1", "Job", "step", owner("argoproj.io/v1alpha1", "Workflow", "flow", nil))
	nightly := owner("batch/v1", "Job", "nightly-1", owner("batch/v1", "CronJob", "nightly", nil))
	users := owner("batch/v1", "Job", "users", nil)
	_ = unstructured.SetNestedField(users.Object, true, "spec", "suspend")
	ended := owner("batch/v1", "Job", "ended", nil)
	_ = unstructured.SetNestedSlice(ended.Object, []any{map[string]any{"type": "Complete", "status": "True"}}, "status", "conditions")
	for name, c := range map[string]struct {
		by, stops  *unstructured.Unstructured
		field      []string
		label      [2]string
		more       []string // other pods
		budget     int32    // disruptions allowed, less than 0 for no budget
		want, then string
	}{
		"a job set":           {inSet, set, []string{"spec", "suspend"}, [2]string{"jobset.sigs.k8s.io/jobset-name", "train"}, nil, -1, "suspended by us", "resumed"},
		"PyTorchJob":          {torch, torch, []string{"spec", "runPolicy", "suspend"}, [2]string{"training.kubeflow.org/job-name", "train"}, nil, -1, "suspended by us", "resumed"},
		"an unknown owner":    {workflow, workflow, []string{"spec", "suspend"}, [2]string{"batch.kubernetes.io/job-name", "step"}, nil, -1, "never suspended", "never suspended"},
		"a cron job's":        {nightly, nightly, []string{"spec", "suspend"}, [2]string{"batch.kubernetes.io/job-name", "nightly-1"}, nil, -1, "suspended by us", "resumed"},
		"suspended by others": {users, users, []string{"spec", "suspend"}, [2]string{"batch.kubernetes.io/job-name", "users"}, nil, -1, "suspended", "suspended"},
		"over":                {ended, ended, []string{"spec", "suspend"}, [2]string{"batch.kubernetes.io/job-name", "ended"}, nil, -1, "never suspended", "never suspended"},
		"another pod":         {torch, torch, []string{"spec", "runPolicy", "suspend"}, [2]string{"training.kubeflow.org/job-name", "train"}, []string{"c"}, -1, "never suspended", "never suspended"},
		"a budget":            {torch, torch, []string{"spec", "runPolicy", "suspend"}, [2]string{"training.kubeflow.org/job-name", "train"}, nil, 1, "never suspended", "never suspended"},
		"a larger budget":     {torch, torch, []string{"spec", "runPolicy", "suspend"}, [2]string{"training.kubeflow.org/job-name", "train"}, nil, 2, "suspended by us", "resumed"},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOwners(t, set.DeepCopy(), inSet.DeepCopy(), torch.DeepCopy(), workflow.DeepCopy(), nightly.DeepCopy(), users.DeepCopy(), ended.DeepCopy())
			o.pods(c.label[0], c.label[1], append([]string{"a", "b"}, c.more...)...)
			if c.budget >= 0 {
				b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "default"}}
				b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{c.label[0]: c.label[1]}}
				b.Status.DisruptionsAllowed = c.budget
				if _, err := o.client.PolicyV1().PodDisruptionBudgets("default").Create(ctx, b, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			_, why, err := o.stop(ctx, leaving(c.by))
			if err != nil {
				t.Fatal(err)
			}
			if got := o.state(c.stops, c.field...); got != c.want || (why == "") != (c.want == "suspended by us") {
				t.Errorf("it is %s, want %s; because %q", got, c.want, why)
			}
			o.noPods()
			if err := o.findSuspended(ctx); err != nil {
				t.Fatal(err)
			}
			o.resumeGone(ctx)
			if got := o.state(c.stops, c.field...); got != c.then {
				t.Errorf("then it is %s, want %s", got, c.then)
			}
		})
	}
}

// An owner is resumed when its pods are gone, or as good as gone.
func TestResumedWhenItsPodsAreGone(t *testing.T) {
	ctx := context.Background()
	ending := func(p *v1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(startOfTime)), new(int64(30))
	}
	for name, c := range map[string]struct {
		is    func(*v1.Pod)
		after time.Duration // since it was seen so for the first time
		want  string
	}{
		"one runs":             {func(*v1.Pod) {}, time.Hour, "suspended by us"},
		"one is ending":        {ending, 30*time.Second + overdue - 1, "suspended by us"},
		"one nobody ends":      {ending, 30*time.Second + overdue, "resumed"},
		"one has done its job": {func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }, 0, "resumed"},
		"one was ending long ago by another clock": {func(p *v1.Pod) {
			ending(p)
			p.DeletionTimestamp.Time = startOfTime.Add(-time.Hour)
		}, time.Second, "suspended by us"},
		"one ends in the future by another clock": {func(p *v1.Pod) {
			ending(p)
			p.DeletionTimestamp.Time = startOfTime.Add(time.Hour)
		}, time.Minute, "resumed"},
	} {
		job := owner("batch/v1", "Job", "train", nil)
		o := newOwners(t, job)
		o.pods("batch.kubernetes.io/job-name", "train", "a", "b")
		o.suspend(ctx, leaving(job))
		o.noPods()
		o.pods("batch.kubernetes.io/job-name", "train", "a")
		p, err := o.client.CoreV1().Pods("default").Get(ctx, "a", metav1.GetOptions{})
		if err == nil {
			c.is(p)
			_, err = o.client.CoreV1().Pods("default").Update(ctx, p, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		o.resumeGone(ctx)
		o.now = func() time.Time { return startOfTime.Add(c.after) }
		o.resumeGone(ctx)
		if got := o.state(job, "spec", "suspend"); got != c.want {
			t.Errorf("%s: it is %s, want %s", name, got, c.want)
		}
		m := newToy(t)
		id := translate.Group{Namespace: "default", Kind: "job", Name: "train"}
		m.park(id, startOfTime)
		for _, f := range o.box.take(nil) {
			f(m.mirror)
		}
		if kept := m.groups[id].parked.until == core.Never; kept != (c.want != "resumed") {
			t.Errorf("%s: its place is kept for good: %t", name, kept)
		}
	}
}

// The pods of an owner that cannot be suspended are evicted, and its place is not kept
// for ones that come when it is resumed.
func TestEvictedRatherThanSuspended(t *testing.T) {
	workflow := owner("batch/v1", "Job", "step", owner("argoproj.io/v1alpha1", "Workflow", "flow", nil))
	o := newOwners(t, workflow)
	gone := make(chan string, 2)
	o.client.(*fake.Clientset).PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		gone <- a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).Name
		return true, nil, nil
	})
	o.pods("batch.kubernetes.io/job-name", "step", "a", "b")
	m := newToy(t)
	id := translate.Group{Namespace: "default", Kind: "job", Name: "train"}
	m.park(id, startOfTime)
	o.suspend(context.Background(), leaving(workflow))
	var names []string
	for range 2 {
		select {
		case name := <-gone:
			names = append(names, name)
		case <-time.After(10 * time.Second):
		}
	}
	if slices.Sort(names); !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("%v are evicted", names)
	}
	for _, f := range o.box.take(nil) {
		f(m.mirror)
	}
	if m.groups[id].parked != nil {
		t.Error("its place is kept")
	}
}

// A budget lets pods go all at once that it selects, as it was last counted.
func TestBudgetAllows(t *testing.T) {
	pods := []*v1.Pod{newTestPod("a", 1), newTestPod("b", 1)}
	for _, p := range pods {
		p.Labels["app"] = "db"
	}
	for _, c := range []struct {
		app      string
		allowed  int32
		observed int64
		want     bool
	}{{"db", 2, 3, true}, {"db", 1, 3, false}, {"db", 2, 2, false}, {"web", 0, 2, true}} {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
		b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": c.app}}
		b.Status.DisruptionsAllowed, b.Status.ObservedGeneration = c.allowed, c.observed
		if got := allows(b, pods); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// Who takes our mark off has decided that the owner stays suspended; who takes
// the flag back gets the mark off too.
func TestOthersDecideOtherwise(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct{ patch, want string }{
		{`{"metadata":{"annotations":{"muster.sh/suspended":null},"labels":{"muster.sh/suspended":null}}}`, "suspended"},
		{`{"spec":{"suspend":false}}`, "resumed"},
	} {
		job := owner("batch/v1", "Job", "train", nil)
		o := newOwners(t, job)
		o.pods("batch.kubernetes.io/job-name", "train", "a", "b")
		o.suspend(ctx, leaving(job))
		jobs := o.dynamic.Resource(schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}).Namespace("default")
		if _, err := jobs.Patch(ctx, "train", types.MergePatchType, []byte(c.patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		o.noPods()
		o.resumeGone(ctx)
		if got := o.state(job, "spec", "suspend"); got != c.want || len(o.suspensions.list) != 0 {
			t.Errorf("%s: it is %s, want %s", c.patch, got, c.want)
		}
	}
}

func TestSuspendMark(t *testing.T) {
	k := suspendMark{"job/train", startOfTime, "batch.kubernetes.io/job-name=train"}
	if got, ok := readSuspendMark(k.String()); !ok || got != k {
		t.Errorf("got %v", got)
	}
	for _, s := range []string{"", "job/train", "train 2026-01-02T03:04:05Z a=b", "job/train yesterday a=b", "job/train 2026-01-02T03:04:05Z a=b=c"} {
		if _, ok := readSuspendMark(s); ok {
			t.Errorf("%q is taken", s)
		}
	}
}

// Where users label the Job rather than its pods, the Job is asked; one that is
// gone, or that may not be read, holds nobody up.
func TestJobIsAsked(t *testing.T) {
	ctx := context.Background()
	job := owner("batch/v1", "Job", "train", nil)
	job.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/max-exec-time-seconds": "60"})
	o := newOwners(t, job)
	ref := translate.ObjectRef{GroupVersionKind: job.GroupVersionKind(), Name: "train"}
	says, err := o.gang(ctx, "default", ref)
	if err != nil || says.Attributes.Queue != "q" || says.Attributes.Estimate != 60*core.Second {
		t.Fatalf("it says %+v, %v", says, err)
	}
	ref.Name = "gone"
	if nothing, err := o.gang(ctx, "default", ref); err != nil || nothing.Attributes.Queue != "" {
		t.Errorf("a Job that is gone says %+v, %v", nothing, err)
	}

	w := newWorld(t)
	w.node("n1", "r1")
	made := func(p *v1.Pod) { p.OwnerReferences = []metav1.OwnerReference{refTo(job)} }
	w.pod("a", made)
	w.waits("a", ReasonGangUnknown, "Job train has not been read yet")
	w.m.asked(translate.Group{Namespace: "default", Kind: "job", Name: "train"}, says, nil)
	w.waits("a", ReasonQueueNotFound, "q")
	w.pod("b", made, labelled(v1alpha1.QueueLabel+"="+DefaultQueue)) // its own label counts; it is of the same job
	says.Attributes.Queue = DefaultQueue
	w.m.asked(translate.Group{Namespace: "default", Kind: "job", Name: "train"}, says, nil)
	w.on("a,b>n1,n1")
	if got := [2]string{w.pods["default/a"].Annotations[v1alpha1.QueueLabel], w.pods["default/b"].Annotations[v1alpha1.QueueLabel]}; got != [2]string{DefaultQueue, ""} {
		t.Errorf("the pods are told the queues %v", got)
	}
	// A scheduler that starts anew knows from the pods.
	p := trimPod(w.pods["default/a"])
	if p.membership.Object != nil || p.attributes.Queue != DefaultQueue {
		t.Errorf("of a pod that runs, %v is to be asked; queue %q", p.membership.Object, p.attributes.Queue)
	}
	// One that waits beside it, of which nothing is known, changes nothing.
	w.gone("b")
	w.pods["default/a"].Annotations[v1alpha1.QueueLabel] = "q"
	w.pod("0", made, asking(v1alpha1.GPUResource, "9"))
	w.restart()
	w.m.queueSeen(queueObject("q", "", v1alpha1.Quota{Model: "*", Nominal: gpus(16)}))
	w.settle()
	if got := w.m.jobs["default/job/train"].queue; got != "q" {
		t.Errorf("a job that runs is in queue %q; expected q", got)
	}
}

// A RayJob that was suspended makes another RayCluster, which waits in the place
// of the first: since the RayJob was made.
func TestRayJobKeepsItsPlace(t *testing.T) {
	ctx := context.Background()
	job := owner("ray.io/v1", "RayJob", "train", nil)
	job.SetCreationTimestamp(metav1.NewTime(startOfTime))
	job.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": DefaultQueue})
	second := owner("ray.io/v1", "RayCluster", "train-x2", job)
	second.SetCreationTimestamp(metav1.NewTime(startOfTime.Add(2 * time.Hour)))
	_ = unstructured.SetNestedSlice(second.Object, []any{map[string]any{"groupName": "w", "replicas": int64(1)}}, "spec", "workerGroupSpecs")
	alone := owner("ray.io/v1", "RayCluster", "alone", nil)
	orphan := owner("ray.io/v1", "RayCluster", "orphan", owner("ray.io/v1", "RayJob", "gone", nil))
	o := newOwners(t, job, second, alone, orphan)
	says := func(name string) *translate.Gang {
		g, err := o.gang(ctx, "default", translate.ObjectRef{GroupVersionKind: second.GroupVersionKind(), Name: name})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	for _, name := range []string{"alone", "orphan"} {
		if g := says(name); !g.Since.IsZero() {
			t.Errorf("%s is there since %v", name, g.Since)
		}
	}
	g := says("train-x2")
	if !g.Since.Equal(startOfTime) || g.Min != 2 || g.Roles["w"] != 1 || g.Attributes.Queue != DefaultQueue {
		t.Fatalf("it says %+v", g)
	}

	w := newWorld(t)
	w.now = startOfTime.Add(2 * time.Hour)
	w.node("n1", "r1")
	w.pod("blocker", asking(v1alpha1.GPUResource, "8"))
	w.on("blocker>n1")
	w.pod("second", asking(v1alpha1.GPUResource, "8")) // it came before the pods of the new cluster
	for i, group := range []string{"headgroup", "w"} {
		w.pod(fmt.Sprint("ray-", i), labelled("ray.io/cluster=train-x2", "ray.io/group="+group), asking(v1alpha1.GPUResource, "4"))
	}
	w.settle()
	w.m.asked(translate.Group{Namespace: "default", Kind: "raycluster", Name: "train-x2"}, g, nil)
	w.settle()
	w.gone("blocker")
	w.on("ray-0,ray-1>n1,n1", "second>")
}
