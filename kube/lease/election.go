package lease

import (
	"context"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// seat is a shard's Lease that this instance holds or tries to acquire.
type seat struct {
	ctx   context.Context // ends when the Lease is to be released
	leave context.CancelFunc
	// leaving is set while the shard is handed over; over is closed when the Lease is no
	// longer ours.
	leaving bool
	over    chan struct{}
}

// lead takes the Leases that are allotted to this instance, and hands over the others,
// until ctx ends.
func (e *Election) lead(ctx context.Context, stopped <-chan struct{}, cancel context.CancelCauseFunc) {
	seats := make([]*seat, len(e.shards))
	var under sync.WaitGroup
	for ctx.Err() == nil {
		for i, mine := range e.allotted(ctx, seats) {
			x := seats[i]
			if x != nil {
				select {
				case <-x.over:
					x, seats[i] = nil, nil
				default:
				}
			}
			switch {
			case mine && x == nil:
				x = &seat{over: make(chan struct{})}
				x.ctx, x.leave = context.WithCancel(context.WithoutCancel(ctx))
				seats[i] = x
				under.Go(func() { e.sit(ctx, i, x, cancel) })
			case !mine && x != nil && !x.leaving:
				x.leaving = true
				under.Go(func() { e.handOver(ctx, i, x) })
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(e.leader.RetryPeriod):
		}
	}
	e.signOff()
	<-stopped
	for _, x := range seats {
		if x != nil {
			x.leave()
		}
	}
	under.Wait()
}

// allotted returns which shards this instance should decide on:
//
//  1. It renews its own Lease, and reads all others. While the API server does not answer,
//     nothing changes.
//  2. From the Leases of instances with the same shards it finds the live members, and
//     the holder of each shard. Both together determine the allotment.
//  3. It clears a Lease that is allotted to it and that its holder did not renew in time.
func (e *Election) allotted(ctx context.Context, seats []*seat) []bool {
	mine := make([]bool, len(seats))
	if len(seats) == 1 {
		mine[0] = true
		return mine
	}
	for i, x := range seats {
		mine[i] = x != nil && !x.leaving
	}
	ctx, cancel := context.WithTimeout(ctx, e.leader.RenewDeadline)
	defer cancel()
	err := e.signOn(ctx)
	var leases []lease
	if err == nil {
		leases, err = e.leases(ctx)
	}
	if err != nil {
		if ctx.Err() == nil {
			e.log.Warn("cannot renew or acquire leases: the holders stay as they are", "error", err)
		}
		return mine
	}
	var members []string
	holders, over, agreed, others := make([]string, len(seats)), make([]*coordinationv1.Lease, len(seats)), false, false
	for _, l := range leases {
		if l.layout != e.layout {
			others = others || l.name == Name && l.live
			continue
		}
		agreed = agreed || l.name == Name
		if strings.HasPrefix(l.name, memberPrefix) {
			if l.live {
				members = append(members, l.holder)
			}
			continue
		}
		for i, shard := range e.shards {
			switch {
			case shard.leaseName() != l.name:
			case l.live:
				holders[i] = l.holder
			case l.holder != "":
				over[i] = l.object
			}
		}
	}
	for i, member := range allot(holders, members) {
		// Until the rest is held by an instance with the same shards, one with others
		// may decide on any. That one waits until all other shards are given up: if this instance kept
		// what it has, neither would decide on the rest.
		mine[i] = member == e.leader.Identity && (agreed || i == RestOf(e.shards) || seats[i] != nil && !others)
		// An instance that was cut off just after it took the shard renewed the shard's Lease
		// later than its own: this one may wait for it already.
		if mine[i] && over[i] != nil && *over[i].Spec.HolderIdentity != e.leader.Identity {
			e.clear(ctx, over[i])
		}
	}
	return mine
}

// clear takes a Lease from an instance that has not renewed it in time. An election that
// starts to wait for it now would first watch it for a whole lease duration.
func (e *Election) clear(ctx context.Context, o *coordinationv1.Lease) {
	o = o.DeepCopy()
	e.log.Warn("another instance has not renewed its lease in time", "holder", *o.Spec.HolderIdentity, "lease", o.Name)
	o.Spec.HolderIdentity = ptr.To("")
	// If another instance was faster, this is not an error: the update applies to the
	// version that was observed.
	_, err := e.client.CoordinationV1().Leases(o.Namespace).Update(ctx, o, metav1.UpdateOptions{})
	e.requested("update", err)
}

// sit waits for a shard's Lease, and makes the holder decide on the shard while this
// instance has the Lease:
//
//  1. Instances with other shards must have ended, or given theirs up (agree).
//  2. The holder must know everything that the instance before it did (CatchUp).
//  3. The holder takes the shard.
func (e *Election) sit(ctx context.Context, shard int, x *seat, cancel context.CancelCauseFunc) {
	defer close(x.over)
	defer x.leave()
	log := e.log.With("identity", e.leader.Identity)
	if len(e.shards) > 1 {
		log = log.With("shard", e.shards[shard].Name())
	}
	name := e.shards[shard].leaseName()
	lost := func() {
		e.fence.lose()
		cancel(ErrLost)
	}
	leaderelection.RunOrDie(x.ctx, leaderelection.LeaderElectionConfig{
		Lock: &lock{
			Interface: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Name: name, Namespace: e.leader.Namespace},
				Client:     e.client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: e.leader.Identity},
				Labels:     map[string]string{v1alpha1.ShardsLabel: e.layout},
			},
			shard: shard, fence: e.fence, lost: lost,
			again: e.holder.RenewedLate,
		},
		Name: name, ReleaseOnCancel: true,
		LeaseDuration: e.leader.LeaseDuration, RenewDeadline: e.leader.RenewDeadline, RetryPeriod: e.leader.RetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				leading, end := context.WithCancel(leading)
				defer end()
				defer context.AfterFunc(ctx, end)()
				if !e.agree(leading, shard) {
					x.leave()
					return
				}
				if e.holder.CatchUp(leading) {
					log.Info("this instance schedules")
					if err := e.holder.Take(leading, shard); err != nil {
						cancel(err)
					}
				}
			},
			OnStoppedLeading: func() {
				if x.ctx.Err() == nil {
					lost()
				}
				e.fence.released(shard)
			},
			OnNewLeader: func(identity string) {
				if identity != e.leader.Identity {
					log.Info("another instance schedules", "holder", identity)
				}
			},
		},
	})
}

