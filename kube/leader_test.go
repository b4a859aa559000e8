package kube

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/act"
)

// lessee is an instance with a fake API that has leases.
type lessee struct {
	*Scheduler
	client *fake.Clientset
	t      *testing.T
	// refused has the API server of an instance that leads refuse renewals.
	refused atomic.Bool
}

func newLessee(t *testing.T, shards []string, objects ...runtime.Object) *lessee {
	t.Helper()
	divided, err := ParseShards(shards)
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset(objects...)
	leader := Leader{Namespace: "system", Identity: "a"}
	leader.settle()
	s := &Scheduler{
		config: Config{Leader: leader, Shards: divided}, layout: layout(divided),
		log: slog.New(slog.DiscardHandler), now: func() time.Time { return startOfTime }, client: client, leasing: client, box: newMailbox(), metrics: newMetrics(),
		actor: act.New(act.Config{Client: client}),
		held:  make([]atomic.Bool, len(divided)),
	}
	s.sightings.by = map[string]sighting{}
	return &lessee{Scheduler: s, client: client, t: t}
}

// leased adds a Lease, one that was seen so for an hour when it is stale.
func (l *lessee) leased(name, holder, layout string, stale bool) {
	l.t.Helper()
	o := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "system", Labels: map[string]string{v1alpha1.ShardsLabel: layout}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](15), RenewTime: &metav1.MicroTime{Time: startOfTime},
		},
	}
	if _, err := l.client.CoordinationV1().Leases("system").Create(context.Background(), o, metav1.CreateOptions{}); err != nil {
		l.t.Fatal(err)
	}
	if stale {
		l.sightings.by[name] = sighting{at: time.Now().Add(-time.Hour)}
	}
}

func (l *lessee) member(identity string, stale bool) {
	l.leased(memberPrefix+objectName(identity), identity, l.layout, stale)
}

// holder is who a Lease names; "gone" when there is none.
func (l *lessee) holder(name string) string {
	o, err := l.client.CoordinationV1().Leases("system").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return "gone"
	}
	return *o.Spec.HolderIdentity
}

func TestAllotted(t *testing.T) {
	ctx := context.Background()
	shards := []string{"H800", "A100", "*"}
	mine := func(l *lessee, seats ...*seat) []string {
		if seats == nil {
			seats = make([]*seat, 3)
		}
		var names []string
		for i, is := range l.allotted(ctx, seats) {
			if is {
				names = append(names, l.config.Shards[i].Name())
			}
		}
		return names
	}
	check := func(what string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v is mine; want %v", what, got, want)
		}
	}

	l := newLessee(t, shards)
	a100 := Shard{"A100"}.leaseName()
	check("alone, before anybody has the rest", mine(l), "*")
	if got := l.holder(l.memberLease()); got != "a" {
		t.Errorf("it does not say that it lives: %q", got)
	}
	l.leased(LeaseName, "a", l.layout, false)
	check("alone", mine(l), "*", "A100", "H800")
	l.member("b", false)
	l.leased(a100, "b", l.layout, false)
	check("of two", mine(l), "*", "H800")

	// b falls silent.
	l = newLessee(t, shards)
	l.leased(LeaseName, "a", l.layout, false)
	l.member("b", true)
	l.leased(a100, "b", l.layout, true)
	check("what b had", mine(l), "*", "A100", "H800")
	if got := l.holder(a100); got != "" {
		t.Errorf("the lease is %s's still", got)
	}
	// It is forgotten an hour after it said last that it lived.
	l.Scheduler.now = func() time.Time { return startOfTime.Add(forgotten + time.Second) }
	mine(l)
	if got := l.holder(memberPrefix + objectName("b")); got != "gone" {
		t.Errorf("its own lease is there: %s", got)
	}
	if l.signOff(); l.holder(l.memberLease()) != "gone" {
		t.Error("an instance that ends leaves its lease")
	}

	// Others divide the pools otherwise: they come first, but what is held is kept.
	l = newLessee(t, shards)
	l.leased(LeaseName, "c", "otherwise", false)
	l.leased(memberPrefix+objectName("c"), "c", "otherwise", false)
	check("others have the rest", mine(l), "*")
	check("others have taken the rest", mine(l, nil, &seat{}, &seat{leaving: true}), "*", "A100", "H800")

	// Without an answer all stays as it is.
	l.client.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no") })
	check("no answer", mine(l, nil, &seat{}, &seat{leaving: true}), "A100")
}

func TestAgree(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	shards := []string{"H800", "*"}
	for _, c := range []struct {
		what, anchor, other string // layouts of the Lease of the rest, and of another
		shard               int
		want                bool
	}{
		{"alone", "ours", "ours", 1, true},
		{"the rest, alone", "", "", 0, true},
		{"nobody has the rest", "", "", 1, false},
		{"the rest is others'", "otherwise", "", 1, false},
	} {
		l := newLessee(t, shards)
		for name, of := range map[string]string{LeaseName: c.anchor, Shard{"B"}.leaseName(): c.other} {
			if of == "ours" {
				of = l.layout
			}
			if of != "" {
				l.leased(name, "x", of, false)
			}
		}
		if got := l.agree(ctx, c.shard); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}

	// One that decides otherwise is waited for; one that only says that it lives is
	// not, nor one that has not renewed its lease.
	l := newLessee(t, shards)
	l.leased(LeaseName, "a", l.layout, false)
	l.leased(memberPrefix+"x", "x", "otherwise", false)
	l.leased(Shard{"C"}.leaseName(), "y", "otherwise", true)
	if !l.agree(ctx, 1) {
		t.Error("it waits for who does not decide")
	}
	l.leased(Shard{"B"}.leaseName(), "x", "otherwise", false)
	short, end := context.WithCancel(ctx)
	looked := 0
	l.client.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		if looked++; looked == 2 {
			end()
		}
		return false, nil, nil
	})
	if l.agree(short, 1) {
		t.Error("two decide that divide the pools otherwise")
	}
}

