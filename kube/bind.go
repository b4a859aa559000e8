package kube

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/net"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// order is a bindAct on its way: what a worker needs, and nothing of the tables.
type order struct {
	namespace, name, node string
	uid                   types.UID
	annotations           map[string]string
	gated                 bool
	claims                []claimOrder
	extended              *extendedOrder
}

// orders is a queue without bound, first in first out.
type orders struct {
	mu     sync.Mutex
	some   sync.Cond
	list   []order
	closed bool
}

func newOrders() *orders {
	q := &orders{}
	q.some.L = &q.mu
	return q
}

func (q *orders) put(o order) {
	q.mu.Lock()
	q.list = append(q.list, o)
	q.mu.Unlock()
	q.some.Signal()
}

// take waits for an order; false when the queue is closed.
func (q *orders) take() (order, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.list) == 0 && !q.closed {
		q.some.Wait()
	}
	if q.closed {
		return order{}, false
	}
	o := q.list[0]
	q.list = q.list[1:]
	return o, true
}

func (q *orders) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.some.Broadcast()
}

// patience is how long a binding is tried again while the API server cannot
// take it.
const patience = 30 * time.Second

// bindAll carries out orders until there are no more to come.
func (s *Scheduler) bindAll(ctx context.Context) {
	for {
		o, ok := s.orders.take()
		if !ok {
			return
		}
		began := s.now()
		err := s.bind(ctx, &o)
		s.metrics.bind.Observe(s.now().Sub(began).Seconds())
		if err != nil && ctx.Err() != nil {
			return
		}
		s.metrics.request("bind", err)
		gone := apierrors.IsNotFound(err)
		if err != nil && !gone {
			s.log.Warn("a pod could not be bound", "pod", o.namespace+"/"+o.name, "node", o.node, "error", err)
		}
		uid := o.uid
		s.box.put(func(m *mirror) { m.bound(uid, err == nil, gone) })
	}
}

// bind binds one pod. That the answer to an earlier attempt was lost is no
// error: the API server binds a pod once.
func (s *Scheduler) bind(ctx context.Context, o *order) error {
	if err := s.reserve(ctx, o.claims); err != nil {
		return err
	}
	if o.extended != nil {
		if err := s.extend(ctx, o); err != nil {
			return err
		}
	}
	binding := &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: o.name, UID: o.uid, Annotations: o.annotations},
		Target:     v1.ObjectReference{Kind: "Node", Name: o.node},
	}
	err := s.retry(ctx, func() error {
		if o.gated {
			if err := s.ungate(ctx, o); err != nil {
				return s.bindConflict(ctx, o, err)
			}
		}
		return s.bindConflict(ctx, o, s.client.CoreV1().Pods(o.namespace).Bind(ctx, binding, metav1.CreateOptions{}))
	})
	if err != nil && !apierrors.IsNotFound(err) { // the claims of a pod that is gone go with it
		s.giveBack(ctx, o.claims)
		s.unextend(ctx, o)
	}
	return err
}

// bindConflict returns err, unless it is a conflict of which the pod as it is now
// says what it means: that the pod is another, that it is bound (the watch says
// where: an earlier attempt may have bound it, or an earlier scheduler), or that
// nothing is wrong with it and it may be tried again.
func (s *Scheduler) bindConflict(ctx context.Context, o *order, err error) error {
	if !apierrors.IsConflict(err) {
		return err
	}
	p, getErr := s.client.CoreV1().Pods(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
	switch {
	case getErr != nil:
		return getErr
	case p.UID != o.uid:
		return apierrors.NewNotFound(v1.Resource("pods"), o.name)
	case p.Spec.NodeName != "":
		return nil
	case p.DeletionTimestamp == nil:
		return apierrors.NewServerTimeout(v1.Resource("pods"), "bind", 0)
	}
	return err
}

// ungate takes our scheduling gate off a pod.
func (s *Scheduler) ungate(ctx context.Context, o *order) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": o.uid},
		"spec":     map[string]any{"schedulingGates": []map[string]any{{"$patch": "delete", "name": v1alpha1.QuotaGate}}},
	})
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().Pods(o.namespace).Patch(ctx, o.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}

// retry tries again, less and less often, while the API server is away or has
// too much to do.
func (s *Scheduler) retry(ctx context.Context, do func() error) error {
	pause := 20 * time.Millisecond
	for waited := time.Duration(0); ; waited += pause {
		err := do()
		if err == nil || !passes(err) || waited > patience {
			return err
		}
		pause = min(2*pause, 2*time.Second)
		if after, ok := apierrors.SuggestsClientDelay(err); ok {
			pause = max(pause, time.Duration(after)*time.Second)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// passes reports whether an error may go away by itself.
func passes(err error) bool {
	if _, refused := errors.AsType[refusal](err); refused || errors.Is(err, context.Canceled) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // no answer
	}
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || net.IsConnectionRefused(err)
}
