package kube

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

// claimOrder is what is to be done about a claim of a pod: what a worker needs,
// and nothing of the tables.
type claimOrder struct {
	namespace, name, version string
	uid                      types.UID
	finalizer                bool // it has that of allocated claims
	// allocation is written unless the claim has it already; nil for none.
	allocation *resourceapi.AllocationResult
	consumer   resourceapi.ResourceClaimConsumerReference
	// last says that nobody uses the claim any more, the consumer's other pods
	// included.
	last bool
	// wrong says why it cannot be.
	wrong string
}

// refusal says why devices cannot be had as things are: trying again is of no use.
type refusal string

func (r refusal) Error() string { return string(r) }

// reserve writes into the claims of a pod which devices they have, and that it is
// the pod's. When one cannot be had, those before it are given back. Errors do
// not say that the pod is gone, whatever they are about.
func (s *Scheduler) reserve(ctx context.Context, list []claimOrder) error {
	for i := range list {
		o := &list[i]
		err := error(refusal(o.wrong))
		if o.wrong == "" {
			err = s.retry(ctx, func() error { return s.allocate(ctx, o) })
		}
		s.metrics.request("allocate", err)
		if err != nil {
			s.giveBack(ctx, list[:i+1])
			return fmt.Errorf("resource claim %s: %v", o.name, err) //nolint:errorlint // see above
		}
	}
	return nil
}

// allocate writes one claim: first the finalizer that keeps it while it has
// devices, then the devices and the consumer. What others changed meanwhile is
// read, and written over only where it is not about devices.
func (s *Scheduler) allocate(ctx context.Context, o *claimOrder) error {
	claims := s.client.ResourceV1().ResourceClaims(o.namespace)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		version, finalizer, allocation := o.version, o.finalizer, o.allocation
		o.version = "" // a second attempt reads it
		if version == "" {
			c, err := claims.Get(ctx, o.name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			version, finalizer = c.ResourceVersion, slices.Contains(c.Finalizers, resourceapi.Finalizer)
			switch a := c.Status.Allocation; {
			case c.UID != o.uid || c.DeletionTimestamp != nil:
				return refusal("it is being replaced")
			case a == nil && allocation == nil:
				return refusal("its devices were taken away")
			case a != nil && allocation != nil && !slices.Equal(translate.AllocatedDevices(a), translate.AllocatedDevices(allocation)):
				return refusal("it has other devices already")
			case a != nil:
				allocation = nil
			}
		}
		if !finalizer && allocation != nil {
			c, err := s.patchClaim(ctx, o, map[string]any{"resourceVersion": version, "finalizers": []string{resourceapi.Finalizer}}, nil)
			if err != nil {
				return err
			}
			version = c.ResourceVersion
		}
		status := map[string]any{"reservedFor": []resourceapi.ResourceClaimConsumerReference{o.consumer}}
		if allocation != nil {
			a := *allocation
			now := metav1.NewTime(s.now())
			a.AllocationTimestamp = &now
			status["allocation"] = a
		}
		_, err := s.patchClaim(ctx, o, map[string]any{"resourceVersion": version}, status, "status")
		return err
	})
}

// patchClaim changes a claim, adding to its lists, and has the tables know the
// outcome at once.
func (s *Scheduler) patchClaim(ctx context.Context, o *claimOrder, meta, status map[string]any, sub ...string) (*resourceapi.ResourceClaim, error) {
	meta["uid"] = o.uid
	body := map[string]any{"metadata": meta}
	if status != nil {
		body["status"] = status
	}
	patch, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	c, err := s.client.ResourceV1().ResourceClaims(o.namespace).Patch(ctx, o.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, sub...)
	if err == nil {
		s.wrote(c)
	}
	return c, err
}

func (s *Scheduler) wrote(c *resourceapi.ResourceClaim) {
	o := trimDeviceClaim(c)
	s.box.put(func(m *mirror) { m.claimWritten(o) })
}

// giveBack takes a pod that does not start off its claims. A claim that nobody
// else uses has no devices then.
func (s *Scheduler) giveBack(ctx context.Context, list []claimOrder) {
	for i := range list {
		o := &list[i]
		err := s.retry(ctx, func() error { return s.deallocate(ctx, o) })
		s.metrics.request("deallocate", err)
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			s.log.Error("a resource claim could not be given back", "claim", o.namespace+"/"+o.name, "error", err)
		}
	}
}

