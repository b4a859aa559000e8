package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/frag"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/console"
)

var mobile = note(v1alpha1.MobilityAnnotation, "replaceable")

// scattered is a service of two pods with two GPUs each, each alone on its node, n0 and n1.
func (c *cluster) scattered() *service {
	c.Helper()
	c.nodesNamed("n", 2)
	c.create(pod("filler", asks(6), func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelHostname: "n0"} }))
	c.bound("filler")
	s := c.service(2, asks(2), mobile)
	s.on("n0")
	s.on("n1")
	c.kill("filler")
	return s
}

// A policy with defragmentation puts the pods of a service on one node. All the time as many
// are ready as are wanted, and no pod is left that has no owner.
func TestDefragmentationVacatesANode(t *testing.T) {
	c := begin(t)
	c.schedule(func(k *kube.Config) {
		k.Policy.Defrag = core.Defrag{Every: core.Second / 2, Partition: 500, Depth: 3, Rounds: 5}
	})
	s := c.scattered()
	c.until("one node has both pods", func() error {
		on := map[string]int{}
		for _, p := range c.podsWith("app", "serve") {
			if on[p.Spec.NodeName]++; metav1.GetControllerOf(&p) == nil || p.DeletionTimestamp != nil {
				return fmt.Errorf("%s moves", p.Name)
			}
		}
		if len(on) != 1 || on["n0"]+on["n1"] != 2 {
			return fmt.Errorf("pods are on %v", on)
		}
		return nil
	})
	s.neverFewer()
}

// A user moves a pod; the scheduler is killed as soon as the pod has no owner, and the next one
// goes on. Whatever the moment of the kill, the pod is gone in the end, and another is there.
func TestMoveKilled(t *testing.T) {
	c := begin(t)
	p := c.process()
	s := c.scattered()
	old := s.on("n0")
	c.move(old, "n1 now")
	c.until("it has been detached", func() error {
		p, err := admin.CoreV1().Pods(c.namespace).Get(ctx(), old.Name, metav1.GetOptions{})
		if err == nil && p.Labels[v1alpha1.MovingLabel] == "" {
			return errors.New("it has not")
		}
		return nil // also when it is gone already
	})
	p.kill()
	p = c.process()
	defer p.interrupt()
	c.gone(old)
	s.neverFewer()
	c.until("two pods run", func() error {
		pods := c.podsWith("app", "serve")
		for i := range pods {
			if p := &pods[i]; p.Spec.NodeName == "" || metav1.GetControllerOf(p) == nil {
				return fmt.Errorf("%s is %v on %q", p.Name, p.OwnerReferences, p.Spec.NodeName)
			}
		}
		if len(pods) != 2 {
			return fmt.Errorf("there are %d", len(pods))
		}
		return nil
	})
}

// A request that cannot be met is answered on the pod.
func TestMoveRefused(t *testing.T) {
	c := begin(t)
	c.schedule()
	s := c.scattered()
	old := s.on("n0")
	c.create(pod("full", asks(6), func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelHostname: "n1"} }))
	c.bound("full")
	c.move(old, "n1")
	c.moving(old, v1alpha1.MovingRefused)
	if k := condition(c.get(old.Name), v1alpha1.MovingCondition); !strings.HasSuffix(k.Message, "does not fit on node n1 (requested: n1)") {
		t.Errorf("the pod says %+v", k)
	}
	s.neverFewer()
}

// A user plans for the cluster with his own permissions; the scheduler makes the moves. The plan
// alone changes nothing.
func TestDefragApplied(t *testing.T) {
	c := begin(t)
	c.schedule()
	s := c.scattered()
	people, err := console.New(address)
	c.must(err)
	doc, _ := policy.ByName("default")
	survey, err := people.Survey(ctx(), doc.Policy, nil)
	c.must(err)
	plan := survey.Consolidation(core.Defrag{Partition: 500, Depth: 3, Rounds: 5})
	moves := plan.Moves
	if len(moves) != 1 || len(plan.Vacated) != 1 || plan.Vacated[0] != moves[0].From {
		t.Fatalf("the plan is %+v", plan)
	}
	if old := s.on(moves[0].From); old.UID != moves[0].UID || old.Annotations[v1alpha1.MoveAnnotation] != "" {
		t.Fatalf("the plan moves %+v; on the node is %+v", moves[0], old.ObjectMeta)
	}
	c.must(people.Apply(ctx(), c.applying(moves)))
	s.onlyOn(moves[0].To)
	s.neverFewer()
}

