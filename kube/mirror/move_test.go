package mirror

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// service is a Deployment whose pods may be moved, on nodes n and o. Pod a is on n, where pod
// filler, of another scheduler, has four of eight GPUs; a user asks to move it to o.
type service struct {
	*world
	owner metav1.OwnerReference
	moves []act.Move
	stay  []act.Stay
}

func newService(t *testing.T, with ...change[*v1.Pod]) *service {
	s := &service{world: newWorld(t, withoutRoom)}
	s.node("n", "r1")
	s.pod("a", append([]change[*v1.Pod]{replica, mobile, asking(v1alpha1.GPUResource, "2")}, with...)...)
	s.on("a>n")
	s.node("o", "r1")
	s.owner = s.pods["default/a"].OwnerReferences[0]
	return s
}

func mobile(p *v1.Pod) { p.Annotations[v1alpha1.MobilityAnnotation] = "replaceable" }

// pass is world.settle, which keeps what is to be moved, and what is said on pods.
func (s *service) pass() {
	s.t.Helper()
	s.onActs = func(a *tables.Acts) {
		s.moves, s.stay = append(s.moves, a.Move...), append(s.stay, a.Stay...)
	}
	s.settle()
}

// ask requests that pod a moves.
func (s *service) ask(request string) {
	s.t.Helper()
	s.pod("a", noted(v1alpha1.MoveAnnotation, request))
	s.pass()
}

// detach is what the actor and the ReplicaSet do to a pod that is moved.
func (s *service) detach(name string, x act.Move) {
	s.pod(name, func(p *v1.Pod) {
		p.Annotations[v1alpha1.MovingAnnotation] = (&translate.Move{Owner: s.owner, Hash: "5d4f", Why: x.Why, To: x.To, Request: x.Request}).String()
		p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = translate.MovingHash("5d4f")
	})
	s.pod(name, func(p *v1.Pod) { p.OwnerReferences = nil })
}

// giveBack is what they do when no other pod was ready in time.
func (s *service) giveBack(name string, x act.Move) {
	s.pod(name, func(p *v1.Pod) {
		p.Annotations[v1alpha1.MovingAnnotation] = (&translate.Move{
			Owner: s.owner, Hash: "5d4f", Why: x.Why, To: x.To, Request: x.Request, Kept: v1alpha1.MovingNotReplaced,
		}).String()
		p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = "5d4f"
		p.OwnerReferences = []metav1.OwnerReference{s.owner}
	})
	s.m.movedOff(s.pods["default/"+name].UID, nil)
}

// job fails the test unless the engine has so many pods of the service that run, and that are
// being moved.
func (s *service) job(running, moving int) {
	s.t.Helper()
	x, ok := s.m.engine.Explain("default/replicaset/serve-5d4f")
	if !ok || x.Running != running || x.Moving != moving {
		s.t.Errorf("the engine has %d pods that run, %d that are moved (%v); want %d and %d", x.Running, x.Moving, ok, running, moving)
	}
}

// gpus fails the test unless the engine refuses, or accepts, a pod with as many GPUs on a node:
// it tries another one.
func (s *service) gpus(node string, free int) {
	s.t.Helper()
	for n := free; n <= free+1; n++ {
		s.pod("probe", asking(v1alpha1.GPUResource, fmt.Sprint(n)), func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{host: node} })
		s.settle()
		if bound := s.pods["default/probe"].Spec.NodeName != ""; bound != (n == free) && n > 0 {
			s.t.Errorf("a pod with %d GPUs is bound to %s: %v; want %d free GPUs", n, node, bound, free)
		}
		s.gone("probe")
		s.settle()
	}
}

