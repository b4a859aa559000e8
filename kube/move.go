package kube

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
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/translate"
)

// Make before break: a pod of a Deployment is taken out of the hands of its
// ReplicaSet, by another value of the label that the ReplicaSet alone selects by.
// The ReplicaSet makes another at once; when as many are available without the
// old pod as were with it, the old pod is evicted. Services go on to send it
// requests until then. If no other is available in time, or nobody wants the node
// emptied any more, the label is put back: the ReplicaSet takes the pod again, and
// deletes the surplus one, which is the one that is not ready.
//
// What is under way stands on the pod, in the same write as the label, so that
// whoever decides next brings it to an end. See docs/adr/0009.

// move is a pod that is to leave for another node, on its way.
type move struct {
	namespace, name string
	uid             types.UID
	node            string
	// request is that of the drain it leaves for.
	request string
	// replace says that another is to be ready before, unless it turns out that
	// this cannot be.
	replace bool
	// found says that it was under way already: it is brought to an end, not begun.
	found bool
	// until is when it is given back at the latest, whatever the pod says.
	until time.Time
	// begun says that this instance has said what it is about.
	begun bool
	shard int // of its group
}

func (m *mirror) moveOf(p *pod, request string) move {
	return move{namespace: p.object.Namespace, name: p.object.Name, uid: p.object.UID, node: p.target, request: request, shard: m.whose(p)}
}

func (x move) key() string { return string(x.uid) }

// moveOn brings each move a step on.
func (s *Scheduler) moveOn(ctx context.Context) {
	l := newLook(s)
	s.moves.each(func(x *move) bool {
		if !s.held[x.shard].Load() {
			// Whoever decides now finds it: this instance again, where the pod is of
			// another shard since.
			s.box.put(func(m *mirror) { m.movedOff(x.uid, nil) })
			return true
		}
		over, err := s.step(ctx, l, x)
		if err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
			s.log.Warn("a pod cannot be moved now", "pod", x.namespace+"/"+x.name, "error", err)
		}
		return over
	})
}

// look is what was read for a look at all moves: several pods of a node are often
// one owner's.
type look struct {
	s      *Scheduler
	nodes  map[string]*v1.Node
	owners map[types.UID]*replicas
}

func newLook(s *Scheduler) *look {
	return &look{s: s, nodes: map[string]*v1.Node{}, owners: map[types.UID]*replicas{}}
}

// replicas is a ReplicaSet with its pods, those that are being moved too.
type replicas struct {
	set  *appsv1.ReplicaSet // nil when it is gone
	pods []v1.Pod
}

// node reads a node; nil when it is gone.
func (l *look) node(ctx context.Context, name string) (*v1.Node, error) {
	if n, ok := l.nodes[name]; ok {
		return n, nil
	}
	n, err := l.s.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	l.s.metrics.Request("get", err)
	if apierrors.IsNotFound(err) {
		n, err = nil, nil
	}
	if err == nil {
		l.nodes[name] = n
	}
	return n, err
}

// replicas reads an owner and its pods.
func (l *look) replicas(ctx context.Context, namespace string, owner *metav1.OwnerReference, hash string) (*replicas, error) {
	if r := l.owners[owner.UID]; r != nil {
		return r, nil
	}
	r := &replicas{}
	set, err := l.s.client.AppsV1().ReplicaSets(namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	l.s.metrics.Request("get", err)
	switch {
	case apierrors.IsNotFound(err), err == nil && (set.UID != owner.UID || set.DeletionTimestamp != nil):
		l.owners[owner.UID] = r
		return r, nil
	case err != nil:
		return nil, err
	}
	r.set = set
	selector := fmt.Sprintf("%s in (%s,%s)", appsv1.DefaultDeploymentUniqueLabelKey, hash, translate.MovingHash(hash))
	pods, err := l.s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	l.s.metrics.Request("list", err)
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		if o := translate.ControllerOf(&pods.Items[i]); o != nil && o.UID == owner.UID {
			r.pods = append(r.pods, pods.Items[i])
		}
	}
	l.owners[owner.UID] = r
	return r, nil
}