// A job waits for a whole node, and two nodes have two GPUs in use each: the moves that a user
// plans for the job let it start. Before, muster frag's figures say why it waits.
func TestDefragForAJob(t *testing.T) {
	c := begin(t)
	c.schedule(func(k *kube.Config) { k.Policy.Room = core.Room{} }) // else the scheduler makes them by itself
	s := c.scattered()
	c.create(pod("big", asks(8)))
	c.until("it waits", func() error {
		if k := condition(c.get("big"), v1alpha1.WaitingCondition); k == nil || k.Reason != core.Stranded.String() {
			return fmt.Errorf("it says %+v", k)
		}
		return nil
	})
	people, err := console.New(address)
	c.must(err)
	c.until("the nearest places are said", func() error {
		x, err := people.Explain(ctx(), c.namespace, "big")
		if err == nil && (len(x.Nearest) != 2 || x.Nearest[0] != "move 2 GPUs off n0") {
			err = fmt.Errorf("they are %q", x.Nearest)
		}
		return err
	})
	nodes, _, err := people.Idle(ctx())
	c.must(err)
	sh, err := frag.ParseShape("8g")
	c.must(err)
	if r := frag.Diagnose(nodes, sh, frag.Within{Level: frag.Across}); r.Split[frag.Stranded] != 12*core.WholeGPU {
		t.Errorf("the figures are %+v", r)
	}
	doc, _ := policy.ByName("default")
	survey, err := people.Survey(ctx(), doc.Policy, nil)
	c.must(err)
	plan, err := survey.RoomFor(c.namespace, "big", core.Defrag{Partition: 500, Depth: 3, Rounds: 5})
	c.must(err)
	c.must(people.Apply(ctx(), c.applying(plan.Moves)))
	c.bound("big")
	s.neverFewer()
}

// A plan that is interrupted requests no other move; the scheduler makes those that it was
// asked for.
func TestDefragInterrupted(t *testing.T) {
	c := begin(t)
	c.schedule()
	s := c.scattered()
	people, err := console.New(address)
	c.must(err)
	doc, _ := policy.ByName("default")
	survey, err := people.Survey(ctx(), doc.Policy, nil)
	c.must(err)
	moves := survey.Consolidation(core.Defrag{Partition: 500, Depth: 3, Rounds: 5}).Moves
	a := c.applying(moves)
	interrupted, stop := context.WithCancel(ctx())
	want := "interrupted: moves made: 0 of 1; the scheduler finishes the moves in progress: 1"
	a.Tell = func(line string) {
		if strings.Contains(line, "has left") { // it was fast
			want = "interrupted: moves made: 1 of 1; the scheduler finishes the moves in progress: 0"
		}
		stop() // the pod is on its way
	}
	if err := people.Apply(interrupted, a); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("it ended with %v", err)
	}
	s.onlyOn(moves[0].To)
	s.neverFewer()
}

func (c *cluster) applying(moves []console.Move) *console.Apply {
	return &console.Apply{Moves: moves, Pause: 50 * time.Millisecond, Idle: patience, Tell: func(line string) { c.Log(line) }}
}

// onlyOn waits until all pods of the service are on a node, and their owner's.
func (s *service) onlyOn(node string) {
	s.Helper()
	s.until("all pods are on "+node, func() error {
		pods := s.podsWith("app", s.name)
		for i := range pods {
			if p := &pods[i]; p.Spec.NodeName != node || metav1.GetControllerOf(p) == nil || p.DeletionTimestamp != nil {
				return fmt.Errorf("%s is on %q", p.Name, p.Spec.NodeName)
			}
		}
		if len(pods) != s.wanted {
			return fmt.Errorf("there are %d", len(pods))
		}
		return nil
	})
}

// move asks to move a pod.
func (c *cluster) move(p *v1.Pod, request string) {
	c.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.MoveAnnotation, request)
	_, err := admin.CoreV1().Pods(c.namespace).Patch(ctx(), p.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	c.must(err)
}
