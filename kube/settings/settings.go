// Package settings determines the settings of the whole cluster from their objects: the
// scheduling policy ([Policies]), the levels of the topology ([Topologies]), and the
// priorities that jobs may name ([Classes]).
//
// Each observes the present state of its objects. An observation returns whether the
// setting changed; the caller handles the consequences. None of them knows jobs or the
// engine, and none does I/O.
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
