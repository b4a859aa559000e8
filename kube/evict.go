package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
)

// departure is an evictAct on its way.
type departure struct {
	namespace, name string
	uid             types.UID
	reason          string
	message         string
	counts          bool   // the Job controller counts it
	grace           *int64 // seconds that it gets to end; nil for as long as it asks
	shard           int    // of its group
}

// onItsWay is what of an act concerns the API.
func (e *evictAct) onItsWay() departure {
	o := e.pod.object
	d := departure{namespace: o.Namespace, name: o.Name, uid: o.UID, reason: e.reason, message: e.message, counts: o.counts || o.uncounted, shard: e.shard}
	if g := e.pod.group; g != nil {
		d.shard = g.shard
	}
	if o.slow && e.reason != causeDrained {
		d.grace = new(int64(maxGrace / time.Second))
	}
	return d
}

// maxGrace is the longest that a pod gets to end that is evicted for another. A pod's
// terminationGracePeriodSeconds may say any time, and would keep borrowed quota from
// its owner for as long.
const maxGrace = 10 * time.Minute

// evictPause is how long an eviction waits that a PodDisruptionBudget does not
// allow now.
const evictPause = 5 * time.Second

// evict makes a pod leave. It asks through the Eviction API, so that disruption
// budgets and grace periods count; what a budget does not allow is asked again
// until the pod is gone, or somebody else decides on it. Then it says why, in the condition DisruptionTarget:
// the Eviction API sets the condition too, and would write over what was there.
func (s *Scheduler) evict(ctx context.Context, d departure) {
	s.evicting <- struct{}{}
	defer func() { <-s.evicting }()
	var err error
	for {
		if !s.held[d.shard].Load() {
			return
		}
		// A budget protects no pod that stands on borrowed quota from its owner.
		err = s.askToLeave(ctx, d.namespace, d.name, d.uid, d.counts, d.reason == core.QuotaReclaim.String(), d.grace)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			break
		}
		// The engine waits for the pod to leave: there is no other way on.
		if act.Passes(err) {
			s.log.Info("an eviction has to wait", "pod", d.namespace+"/"+d.name, "why", err)
			if d.reason == causeDrained && apierrors.IsTooManyRequests(err) {
				_ = s.sayMoving(ctx, d.namespace, d.name, d.uid, v1.ConditionTrue, v1alpha1.MovingBudget, err.Error())
			}
		} else {
			s.log.Error("a pod could not be evicted", "pod", d.namespace+"/"+d.name, "error", err)
		}
		<-s.evicting
		select {
		case <-ctx.Done():
		case <-time.After(evictPause):
		}
		s.evicting <- struct{}{}
		if ctx.Err() != nil {
			return
		}
	}
	if err == nil {
		s.tellOf(&d)
		err = act.Retry(ctx, func() error { return s.mark(ctx, &d) })
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
		s.log.Warn("a pod that is evicted was not told why", "pod", d.namespace+"/"+d.name, "error", err)
	}
}

// askToLeave asks once for the eviction of a pod; counts says that the Job controller
// counts it, despite that it is deleted if disruption budgets refuse. It has grace
// seconds to end, nil for as long as it asks.
func (s *Scheduler) askToLeave(ctx context.Context, namespace, name string, uid types.UID, counts, despite bool, grace *int64) error {
	if counts {
		return s.evictUncounted(ctx, namespace, name, uid, despite, grace)
	}
	options := &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(uid)), GracePeriodSeconds: grace}
	return s.askEviction(ctx, namespace, name, options, despite)
}

func (s *Scheduler) askEviction(ctx context.Context, namespace, name string, options *metav1.DeleteOptions, despite bool) error {
	err := s.client.PolicyV1().Evictions(namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, DeleteOptions: options,
	})
	s.metrics.Request("evict", err)
	if despite && budgetRefuses(err) {
		err = s.client.CoreV1().Pods(namespace).Delete(ctx, name, *options)
		s.metrics.Request("delete", err)
	}
	return err
}

// budgetRefuses reports whether an eviction failed because of PodDisruptionBudgets: one
// has no room, or the pod is under several, which the Eviction API does not let go.
func budgetRefuses(err error) bool {
	return apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) || apierrors.IsInternalError(err)
}

// tellOf tells people that a pod was told to leave.
func (s *Scheduler) tellOf(d *departure) {
	if d.reason == causeDrained {
		s.event(d.namespace, "Pod", d.name, d.uid, v1.EventTypeNormal, d.reason, d.message)
		return
	}
	s.event(d.namespace, "Pod", d.name, d.uid, v1.EventTypeWarning, "Preempted", fmt.Sprintf("%s: %s", d.reason, d.message))
}

// mark says on the pod why it leaves, if that is for another.
func (s *Scheduler) mark(ctx context.Context, d *departure) error {
	if d.reason == causeDrained {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": d.uid},
		"status": map[string]any{"conditions": []v1.PodCondition{{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1alpha1.PreemptionReason,
			Message: fmt.Sprintf("%s: %s", d.reason, d.message), LastTransitionTime: metav1.NewTime(s.now()),
		}}},
	})
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().Pods(d.namespace).Patch(ctx, d.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	s.metrics.Request("mark", err)
	return err
}
