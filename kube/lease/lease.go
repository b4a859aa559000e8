// Package lease holds the Leases by which instances of the scheduler agree on which of
// them decides on what.
//
// There is a Lease for each shard of the cluster, or one for all. An instance decides on a
// shard only while it holds the shard's Lease. With several shards, each instance also has
// a Lease of its own, which shows the others that it is alive. From these Leases all
// instances compute the same allotment of shards, acquire the Leases that are theirs, and
// hand over those of others. For a moment, instances may compute different allotments; the
// shards' Leases make this harmless.
//
// A [Fence] keeps an instance from writing when another may hold its Leases.
package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
)

// Holder decides on shards. An [Election] calls it from several goroutines.
type Holder interface {
	// CatchUp waits until the holder knows everything that the instance before it did.
	// It returns false when ctx ended first.
	CatchUp(ctx context.Context) bool
	// Take begins to decide on a shard, until ctx ends or GiveUp is called. An error ends
	// the instance.
	Take(ctx context.Context, shard int) error
	// GiveUp stops deciding on a shard, and returns when nothing that was decided there
	// is still in progress; false if ctx ended first.
	GiveUp(ctx context.Context, shard int) bool
	// RenewedLate is called when a Lease was renewed after the fence had closed, and no
	// other instance had it in between: the fence is open again.
	RenewedLate()
}

// Leader configures how instances agree on the one that decides.
type Leader struct {
	// Namespace is the namespace of the Leases; if empty, there is no election.
	Namespace string
	// Identity is this instance's name, unique also among earlier instances: an instance
	// that restarts under its old name would consider the old Leases its own, while
	// earlier requests may still be in progress.
	Identity string
	// LeaseDuration is how long an instance keeps its Leases without renewing them, in
	// whole seconds; 15 s if 0.
	LeaseDuration time.Duration
	// RenewDeadline is how long after the last renewal an instance may decide and write,
	// at most nine tenths of LeaseDuration; 10 s if 0.
	RenewDeadline time.Duration
	// RetryPeriod is the time between two renewals, less than 5/6 of RenewDeadline; 2 s
	// when 0.
	RetryPeriod time.Duration
}

// Settle sets the defaults.
func (l *Leader) Settle() {
	l.LeaseDuration = cmp.Or(l.LeaseDuration, 15*time.Second)
	l.RenewDeadline = cmp.Or(l.RenewDeadline, 10*time.Second)
	l.RetryPeriod = cmp.Or(l.RetryPeriod, 2*time.Second)
}

// Check returns an error that says which of the times is wrong, and what was expected.
func (l Leader) Check() error {
	l.Settle()
	switch {
	case l.LeaseDuration < time.Second || l.LeaseDuration%time.Second != 0:
		return fmt.Errorf("lease-duration: expected whole seconds, at least 1s; found %v", l.LeaseDuration)
	case l.RenewDeadline <= 0 || l.RenewDeadline > l.LeaseDuration*9/10: // what is written last needs time for its answer
		return fmt.Errorf("renew-deadline: expected at most nine tenths of the lease duration, which is %v; found %v", l.LeaseDuration, l.RenewDeadline)
	case l.RetryPeriod <= 0 || time.Duration(leaderelection.JitterFactor*float64(l.RetryPeriod)) >= l.RenewDeadline:
		return fmt.Errorf("retry-period: expected less than five sixths of the renew deadline, which is %v; found %v", l.RenewDeadline, l.RetryPeriod)
	}
	return nil
}

// Name is the name of the Lease of the instance that decides on all, or on the pools that
// no shard names. The names of the other Leases begin with it.
const Name = "muster"

const memberPrefix = Name + "-member-"

// ErrLost reports that another instance decides now. What this one assumed may be wrong:
// the process should exit and restart.
var ErrLost = errors.New("another instance has taken the lease")

// forgotten is the time after its last renewal when other instances delete an instance's
// Lease.
const forgotten = time.Hour

// Config is what an election works with.
type Config struct {
	Leader Leader
	Shards []Shard
	// Client is only for Leases: no fence may prevent their renewal ([LeaseConfig]).
	Client kubernetes.Interface
	Fence  *Fence
	Holder Holder
	Log    *slog.Logger
	Now    func() time.Time
	// Requested counts a request to the API.
	Requested func(verb string, err error)
}

// Election is the part of one instance in the agreement.
type Election struct {
	leader    Leader
	shards    []Shard
	layout    string // of the shards
	client    kubernetes.Interface
	fence     *Fence
	holder    Holder
	log       *slog.Logger
	now       func() time.Time
	requested func(verb string, err error)
	sightings sightings
}

// New returns an election that has not begun. The Leader must be settled.
func New(c Config) *Election {
	return &Election{
		leader: c.Leader, shards: c.Shards, layout: layout(c.Shards), client: c.Client, fence: c.Fence, holder: c.Holder,
		log: c.Log, now: c.Now, requested: c.Requested,
	}
}

// LeaseConfig is how to reach the API for Leases: over a connection of their own, where
// nothing else delays a renewal. One that gets no answer leaves time for another.
func LeaseConfig(c *rest.Config, l *Leader) *rest.Config {
	c = ownConnection(c)
	c.Timeout = l.RenewDeadline / 2
	return c
}

// Run has the holder decide on the shards whose Leases this instance holds, until ctx ends.
// It calls cancel when a Lease is lost, or the holder cannot take a shard. When ctx has
// ended it releases the Leases once stopped is closed. Without a namespace there is no
// election: the holder decides on the one shard at once.
func (e *Election) Run(ctx context.Context, stopped <-chan struct{}, cancel context.CancelCauseFunc) {
	if e.leader.Namespace == "" {
		if err := e.holder.Take(ctx, 0); err != nil {
			cancel(err)
		}
		return
	}
	e.lead(ctx, stopped, cancel)
}
