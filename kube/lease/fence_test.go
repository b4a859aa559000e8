package lease

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
)

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

func newTestFence() (*Fence, *handClock) {
	l, c := Leader{}, &handClock{now: time.Hour}
	l.Settle()
	return NewFence(&l, c.read), c
}

// A write may go out for the renew deadline after the oldest of the last renewals
// was sent, and is over before another instance may hold a lease.
func TestFence(t *testing.T) {
	f, clock := newTestFence()
	check := func(what string, want time.Duration, wantStale bool) {
		t.Helper()
		left, err := f.check()
		if left != want || (err != nil) != (want == 0) || f.Stale() != wantStale {
			t.Errorf("%s: a write may take %v (%v), stale %t; want %v, %t", what, left, err, f.Stale(), want, wantStale)
		}
	}
	check("without a lease", 0, false)
	f.renewed(0, clock.read())
	check("fresh", 14*time.Second, false)
	clock.pass(3 * time.Second)
	f.renewed(1, clock.read()-time.Second) // it took a second to be answered
	check("the older of two counts", 11*time.Second, false)
	if f.renewed(0, clock.read()) {
		t.Error("it was late")
	}
	check("renewed", 13*time.Second, false)
	clock.pass(9*time.Second - 1)
	check("at the last moment", 4*time.Second, false)
	clock.pass(1)
	check("too late", 0, true)
	f.released(1)
	check("the late one was released", 5*time.Second, false)
	clock.pass(25 * time.Second)
	check("after a stop", 0, true)
	if !f.renewed(0, clock.read()) {
		t.Error("it was not late")
	}
	check("nobody had it in between", 14*time.Second, false)
	f.lose()
	f.renewed(0, clock.read())
	check("another had it", 0, true)
	if (*Fence)(nil).Stale() {
		t.Error("an instance without an election waits for a lease")
	}
	f.Wait()

	// The API server takes a timeout of 0 for none.
	l, clock := Leader{LeaseDuration: time.Second, RenewDeadline: time.Second - time.Microsecond}, &handClock{now: time.Hour}
	f = NewFence(&l, clock.read)
	f.renewed(0, clock.read())
	clock.pass(l.RenewDeadline - 1)
	check("no millisecond is left", 0, false)
}

// fencedAPI is an API that answers with answer, and what reaches it.
func fencedAPI(t *testing.T, f *Fence, wrap func(http.RoundTripper) http.RoundTripper, answer http.HandlerFunc) (client *kubernetes.Clientset, came func() []string) {
	t.Helper()
	var mu sync.Mutex
	var list []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		list = append(list, r.Method+" "+r.URL.RawQuery)
		mu.Unlock()
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	c := &rest.Config{Host: server.URL, QPS: -1}
	if wrap != nil {
		c.Wrap(wrap)
	}
	passing, err := Client(c, f, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if client, err = kubernetes.NewForConfigAndClient(c, passing); err != nil {
		t.Fatal(err)
	}
	return client, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(list)
	}
}

func bindOne(ctx context.Context, client *kubernetes.Clientset) error {
	return client.CoreV1().Pods("ns").Bind(ctx, &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, metav1.CreateOptions{})
}

