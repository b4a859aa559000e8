package lease

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// startOfTime is what the clock of instances in tests says.
var startOfTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// lessee is an instance with a fake API that has Leases.
type lessee struct {
	*Election
	t      *testing.T
	client *fake.Clientset
	d      *decider
	// refused has the API server of an instance that leads refuse renewals.
	refused atomic.Bool
}

// decider is a holder that knows everything, and records what it decides on.
type decider struct {
	mu   sync.Mutex
	held map[int]bool
	err  error // of Take
}

func (d *decider) CatchUp(context.Context) bool { return true }
func (d *decider) RenewedLate()                 {}

func (d *decider) Take(_ context.Context, shard int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held[shard] = d.err == nil
	return d.err
}

func (d *decider) GiveUp(_ context.Context, shard int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.held, shard)
	return true
}

// has is the number of shards that it decides on.
func (d *decider) has() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.held)
}

func newLessee(t *testing.T, shards []string, objects ...runtime.Object) *lessee {
	t.Helper()
	divided, err := ParseShards(shards)
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset(objects...)
	leader := Leader{Namespace: "system", Identity: "a"}
	leader.Settle()
	l := &lessee{t: t, client: client, d: &decider{held: map[int]bool{}}}
	began := time.Now()
	l.Election = New(Config{
		Leader: leader, Shards: divided, Client: client, Fence: NewFence(&leader, func() time.Duration { return time.Since(began) }), Holder: l.d,
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return startOfTime }, Requested: func(string, error) {},
	})
	l.sightings.by = map[string]sighting{}
	return l
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

// holds is who a Lease names; "gone" when there is none.
func (l *lessee) holds(name string) string {
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
				names = append(names, l.shards[i].Name())
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
	if got := l.holds(l.memberLease()); got != "a" {
		t.Errorf("it does not say that it lives: %q", got)
	}
	l.leased(Name, "a", l.layout, false)
	check("alone", mine(l), "*", "A100", "H800")
	l.member("b", false)
	l.leased(a100, "b", l.layout, false)
	check("of two", mine(l), "*", "H800")

	// b falls silent.
	l = newLessee(t, shards)
	l.leased(Name, "a", l.layout, false)
	l.member("b", true)
	l.leased(a100, "b", l.layout, true)
	check("what b had", mine(l), "*", "A100", "H800")
	if got := l.holds(a100); got != "" {
		t.Errorf("the lease is %s's still", got)
	}
	// b's own lease ran out first: a waits already when that of the shard does.
	l = newLessee(t, shards)
	l.leased(Name, "a", l.layout, false)
	l.member("b", true)
	l.leased(a100, "b", l.layout, true)
	check("what a waits for", mine(l, nil, &seat{}, nil), "*", "A100", "H800")
	if got := l.holds(a100); got != "" {
		t.Errorf("a waits for the lease, and it is %s's still", got)
	}
	// It is forgotten an hour after it said last that it lived.
	l.now = func() time.Time { return startOfTime.Add(forgotten + time.Second) }
	mine(l)
	if got := l.holds(memberPrefix + objectName("b")); got != "gone" {
		t.Errorf("its own lease is there: %s", got)
	}
	if l.signOff(); l.holds(l.memberLease()) != "gone" {
		t.Error("an instance that ends leaves its lease")
	}

	// Others divide the pools otherwise: who holds the rest comes first, and what is held is given up.
	l = newLessee(t, shards)
	l.leased(Name, "c", "otherwise", false)
	l.leased(memberPrefix+objectName("c"), "c", "otherwise", false)
	check("others have the rest", mine(l), "*")
	check("others have taken the rest", mine(l, nil, &seat{}, &seat{leaving: true}), "*")
	l = newLessee(t, shards)
	l.leased(Name, "c", "otherwise", true)
	check("others had the rest", mine(l, nil, &seat{}, &seat{}), "*", "A100", "H800")

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
		for name, of := range map[string]string{Name: c.anchor, Shard{"B"}.leaseName(): c.other} {
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
	l.leased(Name, "a", l.layout, false)
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

// leading starts an instance that is to decide on all, in a synctest bubble.
func leading(t *testing.T) (l *lessee, ctx context.Context, end context.CancelCauseFunc, stopped chan struct{}) {
	t.Helper()
	l = newLessee(t, nil)
	l.client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		if l.refused.Load() {
			return true, nil, errors.New("no")
		}
		return false, nil, nil
	})
	ctx, end = context.WithCancelCause(context.Background())
	stopped = make(chan struct{})
	go l.Run(ctx, stopped, end)
	synctest.Wait()
	return l, ctx, end, stopped
}

