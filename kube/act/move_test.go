package act

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
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

// moving is an actor with a fake API that has a Deployment of two pods, of
// which one, old, is on a node that is drained, n, and the other on o. The test
// does what controllers would.
type moving struct {
	*Actor
	t *testing.T
	*fake.Clientset
	clock  time.Time
	budget atomic.Bool // evictions are refused
	others atomic.Bool // another instance decides
	out    *reported
}

func newMoving(t *testing.T) *moving {
	x := &moving{t: t, Clientset: fake.NewClientset(), clock: startOfTime, out: &reported{}}
	x.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		if x.budget.Load() {
			return true, nil, apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		}
		e := a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
		return true, nil, x.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), e.Namespace, e.Name)
	})
	x.next()
	x.apply(func(c context.Context) error {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{v1alpha1.DrainAnnotation: "10m now"}}}
		n.Spec.Unschedulable = true
		_, err := x.CoreV1().Nodes().Create(c, n, metav1.CreateOptions{})
		return err
	})
	x.apply(func(c context.Context) error {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "serve", Namespace: "default", UID: "serve"}}
		_, err := x.AppsV1().Deployments("default").Create(c, d, metav1.CreateOptions{})
		return err
	})
	x.apply(func(c context.Context) error {
		r := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "serve-5d4f", Namespace: "default", UID: "ReplicaSetserve-5d4f", OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "serve", UID: "serve", Controller: new(true)}}}}
		r.Spec.Replicas = new(int32(2))
		r.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "serve", appsv1.DefaultDeploymentUniqueLabelKey: "5d4f"}}
		_, err := x.AppsV1().ReplicaSets("default").Create(c, r, metav1.CreateOptions{})
		return err
	})
	x.make("old", "n")
	x.make("other", "o")
	x.ready("old")
	x.ready("other")
	return x
}

// next puts another instance in the place of the actor.
func (x *moving) next() {
	x.Actor = New(Config{
		Client: x.Clientset, Outcomes: x.out, Now: func() time.Time { return x.clock }, Holds: func(int) bool { return !x.others.Load() },
	})
}

func (x *moving) apply(do func(context.Context) error) {
	x.t.Helper()
	if err := do(context.Background()); err != nil {
		x.t.Fatal(err)
	}
}

// make makes a pod of the Deployment.
func (x *moving) make(name, node string) {
	x.t.Helper()
	p := newTestPod(name, 1)
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "serve-5d4f", UID: "ReplicaSetserve-5d4f", Controller: new(true)}}
	p.Labels["app"], p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = "serve", "5d4f"
	p.Spec.NodeName = node
	x.apply(func(c context.Context) error {
		_, err := x.CoreV1().Pods("default").Create(c, p, metav1.CreateOptions{})
		return err
	})
}

// edit changes a pod.
func (x *moving) edit(name string, edit func(*v1.Pod)) {
	x.t.Helper()
	p := x.pod(name)
	edit(p)
	x.apply(func(c context.Context) error {
		_, err := x.CoreV1().Pods("default").Update(c, p, metav1.UpdateOptions{})
		return err
	})
}

func (x *moving) ready(name string) {
	x.t.Helper()
	x.edit(name, func(p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(x.clock)}}
	})
}

// pod returns a pod; nil when it is gone.
func (x *moving) pod(name string) *v1.Pod {
	x.t.Helper()
	p, err := x.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		x.t.Fatal(err)
	}
	return p
}

// begin has the old pod asked to leave.
func (x *moving) begin() {
	x.moves.add(move{Move: Move{Pod: podNamed("old"), Node: "n", Request: "now", Replace: true}})
}

// is fails the test unless, a second later, the old pod stands as it should: "gone",
// or whose it is and the reason of its condition.
func (x *moving) is(want string) {
	x.t.Helper()
	x.clock = x.clock.Add(time.Second)
	x.moveOn(context.Background())
	got := "gone"
	if p := x.pod("old"); p != nil {
		got = "its owner's"
		switch hash, m := p.Labels[appsv1.DefaultDeploymentUniqueLabelKey], translate.MoveOf(p); {
		case hash == "5d4f-moving" && m.Active() && m.Hash == "5d4f" && p.Labels[v1alpha1.MovingLabel] == "true":
			got = "taken out"
		case hash != "5d4f" || m.Active() || p.Labels[v1alpha1.MovingLabel] != "":
			got = fmt.Sprintf("between: %s, %v", hash, m)
		case m != nil:
			got = "given back"
		}
		for _, c := range p.Status.Conditions {
			if c.Type == v1alpha1.MovingCondition {
				got += fmt.Sprintf(", %s %s", c.Reason, c.Status)
			}
		}
	}
	if got != want {
		x.t.Fatalf("the old pod is %s; want %s", got, want)
	}
	if p, over := x.pod("old"), len(x.moves.list) == 0; over != (p == nil || !translate.MoveOf(p).Active() && !strings.Contains(want, "True")) {
		x.t.Fatalf("%s: it is looked at again: %v", want, !over)
	}
}

