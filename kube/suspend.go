package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// Owners are suspended when all their pods are to leave: a Job whose pods are
// evicted one by one counts each as failed, and gives up in the end. When the
// pods are gone the owner is resumed, and makes new ones, which wait.
//
// That an owner is suspended by us stands on it from the moment on, in the same
// write: whoever decides next finds it and takes it back. Where suspending is
// not possible, or would break a disruption budget, pods are evicted.

// suspendAct asks to make all pods of a group leave.
type suspendAct struct {
	group   *group
	members map[types.UID]bool // all its pods, also those without a place
	evict   []evictAct
}

// suspension is a suspendAct on its way.
type suspension struct {
	id      translate.Group
	since   time.Time
	owners  []metav1.OwnerReference
	members map[types.UID]bool
	pods    []departure
}

// suspended is an owner that we suspended.
type suspended struct {
	resource        schema.GroupVersionResource
	field           []string
	namespace, name string
	// mark is what stands on it, since when it is in the queue as far as that can be.
	mark  suspendMark
	since time.Time
	// ending is when this instance first saw that a pod of it is being deleted.
	ending map[types.UID]time.Time
}

func (o suspended) key() string {
	return strings.Join([]string{o.resource.String(), o.namespace, o.name, o.mark.String()}, " ")
}

// suspendMark is the value of [v1alpha1.SuspendedAnnotation]: the group, since
// when it is in the queue, and the selector of its pods.
type suspendMark struct {
	group    string // kind/name, the name escaped: it may have blanks
	since    time.Time
	selector string
}

func (k *suspendMark) of(id translate.Group) {
	k.group = string(id.Kind) + "/" + url.PathEscape(id.Name)
}

func (k suspendMark) String() string {
	return k.group + " " + k.since.UTC().Format(time.RFC3339) + " " + k.selector
}

func readSuspendMark(s string) (k suspendMark, ok bool) {
	words := strings.Fields(s)
	if len(words) != 3 {
		return k, false
	}
	since, err := time.Parse(time.RFC3339, words[1])
	_, selectorErr := labels.Parse(words[2])
	return suspendMark{words[0], since, words[2]}, err == nil && selectorErr == nil && strings.Contains(words[0], "/")
}

// keepPlace is how long a group without pods is kept after its owner was
// resumed: its new pods wait in the old place.
const keepPlace = 10 * 60 * core.Second

// parked is a group without pods that are to come again.
type parked struct {
	// until is when it is forgotten, [core.Never] while its owner is suspended.
	until core.Time
}

// maySuspend reports whether the group is stopped whole, as far as its pods
// tell.
func (m *mirror) maySuspend(g *group) bool {
	return !g.runs() && m.suspendable(g)
}

// suspendable reports whether the owners of all pods of a group are of kinds that
// can be suspended.
func (m *mirror) suspendable(g *group) bool {
	if g.id.Kind == others || len(g.pods) == 0 {
		return false
	}
	for _, p := range g.pods {
		if p.object.owner == nil {
			return false
		}
		if _, ok := translate.SuspensionOf(schema.FromAPIVersionAndKind(p.object.owner.APIVersion, p.object.owner.Kind).GroupKind()); !ok {
			return false
		}
	}
	return true
}

// suspend turns the evictions of a group's pods into one act.
func (m *mirror) suspend(g *group, list []evictAct) {
	act := suspendAct{group: g, members: make(map[types.UID]bool, len(g.pods)), evict: list}
	for uid := range g.pods {
		act.members[uid] = true
	}
	g.parked = &parked{until: core.Never}
	m.acts.suspend = append(m.acts.suspend, act)
}

// unpark takes in that a group's owner is not suspended after all.
func (m *mirror) unpark(id translate.Group) {
	if g := m.groups[id]; g != nil {
		g.parked = nil
		m.touch(g)
	}
}

// onItsWay is what of an act concerns the API.
func (a *suspendAct) onItsWay() *suspension {
	x := &suspension{id: a.group.id, since: a.group.created, members: a.members}
	known := map[types.UID]bool{}
	for _, p := range a.group.pods {
		if owner := p.object.owner; !known[owner.UID] {
			known[owner.UID] = true
			x.owners = append(x.owners, *owner)
		}
	}
	for i := range a.evict {
		x.pods = append(x.pods, a.evict[i].onItsWay())
	}
	return x
}