// agree waits until no instance with other shards decides any more. It returns false when
// such instances are to decide rather than this one. This instance holds the Lease of the
// shard already: of two instances with different shards at least one sees the other.
func (e *Election) agree(ctx context.Context, shard int) bool {
	warned := false
	for {
		leases, err := e.leases(ctx)
		agreed, alone := shard == RestOf(e.shards), true
		for _, l := range leases {
			agreed = agreed || l.name == Name && l.layout == e.layout
			if l.layout != e.layout && l.live && !strings.HasPrefix(l.name, memberPrefix) {
				alone = false
				if !warned {
					e.log.Warn("an instance with a different list of shards schedules: waiting until it ends or gives its shards up", "holder", l.holder, "lease", l.name)
					warned = true
				}
			}
		}
		switch {
		case err != nil:
			if ctx.Err() == nil {
				e.log.Warn("cannot read whether another instance holds the lease", "error", err)
			}
		case !agreed:
			return false
		case alone:
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(e.leader.RetryPeriod):
		}
	}
}

// handOver makes the holder give up a shard, and then releases its Lease. When ctx ends,
// all Leases are released.
func (e *Election) handOver(ctx context.Context, shard int, x *seat) {
	if e.holder.GiveUp(ctx, shard) {
		e.log.Info("this instance hands over a shard", "identity", e.leader.Identity, "shard", e.shards[shard].Name())
		x.leave()
	}
}
