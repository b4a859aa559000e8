package act

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/translate"
)

// An eviction is not a failure of the pod. But Kubernetes' Job controller counts every
// pod that is deleted before it has succeeded as failed, and fails the Job after
// backoffLimit of them, unless the Job has a podFailurePolicy that says otherwise. It
// counts the pods that have its finalizer. It removes the finalizer from pods that it has
// counted, and from surplus pods that it deletes itself. Muster removes it from a single
// pod that it evicts.
//
// A pod without the finalizer is not counted when it succeeds, either. So the
// finalizer is removed only when the eviction would be allowed; the eviction holds only
// for the pod as it was when the finalizer was removed; and when it fails the finalizer
// is put back. An annotation, in the same write, says that the finalizer is to be put
// back, to an instance that decides next.

func isOver(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

// errChanges reports that a pod changes faster than it can be evicted.
var errChanges = errors.New("the pod has changed in the meantime")

// evictUncounted requests the eviction of a Job's pod once, so that the Job does not
// count it as failed. It reports whether it overrode disruption budgets. See askToLeave for override.
func (a *Actor) evictUncounted(ctx context.Context, x Pod, override func() error, grace *int64) (overridden bool, err error) {
	changed := false // by override
	for range 5 {
		// 1. The pod is read. A pod that has ended is left alone: the error is NotFound.
		p, err := a.client.CoreV1().Pods(x.Namespace).Get(ctx, x.Name, metav1.GetOptions{})
		a.metrics.Request("get", err)
		if err != nil {
			return false, err
		}
		if p.UID != x.UID || isOver(p) {
			if p.UID == x.UID && translate.Uncounted(&p.ObjectMeta) {
				a.countAgain(ctx, x)
			}
			return false, apierrors.NewNotFound(v1.Resource("pods"), x.Name)
		}

		// 2. A trial (dry run) shows whether the eviction is allowed: a budget that forbids it
		// must not cost the pod its finalizer.
		// 3. The finalizer is removed. On a conflict, back to 1.
		options := deleteOptions(x, grace)
		switch {
		case translate.Counted(&p.ObjectMeta) && p.DeletionTimestamp == nil:
			dry := options.DeepCopy()
			dry.DryRun = []string{metav1.DryRunAll}
			switch overridden, err := a.askEviction(ctx, x, dry, override); {
			case err != nil:
				return false, err
			case overridden && !changed:
				override, changed = func() error { return nil }, true // what it wrote is to be read
				continue
			}
			if p, err = a.setCounted(ctx, p, false); apierrors.IsConflict(err) {
				continue
			} else if err != nil {
				return false, err
			}
		case !translate.Uncounted(&p.ObjectMeta):
			return a.askEviction(ctx, x, options, override)
		}

		// 4. The pod is evicted as it was after 3. If that fails, the finalizer is put back; on
		// a conflict, back to 1.
		options.Preconditions.ResourceVersion = &p.ResourceVersion
		overridden, err = a.askEviction(ctx, x, options, override)
		if err == nil || apierrors.IsNotFound(err) {
			return overridden, err
		}
		a.countAgain(ctx, x)
		if !apierrors.IsConflict(err) {
			return false, err
		}
	}
	return false, errChanges
}

// setCounted removes the Job controller's finalizer from a pod, or puts it back. It fails
// when the pod has changed since it was read.
func (a *Actor) setCounted(ctx context.Context, p *v1.Pod, on bool) (*v1.Pod, error) {
	finalizers := slices.DeleteFunc(slices.Clone(p.Finalizers), func(f string) bool { return f == batchv1.JobTrackingFinalizer })
	var note any = "true"
	if on {
		finalizers, note = append(finalizers, batchv1.JobTrackingFinalizer), nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": p.UID, "resourceVersion": p.ResourceVersion, "finalizers": finalizers,
		"annotations": map[string]any{v1alpha1.EvictingAnnotation: note},
	}})
	if err != nil {
		return nil, err
	}
	got, err := a.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	a.metrics.Request("mark", err)
	return got, err
}

// countAgain puts the Job controller's finalizer back on a pod that is not evicted after
// all. A pod that is being deleted does not change.
func (a *Actor) countAgain(ctx context.Context, x Pod) {
	err := Retry(ctx, func() error {
		p, err := a.client.CoreV1().Pods(x.Namespace).Get(ctx, x.Name, metav1.GetOptions{})
		if err != nil || p.UID != x.UID || !translate.Uncounted(&p.ObjectMeta) {
			return err
		}
		_, err = a.setCounted(ctx, p, true)
		if apierrors.IsConflict(err) {
			err = errChanges
		}
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		a.log.Warn("a pod does not count for its Job", "pod", x.String(), "error", err)
	}
}
