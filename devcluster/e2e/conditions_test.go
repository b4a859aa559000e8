package e2e

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// waitsNoMore returns an error while a pod that has started is said to wait.
func waitsNoMore(p *v1.Pod) error {
	for _, k := range []*v1.PodCondition{condition(p, v1alpha1.WaitingCondition)} {
		if k != nil && k.Status == v1.ConditionTrue {
			return fmt.Errorf("pod %s is said to wait for %s: %s", p.Name, k.Reason, k.Message)
		}
	}
	if k := condition(p, v1.PodScheduled); k == nil || k.Status != v1.ConditionTrue {
		return fmt.Errorf("pod %s has PodScheduled %+v", p.Name, k)
	}
	return nil
}

// event finds an event about a pod.
func (c *cluster) event(pod, reason string) (*v1.Event, error) {
	about := fields.Set{"involvedObject.name": pod, "reason": reason}
	list, err := admin.CoreV1().Events(c.namespace).List(ctx(), metav1.ListOptions{FieldSelector: about.String()})
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("there is no event %s of %s", reason, pod)
	}
	return &list.Items[0], nil
}
