package act

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"

	"github.com/muster-sched/muster/kube/translate"
)

// Bind asks to bind a pod to a node.
type Bind struct {
	Pod
	Node        string
	Annotations map[string]string      // to add to the pod
	Gated       bool                   // it has our scheduling gate, which has to go first
	Claims      []translate.ClaimWrite // the resource claims to write before
	Extended    *Extended              // the claim to make before; nil for none
}

// queue has the pods to bind, first in first out, without bound.
type queue struct {
	mu     sync.Mutex
	some   sync.Cond
	list   []Bind
	closed bool
}

func (q *queue) put(list ...Bind) {
	q.mu.Lock()
	q.list = append(q.list, list...)
	q.mu.Unlock()
	for range list {
		q.some.Signal()
	}
}

// take waits for the next pod to bind; false if the queue is closed.
func (q *queue) take() (Bind, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.list) == 0 && !q.closed {
		q.some.Wait()
	}
	if q.closed {
		return Bind{}, false
	}
	b := q.list[0]
	q.list = q.list[1:]
	return b, true
}

func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.some.Broadcast()
}

// bindAll binds pods until the queue is closed.
func (a *Actor) bindAll(ctx context.Context) {
	for {
		b, ok := a.bindings.take()
		if !ok {
			return
		}
		began := a.now()
		err := a.bind(ctx, &b)
		a.metrics.bind.Observe(a.now().Sub(began).Seconds())
		if err != nil && ctx.Err() != nil {
			return
		}
		a.metrics.Request("bind", err)
		gone := apierrors.IsNotFound(err)
		if err != nil && !gone {
			a.log.Warn("cannot bind a pod", "pod", b.Pod.String(), "node", b.Node, "error", err)
		}
		a.outcomes.Bound(b.UID, err == nil, gone)
	}
}

// bind binds one pod.
func (a *Actor) bind(ctx context.Context, b *Bind) error {
	// 1. The devices are written into its claims, so that its kubelet finds them.
	if err := a.reserve(ctx, b.Claims); err != nil {
		return err
	}
	if b.Extended != nil {
		if err := a.extend(ctx, b); err != nil {
			return err
		}
	}

	// 2. Our scheduling gate is removed: the API server binds no pod that has gates.
	// 3. The pod is bound. If the answer to an earlier attempt was lost, this is not an error:
	// the API server binds a pod once (bindConflict).
	binding := &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Name, UID: b.UID, Annotations: b.Annotations},
		Target:     v1.ObjectReference{Kind: "Node", Name: b.Node},
	}
	err := Retry(ctx, func() error {
		if b.Gated {
			if err := a.ungate(ctx, b.Pod); err != nil {
				return a.bindConflict(ctx, b, err)
			}
		}
		return a.bindConflict(ctx, b, a.client.CoreV1().Pods(b.Namespace).Bind(ctx, binding, metav1.CreateOptions{}))
	})

	// 4. Where the API server has not answered, the pod shows whether it is bound. Until it can
	// be read, the places that it was given are not free.
	if err != nil && IsTransient(err) {
		err = a.boundAnyway(ctx, b, err)
	}

	// 5. If the pod does not start, its claims release the devices. The claims of a pod that
	// no longer exists are deleted with it.
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		a.giveBack(ctx, b.Claims)
		a.unextend(ctx, b)
	}
	return err
}

// boundAnyway reads a pod, as often as it takes, of which it is not known whether it was
// bound. It returns nil if it was, NotFound if it is gone, and err if it was not bound.
func (a *Actor) boundAnyway(ctx context.Context, b *Bind, err error) error {
	for {
		p, getErr := a.client.CoreV1().Pods(b.Namespace).Get(ctx, b.Name, metav1.GetOptions{})
		a.metrics.Request("get", getErr)
		switch {
		case apierrors.IsNotFound(getErr) || getErr == nil && p.UID != b.UID:
			return apierrors.NewNotFound(v1.Resource("pods"), b.Name)
		case getErr == nil && p.Spec.NodeName != "":
			return nil
		case getErr == nil || !IsTransient(getErr):
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(readAgain):
		}
	}
}

// readAgain is the time between two attempts to read what a write without an answer did.
const readAgain = 2 * time.Second

// bindConflict returns err, unless it is a conflict that the present state of the pod
// explains: it is another pod; it is bound (by an earlier attempt or an earlier
// scheduler: the watch shows the node); or nothing prevents the binding, which can be
// retried.
func (a *Actor) bindConflict(ctx context.Context, b *Bind, err error) error {
	if !apierrors.IsConflict(err) {
		return err
	}
	p, getErr := a.client.CoreV1().Pods(b.Namespace).Get(ctx, b.Name, metav1.GetOptions{})
	switch {
	case getErr != nil:
		return getErr
	case p.UID != b.UID:
		return apierrors.NewNotFound(v1.Resource("pods"), b.Name)
	case p.Spec.NodeName != "":
		return nil
	case p.DeletionTimestamp == nil:
		return apierrors.NewServerTimeout(v1.Resource("pods"), "bind", 0)
	}
	return err
}

// ungate removes our scheduling gate from a pod.
func (a *Actor) ungate(ctx context.Context, p Pod) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID},
		"spec":     map[string]any{"schedulingGates": []map[string]any{{"$patch": "delete", "name": v1alpha1.QuotaGate}}},
	})
	if err != nil {
		return err
	}
	_, err = a.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}
