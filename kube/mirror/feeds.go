package mirror

import (
	"fmt"
	"runtime/debug"
	"sync"

	"k8s.io/client-go/tools/cache"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/devices"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/peers"
	"github.com/muster-sched/muster/kube/settings"
	"github.com/muster-sched/muster/kube/storage"
	"github.com/muster-sched/muster/kube/translate"
)

// Feed is where a watch of one kind of object puts what it observes.
type Feed interface {
	cache.ReflectorStore
	// Synced is closed when all objects of the kind have been listed once.
	Synced() <-chan struct{}
}

// Feeds returns a feed for each resource, by its name. Each cuts objects down to what is kept
// of them, and puts what they change into the mailbox.
func Feeds(box *Mailbox) map[string]Feed {
	pods := follow(box, objects.TrimPod, (*Mirror).podSeen, func(m *Mirror, o *objects.Pod) { m.podGone(o.UID) }, (*Mirror).podsListed)
	nodes := follow(box, objects.TrimNode, (*Mirror).nodeSeen, func(m *Mirror, o *objects.Node) { m.nodeGone(o.Name) }, (*Mirror).nodesListed)
	pods.bare, nodes.bare = watchedAs(objects.BarePod), watchedAs(objects.BareNode)
	type vols = *storage.Index
	type devs = *devices.Index
	return map[string]Feed{
		"pods": pods, "nodes": nodes,
		"namespaces": follow(box, objects.TrimNamespace, (*Mirror).namespaceSeen,
			func(m *Mirror, o *objects.Namespace) { m.namespaceGone(o.Name) }, (*Mirror).namespacesListed),
		"podgroups": follow(box, objects.TrimPodGroup, (*Mirror).podGroupSeen,
			func(m *Mirror, o *objects.PodGroup) { m.podGroupGone(objects.KeyOf(o)) }, (*Mirror).podGroupsListed),
		"queues": follow(box, whole[*v1alpha1.Queue], (*Mirror).queueSeen,
			func(m *Mirror, q *v1alpha1.Queue) { m.queueGone(q.Name) }, (*Mirror).queuesListed),

		"schedulingpolicies": follow(box, whole[*v1alpha1.SchedulingPolicy],
			inPolicies((*settings.Policies).Observe), inPolicies((*settings.Policies).Forget), inPolicies((*settings.Policies).Replace)),
		"topologies": follow(box, whole[*v1alpha1.Topology],
			inTopologies((*settings.Topologies).Observe), inTopologies((*settings.Topologies).Forget), inTopologies((*settings.Topologies).Replace)),
		"priorityclasses": follow(box, settings.ClassOf,
			inClasses(settings.Classes.Observe), inClasses(settings.Classes.Forget), inClasses(settings.Classes.Replace)),
		"poddisruptionbudgets": follow(box, peers.BudgetOf,
			inBudgets((*peers.Index).ObserveBudget), inBudgets((*peers.Index).ForgetBudget), inBudgets((*peers.Index).ReplaceBudgets)),

		"persistentvolumeclaims": follow(box, storage.ClaimOf, inStorage(vols.ObserveClaim), inStorage(vols.ForgetClaim), inStorage(vols.ReplaceClaims)),
		"persistentvolumes":      follow(box, storage.VolumeOf, inStorage(vols.ObserveVolume), inStorage(vols.ForgetVolume), inStorage(vols.ReplaceVolumes)),
		"storageclasses":         follow(box, storage.ClassOf, inStorage(vols.ObserveClass), inStorage(vols.ForgetClass), inStorage(vols.ReplaceClasses)),
		"csinodes":               follow(box, storage.LimitsOf, inStorage(vols.ObserveLimits), inStorage(vols.ForgetLimits), inStorage(vols.ReplaceLimits)),

		"resourceslices":   follow(box, translate.SliceOf, inDevices(devs.ObserveSlice), inDevices(devs.ForgetSlice), inDevices(devs.ReplaceSlices)),
		"deviceclasses":    follow(box, devices.ClassOf, inDevices(devs.ObserveClass), inDevices(devs.ForgetClass), inDevices(devs.ReplaceClasses)),
		"resourceclaims":   follow(box, devices.ClaimOf, inDevices(devs.ObserveClaim), inDevices(devs.ForgetClaim), inDevices(devs.ReplaceClaims)),
		"devicetaintrules": follow(box, translate.TaintRuleOf, inDevices(devs.ObserveTaintRule), inDevices(devs.ForgetTaintRule), inDevices(devs.ReplaceTaintRules)),
	}
}

