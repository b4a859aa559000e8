package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// Who decides is agreed on by Leases: one for each shard, or one for all. An
// instance decides on a shard only while it holds the shard's Lease. With several
// shards each instance has a Lease of its own beside, by which the others see that
// it lives: from these all find the same allotment of shards to instances, take
// the Leases that are theirs, and hand over those that are others'. The allotment
// may be seen differently for a moment; the shards' Leases keep that harmless.

// Leader says how instances agree on the one that decides.
type Leader struct {
	// Namespace holds the Leases; no election when empty.
	Namespace string
	// Identity is this instance's name, unique among them, those included that ran
	// before: one that starts again under its old name would take what it held for its
	// own, while requests from before may be under way.
	Identity string
	// LeaseDuration is how long an instance that falls silent keeps its Leases, in
	// whole seconds; 15 s when 0. RenewDeadline is how long after the last renewal it
	// decides and writes, at most nine tenths of that; 10 s when 0. RetryPeriod is how often Leases
	// are renewed, and looked at, which is less than 5/6 of that; 2 s when 0.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// settle puts in what is usual where nothing is said.
func (l *Leader) settle() {
	l.LeaseDuration = cmp.Or(l.LeaseDuration, 15*time.Second)
	l.RenewDeadline = cmp.Or(l.RenewDeadline, 10*time.Second)
	l.RetryPeriod = cmp.Or(l.RetryPeriod, 2*time.Second)
}

// Check says which of the times cannot be, and what was expected.
func (l Leader) Check() error {
	l.settle()
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

// LeaseName is the Lease of the instance that decides on all, or on the pools that
// no shard names. Those of other shards, and of instances, have longer names that
// begin so.
const LeaseName = "muster"

const memberPrefix = LeaseName + "-member-"

// ErrLostLease says that another instance decides now. What this one assumed is
// worth nothing any more: the process should end and start anew.
var ErrLostLease = errors.New("another instance has taken the lease")

// forgotten is how long after its end an instance's Lease is deleted by others.
const forgotten = time.Hour

// seat is a shard's Lease that this instance holds or waits for.
type seat struct {
	ctx   context.Context // ends when the Lease is to be released
	leave context.CancelFunc
	// leaving says that the shard is being handed over; over is closed when the
	// Lease is not ours any more.
	leaving bool
	over    chan struct{}
}

// lead has this instance decide on the shards whose Leases it holds until ctx ends,
// and cancels when it loses one. It releases them once stopped is closed.
func (s *Scheduler) lead(ctx context.Context, stopped <-chan struct{}, cancel context.CancelCauseFunc) {
	if s.config.Leader.Namespace == "" {
		s.take(ctx, 0, cancel)
		return
	}
	seats := make([]*seat, len(s.config.Shards))
	var under sync.WaitGroup
	for ctx.Err() == nil {
		for i, mine := range s.allotted(ctx, seats) {
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
				under.Go(func() { s.sit(ctx, i, x, cancel) })
			case !mine && x != nil && !x.leaving:
				x.leaving = true
				under.Go(func() { s.giveUp(ctx, i, x) })
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(s.config.Leader.RetryPeriod):
		}
	}
	s.signOff()
	<-stopped
	for _, x := range seats {
		if x != nil {
			x.leave()
		}
	}
	under.Wait()
}

// allotted says which shards this instance should decide on. While the API server
// does not answer, all stays as it is.
func (s *Scheduler) allotted(ctx context.Context, seats []*seat) []bool {
	mine := make([]bool, len(seats))
	if len(seats) == 1 {
		mine[0] = true
		return mine
	}
	for i, x := range seats {
		mine[i] = x != nil && !x.leaving
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Leader.RenewDeadline)
	defer cancel()
	err := s.signOn(ctx)
	var leases []lease
	if err == nil {
		leases, err = s.leases(ctx)
	}
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("cannot renew or acquire leases: the holders stay as they are", "error", err)
		}
		return mine
	}
	var members []string
	holders, over, agreed := make([]string, len(seats)), make([]*coordinationv1.Lease, len(seats)), false
	for _, l := range leases {
		if l.layout != s.layout {
			continue
		}
		agreed = agreed || l.name == LeaseName
		if strings.HasPrefix(l.name, memberPrefix) {
			if l.live {
				members = append(members, l.holder)
			}
			continue
		}
		for i, shard := range s.config.Shards {
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
		// Until the rest is held by an instance that divides the pools as we do,
		// one that does not may decide on any.
		mine[i] = member == s.config.Leader.Identity && (agreed || i == restOf(s.config.Shards) || seats[i] != nil)
		if mine[i] && seats[i] == nil && over[i] != nil {
			s.clear(ctx, over[i])
		}
	}
	return mine
}

// clear takes a Lease from an instance that has not renewed it in time. Who waits
// for it from now on would see first for as long that nothing happens.
func (s *Scheduler) clear(ctx context.Context, o *coordinationv1.Lease) {
	o = o.DeepCopy()
	s.log.Warn("another instance has not renewed its lease in time", "holder", *o.Spec.HolderIdentity, "lease", o.Name)
	o.Spec.HolderIdentity = ptr.To("")
	// It is no error that another was faster: the update is of what was seen.
	_, err := s.leasing.CoordinationV1().Leases(o.Namespace).Update(ctx, o, metav1.UpdateOptions{})
	s.metrics.Request("update", err)
}

// sit waits for a shard's Lease, and has this instance decide on the shard while
// it holds it.
func (s *Scheduler) sit(ctx context.Context, shard int, x *seat, cancel context.CancelCauseFunc) {
	defer close(x.over)
	defer x.leave()
	log := s.log.With("identity", s.config.Leader.Identity)
	if len(s.config.Shards) > 1 {
		log = log.With("shard", s.config.Shards[shard].Name())
	}
	name := s.config.Shards[shard].leaseName()
	lost := func() {
		s.fence.lose()
		cancel(ErrLostLease)
	}
	leaderelection.RunOrDie(x.ctx, leaderelection.LeaderElectionConfig{
		Lock: &lock{
			Interface: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Name: name, Namespace: s.config.Leader.Namespace},
				Client:     s.leasing.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: s.config.Leader.Identity},
				Labels:     map[string]string{v1alpha1.ShardsLabel: s.layout},
			},
			shard: shard, fence: s.fence, lost: lost,
			again: func() { s.box.put(func(*mirror) {}) },
		},
		Name: name, ReleaseOnCancel: true,
		LeaseDuration: s.config.Leader.LeaseDuration, RenewDeadline: s.config.Leader.RenewDeadline, RetryPeriod: s.config.Leader.RetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				leading, end := context.WithCancel(leading)
				defer end()
				defer context.AfterFunc(ctx, end)()
				if !s.agree(leading, shard) {
					x.leave()
					return
				}
				if s.catchUp(leading) {
					log.Info("this instance schedules")
					s.take(leading, shard, cancel)
				}
			},
			OnStoppedLeading: func() {
				if x.ctx.Err() == nil {
					lost()
				}
				s.fence.released(shard)
			},
			OnNewLeader: func(identity string) {
				if identity != s.config.Leader.Identity {
					log.Info("another instance schedules", "holder", identity)
				}
			},
		},
	})
}

