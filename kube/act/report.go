package act

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/internal/fit"
	"github.com/muster-sched/muster/kube/fair"
)

// Report writes into the conditions of a pod, or of a PodGroup, why it waits, or that it
// no longer waits.
type Report struct {
	Pod             // or the PodGroup
	PodGroup        bool
	Reason, Message string // why it waits; no reason: it waits no more
	Unschedulable   bool   // more nodes could help: autoscalers look for pods that are Unschedulable
	Ungate          bool   // remove our scheduling gate
	Event           string // the message of an event to publish too; empty for none
	// Since is the time since which the pod has waited, as in its condition; zero means
	// from now on.
	Since time.Time
	Shard int // of its group
}

// reports has the latest report to write for each object. Namespaces take turns; in each, objects come in the order in which they
// were first reported on. For each object one report is written at a time, so that the latest is written last.
type reports struct {
	mu    sync.Mutex
	by    map[types.UID]Report
	busy  map[types.UID]int     // being written: of which shard
	order fair.Queue[types.UID] // those in by that are not busy
	most  int                   // see fit.Map
	ready chan struct{}         // has an element when order may have any
}

func newReports() *reports {
	return &reports{by: map[types.UID]Report{}, busy: map[types.UID]int{}, ready: make(chan struct{}, 1)}
}

// put adds reports. A report that replaces another one of its object also removes the
// gate if that one did, and publishes its event if both have the same reason.
func (r *reports) put(list ...Report) {
	if len(list) == 0 {
		return
	}
	r.mu.Lock()
	for _, x := range list {
		old, ok := r.by[x.UID]
		if _, busy := r.busy[x.UID]; !ok && !busy {
			r.order.Put(x.Namespace, x.UID)
		}
		x.Ungate = x.Ungate || old.Ungate
		if x.Reason == old.Reason {
			x.Event = cmp.Or(x.Event, old.Event)
		}
		r.by[x.UID] = x
	}
	r.mu.Unlock()
	r.wake()
}

