package mirror

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/queues"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// training is a gang of two pods, of a Job that checkpoints, with two GPUs each: pod 0 is on node n, pod 1 on node o,
// and both nodes have six GPUs free.
type training struct {
	*world
	generation int
	stopped    bool // the Job is suspended
}

func newTraining(t *testing.T, with ...change[*v1.Pod]) *training {
	s := &training{world: newWorld(t, func(p *core.Policy) { p.Preempt.MinRuntime = 0 })}
	s.onActs = func(a *tables.Acts) { s.stopped = s.stopped || len(a.Suspend) > 0 }
	for _, node := range []string{"n", "o"} {
		s.node(node, "r1")
		s.pod("on-"+node, asking(v1alpha1.GPUResource, "6"), at(node))
	}
	s.settle()
	s.make(0, with...)
	s.make(1, with...)
	s.on("train-0-0,train-1-0>n,o", "on-n>n", "on-o>o")
	if s.pods["default/train-0-0"].Spec.NodeName != "n" {
		t.Fatal("pod 0 is not on node n")
	}
	s.gone("on-n")
	s.gone("on-o")
	return s
}

func at(node string) change[*v1.Pod] {
	return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{host: node} }
}

// make has the Job make a pod with an index.
func (s *training) make(index int, with ...change[*v1.Pod]) {
	s.pod(fmt.Sprintf("train-%d-%d", index, s.generation), append([]change[*v1.Pod]{asking(v1alpha1.GPUResource, "2"), func(p *v1.Pod) {
		p.GenerateName = fmt.Sprintf("train-%d-", index)
		p.Annotations[v1alpha1.CheckpointIntervalAnnotation] = "24h"
		p.Annotations[v1alpha1.MinMemberAnnotation], p.Labels[v1alpha1.QueueLabel] = "2", queues.Default
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "job", Controller: new(true)}}
	}}, with...)...)
}

// stop has a job of a whole node come, for which the gang restarts: it leaves, and its Job is
// suspended.
func (s *training) stop() {
	s.t.Helper()
	s.pod("big", asking(v1alpha1.GPUResource, "8"))
	s.settle()
	if !s.stopped {
		s.t.Fatal("the Job is not suspended")
	}
	s.on("big>")
	s.gone("train-0-0")
	s.settle()
	s.gone("train-1-0")
	s.generation++
}

// resume has the Job go on.
func (s *training) resume() {
	s.m.resumed(translate.Group{Namespace: "default", Kind: "job", Name: "train"})
}

// A gang restarts elsewhere: its new pods get the places that the engine keeps, by index, whichever
// comes first, and no other pod gets them meanwhile.
func TestRestartElsewhere(t *testing.T) {
	s := newTraining(t)
	was := s.pods["default/train-1-0"].Annotations[v1alpha1.GPUsAnnotation]
	s.stop()
	s.pod("thief", asking(v1alpha1.GPUResource, "6"))
	s.on("thief>")
	s.on("big>n") // the gang goes to o, and its pod there returns
	s.resume()
	s.make(1)
	s.on("train-1-1>o", "thief>")
	s.make(0)
	s.on("train-0-1>o", "thief>")
	if got := s.pods["default/train-1-1"].Annotations[v1alpha1.GPUsAnnotation]; got != was {
		t.Errorf("pod 1 had GPUs %s, and came back to %s", was, got)
	}
	if g := s.m.Pods[s.pods["default/train-0-1"].UID].Group; g.Returning != nil || len(g.Slots) != 2 || len(s.m.returning) > 0 {
		t.Errorf("the group has %d numbers, and waits for %+v", len(g.Slots), g.Returning)
	}
	s.gone("big")
	s.on("thief>n")
}

// What else may happen while a gang restarts.
func TestRestartGoesOtherwise(t *testing.T) {
	later := func(s *training) { s.now = s.now.Add(time.Duration(returnWithin)) }
	for name, c := range map[string]struct {
		happens func(*training)
		want    []string
	}{
		"it never comes back": {func(s *training) {
			s.resume()
			s.settle()
			later(s)
		}, []string{"thief>o"}},
		"one pod never comes back": {func(s *training) {
			s.resume()
			s.make(0)
			s.on("thief>")
			later(s)
		}, []string{"thief>o", "train-0-1>o"}},
		"one comes when it is too late": {func(s *training) {
			s.settle()
			later(s)
			s.settle()
			s.make(0)
			s.make(1)
		}, []string{"thief>o", "train-0-1,train-1-1>,"}},
		"the owner is resumed late": {func(s *training) {
			s.settle()
			s.now = s.now.Add(time.Duration(returnWithin) - time.Minute)
			s.resume()
			s.settle()
			s.now = s.now.Add(time.Duration(returnWithin) - time.Minute)
			s.make(0)
			s.make(1)
		}, []string{"train-0-1,train-1-1>o,o", "thief>"}},
		"the scheduler starts again": {func(s *training) {
			if err := s.m.rebuild(); err != nil {
				s.t.Fatal(err)
			}
			s.settle()
			s.make(0)
			s.make(1)
		}, []string{"thief>o", "train-0-1,train-1-1>,"}},
		"the new place is cordoned": {func(s *training) {
			s.settle()
			s.node("o", "", func(n *v1.Node) { n.Spec.Unschedulable = true })
			s.make(0)
			s.make(1)
		}, []string{"train-0-1,train-1-1>,", "thief>"}},
		"the new place is lost": {func(s *training) {
			s.settle()
			s.m.nodeGone("o")
			s.settle()
			s.make(0)
			s.make(1)
		}, []string{"train-0-1,train-1-1>,", "thief>"}},
		// The engine forgot the places with the node: another pod has them when it is back.
		"the new place is lost and comes back": {func(s *training) {
			s.settle()
			s.m.nodeGone("o")
			s.settle()
			s.node("o", "r1")
			s.pod("urgent", asking(v1alpha1.GPUResource, "8"), func(p *v1.Pod) { p.Spec.Priority = new(int32(9)) })
			s.on("urgent>o")
			s.resume()
			s.make(0)
			s.make(1)
		}, []string{"train-0-1,train-1-1>,", "urgent>o", "thief>"}},
		"they ask for something else": {func(s *training) {
			s.resume()
			for i := range 2 {
				s.make(i, asking(v1alpha1.GPUResource, "1"))
			}
			s.settle()
			later(s)
		}, []string{"thief>o", "train-0-1,train-1-1>o,o"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTraining(t)
			s.stop()
			s.pod("thief", asking(v1alpha1.GPUResource, "6"))
			s.on("big>n", "thief>")
			c.happens(s)
			s.on(append(c.want, "big>n")...)
		})
	}
}

