package kube

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// running is a gang of 2 pods of 4 GPUs that runs on one node, and the annotation
// that says what becomes of it.
func running(t *testing.T, onFailure string) (*toy, []*v1.Pod) {
	y := newToy(t)
	y.node("a", 8)
	y.start()
	gang := newTestGang("g", 2, 4)
	for _, p := range gang {
		if onFailure != "" {
			p.Annotations[v1alpha1.OnFailureAnnotation] = onFailure
		}
	}
	y.see(gang...)
	if at := y.run(); len(at) != 2 {
		t.Fatalf("got %v", at)
	}
	return y, gang
}

// ends has a pod end on its node.
func (y *toy) ends(p *v1.Pod, phase v1.PodPhase) {
	o := *trimPod(p)
	o.node, o.phase = y.pods[p.UID].target, phase
	y.podSeen(&o)
}

// another is a pod in the place of an old one of a gang.
func another(old *v1.Pod, name string) *v1.Pod {
	p := newTestPod(name, 4)
	p.Labels, p.Annotations, p.OwnerReferences = old.Labels, old.Annotations, old.OwnerReferences
	return p
}

func evicted(list []evictAct) []string {
	var names []string
	for _, e := range list {
		names = append(names, e.pod.object.Name)
	}
	slices.Sort(names)
	return names
}

func TestFailedMember(t *testing.T) {
	for onFailure, stopped := range map[string]bool{"": false, "replace": false, "requeue": true} {
		y, gang := running(t, onFailure)
		y.ends(gang[0], v1.PodFailed)
		y.see(another(gang[0], "g-0-again"))
		bind, evict := y.pass()
		if !stopped {
			if len(evict) > 0 || len(bind) != 1 || bind[0].pod.object.Name != "g-0-again" {
				t.Errorf("%q: %v leave, %d start; want a replacement", onFailure, evicted(evict), len(bind))
			}
			continue
		}
		if len(bind) > 0 || !slices.Equal(evicted(evict), []string{"g-1"}) || evict[0].reason != core.MemberLost.String() {
			t.Fatalf("%q: %v leave, %d start", onFailure, evicted(evict), len(bind))
		}
		// When all are gone, and have come again, the gang waits for a while, then
		// starts whole.
		y.see(another(gang[1], "g-1-again"))
		if at := y.run(); len(at) > 0 {
			t.Fatalf("starts while the last is leaving: %v", at)
		}
		y.podGone(gang[1].UID)
		a := y.decide(y.now)
		wake := a.wake
		y.done()
		if len(a.bind) > 0 || wake == core.Never || y.pods["g-0-again"].group.waiting.reason != core.BackOff.String() {
			t.Fatalf("starts at once, or never: %s", y.pods["g-0-again"].group.waiting.reason)
		}
		y.now = wake
		if at := y.run(); len(at) != 2 {
			t.Errorf("got %v", at)
		}
	}
}

// A pod that waits to join a gang does not start in the place of one that was lost,
// beside those that leave for it: it starts with the gang anew.
func TestPodThatWaitsWhileItsGangLeaves(t *testing.T) {
	y, gang := running(t, "requeue")
	y.see(another(gang[0], "g-2"))
	if at := y.run(); len(at) > 0 || y.pods["g-2"].slot < 0 {
		t.Fatalf("got %v; expected that it waits, and the engine knows it", at)
	}
	y.ends(gang[0], v1.PodFailed)
	bind, evict := y.pass()
	if len(bind) > 0 || !slices.Equal(evicted(evict), []string{"g-1"}) {
		t.Fatalf("%d start, %v leave", len(bind), evicted(evict))
	}
	y.podGone(gang[1].UID)
	y.see(another(gang[1], "g-3"))
	y.run()
	y.now += 3600 * core.Second
	if at := y.run(); len(at) != 2 {
		t.Errorf("got %v; expected the gang", at)
	}
}

// A gang waits twice as long after each failed start, as far as the policy lets it; one
// that had to make room waits for no longer than that takes.
func TestPauseAfterFailedStarts(t *testing.T) {
	y, gang := running(t, "")
	y.policy.Requeue.Backoff, y.policy.Requeue.MaxBackoff = 10*core.Second, 35*core.Second
	for i, want := range []core.Time{10, 20, 35, 35} {
		if got := y.pause(i + 1); got != want*core.Second {
			t.Errorf("after %d failed starts it waits %v s; want %d", i+1, got.Seconds(), want)
		}
	}
	g := y.pods["g-0"].group
	g.failures = 3
	high := newTestPod("high", 8)
	high.Spec.Priority = new(int32(1000))
	y.see(high)
	y.now += 3600 * core.Second
	if _, evict := y.pass(); len(evict) != 2 {
		t.Fatalf("%v leave", evicted(evict))
	}
	y.see(another(gang[0], "g-2"), another(gang[1], "g-3"))
	for _, p := range gang {
		y.podGone(p.UID)
	}
	y.node("b", 8)
	if at := y.run(); g.failures != 0 || at["g-2"] == "" || at["g-3"] == "" {
		t.Errorf("%d failed starts; got %v", g.failures, at)
	}
}

