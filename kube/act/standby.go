package act

import (
	"context"
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// reportStandby writes whether a pod lends its GPUs: the condition, by which the next instance
// knows, and then the annotation, which containers can read.
func (a *Actor) reportStandby(ctx context.Context, x *Report) error {
	c := v1.PodCondition{
		Type: v1alpha1.StandbyCondition, Status: v1.ConditionFalse, Reason: x.Reason, Message: plainText(x.Message), LastTransitionTime: metav1.NewTime(a.now()),
	}
	if x.Reason == v1alpha1.StandbyLending || x.Reason == v1alpha1.StandbyReturning {
		c.Status = v1.ConditionTrue
	}
	if err := a.setConditions(ctx, x.Pod, c); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": x.UID, "annotations": map[string]string{v1alpha1.StandbyAnnotation: x.Reason},
	}})
	if err != nil {
		return err
	}
	_, err = a.client.CoreV1().Pods(x.Namespace).Patch(ctx, x.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err == nil && x.Event != "" {
		kind := v1.EventTypeNormal
		if x.Reason == v1alpha1.StandbyRefused {
			kind = v1.EventTypeWarning
		}
		a.event("Pod", x.Pod, kind, "Standby"+x.Reason, x.Event)
	}
	return err
}