// A job that has worked for long does not stop, because more work would be lost than the other job
// gains; it does when it has saved its progress.
func TestRestartAfterACheckpoint(t *testing.T) {
	s := newTraining(t)
	s.now = s.now.Add(10 * time.Hour)
	s.pod("big", asking(v1alpha1.GPUResource, "8"))
	if s.settle(); s.stopped {
		t.Fatal("it stops, and loses 10 hours of work")
	}
	s.now = s.now.Add(time.Hour)
	for i := range 2 {
		s.pod(fmt.Sprintf("train-%d-0", i), noted(v1alpha1.LastCheckpointAnnotation, s.now.UTC().Format(time.RFC3339)))
	}
	for range 4 {
		s.now = s.now.Add(30 * time.Second)
		s.settle()
	}
	if !s.stopped {
		t.Error("it does not stop")
	}
}

// Which jobs restart: not those that do not checkpoint, nor those without an owner that makes other
// pods, nor those that say how they are moved.
func TestWhoRestarts(t *testing.T) {
	for name, c := range map[string]struct {
		with     change[*v1.Pod]
		restarts bool
	}{
		"as it is":               {func(*v1.Pod) {}, true},
		"it has no checkpoints":  {func(p *v1.Pod) { delete(p.Annotations, v1alpha1.CheckpointIntervalAnnotation) }, false},
		"it stays":               {noted(v1alpha1.MobilityAnnotation, "stays"), false},
		"it has no owner":        {func(p *v1.Pod) { p.OwnerReferences = nil; gang("g", 2)(p) }, false},
		"its owner makes others": {func(p *v1.Pod) { p.OwnerReferences[0].APIVersion, p.OwnerReferences[0].Kind = "apps/v1", "StatefulSet" }, true},
		"its owner may not":      {func(p *v1.Pod) { p.OwnerReferences[0].APIVersion, p.OwnerReferences[0].Kind = "example.com/v1", "Run" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTraining(t, c.with)
			left := false
			s.onActs = func(a *tables.Acts) { left = left || len(a.Suspend)+len(a.Evict) > 0 }
			s.pod("big", asking(v1alpha1.GPUResource, "8"))
			if s.settle(); left != c.restarts {
				t.Errorf("it restarts: %v, expected %v", left, c.restarts)
			}
		})
	}
}

// The pods of a Deployment restart one by one, and the new pod is there before the old one is gone:
// it waits for the place that is kept, and no other takes the number of the old one.
func TestReplicaRestarts(t *testing.T) {
	w := newWorld(t, func(p *core.Policy) { p.Preempt.MinRuntime = 0 })
	for _, node := range []string{"n", "o"} {
		w.node(node, "r1")
		w.pod("on-"+node, asking(v1alpha1.GPUResource, "6"), at(node))
	}
	w.settle()
	saves := noted(v1alpha1.CheckpointIntervalAnnotation, "1m")
	w.pod("a", replica, saves, asking(v1alpha1.GPUResource, "2"))
	w.pod("b", replica, saves, asking(v1alpha1.GPUResource, "2"))
	w.on("a,b>n,o")
	w.gone("on-n")
	w.gone("on-o")
	w.pod("big", asking(v1alpha1.GPUResource, "8"))
	w.now = w.now.Add(time.Second)
	list := w.m.decide(core.Time(w.now.UnixNano())).Evict
	if len(list) != 1 || list[0].Reason != core.Consolidation.String() || !strings.Contains(list[0].Message, "starts again") {
		t.Fatalf("evicted: %+v", list)
	}
	old := list[0].Of.Object.Name
	w.m.acts.Drop()
	to := map[string]string{"n": "o", "o": "n"}[w.pods["default/"+old].Spec.NodeName]
	w.pod("c", replica, saves, asking(v1alpha1.GPUResource, "2"))
	w.on("c>", "big>")
	w.gone(old)
	w.on("c>" + to)
	if w.pods["default/big"].Spec.NodeName == "" {
		t.Error("big waits")
	}
	if g := w.m.Pods[w.pods["default/c"].UID].Group; len(g.Slots) != 2 || g.Returning != nil {
		t.Errorf("the group has %d numbers", len(g.Slots))
	}
}
