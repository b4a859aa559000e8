package e2e

import (
	"testing"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/tables"
)

// A gang that fits is bound whole, and its PodGroup says so.
func TestGang(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 2)
	c.schedule()
	c.group("train", 4)
	c.bound(c.several("train", 0, 4, asks(4), ofGroup("train"))...)
	c.groupIs("train", schedulingv1beta1.PodGroupInitiallyScheduled, metav1.ConditionTrue, "Scheduled")
}

// Of a gang that does not fit nothing is bound, and everybody is told why: a
// gang that comes later and fits starts.
func TestGangTooLarge(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 2)
	c.schedule()
	c.create(pod("other"))
	c.bound("other")
	c.group("big", 4)
	big := c.several("big", 0, 4, asks(4), ofGroup("big"))
	for _, p := range big {
		c.waits(p, "Resources")
	}
	c.groupIs("big", v1alpha1.WaitingCondition, metav1.ConditionTrue, "Resources", "4 x 4")
	c.groupIs("big", schedulingv1beta1.PodGroupInitiallyScheduled, metav1.ConditionFalse, schedulingv1beta1.PodGroupReasonUnschedulable)
	c.unbound(big...)
	c.group("small", 2)
	c.bound(c.several("small", 0, 2, asks(4), ofGroup("small"))...)
	c.unbound(big...)
}

// A gang that the whole cluster could not hold is told so.
func TestGangForNoCluster(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 2)
	c.schedule()
	c.group("big", 5)
	big := c.several("big", 0, 5, asks(4), ofGroup("big"))
	c.waits(big[4], "NoNode")
	c.groupIs("big", v1alpha1.WaitingCondition, metav1.ConditionTrue, "NoNode")
	c.unbound(big...)
}

// A gang waits for pods that come late, then for its PodGroup, and starts with
// the last.
func TestGangCollects(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.schedule()
	early := c.several("train", 0, 2, ofGroup("train"))
	c.waits(early[0], tables.ReasonPodGroupNotFound)
	c.group("train", 3)
	c.waits(early[1], tables.ReasonCollecting, "2 of the 3")
	c.unbound(early...)
	late := c.several("train", 2, 1, ofGroup("train"))
	c.bound(append(early, late...)...)
}

// Pods that come to a gang that runs join it, one by one.
func TestGangGrows(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.schedule()
	c.group("train", 2)
	c.bound(c.several("train", 0, 2, ofGroup("train"))...)
	c.bound(c.several("train", 2, 3, ofGroup("train"))...)
	more := c.several("train", 5, 1, asks(8), ofGroup("train"))
	c.waits(more[0], "Resources")
}

// When a gang loses more pods than it can, and they are made again, it gets
// them again; what is bound is never fewer than it needs.
func TestGangMemberReplaced(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.schedule()
	c.group("train", 3)
	pods := c.several("train", 0, 3, asks(2), ofGroup("train"))
	c.bound(pods...)
	old := c.get(pods[1])
	c.delete(old.Name)
	c.gone(old)
	c.create(pod(old.Name, asks(2), ofGroup("train")))
	c.bound(pods...)
}

// Two gangs that fit one at a time never hold half of the cluster each.
func TestGangsDoNotBlockEachOther(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 2)
	c.group("a", 3)
	c.group("b", 3)
	for i := range 3 {
		c.several("a", i, 1, asks(4), ofGroup("a"))
		c.several("b", i, 1, asks(4), ofGroup("b"))
	}
	c.schedule()
	c.bound("a-0", "a-1", "a-2")
	c.waits("b-0", "Resources")
	c.unbound("b-0", "b-1", "b-2")
	c.delete("a-0", "a-1", "a-2")
	c.bound("b-0", "b-1", "b-2")
}
