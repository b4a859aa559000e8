package e2e

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/devcluster/fleet"
)

// A cordoned node takes no new pods and keeps those it has.
func TestNodeCordoned(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.schedule()
	c.create(pod("before"))
	c.bound("before")
	c.editNode("n", func(n *v1.Node) { n.Spec.Unschedulable = true })
	c.until("the scheduler knows", func() error { return c.openNodes(0) })
	c.create(pod("after"))
	c.waits("after", "Resources")
	c.unbound("after")
	c.editNode("n", func(n *v1.Node) { n.Spec.Unschedulable = false })
	c.bound("after")
	if c.get("before").DeletionTimestamp != nil {
		t.Error("a pod of a cordoned node was told to leave")
	}
}

// Taints keep away what does not tolerate them.
func TestNodeTainted(t *testing.T) {
	c := begin(t)
	c.node("n", func(n *v1.Node) {
		n.Spec.Taints = []v1.Taint{{Key: "dedicated", Value: "team", Effect: v1.TaintEffectNoSchedule}}
	})
	c.schedule()
	tolerates := func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Key: "dedicated", Value: "team"}} }
	c.create(pod("stranger"), pod("member", tolerates))
	c.bound("member")
	c.waits("stranger", "NoNode")
	c.unbound("stranger")
}

// A node that is added is used at once, and one whose labels change is what it
// is then.
func TestNodeAdded(t *testing.T) {
	c := begin(t)
	c.schedule()
	wants := func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} }
	c.create(pod("any"), pod("fast", wants))
	c.waits("any", "NoNode")
	c.node("n")
	c.bound("any")
	c.unbound("fast")
	c.editNode("n", func(n *v1.Node) { n.Labels["disk"] = "fast" })
	c.bound("fast")
}

// The pods of a node that is not reachable keep their GPUs until they are gone;
// what is made in their place goes elsewhere.
func TestNodeFails(t *testing.T) {
	c := begin(t)
	c.node("bad")
	c.schedule()
	c.group("train", 2)
	c.bound(c.several("train", 0, 2, asks(4), ofGroup("train"))...)
	c.node("good")
	c.until("the scheduler knows both", func() error { return c.openNodes(2) })
	c.must(fleet.FailNode(ctx(), admin, "bad"))
	c.until("the scheduler knows", func() error { return c.openNodes(1) })
	for _, name := range []string{"train-0", "train-1"} {
		c.kill(name)
		c.create(pod(name, asks(4), ofGroup("train")))
	}
	for _, n := range c.bound("train-0", "train-1") {
		if n != "good" {
			t.Errorf("a pod is on %s; expected good", n)
		}
	}
}

// When a node is taken out of the cluster, its pods count until they are gone,
// and it may come back.
func TestNodeRemoved(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.schedule()
	c.create(pod("p", asks(8)))
	c.bound("p")
	c.must(fleet.RemoveNode(ctx(), admin, "n"))
	c.until("the scheduler knows", func() error { return c.openNodes(0) })
	c.create(pod("q", asks(8)))
	c.must(fleet.RepairNode(ctx(), admin, "n"))
	c.until("the scheduler knows", func() error { return c.openNodes(1) })
	c.waits("q", "Resources")
	c.unbound("q")
	c.kill("p")
	c.bound("q")
}

// A GPU that fails is not given out until it works again.
func TestNodeGPUFails(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.must(fleet.FailGPU(ctx(), admin, "n", 3))
	c.schedule()
	c.create(pod("whole", asks(8)))
	c.waits("whole", "Resources")
	c.create(pod("part", asks(7)))
	c.bound("part")
	c.delete("part")
	c.must(fleet.RepairGPU(ctx(), admin, "n", 3))
	c.bound("whole")
}

// openNodes returns an error unless the scheduler takes so many nodes for open.
func (c *cluster) openNodes(n int) error {
	s, err := c.scheduler.Stats(ctx())
	if err == nil && s.Open != n {
		return fmt.Errorf("it takes %d nodes for open; expected %d", s.Open, n)
	}
	return err
}

// kill takes a pod out of the API at once, as the garbage collector does with
// those of nodes that are gone.
func (c *cluster) kill(name string) {
	c.Helper()
	old := c.get(name)
	c.must(admin.CoreV1().Pods(c.namespace).Delete(ctx(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	c.gone(old)
}