func (s *Scheduler) deallocate(ctx context.Context, o *claimOrder) error {
	claims := s.client.ResourceV1().ResourceClaims(o.namespace)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		c, err := claims.Get(ctx, o.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if c.UID != o.uid || c.Status.Allocation == nil {
			return nil
		}
		// The PodGroup's reservation is for its other pods too.
		if o.consumer.Resource == "pods" || o.last {
			c.Status.ReservedFor = slices.DeleteFunc(c.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID == o.consumer.UID })
		}
		if len(c.Status.ReservedFor) == 0 {
			c.Status.Allocation = nil
		}
		if c, err = claims.UpdateStatus(ctx, c, metav1.UpdateOptions{}); err != nil {
			return err
		}
		s.wrote(c)
		return nil
	})
}

// extendedOrder asks that a pod gets by DRA what it asks for as a resource.
type extendedOrder struct {
	resource v1.ResourceName
	class    *deviceClassObject // which never changes
	devices  []translate.DeviceID
	claim    *claimOrder // once it has been made
}

// extend makes the claim of a pod that asks for GPUs by a resource that DRA
// provides, writes the devices into it and tells the pod which container has which.
func (s *Scheduler) extend(ctx context.Context, o *order) error {
	err := s.retry(ctx, func() error { return s.makeExtended(ctx, o) })
	s.metrics.request("extend", err)
	if err != nil {
		s.unextend(ctx, o)
		return fmt.Errorf("the claim for %s: %v", o.extended.resource, err) //nolint:errorlint // the pod is not gone, whatever is
	}
	return nil
}

func (s *Scheduler) makeExtended(ctx context.Context, o *order) error {
	x := o.extended
	if x.class == nil {
		return refusal("no device class provides it any more")
	}
	pod, err := s.client.CoreV1().Pods(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if pod.UID != o.uid {
		return refusal("the pod is another")
	}
	requests, mappings, err := translate.ExtendedRequests(pod, x.resource, x.class.Name)
	if err != nil {
		return refusal(err.Error())
	}
	if old := pod.Status.ExtendedResourceClaimStatus; old != nil && x.claim == nil {
		if err := s.discard(ctx, o.namespace, old.ResourceClaimName, o.uid); err != nil {
			return err
		}
	}
	claims := s.client.ResourceV1().ResourceClaims(o.namespace)
	if x.claim == nil {
		c, err := claims.Create(ctx, &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{
				GenerateName: o.name + "-extended-resources-", Namespace: o.namespace,
				Annotations:     map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: o.name, UID: o.uid, Controller: ptr.To(true)}},
			},
			Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		x.claim = &claimOrder{
			namespace: c.Namespace, name: c.Name, uid: c.UID, version: c.ResourceVersion,
			consumer: resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: o.name, UID: o.uid},
		}
	}
	wanted, err := translate.DeviceClaimOf(&resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}})
	if err != nil {
		return err
	}
	left := x.devices
	var grants []translate.Grant
	for i := range wanted.Requests {
		need := &wanted.Requests[i].Any[0]
		if len(left) < need.Count {
			return refusal(fmt.Sprintf("%d devices were chosen, too few for its containers", len(x.devices)))
		}
		grants = append(grants, translate.Grant{Need: need, Devices: left[:need.Count], Config: x.class.config})
		left = left[need.Count:]
	}
	x.claim.allocation = wanted.Allocation(o.node, grants)
	if err := s.allocate(ctx, x.claim); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": o.uid},
		"status":   map[string]any{"extendedResourceClaimStatus": v1.PodExtendedResourceClaimStatus{ResourceClaimName: x.claim.name, RequestMappings: mappings}},
	})
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().Pods(o.namespace).Patch(ctx, o.name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// unextend takes back what extend did for a pod that does not start.
func (s *Scheduler) unextend(ctx context.Context, o *order) {
	if o.extended == nil || o.extended.claim == nil {
		return
	}
	err := s.retry(ctx, func() error { return s.discard(ctx, o.namespace, o.extended.claim.name, o.uid) })
	if err != nil && ctx.Err() == nil {
		s.log.Error("a resource claim could not be deleted", "claim", o.namespace+"/"+o.extended.claim.name, "error", err)
	}
}

// discard deletes the claim that was made for a pod by us.
func (s *Scheduler) discard(ctx context.Context, namespace, name string, pod types.UID) error {
	claims := s.client.ResourceV1().ResourceClaims(namespace)
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
