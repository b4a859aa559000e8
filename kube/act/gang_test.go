package act

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-sched/muster/kube/owners"
	"github.com/muster-sched/muster/kube/translate"
)

// Where users label the Job rather than its pods, the Job is read; one that is gone, or
// that may not be read, delays no pod.
func TestJobIsAsked(t *testing.T) {
	ctx := context.Background()
	job := owner("batch/v1", "Job", "train", nil)
	job.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/max-exec-time-seconds": "60"})
	o := newOwners(t, job)
	ref := translate.ObjectRef{GroupVersionKind: job.GroupVersionKind(), Name: "train"}
	says, err := o.gang(ctx, translate.Group{Namespace: "default"}, []translate.ObjectRef{ref})
	if err != nil || says.Attributes.Queue != "q" || says.Attributes.Estimate != 60e9 {
		t.Fatalf("it says %+v, %v", says, err)
	}
	ref.Name = "gone"
	if nothing, err := o.gang(ctx, translate.Group{Namespace: "default"}, []translate.ObjectRef{ref}); err != nil || nothing.Attributes.Queue != "" {
		t.Errorf("a Job that is gone says %+v, %v", nothing, err)
	}
}

// A RayJob that was suspended makes another RayCluster, which waits in the place
// of the first: since the RayJob was made.
func TestRayJobKeepsItsPlace(t *testing.T) {
	ctx := context.Background()
	job := owner("ray.io/v1", "RayJob", "train", nil)
	job.SetCreationTimestamp(metav1.NewTime(startOfTime))
	job.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": "q"})
	second := owner("ray.io/v1", "RayCluster", "train-x2", job)
	second.SetCreationTimestamp(metav1.NewTime(startOfTime.Add(2 * time.Hour)))
	_ = unstructured.SetNestedSlice(second.Object, []any{map[string]any{"groupName": "w", "replicas": int64(1)}}, "spec", "workerGroupSpecs")
	alone := owner("ray.io/v1", "RayCluster", "alone", nil)
	orphan := owner("ray.io/v1", "RayCluster", "orphan", owner("ray.io/v1", "RayJob", "gone", nil))
	o := newOwners(t, job, second, alone, orphan)
	says := func(name string) *owners.Gang {
		g, err := o.gang(ctx, translate.Group{Namespace: "default"}, []translate.ObjectRef{{GroupVersionKind: second.GroupVersionKind(), Name: name}})
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
	if !g.Since.Equal(startOfTime) || g.Min != 2 || g.Roles["w"] != 1 || g.Attributes.Queue != "q" {
		t.Fatalf("it says %+v", g)
	}
}

// A group that is asked for while it is read is read again, by the one that reads it.
func TestAskedWhileRead(t *testing.T) {
	var r reading
	g := translate.Group{Namespace: "default", Kind: translate.ByGang, Name: "g"}
	first, other := []translate.ObjectRef{{Name: "a"}}, []translate.ObjectRef{{Name: "a"}, {Name: "b"}}
	wake := r.begin(ReadGang{g, first})
	if wake == nil || r.begin(ReadGang{g, first}) != nil || r.begin(ReadGang{g, other}) != nil {
		t.Fatal("two read it")
	}
	if got := r.objects(g); len(got) != 2 {
		t.Errorf("it reads %v, and not what was asked for last", got)
	}
	if r.end(g) {
		t.Fatal("it ends, though it was asked for again")
	}
	if r.begin(ReadGang{g, first}) != nil || len(wake) != 1 {
		t.Error("who waits for his turn is not woken")
	}
	<-wake
	if !r.end(g) || r.begin(ReadGang{g, first}) == nil {
		t.Error("nobody reads it any longer")
	}
}
