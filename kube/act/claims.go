package act

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/muster-sched/muster/kube/translate"
)

// reserve writes the devices and the consumer into the claims of a pod. If one claim
// cannot be reserved, those before it are released. No error of it satisfies IsNotFound:
// a claim that does not exist does not mean that the pod does not.
func (a *Actor) reserve(ctx context.Context, list []translate.ClaimWrite) error {
	for i := range list {
		o := &list[i]
		err := error(refusal(o.Wrong))
		if o.Wrong == "" {
			err = Retry(ctx, func() error { return a.allocate(ctx, o) })
		}
		a.metrics.Request("allocate", err)
		if err != nil {
			a.giveBack(ctx, list[:i+1])
			return fmt.Errorf("resource claim %s: %v", o.Name, err) //nolint:errorlint // see above
		}
	}
	return nil
}

// allocate writes one claim.
//
// Steps 2 and 3 apply only to the version that was observed or read; on a conflict,
// everything is repeated from step 1.
func (a *Actor) allocate(ctx context.Context, o *translate.ClaimWrite) error {
	claims := a.client.ResourceV1().ResourceClaims(o.Namespace)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		// 1. A claim that has changed since it was observed is read again, and refused if it
		// has other devices than those to write.
		version, finalizer, allocation := o.Version, o.Finalizer, o.Allocation
		o.Version = "" // a second attempt reads it
		if version == "" {
			c, err := claims.Get(ctx, o.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			version, finalizer = c.ResourceVersion, slices.Contains(c.Finalizers, resourceapi.Finalizer)
			switch has := c.Status.Allocation; {
			case c.UID != o.UID || c.DeletionTimestamp != nil:
				return refusal("it is being replaced")
			case has == nil && allocation == nil:
				return refusal("it has lost its devices")
			case has != nil && allocation != nil && !slices.Equal(translate.AllocatedDevices(has), translate.AllocatedDevices(allocation)):
				return refusal("it already has other devices")
			case has != nil:
				allocation = nil
			}
		}

		// 2. The finalizer that keeps the claim while it has devices is added.
		if !finalizer && allocation != nil {
			c, err := a.patchClaim(ctx, o, map[string]any{"resourceVersion": version, "finalizers": []string{resourceapi.Finalizer}}, nil)
			if err != nil {
				return err
			}
			version = c.ResourceVersion
		}

		// 3. The devices and the consumer are written into its status.
		status := map[string]any{"reservedFor": []resourceapi.ResourceClaimConsumerReference{o.Consumer}}
		if allocation != nil {
			now := metav1.NewTime(a.now())
			stamped := *allocation
			stamped.AllocationTimestamp = &now
			status["allocation"] = stamped
		}
		_, err := a.patchClaim(ctx, o, map[string]any{"resourceVersion": version}, status, "status")
		return err
	})
}

// patchClaim changes a claim, adds to its lists, and reports the new claim.
func (a *Actor) patchClaim(ctx context.Context, o *translate.ClaimWrite, meta, status map[string]any, sub ...string) (*resourceapi.ResourceClaim, error) {
	meta["uid"] = o.UID
	body := map[string]any{"metadata": meta}
	if status != nil {
		body["status"] = status
	}
	patch, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	c, err := a.client.ResourceV1().ResourceClaims(o.Namespace).Patch(ctx, o.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, sub...)
	if err == nil {
		a.outcomes.ClaimWritten(c)
	}
	return c, err
}

// giveBack removes a pod that does not start from its claims. A claim without another
// consumer loses its devices.
func (a *Actor) giveBack(ctx context.Context, list []translate.ClaimWrite) {
	for i := range list {
		o := &list[i]
		err := Retry(ctx, func() error { return a.deallocate(ctx, o) })
		a.metrics.Request("deallocate", err)
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			a.log.Error("cannot release a resource claim", "claim", o.Namespace+"/"+o.Name, "error", err)
		}
	}
}

// deallocate removes the consumer from one claim, and the devices after the last.
func (a *Actor) deallocate(ctx context.Context, o *translate.ClaimWrite) error {
	claims := a.client.ResourceV1().ResourceClaims(o.Namespace)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		c, err := claims.Get(ctx, o.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if c.UID != o.UID || c.Status.Allocation == nil {
			return nil
		}
		// A reservation for a PodGroup is for its other pods too.
		if o.Consumer.Resource == "pods" || o.Last {
			c.Status.ReservedFor = slices.DeleteFunc(c.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID == o.Consumer.UID })
		}
		if len(c.Status.ReservedFor) == 0 {
			c.Status.Allocation = nil
		}
		if c, err = claims.UpdateStatus(ctx, c, metav1.UpdateOptions{}); err != nil {
			return err
		}
		a.outcomes.ClaimWritten(c)
		return nil
	})
}
