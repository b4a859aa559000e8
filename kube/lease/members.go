package lease

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// lease is the content of one of Muster's Leases.
type lease struct {
	name, holder, layout string
	// live is set if it has not expired since its last observed change, by the clock of
	// this instance: other clocks may differ.
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

// see records the state of a Lease, and returns how long it has not changed.
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
func (e *Election) leases(ctx context.Context) ([]lease, error) {
	api := e.client.CoordinationV1().Leases(e.leader.Namespace)
	list, err := api.List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.ShardsLabel})
	e.requested("list", err)
	if err != nil {
		return nil, err
	}
	var out []lease
	for i := range list.Items {
		o := &list.Items[i]
		l := lease{name: o.Name, holder: ptr.Deref(o.Spec.HolderIdentity, ""), layout: o.Labels[v1alpha1.ShardsLabel], object: o}
		age := e.sightings.see(o)
		l.live = l.holder != "" && age < time.Duration(ptr.Deref(o.Spec.LeaseDurationSeconds, 0))*time.Second
		if strings.HasPrefix(o.Name, memberPrefix) && !l.live && o.Spec.RenewTime != nil && e.now().Sub(o.Spec.RenewTime.Time) > forgotten {
			_ = api.Delete(ctx, o.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(o.UID))})
		}
		out = append(out, l)
	}
	return out, nil
}

func (e *Election) memberLease() string {
	return memberPrefix + objectName(e.leader.Identity)
}

// signOn renews the Lease that shows the other instances that this one is alive.
func (e *Election) signOn(ctx context.Context) error {
	now := metav1.NewMicroTime(e.now())
	o := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: e.memberLease(), Namespace: e.leader.Namespace, Labels: map[string]string{v1alpha1.ShardsLabel: e.layout}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &e.leader.Identity, LeaseDurationSeconds: ptr.To(int32(e.leader.LeaseDuration / time.Second)), RenewTime: &now,
		},
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": o.Labels}, "spec": o.Spec})
	if err != nil {
		return err
	}
	api := e.client.CoordinationV1().Leases(o.Namespace)
	_, err = api.Patch(ctx, o.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = api.Create(ctx, o, metav1.CreateOptions{})
	}
	return err
}

// signOff deletes that Lease: this instance takes no more shards, and the others take its
// shards without delay.
func (e *Election) signOff() {
	if len(e.shards) == 1 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.leader.RenewDeadline)
	defer cancel()
	err := e.client.CoordinationV1().Leases(e.leader.Namespace).Delete(ctx, e.memberLease(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		e.log.Warn("cannot release the leases: other instances take over when they expire", "error", err)
	}
}
