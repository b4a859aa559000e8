package lease

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// A Fence keeps an instance from writing when another may hold its Leases. An instance may be
// stopped at any moment and continue later, in the middle of its work, without noticing: a
// process by SIGSTOP, a machine by a suspend. So each write checks that the Lease is held,
// right before it goes out.
//
// The others know of a renewal that was sent at T only that it was made at T or later, and
// wait for the lease duration from then:
//
//	T       T + renew deadline          T + lease duration
//	| writes go out | no more: answers are waited for | others may decide
//
// A write is given up when a fifth of the second part is left: by this instance; by its
// kernel, which retransmits bytes that are not acknowledged, and drops the connection then
// (on Linux); and by the API server, after as much time as was left when the write was sent.
// So all writes of an instance that lost a Lease are over when the next holder looks at the
// cluster, with two exceptions:
//
//   - A stop between the last check and the system call that hands the write to the
//     kernel. No check can see it.
//   - Bytes that were acknowledged and have not reached the API server: those that a
//     proxy or load balancer in front of it holds, or its own machine while it does not
//     read. They count as new when it gets them.
//
// Such a write meets another holder. A binding of a pod that has been bound since is
// refused, and an eviction is of the very pod that it was meant for. A binding that gives GPUs
// which another pod has been given since is found, and the later of the two yields:
// overcommit.go of package kube. CPU and memory that were given twice are not repaired; the
// kubelet refuses the pod for which there is no room.
type Fence struct {
	clock func() time.Duration
	// After a renewal was sent: until when writes may go out, and when the last
	// has been answered or given up.
	deadline, over time.Duration

	mu sync.Mutex
	// sent is when the last renewal of each Lease was sent that succeeded, by
	// shard.
	sent map[int]time.Duration
	// lost is set if another instance has a Lease: what this instance assumes may be
	// wrong.
	lost  bool
	under int // writes that were sent and not answered
	idle  sync.Cond
}

// errFenced reports that a write was not sent because another instance may decide.
var errFenced = errors.New("the lease was not renewed in time: another instance may hold it")

// NewFence returns a fence that is closed until a Lease is held. The clock must go on while
// the process is stopped, as [SinceBoot] does.
func NewFence(l *Leader, clock func() time.Duration) *Fence {
	f := &Fence{
		clock: clock, deadline: l.RenewDeadline, over: l.RenewDeadline + (l.LeaseDuration-l.RenewDeadline)*4/5,
		sent: map[int]time.Duration{},
	}
	f.idle.L = &f.mu
	return f
}

// renewed records that a Lease is held because of a renewal that was sent at a time. It
// reports whether the fence was closed before, because the renewal was late.
func (f *Fence) renewed(shard int, sent time.Duration) (wasStale bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	wasStale = f.staleLocked()
	f.sent[shard] = sent
	return wasStale
}

// released records that this instance released a Lease.
func (f *Fence) released(shard int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sent, shard)
}

// lose ends all writing for good.
func (f *Fence) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = true
}

// Stale reports whether another instance may have a held Lease by now. A nil fence, that
// of an instance without an election, is never stale.
func (f *Fence) Stale() bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.staleLocked()
}

func (f *Fence) staleLocked() bool {
	return f.lost || len(f.sent) > 0 && f.ageLocked() >= f.deadline
}

// ageLocked is how long ago the oldest of the last renewals was sent.
func (f *Fence) ageLocked() time.Duration {
	now, age := f.clock(), time.Duration(0)
	for _, t := range f.sent {
		age = max(age, now-t)
	}
	return age
}

// check returns the time limit of a write that is sent now, or an error if none may be
// sent.
func (f *Fence) check() (time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.checkLocked()
}

func (f *Fence) checkLocked() (time.Duration, error) {
	if f.lost || len(f.sent) == 0 {
		return 0, errFenced
	}
	age := f.ageLocked()
	left := (f.over - age).Truncate(time.Millisecond) // as the API server and the kernel are told
	if age >= f.deadline || left == 0 {
		return 0, errFenced
	}
	return left, nil
}

// begin is check for a write that counts as in progress until end.
func (f *Fence) begin() (time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	left, err := f.checkLocked()
	if err == nil {
		f.under++
	}
	return left, err
}

func (f *Fence) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.under--; f.under == 0 {
		f.idle.Broadcast()
	}
}

// Wait waits until no write is in progress, at most for the time limit of a write.
func (f *Fence) Wait() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.under > 0 {
		f.idle.Wait()
	}
}

