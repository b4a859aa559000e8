package act

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/translate"
)

// look caches what one round over all moves reads: several pods of a node often have the
// same owner.
type look struct {
	a      *Actor
	nodes  map[string]*v1.Node
	owners map[types.UID]*replicas
}

func newLook(a *Actor) *look {
	return &look{a: a, nodes: map[string]*v1.Node{}, owners: map[types.UID]*replicas{}}
}

// replicas is a ReplicaSet with its pods, those that are being moved too.
type replicas struct {
	set  *appsv1.ReplicaSet // nil when it is gone
	pods []v1.Pod
}

// node reads a node; nil when it is gone.
func (l *look) node(ctx context.Context, name string) (*v1.Node, error) {
	if n, ok := l.nodes[name]; ok {
		return n, nil
	}
	n, err := l.a.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	l.a.metrics.Request("get", err)
	if apierrors.IsNotFound(err) {
		n, err = nil, nil
	}
	if err == nil {
		l.nodes[name] = n
	}
	return n, err
}

// replicas reads an owner and its pods.
func (l *look) replicas(ctx context.Context, namespace string, owner *metav1.OwnerReference, hash string) (*replicas, error) {
	if r := l.owners[owner.UID]; r != nil {
		return r, nil
	}
	r := &replicas{}
	set, err := l.a.client.AppsV1().ReplicaSets(namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	l.a.metrics.Request("get", err)
	switch {
	case apierrors.IsNotFound(err), err == nil && (set.UID != owner.UID || set.DeletionTimestamp != nil):
		l.owners[owner.UID] = r
		return r, nil
	case err != nil:
		return nil, err
	}
	r.set = set
	selector := fmt.Sprintf("%s in (%s,%s)", appsv1.DefaultDeploymentUniqueLabelKey, hash, translate.MovingHash(hash))
	pods, err := l.a.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	l.a.metrics.Request("list", err)
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		if o := translate.ControllerOf(&pods.Items[i]); o != nil && o.UID == owner.UID {
			r.pods = append(r.pods, pods.Items[i])
		}
	}
	l.owners[owner.UID] = r
	return r, nil
}

// available counts the pods that are available, without one pod and, of those that move
// too, only those after it in their order. So two instances that each evict one of two
// pods at the same time leave enough: of pods of which each has enough without those
// before it, all may leave at once.
func (r *replicas) available(without types.UID, now time.Time) int32 {
	n := int32(0)
	for i := range r.pods {
		p := &r.pods[i]
		if p.UID != without && r.isAvailable(p, now) && (p.UID > without || !translate.MoveOf(p).Active()) {
			n++
		}
	}
	return n
}

// isAvailable reports whether a pod has been ready for as long as its owner wants.
func (r *replicas) isAvailable(p *v1.Pod, now time.Time) bool {
	if p.DeletionTimestamp != nil {
		return false
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
			return now.Sub(c.LastTransitionTime.Time) >= time.Duration(r.set.Spec.MinReadySeconds)*time.Second
		}
	}
	return false
}

// wanted returns the number of pods that the owner should have.
func (r *replicas) wanted() int32 {
	switch {
	case r.set == nil:
		return 0
	case r.set.Spec.Replicas == nil:
		return 1
	}
	return *r.set.Spec.Replicas
}

// lacks says what the owner's pods that are not available wait for.
func (r *replicas) lacks(but types.UID, now time.Time) string {
	for i := range r.pods {
		p := &r.pods[i]
		if p.UID == but || p.DeletionTimestamp != nil || translate.MoveOf(p).Active() || r.isAvailable(p, now) {
			continue
		}
		for j := range p.Status.Conditions {
			if c := &p.Status.Conditions[j]; c.Type == v1alpha1.WaitingCondition && c.Status == v1.ConditionTrue {
				return fmt.Sprintf("%s waits: %s: %s", p.Name, c.Reason, translate.WhyWaiting(c.Message))
			}
		}
		if p.Spec.NodeName == "" {
			return p.Name + " waits for room"
		}
		return fmt.Sprintf("%s is on %s and not ready", p.Name, p.Spec.NodeName)
	}
	for _, c := range r.set.Status.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == v1.ConditionTrue {
			return fmt.Sprintf("ReplicaSet %s cannot create a replacement: %s", r.set.Name, c.Message)
		}
	}
	return fmt.Sprintf("ReplicaSet %s has yet to create a replacement", r.set.Name)
}
