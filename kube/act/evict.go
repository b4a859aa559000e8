package act

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
)

// Drained is the reason of pods that leave a drained node. Their condition is Moving;
// they do not count as preempted.
const Drained = "Drained"

// Moving is the reason of pods that restart elsewhere because a user requested it. Nor do they count
// as preempted.
const Moving = "Moving"

// forOthers reports whether the pod leaves for another pod, and not because users asked for that.
func (e *Evict) forOthers() bool { return e.Reason != Drained && e.Reason != Moving }

// Evict asks to make a pod leave.
type Evict struct {
	Pod
	Reason, Message string
	Counted         bool // the Job controller counts the pod, or did until an earlier attempt
	DespiteBudgets  bool // the pod is deleted if disruption budgets refuse its eviction
	// BudgetTimeout is how long it is asked to leave first, before DespiteBudgets counts.
	BudgetTimeout time.Duration
	Grace         *int64 // the seconds that it gets to end; nil for as long as it asks
	// Node is where it is, and SaveWithin how long its processes may take to save themselves first; 0: they are not asked to.
	Node       string
	SaveWithin time.Duration
	// Notice is how long another job waits at most for that and for its end, after which it had the time that was left; 0: no job waits.
	Notice time.Duration
	Asks   int64 // the seconds to end that the pod asks for
	Shard  int   // of its group
}

// MaxGrace is the maximum time to terminate for a pod that is evicted for another, unless the
// policy says otherwise. A pod's terminationGracePeriodSeconds may be any number, and would
// otherwise keep borrowed quota from its owner for that time.
const MaxGrace = 10 * time.Minute

// evictPause is the time between two attempts to evict a pod.
const evictPause = 5 * time.Second

// evict makes a pod leave:
//
//  1. It calls the Eviction API, so that disruption budgets and grace periods count, and
//     retries until the pod leaves: the engine has given its place to another pod, and
//     has no alternative. It ends early only if another instance decides on the pod.
//  2. Then it writes the reason into the condition DisruptionTarget. The Eviction API sets that
//     condition in the same write as the deletion, and would overwrite an earlier reason.
//
// A budget that refuses an eviction for longer than BudgetTimeout is overridden, if at all: the pod is
// deleted, and its condition says so. As a deletion sets no condition, this one is written first: a Job
// whose podFailurePolicy ignores disruptions would otherwise count the pod.
//
// The number of concurrent requests is limited: while one eviction pauses, others can
// send theirs.
//
// Before all that, its processes save themselves, where they can.
func (a *Actor) evict(ctx context.Context, e Evict) {
	a.evictTogether(ctx, []Evict{e})
}

// evictTogether is evict for pods that save themselves together.
func (a *Actor) evictTogether(ctx context.Context, list []Evict) {
	a.save(ctx, list)
	for _, e := range list[1:] {
		go a.evictNow(ctx, e)
	}
	a.evictNow(ctx, list[0])
}