// agree waits until no instance decides any more that divides the pools otherwise.
// It reports false when such instances are to decide rather than this one. This
// instance holds the Lease of the shard already: of two that divide the pools
// otherwise one at least sees the other.
func (s *Scheduler) agree(ctx context.Context, shard int) bool {
	warned := false
	for {
		leases, err := s.leases(ctx)
		agreed, alone := shard == restOf(s.config.Shards), true
		for _, l := range leases {
			agreed = agreed || l.name == LeaseName && l.layout == s.layout
			if l.layout != s.layout && l.live && !strings.HasPrefix(l.name, memberPrefix) {
				alone = false
				if !warned {
					s.log.Warn("an instance with a different list of shards schedules: waiting until it ends", "holder", l.holder, "lease", l.name)
					warned = true
				}
			}
		}
		switch {
		case err != nil:
			if ctx.Err() == nil {
				s.log.Warn("cannot read whether another instance holds the lease", "error", err)
			}
		case !agreed:
			return false
		case alone:
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(s.config.Leader.RetryPeriod):
		}
	}
}

// take has this instance decide on a shard, and see to what was under way there.
func (s *Scheduler) take(ctx context.Context, shard int, cancel context.CancelCauseFunc) {
	taken := make(chan struct{})
	s.box.put(func(m *mirror) {
		if ctx.Err() != nil {
			return // it is another's again
		}
		if err := m.take(shard); err != nil {
			cancel(err)
			return
		}
		s.held[shard].Store(true)
		close(taken)
	})
	select {
	case <-taken:
	case <-ctx.Done():
		return
	}
	s.begun.Do(func() { close(s.ready) })
	if err := s.actor.FindSuspended(ctx); err != nil && ctx.Err() == nil {
		s.log.Error("cannot list suspended owners: they stay suspended until the next start", "error", err)
	}
}

// giveUp hands a shard over: it ends deciding there, waits until all that was sent
// has been answered, and releases the Lease.
func (s *Scheduler) giveUp(ctx context.Context, shard int, x *seat) {
	over := make(chan struct{})
	s.box.put(func(m *mirror) {
		if !m.shards.held[shard] {
			close(over)
			return
		}
		s.held[shard].Store(false)
		m.giveUp(shard, func() { close(over) })
	})
	select {
	case <-over:
	case <-ctx.Done():
		return // all is given up
	}
	if s.actor.Drain(ctx, shard) {
		s.log.Info("this instance hands over a shard", "identity", s.config.Leader.Identity, "shard", s.config.Shards[shard].Name())
		x.leave()
	}
}

