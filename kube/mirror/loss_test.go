package mirror

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/lost"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/tables"
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
	o := *objects.TrimPod(p)
	o.Node, o.Phase = y.Pods[p.UID].Target, phase
	y.podSeen(&o)
}

// another is a pod in the place of an old one of a gang.
func another(old *v1.Pod, name string) *v1.Pod {
	p := newTestPod(name, 4)
	p.Labels, p.Annotations, p.OwnerReferences = old.Labels, old.Annotations, old.OwnerReferences
	return p
}

func evicted(list []tables.Eviction) []string {
	var names []string
	for _, e := range list {
		names = append(names, e.Of.Object.Name)
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
			if len(evict) > 0 || len(bind) != 1 || bind[0].Of.Object.Name != "g-0-again" {
				t.Errorf("%q: %v leave, %d start; want a replacement", onFailure, evicted(evict), len(bind))
			}
			continue
		}
		if len(bind) > 0 || !slices.Equal(evicted(evict), []string{"g-1"}) || evict[0].Reason != core.MemberLost.String() {
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
		wake := a.Wake
		y.acts.Drop()
		if len(a.Bind) > 0 || wake == core.Never || y.Pods["g-0-again"].Group.Waiting.Reason != core.BackOff.String() {
			t.Fatalf("starts at once, or never: %s", y.Pods["g-0-again"].Group.Waiting.Reason)
		}
		y.now = wake
		if at := y.run(); len(at) != 2 {
			t.Errorf("got %v", at)
		}
	}
}

// A gang of which a pod is deleted, and not replaced in time, is evicted whole, with a reason of its own; one with
// a replacement goes on.
func TestStaleGang(t *testing.T) {
	for name, x := range map[string]struct {
		grace string // of the job
		again bool   // there is another pod
		leave bool
	}{
		"the policy's": {leave: true}, "replaced": {again: true}, "its own": {grace: "30s", leave: true}, "longer": {grace: "2h"}, "never": {grace: "never"},
	} {
		y, gang := newToy(t), newTestGang("g", 2, 4)
		p := *y.Policies.Policy()
		p.Requeue.StaleGrace = 60 * core.Second
		y.Mirror = New(Config{Policy: p, Log: y.log, Builtins: builtins})
		y.node("a", 8)
		y.start()
		for _, p := range gang {
			if x.grace != "" {
				p.Annotations[v1alpha1.StaleGraceAnnotation] = x.grace
			}
		}
		y.see(gang...)
		if at := y.run(); len(at) != 2 {
			t.Fatalf("got %v", at)
		}
		y.podGone(gang[0].UID)
		if x.again {
			y.see(another(gang[0], "g-0-again"))
		}
		a := y.decide(y.now)
		wake := a.Wake
		y.acts.Drop()
		for uid, p := range y.Pods {
			if p.InFlight {
				y.bound(uid, true, false)
			}
		}
		if at := y.now + 60*core.Second; x.grace == "" && !x.again && wake != at {
			t.Errorf("%s: the next pass is at %d, expected %d", name, wake, at)
		}
		y.now += 61 * core.Second
		_, evict := y.pass()
		switch {
		case x.leave != (len(evict) == 1):
			t.Errorf("%s: %v leave", name, evicted(evict))
		case x.leave && (evict[0].Reason != "StaleGang" || !strings.HasSuffix(evict[0].Message, ": 1 of 2") || !evict[0].Of.Group.Draining):
			t.Errorf("%s: %s: %s", name, evict[0].Reason, evict[0].Message)
		}
	}
}

// A pod that succeeded is no loss, and whoever builds the engine again does not stop the rest for it.
func TestSucceededPodDoesNotMakeAGangStale(t *testing.T) {
	y, gang := running(t, "")
	y.Policies.Policy().Requeue.StaleGrace = 60 * core.Second
	y.start()
	y.ends(gang[0], v1.PodSucceeded)
	for range 2 {
		y.now += 100 * core.Second
		if _, evict := y.pass(); len(evict) > 0 {
			t.Fatalf("%v leave", evicted(evict))
		}
		y.start() // as after a restart
	}
}