// evictNow is evict for a pod that has saved what it can.
func (a *Actor) evictNow(ctx context.Context, e Evict) {
	a.evicting <- struct{}{}
	defer func() { <-a.evicting }()
	var err error
	until := time.Now().Add(e.BudgetTimeout)
	for {
		if !a.holds(e.Shard) {
			return
		}
		left := time.Until(until)
		var override func() error
		if e.DespiteBudgets && left <= 0 {
			override = func() error {
				told := e
				told.Message += e.overrides()
				return a.mark(ctx, &told)
			}
		}
		overridden := false
		overridden, err = a.askToLeave(ctx, e.Pod, e.Counted, override, e.Grace)
		if err == nil && overridden {
			e.Message += e.overrides()
		}
		if apierrors.IsConflict(err) {
			err = a.leavesAnyway(ctx, e.Pod, err)
		}
		if err == nil || apierrors.IsNotFound(err) {
			break
		}
		if IsTransient(err) {
			a.log.Info("an eviction must wait", "pod", e.Pod.String(), "why", err)
			if !e.forOthers() && apierrors.IsTooManyRequests(err) {
				_ = a.setMoving(ctx, e.Pod, v1.ConditionTrue, v1alpha1.MovingBudget, err.Error())
			}
		} else {
			a.log.Error("cannot evict a pod", "pod", e.Pod.String(), "error", err)
		}
		pause := evictPause
		if e.DespiteBudgets && left > 0 {
			pause = min(pause, left)
		}
		<-a.evicting
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		a.evicting <- struct{}{}
		if ctx.Err() != nil {
			return
		}
	}
	if err == nil {
		a.evicted(&e)
		err = Retry(ctx, func() error { return a.mark(ctx, &e) })
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil { // a conflict: another pod has its name
		a.log.Warn("cannot write on a pod why it is evicted", "pod", e.Pod.String(), "error", err)
	}
}

// leavesAnyway reads a pod whose eviction was refused because of a conflict, which may mean
// that it is gone, or only that it has changed. It returns nil if the pod is being deleted,
// NotFound if it is gone, and otherwise an error to try again on.
func (a *Actor) leavesAnyway(ctx context.Context, x Pod, conflict error) error {
	p, err := a.client.CoreV1().Pods(x.Namespace).Get(ctx, x.Name, metav1.GetOptions{})
	a.metrics.Request("get", err)
	switch {
	case err != nil:
		return err
	case p.UID != x.UID:
		return apierrors.NewNotFound(v1.Resource("pods"), x.Name)
	case p.DeletionTimestamp != nil:
		return nil
	}
	return fmt.Errorf("the pod does not leave: %s", conflict.Error()) // no answer of the API's: it is transient
}

// overrides says that the pod left despite its disruption budgets.
func (e *Evict) overrides() string {
	if e.BudgetTimeout == 0 {
		return "; its disruption budget was overridden"
	}
	return fmt.Sprintf("; its disruption budget was overridden after %v", e.BudgetTimeout)
}

// askToLeave requests the eviction of a pod once, and reports whether it overrode disruption budgets. override is
// called before it does, and is nil if it must not. See [Evict] for the other arguments.
func (a *Actor) askToLeave(ctx context.Context, p Pod, counted bool, override func() error, grace *int64) (overridden bool, err error) {
	if counted {
		return a.evictUncounted(ctx, p, override, grace)
	}
	return a.askEviction(ctx, p, deleteOptions(p, grace), override)
}

func deleteOptions(p Pod, grace *int64) *metav1.DeleteOptions {
	return &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID)), GracePeriodSeconds: grace}
}

func (a *Actor) askEviction(ctx context.Context, p Pod, options *metav1.DeleteOptions, override func() error) (overridden bool, err error) {
	err = a.client.PolicyV1().Evictions(p.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, DeleteOptions: options,
	})
	a.metrics.Request("evict", err)
	if override != nil && budgetRefuses(err) {
		if err := override(); err != nil {
			return false, err
		}
		err = a.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, *options)
		a.metrics.Request("delete", err)
		return true, err
	}
	return false, err
}

// budgetRefuses reports whether an eviction failed because of PodDisruptionBudgets: one
// has no room, or the pod is under several, which the Eviction API does not allow.
func budgetRefuses(err error) bool {
	return apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) || apierrors.IsInternalError(err)
}

// evicted publishes an event on a pod that was evicted.
func (a *Actor) evicted(e *Evict) {
	if !e.forOthers() {
		a.event("Pod", e.Pod, v1.EventTypeNormal, e.Reason, e.Message)
		return
	}
	a.event("Pod", e.Pod, v1.EventTypeWarning, "Preempted", fmt.Sprintf("%s: %s", e.Reason, e.Message))
}

// mark writes the reason of a preemption into the conditions of a pod.
func (a *Actor) mark(ctx context.Context, e *Evict) error {
	if !e.forOthers() {
		return nil
	}
	err := a.setConditions(ctx, e.Pod, v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1alpha1.PreemptionReason,
		Message: plainText(e.Reason + ": " + e.Message), LastTransitionTime: metav1.NewTime(a.now()),
	})
	a.metrics.Request("mark", err)
	return err
}

// setConditions adds conditions to a pod's status, or changes them.
func (a *Actor) setConditions(ctx context.Context, p Pod, conditions ...v1.PodCondition) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID},
		"status":   map[string]any{"conditions": conditions},
	})
	if err != nil {
		return err
	}
	_, err = a.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
