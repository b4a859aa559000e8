package act

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/translate"
)

// Make before break: a pod of a Deployment is detached from its ReplicaSet, by another
// value of the label by which only the ReplicaSet selects. The ReplicaSet creates another
// pod at once. When as many pods are available without the old pod as were available with
// it, the old pod is evicted. Services send it requests until then. If no other pod is
// available in time, or the drain is cancelled, the label is restored: the ReplicaSet
// adopts the pod again and deletes the surplus pod, which is the one that is not ready.
//
// The engine's moves are carried out in the same way, for a reason instead of a drain (Why).
// Such a pod is never evicted without another: if it cannot be detached, it stays.
//
// The write that changes the label also records the move on the pod, so that the instance
// that decides next finishes it. See docs/adr/0009.

// Move makes a pod leave its node: where possible, another pod becomes ready in its place
// first.
type Move struct {
	Pod
	Node    string // that it leaves
	Request string // that of the drain; of a move that the engine decided, one of its own
	// Why is the reason of the engine's decision, empty for a drain; To is the node to which
	// the engine moves it, empty if that is not known.
	Why, To string
	// Replace is set if another pod must be ready before the pod leaves, unless this
	// turns out to be impossible.
	Replace bool
	// Found is set if the move was already in progress: it is finished, and not begun
	// again.
	Found bool
	Shard int // of its group
}

// Stay writes on a pod why it is not moved.
type Stay struct {
	Pod
	Reason, Message string
}

// moveWait is how long a pod that the engine moves may take to be replaced.
const moveWait = 10 * time.Minute

// move is a Move in progress.
type move struct {
	Move
	until time.Time // the latest time at which it is given back, whatever the pod says
	begun bool      // this instance has published its event
}

func (x move) key() string { return string(x.UID) }

// moveOn carries out the next step of each move.
func (a *Actor) moveOn(ctx context.Context) {
	l := newLook(a)
	a.moves.each(func(x *move) bool {
		if !a.holds(x.Shard) {
			// The instance that decides now finds it on the pod. It is this one again
			// where the pod has become one of another shard that is held here.
			a.outcomes.MovedOff(x.UID, nil)
			return true
		}
		over, err := a.step(ctx, l, x)
		if err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
			a.log.Warn("cannot move a pod now", "pod", x.Pod.String(), "error", err)
		}
		return over
	})
}

// step carries out the next step of a move, and reports whether the move has ended.
func (a *Actor) step(ctx context.Context, l *look, x *move) (over bool, err error) {
	// 1. A pod that is gone, or replaced by another of its name, has left.
	p, err := a.client.CoreV1().Pods(x.Namespace).Get(ctx, x.Name, metav1.GetOptions{})
	a.metrics.Request("get", err)
	if apierrors.IsNotFound(err) || err == nil && (p.UID != x.UID || p.DeletionTimestamp != nil) {
		return true, nil // the tables have seen it go, or will
	}
	if err != nil {
		return false, err
	}

	// 2. A pod that is detached is evicted, or given back.
	rec := translate.MoveOf(p)
	if rec.Active() {
		x.Why, x.To = rec.Why, rec.To
	}
	drain, err := a.requestOf(ctx, l, x, rec)
	if err != nil {
		return false, err
	}
	if rec.Active() {
		return a.replaceMoving(ctx, l, x, p, rec, drain)
	}

	// 3. A pod that was given back, but whose answer was lost, stays.
	if x.Found || x.Why != "" && rec.Ended(x.Request) || drain != nil && rec.NotReplaced(drain.Request) && translate.StaysAsTold(p) {
		a.outcomes.MovedOff(x.UID, stayed(rec))
		return true, nil
	}
	if isOver(p) {
		return true, nil
	}

	// 4. If the drain was cancelled the pod stays, and its condition says so.
	if drain == nil {
		a.outcomes.MovedOff(x.UID, nil)
		return true, a.setMoving(ctx, x.Pod, v1.ConditionFalse, v1alpha1.MovingCancelled, cancelled(x))
	}

	// 5. Otherwise it is detached, if another pod must be ready first, or evicted.
	if x.Replace && drain.Wait > 0 {
		why, err := a.detach(ctx, l, x, p, drain)
		if err != nil || why == "" {
			return false, err
		}
		if x.Why != "" {
			a.outcomes.MovedOff(x.UID, nil)
			return true, a.setMoving(ctx, x.Pod, v1.ConditionFalse, v1alpha1.MovingRefused, translate.RefusedMove("the pod cannot be replaced: "+why, x.Request))
		}
		a.log.Info("evicting a pod without waiting for a replacement", "pod", x.Pod.String(), "why", why)
		x.Replace = false
	}
	err = a.dismiss(ctx, x, p, Drained, x.cause())
	return err == nil, ignoreBudget(err)
}