// When some pods of a gang have succeeded, nobody makes others for them: one that is made for a pod that was lost
// does not wait for as many as the gang had, also if the scheduler has seen nothing of that.
func TestLostAfterOthersSucceeded(t *testing.T) {
	for _, x := range []struct {
		name         string
		restart      bool
		lacks, wiped bool // a third pod is not made; the one that succeeded is deleted
		starts       bool
	}{
		{name: "seen", starts: true},
		{name: "after a restart", restart: true, starts: true},
		{name: "another is still to come", lacks: true},
		{name: "the one that succeeded is gone", wiped: true},
	} {
		y := newToy(t)
		y.node("a", 8)
		y.start()
		size := 2
		if x.lacks {
			size = 3
		}
		gang := newTestGang("g", size, 1)
		y.see(gang...)
		if at := y.run(); len(at) != size {
			t.Fatalf("%s: got %v", x.name, at)
		}
		y.ends(gang[0], v1.PodSucceeded)
		if x.restart {
			gang[0].Status.Phase = v1.PodSucceeded
			y = newToy(t)
			y.node("a", 8)
			y.podsListed([]*objects.Pod{objects.TrimPod(gang[0])})
			y.start()
		} else {
			for _, p := range gang[1:] {
				y.podGone(p.UID)
			}
			y.run()
		}
		if x.wiped {
			y.podGone(gang[0].UID)
		}
		y.see(another(gang[1], "g-again"))
		if at := y.run(); len(at) > 0 {
			t.Fatalf("%s: %v start at once; others may come", x.name, at)
		}
		y.now += 6 * core.Second
		if at := y.run(); (at["g-again"] != "") != x.starts {
			t.Errorf("%s: got %v", x.name, at)
		}
	}
}