// says fails the test unless the condition of the old pod says so.
func (x *moving) says(text string) {
	x.t.Helper()
	for _, c := range x.pod("old").Status.Conditions {
		if c.Type == v1alpha1.MovingCondition && strings.Contains(c.Message, text) {
			return
		}
	}
	x.t.Errorf("the old pod does not say %q: %+v", text, x.pod("old").Status.Conditions)
}

// A pod of a Deployment leaves when another is available in its place.
func TestMakeBeforeBreak(t *testing.T) {
	x := newMoving(t)
	x.begin()
	x.is("taken out")
	x.is("taken out, Replacing True")
	x.says("ReplicaSet serve-5d4f has yet to create a replacement")
	x.ClearActions()
	x.is("taken out, Replacing True")
	for _, a := range x.Actions() {
		if a.GetVerb() == "patch" {
			t.Errorf("what it says already is written again: %v", a)
		}
	}
	x.make("new", "")
	x.is("taken out, Replacing True")
	x.says("new waits for room") // nothing has been written on it yet
	x.edit("new", func(p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{{Type: v1alpha1.WaitingCondition, Status: v1.ConditionTrue, Reason: "Resources", Message: "1 GPU is lacking"}}
	})
	x.is("taken out, Replacing True")
	x.says("new waits: Resources: 1 GPU is lacking")
	x.edit("new", func(p *v1.Pod) {
		p.Status.Conditions[0].Message = "2 GPUs are lacking" + translate.AheadMark + "1" + translate.NoStartMark + "nobody knows"
	})
	x.is("taken out, Replacing True")
	if x.says("new waits: Resources: 2 GPUs are lacking"); strings.Contains(fmt.Sprint(x.pod("old").Status.Conditions), "ahead") {
		t.Errorf("it says how the other stands in the queue: %v", x.pod("old").Status.Conditions)
	}
	x.edit("new", func(p *v1.Pod) { p.Spec.NodeName, p.Status.Conditions = "o", nil })
	x.is("taken out, Replacing True")
	x.says("new is on o and not ready")
	x.ready("new")
	x.is("gone")
}

// Another instance brings to an end what one began, from wherever it stood.
func TestMakeBeforeBreakByTheNext(t *testing.T) {
	x := newMoving(t)
	x.begin()
	x.is("taken out")
	x.next()
	x.moves.add(move{Move: Move{Pod: podNamed("old"), Node: "n", Request: "now", Found: true}})
	x.is("taken out, Replacing True")
	x.make("new", "o")
	x.ready("new")
	x.next()
	x.moves.add(move{Move: Move{Pod: podNamed("old"), Node: "n", Request: "now", Found: true}})
	x.is("gone")
}

// A pod that is asked again, just as it was given back, waits until its owner has it.
func TestMakeBeforeBreakAgain(t *testing.T) {
	x := newMoving(t)
	owner := x.pod("old").OwnerReferences
	x.begin()
	x.is("taken out")
	x.edit("old", func(p *v1.Pod) { p.OwnerReferences = nil })
	x.clock = x.clock.Add(11 * time.Minute)
	x.is("given back, NotReplaced False")
	if translate.Replaceable(x.pod("old")) == nil {
		t.Error("it would be evicted at once")
	}
	// Who gave it back and did not hear so leaves it at that.
	x.begin()
	x.is("given back, NotReplaced False")
	// Who does not know yet that it was given back has nothing to end.
	x.moves.add(move{Move: Move{Pod: podNamed("old"), Node: "n", Request: "now", Found: true}})
	x.is("given back, NotReplaced False")
	x.node(func(n *v1.Node) { n.Annotations[v1alpha1.DrainAnnotation] = "10m again" })
	x.begin()
	x.moveOn(context.Background())
	if p := x.pod("old"); p == nil || translate.MoveOf(p).Active() {
		t.Fatalf("got %v", p)
	}
	x.edit("old", func(p *v1.Pod) { p.OwnerReferences = owner })
	x.is("taken out, NotReplaced False")
}