func created(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Every write asks whether the lease is fresh when it goes out, those included that
// are tried again by a client, and those that waited for their turn; reads do not.
func TestFencedWrites(t *testing.T) {
	ctx := context.Background()
	t.Run("at the gate", func(t *testing.T) {
		f, clock := newTestFence()
		client, came := fencedAPI(t, f, nil, created)
		if err := bindOne(ctx, client); !errors.Is(err, errFenced) {
			t.Errorf("without a lease: %v", err)
		}
		f.renewed(0, clock.read()-3*time.Second)
		if err := bindOne(ctx, client); err != nil {
			t.Errorf("with a lease: %v", err)
		}
		clock.pass(10 * time.Second)
		if err := bindOne(ctx, client); !errors.Is(err, errFenced) {
			t.Errorf("with an old lease: %v", err)
		}
		_, _ = client.CoreV1().Pods("ns").Get(ctx, "p", metav1.GetOptions{})
		if want := []string{"POST timeout=11s", "GET "}; !slices.Equal(came(), want) {
			t.Errorf("%q came; want %q", came(), want)
		}
		f.Wait() // nothing is under way
	})
	t.Run("after it", func(t *testing.T) {
		f, clock := newTestFence()
		client, came := fencedAPI(t, f, func(to http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				clock.pass(25 * time.Second) // as if it were stopped here
				return to.RoundTrip(r)
			})
		}, created)
		f.renewed(0, clock.read())
		if err := bindOne(ctx, client); err == nil || len(came()) > 0 {
			t.Errorf("%v; %q came", err, came())
		}
	})
	t.Run("tried again", func(t *testing.T) {
		f, clock := newTestFence()
		client, came := fencedAPI(t, f, nil, func(w http.ResponseWriter, _ *http.Request) {
			clock.pass(25 * time.Second)
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		})
		f.renewed(0, clock.read())
		if err := bindOne(ctx, client); !errors.Is(err, errFenced) || len(came()) != 1 {
			t.Errorf("%v; %q came", err, came())
		}
	})
}

// A write that was sent is waited for, even when its sender gives up: who takes the
// lease next must find what came of it.
func TestFencedWriteIsWaitedFor(t *testing.T) {
	f, clock := newTestFence()
	under, answer := make(chan bool), make(chan bool)
	client, _ := fencedAPI(t, f, nil, func(w http.ResponseWriter, r *http.Request) {
		close(under)
		<-answer
		created(w, r)
	})
	f.renewed(0, clock.read())
	ctx, cancel := context.WithCancel(context.Background())
	done, quiet := make(chan error, 1), make(chan bool)
	go func() { done <- bindOne(ctx, client) }()
	<-under
	cancel()
	go func() { f.Wait(); close(quiet) }()
	select {
	case <-quiet:
		t.Error("nothing is said to be under way")
	default:
	}
	close(answer)
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-quiet
	if err := bindOne(ctx, client); !errors.Is(err, context.Canceled) {
		t.Errorf("a write was sent that nobody wants: %v", err)
	}
}

// Seeing another holder, even one that was, ends everything at once; what another
// holds is not released.
func TestLockThatAnotherTook(t *testing.T) {
	ctx := context.Background()
	for _, taken := range []string{"b", "", "deleted"} {
		f, clock := newTestFence()
		client := fake.NewClientset()
		lost, again := 0, 0
		l := &lock{
			Interface: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: "system", Name: Name}, Client: client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: "a"},
			},
			fence: f, lost: func() { lost++; f.lose() }, again: func() { again++ },
		}
		mine := resourcelock.LeaderElectionRecord{HolderIdentity: "a", LeaseDurationSeconds: 15}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(l.Create(ctx, mine))
		clock.pass(11 * time.Second)
		must(l.Update(ctx, mine))
		if _, _, err := l.Get(ctx); err != nil || again != 1 || lost != 0 || f.Stale() {
			t.Fatalf("renewed late: %v, %d times late, %d times lost", err, again, lost)
		}
		leases := client.CoordinationV1().Leases("system")
		if taken == "deleted" {
			must(leases.Delete(ctx, Name, metav1.DeleteOptions{}))
		} else {
			_, err := leases.Update(ctx, &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: Name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(taken)},
			}, metav1.UpdateOptions{})
			must(err)
		}
		_, _, _ = l.Get(ctx)
		if _, err := f.check(); lost != 1 || err == nil || !f.Stale() {
			t.Errorf("%q has it: lost %d times, a write may go out: %t", taken, lost, err == nil)
		}
		must(l.Update(ctx, resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}))
		if o, err := leases.Get(ctx, Name, metav1.GetOptions{}); taken == "b" && (err != nil || *o.Spec.HolderIdentity != "b") {
			t.Errorf("the lease of another was released: %+v", o.Spec)
		}
	}
}