// available counts the pods that are, without one and, of those that move too, only
// those after it in their order: pods of which each has enough without those before
// it may all leave at once, whoever evicts them, and enough is left.
func (r *replicas) available(without types.UID, now time.Time) int32 {
	n := int32(0)
	for i := range r.pods {
		p := &r.pods[i]
		if p.UID != without && r.isAvailable(p, now) && (p.UID > without || !translate.MoveOf(p).Active()) {
			n++
		}
	}
	return n
}

// isAvailable reports whether a pod has been ready for as long as its owner wants.
func (r *replicas) isAvailable(p *v1.Pod, now time.Time) bool {
	if p.DeletionTimestamp != nil {
		return false
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
			return now.Sub(c.LastTransitionTime.Time) >= time.Duration(r.set.Spec.MinReadySeconds)*time.Second
		}
	}
	return false
}

// wanted is how many pods the owner is to have.
func (r *replicas) wanted() int32 {
	switch {
	case r.set == nil:
		return 0
	case r.set.Spec.Replicas == nil:
		return 1
	}
	return *r.set.Spec.Replicas
}

// lacks says what the owner's pods that are not available wait for.
func (r *replicas) lacks(but types.UID, now time.Time) string {
	for i := range r.pods {
		p := &r.pods[i]
		if p.UID == but || p.DeletionTimestamp != nil || translate.MoveOf(p).Active() || r.isAvailable(p, now) {
			continue
		}
		for j := range p.Status.Conditions {
			if c := &p.Status.Conditions[j]; c.Type == v1alpha1.WaitingCondition && c.Status == v1.ConditionTrue {
				return fmt.Sprintf("%s waits: %s: %s", p.Name, c.Reason, why(c.Message))
			}
		}
		if p.Spec.NodeName == "" {
			return p.Name + " waits for a place"
		}
		return fmt.Sprintf("%s is on %s and not ready", p.Name, p.Spec.NodeName)
	}
	for _, c := range r.set.Status.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == v1.ConditionTrue {
			return fmt.Sprintf("ReplicaSet %s cannot make one: %s", r.set.Name, c.Message)
		}
	}
	return fmt.Sprintf("ReplicaSet %s is to make one", r.set.Name)
}

// step brings a move one step on, and reports whether there is nothing more to do.
func (s *Scheduler) step(ctx context.Context, l *look, x *move) (over bool, err error) {
	p, err := s.client.CoreV1().Pods(x.namespace).Get(ctx, x.name, metav1.GetOptions{})
	s.metrics.Request("get", err)
	if apierrors.IsNotFound(err) || err == nil && (p.UID != x.uid || p.DeletionTimestamp != nil) {
		return true, nil // the tables have seen it go, or will
	}
	if err != nil {
		return false, err
	}
	n, err := l.node(ctx, x.node)
	if err != nil {
		return false, err
	}
	// What is asked of a node that is gone, nobody has taken back.
	drain := &translate.Drain{Wait: time.Minute, Request: x.request}
	if n != nil {
		if drain, err = translate.DrainOf(n); err != nil {
			drain = nil
		}
	}
	rec := translate.MoveOf(p)
	if rec.Active() {
		if n == nil {
			drain.Request = rec.Request
		}
		return s.replaceMoving(ctx, l, x, p, rec, drain)
	}
	if x.found || drain != nil && rec.NotReplaced(drain.Request) && translate.StaysAsTold(p) { // it was given back, and the answer lost
		s.box.put(func(m *mirror) { m.movedOff(x.uid, stayed(rec)) })
		return true, nil
	}
	if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
		return true, nil
	}
	if drain == nil {
		s.box.put(func(m *mirror) { m.movedOff(x.uid, nil) })
		return true, s.sayMoving(ctx, x.namespace, x.name, x.uid, v1.ConditionFalse, v1alpha1.MovingCancelled, cancelled(x))
	}
	if x.replace && drain.Wait > 0 {
		why, err := s.detach(ctx, l, x, p, drain)
		if err != nil || why == "" {
			return false, err
		}
		s.log.Info("a pod is evicted before another is in its place", "pod", x.namespace+"/"+x.name, "why", why)
		x.replace = false
	}
	err = s.dismiss(ctx, x, p, causeDrained, fmt.Sprintf("node %s is drained", x.node))
	return err == nil, ignoreBudget(err)
}