// A pod of the same name that came since is not the one to be moved.
func TestMoveOfAPodThatWasReplaced(t *testing.T) {
	x := newMoving(t)
	x.begin()
	x.edit("old", func(p *v1.Pod) { p.UID = "another" })
	x.is("its owner's")
}

// Who asks again gives the pod as much time as at first.
func TestMakeBeforeBreakAskedAnew(t *testing.T) {
	x := newMoving(t)
	x.begin()
	x.is("taken out")
	x.clock = x.clock.Add(9 * time.Minute)
	x.node(func(n *v1.Node) { n.Annotations[v1alpha1.DrainAnnotation] = "10m again" })
	x.is("taken out")
	x.clock = x.clock.Add(9 * time.Minute)
	x.is("taken out, Replacing True")
	x.clock = x.clock.Add(2 * time.Minute)
	x.is("given back, NotReplaced False")
	if !translate.MoveOf(x.pod("old")).NotReplaced("again") {
		t.Error("it does not say for which request it could not leave")
	}
}

// What else may happen to a pod that was taken out of its owner's hands.
func TestMakeBeforeBreakGoesOtherwise(t *testing.T) {
	scale := func(n int32) func(*moving) {
		return func(x *moving) {
			x.set(func(r *appsv1.ReplicaSet) { r.Spec.Replicas = &n })
		}
	}
	for name, c := range map[string]struct {
		happens func(*moving)
		want    string
	}{
		"no other is made in time": {func(x *moving) { x.clock = x.clock.Add(11 * time.Minute) }, "given back, NotReplaced False"},
		"the node is opened":       {func(x *moving) { x.node(func(n *v1.Node) { n.Spec.Unschedulable = false }) }, "given back, Cancelled False"},
		"the request is withdrawn": {func(x *moving) { x.node(func(n *v1.Node) { n.Annotations = nil }) }, "given back, Cancelled False"},
		"a budget holds it up":     {func(x *moving) { x.make("new", "o"); x.ready("new"); x.budget.Store(true) }, "taken out, DisruptionBudget True"},
		"a budget holds it up for long": {func(x *moving) {
			x.make("new", "o")
			x.ready("new")
			x.budget.Store(true)
			x.clock = x.clock.Add(time.Hour)
		}, "taken out, DisruptionBudget True"},
		"the owner is deleted": {func(x *moving) {
			x.apply(func(c context.Context) error {
				return x.AppsV1().ReplicaSets("default").Delete(c, "serve-5d4f", metav1.DeleteOptions{})
			})
		}, "gone"},
		"the owner is deleted, and the node opened": {func(x *moving) {
			x.apply(func(c context.Context) error {
				return x.AppsV1().ReplicaSets("default").Delete(c, "serve-5d4f", metav1.DeleteOptions{})
			})
			x.node(func(n *v1.Node) { n.Spec.Unschedulable = false })
		}, "gone"},
		"another owner of its name": {func(x *moving) { x.set(func(r *appsv1.ReplicaSet) { r.UID = "another" }) }, "gone"},
		"fewer are wanted":          {scale(1), "gone"},
		"more are wanted":           {func(x *moving) { scale(5)(x); x.make("new", "o"); x.ready("new") }, "gone"},
		"the other is not ready for long enough": {func(x *moving) {
			x.set(func(r *appsv1.ReplicaSet) { r.Spec.MinReadySeconds = 60 })
			x.make("new", "o")
			x.ready("new")
			x.edit("other", func(p *v1.Pod) { p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(x.clock.Add(-time.Hour)) })
		}, "taken out, Replacing True"},
		"the third is lost": {func(x *moving) {
			x.make("new", "o")
			x.ready("new")
			x.edit("other", func(p *v1.Pod) { p.Status.Conditions[0].Status = v1.ConditionFalse })
		}, "taken out, Replacing True"},
		"a user deletes it": {func(x *moving) {
			x.apply(func(c context.Context) error {
				return x.CoreV1().Pods("default").Delete(c, "old", metav1.DeleteOptions{})
			})
		}, "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newMoving(t)
			x.begin()
			x.is("taken out")
			c.happens(x)
			x.is(c.want)
		})
	}
}