// A pod that waits to join a gang does not start in the place of one that was lost,
// beside those that leave for it: it starts with the gang again.
func TestPodThatWaitsWhileItsGangLeaves(t *testing.T) {
	y, gang := running(t, "requeue")
	y.see(another(gang[0], "g-2"))
	if at := y.run(); len(at) > 0 || y.Pods["g-2"].Slot < 0 {
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
	y.Policies.Policy().Requeue.Backoff, y.Policies.Policy().Requeue.MaxBackoff = 10*core.Second, 35*core.Second
	for i, want := range []core.Time{10, 20, 35, 35} {
		if got := y.Pause(i + 1); got != want*core.Second {
			t.Errorf("after %d failed starts it waits %v s; want %d", i+1, got.Seconds(), want)
		}
	}
	// The engine and the tables go by one rule, but for the second that a gang waits at least.
	for _, r := range []core.RequeuePolicy{{}, {Backoff: 10 * core.Second}, {Backoff: core.Second / 2, MaxBackoff: 3 * core.Second}} {
		y.Policies.Policy().Requeue = r
		for n := 1; n < 5; n++ {
			if got := y.Pause(n); got < core.Second || r.Backoff >= core.Second && got != r.Pause(n) {
				t.Errorf("%+v: after %d failed starts a gang waits %v s, jobs of the engine %v", r, n, got.Seconds(), r.Pause(n).Seconds())
			}
		}
	}
	y.Policies.Policy().Requeue.Backoff, y.Policies.Policy().Requeue.MaxBackoff = 10*core.Second, 35*core.Second
	g := y.Pods["g-0"].Group
	g.Failures = 3
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
	if at := y.run(); g.Failures != 0 || at["g-2"] == "" || at["g-3"] == "" {
		t.Errorf("%d failed starts; got %v", g.Failures, at)
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
	if _, evict := y.pass(); len(evict) > 0 || y.Pods["p"].State != tables.PodLeaving {
		t.Fatalf("%v leave; it is in state %d", evicted(evict), y.Pods["p"].State)
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
	if g := y.Pods["g-0"].Group; !g.Created.Equal(startOfTime.Add(-time.Minute)) {
		t.Errorf("it waits since %v", g.Created)
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
	if _, evict := y.pass(); len(evict) > 0 || !y.Pods["g-2"].Runs() {
		t.Errorf("%v leave", evicted(evict))
	}

	for _, annotated := range []string{"", "replace"} {
		y := newToy(t)
		y.node("a", 8)
		y.podGroupSeen(&objects.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pg", UID: "pg"}, Min: 2, Whole: true})
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
		y.podGone("x") // a user deleted it
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
	y.Lost.Config = lost.Default()
	solo := newTestPod("solo", 0)
	y.see(solo)
	y.run()
	n := y.node("a", 8)
	n.Status.Conditions[0].Status = v1.ConditionUnknown
	n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Unix(0, int64(y.now)))
	since := y.now
	y.nodeSeen(objects.TrimNode(n))
	y.node("b", 8)
	y.now += core.Second
	a := y.decide(y.now)
	if len(a.Evict) > 0 || a.Wake != since+core.Time(y.Lost.Config.After) {
		t.Fatalf("%v leave, wakes after %v", evicted(a.Evict), (a.Wake - since).Seconds())
	}
	y.acts.Drop()

	gang[0].DeletionTimestamp = new(metav1.NewTime(startOfTime)) // another client was faster
	gang[0].Spec.NodeName = "a"
	y.see(gang[0])
	y.now = since + core.Time(y.Lost.Config.After)
	_, evict := y.pass()
	if got := evicted(evict); !slices.Equal(got, []string{"g-1", "solo"}) {
		t.Fatalf("%v leave", got)
	}
	if y.Pods[gang[0].UID].Group.Gang() {
		t.Error("a pod that nobody ends holds its place in the gang")
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
	y.nodeSeen(objects.TrimNode(n))
	y.see(gang[1])
	if p := y.Pods[gang[1].UID]; p == nil || p.Target != "a" {
		t.Error("a pod that runs again is not seen")
	}
	y.run()
}

// down makes a node not ready, since some time by the clock that the API has.
func (y *toy) down(n *v1.Node, since core.Time) {
	n.Status.Conditions[0].Status = v1.ConditionUnknown
	n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Unix(0, int64(since)))
	y.nodeSeen(objects.TrimNode(n))
}

func (y *toy) up(n *v1.Node) {
	n.Status.Conditions[0].Status = v1.ConditionTrue
	y.nodeSeen(objects.TrimNode(n))
}

// leaves fails the test unless these pods are told to leave now.
func (y *toy) leaves(what string, want ...string) {
	y.t.Helper()
	if _, evict := y.pass(); !slices.Equal(evicted(evict), want) {
		y.t.Errorf("%s: %v leave; want %v", what, evicted(evict), want)
	}
}

// occupied has nodes of 8 GPUs, in turn in one of the zones if there are any, each with a
// pod of its name that has them all.
func (y *toy) occupied(n int, zones ...string) []*v1.Node {
	var nodes []*v1.Node
	for i := range n {
		var labels []string
		if len(zones) > 0 {
			labels = []string{v1.LabelTopologyZone, zones[i%len(zones)]}
		}
		nodes = append(nodes, y.node(fmt.Sprintf("n%02d", i), 8, labels...))
	}
	y.start()
	for _, n := range nodes {
		p := newTestPod(n.Name, 8)
		p.Spec.NodeSelector = map[string]string{v1.LabelHostname: n.Name}
		n.Labels[v1.LabelHostname] = n.Name
		y.nodeSeen(objects.TrimNode(n))
		y.see(p)
	}
	if at := y.run(); len(at) != n {
		y.t.Fatalf("%d pods run", len(at))
	}
	return nodes
}

// While no node is ready nothing is evicted: it is the way to the nodes that is lost.
// When one is ready again, the others have time to come back.
func TestNoNodeIsReady(t *testing.T) {
	y := newToy(t)
	y.Lost.Config = lost.Default()
	nodes := y.occupied(4)
	for _, n := range nodes {
		y.down(n, y.now)
	}
	for range 3 {
		y.now += 3600 * core.Second
		y.leaves("no node is ready")
	}

	// An instance that starts meanwhile finds them so, since long ago.
	z := newToy(t)
	z.Lost.Config, z.now = lost.Default(), y.now
	for _, n := range nodes {
		z.down(n, core.Time(startOfTime.UnixNano()))
		p := newTestPod(n.Name, 8)
		p.Spec.NodeName, p.Status.Phase = n.Name, v1.PodRunning
		z.see(p)
	}
	z.start()
	for _, y := range []*toy{y, z} {
		y.leaves("no node is ready")
		for _, n := range nodes[:3] {
			y.up(n)
		}
		y.leaves("the first nodes are back")
		y.now += 299 * core.Second
		y.leaves("the last node has time to come back")
		y.now += core.Second
		y.leaves("the last node has not come back", "n03")
		y.down(nodes[0], 0) // for the next instance
	}
}

// Nodes that are lost one by one are emptied at the rate of their zone.
func TestRateOfLostNodes(t *testing.T) {
	for _, c := range []struct {
		what       string
		zones      []string
		nodes      int
		lost       []int
		after, all core.Time // until the first has left, and the last; Never for not at all
	}{
		{"some nodes of many", nil, 20, []int{0, 1, 2, 3}, 0, 30 * core.Second},
		{"most nodes of few", nil, 20, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, core.Never, core.Never},
		{"most nodes of many", nil, 52, seq(0, 30, 1), 0, 29 * 100 * core.Second},
		{"two nodes of three", nil, 3, []int{0, 1}, 0, 10 * core.Second},
		{"all nodes of a zone", []string{"a", "b"}, 12, []int{0, 2, 4, 6, 8, 10}, 0, 50 * core.Second},
		{"some nodes of each zone", []string{"a", "b"}, 12, []int{0, 1, 2, 3}, 0, 10 * core.Second},
	} {
		y := newToy(t)
		y.Lost.Config = lost.Default()
		nodes := y.occupied(c.nodes, c.zones...)
		for _, i := range c.lost {
			y.down(nodes[i], y.now)
		}
		y.now += 300 * core.Second
		began, first, last, n := y.now, core.Never, core.Never, 0
		for n < len(c.lost) {
			a := y.decide(y.now)
			if n += len(a.Evict); len(a.Evict) > 0 {
				first, last = min(first, y.now-began), y.now-began
			}
			wake := a.Wake
			y.acts.Drop()
			if wake == core.Never || wake-began > 24*3600*core.Second {
				break
			}
			y.now = wake
		}
		if n < len(c.lost) {
			last = core.Never
		}
		if first != c.after || last != c.all {
			t.Errorf("%s: %d of %d pods left, after %v to %v s; want %v to %v s", c.what, n, len(c.lost), first.Seconds(), last.Seconds(), c.after.Seconds(), c.all.Seconds())
		}
	}
}

func seq(from, to, step int) (out []int) {
	for i := from; i < to; i += step {
		out = append(out, i)
	}
	return out
}

// For how long a node was not ready is what this instance has seen, whatever the clock
// says by which the API tells it.
func TestLostNodeByAnotherClock(t *testing.T) {
	for _, jump := range []core.Time{-3600 * core.Second, 3600 * core.Second} {
		y := newToy(t)
		y.Lost.Config = lost.Default()
		nodes := y.occupied(3)
		y.down(nodes[0], y.now+jump)
		y.leaves("it has just failed")
		y.now += 299 * core.Second
		y.leaves("it may come back")
		y.now += core.Second
		y.leaves("it is lost", "n00")
	}
}

// Locked pods are not moved off a node that is lost, and neither are those that say they
// bear it. What merely must not make room for others is evicted.
func TestWhoStaysOnALostNode(t *testing.T) {
	y := newToy(t)
	y.Lost.Config = lost.Default()
	n := y.node("a", 8)
	y.node("b", 8)
	y.node("c", 8)
	y.start()
	at := func(name string, with func(*v1.Pod)) {
		p := newTestPod(name, 1)
		p.Spec.NodeName, p.Status.Phase = "a", v1.PodRunning
		with(p)
		y.see(p)
	}
	for300 := func(key string) v1.Toleration {
		return v1.Toleration{Key: key, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))}
	}
	at("bears-all", func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}} })
	at("bears-it", func(p *v1.Pod) {
		p.Spec.Tolerations = []v1.Toleration{for300(v1.TaintNodeNotReady), {Key: v1.TaintNodeUnreachable, Operator: v1.TolerationOpExists}}
	})
	at("bears-another", func(p *v1.Pod) {
		p.Spec.Tolerations = []v1.Toleration{for300(v1.TaintNodeUnreachable), {Key: v1.TaintNodeNotReady, Operator: v1.TolerationOpExists}}
	})
	at("default", func(p *v1.Pod) {
		p.Spec.Tolerations = []v1.Toleration{for300(v1.TaintNodeNotReady), for300(v1.TaintNodeUnreachable)}
	})
	at("locked", func(p *v1.Pod) { p.Annotations[v1alpha1.LockedAnnotation] = "true" })
	at("unpreemptible", func(p *v1.Pod) { p.Annotations[v1alpha1.PreemptibleAnnotation] = "false" })
	y.down(n, y.now)
	y.pass()
	y.now += 300 * core.Second
	y.leaves("the node is lost", "bears-another", "default", "unpreemptible")
	y.now += 3600 * core.Second
	y.leaves("an hour later")
}