// resumed takes in that a group's owner is not suspended by us any more.
func (m *mirror) resumed(id translate.Group) {
	if g := m.groups[id]; g != nil && g.parked != nil {
		g.parked.until = m.now + keepPlace
		m.touch(g)
	}
}

// park keeps the place in the queue of a group whose owner was found suspended.
func (m *mirror) park(id translate.Group, since time.Time) {
	if id.Kind == others || id.Kind == translate.ByItself {
		return // no owner makes such a group's pods
	}
	g := m.groups[id]
	if g == nil {
		g = &group{id: id, job: id.Job(), created: since, pods: map[types.UID]*pod{}, loose: map[types.UID]*pod{}}
		m.groups[id] = g
	}
	if since.Before(g.created) {
		g.created = since
	}
	g.parked = &parked{until: core.Never}
}

// stays reports whether a group without pods is kept for now.
func (m *mirror) stays(g *group) bool {
	if g.quarantine != nil {
		return true // until it ends
	}
	if g.parked == nil || g.parked.until <= m.now {
		return false
	}
	if g.parked.until != core.Never {
		m.later = append(m.later, g)
		m.acts.wake = min(m.acts.wake, g.parked.until)
	}
	return true
}

// suspend stops the owner of a group whose pods are to leave, or evicts them.
func (s *Scheduler) suspend(ctx context.Context, x *suspension) {
	s.evicting <- struct{}{}
	owner, why, err := s.stop(ctx, x)
	<-s.evicting
	if owner != nil {
		s.log.Info("an owner is suspended until its pods are gone", "owner", x.id.Namespace+"/"+owner.name, "resource", owner.resource.Resource)
		s.tellOf(&x.pods[0])
		s.suspensions.add(*owner)
		return
	}
	if err != nil {
		why = err.Error()
	}
	s.log.Debug("pods are evicted rather than their owner suspended", "group", x.id.Job(), "why", why)
	s.box.put(func(m *mirror) { m.unpark(x.id) })
	for _, d := range x.pods {
		go s.evict(ctx, d)
	}
}

// stop suspends the owner. Without one that can be suspended, why says why not.
func (s *Scheduler) stop(ctx context.Context, x *suspension) (owner *suspended, why string, err error) {
	for i := range x.pods {
		if x.pods[i].grace != nil { // its controller would give it all the time that it asks for
			return nil, fmt.Sprintf("pod %s asks for more than %s to end", x.pods[i].name, maxGrace), nil
		}
	}
	o, mark, err := s.ownerOf(ctx, x)
	switch {
	case err != nil:
		return nil, "", err
	case o == nil:
		return nil, "the pods have no owner in common that can be suspended", nil
	case translate.Ended(o.object) || o.object.GetDeletionTimestamp() != nil:
		return nil, "the owner is over", nil
	case o.flag():
		return nil, "the owner is suspended already", nil
	}
	pods, err := s.client.CoreV1().Pods(x.id.Namespace).List(ctx, metav1.ListOptions{LabelSelector: mark.selector})
	if err != nil {
		return nil, "", err
	}
	var bound []*v1.Pod
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
			continue
		}
		if !x.members[p.UID] {
			return nil, fmt.Sprintf("the owner has another pod, %s", p.Name), nil
		}
		if p.Spec.NodeName != "" {
			bound = append(bound, p)
		}
	}
	budgets, err := s.client.PolicyV1().PodDisruptionBudgets(x.id.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", err
	}
	for i := range budgets.Items {
		if !allows(&budgets.Items[i], bound) {
			return nil, fmt.Sprintf("the disruption budget %s does not allow it now", budgets.Items[i].Name), nil
		}
	}
	var marks sync.WaitGroup
	under := make(chan struct{}, marking)
	for i := range x.pods {
		under <- struct{}{}
		marks.Go(func() {
			defer func() { <-under }()
			if err := s.mark(ctx, &x.pods[i]); err != nil && !apierrors.IsNotFound(err) {
				s.log.Debug("a condition could not be written", "object", x.id.Namespace+"/"+x.pods[i].name, "error", err)
			}
		})
	}
	marks.Wait()
	mark.of(x.id)
	mark.since = x.since
	err = s.setSuspended(ctx, o, &mark)
	s.metrics.Request("suspend", err)
	if err != nil {
		return nil, "", err
	}
	return &suspended{resource: o.resource, field: o.how.Field, namespace: x.id.Namespace, name: o.object.GetName(), mark: mark}, "", nil
}

