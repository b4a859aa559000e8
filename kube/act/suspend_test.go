package act

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/translate"
)

// ownersAPI is an actor with a fake API that has owners of pods.
type ownersAPI struct {
	*Actor
	t   *testing.T
	out *reported
	at  time.Time // the clock
}

var ownerKinds = []*metav1.APIResourceList{
	{GroupVersion: "batch/v1", APIResources: []metav1.APIResource{{Name: "jobs", Kind: "Job", Namespaced: true}}},
	{GroupVersion: "jobset.x-k8s.io/v1alpha2", APIResources: []metav1.APIResource{{Name: "jobsets", Kind: "JobSet", Namespaced: true}}},
	{GroupVersion: "kubeflow.org/v1", APIResources: []metav1.APIResource{{Name: "pytorchjobs", Kind: "PyTorchJob", Namespaced: true}}},
	{GroupVersion: "ray.io/v1", APIResources: []metav1.APIResource{{Name: "rayjobs", Kind: "RayJob", Namespaced: true}, {Name: "rayclusters", Kind: "RayCluster", Namespaced: true}}},
}

func newOwners(t *testing.T, objects ...*unstructured.Unstructured) *ownersAPI {
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
	o := &ownersAPI{t: t, out: &reported{}, at: startOfTime}
	o.Actor = New(Config{Client: client, Dynamic: dyn, Outcomes: o.out, Now: func() time.Time { return o.at }})
	return o
}

// owner is an object that owns pods, or owners.
func owner(apiVersion, kind, name string, by *unstructured.Unstructured) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": map[string]any{}}}
	o.SetName(name)
	o.SetNamespace("default")
	o.SetUID(types.UID(kind + name))
	o.SetLabels(map[string]string{"app": name}) // a Job always has some
	if by != nil {
		o.SetOwnerReferences([]metav1.OwnerReference{refTo(by)})
	}
	return o
}

func refTo(o *unstructured.Unstructured) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID(), Controller: new(true)}
}

// pods adds pods that run, with a label.
func (o *ownersAPI) pods(key, value string, names ...string) {
	for _, name := range names {
		p := newTestPod(name, 1)
		p.Labels[key], p.Spec.NodeName, p.Status.Phase = value, "a", v1.PodRunning
		if _, err := o.client.CoreV1().Pods("default").Create(context.Background(), p, metav1.CreateOptions{}); err != nil {
			o.t.Fatal(err)
		}
	}
}

func (o *ownersAPI) noPods() {
	list, _ := o.client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{})
	for _, p := range list.Items {
		if err := o.client.CoreV1().Pods("default").Delete(context.Background(), p.Name, metav1.DeleteOptions{}); err != nil {
			o.t.Fatal(err)
		}
	}
}