// Of two pods of one owner on the node, each leaves when one is in its place.
func TestMakeBeforeBreakOfTwo(t *testing.T) {
	x := newMoving(t)
	x.moves.add(move{Move: Move{Pod: podNamed("other"), Node: "n", Request: "now", Replace: true}})
	x.begin()
	x.moveOn(context.Background())
	x.make("new", "o")
	x.ready("new")
	x.moveOn(context.Background())
	if (x.pod("old") == nil) == (x.pod("other") == nil) {
		t.Fatal("one of them is to go")
	}
	x.make("newer", "o")
	x.ready("newer")
	x.moveOn(context.Background())
	if x.pod("old") != nil || x.pod("other") != nil {
		t.Error("both are to go")
	}
}

// A move of a shard that was given up may be begun again: the pod may be of a shard by
// now that is not.
func TestMoveOfAShardThatIsGivenUp(t *testing.T) {
	x := newMoving(t)
	x.begin()
	x.others.Store(true)
	x.is("its owner's")
	x.out.expect(t, "old moved off")
}

// Two instances that each evict one of two pods of an owner, and know nothing about each
// other, leave as many as are needed.
func TestMakeBeforeBreakByTwo(t *testing.T) {
	for _, first := range []string{"old", "other"} {
		x := newMoving(t)
		x.begin()
		x.moves.add(move{Move: Move{Pod: podNamed("other"), Node: "n", Request: "now", Replace: true}})
		x.moveOn(context.Background())
		x.make("new", "o")
		x.ready("new")
		// Both have read how things are before either evicts.
		looks := map[string]*look{}
		for _, name := range []string{"old", "other"} {
			looks[name] = newLook(x.Actor)
			if _, err := looks[name].replicas(context.Background(), "default", &translate.MoveOf(x.pod(name)).Owner, "5d4f"); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{first, map[string]string{"old": "other", "other": "old"}[first]} {
			if _, err := x.step(context.Background(), looks[name], &move{Move: Move{Pod: podNamed(name), Node: "n", Request: "now"}}); err != nil {
				t.Fatal(err)
			}
		}
		if (x.pod("old") == nil) == (x.pod("other") == nil) {
			t.Errorf("one of them is to go, and one to stay: %v, %v", x.pod("old"), x.pod("other"))
		}
	}
}

// Pods that another must not or cannot stand beside are evicted at once.
func TestMadeAfterBreak(t *testing.T) {
	for name, happens := range map[string]func(*moving){
		"strategy Recreate": func(x *moving) {
			x.apply(func(c context.Context) error {
				d, err := x.AppsV1().Deployments("default").Get(c, "serve", metav1.GetOptions{})
				if err == nil {
					d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
					_, err = x.AppsV1().Deployments("default").Update(c, d, metav1.UpdateOptions{})
				}
				return err
			})
		},
		"a selector without the label": func(x *moving) {
			x.set(func(r *appsv1.ReplicaSet) {
				delete(r.Spec.Selector.MatchLabels, appsv1.DefaultDeploymentUniqueLabelKey)
			})
		},
		"an owner of another kind": func(x *moving) { x.set(func(r *appsv1.ReplicaSet) { r.OwnerReferences[0].Kind = "Rollout" }) },
		"no owner":                 func(x *moving) { x.edit("old", func(p *v1.Pod) { p.OwnerReferences = nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			x := newMoving(t)
			happens(x)
			x.begin()
			x.budget.Store(true)
			x.is("its owner's, DisruptionBudget True")
			x.budget.Store(false)
			x.is("gone")
		})
	}
	x := newMoving(t)
	x.node(func(n *v1.Node) { n.Spec.Unschedulable = false })
	x.begin()
	x.is("its owner's, Cancelled False")
}

// set changes the ReplicaSet.
func (x *moving) set(edit func(*appsv1.ReplicaSet)) {
	x.t.Helper()
	x.apply(func(c context.Context) error {
		r, err := x.AppsV1().ReplicaSets("default").Get(c, "serve-5d4f", metav1.GetOptions{})
		if err == nil {
			edit(r)
			_, err = x.AppsV1().ReplicaSets("default").Update(c, r, metav1.UpdateOptions{})
		}
		return err
	})
}

// node changes the node.
func (x *moving) node(edit func(*v1.Node)) {
	x.t.Helper()
	x.apply(func(c context.Context) error {
		n, err := x.CoreV1().Nodes().Get(c, "n", metav1.GetOptions{})
		if err == nil {
			edit(n)
			_, err = x.CoreV1().Nodes().Update(c, n, metav1.UpdateOptions{})
		}
		return err
	})
}

// A pod that puts off when it is given back is given back when the drain said.
func TestMovePutOff(t *testing.T) {
	x := newMoving(t)
	x.begin()
	x.is("taken out")
	off := func(p *v1.Pod) {
		rec := translate.MoveOf(p)
		rec.Until = metav1.NewTime(x.clock.Add(1000 * time.Hour))
		p.Annotations[v1alpha1.MovingAnnotation] = rec.String()
	}
	x.edit("old", off)
	x.is("taken out, Replacing True")
	x.clock = x.clock.Add(9 * time.Minute)
	x.edit("old", off)
	x.is("taken out, Replacing True")
	x.clock = x.clock.Add(2 * time.Minute)
	x.is("given back, NotReplaced False")
}

// What becomes of a pod that the engine moves. Its node is not drained.
func TestMoveOfTheEngine(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(*moving)
		want    string
	}{
		"another is ready":         {func(x *moving) { x.make("new", "o"); x.ready("new") }, "gone"},
		"none is yet":              {func(*moving) {}, "taken out, Replacing True"},
		"none is in time":          {func(x *moving) { x.clock = x.clock.Add(11 * time.Minute) }, "given back, NotReplaced False"},
		"the Deployment is scaled": {func(x *moving) { x.set(func(r *appsv1.ReplicaSet) { r.Spec.Replicas = new(int32(1)) }) }, "gone"},
		"a budget holds it up":     {func(x *moving) { x.make("new", "o"); x.ready("new"); x.budget.Store(true) }, "taken out, DisruptionBudget True"},
		"the next goes on": {func(x *moving) {
			x.next()
			x.moves.add(move{Move: Move{Pod: podNamed("old"), Node: "n", Found: true}})
			x.make("new", "o")
			x.ready("new")
		}, "gone"},
		"the next gives it back": {func(x *moving) {
			x.next()
			x.moves.add(move{Move: Move{Pod: podNamed("old"), Node: "n", Found: true}})
			x.is("taken out, Replacing True")
			x.says("waiting for a replacement")
			x.clock = x.clock.Add(11 * time.Minute)
		}, "given back, NotReplaced False"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newMoving(t)
			x.node(func(n *v1.Node) { n.Spec.Unschedulable, n.Annotations = false, nil })
			x.moves.add(move{Move: Move{Pod: podNamed("old"), Node: "n", Request: "o now", Replace: true, Why: "Requested", To: "o"}})
			x.is("taken out")
			c.happens(x)
			x.is(c.want)
		})
	}
}