func cancelled(x *move) string { return fmt.Sprintf("node %s is not to be emptied any more", x.node) }

// errBudget says that a disruption budget does not let a pod go now.
var errBudget = errors.New("a disruption budget does not allow it")

func ignoreBudget(err error) error {
	if errors.Is(err, errBudget) {
		return nil
	}
	return err
}

// dismiss evicts a pod; the error is errBudget when that has to wait, which the pod
// is told.
func (s *Scheduler) dismiss(ctx context.Context, x *move, p *v1.Pod, event, message string) error {
	err := s.askToLeave(ctx, x.namespace, x.name, x.uid, counts(&p.ObjectMeta) || uncounted(&p.ObjectMeta), false, nil)
	switch {
	case apierrors.IsTooManyRequests(err):
		return errors.Join(errBudget, s.tellMoving(ctx, p, v1.ConditionTrue, v1alpha1.MovingBudget, err.Error()))
	case err == nil:
		s.event(x.namespace, "Pod", x.name, x.uid, v1.EventTypeNormal, event, message)
	case apierrors.IsNotFound(err):
		err = nil
	}
	return err
}

// detach takes a pod out of its owner's hands. why says why that is of no use.
func (s *Scheduler) detach(ctx context.Context, l *look, x *move, p *v1.Pod, d *translate.Drain) (why string, err error) {
	owner := translate.Replaceable(p)
	if owner == nil {
		return "it has no owner any more", nil
	}
	hash := p.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	r, err := l.replicas(ctx, x.namespace, owner, hash)
	if err != nil {
		return "", err
	}
	if r.set == nil {
		return "its owner is gone", nil
	}
	if r.set.Spec.Selector == nil || r.set.Spec.Selector.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey] != hash {
		return "its owner has no label of its own to select by", nil
	}
	if metav1.GetControllerOf(p) == nil {
		return "", nil // it takes the pod back any moment
	}
	by := metav1.GetControllerOf(r.set)
	if by == nil || by.Kind != "Deployment" {
		return "its owner is no Deployment's", nil
	}
	deployment, err := s.client.AppsV1().Deployments(x.namespace).Get(ctx, by.Name, metav1.GetOptions{})
	s.metrics.Request("get", err)
	if apierrors.IsNotFound(err) {
		return "its Deployment is gone", nil
	}
	if err != nil {
		return "", err
	}
	if deployment.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return "its Deployment never has an old pod beside a new one (strategy Recreate)", nil
	}
	now := s.now()
	rec := &translate.Move{
		Owner: *owner, Hash: hash, Until: metav1.NewTime(now.Add(d.Wait)), Request: d.Request,
		Least: min(r.available("", now), r.wanted()),
	}
	if err := s.relabelMoving(ctx, p, rec); err != nil {
		return "", err
	}
	s.log.Info("a pod is moved: its owner makes another first", "pod", x.namespace+"/"+x.name, "owner", owner.Name, "node", x.node)
	return "", nil
}

