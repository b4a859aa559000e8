package act

import (
	"context"
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
	"github.com/muster-sched/muster/kube/fair"
	"github.com/muster-sched/muster/kube/translate"
)

// An owner is suspended if all its pods must leave: a Job whose pods are evicted one by
// one counts each as failed, and fails in the end. When the pods are gone, the owner is
// resumed and creates new pods, which wait.
//
// The write that suspends an owner also marks it as suspended by Muster: the instance
// that decides next finds the mark and resumes the owner. Where suspending is not
// possible, or would violate a disruption budget, the pods are evicted.

// Suspend makes all pods of a group leave by suspending their owner.
type Suspend struct {
	Group   translate.Group
	Since   time.Time // since when the group is in the queue
	Owners  []metav1.OwnerReference
	Members map[types.UID]bool // all its pods, also those without a place
	Pods    []Evict            // the evictions in its stead
}

// suspended is an owner that Muster suspended, to be resumed.
type suspended struct {
	resource        schema.GroupVersionResource
	field           []string
	namespace, name string
	mark            suspendMark // on the owner
	since           time.Time   // since when it is in the queue, as far as the mark can be believed
	// unsure is set if the write that suspends it has no answer: until then it may take effect.
	unsure time.Time
	// ending is when this instance first saw that a pod of it is being deleted.
	ending map[types.UID]time.Time
	// told is the last error that was logged: the same one is not logged each second.
	told string
	// first is when it was looked at first, next when it is to be looked at again.
	first, next time.Time
}

func (o suspended) key() string {
	return strings.Join([]string{o.resource.String(), o.namespace, o.name, o.mark.String()}, " ")
}

// suspendMark is the value of [v1alpha1.SuspendedAnnotation]: the group, its queueing
// time, and the selector of its pods.
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

// suspend suspends the owner of a group, or evicts its pods.
func (a *Actor) suspend(ctx context.Context, x *Suspend) {
	a.save(ctx, x.Pods)
	a.evicting <- struct{}{}
	owner, why, err := a.stop(ctx, x)
	<-a.evicting
	if owner != nil {
		a.log.Info("suspending an owner until its pods are gone", "owner", x.Group.Namespace+"/"+owner.name, "resource", owner.resource.Resource)
		a.evicted(&x.Pods[0])
		a.suspensions.add(*owner)
		return
	}
	if err != nil {
		why = err.Error()
	}
	a.log.Debug("evicting pods instead of suspending their owner", "group", x.Group.Job(), "why", why)
	a.outcomes.NotSuspended(x.Group)
	for _, e := range x.Pods {
		go a.evictNow(ctx, e)
	}
}

// stop suspends the owner of a group, if that is possible; otherwise why says why not.
func (a *Actor) stop(ctx context.Context, x *Suspend) (owner *suspended, why string, err error) {
	// 1. The controller that deletes the pods would give each all the grace period that it
	// asks for: a pod with a grace period of a day would hold its GPUs for a day.
	for i := range x.Pods {
		if x.Pods[i].Grace != nil {
			return nil, fmt.Sprintf("pod %s has a grace period longer than %d s", x.Pods[i].Name, *x.Pods[i].Grace), nil
		}
	}

	// 2. The owner is the topmost that the pods have in common: a controller above the one
	// that is suspended might resume it.
	o, mark, err := a.ownerOf(ctx, x)
	switch {
	case err != nil:
		return nil, "", err
	case o == nil:
		return nil, "the pods have no common owner that can be suspended", nil
	case translate.Ended(o.object) || o.object.GetDeletionTimestamp() != nil:
		return nil, "the owner has finished", nil
	case o.flag():
		return nil, "the owner is already suspended", nil
	}

	// 3. It must have only pods of the group: others would be stopped with them.
	pods, err := a.client.CoreV1().Pods(x.Group.Namespace).List(ctx, metav1.ListOptions{LabelSelector: mark.selector})
	if err != nil {
		return nil, "", err
	}
	var bound []*v1.Pod
	for i := range pods.Items {
		p := &pods.Items[i]
		if isOver(p) {
			continue
		}
		if !x.Members[p.UID] {
			return nil, fmt.Sprintf("the owner has another pod, %s", p.Name), nil
		}
		if p.Spec.NodeName != "" {
			bound = append(bound, p)
		}
	}

	// 4. Disruption budgets must allow that all its pods leave at once. The Eviction API would
	// ask them pod by pod; the controller of a suspended owner does not ask.
	budgets, err := a.client.PolicyV1().PodDisruptionBudgets(x.Group.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", err
	}
	for i := range budgets.Items {
		if !allows(&budgets.Items[i], bound) {
			return nil, fmt.Sprintf("disruption budget %s does not allow it now", budgets.Items[i].Name), nil
		}
	}

	// 5. The pods get the condition that says why they leave before the owner is suspended: its
	// controller deletes them at once.
	a.markAll(ctx, x)

	// 6. The owner is suspended, if it has not changed since it was read.
	mark.of(x.Group)
	mark.since = x.Since
	owner = &suspended{resource: o.resource, field: o.how.Field, namespace: x.Group.Namespace, name: o.object.GetName(), mark: mark}
	if err := a.writeSuspended(ctx, o, owner); err != nil {
		return nil, "", err
	}
	return owner, "", nil
}

