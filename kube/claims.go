package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

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
	// wrong says why it cannot be.
	wrong string
}

// reserve writes into the claims of a pod which devices they have, and that it is
// the pod's. When one cannot be had, those before it are given back. Errors do
// not say that the pod is gone, whatever they are about.
func (s *Scheduler) reserve(ctx context.Context, list []claimOrder) error {
	for i := range list {
		o := &list[i]
		err := errors.New(o.wrong)
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
				return errors.New("it is being replaced")
			case a == nil && allocation == nil:
				return errors.New("its devices were taken away")
			case a != nil && allocation != nil && !slices.Equal(translate.AllocatedDevices(a), translate.AllocatedDevices(allocation)):
				return errors.New("it has other devices already")
			case a != nil:
				allocation = nil
			}
		}
		if !finalizer && allocation != nil {
			c, err := s.patchClaim(ctx, o, version, map[string]any{}, []string{resourceapi.Finalizer}, "")
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
		_, err := s.patchClaim(ctx, o, version, map[string]any{"status": status}, nil, "status")
		return err
	})
}

// patchClaim changes a claim that is as it was at a version, and has the tables
// know the outcome at once. Lists are added to.
func (s *Scheduler) patchClaim(ctx context.Context, o *claimOrder, version string, body map[string]any, finalizers []string, sub ...string) (*resourceapi.ResourceClaim, error) {
	meta := map[string]any{"uid": o.uid, "resourceVersion": version}
	if finalizers != nil {
		meta["finalizers"] = finalizers
	}
	body["metadata"] = meta
	patch, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	if sub[0] == "" {
		sub = nil
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
		if o.consumer.Resource == "pods" {
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
