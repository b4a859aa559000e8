package act

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/kube/translate"
)

// Extended provides through DRA what a pod requests as an extended resource.
type Extended struct {
	Resource v1.ResourceName
	Class    string // the DeviceClass that provides it; empty if none does any more
	Config   []resourceapi.DeviceClassConfiguration
	Devices  []translate.DeviceID

	claim *translate.ClaimWrite // once it has been made
}

// extend creates the claim of a pod that requests GPUs as a resource that DRA provides,
// writes the devices into the claim, and writes into the pod's status which container has
// which device. If that fails, the claim is deleted.
func (a *Actor) extend(ctx context.Context, b *Bind) error {
	err := Retry(ctx, func() error { return a.makeExtended(ctx, b) })
	a.metrics.Request("extend", err)
	if err != nil {
		a.unextend(ctx, b)
		return fmt.Errorf("the claim for %s: %v", b.Extended.Resource, err) //nolint:errorlint // the pod is not gone, whatever is
	}
	return nil
}

// makeExtended makes one attempt of extend.
func (a *Actor) makeExtended(ctx context.Context, b *Bind) error {
	x := b.Extended
	if x.Class == "" {
		return refusal("no device class provides it anymore")
	}
	pod, err := a.client.CoreV1().Pods(b.Namespace).Get(ctx, b.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if pod.UID != b.UID {
		return refusal("the pod has been replaced by another")
	}
	requests, mappings, err := translate.ExtendedRequests(pod, x.Resource, x.Class)
	if err != nil {
		return refusal(err.Error())
	}

	// 1. A claim that an earlier scheduler created for the pod is deleted: its devices may
	// differ from those of this decision.
	if old := pod.Status.ExtendedResourceClaimStatus; old != nil && x.claim == nil {
		if err := a.discard(ctx, b.Namespace, old.ResourceClaimName, b.UID); err != nil {
			return err
		}
	}

	// 2. The claim is created, unless an earlier attempt of this act has created it.
	claims := a.client.ResourceV1().ResourceClaims(b.Namespace)
	if x.claim == nil {
		c, err := claims.Create(ctx, &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{
				GenerateName: b.Name + "-extended-resources-", Namespace: b.Namespace,
				Annotations:     map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: b.Name, UID: b.UID, Controller: ptr.To(true)}},
			},
			Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		x.claim = &translate.ClaimWrite{
			Namespace: c.Namespace, Name: c.Name, UID: c.UID, Version: c.ResourceVersion,
			Consumer: resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: b.Name, UID: b.UID},
		}
	}

	// 3. The devices are assigned to the requests of the containers, in order.
	wanted, err := translate.DeviceClaimOf(&resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}})
	if err != nil {
		return err
	}
	left := x.Devices
	var grants []translate.Grant
	for i := range wanted.Requests {
		need := &wanted.Requests[i].Any[0]
		if len(left) < need.Count {
			return refusal(fmt.Sprintf("%d devices were chosen, fewer than its containers need", len(x.Devices)))
		}
		grants = append(grants, translate.Grant{Need: need, Devices: left[:need.Count], Config: x.Config})
		left = left[need.Count:]
	}

	// 4. The claim's status gets the devices, then the pod's status the claim: a kubelet that
	// finds the claim in the pod must find the devices in the claim.
	x.claim.Allocation = wanted.Allocation(b.Node, grants)
	if err := a.allocate(ctx, x.claim); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": b.UID},
		"status":   map[string]any{"extendedResourceClaimStatus": v1.PodExtendedResourceClaimStatus{ResourceClaimName: x.claim.Name, RequestMappings: mappings}},
	})
	if err != nil {
		return err
	}
	_, err = a.client.CoreV1().Pods(b.Namespace).Patch(ctx, b.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// unextend deletes the claim that extend made for a pod that does not start.
func (a *Actor) unextend(ctx context.Context, b *Bind) {
	if b.Extended == nil || b.Extended.claim == nil {
		return
	}
	err := Retry(ctx, func() error { return a.discard(ctx, b.Namespace, b.Extended.claim.Name, b.UID) })
	if err != nil && ctx.Err() == nil {
		a.log.Error("cannot delete a resource claim", "claim", b.Namespace+"/"+b.Extended.claim.Name, "error", err)
	}
}

// discard deletes a claim that Muster made for a pod, and no other.
func (a *Actor) discard(ctx context.Context, namespace, name string, pod types.UID) error {
	claims := a.client.ResourceV1().ResourceClaims(namespace)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		c, err := claims.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if owner := metav1.GetControllerOfNoCopy(c); owner == nil || owner.UID != pod || c.Annotations[resourceapi.ExtendedResourceClaimAnnotation] != "true" {
			return nil
		}
		if i := slices.Index(c.Finalizers, resourceapi.Finalizer); i >= 0 {
			c.Finalizers = slices.Delete(c.Finalizers, i, i+1)
			if c, err = claims.Update(ctx, c, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		return claims.Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(c.UID))})
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
