package e2e

import (
	"maps"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// A pod is bound to a node with room, told its GPU, runs and ends.
func TestPod(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.schedule()
	c.create(pod("p", asks(2), runsFor(100*time.Millisecond)))
	c.bound("p")
	if got := c.get("p").Annotations[v1alpha1.GPUsAnnotation]; len(strings.Split(got, ",")) != 2 {
		t.Errorf("it was given the GPUs %q; expected two", got)
	}
	c.phase(v1.PodSucceeded, "p")
}

// A pod that does not fit says why, in the words of autoscalers too, and says no
// more when it starts.
func TestPodWaits(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.schedule()
	c.create(pod("first", asks(8)))
	c.bound("first")
	c.create(pod("second", asks(8)))
	c.waits("second", "Resources", "8")
	if k := condition(c.get("second"), v1.PodScheduled); k == nil || k.Status != v1.ConditionFalse || k.Reason != v1.PodReasonUnschedulable {
		t.Errorf("its condition PodScheduled is %+v; expected False, Unschedulable", k)
	}
	c.until("an event says so", func() error {
		_, err := c.event("second", "Resources")
		return err
	})
	c.delete("first")
	c.bound("second")
	c.until("it is said to wait no more", func() error { return waitsNoMore(c.get("second")) })
}

// A pod whose annotation is wrong is told so.
func TestPodMisconfigured(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.schedule()
	c.create(pod("p", note(v1alpha1.KindAnnotation, "traning")))
	c.waits("p", tables.ReasonMisconfigured, v1alpha1.KindAnnotation, "training")
}

// Pods of other schedulers count: their GPUs are not given away.
func TestPodsOfOthers(t *testing.T) {
	c := begin(t)
	c.node("n")
	theirs := pod("theirs", asks(6))
	theirs.Spec.SchedulerName = "other"
	c.create(theirs)
	c.must(admin.CoreV1().Pods(c.namespace).Bind(ctx(), &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Target: v1.ObjectReference{Kind: "Node", Name: "n"},
	}, metav1.CreateOptions{}))
	c.schedule()
	c.create(pod("ours", asks(4)))
	c.waits("ours", "Resources")
	c.unbound("ours")
	c.delete("theirs")
	c.bound("ours")
}

// Resources that mean nothing to the scheduler are counted too, those that pods of
// other schedulers have as well.
func TestPodsOfNamedAmounts(t *testing.T) {
	const hca = "rdma/hca"
	c := begin(t)
	c.node("n", func(n *v1.Node) {
		n.Status.Capacity[hca], n.Status.Allocatable[hca] = resource.MustParse("4"), resource.MustParse("3")
		n.Status.Capacity[v1.ResourceEphemeralStorage], n.Status.Allocatable[v1.ResourceEphemeralStorage] = resource.MustParse("100Gi"), resource.MustParse("90Gi")
	})
	with := func(name v1.ResourceName, quantity string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			r := &p.Spec.Containers[0].Resources
			r.Limits = maps.Clone(r.Limits)
			r.Limits[name] = resource.MustParse(quantity)
			r.Requests = r.Limits
		}
	}
	theirs := pod("theirs", with(hca, "1"))
	theirs.Spec.SchedulerName = "other"
	c.create(theirs)
	c.must(admin.CoreV1().Pods(c.namespace).Bind(ctx(), &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Target: v1.ObjectReference{Kind: "Node", Name: "n"},
	}, metav1.CreateOptions{}))
	c.schedule()
	c.create(pod("first", with(hca, "1"), with(v1.ResourceEphemeralStorage, "60Gi")))
	c.bound("first")
	c.create(pod("second", with(hca, "2")), pod("third", with(v1.ResourceEphemeralStorage, "60Gi")), pod("fourth", with("vendor.com/fpga", "1")))
	c.waits("second", "InsufficientOther", "1 of 3 rdma/hca free")
	if k := condition(c.get("second"), v1.PodScheduled); k == nil || k.Reason != v1.PodReasonUnschedulable {
		t.Errorf("its condition PodScheduled is %+v; expected Unschedulable", k)
	}
	c.waits("third", "InsufficientOther")
	c.waits("fourth", "NoNode")
	c.unbound("second", "third", "fourth")
	c.delete("theirs")
	c.bound("second")
	c.delete("first")
	c.bound("third")
}

