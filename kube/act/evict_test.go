package act

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// leave has a pod of another's evicted, as long as it takes.
func (x *moving) leave(name string) {
	p := x.pod(name)
	go x.evict(context.Background(), Evict{Pod: Pod{p.Namespace, p.Name, p.UID}, Reason: "PriorityPreemption", Message: "room"})
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

// A budget that refuses an eviction for reclaim is overridden after the policy's time, and not before. The pod
// says so.
func TestEvictOverridesABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMoving(t)
		var refused atomic.Int32
		var deleted, marked atomic.Bool
		x.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			patch := string(a.(clienttesting.PatchAction).GetPatch())
			marked.Store(marked.Load() || strings.Contains(patch, string(v1.DisruptionTarget)) && strings.Contains(patch, v1alpha1.PreemptionReason))
			return false, nil, nil
		})
		x.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetSubresource() != "eviction" {
				return false, nil, nil
			}
			refused.Add(1)
			err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause}}
			return true, nil, err
		})
		x.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			if !marked.Load() {
				t.Error("it is deleted without the condition")
			}
			deleted.Store(true)
			return true, nil, nil // it is ending
		})
		p := x.pod("old")
		go x.evict(context.Background(), Evict{Pod: Pod{p.Namespace, p.Name, p.UID}, Reason: "QuotaReclaim", Message: "for train", DespiteBudgets: true, BudgetTimeout: 12 * time.Second})
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if deleted.Load() || refused.Load() != 3 {
			t.Fatalf("after 11 s: deleted %t, refused %d times", deleted.Load(), refused.Load())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !deleted.Load() {
			t.Fatal("it is not deleted after 12 s")
		}
		said := ""
		for _, c := range x.pod("old").Status.Conditions {
			if c.Type == v1.DisruptionTarget {
				said = c.Message
			}
		}
		if want := "QuotaReclaim: for train; its disruption budget was overridden after 12s"; said != want {
			t.Errorf("it says %q, expected %q", said, want)
		}
	})
}

// A conflict does not say that a pod is gone: it is read, and asked to leave again.
func TestEvictAfterAConflict(t *testing.T) {
	for name, c := range map[string]struct {
		is   func(*v1.Pod)
		asks int32 // that are refused; more is one that is not
		gone bool
	}{
		"it has changed":       {func(*v1.Pod) {}, 3, true},
		"it is being deleted":  {func(p *v1.Pod) { p.DeletionTimestamp = &p.CreationTimestamp }, 1, false},
		"another has its name": {func(p *v1.Pod) { p.UID = "another" }, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newMoving(t)
				read := x.pod("old").DeepCopy()
				c.is(read)
				var asked atomic.Int32
				x.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
					if a.GetSubresource() != "eviction" || asked.Add(1) > 3 {
						return false, nil, nil
					}
					return true, nil, apierrors.NewConflict(v1.Resource("pods"), "old", errors.New("the object has been modified"))
				})
				var noticed atomic.Bool // the test looks
				x.PrependReactor("get", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
					return !noticed.Load(), read, nil
				})
				go x.evict(context.Background(), Evict{Pod: Pod{"default", "old", "old"}, Reason: "PriorityPreemption", Message: "room"})
				time.Sleep(time.Hour)
				synctest.Wait()
				noticed.Store(true)
				if gone := x.pod("old") == nil; gone != c.gone || min(asked.Load(), 3) != c.asks {
					t.Errorf("gone %t after %d attempts; expected %t after %d", gone, asked.Load(), c.gone, c.asks)
				}
			})
		})
	}
}

// Who does not decide on a pod any more does not ask again.
func TestEvictOfAShardThatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMoving(t)
		x.budget.Store(true)
		x.leave("old")
		x.others.Store(true)
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