// A Lease that was changed just before it is to be released, by a renewal that was under way, is read and released
// again: no other instance would get the shard before it is over.
func TestReleaseAfterConflict(t *testing.T) {
	ctx := context.Background()
	f, _ := newTestFence()
	client := fake.NewClientset()
	conflicts := 0
	client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, k8sruntime.Object, error) {
		conflicts++
		return conflicts == 1, nil, apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, Name, errors.New("it was changed"))
	})
	l := &lock{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "system", Name: Name}, Client: client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: "a"},
		},
		fence: f, lost: func() { t.Error("it is lost") }, again: func() {},
	}
	if err := l.Create(ctx, resourcelock.LeaderElectionRecord{HolderIdentity: "a", LeaseDurationSeconds: 3600}); err != nil {
		t.Fatal(err)
	}
	free := resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}
	if err := l.Update(ctx, free); !apierrors.IsConflict(err) {
		t.Fatal(err)
	}
	if _, _, err := l.Get(ctx); err != nil {
		t.Fatal(err)
	}
	if err := l.Update(ctx, free); err != nil {
		t.Fatal(err)
	}
	if o, err := client.CoordinationV1().Leases("system").Get(ctx, Name, metav1.GetOptions{}); err != nil || *o.Spec.HolderIdentity != "" {
		t.Errorf("the lease is held by %q: %v", *o.Spec.HolderIdentity, err)
	}
}

// A renewal counts from when it was sent: that it was answered late makes the Lease no
// fresher.
func TestRenewalThatIsAnsweredLate(t *testing.T) {
	f, clock := newTestFence()
	client := fake.NewClientset()
	slow := func(clienttesting.Action) (bool, k8sruntime.Object, error) {
		clock.pass(3 * time.Second)
		return false, nil, nil
	}
	client.PrependReactor("create", "leases", slow)
	client.PrependReactor("update", "leases", slow)
	l := &lock{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "system", Name: Name}, Client: client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: "a"},
		},
		fence: f,
	}
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "a", LeaseDurationSeconds: 15}
	for i, write := range []func(context.Context, resourcelock.LeaderElectionRecord) error{l.Create, l.Update} {
		if err := write(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
		if left, err := f.check(); left != 11*time.Second {
			t.Errorf("after %d renewals a write may take %v (%v), want 11s", i, left, err)
		}
		clock.pass(time.Second)
	}
}

func TestLeaderTimes(t *testing.T) {
	for _, c := range []struct {
		l    Leader
		want string
	}{
		{Leader{}, ""},
		{Leader{LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: time.Second / 2}, ""},
		{Leader{LeaseDuration: 12500 * time.Millisecond}, "lease-duration: expected whole seconds"},
		{Leader{LeaseDuration: -time.Second}, "lease-duration: expected whole seconds, at least 1s"},
		{Leader{LeaseDuration: 10 * time.Second}, "renew-deadline: expected at most nine tenths of the lease duration, which is 10s"},
		{Leader{LeaseDuration: 15 * time.Second, RenewDeadline: 13500 * time.Millisecond}, ""},
		{Leader{LeaseDuration: 15 * time.Second, RenewDeadline: 14999500 * time.Microsecond}, "renew-deadline: expected at most nine tenths of the lease duration, which is 15s; found 14.9995s"},
		{Leader{RetryPeriod: 9 * time.Second}, "retry-period: expected less than five sixths of the renew deadline, which is 10s"},
	} {
		err := c.l.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v; want %q", c.l, err, c.want)
		}
	}
}

// The clock by which leases are judged goes on, and never back.
func TestSinceBoot(t *testing.T) {
	before := SinceBoot()
	for range 1000 {
		now := SinceBoot()
		if now < before {
			t.Fatalf("%v, then %v", before, now)
		}
		before = now
	}
	if before <= 0 {
		t.Errorf("it is %v", before)
	}
}