// marking is how many pods are marked at once.
const marking = 16

// allows reports whether a budget lets all these pods go at once.
func allows(b *policyv1.PodDisruptionBudget, pods []*v1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return false
	}
	n := int32(0)
	for _, p := range pods {
		if selector.Matches(labels.Set(p.Labels)) {
			n++
		}
	}
	return n == 0 || n <= b.Status.DisruptionsAllowed && b.Status.ObservedGeneration >= b.Generation
}

// owning is an owner as it was read.
type owning struct {
	object   *unstructured.Unstructured
	resource schema.GroupVersionResource
	how      translate.Suspension
}

func (o *owning) flag() bool {
	on, _, _ := unstructured.NestedBool(o.object.Object, o.how.Field...)
	return on
}

// ownerOf finds the object to suspend: the topmost of the pods' common owners.
// None above it may be of a kind that is not known: it might put the flag back.
func (s *Scheduler) ownerOf(ctx context.Context, x *suspension) (*owning, suspendMark, error) {
	var found *owning
	var mark suspendMark
	seen := map[types.UID]*owning{}
	for i := range x.owners {
		var top *owning
		for ref := &x.owners[i]; ref != nil; ref = metav1.GetControllerOf(top.object) {
			gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
			how, ok := translate.SuspensionOf(gvk.GroupKind())
			if !ok {
				if gvk.GroupKind() == (schema.GroupKind{Group: "batch", Kind: "CronJob"}) {
					break
				}
				return nil, mark, nil
			}
			o := seen[ref.UID]
			if o == nil {
				var err error
				if o, err = s.readOwner(ctx, x.id.Namespace, ref, how); err != nil {
					return nil, mark, err
				}
				seen[ref.UID] = o
			}
			if how.PodLabel != "" {
				mark.selector = how.PodLabel + "=" + ref.Name
			}
			top = o
		}
		if found != nil && found != top {
			return nil, mark, nil
		}
		found = top
	}
	if found == nil || found.how.Field == nil || mark.selector == "" {
		return nil, mark, nil
	}
	return found, mark, nil
}