// catchUp waits until the tables have every binding that the API server had taken
// when it was called: those of the instance that decided before. It reports false
// when ctx ended first.
func (s *Scheduler) catchUp(ctx context.Context) bool {
	var missing []metav1.PartialObjectMetadata
	for list := true; ; {
		if list {
			all, err := s.bindings(ctx)
			if err == nil {
				missing, list = all, false
			} else if ctx.Err() == nil {
				s.log.Warn("cannot list the bound pods", "error", err)
			}
		}
		if !list {
			answer := make(chan []metav1.PartialObjectMetadata, 1)
			s.box.put(func(m *mirror) { answer <- m.unseen(missing) })
			select {
			case missing = <-answer:
			case <-ctx.Done():
				return false
			}
			if missing = s.alive(ctx, missing); len(missing) == 0 {
				return ctx.Err() == nil
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(catchUpPeriod):
		}
	}
}

// catchUpPeriod is how often it is looked whether the tables have what they lack.
const catchUpPeriod = 50 * time.Millisecond

// bindings lists the pods that have a node and are not over.
func (s *Scheduler) bindings(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	// In one page: the API server answers from memory then, and as of now.
	list, err := s.metadata.Resource(v1.SchemeGroupVersion.WithResource("pods")).List(ctx, metav1.ListOptions{
		FieldSelector: "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed",
	})
	s.metrics.Request("list", err)
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// alive returns those of the pods that are there still.
func (s *Scheduler) alive(ctx context.Context, pods []metav1.PartialObjectMetadata) []metav1.PartialObjectMetadata {
	var out []metav1.PartialObjectMetadata
	for _, p := range pods {
		got, err := s.client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		s.metrics.Request("get", err)
		if apierrors.IsNotFound(err) || err == nil && (got.UID != p.UID || trimPod(got).over()) {
			continue
		}
		out = append(out, p)
	}
	return out
}

// unseen returns those of the pods of which the tables do not know that they have
// a node.
func (m *mirror) unseen(pods []metav1.PartialObjectMetadata) []metav1.PartialObjectMetadata {
	var out []metav1.PartialObjectMetadata
	for i := range pods {
		if p := m.pods[pods[i].UID]; p == nil || p.object.node == "" {
			out = append(out, pods[i])
		}
	}
	return out
}

// lease is what a Lease of ours says.
type lease struct {
	name, holder, layout string
	// live says that it has not run out since it was last seen to change, by the
	// clock of this instance: others may have other times.
	live   bool
	object *coordinationv1.Lease
}

// sightings are when Leases were first seen as they are, by name.
type sightings struct {
	mu sync.Mutex
	by map[string]sighting
}

type sighting struct {
	version string
	at      time.Time
}

// see notes a Lease as it is, and returns for how long it has been so.
func (l *sightings) see(o *coordinationv1.Lease) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = map[string]sighting{}
	}
	seen, ok := l.by[o.Name]
	if !ok || seen.version != o.ResourceVersion {
		seen = sighting{o.ResourceVersion, time.Now()}
		l.by[o.Name] = seen
	}
	return time.Since(seen.at)
}

// leases lists the Leases of shards and instances. Those of instances that ended
// long ago it deletes.
func (s *Scheduler) leases(ctx context.Context) ([]lease, error) {
	api := s.leasing.CoordinationV1().Leases(s.config.Leader.Namespace)
	list, err := api.List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.ShardsLabel})
	s.metrics.Request("list", err)
	if err != nil {
		return nil, err
	}
	var out []lease
	for i := range list.Items {
		o := &list.Items[i]
		l := lease{name: o.Name, holder: ptr.Deref(o.Spec.HolderIdentity, ""), layout: o.Labels[v1alpha1.ShardsLabel], object: o}
		age := s.sightings.see(o)
		l.live = l.holder != "" && age < time.Duration(ptr.Deref(o.Spec.LeaseDurationSeconds, 0))*time.Second
		if strings.HasPrefix(o.Name, memberPrefix) && !l.live && o.Spec.RenewTime != nil && s.now().Sub(o.Spec.RenewTime.Time) > forgotten {
			_ = api.Delete(ctx, o.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(o.UID))})
		}
		out = append(out, l)
	}
	return out, nil
}

func (s *Scheduler) memberLease() string {
	return memberPrefix + objectName(s.config.Leader.Identity)
}

// signOn says that this instance lives.
func (s *Scheduler) signOn(ctx context.Context) error {
	now := metav1.NewMicroTime(s.now())
	o := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: s.memberLease(), Namespace: s.config.Leader.Namespace, Labels: map[string]string{v1alpha1.ShardsLabel: s.layout}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &s.config.Leader.Identity, LeaseDurationSeconds: ptr.To(int32(s.config.Leader.LeaseDuration / time.Second)), RenewTime: &now,
		},
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": o.Labels}, "spec": o.Spec})
	if err != nil {
		return err
	}
	api := s.leasing.CoordinationV1().Leases(o.Namespace)
	_, err = api.Patch(ctx, o.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = api.Create(ctx, o, metav1.CreateOptions{})
	}
	return err
}

// signOff says that this instance takes no shard any more, so that the others do
// without delay.
func (s *Scheduler) signOff() {
	if len(s.config.Shards) == 1 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.config.Leader.RenewDeadline)
	defer cancel()
	err := s.leasing.CoordinationV1().Leases(s.config.Leader.Namespace).Delete(ctx, s.memberLease(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		s.log.Warn("cannot release the leases: other instances take over when they expire", "error", err)
	}
}