// state is how an owner stands: whether it is suspended, and by us.
func (o *ownersAPI) state(x *unstructured.Unstructured, field ...string) string {
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

// train is the group of the pods that leave.
var train = translate.Group{Namespace: "default", Kind: "job", Name: "train"}

// leaving is what asks for the pods a and b to leave.
func leaving(by *unstructured.Unstructured) *Suspend {
	x := &Suspend{Group: train, Since: startOfTime, Owners: []metav1.OwnerReference{refTo(by)}, Members: map[types.UID]bool{"a": true, "b": true}}
	for _, name := range []string{"a", "b"} {
		x.Pods = append(x.Pods, Evict{Pod: podNamed(name), Reason: "PriorityPreemption", Message: "room"})
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
	next.Actor.client, next.Actor.dynamic = o.client, o.dynamic
	if err := next.findSuspended(ctx); err != nil {
		t.Fatal(err)
	}
	next.out.expect(t, "default/job/train found suspended since 2026-01-02T03:04:05Z")
	next.noPods()
	next.resumeGone(ctx)
	next.out.expect(t, "default/job/train resumed")
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
		o.at = startOfTime.Add(c.after)
		o.resumeGone(ctx)
		if got := o.state(job, "spec", "suspend"); got != c.want {
			t.Errorf("%s: it is %s, want %s", name, got, c.want)
		}
		if c.want == "resumed" {
			o.out.expect(t, "default/job/train resumed")
		} else {
			o.out.expect(t)
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
	o.suspend(context.Background(), leaving(workflow))
	var names []string
	for range 2 {
		select {
		case name := <-gone:
			names = append(names, name)
		case <-time.After(time.Minute):
		}
	}
	if slices.Sort(names); !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("%v are evicted", names)
	}
	o.out.expect(t, "default/job/train not suspended")
}

// An owner that was suspended is resumed even if no answer ever said so, and its pods
// are not evicted one by one if an answer comes to a second attempt.
func TestSuspendedWithoutAnAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		lost int // answers
		want string
	}{
		"one answer is lost":   {1, ""},
		"all answers are lost": {1000, "default/job/train not suspended"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				job := owner("batch/v1", "Job", "train", nil)
				job.SetResourceVersion("7")
				o := newOwners(t, job)
				o.now = time.Now
				o.pods("batch.kubernetes.io/job-name", "train", "a", "b")
				lost, stored := c.lost, o.dynamic.(*dynamicfake.FakeDynamicClient).Tracker()
				jobs := schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
				o.dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("patch", "jobs", func(a clienttesting.Action) (bool, runtime.Object, error) {
					got, err := stored.Get(jobs, "default", "train")
					if err != nil {
						t.Error(err)
					}
					if x := got.(*unstructured.Unstructured); x.GetResourceVersion() == "7" {
						x = x.DeepCopy()
						x.SetResourceVersion("8")
						x.SetLabels(map[string]string{"app": "train", v1alpha1.SuspendedLabel: "true"})
						mark := suspendMark{since: startOfTime, selector: "batch.kubernetes.io/job-name=train"}
						mark.of(train)
						x.SetAnnotations(map[string]string{v1alpha1.SuspendedAnnotation: mark.String()})
						_ = unstructured.SetNestedField(x.Object, true, "spec", "suspend")
						if err := stored.Update(jobs, x, "default"); err != nil {
							t.Error(err)
						}
					} else if strings.Contains(string(a.(clienttesting.PatchAction).GetPatch()), `"resourceVersion":"8"`) {
						return false, nil, nil // it is resumed
					}
					if lost--; lost >= 0 {
						return true, nil, errors.New("connection reset by peer")
					}
					return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "jobs"}, "train", errors.New("it has changed"))
				})
				o.suspend(t.Context(), leaving(job))
				synctest.Wait()
				if c.want == "" {
					o.out.expect(t)
				} else {
					o.out.expect(t, c.want)
				}
				o.noPods()
				o.resumeGone(t.Context())
				o.out.expect(t, "default/job/train resumed")
				if got := o.state(job, "spec", "suspend"); got != "resumed" || len(o.suspensions.list) != 0 {
					t.Errorf("the owner is %s", got)
				}
			})
		})
	}
}

// A write without an answer may take effect a little later: the owner is looked at for as long.
func TestSuspendedLater(t *testing.T) {
	job := owner("batch/v1", "Job", "train", nil)
	o := newOwners(t, job)
	o.pods("batch.kubernetes.io/job-name", "train", "a")
	mark := suspendMark{since: startOfTime, selector: "batch.kubernetes.io/job-name=train"}
	mark.of(train)
	o.suspensions.add(suspended{
		resource: schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}, field: []string{"spec", "suspend"},
		namespace: "default", name: "train", mark: mark, unsure: startOfTime.Add(time.Minute),
	})
	for _, c := range []struct {
		at   time.Duration
		left int
	}{{59 * time.Second, 1}, {time.Minute, 0}} {
		o.at = startOfTime.Add(c.at)
		o.resumeGone(t.Context())
		if n := len(o.suspensions.list); n != c.left {
			t.Errorf("after %v: %d are looked at; expected %d", c.at, n, c.left)
		}
	}
}