// writeSuspended suspends an owner that has not changed since it was read. If the answer to
// an attempt is lost, the next one gets a conflict: then the mark tells. If none is
// answered, it may be suspended nevertheless; then it is resumed when the pods are gone,
// which are evicted.
func (a *Actor) writeSuspended(ctx context.Context, o *owning, s *suspended) error {
	err := Retry(ctx, func() error {
		err := a.setSuspended(ctx, o, &s.mark)
		a.metrics.Request("suspend", err)
		if apierrors.IsConflict(err) {
			return a.suspendedAnyway(ctx, s, err)
		}
		return err
	})
	if err != nil && IsTransient(err) {
		s.unsure = a.now().Add(Patience)
		a.suspensions.add(*s)
	}
	return err
}

// suspendedAnyway reads an owner that could not be suspended because of a conflict, and
// returns nil if an earlier attempt has suspended it.
func (a *Actor) suspendedAnyway(ctx context.Context, s *suspended, conflict error) error {
	got, err := a.dynamic.Resource(s.resource).Namespace(s.namespace).Get(ctx, s.name, metav1.GetOptions{})
	a.metrics.Request("get", err)
	if err != nil {
		return err
	}
	if s.marks(got) {
		return nil
	}
	return conflict
}

// marks reports whether an owner has this very mark.
func (o *suspended) marks(x *unstructured.Unstructured) bool {
	return x.GetAnnotations()[v1alpha1.SuspendedAnnotation] == o.mark.String()
}

// markAll writes on all pods of a group why they leave.
func (a *Actor) markAll(ctx context.Context, x *Suspend) {
	var marks sync.WaitGroup
	under := make(chan struct{}, marking)
	for i := range x.Pods {
		under <- struct{}{}
		marks.Go(func() {
			defer func() { <-under }()
			if err := a.mark(ctx, &x.Pods[i]); err != nil && !apierrors.IsNotFound(err) {
				a.log.Debug("cannot write a condition", "object", x.Group.Namespace+"/"+x.Pods[i].Name, "error", err)
			}
		})
	}
	marks.Wait()
}

// marking is the number of pods that are marked at once.
const marking = 16

// allows reports whether a budget allows that all these pods leave at once.
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

// overdue is how long to wait for a pod that is being deleted, after its grace period: on
// a lost node, no kubelet ends it.
const overdue = 15 * time.Second

// isOverdue reports whether to stop waiting for a pod that is being deleted: its grace
// period and overdue have passed since this instance first observed the deletion. The
// deletion timestamp does not count: another clock wrote it.
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

// FindSuspended lists the owners that have our mark: those that were suspended before
// this instance decided on them. They are reported, and resumed when their pods are
// gone. It tries again while the API server cannot answer.
func (a *Actor) FindSuspended(ctx context.Context) error {
	return Retry(ctx, func() error { return a.findSuspended(ctx) })
}