// A pod is moved: its double gets the place that the engine holds, and the pod's number when
// the pod is gone. Until then both have their places, and quota counts them once.
func TestMove(t *testing.T) {
	s := newService(t)
	s.ask("o now")
	if len(s.moves) != 1 {
		t.Fatalf("moves: %+v", s.moves)
	}
	x := s.moves[0]
	if x.Name != "a" || x.Node != "n" || x.To != "o" || !x.Replace || x.Why != "Requested" || x.Request != "o now" {
		t.Errorf("the move is %+v", x)
	}
	s.gpus("o", 6)
	s.detach("a", x)
	s.inGroup("a", "replicaset/serve-5d4f", 2)
	s.job(1, 1)
	to := s.m.Pods[s.pods["default/a"].UID].Transfer.To
	s.pod("b", replica, mobile, asking(v1alpha1.GPUResource, "2"))
	s.on("b>o")
	if got := s.pods["default/b"].Annotations[v1alpha1.GPUsAnnotation]; got != translate.Devices(to.GPUs) {
		t.Errorf("the double has GPUs %s; the engine holds %s", got, translate.Devices(to.GPUs))
	}
	s.job(1, 1)
	s.gpus("o", 6)
	s.gpus("n", 6)
	s.gone("a")
	s.pass()
	s.job(1, 0)
	s.gpus("n", 8)
	s.gpus("o", 6)
	if p := s.m.Pods[s.pods["default/b"].UID]; p.Slot != 0 || p.DoubleOf != nil || len(s.m.transfers) > 0 {
		t.Errorf("the double has number %d", p.Slot)
	}
	if len(s.moves) != 1 || len(s.stay) > 0 {
		t.Errorf("moves: %+v, said: %+v", s.moves, s.stay)
	}
}

// What else may happen to a move. At the end the engine has as many pods as there are, and
// nothing is held.
func TestMoveGoesOtherwise(t *testing.T) {
	double := func(s *service) {
		s.pod("b", replica, mobile, asking(v1alpha1.GPUResource, "2"))
		s.pass()
	}
	for name, c := range map[string]struct {
		happens func(*service)
		n, o    int // GPUs that are free at the end
	}{
		"the pod goes before it is detached": {func(s *service) { s.gone("a") }, 8, 8},
		"the pod goes before another is made": {func(s *service) {
			s.detach("a", s.moves[0])
			s.gone("a")
		}, 8, 8},
		"the Deployment is scaled down": {func(s *service) {
			s.detach("a", s.moves[0])
			s.gone("a") // the actor: no other is needed
			s.pass()
		}, 8, 8},
		"the pod goes first": {func(s *service) {
			s.detach("a", s.moves[0])
			double(s)
			s.gone("a")
		}, 8, 6},
		"the pod fails": {func(s *service) {
			s.detach("a", s.moves[0])
			double(s)
			s.pod("a", func(p *v1.Pod) { p.Status.Phase = v1.PodFailed })
		}, 8, 6},
		"it cannot be detached": {func(s *service) { s.m.movedOff(s.pods["default/a"].UID, nil) }, 6, 8},
		"none is made in time": {func(s *service) {
			s.detach("a", s.moves[0])
			s.giveBack("a", s.moves[0])
		}, 6, 8},
		"none is ready in time": {func(s *service) {
			s.detach("a", s.moves[0])
			double(s)
			s.giveBack("a", s.moves[0])
			s.pass()
			s.job(2, 0)
		}, 6, 6},
		"the owner deletes the one too many": {func(s *service) {
			s.detach("a", s.moves[0])
			double(s)
			s.giveBack("a", s.moves[0])
			s.pass()
			s.gone("b")
		}, 6, 8},
		"the double goes": {func(s *service) {
			s.detach("a", s.moves[0])
			double(s)
			s.gone("b")
			s.pass()
		}, 6, 8},
		"the double cannot be bound": {func(s *service) {
			s.detach("a", s.moves[0])
			refused := false
			s.onBind = func(b *tables.Binding) bool {
				if b.Of.Object.Name == "b" && !refused {
					refused = true
					return false
				}
				return true
			}
			s.pod("b", replica, mobile, asking(v1alpha1.GPUResource, "2"), func(p *v1.Pod) { p.Spec.NodeSelector = nil })
			s.pass()
			s.gone("b")
		}, 6, 8},
		"another has bound the double": {func(s *service) {
			s.detach("a", s.moves[0])
			s.onBind = func(b *tables.Binding) bool {
				if b.Of.Object.Name == "b" {
					s.pod("b", noted(v1alpha1.GPUsAnnotation, "6,7"), func(p *v1.Pod) { p.Spec.NodeName = "n" })
				}
				return b.Of.Object.Name != "b"
			}
			double(s)
			s.job(2, 0)
		}, 4, 8},
		"the new node is cordoned before": {func(s *service) {
			s.node("o", "", func(n *v1.Node) { n.Spec.Unschedulable = true })
			s.detach("a", s.moves[0])
			double(s)
			if at := s.pods["default/b"].Spec.NodeName; at != "n" {
				t.Errorf("the other pod is on %q; want n", at)
			}
			s.node("o", "", func(n *v1.Node) { n.Spec.Unschedulable = false })
		}, 4, 8},
		"the new node is deleted": {func(s *service) {
			s.detach("a", s.moves[0])
			s.m.nodeGone("o")
			s.pass()
			s.node("o", "r1")
		}, 6, 8},
		"the engine is built again": {func(s *service) {
			s.detach("a", s.moves[0])
			double(s)
			s.m.outdated = true
			s.pass()
			s.job(2, 0)
			s.gone("a")
		}, 8, 6},
		"the engine is built again before": {func(s *service) {
			s.m.outdated = true
			s.pass()
			s.detach("a", s.moves[0])
			s.gone("a")
		}, 8, 8},
		"another instance goes on": {func(s *service) {
			s.detach("a", s.moves[0])
			double(s)
			s.restart()
			s.moves = nil
			s.pass()
			if len(s.moves) != 1 || !s.moves[0].Found || s.moves[0].Why != "Requested" || s.moves[0].To != "o" {
				t.Errorf("the next instance goes on with %+v", s.moves)
			}
			s.inGroup("a", "pod/a", 4)
			s.gpus("n", 6)
			s.gpus("o", 6)
			s.gone("a")
		}, 8, 6},
		"the shard is given up": {func(s *service) {
			s.detach("a", s.moves[0])
			double(s)
			s.m.GiveUp(0, func() {})
			s.m.movedOff(s.pods["default/a"].UID, nil)
			s.pass()
			if err := s.m.Take(0); err != nil {
				t.Fatal(err)
			}
			s.pass()
			s.gone("a")
		}, 8, 6},
		"its owner takes the permission back": {func(s *service) {
			s.pod("a", noted(v1alpha1.MobilityAnnotation, "stays"))
			s.pass()
			s.job(1, 0)
		}, 6, 8},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			s.ask("o now")
			if len(s.moves) != 1 {
				t.Fatalf("moves: %+v", s.moves)
			}
			c.happens(s)
			s.pass()
			s.gpus("n", c.n)
			s.gpus("o", c.o)
			for _, p := range s.m.Pods {
				if p.Transfer != nil || p.DoubleOf != nil {
					t.Errorf("%s is still being moved", p.Object.Name)
				}
			}
			if len(s.m.transfers) > 0 && !strings.Contains(name, "again") && !strings.Contains(name, "back") && !strings.Contains(name, "shard") {
				t.Errorf("moves are kept: %v", s.m.transfers)
			}
		})
	}
}