// whole keeps all of an object.
func whole[T any](o T) T { return o }

// watched is a kind of object that is watched: what is kept of it, and how it changes the
// tables.
type watched[T any] struct {
	box  *Mailbox
	trim func(any) (T, bool)
	// bare is what is kept of an object that cannot be cut down; nil for nothing.
	bare   func(any) (T, bool)
	seen   func(*Mirror, T)
	gone   func(*Mirror, T)
	listed func(*Mirror, []T)
	once   sync.Once
	synced chan struct{} // closed when all were listed once
}

// Transformer lets a list be trimmed object by object as it comes.
func (w *watched[T]) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		if t, ok := w.trimmed(o); ok {
			return t, nil
		}
		return o, nil
	}
}

func (w *watched[T]) trimmed(o any) (t T, ok bool) {
	if t, ok := o.(T); ok {
		return t, true
	}
	defer func() {
		if v := recover(); v != nil {
			stack := debug.Stack()
			w.box.Put(func(m *Mirror) { m.unread(o, v, stack) })
			if w.bare != nil {
				t, ok = w.bare(o)
			}
		}
	}()
	return w.trim(o)
}

// Add handles a new object.
func (w *watched[T]) Add(o any) error { return w.each(o, w.seen, true) }

// Update handles a changed object.
func (w *watched[T]) Update(o any) error { return w.each(o, w.seen, true) }

// Delete handles a deleted object.
func (w *watched[T]) Delete(o any) error { return w.each(o, w.gone, false) }

func (w *watched[T]) each(o any, f func(*Mirror, T), stays bool) error {
	t, ok := w.trimmed(o)
	if !ok {
		return fmt.Errorf("unexpected %T", o)
	}
	w.box.Put(func(m *Mirror) {
		if !m.takeIn(t, func() { f(m, t) }) && stays {
			m.reduce(t)
		}
	})
	return nil
}

// Replace handles the list of all objects: at the start, and after a watch was lost.
func (w *watched[T]) Replace(list []any, _ string) error {
	all := make([]T, 0, len(list))
	for _, o := range list {
		if t, ok := w.trimmed(o); ok {
			all = append(all, t)
		}
	}
	w.box.Put(func(m *Mirror) { m.takeIn(all, func() { w.listed(m, all) }) })
	w.once.Do(func() { close(w.synced) })
	return nil
}

// Synced is closed when all objects were listed once.
func (w *watched[T]) Synced() <-chan struct{} { return w.synced }

// Resync has nothing to do: nothing is cached.
func (w *watched[T]) Resync() error { return nil }

// follow makes a watched kind of object of type O, of which a T is kept.
func follow[O, T any](box *Mailbox, trim func(O) T, seen, gone func(*Mirror, T), listed func(*Mirror, []T)) *watched[T] {
	return &watched[T]{
		box: box, seen: seen, gone: gone, listed: listed, synced: make(chan struct{}),
		trim: watchedAs(trim),
	}
}

// watchedAs turns a function of an object of type O into one of the object of a watch.
func watchedAs[O, T any](trim func(O) T) func(any) (T, bool) {
	return func(o any) (T, bool) {
		if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = d.Obj
		}
		if whole, ok := o.(O); ok {
			return trim(whole), true
		}
		var none T
		return none, false
	}
}