// The time that a pod gets to end goes with each eviction of it, those that are a trial
// too, and with the deletion in its stead. Its owner is not suspended: its controller would
// give the pod all the time that it asks for.
func TestGrace(t *testing.T) {
	for _, want := range []*int64{nil, new(int64(600))} {
		for _, job := range []bool{false, true} {
			for _, refused := range []bool{false, true} {
				p := newTestPod("p", 1)
				if job {
					jobPod(p)
				}
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
				a := New(Config{Client: client})
				var override func() error
				if refused {
					override = func() error { return nil }
				}
				if _, err := a.askToLeave(t.Context(), podNamed("p"), job, override, want); err != nil {
					t.Error(err)
				}
				for _, g := range got {
					if (g == nil) != (want == nil) || g != nil && *g != *want {
						t.Errorf("want %v, a Job's %v: it gets %v", want, job, g)
					}
				}
				if len(got) == 0 {
					t.Error("it is not asked to leave")
				}
				e := Evict{Pod: podNamed("p"), Grace: want}
				if _, why, _ := a.stop(t.Context(), &Suspend{Pods: []Evict{e}}); want != nil && !strings.Contains(why, "has a grace period longer than 600 s") {
					t.Errorf("its owner would be suspended, or not for %q", why)
				}
			}
		}
	}
}

// savers notes which pods are asked to save themselves, and whether the pod "old" was there still.
type savers struct {
	x     *moving
	asked []string
	inAll time.Duration
	takes time.Duration
	err   error
}

func (s *savers) Save(_ context.Context, pods []Saving, inAll time.Duration) error {
	s.x.clock = s.x.clock.Add(s.takes)
	s.inAll = inAll
	for _, p := range pods {
		s.asked = append(s.asked, fmt.Sprintf("%s on %s within %v, there: %t", p.Name, p.Node, p.Within, s.x.pod("old") != nil))
	}
	return s.err
}

// A pod saves itself before it is evicted, and is evicted whether it could or not. One that cannot is not asked.
func TestSaveBeforeEviction(t *testing.T) {
	for _, x := range []struct {
		within time.Duration
		err    error
		want   []string
	}{
		{time.Minute, nil, []string{"old on n within 1m0s, there: true"}},
		{time.Minute, errors.New("disk full"), []string{"old on n within 1m0s, there: true"}},
		{0, nil, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMoving(t)
			s := &savers{x: m, err: x.err}
			m.saver = s
			p := m.pod("old")
			go m.evict(context.Background(), Evict{Pod: Pod{p.Namespace, p.Name, p.UID}, Reason: Moving, Message: "it moves", Node: "n", SaveWithin: x.within})
			synctest.Wait()
			if !slices.Equal(s.asked, x.want) {
				t.Errorf("asked: %q; expected %q", s.asked, x.want)
			}
			if m.pod("old") != nil {
				t.Error("it is not evicted")
			}
		})
	}
}

// A pod that makes room for another has, for its save and its end, as long as the policy says. One that says that it takes longer to save
// itself is not asked, and ends as any other; and so does one that could not save itself.
func TestSaveWithinNotice(t *testing.T) {
	for _, x := range []struct {
		name          string
		within, takes time.Duration
		err           error
		asked         bool
		grace         *int64
	}{
		{"it is saved early", time.Minute, 20 * time.Second, nil, true, nil},
		{"little time is left to end", time.Minute, 70 * time.Second, nil, true, new(int64(20))},
		{"no time is left", time.Minute, 90 * time.Second, nil, true, new(int64(1))},
		{"it cannot save itself", time.Minute, 80 * time.Second, errors.New("disk full"), true, nil},
		{"it takes too long", 91 * time.Second, 0, nil, false, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMoving(t)
			s := &savers{x: m, err: x.err, takes: x.takes}
			m.saver = s
			var grace []*int64
			m.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
				grace = append(grace, a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).DeleteOptions.GracePeriodSeconds)
				return true, nil, nil
			})
			p := m.pod("old")
			e := Evict{Pod: Pod{p.Namespace, p.Name, p.UID}, Reason: "PriorityPreemption", Node: "n", SaveWithin: x.within, Notice: 90 * time.Second, Asks: 60}
			m.evictTogether(context.Background(), []Evict{e, e})
			synctest.Wait()
			if asked := len(s.asked) == 2; asked != x.asked || asked && s.inAll != e.Notice {
				t.Errorf("%s: asked %q, within %v in all", x.name, s.asked, s.inAll)
			}
			for _, g := range grace {
				if (g == nil) != (x.grace == nil) || g != nil && *g != *x.grace {
					t.Errorf("%s: it has %v to end; expected %v", x.name, g, x.grace)
				}
			}
			if len(grace) != 2 {
				t.Errorf("%s: %d pods are evicted", x.name, len(grace))
			}
		})
	}
}
