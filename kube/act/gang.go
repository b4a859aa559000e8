package act

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

// ReadGang reads the object that contains the size of a gang. It is the only act that
// writes nothing.
type ReadGang struct {
	Group  translate.Group
	Object translate.ObjectRef
}

// An object that could not be read is read again after gangPause: its controller may
// create it after the pods, or a cache of the API server may be late. The pause doubles
// each time, up to gangPauseMost.
const (
	gangPause     = 100 * time.Millisecond
	gangPauseMost = 5 * time.Second
)

// readGang retries until the object can be read, or need no longer be read.
func (a *Actor) readGang(ctx context.Context, x ReadGang) {
	for pause := gangPause; ; pause = min(2*pause, gangPauseMost) {
		gang, err := a.gang(ctx, x.Group.Namespace, x.Object)
		a.metrics.Request("get", err)
		if !a.outcomes.GangRead(ctx, x.Group, gang, err) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// gang reads the object once. An optional object that does not exist counts as empty.
func (a *Actor) gang(ctx context.Context, namespace string, ref translate.ObjectRef) (*translate.Gang, error) {
	resource, err := a.resource(ref.GroupVersionKind)
	if err != nil {
		return nil, err
	}
	o, err := a.dynamic.Resource(resource).Namespace(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
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
	return g, a.askOwners(ctx, o, g)
}

// askOwners adds what the owners of an object say about the job, and when the topmost was
// created. It considers only owners that create another object after they were suspended:
// a suspended RayJob creates another RayCluster, which waits in the place of the first.
func (a *Actor) askOwners(ctx context.Context, o *unstructured.Unstructured, g *translate.Gang) error {
	for ref := metav1.GetControllerOf(o); ref != nil; ref = metav1.GetControllerOf(o) {
		how, ok := translate.SuspensionOf(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind())
		if !ok {
			return nil
		}
		owner, err := a.readOwner(ctx, o.GetNamespace(), ref, how)
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