// Where a device plugin chooses GPUs, a node has pods that it counts or pods that Muster alone gives GPUs, never both,
// in whatever order they come, and also if they come together.
func TestPodFractionApart(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 2, gpus(4, "A10"))
	c.schedule()
	quarter := func(name string) *v1.Pod { return pod(name, asks(0), note(v1alpha1.GPUFractionAnnotation, "0.25")) }
	counted := func(name string, n string) *v1.Pod { return pod(name, asks(0), note(v1alpha1.GPUCountAnnotation, n)) }
	c.create(quarter("part"))
	part := c.bound("part")[0]
	c.create(pod("whole"))
	whole := c.bound("whole")[0]
	c.create(quarter("part2"), counted("two", "2"), pod("whole2", asks(3)))
	if on := c.bound("part2", "two", "whole2"); part == whole || on[0] != part || on[1] != part || on[2] != whole {
		t.Errorf("the first part is on %s and the first whole on %s; then parts and wholes are on %v", part, whole, on)
	}
	c.create(pod("third"))
	c.waits("third", "GPUSharing", "the nodes with room for them take 0: 1 have pods whose GPUs are parts")
	c.delete("part", "part2", "two")
	c.bound("third")
	c.create(quarter("part3"))
	c.waits("part3", "GPUSharing", "1 have pods whose GPUs their nodes picked")
	c.editNode(whole, func(n *v1.Node) { n.Labels[v1alpha1.GPUSharingLabel] = v1alpha1.GPUSharingMixed })
	c.delete("whole2")
	if on := c.bound("part3")[0]; on != whole {
		t.Errorf("a part is on %s; expected the node with the label, %s", on, whole)
	}
}

// A part of a GPU is given out by device: parts share one as far as it goes, and
// whole GPUs go to others, on a node that allows both.
func TestPodFraction(t *testing.T) {
	c := begin(t)
	c.node("n", gpus(2, "A10"), mixed)
	c.schedule()
	half := func(name string) *v1.Pod { return pod(name, asks(0), note(v1alpha1.GPUFractionAnnotation, "0.5")) }
	c.create(half("a"), half("b"), pod("whole"))
	c.bound("a", "b", "whole")
	a, b, whole := c.get("a").Annotations, c.get("b").Annotations, c.get("whole").Annotations
	if a[v1alpha1.ShareAnnotation] != "500" || a[v1alpha1.GPUsAnnotation] == "" || a[v1alpha1.GPUsAnnotation] != b[v1alpha1.GPUsAnnotation] {
		t.Errorf("two halves are %v and %v; expected the same GPU", a, b)
	}
	if whole[v1alpha1.GPUsAnnotation] == a[v1alpha1.GPUsAnnotation] {
		t.Errorf("a whole GPU and a half are both %v", whole)
	}
	c.create(half("c"))
	c.waits("c", "Resources")
}

// A pod goes to a model it can use, and waits when there is none of them.
func TestPodModels(t *testing.T) {
	c := begin(t)
	c.node("a10", gpus(8, "A10"))
	c.node("h800", gpus(8, "H800"))
	c.schedule()
	c.create(
		pod("one", note(v1alpha1.GPUModelsAnnotation, "H800")),
		pod("either", asks(8), note(v1alpha1.GPUModelsAnnotation, "H800|A10")),
		pod("neither", note(v1alpha1.GPUModelsAnnotation, "A100")))
	if n := c.bound("one", "either"); n[0] != "h800" || n[1] != "a10" {
		t.Errorf("they are on %v; expected h800 and a10", n)
	}
	c.waits("neither", "NoNode")
}

// A job that waits for another to end is told when it starts, by the other's
// walltime.
func TestExpectedStart(t *testing.T) {
	c := begin(t)
	c.node("n", gpus(2, "H800"))
	c.schedule()
	c.create(pod("runs", asks(2), note(v1alpha1.WalltimeAnnotation, "1h")))
	c.bound("runs")
	c.create(pod("next", asks(2)))
	c.waits("next", "Resources", translate.StartMark) // the first forecast may be from before it came
	said := condition(c.get("next"), v1alpha1.WaitingCondition).Message
	_, at, _ := strings.Cut(said, translate.StartMark)
	start, err := time.Parse(time.RFC3339, at)
	if until := time.Until(start); err != nil || until < 50*time.Minute || until > 61*time.Minute {
		t.Errorf("it says %q", said)
	}
}
