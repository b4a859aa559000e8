package kube

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/lease"
	"github.com/muster-sched/muster/kube/mirror"
	"github.com/muster-sched/muster/kube/recovery"
	"github.com/muster-sched/muster/kube/stats"
)

// newTenure is a scheduler with a fake API that has Leases.
func newTenure(t *testing.T, shards []string, objects ...runtime.Object) *Scheduler {
	t.Helper()
	divided, err := lease.ParseShards(shards)
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset(objects...)
	leader := lease.Leader{Namespace: "system", Identity: "a"}
	leader.Settle()
	return &Scheduler{
		config: Config{Leader: leader, Shards: divided}, ready: make(chan struct{}),
		log: slog.New(slog.DiscardHandler), now: time.Now, client: client, box: mirror.NewMailbox(), metrics: stats.NewMetrics(),
		actor: act.New(act.Config{Client: client}), held: make([]atomic.Bool, len(divided)),
		recovery: recovery.New(recovery.Config{Client: client}),
	}
}

// An instance that begins to decide has seen all that was bound before.
func TestCatchUp(t *testing.T) {
	onNode := func(name string) *v1.Pod {
		p := podOf(name, 1)
		p.Spec.NodeName = "n"
		return p
	}
	known, late, unbound, gone, renewed := onNode("known"), onNode("late"), onNode("unbound"), onNode("gone"), onNode("renewed")
	ended := onNode("ended")
	ended.Status.Phase = v1.PodSucceeded
	other := onNode("renewed")
	other.UID = "another"
	s := newTenure(t, nil, known, late, unbound, other, ended)
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var listed []runtime.Object
	for _, p := range []*v1.Pod{known, late, unbound, gone, renewed, ended} {
		listed = append(listed, &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		})
	}
	meta := metadatafake.NewSimpleMetadataClient(scheme, listed...)
	fails := 1
	meta.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		fails--
		return fails >= 0, nil, errors.New("no")
	})
	s.metadata = meta

	y := newShown(t)
	waits := podOf("unbound", 1)
	y.see(known, waits)
	done := make(chan bool, 1)
	go func() { done <- tenure{s}.CatchUp(context.Background()) }()
	asked := 0
	for deadline := time.After(time.Minute); ; {
		select {
		case <-s.box.Ready:
			for _, f := range s.box.Take(nil) {
				f(y.Mirror)
				asked++
			}
			switch asked { // what it lacks is seen in time
			case 2:
				y.see(late)
			case 4:
				y.see(unbound)
			}
		case ok := <-done:
			if !ok || asked < 5 {
				t.Errorf("it has caught up: %t, after it looked %d times", ok, asked)
			}
			if m := y.Unseen([]metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{UID: types.UID("late")}}}); len(m) > 0 {
				t.Error("a binding was not seen")
			}
			return
		case <-deadline:
			t.Fatal("it never catches up")
		}
	}
}

// handClock is a clock that a test sets.
type handClock struct {
	mu  sync.Mutex
	now time.Duration
}

func (c *handClock) read() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += d
}

// leading has a scheduler take part in an election, in a synctest bubble, with the bindings
// that the API server has; the clock is that of its fence. The caller turns its loop.
func leading(t *testing.T, bound ...*v1.Pod) (s *Scheduler, clock *handClock, ctx context.Context, end func()) {
	t.Helper()
	var pods, listed []runtime.Object
	for _, p := range bound {
		pods = append(pods, p)
		listed = append(listed, &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		})
	}
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	s, clock = newTenure(t, nil, pods...), &handClock{now: time.Hour}
	s.metadata = metadatafake.NewSimpleMetadataClient(scheme, listed...)
	s.fence = lease.NewFence(&s.config.Leader, clock.read)
	s.election = lease.New(lease.Config{
		Leader: s.config.Leader, Shards: s.config.Shards, Client: s.client, Fence: s.fence, Holder: tenure{s}, Log: s.log, Now: s.now,
		Requested: s.metrics.Request,
	})
	ctx, cancel := context.WithCancelCause(context.Background())
	stopped := make(chan struct{})
	go s.election.Run(ctx, stopped, cancel)
	return s, clock, ctx, func() {
		cancel(nil)
		close(stopped)
	}
}

// An instance that has the Lease decides when it knows what was bound before.
func TestNothingIsDecidedBeforeWhatWasBoundIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := podOf("late", 1)
		p.Spec.NodeName = "n"
		s, _, ctx, end := leading(t, p)
		y := newShown(t)
		go func() {
			for {
				select {
				case <-s.box.Ready:
					for _, f := range s.box.Take(nil) {
						f(y.Mirror)
					}
				case <-ctx.Done():
					return
				}
			}
		}()
		synctest.Wait()
		if s.held[0].Load() {
			t.Error("it decides, and does not know all")
		}
		s.box.Put(func(*mirror.Mirror) { y.see(p) })
		time.Sleep(time.Second)
		synctest.Wait()
		if !s.held[0].Load() {
			t.Error("it does not decide, and knows all")
		}
		end()
	})
}

// Nothing is decided while another may hold the lease, and all goes on when it turns
// out that none did.
func TestNothingIsDecidedWithAnOldLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, clock, ctx, end := leading(t)
		s.mirror = newShown(t).Mirror
		ended := make(chan bool)
		go func() { defer close(ended); s.loop(ctx) }()
		synctest.Wait()
		if !s.held[0].Load() {
			t.Fatal("it does not decide")
		}
		clock.pass(11 * time.Second) // as if it had been stopped for that time
		took := make(chan bool, 1)
		s.box.Put(func(*mirror.Mirror) { took <- s.fence.Stale() })
		synctest.Wait()
		if len(took) > 0 {
			t.Error("it was taken in while the lease was old")
		}
		time.Sleep(s.config.Leader.RetryPeriod * 2)
		synctest.Wait()
		if len(took) != 1 || <-took {
			t.Error("it was not taken in when the lease was renewed")
		}
		end()
		<-ended
	})
}