func (r *reports) wake() {
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

// take returns the next report to write; false if there is none.
func (r *reports) take() (Report, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	uid, ok := r.order.Take()
	if !ok {
		return Report{}, false
	}
	x := r.by[uid]
	delete(r.by, uid)
	r.by = fit.Map(r.by, &r.most)
	r.busy[uid] = x.Shard
	return x, true
}

// written records the end of a write. A report that was not written (ok is false) is
// retried, unless there is a later one of its object.
func (r *reports) written(x *Report, ok bool) {
	r.mu.Lock()
	delete(r.busy, x.UID)
	if _, later := r.by[x.UID]; later || !ok {
		if !later {
			r.by[x.UID] = *x
		}
		r.order.Put(x.Namespace, x.UID)
	}
	r.mu.Unlock()
	r.wake()
}

// drain drops the unwritten reports of a shard, and waits for those in progress. It
// returns false if ctx ended first.
func (r *reports) drain(ctx context.Context, shard int) bool {
	for {
		busy := false
		r.mu.Lock()
		r.order.Drop(func(uid types.UID) bool {
			drop := r.by[uid].Shard == shard
			if drop {
				delete(r.by, uid)
			}
			return drop
		})
		for uid, of := range r.busy {
			if of == shard {
				busy = true
				delete(r.by, uid)
			}
		}
		r.mu.Unlock()
		if !busy {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Drain drops the reports of a shard that are not begun, and waits until the others are
// written. It returns false when ctx ended first.
func (a *Actor) Drain(ctx context.Context, shard int) bool {
	return a.reports.drain(ctx, shard) && a.standbys.drain(ctx, shard)
}

// reportAgain is the time until a report is retried that the API server could not accept.
const reportAgain = time.Second

// writeReports writes reports until ctx ends, no faster than the limit of statuses.
func (a *Actor) writeReports(ctx context.Context, list *reports, write func(context.Context, *Report) error) {
	for ctx.Err() == nil {
		x, ok := list.take()
		if !ok {
			select {
			case <-ctx.Done():
			case <-list.ready:
			}
			continue
		}
		if a.statusLimit.Wait(ctx) != nil {
			return
		}
		err := write(ctx, &x)
		a.metrics.Request("status", err)
		if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
			a.log.Debug("cannot write a condition", "object", x.Pod.String(), "error", err)
			if IsTransient(err) {
				time.AfterFunc(reportAgain, func() { list.written(&x, false) })
				continue
			}
		}
		list.written(&x, true)
	}
}

// reportWaiting writes why a pod or a PodGroup waits.
func (a *Actor) reportWaiting(ctx context.Context, x *Report) error {
	x.Message = plainText(x.Message)
	if x.PodGroup {
		return a.reportPodGroup(ctx, x)
	}
	return a.reportPod(ctx, x)
}

// reportPod writes the conditions Waiting and PodScheduled of a pod, after it has removed
// our scheduling gate where that is asked for: if it cannot, the whole report is written
// again.
func (a *Actor) reportPod(ctx context.Context, x *Report) error {
	now := metav1.NewTime(a.now())
	var conditions []v1.PodCondition
	if x.Reason == "" {
		conditions = []v1.PodCondition{{
			Type: v1alpha1.WaitingCondition, Status: v1.ConditionFalse, Reason: "Started", Message: "the pod has a node", LastTransitionTime: now,
		}}
	} else {
		if !x.Since.IsZero() {
			now = metav1.NewTime(x.Since)
		}
		scheduled := x.Reason
		if x.Unschedulable {
			scheduled = v1.PodReasonUnschedulable
		}
		conditions = []v1.PodCondition{
			{Type: v1alpha1.WaitingCondition, Status: v1.ConditionTrue, Reason: x.Reason, Message: x.Message, LastTransitionTime: now},
			{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: scheduled, Message: x.Reason + ": " + x.Message, LastTransitionTime: now},
		}
	}
	if x.Ungate {
		if err := a.ungate(ctx, x.Pod); err != nil {
			return err
		}
	}
	err := a.setConditions(ctx, x.Pod, conditions...)
	if err == nil && x.Event != "" {
		a.event("Pod", x.Pod, v1.EventTypeWarning, x.Reason, x.Event)
	}
	return err
}

// reportPodGroup writes the conditions Waiting and PodGroupInitiallyScheduled of a
// PodGroup. Once it was scheduled the latter stays True. Their times are when their
// statuses changed, which has to be read.
func (a *Actor) reportPodGroup(ctx context.Context, x *Report) error {
	now := metav1.NewTime(a.now())
	waiting := metav1.Condition{Type: v1alpha1.WaitingCondition, Status: metav1.ConditionTrue, Reason: x.Reason, Message: x.Message, LastTransitionTime: now}
	scheduled := metav1.Condition{
		Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: metav1.ConditionFalse, Reason: schedulingv1beta1.PodGroupReasonUnschedulable,
		Message: x.Reason + ": " + x.Message, LastTransitionTime: now,
	}
	if x.Reason == "" {
		waiting.Status, waiting.Reason, waiting.Message = metav1.ConditionFalse, "Started", "its pods have nodes"
		scheduled.Status, scheduled.Reason, scheduled.Message = metav1.ConditionTrue, "Scheduled", "all pods of the gang are bound"
	}
	groups := a.client.SchedulingV1beta1().PodGroups(x.Namespace)
	g, err := groups.Get(ctx, x.Name, metav1.GetOptions{})
	if err != nil || g.UID != x.UID {
		return err
	}
	for i := range g.Status.Conditions {
		for _, c := range []*metav1.Condition{&waiting, &scheduled} {
			if old := &g.Status.Conditions[i]; old.Type == c.Type && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	was := slices.IndexFunc(g.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == schedulingv1beta1.PodGroupInitiallyScheduled && c.Status == metav1.ConditionTrue
	})
	conditions := []metav1.Condition{waiting}
	if was < 0 {
		conditions = append(conditions, scheduled)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": x.UID}, "status": map[string]any{"conditions": conditions}})
	if err != nil {
		return err
	}
	_, err = groups.Patch(ctx, x.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err == nil && x.Event != "" {
		a.event("PodGroup", x.Pod, v1.EventTypeWarning, x.Reason, x.Event)
	}
	return err
}