// However many marks are forged in a namespace, and however long their pods run, there are few looks at them, and an owner elsewhere is
// resumed soon.
func TestForgedMarks(t *testing.T) {
	const forged, seconds = 300, 60
	mark := suspendMark{since: startOfTime, selector: "batch.kubernetes.io/job-name=runs"}
	mark.of(train)
	var all []*unstructured.Unstructured
	add := func(namespace, name string) suspended {
		job := owner("batch/v1", "Job", name, nil)
		job.SetNamespace(namespace)
		job.SetAnnotations(map[string]string{v1alpha1.SuspendedAnnotation: mark.String()})
		if err := unstructured.SetNestedField(job.Object, true, "spec", "suspend"); err != nil {
			t.Fatal(err)
		}
		all = append(all, job)
		return suspended{
			resource: schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}, field: []string{"spec", "suspend"},
			namespace: namespace, name: name, mark: mark,
		}
	}
	var list []suspended
	for k := range forged {
		list = append(list, add("default", fmt.Sprint("forged-", k)))
	}
	ours := add("ours", "train")
	o := newOwners(t, all...)
	o.pods("batch.kubernetes.io/job-name", "runs", "a") // in default
	o.suspensions.add(list...)
	looks := func() int {
		d := o.dynamic.(*dynamicfake.FakeDynamicClient)
		defer d.ClearActions()
		return len(d.Actions())
	}
	most := 0
	for s := range seconds {
		o.at = startOfTime.Add(time.Duration(s) * time.Second)
		if s == seconds/2 {
			o.suspensions.add(ours)
		}
		o.resumeGone(t.Context())
		n := looks()
		if most = max(most, n); s == seconds/2 {
			if left := slices.ContainsFunc(o.suspensions.list, func(x suspended) bool { return x.namespace == "ours" }); left {
				t.Error("an owner of another namespace waits for those with forged marks")
			}
			most = 0 // it was resumed, which is a write
		}
	}
	if most > maxLooks || len(o.suspensions.list) != forged {
		t.Errorf("there are %d looks a second at %d owners, expected at most %d at %d", most, len(o.suspensions.list), maxLooks, forged)
	}

	// A single one is looked at once a minute in the end.
	o.suspensions.take()
	o.suspensions.add(list[0])
	began := o.at
	looks()
	for s := range 3600 {
		o.at = began.Add(time.Duration(s) * time.Second)
		o.resumeGone(t.Context())
	}
	if n := looks(); n < 60 || n > 100 {
		t.Errorf("an owner whose pods run was looked at %d times in an hour", n)
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

// What Muster writes of a group on its owner can be read, whatever a gang is called.
func TestMarkOfAnyName(t *testing.T) {
	for _, name := range []string{"train", "a b", "a/b", "100%", "ä+ö"} {
		mark := suspendMark{since: startOfTime, selector: "a=b"}
		id := translate.Group{Namespace: "ns", Kind: translate.ByGang, Name: name}
		mark.of(id)
		got, ok := readSuspendMark(mark.String())
		if back := (&suspended{namespace: "ns", mark: got}).group(); !ok || back != id {
			t.Errorf("%q is read as %v, %t", mark, back, ok)
		}
	}
}

// A mark on an owner that says that it waits since long ago has its pods wait no longer
// than the owner is there, and none that names a pod has that pod wait.
func TestForgedSuspension(t *testing.T) {
	ctx := context.Background()
	made := startOfTime.Add(time.Hour)
	job := owner("batch/v1", "Job", "train", nil)
	job.SetCreationTimestamp(metav1.NewTime(made))
	job.SetLabels(map[string]string{v1alpha1.SuspendedLabel: "true"})
	for _, group := range []string{"job/train", "pod/train", "foreign/train"} {
		job.SetAnnotations(map[string]string{v1alpha1.SuspendedAnnotation: group + " 1970-01-01T00:00:00Z batch.kubernetes.io/job-name=train"})
		o := newOwners(t, job)
		if err := o.findSuspended(ctx); err != nil {
			t.Fatal(err)
		}
		if group == "job/train" {
			o.out.expect(t, "default/job/train found suspended since "+made.Format(time.RFC3339))
		} else {
			o.out.expect(t, fmt.Sprintf("default/%s found suspended since %s", group, made.Format(time.RFC3339)))
		}
	}
}

// Why an owner cannot be resumed is said once, not each second.
func TestResumeRefused(t *testing.T) {
	job := owner("batch/v1", "Job", "train", nil)
	job.SetLabels(map[string]string{v1alpha1.SuspendedLabel: "true"})
	job.SetAnnotations(map[string]string{v1alpha1.SuspendedAnnotation: "job/train 2026-01-02T03:04:05Z batch.kubernetes.io/job-name=train"})
	o := newOwners(t, job)
	var log bytes.Buffer
	o.Actor.log = slog.New(slog.NewTextHandler(&log, nil))
	refusal := "first"
	o.dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("patch", "jobs", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if p := string(a.(clienttesting.PatchAction).GetPatch()); !strings.Contains(p, `"labels":{"muster.sh/suspended":"false"}`) {
			t.Errorf("the Job is left without labels: %s", p)
		}
		return true, nil, errors.New(refusal)
	})
	if err := o.findSuspended(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, refusal = range []string{"first", "first", "first", "second", "second"} {
		o.resumeGone(t.Context())
	}
	if got := log.String(); strings.Count(got, "error=first") != 1 || strings.Count(got, "error=second") != 1 {
		t.Errorf("it was said:\n%s", got)
	}
}
