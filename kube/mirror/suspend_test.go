package mirror

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/owners"
	"github.com/muster-sched/muster/kube/queues"
	"github.com/muster-sched/muster/kube/tables"
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
			p.Annotations[v1alpha1.MinMemberAnnotation], p.Labels[v1alpha1.QueueLabel] = "2", queues.Default
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
	if len(a.Evict) != 0 || len(a.Suspend) != 1 {
		t.Fatalf("%d evictions, %d suspensions", len(a.Evict), len(a.Suspend))
	}
	x := a.Suspend[0].Value(tables.Notice{Grace: 600})
	y.acts.Drop()
	if len(x.Owners) != 1 || x.Owners[0].Name != "train" || len(x.Pods) != 2 || len(x.Members) != 2 || !x.Since.Equal(startOfTime) {
		t.Errorf("got %+v", x)
	}
	for _, p := range old {
		y.podGone(p.UID)
	}
	if at := y.run(); at["high"] != "a" {
		t.Fatalf("got %v", at)
	}
	id := translate.Group{Namespace: "default", Kind: "job", Name: "train"}
	if g := y.Groups[id]; g == nil || g.Submitted {
		t.Fatal("the place of the job is lost")
	}
	y.resumed(id)
	y.see(job(1)...)
	y.run()
	if g := y.Groups[id]; !g.Created.Equal(startOfTime) || !g.Submitted || g.Parked != nil {
		t.Errorf("waits since %v, submitted %v", g.Created, g.Submitted)
	}

	// A place that nobody comes for is given up.
	for _, p := range job(1) {
		y.podGone(p.UID)
	}
	y.park(id, startOfTime)
	y.resumed(id)
	y.run()
	a = y.decide(y.now)
	wake := a.Wake
	y.acts.Drop()
	if y.now = wake; y.Groups[id] == nil || wake == core.Never {
		t.Fatal("the place is given up at once")
	}
	if y.run(); y.Groups[id] != nil {
		t.Error("the place is kept for good")
	}

	// Pods that have come before their owner is found suspended wait since it was.
	y.see(job(2)...)
	if y.park(id, startOfTime); !y.Groups[id].Created.Equal(startOfTime) {
		t.Errorf("they wait since %v", y.Groups[id].Created)
	}
}

// A gang whose pods have no owner that can be suspended saves itself together before its pods leave one by one for another job. What that
// costs is what its pods say: it leaves, and not the pod that has run for a shorter time.
func TestGangSavesTogether(t *testing.T) {
	y := newToy(t)
	y.Agents = true
	y.node("a", 8)
	y.node("b", 8)
	y.start()
	var gang []*v1.Pod
	for i := range 2 {
		p := newTestPod(fmt.Sprintf("train-%d", i), 4)
		p.Annotations[v1alpha1.GangLabel], p.Annotations[v1alpha1.MinMemberAnnotation] = "train", "2"
		p.Labels[v1alpha1.GangLabel] = "train"
		p.Annotations[v1alpha1.CheckpointWithinAnnotation] = "30s"
		gang = append(gang, p)
	}
	y.see(gang...)
	y.run()
	y.now += 3600 * core.Second
	y.see(newTestPod("young", 8))
	y.run()
	y.now += 600 * core.Second
	high := newTestPod("high", 8)
	high.Spec.Priority = new(int32(1000))
	y.see(high)
	a := y.decide(y.now).Values(y.Notice())
	y.acts.Drop()
	if len(a.Evict)+len(a.Suspend) != 0 || len(a.Together) != 1 || len(a.Together[0]) != 2 {
		t.Fatalf("%d evictions, %d suspensions, together: %+v", len(a.Evict), len(a.Suspend), a.Together)
	}
	for _, e := range a.Together[0] {
		if e.SaveWithin != 30*time.Second || e.Node != "a" || e.Notice == 0 {
			t.Errorf("got %+v", e)
		}
	}
}

