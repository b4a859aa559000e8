package kube

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-sched/muster/kube/translate"
)

// An object that could not be read is read again after sizePause, at first: its
// controller may make it after the pods, or a cache of the API server be behind.
// The pause doubles each time, up to sizePauseMost.
const (
	sizePause     = 100 * time.Millisecond
	sizePauseMost = 5 * time.Second
)

// ask reads the object that says how large a gang is, until it can be read or nobody
// wants to know any more.
func (s *Scheduler) ask(ctx context.Context, id translate.Group, ref translate.ObjectRef) {
	again := make(chan bool, 1)
	for pause := sizePause; ; pause = min(2*pause, sizePauseMost) {
		gang, err := s.gang(ctx, id.Namespace, ref)
		s.metrics.Request("get", err)
		s.box.put(func(m *mirror) { again <- m.asked(id, gang, err) })
		select {
		case <-ctx.Done():
			return
		case more := <-again:
			if !more {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (s *Scheduler) gang(ctx context.Context, namespace string, ref translate.ObjectRef) (*translate.Gang, error) {
	resource, err := s.resource(ref.GroupVersionKind)
	if err != nil {
		return nil, err
	}
	o, err := s.dynamic.Resource(resource).Namespace(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if !ref.Sizes() && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)) {
		return &translate.Gang{}, nil
	}
	if err != nil {
		return nil, err
	}
	g, err := translate.GangOf(o)
	if err != nil {
		return nil, err
	}
	return g, s.askOwners(ctx, o, g)
}

// askOwners adds what the owners of an object say of the job, of those that make it
// anew after they were suspended, and when the topmost was made. A RayJob has
// another RayCluster then, which waits in the place of the first.
func (s *Scheduler) askOwners(ctx context.Context, o *unstructured.Unstructured, g *translate.Gang) error {
	for ref := metav1.GetControllerOf(o); ref != nil; ref = metav1.GetControllerOf(o) {
		how, ok := translate.SuspensionOf(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind())
		if !ok {
			return nil
		}
		owner, err := s.readOwner(ctx, o.GetNamespace(), ref, how)
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return nil // what is not known changes nothing
		}
		if err != nil {
			return err
		}
		o = owner.object
		var says translate.Attributes
		if err := says.Read(o); err != nil {
			return fmt.Errorf("%s %s: %w", ref.Kind, ref.Name, err)
		}
		g.Attributes, g.Since = g.Attributes.Over(&says), o.GetCreationTimestamp().Time
	}
	return nil
}

// resource finds the resource of a kind, and remembers it.
func (s *Scheduler) resource(gvk schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	if r, ok := s.resources.Load(gvk); ok {
		return r.(schema.GroupVersionResource), nil
	}
	list, err := s.client.Discovery().ServerResourcesForGroupVersion(gvk.GroupVersion().String())
	if err != nil && !apierrors.IsNotFound(err) {
		return schema.GroupVersionResource{}, err
	}
	if list != nil {
		for _, r := range list.APIResources {
			if r.Kind == gvk.Kind {
				found := gvk.GroupVersion().WithResource(r.Name)
				s.resources.Store(gvk, found)
				return found, nil
			}
		}
	}
	return schema.GroupVersionResource{}, fmt.Errorf("the API server serves no %s of %s", gvk.Kind, gvk.GroupVersion())
}