func (s *Scheduler) readOwner(ctx context.Context, namespace string, ref *metav1.OwnerReference, how translate.Suspension) (*owning, error) {
	resource, err := s.resource(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
	if err != nil {
		return nil, err
	}
	o, err := s.dynamic.Resource(resource).Namespace(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	s.metrics.Request("get", err)
	if err == nil && o.GetUID() != ref.UID {
		err = apierrors.NewNotFound(resource.GroupResource(), ref.Name)
	}
	if err != nil {
		return nil, err
	}
	return &owning{object: o, resource: resource, how: how}, nil
}

// setSuspended writes the flag and our mark, or takes both back when mark is
// nil. It fails when the object has changed since it was read.
func (s *Scheduler) setSuspended(ctx context.Context, o *owning, mark *suspendMark) error {
	meta := map[string]any{
		"resourceVersion": o.object.GetResourceVersion(),
		"labels":          map[string]any{v1alpha1.SuspendedLabel: nil},
		"annotations":     map[string]any{v1alpha1.SuspendedAnnotation: nil},
	}
	patch := map[string]any{"metadata": meta}
	if mark != nil {
		meta["labels"] = map[string]any{v1alpha1.SuspendedLabel: "true"}
		meta["annotations"] = map[string]any{v1alpha1.SuspendedAnnotation: mark.String()}
	}
	if o.flag() != (mark != nil) {
		if err := unstructured.SetNestedField(patch, mark != nil, o.how.Field...); err != nil {
			return err
		}
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = s.dynamic.Resource(o.resource).Namespace(o.object.GetNamespace()).Patch(ctx, o.object.GetName(), types.MergePatchType, data, metav1.PatchOptions{})
	return err
}

// overdue is how long after its grace a pod is waited for that is being deleted:
// on a node that is lost, nobody ends it.
const overdue = 15 * time.Second

// isOverdue reports whether a pod that is being deleted is waited for no longer: since
// this instance has seen that, its grace has passed, and overdue.
func (o *suspended) isOverdue(p *v1.Pod, now time.Time) bool {
	since, ok := o.ending[p.UID]
	if !ok {
		if o.ending == nil {
			o.ending = map[types.UID]time.Time{}
		}
		since, o.ending[p.UID] = now, now
	}
	return now.Sub(since) >= time.Duration(ptr.Deref(p.DeletionGracePeriodSeconds, 0))*time.Second+overdue
}

// findSuspended lists the owners that bear our mark: those that were suspended
// before this instance decided on them.
func (s *Scheduler) findSuspended(ctx context.Context) error {
	var found []suspended
	groups, err := s.client.Discovery().ServerGroups()
	if err != nil {
		return err
	}
	versions := map[string]string{}
	for _, g := range groups.Groups {
		versions[g.Name] = g.PreferredVersion.Version
	}
	for _, kind := range translate.Suspendable() {
		how, _ := translate.SuspensionOf(kind)
		if versions[kind.Group] == "" {
			continue
		}
		resource, err := s.resource(kind.WithVersion(versions[kind.Group]))
		if err != nil {
			continue // the group is served, this kind is not
		}
		list, err := s.dynamic.Resource(resource).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.SuspendedLabel + "=true"})
		s.metrics.Request("list", err)
		if apierrors.IsForbidden(err) {
			s.log.Warn("owners of a kind may not be listed: if one is suspended, it stays so", "resource", resource.Resource, "error", err)
			continue
		}
		if err != nil {
			return err
		}
		for i := range list.Items {
			o := &list.Items[i]
			mark, ok := readSuspendMark(o.GetAnnotations()[v1alpha1.SuspendedAnnotation])
			if !ok {
				s.log.Warn("an owner has the label but not the annotation of those that were suspended: it stays as it is",
					"owner", o.GetNamespace()+"/"+o.GetName(), "resource", resource.Resource)
				continue
			}
			x := suspended{resource: resource, field: how.Field, namespace: o.GetNamespace(), name: o.GetName(), mark: mark}
			x.since = mark.since
			if made := o.GetCreationTimestamp().Time; x.since.Before(made) {
				x.since = made // whoever may write the object wrote the mark: its pods cannot be older
			}
			found = append(found, x)
		}
	}
	for _, o := range found {
		id := o.group()
		s.box.put(func(m *mirror) { m.park(id, o.since) })
		s.suspensions.add(o)
	}
	return nil
}

func (o *suspended) group() translate.Group {
	kind, name, _ := strings.Cut(o.mark.group, "/")
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	return translate.Group{Namespace: o.namespace, Kind: translate.GroupKind(kind), Name: name}
}

// resumeGone resumes the owners whose pods are gone.
func (s *Scheduler) resumeGone(ctx context.Context) {
	s.suspensions.each(func(o *suspended) bool {
		over, err := s.resumeOne(ctx, o)
		if err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
			s.log.Warn("an owner cannot be resumed now", "owner", o.namespace+"/"+o.name, "resource", o.resource.Resource, "error", err)
		}
		if over {
			id := o.group()
			s.box.put(func(m *mirror) { m.resumed(id) })
		}
		return over
	})
}

// resumeOne resumes an owner if its pods are gone, and reports whether there is
// nothing more to do. Who took our mark off, or the flag, has decided otherwise:
// the flag stays as it is.
func (s *Scheduler) resumeOne(ctx context.Context, o *suspended) (over bool, err error) {
	got, err := s.dynamic.Resource(o.resource).Namespace(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if got.GetAnnotations()[v1alpha1.SuspendedAnnotation] != o.mark.String() {
		return true, nil
	}
	owner := &owning{object: got, resource: o.resource, how: translate.Suspension{Field: o.field}}
	if owner.flag() {
		pods, err := s.client.CoreV1().Pods(o.namespace).List(ctx, metav1.ListOptions{LabelSelector: o.mark.selector})
		if err != nil {
			return false, err
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
				continue
			}
			if p.DeletionTimestamp == nil || !o.isOverdue(p, s.now()) {
				return false, nil
			}
		}
	}
	err = s.setSuspended(ctx, owner, nil)
	s.metrics.Request("resume", err)
	if err != nil {
		return false, err
	}
	s.log.Info("an owner is resumed", "owner", o.namespace+"/"+o.name, "resource", o.resource.Resource)
	return true, nil
}
