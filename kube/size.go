package kube

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// ask reads the object that says how large a gang is, until it can be read.
func (s *Scheduler) ask(ctx context.Context, id translate.Group, ref translate.ObjectRef) {
	for pause := sizePause; ctx.Err() == nil; pause = min(2*pause, sizePauseMost) {
		n, err := s.size(ctx, id.Namespace, ref)
		s.metrics.request("get", err)
		s.box.put(func(m *mirror) { m.sized(id, n, err) })
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (s *Scheduler) size(ctx context.Context, namespace string, ref translate.ObjectRef) (int, error) {
	resource, err := s.resource(ref.GroupVersionKind)
	if err != nil {
		return 0, err
	}
	o, err := s.dynamic.Resource(resource).Namespace(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	return translate.Size(o), nil
}

// resource finds the resource of a kind.
func (s *Scheduler) resource(gvk schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	list, err := s.client.Discovery().ServerResourcesForGroupVersion(gvk.GroupVersion().String())
	if err != nil && !apierrors.IsNotFound(err) {
		return schema.GroupVersionResource{}, err
	}
	if list != nil {
		for _, r := range list.APIResources {
			if r.Kind == gvk.Kind {
				return gvk.GroupVersion().WithResource(r.Name), nil
			}
		}
	}
	return schema.GroupVersionResource{}, fmt.Errorf("the API server serves no %s of %s", gvk.Kind, gvk.GroupVersion())
}