// Client returns a client whose writes all pass the fence, if there is one, and whose reads are
// given up when they are not answered within a time limit. Reads and writes have separate
// connections with a fence.
func Client(c *rest.Config, f *Fence, limit time.Duration) (*http.Client, error) {
	transport, err := rest.TransportFor(c)
	if err != nil {
		return nil, err
	}
	reads := &patience{transport, limit}
	if f == nil {
		return &http.Client{Transport: &gate{reads: reads, writes: transport}}, nil
	}
	c = rest.CopyConfig(c)
	c.Dial = fencedDialer(c, f)
	writes, err := rest.TransportFor(c)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &gate{fence: f, reads: reads, writes: writes}}, nil
}

// ownConnection is a copy of a configuration that has a connection of its own, so that
// what goes there waits for nothing else.
func ownConnection(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.Dial = dialer(c)
	return c
}

func dialer(c *rest.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	if c.Dial != nil {
		return c.Dial
	}
	return (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
}

// fencedDialer makes connections for writes. What of these was not sent when they are
// closed never is.
func fencedDialer(c *rest.Config, f *Fence) func(ctx context.Context, network, address string) (net.Conn, error) {
	dial := dialer(c)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			if err := tcp.SetLinger(0); err != nil {
				conn.Close()
				return nil, err
			}
		}
		return &fencedConn{conn, f}, nil
	}
}

// Every request passes the gate, including those that a client retries. fence may be nil.
type gate struct {
	fence         *Fence
	reads, writes http.RoundTripper
}

// RoundTrip sends a request, unless it is a write and the fence is closed. It waits for the
// answer to a write even if the sender gives up: only the answer says whether it was made.
func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return g.reads.RoundTrip(r)
	}
	if g.fence == nil {
		return g.writes.RoundTrip(r)
	}
	left, err := time.Duration(0), r.Context().Err()
	if err == nil {
		left, err = g.fence.begin()
	}
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), left)
	over := sync.OnceFunc(func() { cancel(); g.fence.end() })
	r = r.WithContext(ctx)
	u := *r.URL
	// The API server gives it up by itself: an instance that is stopped cannot say so.
	query := url.Values{"timeout": {left.String()}}.Encode()
	if u.RawQuery != "" {
		query = u.RawQuery + "&" + query
	}
	u.RawQuery, r.URL = query, &u
	answer, err := g.writes.RoundTrip(r)
	if err != nil {
		over()
		return nil, err
	}
	answer.Body = &answerBody{answer.Body, over}
	return answer, nil
}

// answerBody is the answer to a write, which is over when it was read.
type answerBody struct {
	io.ReadCloser
	over func()
}

func (b *answerBody) Close() error {
	defer b.over()
	return b.ReadCloser.Close()
}

// fencedConn is a connection for writes. A write that passed the gate may have waited since:
// for its turn on the connection, or for a processor. So it is checked again.
type fencedConn struct {
	net.Conn
	fence *Fence
}

func (c *fencedConn) Write(p []byte) (int, error) {
	left, err := c.fence.check()
	if err == nil {
		err = giveUpAfter(c.Conn, left)
	}
	if err != nil {
		c.Close()
		return 0, err
	}
	return c.Conn.Write(p)
}

// lock is a shard's Lease that reports to the fence when it was renewed, and that another
// instance has it. One goroutine uses it.
type lock struct {
	resourcelock.Interface
	shard int
	fence *Fence
	held  bool
	// releasing says that the Lease was to be released, and may not be.
	releasing bool
	// again is called when the Lease was renewed late and no other had it in
	// between; lost when another has it, or had it.
	again, lost func()
}

// Get reads the Lease. Another instance that has it since it was held here may have decided,
// even if the Lease is free again.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && record.HolderIdentity != l.Identity() {
		l.releasing = false
	}
	if l.held && (err == nil && record.HolderIdentity != l.Identity() || apierrors.IsNotFound(err)) {
		l.held = false
		l.lost()
	}
	return record, raw, err
}

// Create creates the Lease, held by this instance.
func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	sent := l.fence.clock()
	err := l.Interface.Create(ctx, r)
	if err == nil {
		l.has(sent)
	}
	return err
}

// Update takes, renews or releases the Lease, if it is as it was read or written
// last: no other had it in between.
func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if r.HolderIdentity != l.Identity() {
		if !l.held && !l.releasing {
			return nil // to end, [leaderelection] would release what it has just read: the Lease of another
		}
		l.held, l.releasing = false, true
		l.fence.released(l.shard)
		// A renewal that was under way may have changed the Lease: then it is read and released again. Else no other
		// instance would get the shard before the Lease is over.
		err := l.Interface.Update(ctx, r)
		l.releasing = err != nil
		return err
	}
	sent := l.fence.clock()
	err := l.Interface.Update(ctx, r)
	if err == nil {
		l.has(sent)
	}
	return err
}

func (l *lock) has(sent time.Duration) {
	l.held = true
	if l.fence.renewed(l.shard, sent) {
		l.again()
	}
}
