package e2e

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/tables"
)

// twoLeaves makes two leaves of two nodes; the first node of each is taken.
func twoLeaves(c *cluster) {
	c.node("a0", inLeaf("a"))
	c.node("a1", inLeaf("a"))
	c.node("b0", inLeaf("b"))
	c.node("b1", inLeaf("b"))
	for _, n := range []string{"a0", "b0"} {
		c.create(pod("on-"+n, asks(8), onNode(n)))
	}
}

// onNode has a pod go to a node by its node selector.
func onNode(name string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelHostname: name} }
}

// A gang that must not leave a leaf waits though there are GPUs in two of them,
// and starts in one that has enough.
func TestTopologyRequired(t *testing.T) {
	for name, ask := range map[string]func(*schedulingv1beta1.PodGroup){
		"annotation": func(g *schedulingv1beta1.PodGroup) { g.Annotations[v1alpha1.RequiredTopologyAnnotation] = "leaf" },
		"native": func(g *schedulingv1beta1.PodGroup) {
			g.Spec.SchedulingConstraints = &schedulingv1beta1.PodGroupSchedulingConstraints{
				Topology: []schedulingv1beta1.TopologyConstraint{{Key: leafLabel}},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := begin(t)
			c.schedule()
			twoLeaves(c)
			c.bound("on-a0", "on-b0")
			c.group("train", 2, ask)
			pods := c.several("train", 0, 2, asks(8), ofGroup("train"))
			c.waits(pods[0], "TopologyTooTight")
			c.unbound(pods...)
			c.delete("on-b0")
			for _, n := range c.bound(pods...) {
				if n[0] != 'b' {
					t.Errorf("a pod is on %s; expected leaf b", n)
				}
			}
		})
	}
}

// A gang that would rather not leave a leaf does when it must.
func TestTopologyPreferred(t *testing.T) {
	c := begin(t)
	c.schedule()
	twoLeaves(c)
	c.bound("on-a0", "on-b0")
	prefers := func(g *schedulingv1beta1.PodGroup) { g.Annotations[v1alpha1.PreferredTopologyAnnotation] = "leaf" }
	c.group("train", 2, prefers)
	c.bound(c.several("train", 0, 2, asks(8), ofGroup("train"))...)
	// All have gone before the next gang comes: it goes wherever there is room first.
	for _, name := range []string{"on-a0", "on-b0", "train-0", "train-1"} {
		c.kill(name)
	}
	c.node("c0", inLeaf("c"))
	c.group("again", 2, prefers)
	if n := c.bound(c.several("again", 0, 2, asks(8), ofGroup("again"))...); n[0][0] != n[1][0] {
		t.Errorf("the gang is on %v; expected one leaf", n)
	}
}

// A level that there is not is named, with those there are.
func TestTopologyUnknown(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.schedule()
	c.create(pod("p", note(v1alpha1.RequiredTopologyAnnotation, "rack")))
	c.waits("p", tables.ReasonMisconfigured, `unknown topology level "rack": expected one of leaf, node, hbd`)
}
