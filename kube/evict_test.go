package kube

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
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

// A pod that is evicted for others gets no more than a while to end, whatever it asks
// for, and never more than that; on a drained node it gets what it asks for.
func TestGraceIsBounded(t *testing.T) {
	for _, c := range []struct {
		asks   *int64
		reason string
		want   *int64
	}{
		{new(int64(3153600000)), core.QuotaReclaim.String(), new(int64(600))},
		{new(int64(601)), core.PriorityPreemption.String(), new(int64(600))},
		{new(int64(601)), causeOvercommitted, new(int64(600))},
		{new(int64(600)), core.QuotaReclaim.String(), nil},
		{new(int64(0)), core.QuotaReclaim.String(), nil},
		{nil, core.QuotaReclaim.String(), nil},
		{new(int64(3153600000)), causeDrained, nil},
	} {
		for _, job := range []bool{false, true} {
			for _, refused := range []bool{false, true} {
				p := newTestPod("p", 1)
				if job {
					jobPod(p)
				}
				p.Spec.TerminationGracePeriodSeconds = c.asks
				client := fake.NewClientset(p)
				var got []*int64
				client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
					got = append(got, a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).DeleteOptions.GracePeriodSeconds)
					if refused {
						return true, nil, apierrors.NewInternalError(errors.New("two budgets"))
					}
					return true, nil, nil
				})
				client.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
					got = append(got, a.(clienttesting.DeleteActionImpl).DeleteOptions.GracePeriodSeconds)
					return true, nil, nil
				})
				s := &Scheduler{log: slog.New(slog.DiscardHandler), client: client, metrics: newMetrics()}
				d := (&evictAct{pod: &pod{object: trimPod(p)}, reason: c.reason}).onItsWay()
				if err := s.askToLeave(t.Context(), d.namespace, d.name, d.uid, d.counts, refused, d.grace); err != nil {
					t.Error(err)
				}
				for _, g := range got {
					if (g == nil) != (c.want == nil) || g != nil && *g != *c.want {
						t.Errorf("%+v, a Job's %v: it gets %v", c, job, g)
					}
				}
				if len(got) == 0 {
					t.Error("it is not asked to leave")
				}
				if _, why, _ := s.stop(t.Context(), &suspension{pods: []departure{d}}); c.want != nil && !strings.Contains(why, "asks for more than 10m0s to end") {
					t.Errorf("its owner would be suspended, or not for %q", why)
				}
			}
		}
	}
}
