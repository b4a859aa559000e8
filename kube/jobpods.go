package kube

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
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/translate"
)

// An eviction is no failure of the pod. Kubernetes' Job controller counts every pod
// that is deleted before it has succeeded as failed, and gives the Job up after
// backoffLimit of them, unless the Job has a podFailurePolicy that says otherwise. It
// counts the pods that have its finalizer, and takes the finalizer off those that it
// has counted, and off those that it deletes itself because they are too many. Muster
// does as much with a pod that it evicts one by one.
//
// A pod without the finalizer is not counted when it succeeds, either. So the
// finalizer goes only when the eviction would be allowed, the eviction holds only for
// the pod as it was when the finalizer went, and when it fails the finalizer is put
// back. An annotation, in the same write, says that the finalizer is to be put back,
// to an instance that decides next.

// counts reports whether the Job controller is to count a pod.
func counts(p *metav1.ObjectMeta) bool {
	return slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer)
}

// uncounted reports whether we took a pod from what the Job controller counts. Whoever
// may write a pod may write the annotation: on a pod of no Job it says nothing.
func uncounted(p *metav1.ObjectMeta) bool {
	o := metav1.GetControllerOf(p)
	return p.Annotations[v1alpha1.EvictingAnnotation] != "" && !counts(p) && p.DeletionTimestamp == nil &&
		o != nil && translate.OwnerKind(o.APIVersion, o.Kind) == "job"
}

func isOver(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

// errChanges says that a pod changes faster than it can be evicted.
var errChanges = errors.New("the pod changed meanwhile")

// evictUncounted asks once for the eviction of a Job's pod, so that the Job does not
// count it as failed. A pod that is over is left alone: the error says that it is not
// found.
func (s *Scheduler) evictUncounted(ctx context.Context, namespace, name string, uid types.UID, despite bool, grace *int64) error {
	for range 5 {
		p, err := s.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		s.metrics.Request("get", err)
		if err != nil {
			return err
		}
		if p.UID != uid || isOver(p) {
			if p.UID == uid && uncounted(&p.ObjectMeta) {
				s.countAgain(ctx, namespace, name, uid)
			}
			return apierrors.NewNotFound(v1.Resource("pods"), name)
		}
		options := &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(uid)), GracePeriodSeconds: grace}
		switch {
		case counts(&p.ObjectMeta) && p.DeletionTimestamp == nil:
			dry := options.DeepCopy()
			dry.DryRun = []string{metav1.DryRunAll}
			if err := s.askEviction(ctx, namespace, name, dry, despite); err != nil {
				return err
			}
			if p, err = s.setCounted(ctx, p, false); apierrors.IsConflict(err) {
				continue
			} else if err != nil {
				return err
			}
		case !uncounted(&p.ObjectMeta):
			return s.askEviction(ctx, namespace, name, options, despite)
		}
		options.Preconditions.ResourceVersion = &p.ResourceVersion
		err = s.askEviction(ctx, namespace, name, options, despite)
		if err == nil || apierrors.IsNotFound(err) {
			return err
		}
		s.countAgain(ctx, namespace, name, uid)
		if !apierrors.IsConflict(err) {
			return err
		}
	}
	return errChanges
}

// setCounted takes the Job controller's finalizer off a pod, or puts it back. It fails
// when the pod has changed since it was read.
func (s *Scheduler) setCounted(ctx context.Context, p *v1.Pod, on bool) (*v1.Pod, error) {
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
	got, err := s.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	s.metrics.Request("mark", err)
	return got, err
}

// countAgain has the Job controller count a pod that is not evicted after all. One
// that is being deleted stays as it is.
func (s *Scheduler) countAgain(ctx context.Context, namespace, name string, uid types.UID) {
	err := act.Retry(ctx, func() error {
		p, err := s.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil || p.UID != uid || !uncounted(&p.ObjectMeta) {
			return err
		}
		_, err = s.setCounted(ctx, p, true)
		if apierrors.IsConflict(err) {
			err = errChanges
		}
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		s.log.Warn("a pod is not counted by its Job", "pod", namespace+"/"+name, "error", err)
	}
}

// noteUncounted notes whether a pod is to be evicted, and not counted.
func (m *mirror) noteUncounted(o *podObject) {
	if o.uncounted {
		m.uncounted[o.UID] = move{namespace: o.Namespace, name: o.Name, uid: o.UID}
	} else {
		delete(m.uncounted, o.UID)
	}
}

// countsAgain finds the pods that an instance before this one was about to evict, and
// did not: the finalizers are put back.
func (m *mirror) countsAgain() {
	for uid, x := range m.uncounted {
		p := m.pods[uid]
		if p == nil && m.shards.held[m.shards.rest] || p != nil && p.state == podBound && !p.moves && m.shards.held[m.whose(p)] {
			m.acts.count = append(m.acts.count, x)
			delete(m.uncounted, uid)
		}
	}
}