// The place of a group is kept while its owner is suspended, for a while after that, and
// not if the owner was not suspended after all. A mark that names a pod keeps none.
func TestPlaceOfASuspendedGroup(t *testing.T) {
	y := newToy(t)
	job := translate.Group{Namespace: "default", Kind: "job", Name: "train"}
	for _, kind := range []translate.GroupKind{job.Kind, translate.ByItself, tables.Foreign} {
		y.park(translate.Group{Namespace: "default", Kind: kind, Name: "train"}, startOfTime)
	}
	if g := y.Groups[job]; len(y.Groups) != 1 || g == nil || !g.Created.Equal(startOfTime) || g.Parked.Until != core.Never {
		t.Fatalf("places are kept for %v", y.Groups)
	}
	if y.resumed(job); y.Groups[job].Parked.Until != y.Mirror.Now+keepPlace {
		t.Errorf("its place is kept until %v", y.Groups[job].Parked.Until)
	}
	if y.unpark(job); y.Groups[job].Parked != nil {
		t.Error("its place is kept though its pods are evicted")
	}
}

// A move that another instance has to finish may be begun again: the pod may be of a
// shard by now that is held here.
func TestMovedOff(t *testing.T) {
	y := newToy(t)
	p := &tables.Pod{Moves: true}
	y.Pods["old"] = p
	box := NewMailbox()
	Outcomes{box}.MovedOff("old", nil)
	for _, f := range box.Take(nil) {
		f(y.Mirror)
	}
	if p.Moves {
		t.Error("the pod is on its way still")
	}
}

// Where users label the Job rather than its pods, what it says counts.
func TestJobIsAsked(t *testing.T) {
	w := newWorld(t)
	w.tells = true
	w.node("n1", "r1")
	made := ownedBy("batch/v1", "Job", "train")
	says := &owners.Gang{Attributes: translate.Attributes{Queue: "q"}}
	w.pod("a", made)
	w.waits("a", tables.ReasonGangUnknown, "Job train has not been observed yet")
	w.m.asked(translate.Group{Namespace: "default", Kind: "job", Name: "train"}, says, nil)
	w.waits("a", tables.ReasonQueueNotFound, "q")
	w.pod("b", made, labelled(v1alpha1.QueueLabel+"="+queues.Default)) // its own label counts; it is of the same job
	says.Attributes.Queue = queues.Default
	w.m.asked(translate.Group{Namespace: "default", Kind: "job", Name: "train"}, says, nil)
	w.on("a,b>n1,n1")
	if got := [2]string{w.pods["default/a"].Annotations[v1alpha1.QueueLabel], w.pods["default/b"].Annotations[v1alpha1.QueueLabel]}; got != [2]string{queues.Default, ""} {
		t.Errorf("the pods are told the queues %v", got)
	}
	// A scheduler that starts again knows from the pods.
	p := objects.TrimPod(w.pods["default/a"])
	if p.Attributes.Queue != queues.Default {
		t.Errorf("of a pod that runs, the queue is %q", p.Attributes.Queue)
	}
	// One that waits beside it, of which nothing is known, changes nothing.
	w.gone("b")
	w.pods["default/a"].Annotations[v1alpha1.QueueLabel] = "q"
	w.pod("0", made, asking(v1alpha1.GPUResource, "9"))
	w.restart()
	w.m.queueSeen(queueObject("q", "", v1alpha1.Quota{Model: "*", Nominal: GPUs(16)}))
	w.settle()
	if got := w.m.Jobs["default/job/train"].Queue; got != "q" {
		t.Errorf("a job that runs is in queue %q; expected q", got)
	}
}

// A RayJob that was suspended makes another RayCluster, which waits in the place
// of the first: since the RayJob was made.
func TestRayJobKeepsItsPlace(t *testing.T) {
	cluster := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": map[string]any{
		"workerGroupSpecs": []any{map[string]any{"groupName": "w", "replicas": int64(1)}},
	}}}
	says, err := owners.Of(cluster)
	if err != nil {
		t.Fatal(err)
	}
	says.Since, says.Attributes.Queue = startOfTime, queues.Default // as the RayJob above it says

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
	w.m.asked(translate.Group{Namespace: "default", Kind: "raycluster", Name: "train-x2"}, says, nil)
	w.settle()
	w.gone("blocker")
	w.on("ray-0,ray-1>n1,n1", "second>")
}
