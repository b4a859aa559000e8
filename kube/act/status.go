package act

import (
	"context"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// Warning publishes a Warning event on a pod.
type Warning struct {
	Pod
	Reason, Message string
}

// Record writes into a pod's status the values of its labels and annotations that count
// until it ends.
type Record struct {
	Pod
	Said string
}

// record writes records. It also reports what it could not write: this is written when
// the pod is observed next.
func (a *Actor) record(ctx context.Context, list []Record) {
	for i := range list {
		x := &list[i]
		err := a.statusLimit.Wait(ctx)
		if err == nil {
			err = Retry(ctx, func() error {
				return a.setConditions(ctx, x.Pod, v1.PodCondition{
					Type: v1alpha1.AdmittedCondition, Status: v1.ConditionTrue, Reason: "Bound", Message: x.Said, LastTransitionTime: metav1.NewTime(a.now()),
				})
			})
			a.metrics.Request("status", err)
		}
		if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
			a.log.Warn("cannot write the values that a pod was bound with", "pod", x.Pod.String(), "error", err)
		}
		a.outcomes.Recorded(x.UID)
	}
}

// Status is an object of Muster's own with its new status.
type Status struct {
	Resource, Name string
	Object         runtime.Object
}

// Statuses takes the statuses to write: a list is received when the one before has been
// written, so that the sender can keep the latest until then.
func (a *Actor) Statuses() chan<- []Status { return a.statuses }

// writeStatuses writes statuses until ctx ends. If a write fails, the sender finds the
// difference when it compares next.
func (a *Actor) writeStatuses(ctx context.Context) {
	for {
		var list []Status
		select {
		case <-ctx.Done():
			return
		case list = <-a.statuses:
		}
		for i := range list {
			if a.statusLimit.Wait(ctx) != nil {
				return
			}
			x := &list[i]
			err := a.muster.Put().Resource(x.Resource).Name(x.Name).SubResource("status").Body(x.Object).Do(ctx).Error()
			a.metrics.Request("status", err)
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
				a.log.Warn("cannot write a status", "resource", x.Resource, "name", x.Name, "error", err)
			}
		}
	}
}
