package kube

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// leave has a pod of another's evicted, as long as it takes.
func (x *moving) leave(name string) {
	x.evicting = make(chan struct{}, 1)
	p := x.pod(name)
	go x.evict(context.Background(), departure{namespace: p.Namespace, name: p.Name, uid: p.UID, reason: "PriorityPreemption", message: "room"})
	synctest.Wait()
}

// What a budget does not allow is asked again until the pod is gone.
func TestEvictWithinABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMoving(t)
		x.budget.Store(true)
		x.leave("old")
		if x.pod("old") == nil {
			t.Fatal("the budget does not count")
		}
		x.budget.Store(false)
		time.Sleep(evictPause) // of the bubble's time
		synctest.Wait()
		if x.pod("old") != nil {
			t.Error("it is not asked again")
		}
	})
}

// Who does not decide on a pod any more does not ask again.
func TestEvictOfAShardThatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMoving(t)
		x.budget.Store(true)
		x.leave("old")
		x.held[0].Store(false)
		x.budget.Store(false)
		time.Sleep(time.Hour)
		synctest.Wait()
		if x.pod("old") == nil {
			t.Error("it is evicted by who does not decide on it")
		}
	})
}

// A pod that is told to leave says for what.
func TestEvictSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMoving(t)
		x.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return a.GetSubresource() == "eviction", nil, nil // it is ending
		})
		x.leave("old")
		for _, c := range x.pod("old").Status.Conditions {
			if c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == v1alpha1.PreemptionReason && c.Message == "PriorityPreemption: room" {
				return
			}
		}
		t.Errorf("it says %+v", x.pod("old").Status.Conditions)
	})
}