// requestOf returns what a move is for: the drain of its node, nil if that was cancelled. The
// drain of a node that is gone cannot have been cancelled, nor can a decision of the engine.
func (a *Actor) requestOf(ctx context.Context, l *look, x *move, rec *translate.Move) (*translate.Drain, error) {
	d := &translate.Drain{Wait: moveWait, Request: x.Request}
	if rec.Active() {
		d.Request = rec.Request
	}
	if x.Why != "" {
		return d, nil
	}
	n, err := l.node(ctx, x.Node)
	if err != nil || n == nil {
		d.Wait = time.Minute
		return d, err
	}
	if d, err = translate.DrainOf(n); err != nil {
		return nil, nil
	}
	return d, nil
}

// cause says why the pod is moved.
func (x *move) cause() string {
	switch {
	case x.Why == "":
		return fmt.Sprintf("node %s is drained", x.Node)
	case x.To == "":
		return "the pod is moved: " + x.Why
	}
	return fmt.Sprintf("the pod is moved from node %s to %s: %s", x.Node, x.To, x.Why)
}

func cancelled(x *move) string { return fmt.Sprintf("node %s is no longer drained", x.Node) }

// errBudget reports that a disruption budget does not allow an eviction now.
var errBudget = errors.New("a disruption budget does not allow the eviction")

func ignoreBudget(err error) error {
	if errors.Is(err, errBudget) {
		return nil
	}
	return err
}

// dismiss evicts a pod. If that has to wait, the error is errBudget, and the pod's
// condition says so.
func (a *Actor) dismiss(ctx context.Context, x *move, p *v1.Pod, event, message string) error {
	_, err := a.askToLeave(ctx, x.Pod, translate.Counted(&p.ObjectMeta) || translate.Uncounted(&p.ObjectMeta), nil, nil)
	switch {
	case apierrors.IsTooManyRequests(err):
		return errors.Join(errBudget, a.noteMoving(ctx, p, v1.ConditionTrue, v1alpha1.MovingBudget, err.Error()))
	case err == nil:
		a.event("Pod", x.Pod, v1.EventTypeNormal, event, message)
	case apierrors.IsNotFound(err):
		err = nil
	}
	return err
}

// detach detaches a pod from its owner; why says why that would be useless. Only the pod's
// label may select it for its ReplicaSet, and the ReplicaSet must belong to a Deployment:
// another controller of ReplicaSets, or the strategy Recreate, would not create a pod
// beside the old one.
func (a *Actor) detach(ctx context.Context, l *look, x *move, p *v1.Pod, d *translate.Drain) (why string, err error) {
	owner := translate.Replaceable(p)
	if owner == nil {
		return "the pod no longer has an owner", nil
	}
	hash := p.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	r, err := l.replicas(ctx, x.Namespace, owner, hash)
	if err != nil {
		return "", err
	}
	if r.set == nil {
		return "its owner no longer exists", nil
	}
	if r.set.Spec.Selector == nil || r.set.Spec.Selector.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey] != hash {
		return "its owner's selector has no label of its own", nil
	}
	if metav1.GetControllerOf(p) == nil {
		return "", nil // the owner is about to take the pod back
	}
	by := metav1.GetControllerOf(r.set)
	if by == nil || by.Kind != "Deployment" {
		return "its owner does not belong to a Deployment", nil
	}
	deployment, err := a.client.AppsV1().Deployments(x.Namespace).Get(ctx, by.Name, metav1.GetOptions{})
	a.metrics.Request("get", err)
	if apierrors.IsNotFound(err) {
		return "its Deployment no longer exists", nil
	}
	if err != nil {
		return "", err
	}
	if deployment.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return "its Deployment never runs an old and a new pod at the same time (strategy Recreate)", nil
	}
	now := a.now()
	rec := &translate.Move{
		Owner: *owner, Hash: hash, Until: metav1.NewTime(now.Add(d.Wait)), Request: d.Request, Why: x.Why, To: x.To,
		Least: min(r.available("", now), r.wanted()),
	}
	if err := a.relabelMoving(ctx, p, rec); err != nil {
		return "", err
	}
	a.log.Info("moving a pod: its owner creates a replacement first", "pod", x.Pod.String(), "owner", owner.Name, "node", x.Node)
	return "", nil
}

