package act

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/translate"
)

// jobPod is a pod of a Job that runs, as its controller made it.
func jobPod(p *v1.Pod) *v1.Pod {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "owner", Controller: new(true)}}
	p.Finalizers = []string{"example.com/other", batchv1.JobTrackingFinalizer}
	p.Spec.NodeName, p.Status.Phase = "a", v1.PodRunning
	p.ResourceVersion = "7"
	return p
}

// A Job's pod loses the finalizer by which it is counted when it is evicted, and no
// sooner: when the eviction fails after all, the Job counts it again.
func TestEvictUncounted(t *testing.T) {
	conflict := apierrors.NewConflict(v1.Resource("pods"), "p", nil)
	budget := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	for name, c := range map[string]struct {
		dry, real []error // what evictions are answered
		ends      bool    // it succeeds as it is to be evicted
		asked     int     // evictions that were no trial
		counted   bool    // in the end
		fails     func(error) bool
	}{
		"evicted":               {nil, nil, false, 1, false, nil},
		"a budget":              {[]error{budget}, nil, false, 0, true, apierrors.IsTooManyRequests},
		"a budget in between":   {nil, []error{budget}, false, 1, true, apierrors.IsTooManyRequests},
		"it changes":            {nil, []error{conflict}, false, 2, false, nil},
		"it is gone meanwhile":  {nil, []error{apierrors.NewNotFound(v1.Resource("pods"), "p")}, false, 1, false, apierrors.IsNotFound},
		"it succeeds meanwhile": {nil, []error{conflict}, true, 1, true, apierrors.IsNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(jobPod(newTestPod("p", 1)))
			a := New(Config{Client: client})
			get := func() *v1.Pod {
				p, err := client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
			asked, pods := 0, v1.SchemeGroupVersion.WithResource("pods")
			client.PrependReactor("create", "pods", func(req clienttesting.Action) (bool, runtime.Object, error) {
				e := req.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
				answers := &c.real
				if len(e.DeleteOptions.DryRun) > 0 {
					answers = &c.dry
				} else {
					asked++
					o, err := client.Tracker().Get(pods, "default", "p")
					if err != nil {
						t.Fatal(err)
					}
					p := o.(*v1.Pod).DeepCopy()
					if translate.Counted(&p.ObjectMeta) || e.DeleteOptions.Preconditions.ResourceVersion == nil {
						t.Errorf("an eviction is asked for of %+v, if it is %+v", p.ObjectMeta, e.DeleteOptions.Preconditions)
					}
					if p.Status.Phase = v1.PodSucceeded; c.ends {
						if err := client.Tracker().Update(pods, p, "default"); err != nil {
							t.Error(err)
						}
					}
				}
				if len(*answers) == 0 {
					return true, nil, nil
				}
				err := (*answers)[0]
				*answers = (*answers)[1:]
				return true, nil, err
			})
			client.PrependReactor("patch", "pods", func(req clienttesting.Action) (bool, runtime.Object, error) {
				if patch := string(req.(clienttesting.PatchAction).GetPatch()); !strings.Contains(patch, `"uid":"p"`) || !strings.Contains(patch, `"resourceVersion":"7"`) {
					t.Errorf("whatever pod it is, and however it changed, it becomes %s", patch)
				}
				return false, nil, nil
			})
			_, err := a.askToLeave(t.Context(), podNamed("p"), true, nil, nil)
			if c.fails == nil && err != nil || c.fails != nil && !c.fails(err) {
				t.Errorf("got %v", err)
			}
			p := get()
			if asked != c.asked || translate.Counted(&p.ObjectMeta) != c.counted || translate.Uncounted(&p.ObjectMeta) == c.counted {
				t.Errorf("asked %d times; in the end it is %+v", asked, p.ObjectMeta)
			}
			if !slices.Contains(p.Finalizers, "example.com/other") {
				t.Error("it lost another's finalizer")
			}
		})
	}
}

// Only a pod that the Job controller is to count, and that is evicted now, loses the
// finalizer; only one that lost it so gets it back.
func TestEvictUncountedLooksAtThePod(t *testing.T) {
	lost := func(p *v1.Pod) { p.Finalizers, p.Annotations[v1alpha1.EvictingAnnotation] = nil, "true" }
	for name, c := range map[string]struct {
		is      func(*v1.Pod)
		asked   int  // evictions, trials included
		gone    bool // the answer is that it is not found
		counted bool // in the end
	}{
		"another of its name":         {func(p *v1.Pod) { p.UID = "other" }, 0, true, true},
		"another of its name, marked": {func(p *v1.Pod) { p.UID = "other"; lost(p) }, 0, true, false},
		"it has succeeded, marked":    {func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded; lost(p) }, 0, true, true},
		"it has failed":               {func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }, 0, true, true},
		"it is being deleted":         {func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: startOfTime} }, 1, false, true},
		"it was counted before":       {func(p *v1.Pod) { p.Finalizers = nil }, 1, false, false},
		"it is marked already":        {lost, 1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := jobPod(newTestPod("p", 1))
			c.is(p)
			client := fake.NewClientset(p)
			asked := 0
			client.PrependReactor("create", "pods", func(req clienttesting.Action) (bool, runtime.Object, error) {
				asked++
				if u := req.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).DeleteOptions.Preconditions.UID; u == nil || *u != "p" {
					t.Errorf("an eviction is asked for, whatever pod it is: %v", u)
				}
				return true, nil, nil
			})
			a := New(Config{Client: client})
			_, err := a.evictUncounted(t.Context(), podNamed("p"), nil, nil)
			if asked != c.asked || apierrors.IsNotFound(err) != c.gone || !c.gone && err != nil {
				t.Errorf("asked %d times, want %d; %v", asked, c.asked, err)
			}
			got, err := client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
			if err != nil || translate.Counted(&got.ObjectMeta) != c.counted {
				t.Errorf("in the end it is %+v, %v", got.ObjectMeta, err)
			}
		})
	}
}

// A pod is counted again if it is the very one, and was taken from what is counted; as
// often as it takes.
func TestCountAgain(t *testing.T) {
	for name, c := range map[string]struct {
		is      func(*v1.Pod)
		fails   int // writes that meet a change
		counted bool
	}{
		"as it was left":      {func(*v1.Pod) {}, 0, true},
		"it changes":          {func(*v1.Pod) {}, 2, true},
		"another":             {func(p *v1.Pod) { p.UID = "other" }, 0, false},
		"not marked":          {func(p *v1.Pod) { delete(p.Annotations, v1alpha1.EvictingAnnotation) }, 0, false},
		"it is being deleted": {func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: startOfTime} }, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := jobPod(newTestPod("p", 1))
				p.Finalizers, p.Annotations[v1alpha1.EvictingAnnotation] = []string{"example.com/other"}, "true"
				c.is(p)
				client := fake.NewClientset(p)
				client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					c.fails--
					return c.fails >= 0, nil, apierrors.NewConflict(v1.Resource("pods"), "p", nil)
				})
				a := New(Config{Client: client})
				a.countAgain(t.Context(), podNamed("p"))
				got, err := client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
				if err != nil || translate.Counted(&got.ObjectMeta) != c.counted {
					t.Errorf("it is %+v, %v", got.ObjectMeta, err)
				}
			})
		})
	}
}

// A pod that the Job controller counts still was not taken from what it counts, whatever
// its annotation says.
func TestUncounted(t *testing.T) {
	p := jobPod(newTestPod("p", 1))
	p.Annotations[v1alpha1.EvictingAnnotation] = "true"
	if translate.Uncounted(&p.ObjectMeta) {
		t.Error("it has the finalizer")
	}
}
