// Package settings says what counts for the whole cluster of the objects by which it is
// set: the policy to decide by ([Policies]), the levels of the topology to place by
// ([Topologies]), and the priorities that jobs may name ([Classes]).
//
// Each observes its objects as they are now. An observation returns whether something
// else counts from then on; what follows from that is up to the caller. None knows of
// jobs or of the engine, and none does I/O.
package settings

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// Verdict is the Ready condition of an object.
type Verdict struct{ Reason, Message string }

// On returns a copy of the conditions in which Ready says the verdict.
func (v Verdict) On(conditions []metav1.Condition, ready bool, generation int64, now metav1.Time) []metav1.Condition {
	out := slices.Clone(conditions)
	c := metav1.Condition{
		Type: v1alpha1.ReadyCondition, Status: metav1.ConditionFalse, Reason: v.Reason, Message: v.Message,
		ObservedGeneration: generation, LastTransitionTime: now,
	}
	if ready {
		c.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&out, c)
	return out
}