// replaceMoving evicts a detached pod, or gives it back; d is the drain, nil if it was
// cancelled.
func (a *Actor) replaceMoving(ctx context.Context, l *look, x *move, p *v1.Pod, rec *translate.Move, d *translate.Drain) (over bool, err error) {
	r, err := l.replicas(ctx, x.Namespace, &rec.Owner, rec.Hash)
	if err != nil {
		return false, err
	}

	// 1. The pod leaves when enough others are available, its owner is gone, or the drain
	// does not wait. A budget may forbid that for as long as it likes, except for a pod that the
	// engine moves: others wait for the place that it leaves.
	now := a.now()
	if d != nil && x.until.IsZero() {
		x.until = now.Add(d.Wait)
	}
	refused := false
	if needed := min(rec.Least, r.wanted()); r.set == nil || d != nil && (d.Wait == 0 || r.available(x.UID, now) >= needed) {
		why := fmt.Sprintf("%s: ReplicaSet %s has %d available pods without this one; needed: %d", x.cause(), rec.Owner.Name, r.available(x.UID, now), needed)
		if r.set == nil {
			why = fmt.Sprintf("its ReplicaSet %s no longer exists", rec.Owner.Name)
		}
		err := a.dismiss(ctx, x, p, "Moved", why)
		if err == nil {
			a.metrics.moves.WithLabelValues("moved").Inc()
		}
		if refused = errors.Is(err, errBudget) && x.Why != "" && now.After(x.until); !refused {
			return err == nil, ignoreBudget(err)
		}
	}

	// 2. A new request for the drain gives the pod the full time again.
	if d != nil && d.Request != rec.Request {
		again := *rec
		x.until = now.Add(d.Wait)
		again.Request, again.Until = d.Request, metav1.NewTime(x.until)
		return false, a.relabelMoving(ctx, p, &again)
	}
	if rec.Until.After(x.until) && d != nil {
		rec.Until = metav1.NewTime(x.until) // any user who may write the pod may have put it off
	}

	// 3. Until its time is over, the pod waits, and its condition says for what.
	lacks := r.lacks(x.UID, now)
	reason, why := "", ""
	switch {
	case d == nil:
		reason, why = v1alpha1.MovingCancelled, cancelled(x)
	case refused:
		reason, why = v1alpha1.MovingBudget, "no disruption budget allowed the eviction in time"
	case now.After(rec.Until.Time):
		reason, why = v1alpha1.MovingNotReplaced, "no replacement was available in time: "+lacks
	default:
		why := fmt.Sprintf("waiting for a replacement until %s: %s", rec.Until.UTC().Format(time.RFC3339), lacks)
		if !x.begun {
			x.begun = true
			a.event("Pod", x.Pod, v1.EventTypeNormal, Moving, fmt.Sprintf("%s: ReplicaSet %s creates a replacement first", x.cause(), rec.Owner.Name))
		}
		return false, a.noteMoving(ctx, p, v1.ConditionTrue, v1alpha1.MovingReplacing, why)
	}

	// 4. Then, or when the drain was cancelled, it is given back: first the condition, so that
	// a user who looks at the pod after it finds the reason, then the label.
	if err := a.noteMoving(ctx, p, v1.ConditionFalse, reason, why); err != nil {
		return false, err
	}
	back := *rec
	back.Kept = reason
	if err := a.relabelMoving(ctx, p, &back); err != nil {
		return false, err
	}
	a.log.Info("a pod is not moved: returned to its owner", "pod", x.Pod.String(), "owner", rec.Owner.Name, "why", why)
	a.event("Pod", x.Pod, v1.EventTypeWarning, reason, why)
	a.metrics.moves.WithLabelValues("kept").Inc()
	a.outcomes.MovedOff(x.UID, stayed(&back))
	return true, nil
}

// stayed returns the request of the drain for which a pod could not leave; nil if there
// is none.
func stayed(rec *translate.Move) *string {
	if rec == nil || rec.Why != "" || !rec.NotReplaced(rec.Request) {
		return nil // a drain may ask again
	}
	return &rec.Request
}

// relabelMoving writes, at once, the record of a move and the labels by which its owner
// selects the pod or not.
func (a *Actor) relabelMoving(ctx context.Context, p *v1.Pod, rec *translate.Move) error {
	labels := map[string]any{appsv1.DefaultDeploymentUniqueLabelKey: translate.MovingHash(rec.Hash), v1alpha1.MovingLabel: "true"}
	if !rec.Active() {
		labels = map[string]any{appsv1.DefaultDeploymentUniqueLabelKey: rec.Hash, v1alpha1.MovingLabel: nil}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": p.UID, "labels": labels, "annotations": map[string]string{v1alpha1.MovingAnnotation: rec.String()},
	}})
	if err != nil {
		return err
	}
	_, err = a.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	a.metrics.Request("move", err)
	return err
}

// noteMoving is setMoving unless the pod, as it was read, has the condition already.
func (a *Actor) noteMoving(ctx context.Context, p *v1.Pod, status v1.ConditionStatus, reason, message string) error {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1alpha1.MovingCondition && c.Status == status && c.Reason == reason && c.Message == message {
			return nil
		}
	}
	return a.setMoving(ctx, Pod{p.Namespace, p.Name, p.UID}, status, reason, message)
}

// stay writes on a pod why it is not moved.
func (a *Actor) stay(ctx context.Context, x Stay) {
	err := Retry(ctx, func() error { return a.setMoving(ctx, x.Pod, v1.ConditionFalse, x.Reason, x.Message) })
	if err != nil && ctx.Err() == nil {
		a.log.Warn("cannot write on a pod that it stays", "pod", x.Pod.String(), "error", err)
	}
}

// setMoving writes the condition Moving of a pod. A pod that no longer
// exists needs none.
func (a *Actor) setMoving(ctx context.Context, p Pod, status v1.ConditionStatus, reason, message string) error {
	err := a.setConditions(ctx, p, v1.PodCondition{
		Type: v1alpha1.MovingCondition, Status: status, Reason: reason, Message: plainText(message), LastTransitionTime: metav1.NewTime(a.now()),
	})
	a.metrics.Request("status", err)
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return err
}