// The Lease is held until all that was sent has been answered.
func TestLeaseIsReleasedAfterTheLastWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, end, stopped := leading(t)
		if l.d.has() != 1 || l.holds(Name) != "a" {
			t.Fatalf("it does not decide; the lease is %q's", l.holds(Name))
		}
		if _, err := l.fence.begin(); err != nil {
			t.Fatal(err)
		}
		end(nil)
		go func() {
			l.fence.Wait()
			close(stopped)
		}()
		synctest.Wait()
		if got := l.holds(Name); got != "a" {
			t.Errorf("a write is under way, and the lease is %q's", got)
		}
		l.fence.end()
		synctest.Wait()
		if got := l.holds(Name); got != "" {
			t.Errorf("nothing is under way, and the lease is %q's", got)
		}
	})
}

// An instance that cannot renew its Lease ends, and writes nothing from then on.
func TestLeaseThatCannotBeRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ctx, end, stopped := leading(t)
		l.refused.Store(true)
		time.Sleep(l.leader.LeaseDuration)
		synctest.Wait()
		if got := context.Cause(ctx); !errors.Is(got, ErrLost) {
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

// A holder that cannot take a shard ends the instance. Without an election it takes the
// one shard at once.
func TestHolderThatCannotTakeAShard(t *testing.T) {
	wrong := errors.New("no policy")
	for _, namespace := range []string{"", "system"} {
		synctest.Test(t, func(t *testing.T) {
			l := newLessee(t, nil)
			l.leader.Namespace = namespace
			l.d.err = wrong
			ctx, end := context.WithCancelCause(context.Background())
			stopped := make(chan struct{})
			close(stopped)
			go l.Run(ctx, stopped, end)
			synctest.Wait()
			if got := context.Cause(ctx); !errors.Is(got, wrong) {
				t.Errorf("it ends with %v", got)
			}
		})
	}
}

// Of two shards, an instance that is alone takes both; the other instance that comes gets
// one of them, once it was given up.
func TestShardIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newLessee(t, []string{"H800", "*"})
		ctx, end := context.WithCancelCause(context.Background())
		stopped := make(chan struct{})
		go one.Run(ctx, stopped, end)
		time.Sleep(5 * time.Second) // the fake API has no resource versions: a Lease expires 15 s after it is first seen
		synctest.Wait()
		if n := one.d.has(); n != 2 {
			t.Errorf("the first decides on %d shards", n)
		}
		other := newLessee(t, []string{"H800", "*"})
		other.leader.Identity, other.Election.client, other.client = "b", one.client, one.client
		go other.Run(ctx, stopped, end)
		time.Sleep(7 * time.Second)
		synctest.Wait()
		if a, b := one.d.has(), other.d.has(); a != 1 || b != 1 {
			t.Errorf("they decide on %d and %d shards", a, b)
		}
		end(nil)
		close(stopped)
	})
}

// An instance has one of its shards and waits for the rest, which an instance with other shards takes: that waits until all others are
// given up, and neither would decide on the rest.
func TestOthersTakeTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLessee(t, []string{"H800", "*"})
		l.leased(Name, "c", l.layout, false)
		ctx, end := context.WithCancelCause(context.Background())
		stopped := make(chan struct{})
		go l.Run(ctx, stopped, end)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := l.d.has(); n != 1 {
			t.Errorf("it decides on %d shards", n)
		}
		leases := l.client.CoordinationV1().Leases("system")
		o, err := leases.Get(ctx, Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		o.Labels[v1alpha1.ShardsLabel], o.Spec.HolderIdentity = "otherwise", ptr.To("b")
		if _, err := leases.Update(ctx, o, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n, holder := l.d.has(), l.holds(Shard{"H800"}.leaseName()); n != 0 || holder != "" {
			t.Errorf("it decides on %d shards, and the lease is %q's", n, holder)
		}
		end(nil)
		close(stopped)
	})
}

// A renewal that gets no answer leaves time for another before the renew deadline.
func TestRenewalsEndInTime(t *testing.T) {
	l := Leader{}
	l.Settle()
	if got := LeaseConfig(&rest.Config{Host: "http://127.0.0.1:1"}, &l).Timeout; got != 5*time.Second {
		t.Errorf("a renewal may take %v, want half the renew deadline of 10s", got)
	}
}