// Pods move only where their owner allows it: by an annotation of the pod, or a label of the
// namespace; and where another can run beside them. A request that is refused is answered once.
func TestMobility(t *testing.T) {
	says := func(v string) change[*v1.Pod] { return noted(v1alpha1.MobilityAnnotation, v) }
	for name, c := range map[string]struct {
		namespace string
		with      change[*v1.Pod]
		want      core.Mobility
	}{
		"nothing is said":          {"", func(p *v1.Pod) { delete(p.Annotations, v1alpha1.MobilityAnnotation) }, core.Stays},
		"the pod says so":          {"", func(*v1.Pod) {}, core.Replaceable},
		"the pod says no":          {"replaceable", says("stays"), core.Stays},
		"the namespace says so":    {"replaceable", func(p *v1.Pod) { delete(p.Annotations, v1alpha1.MobilityAnnotation) }, core.Replaceable},
		"its owner makes no other": {"", of("apps/v1", "StatefulSet", "s"), core.Stays},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, c.with)
			s.m.namespaceSeen(&objects.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Labels: map[string]string{v1alpha1.MobilityAnnotation: c.namespace}})
			s.pass()
			p := s.m.Pods[s.pods["default/a"].UID]
			if got := s.m.Mobility(p.Group, p); got != c.want {
				t.Errorf("got %v; want %v", got, c.want)
			}
			s.ask("o now")
			switch {
			case c.want == core.Replaceable && (len(s.moves) != 1 || len(s.stay) > 0):
				t.Errorf("moves: %+v, said: %+v", s.moves, s.stay)
			case c.want == core.Stays && (len(s.moves) > 0 || len(s.stay) != 1 || !strings.Contains(s.stay[0].Message, "(requested: o now)")):
				t.Errorf("moves: %+v, said: %+v", s.moves, s.stay)
			}
			s.pass()
			if len(s.moves)+len(s.stay) != 1 {
				t.Errorf("the request is answered again: %+v, %+v", s.moves, s.stay)
			}
		})
	}
}