// A budget that never allows the eviction ends the move of the engine: the place that the pod
// leaves would be held for ever.
func TestMoveOfTheEngineAgainstABudget(t *testing.T) {
	x := newMoving(t)
	x.moves.add(move{Move: Move{Pod: podNamed("old"), Node: "n", Request: "1", Replace: true, Why: "Defragmentation", To: "o"}})
	x.is("taken out")
	x.make("new", "o")
	x.ready("new")
	x.budget.Store(true)
	x.is("taken out, DisruptionBudget True")
	x.clock = x.clock.Add(11 * time.Minute)
	x.is("given back, DisruptionBudget False")
	// Who gave it back and did not hear so leaves it at that.
	x.moves.add(move{Move: Move{Pod: podNamed("old"), Node: "n", Request: "1", Replace: true, Why: "Defragmentation", To: "o"}})
	x.is("given back, DisruptionBudget False")
}

// A pod beside which no other can run is never evicted for the engine's sake.
func TestMoveOfTheEngineIsRefused(t *testing.T) {
	x := newMoving(t)
	x.set(func(r *appsv1.ReplicaSet) { r.OwnerReferences[0].Kind = "Rollout" })
	x.moves.add(move{Move: Move{Pod: podNamed("old"), Node: "n", Request: "o now", Replace: true, Why: "Requested", To: "o"}})
	x.is("its owner's, Refused False")
	x.says("does not belong to a Deployment (requested: o now)")
	x.out.expect(t, "old moved off")
}