// An instance that begins to decide has seen all that was bound before.
func TestCatchUp(t *testing.T) {
	onNode := func(name string) *v1.Pod {
		p := newTestPod(name, 1)
		p.Spec.NodeName = "n"
		return p
	}
	known, late, unbound, gone, renewed := onNode("known"), onNode("late"), onNode("unbound"), onNode("gone"), onNode("renewed")
	ended := onNode("ended")
	ended.Status.Phase = v1.PodSucceeded
	other := onNode("renewed")
	other.UID = "another"
	l := newLessee(t, nil, known, late, unbound, other, ended)
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
	l.metadata = meta

	y := newToy(t)
	waits := newTestPod("unbound", 1)
	y.see(known, waits)
	done := make(chan bool, 1)
	go func() { done <- l.catchUp(context.Background()) }()
	asked := 0
	for deadline := time.After(time.Minute); ; {
		select {
		case <-l.box.ready:
			for _, f := range l.box.take(nil) {
				f(y.mirror)
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
			if m := y.unseen([]metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{UID: types.UID("late")}}}); len(m) > 0 {
				t.Error("a binding was not seen")
			}
			return
		case <-deadline:
			t.Fatal("it never catches up")
		}
	}
}

// leading starts an instance that is to decide on all, in a synctest bubble, with the
// bindings that the API server has. What comes into its mailbox is taken in.
func leading(t *testing.T, bound ...*v1.Pod) (l *lessee, y *toy, ctx context.Context, end context.CancelCauseFunc, stopped chan struct{}) {
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
	l, y = newLessee(t, nil, pods...), newToy(t)
	l.client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		if l.refused.Load() {
			return true, nil, errors.New("no")
		}
		return false, nil, nil
	})
	l.metadata = metadatafake.NewSimpleMetadataClient(scheme, listed...)
	began := time.Now()
	l.fence = newFence(&l.config.Leader, func() time.Duration { return time.Since(began) })
	l.ready = make(chan struct{})
	ctx, end = context.WithCancelCause(context.Background())
	stopped = make(chan struct{})
	over := make(chan struct{})
	go func() {
		defer close(over)
		l.lead(ctx, stopped, end)
	}()
	go func() {
		for {
			select {
			case <-l.box.ready:
				for _, f := range l.box.take(nil) {
					f(y.mirror)
				}
			case <-over:
				return
			}
		}
	}()
	synctest.Wait()
	return l, y, ctx, end, stopped
}

// The Lease is held until all that was sent has been answered.
func TestLeaseIsReleasedAfterTheLastWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, _, end, stopped := leading(t)
		if !l.held[0].Load() || l.holder(LeaseName) != "a" {
			t.Fatalf("it does not decide; the lease is %q's", l.holder(LeaseName))
		}
		if _, err := l.fence.begin(); err != nil {
			t.Fatal(err)
		}
		end(nil)
		go l.finish(stopped)
		synctest.Wait()
		if got := l.holder(LeaseName); got != "a" {
			t.Errorf("a write is under way, and the lease is %q's", got)
		}
		l.fence.end()
		synctest.Wait()
		if got := l.holder(LeaseName); got != "" {
			t.Errorf("nothing is under way, and the lease is %q's", got)
		}
	})
}

// An instance that cannot renew its Lease ends, and writes nothing from then on.
func TestLeaseThatCannotBeRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, ctx, end, stopped := leading(t)
		l.refused.Store(true)
		time.Sleep(l.config.Leader.LeaseDuration)
		synctest.Wait()
		if got := context.Cause(ctx); !errors.Is(got, ErrLostLease) {
			t.Errorf("it ends with %v", got)
		}
		l.fence.renewed(0, l.fence.clock())
		if _, err := l.fence.check(); !errors.Is(err, errFenced) {
			t.Error("writes may go out")
		}
		end(nil)
		close(stopped)
	})
}

// An instance that has the Lease decides when it knows what was bound before.
func TestNothingIsDecidedBeforeWhatWasBoundIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPod("late", 1)
		p.Spec.NodeName = "n"
		l, y, _, end, stopped := leading(t, p)
		if l.held[0].Load() || l.holder(LeaseName) != "a" {
			t.Errorf("it decides: %t; the lease is %q's", l.held[0].Load(), l.holder(LeaseName))
		}
		l.box.put(func(*mirror) { y.see(p) })
		time.Sleep(time.Second)
		synctest.Wait()
		if !l.held[0].Load() {
			t.Error("it does not decide, and knows all")
		}
		end(nil)
		close(stopped)
	})
}

// A renewal that gets no answer leaves time for another before the renew deadline.
func TestRenewalsEndInTime(t *testing.T) {
	s, err := New(Config{API: &rest.Config{Host: "http://127.0.0.1:1"}, Leader: Leader{Namespace: "system", Identity: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.leasing.CoordinationV1().RESTClient().(*rest.RESTClient).Client.Timeout; got != 5*time.Second {
		t.Errorf("a renewal may take %v, want half the renew deadline of 10s", got)
	}
}