// replaceMoving evicts a pod that is out of its owner's hands, once others are in
// its place, or gives it back.
func (s *Scheduler) replaceMoving(ctx context.Context, l *look, x *move, p *v1.Pod, rec *translate.Move, d *translate.Drain) (over bool, err error) {
	r, err := l.replicas(ctx, x.namespace, &rec.Owner, rec.Hash)
	if err != nil {
		return false, err
	}
	now := s.now()
	if least := min(rec.Least, r.wanted()); r.set == nil || d != nil && (d.Wait == 0 || r.available(x.uid, now) >= least) {
		why := fmt.Sprintf("node %s is drained: of ReplicaSet %s, %d pods are available without it; needed: %d", x.node, rec.Owner.Name, r.available(x.uid, now), least)
		if r.set == nil {
			why = fmt.Sprintf("ReplicaSet %s, whose pod it was, is gone", rec.Owner.Name)
		}
		err := s.dismiss(ctx, x, p, "Moved", why)
		if err == nil {
			s.metrics.moves.WithLabelValues("moved").Inc()
		}
		return err == nil, ignoreBudget(err)
	}
	if d != nil && d.Request != rec.Request { // somebody has asked anew, and waits from now on
		anew := *rec
		x.until = now.Add(d.Wait)
		anew.Request, anew.Until = d.Request, metav1.NewTime(x.until)
		return false, s.relabelMoving(ctx, p, &anew)
	}
	if d != nil && x.until.IsZero() {
		x.until = now.Add(d.Wait)
	}
	if rec.Until.After(x.until) && d != nil {
		rec.Until = metav1.NewTime(x.until) // its author has put it off
	}
	lacks := r.lacks(x.uid, now)
	reason, why := "", ""
	switch {
	case d == nil:
		reason, why = v1alpha1.MovingCancelled, cancelled(x)
	case now.After(rec.Until.Time):
		reason, why = v1alpha1.MovingNotReplaced, "no other was available in its place in time: "+lacks
	default:
		why := fmt.Sprintf("another is to be available first, until %s: %s", rec.Until.UTC().Format(time.RFC3339), lacks)
		if !x.begun {
			x.begun = true
			s.event(x.namespace, "Pod", x.name, x.uid, v1.EventTypeNormal, "Moving", fmt.Sprintf("node %s is drained: ReplicaSet %s makes another pod first", x.node, rec.Owner.Name))
		}
		return false, s.tellMoving(ctx, p, v1.ConditionTrue, v1alpha1.MovingReplacing, why)
	}
	// Who looks at the pod once it is given back finds why.
	if err := s.tellMoving(ctx, p, v1.ConditionFalse, reason, why); err != nil {
		return false, err
	}
	back := *rec
	back.Kept = reason
	if err := s.relabelMoving(ctx, p, &back); err != nil {
		return false, err
	}
	s.log.Info("a pod is not moved: its owner has it back", "pod", x.namespace+"/"+x.name, "owner", rec.Owner.Name, "why", why)
	s.event(x.namespace, "Pod", x.name, x.uid, v1.EventTypeWarning, reason, why)
	s.metrics.moves.WithLabelValues("kept").Inc()
	s.box.put(func(m *mirror) { m.movedOff(x.uid, stayed(&back)) })
	return true, nil
}

// stayed is the request for which a pod could not leave; nil when there is none.
func stayed(rec *translate.Move) *string {
	if rec == nil || !rec.NotReplaced(rec.Request) {
		return nil
	}
	return &rec.Request
}

// relabelMoving writes how a move stands and the labels by which its owner has the
// pod or not, at once.
func (s *Scheduler) relabelMoving(ctx context.Context, p *v1.Pod, rec *translate.Move) error {
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
	_, err = s.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	s.metrics.Request("move", err)
	return err
}

// tellMoving is sayMoving unless the pod, as it was read, says so already.
func (s *Scheduler) tellMoving(ctx context.Context, p *v1.Pod, status v1.ConditionStatus, reason, message string) error {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1alpha1.MovingCondition && c.Status == status && c.Reason == reason && c.Message == message {
			return nil
		}
	}
	return s.sayMoving(ctx, p.Namespace, p.Name, p.UID, status, reason, message)
}

// sayLocked says on a pod of a node that is drained that it stays.
func (s *Scheduler) sayLocked(ctx context.Context, x move) {
	err := act.Retry(ctx, func() error {
		return s.sayMoving(ctx, x.namespace, x.name, x.uid, v1.ConditionFalse, v1alpha1.MovingLocked, translate.LockedMessage(x.request))
	})
	if err != nil && ctx.Err() == nil {
		s.log.Warn("a pod was not told that it stays", "pod", x.namespace+"/"+x.name, "error", err)
	}
}

// sayMoving says on a pod of a node that is drained how that stands.
func (s *Scheduler) sayMoving(ctx context.Context, namespace, name string, uid types.UID, status v1.ConditionStatus, reason, message string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": uid},
		"status": map[string]any{"conditions": []v1.PodCondition{{
			Type: v1alpha1.MovingCondition, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(s.now()),
		}}},
	})
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().Pods(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	s.metrics.Request("status", err)
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return err
}
