package act

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/translate"
)

// The owners of pods, of any kind.

// owning is an owner as it was read.
type owning struct {
	object   *unstructured.Unstructured
	resource schema.GroupVersionResource
	how      translate.Suspension
}

// flag reports whether it is suspended.
func (o *owning) flag() bool {
	on, _, _ := unstructured.NestedBool(o.object.Object, o.how.Field...)
	return on
}

// ownerOf finds the object to suspend: the topmost of the pods' common owners. No owner
// above it may be of an unknown kind, which might remove the flag again; a CronJob does
// not. It returns nil when there is no such object.
func (a *Actor) ownerOf(ctx context.Context, x *Suspend) (*owning, suspendMark, error) {
	var found *owning
	var mark suspendMark
	seen := map[types.UID]*owning{}
	for i := range x.Owners {
		var top *owning
		for ref := &x.Owners[i]; ref != nil; ref = metav1.GetControllerOf(top.object) {
			gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
			how, ok := translate.SuspensionOf(gvk.GroupKind())
			if !ok {
				if gvk.GroupKind() == (schema.GroupKind{Group: "batch", Kind: "CronJob"}) {
					break
				}
				return nil, mark, nil
			}
			o := seen[ref.UID]
			if o == nil {
				var err error
				if o, err = a.readOwner(ctx, x.Group.Namespace, ref, how); err != nil {
					return nil, mark, err
				}
				seen[ref.UID] = o
			}
			if how.PodLabel != "" {
				mark.selector = how.PodLabel + "=" + ref.Name
			}
			top = o
		}
		if found != nil && found != top {
			return nil, mark, nil
		}
		found = top
	}
	if found == nil || found.how.Field == nil || mark.selector == "" {
		return nil, mark, nil
	}
	return found, mark, nil
}

// readOwner reads the owner that a reference names; NotFound if another has its name.
func (a *Actor) readOwner(ctx context.Context, namespace string, ref *metav1.OwnerReference, how translate.Suspension) (*owning, error) {
	resource, err := a.resource(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
	if err != nil {
		return nil, err
	}
	o, err := a.dynamic.Resource(resource).Namespace(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	a.metrics.Request("get", err)
	if err == nil && o.GetUID() != ref.UID {
		err = apierrors.NewNotFound(resource.GroupResource(), ref.Name)
	}
	if err != nil {
		return nil, err
	}
	return &owning{object: o, resource: resource, how: how}, nil
}

// setSuspended writes the flag and our mark, or removes both when mark is nil. It fails
// when the object has changed since it was read. On a Job that has no other label, ours becomes
// "false": the API server gives a Job without labels those of its pods, which the chart's policy
// does not let the scheduler write.
func (a *Actor) setSuspended(ctx context.Context, o *owning, mark *suspendMark) error {
	meta := map[string]any{
		"resourceVersion": o.object.GetResourceVersion(),
		"labels":          map[string]any{v1alpha1.SuspendedLabel: nil},
		"annotations":     map[string]any{v1alpha1.SuspendedAnnotation: nil},
	}
	patch := map[string]any{"metadata": meta}
	if _, ours := o.object.GetLabels()[v1alpha1.SuspendedLabel]; ours && len(o.object.GetLabels()) == 1 && o.resource.Group == "batch" {
		meta["labels"] = map[string]any{v1alpha1.SuspendedLabel: "false"}
	}
	if mark != nil {
		meta["labels"] = map[string]any{v1alpha1.SuspendedLabel: "true"}
		meta["annotations"] = map[string]any{v1alpha1.SuspendedAnnotation: mark.String()}
	}
	if o.flag() != (mark != nil) {
		if err := unstructured.SetNestedField(patch, mark != nil, o.how.Field...); err != nil {
			return err
		}
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = a.dynamic.Resource(o.resource).Namespace(o.object.GetNamespace()).Patch(ctx, o.object.GetName(), types.MergePatchType, data, metav1.PatchOptions{})
	return err
}

// errNotServed is how errors begin about kinds that do not exist.
var errNotServed = errors.New("the API server does not serve")

// resource finds the resource of a kind, and remembers it.
func (a *Actor) resource(gvk schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	if r, ok := a.resources.Load(gvk); ok {
		return r.(schema.GroupVersionResource), nil
	}
	list, err := a.client.Discovery().ServerResourcesForGroupVersion(gvk.GroupVersion().String())
	if err != nil && !apierrors.IsNotFound(err) {
		return schema.GroupVersionResource{}, err
	}
	if list != nil {
		for _, r := range list.APIResources {
			if r.Kind == gvk.Kind {
				found := gvk.GroupVersion().WithResource(r.Name)
				a.resources.Store(gvk, found)
				return found, nil
			}
		}
	}
	return schema.GroupVersionResource{}, fmt.Errorf("%w %s of %s", errNotServed, gvk.Kind, gvk.GroupVersion())
}