// A pod that is to leave while it is being bound is told so when it is.
func TestEvictedWhileItIsBeingBound(t *testing.T) {
	y := newToy(t)
	y.node("a", 8)
	y.start()
	y.see(newTestPod("p", 8))
	if bind, _ := y.pass(); len(bind) != 1 {
		t.Fatalf("%d are bound", len(bind))
	}
	high := newTestPod("high", 8)
	high.Spec.Priority = new(int32(1000))
	y.see(high)
	y.now += 3600 * core.Second
	if _, evict := y.pass(); len(evict) > 0 || y.pods["p"].state != podLeaving {
		t.Fatalf("%v leave; it is in state %d", evicted(evict), y.pods["p"].state)
	}
	y.bound("p", true, false)
	if _, evict := y.pass(); !slices.Equal(evicted(evict), []string{"p"}) {
		t.Errorf("%v leave", evicted(evict))
	}
}

// A gang waits since its first pod was made, in whatever order they are seen.
func TestGangWaitsSinceItsFirstPod(t *testing.T) {
	y := newToy(t)
	y.start()
	gang := newTestGang("g", 2, 4)
	gang[1].CreationTimestamp.Time = startOfTime.Add(-time.Minute)
	y.see(gang...)
	if g := y.pods["g-0"].group; !g.created.Equal(startOfTime.Add(-time.Minute)) {
		t.Errorf("it waits since %v", g.created)
	}
}

// A PodGroup that is disrupted whole is stopped whole, unless an annotation says
// otherwise; pods that did their work do not come again, so the rest goes on.
func TestDisruptionMode(t *testing.T) {
	y := newToy(t)
	y.node("a", 8)
	y.start()
	gang := newTestGang("g", 3, 2)
	for _, p := range gang {
		p.Annotations[v1alpha1.OnFailureAnnotation] = "requeue"
	}
	y.see(gang...)
	y.run()
	y.ends(gang[0], v1.PodSucceeded)
	y.run()
	y.ends(gang[1], v1.PodFailed)
	if _, evict := y.pass(); len(evict) > 0 || !y.pods["g-2"].runs() {
		t.Errorf("%v leave", evicted(evict))
	}

	for _, annotated := range []string{"", "replace"} {
		y := newToy(t)
		y.node("a", 8)
		y.podGroupSeen(&podGroupObject{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pg", UID: "pg"}, min: 2, whole: true})
		y.start()
		var pods []*v1.Pod
		for _, name := range []string{"x", "y"} {
			p := newTestPod(name, 4)
			p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("pg")}
			if annotated != "" {
				p.Annotations[v1alpha1.OnFailureAnnotation] = annotated
			}
			pods = append(pods, p)
		}
		y.see(pods...)
		y.run()
		y.podGone("x") // somebody deleted it
		_, evict := y.pass()
		if want := annotated == ""; (len(evict) == 1) != want {
			t.Errorf("%q: %v leave", annotated, evicted(evict))
		}
	}
}

// A node that is not ready for long loses its pods: they are evicted, and those
// that are being deleted are as good as gone, for nobody is there to end them.
func TestLostNode(t *testing.T) {
	y, gang := running(t, "")
	y.lostAfter = 300 * core.Second
	solo := newTestPod("solo", 0)
	y.see(solo)
	y.run()
	n := y.node("a", 8)
	n.Status.Conditions[0].Status = v1.ConditionUnknown
	n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Unix(0, int64(y.now)))
	since := y.now
	y.nodeSeen(trimNode(n))
	y.node("b", 8)
	y.now += core.Second
	a := y.decide(y.now)
	if len(a.evict) > 0 || a.wake != since+y.lostAfter {
		t.Fatalf("%v leave, wakes after %v", evicted(a.evict), (a.wake - since).Seconds())
	}
	y.done()

	gang[0].DeletionTimestamp = new(metav1.NewTime(startOfTime)) // somebody else was faster
	gang[0].Spec.NodeName = "a"
	y.see(gang[0])
	y.now = since + y.lostAfter
	_, evict := y.pass()
	if got := evicted(evict); !slices.Equal(got, []string{"g-1", "solo"}) {
		t.Fatalf("%v leave", got)
	}
	if y.pods[gang[0].UID] != nil {
		t.Error("a pod that nobody ends holds its place")
	}
	for _, p := range []*v1.Pod{gang[1], solo} {
		p.Spec.NodeName, p.DeletionTimestamp = "a", new(metav1.NewTime(startOfTime))
		y.see(p)
	}
	y.see(another(gang[0], "g-0-again"), another(gang[1], "g-1-again"))
	if at := y.run(); at["g-0-again"] != "b" || at["g-1-again"] != "b" {
		t.Errorf("got %v", at)
	}

	// The node comes back with what still runs there, until it ends.
	n.Status.Conditions[0].Status = v1.ConditionTrue
	y.nodeSeen(trimNode(n))
	y.see(gang[1])
	if p := y.pods[gang[1].UID]; p == nil || p.target != "a" {
		t.Error("a pod that runs again is not seen")
	}
	y.run()
}