// The pods of a gang stay: their owner does not make another beside one that is detached.
func TestGangsStay(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r1")
	w.pod("a", replica, mobile, gang("g", 2))
	w.pod("b", replica, mobile, gang("g", 2))
	w.on("a>n", "b>n")
	p := w.m.Pods[w.pods["default/a"].UID]
	if got := w.m.Mobility(p.Group, p); got != core.Stays {
		t.Errorf("got %v", got)
	}
}

// A request that cannot be met is refused with the reason; another request is tried.
func TestMoveRefused(t *testing.T) {
	s := newService(t)
	for i, c := range []struct{ request, why string }{
		{"n 1", "is on node n already"}, {"nowhere 2", "nowhere"}, {"n 3", "is on node n already"},
	} {
		s.ask(c.request)
		if len(s.stay) != i+1 || s.stay[i].Reason != v1alpha1.MovingRefused || !strings.Contains(s.stay[i].Message, c.why) {
			t.Fatalf("%s: %+v", c.request, s.stay)
		}
	}
	// The next instance reads the answer on the pod.
	s.pod("a", func(p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{{Type: v1alpha1.MovingCondition, Status: v1.ConditionFalse, Reason: v1alpha1.MovingRefused, Message: s.stay[2].Message}}
	})
	s.restart()
	s.pass()
	if len(s.stay) != 3 {
		t.Errorf("it is answered again: %+v", s.stay)
	}
	s.ask(" 4")
	if len(s.moves) != 1 || s.moves[0].To != "o" {
		t.Errorf("moves: %+v, said: %+v", s.moves, s.stay)
	}
}

// Two pods of one owner move at once: each double has the place of one of them, and no number
// is lost, whichever double is ready first.
func TestMovesOfOneOwner(t *testing.T) {
	s := newService(t)
	s.node("o", "", func(n *v1.Node) { n.Spec.Unschedulable = true })
	s.pod("b", replica, mobile, asking(v1alpha1.GPUResource, "2"))
	s.on("b>n")
	s.node("o", "", func(n *v1.Node) { n.Spec.Unschedulable = false })
	s.pod("b", noted(v1alpha1.MoveAnnotation, "o"))
	s.ask("o")
	if len(s.moves) != 2 {
		t.Fatalf("moves: %+v", s.moves)
	}
	for _, x := range s.moves {
		s.detach(x.Name, x)
	}
	for _, name := range []string{"c", "d"} {
		s.pod(name, replica, mobile, asking(v1alpha1.GPUResource, "2"))
	}
	s.on("c>o", "d>o")
	s.gone("b")
	s.pass()
	s.job(2, 1)
	s.gone("a")
	s.pass()
	s.job(2, 0)
	s.gpus("n", 8)
	s.gpus("o", 4)
	if n := len(s.m.Groups[translate.Group{Namespace: "default", Kind: "replicaset", Name: "serve-5d4f"}].Slots); n != 2 {
		t.Errorf("the job has %d numbers", n)
	}
}

// A policy with defragmentation moves pods together without a request.
func TestDefragmentation(t *testing.T) {
	s := &service{world: newWorld(t, withoutRoom)}
	policy := s.m.Policies.Policy()
	policy.Defrag.Every = 60 * core.Second
	policy.Defrag.Partition, policy.Defrag.Depth, policy.Defrag.Rounds = 500, 3, 5
	s.m.outdated = true
	s.node("n", "r1")
	s.pod("a", replica, mobile, asking(v1alpha1.GPUResource, "2"))
	s.pod("b", asking(v1alpha1.GPUResource, "6"))
	s.on("a,b>n,n")
	s.node("o", "r1")
	s.pod("c", asking(v1alpha1.GPUResource, "4"))
	s.on("c>o")
	s.owner = s.pods["default/a"].OwnerReferences[0]
	s.gone("b")
	s.pass()
	for range 3 {
		s.now = s.now.Add(60e9)
		s.pass()
	}
	if len(s.moves) != 1 || s.moves[0].Name != "a" || s.moves[0].To != "o" || s.moves[0].Why != "Defragmentation" {
		t.Fatalf("moves: %+v", s.moves)
	}
	s.detach("a", s.moves[0])
	s.pod("d", replica, mobile, asking(v1alpha1.GPUResource, "2"))
	s.on("d>o")
	s.gone("a")
	s.pass()
	s.gpus("n", 8)
	if left := maps.Clone(s.m.transfers); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