func (a *Actor) findSuspended(ctx context.Context) error {
	var found []suspended
	groups, err := a.client.Discovery().ServerGroups()
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
		resource, err := a.resource(kind.WithVersion(versions[kind.Group]))
		if err != nil {
			continue // the group is served, this kind is not
		}
		list, err := a.dynamic.Resource(resource).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.SuspendedLabel + "=true"})
		a.metrics.Request("list", err)
		if apierrors.IsForbidden(err) {
			a.log.Warn("no permission to list owners of a kind: suspended ones stay suspended", "resource", resource.Resource, "error", err)
			continue
		}
		if err != nil {
			return err
		}
		for i := range list.Items {
			o := &list.Items[i]
			mark, ok := readSuspendMark(o.GetAnnotations()[v1alpha1.SuspendedAnnotation])
			if !ok {
				a.log.Warn("an owner has the label but not the annotation of a suspended owner: it stays as it is",
					"owner", o.GetNamespace()+"/"+o.GetName(), "resource", resource.Resource)
				continue
			}
			x := suspended{resource: resource, field: how.Field, namespace: o.GetNamespace(), name: o.GetName(), mark: mark}
			x.since = mark.since
			if made := o.GetCreationTimestamp().Time; x.since.Before(made) {
				x.since = made // any user who may write the object may have written the mark: its pods cannot be older
			}
			found = append(found, x)
		}
	}
	for _, o := range found {
		id := o.group()
		a.outcomes.FoundSuspended(id, o.since)
		a.suspensions.add(o)
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

// A mark may be forged, and its pods never go. So looks have bounds: maxLooks are made each lookPeriod, by namespaces in turn, and an owner
// is looked at again after a quarter of the time for which that has been done, at most maxPause.
const (
	maxLooks  = 20
	lookShare = 4
	maxPause  = time.Minute
)

// resumeGone resumes the owners whose pods are gone.
func (a *Actor) resumeGone(ctx context.Context) {
	list, now := a.suspensions.take(), a.now()
	var turns fair.Queue[int]
	for i := range list {
		if !now.Before(list[i].next) {
			turns.Put(list[i].namespace, i)
		}
	}
	looked := map[int]bool{}
	var stay []suspended
	for len(looked) < maxLooks && ctx.Err() == nil {
		i, ok := turns.Take()
		if !ok {
			break
		}
		looked[i] = true
		if o := &list[i]; !a.look(ctx, o) {
			if o.first.IsZero() {
				o.first = now
			}
			o.next = now.Add(min(now.Sub(o.first)/lookShare, maxPause))
			stay = append(stay, *o)
		}
	}
	for i := range list {
		if !looked[i] {
			a.suspensions.add(list[i])
		}
	}
	a.suspensions.add(stay...) // after those that are still to be looked at
}

// look resumes an owner if its pods are gone. It reports whether there is nothing more to do.
func (a *Actor) look(ctx context.Context, o *suspended) bool {
	over, err := a.resumeOne(ctx, o)
	if err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil && err.Error() != o.told {
		o.told = err.Error()
		a.log.Warn("cannot resume an owner now", "owner", o.namespace+"/"+o.name, "resource", o.resource.Resource, "error", err)
	}
	if over {
		a.outcomes.Resumed(o.group())
	}
	return over
}

// podsGone reports whether the pods of an owner are gone, or as good as gone. It reads no more of them than it has to.
func (a *Actor) podsGone(ctx context.Context, o *suspended) (bool, error) {
	ask := metav1.ListOptions{LabelSelector: o.mark.selector, Limit: 100}
	for {
		pods, err := a.client.CoreV1().Pods(o.namespace).List(ctx, ask)
		if err != nil {
			return false, err
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			if !isOver(p) && (p.DeletionTimestamp == nil || !o.isOverdue(p, a.now())) {
				return false, nil
			}
		}
		if ask.Continue = pods.Continue; ask.Continue == "" {
			return true, nil
		}
	}
}

// resumeOne resumes an owner if its pods are gone, and reports whether there is nothing
// more to do. Where our mark, or the flag, was removed, a user has decided otherwise: the
// flag stays as it is.
func (a *Actor) resumeOne(ctx context.Context, o *suspended) (over bool, err error) {
	got, err := a.dynamic.Resource(o.resource).Namespace(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if !o.marks(got) {
		return !a.now().Before(o.unsure), nil
	}
	owner := &owning{object: got, resource: o.resource, how: translate.Suspension{Field: o.field}}
	if owner.flag() {
		if gone, err := a.podsGone(ctx, o); err != nil || !gone {
			return false, err
		}
	}
	err = a.setSuspended(ctx, owner, nil)
	a.metrics.Request("resume", err)
	if err != nil {
		return false, err
	}
	a.log.Info("resumed an owner", "owner", o.namespace+"/"+o.name, "resource", o.resource.Resource)
	return true, nil
}
