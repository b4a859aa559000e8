package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube"
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
		return nil
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

// move asks to move a pod.
func (c *cluster) move(p *v1.Pod, request string) {
	c.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.MoveAnnotation, request)
	_, err := admin.CoreV1().Pods(c.namespace).Patch(ctx(), p.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	c.must(err)
}
