package translate

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// Counted reports whether the Job controller is to count a pod.
func Counted(p *metav1.ObjectMeta) bool {
	return slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer)
}

// Uncounted reports whether Muster removed a pod from what the Job controller counts, to
// evict it, and it was not deleted. Whoever may write a pod may write the annotation: on
// a pod of no Job it means nothing.
func Uncounted(p *metav1.ObjectMeta) bool {
	o := metav1.GetControllerOf(p)
	return p.Annotations[v1alpha1.EvictingAnnotation] != "" && !Counted(p) && p.DeletionTimestamp == nil &&
		o != nil && OwnerKind(o.APIVersion, o.Kind) == "job"
}