// A pod that is being deleted on a node that was lost holds its devices when the node is
// back, or another comes under its name, until the pod is gone.
func TestPodsOfARepairedNode(t *testing.T) {
	for _, share := range []string{"", "0.5"} {
		for _, how := range []string{"back", "made again", "made again after the next start"} {
			y := newToy(t)
			y.Lost.Config = lost.Default()
			n := y.node("a", 2)
			y.start()
			old, next := newTestPod("old", 2), newTestPod("new", 2)
			if share != "" {
				old, next = newTestPod("old", 0), newTestPod("new", 1)
				old.Annotations[v1alpha1.GPUFractionAnnotation] = share
				y.see(newTestPod("other", 1))
			}
			y.see(old)
			bind, _ := y.pass()
			for _, b := range bind {
				y.bound(b.Of.Object.UID, true, false)
				if b.Of.Object.Name == "old" {
					old.Spec.NodeName, old.Status.Phase = "a", v1.PodRunning
					for k, v := range b.Annotations {
						old.Annotations[k] = v
					}
				}
			}
			y.see(old)
			y.node("b", 0)
			y.down(n, y.now)
			y.pass()
			y.now += 300 * core.Second
			y.pass()
			old.DeletionTimestamp = new(metav1.NewTime(startOfTime))
			y.see(old)
			y.pass()
			if strings.HasPrefix(how, "made again") {
				y.nodeGone("a")
				y.pass()
			}
			y.up(n)
			if strings.HasSuffix(how, "start") {
				y.start()
			}
			y.see(next)
			if at := y.run(); at["new"] != "" {
				t.Errorf("%s, share %q: the devices are given away while a pod has them: %v", how, share, at)
			}
			y.podGone(old.UID)
			if at := y.run(); at["new"] != "a" {
				t.Errorf("%s, share %q: the devices are not given back: %v", how, share, at)
			}
		}
	}
}
