package kube

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/devices"
	"github.com/muster-sched/muster/kube/peers"
	"github.com/muster-sched/muster/kube/settings"
	"github.com/muster-sched/muster/kube/storage"
	"github.com/muster-sched/muster/kube/translate"
)

// watched is a kind of object that is kept up with: what of it is kept, and what
// it does to the tables.
type watched[T any] struct {
	box  *mailbox
	trim func(any) (T, bool)
	// bare is what is kept of an object that cannot be cut down; nil for nothing.
	bare   func(any) (T, bool)
	seen   func(*mirror, T)
	gone   func(*mirror, T)
	listed func(*mirror, []T)
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
			w.box.put(func(m *mirror) { m.unread(o, v, stack) })
			if w.bare != nil {
				t, ok = w.bare(o)
			}
		}
	}()
	return w.trim(o)
}

// Add takes in an object that is new.
func (w *watched[T]) Add(o any) error { return w.each(o, w.seen, true) }

// Update takes in an object that changed.
func (w *watched[T]) Update(o any) error { return w.each(o, w.seen, true) }

// Delete takes in that an object is gone.
func (w *watched[T]) Delete(o any) error { return w.each(o, w.gone, false) }

func (w *watched[T]) each(o any, f func(*mirror, T), stays bool) error {
	t, ok := w.trimmed(o)
	if !ok {
		return fmt.Errorf("unexpected %T", o)
	}
	w.box.put(func(m *mirror) {
		if !m.takeIn(t, func() { f(m, t) }) && stays {
			m.reduce(t)
		}
	})
	return nil
}

// Replace takes in all objects there are: at the start, and after a watch was
// lost.
func (w *watched[T]) Replace(list []any, _ string) error {
	all := make([]T, 0, len(list))
	for _, o := range list {
		if t, ok := w.trimmed(o); ok {
			all = append(all, t)
		}
	}
	w.box.put(func(m *mirror) { m.takeIn(all, func() { w.listed(m, all) }) })
	w.once.Do(func() { close(w.synced) })
	return nil
}

// Resync has nothing to do: nothing is cached.
func (w *watched[T]) Resync() error { return nil }

// run keeps up with a resource until ctx ends.
func (w *watched[T]) run(ctx context.Context, client rest.Interface, resource string, object runtime.Object) {
	lw := cache.NewListWatchFromClient(client, resource, "", fields.Everything())
	cache.NewReflectorWithOptions(lw, object, w, cache.ReflectorOptions{Name: "muster " + resource}).RunWithContext(ctx)
}

// watch starts to keep up with everything and returns what closes when all has
// been listed once.
func (s *Scheduler) watch(ctx context.Context) ([]<-chan struct{}, error) {
	var synced []<-chan struct{}
	core := s.client.CoreV1().RESTClient()

	pods := follow(s, func(p *v1.Pod) *podObject { return trimPod(p) }, (*mirror).podSeen,
		func(m *mirror, o *podObject) { m.podGone(o.UID) }, (*mirror).podsListed)
	nodes := follow(s, func(n *v1.Node) *nodeObject { return trimNode(n) }, (*mirror).nodeSeen,
		func(m *mirror, o *nodeObject) { m.nodeGone(o.Name) }, (*mirror).nodesListed)
	pods.bare, nodes.bare = watchedAs(barePod), watchedAs(bareNode)
	namespaces := follow(s, func(n *v1.Namespace) *namespaceObject {
		return &namespaceObject{ObjectMeta: trimMeta(&n.ObjectMeta), labels: n.Labels}
	},
		(*mirror).namespaceSeen, func(m *mirror, o *namespaceObject) { m.namespaceGone(o.Name) }, (*mirror).namespacesListed)
	start(ctx, pods, core, "pods", &v1.Pod{}, &synced)
	start(ctx, nodes, core, "nodes", &v1.Node{}, &synced)
	start(ctx, namespaces, core, "namespaces", &v1.Namespace{}, &synced)

	priorities := follow(s, settings.ClassOf, inClasses(settings.Classes.Observe), inClasses(settings.Classes.Forget), inClasses(settings.Classes.Replace))
	start(ctx, priorities, s.client.SchedulingV1().RESTClient(), "priorityclasses", &schedulingv1.PriorityClass{}, &synced)

	budgets := follow(s, peers.BudgetOf, inBudgets((*peers.Index).ObserveBudget), inBudgets((*peers.Index).ForgetBudget), inBudgets((*peers.Index).ReplaceBudgets))
	start(ctx, budgets, s.client.PolicyV1().RESTClient(), "poddisruptionbudgets", &policyv1.PodDisruptionBudget{}, &synced)

	type index = *storage.Index
	claims := follow(s, storage.ClaimOf, inStorage(index.ObserveClaim), inStorage(index.ForgetClaim), inStorage(index.ReplaceClaims))
	volumes := follow(s, storage.VolumeOf, inStorage(index.ObserveVolume), inStorage(index.ForgetVolume), inStorage(index.ReplaceVolumes))
	classes := follow(s, storage.ClassOf, inStorage(index.ObserveClass), inStorage(index.ForgetClass), inStorage(index.ReplaceClasses))
	limits := follow(s, storage.LimitsOf, inStorage(index.ObserveLimits), inStorage(index.ForgetLimits), inStorage(index.ReplaceLimits))
	start(ctx, claims, core, "persistentvolumeclaims", &v1.PersistentVolumeClaim{}, &synced)
	start(ctx, volumes, core, "persistentvolumes", &v1.PersistentVolume{}, &synced)
	storageAPI := s.client.StorageV1().RESTClient()
	start(ctx, classes, storageAPI, "storageclasses", &storagev1.StorageClass{}, &synced)
	start(ctx, limits, storageAPI, "csinodes", &storagev1.CSINode{}, &synced)

	if served, err := s.served(schedulingv1beta1.SchemeGroupVersion.String()); err != nil {
		return nil, err
	} else if served["podgroups"] {
		groups := follow(s, func(g *schedulingv1beta1.PodGroup) *podGroupObject { return trimPodGroup(g) }, (*mirror).podGroupSeen,
			func(m *mirror, o *podGroupObject) { m.podGroupGone(keyOf(o)) }, (*mirror).podGroupsListed)
		start(ctx, groups, s.client.SchedulingV1beta1().RESTClient(), "podgroups", &schedulingv1beta1.PodGroup{}, &synced)
	} else {
		s.log.Info("this cluster does not serve native PodGroups", "api", schedulingv1beta1.SchemeGroupVersion)
	}
	served, err := s.served(v1alpha1.GroupVersion.String())
	if err != nil {
		return nil, err
	}
	if served["queues"] {
		queues := follow(s, func(q *v1alpha1.Queue) *v1alpha1.Queue { return q }, (*mirror).queueSeen,
			func(m *mirror, q *v1alpha1.Queue) { m.queueGone(q.Name) }, (*mirror).queuesListed)
		start(ctx, queues, s.muster, "queues", &v1alpha1.Queue{}, &synced)
	} else {
		s.log.Warn("this cluster has no Queues: the custom resource definitions are not installed", "api", v1alpha1.GroupVersion)
	}
	if served["schedulingpolicies"] {
		policies := follow(s, func(p *v1alpha1.SchedulingPolicy) *v1alpha1.SchedulingPolicy { return p }, inPolicies((*settings.Policies).Observe),
			inPolicies((*settings.Policies).Forget), inPolicies((*settings.Policies).Replace))
		start(ctx, policies, s.muster, "schedulingpolicies", &v1alpha1.SchedulingPolicy{}, &synced)
	}
	if served["topologies"] {
		topologies := follow(s, func(t *v1alpha1.Topology) *v1alpha1.Topology { return t }, inTopologies((*settings.Topologies).Observe),
			inTopologies((*settings.Topologies).Forget), inTopologies((*settings.Topologies).Replace))
		start(ctx, topologies, s.muster, "topologies", &v1alpha1.Topology{}, &synced)
	}
	err = s.watchDevices(ctx, &synced)
	return synced, err
}

// watchDevices keeps up with what DRA has.
func (s *Scheduler) watchDevices(ctx context.Context, synced *[]<-chan struct{}) error {
	served, err := s.served(resourceapi.SchemeGroupVersion.String())
	if err != nil || !served["resourceclaims"] {
		return err
	}
	client := s.client.ResourceV1().RESTClient()
	type index = *devices.Index
	slices := follow(s, translate.SliceOf, inDevices(index.ObserveSlice), inDevices(index.ForgetSlice), inDevices(index.ReplaceSlices))
	classes := follow(s, devices.ClassOf, inDevices(index.ObserveClass), inDevices(index.ForgetClass), inDevices(index.ReplaceClasses))
	claims := follow(s, devices.ClaimOf, inDevices(index.ObserveClaim), inDevices(index.ForgetClaim), inDevices(index.ReplaceClaims))
	rules := follow(s, translate.TaintRuleOf, inDevices(index.ObserveTaintRule), inDevices(index.ForgetTaintRule), inDevices(index.ReplaceTaintRules))
	start(ctx, slices, client, "resourceslices", &resourceapi.ResourceSlice{}, synced)
	start(ctx, classes, client, "deviceclasses", &resourceapi.DeviceClass{}, synced)
	start(ctx, claims, client, "resourceclaims", &resourceapi.ResourceClaim{}, synced)
	if served["devicetaintrules"] {
		start(ctx, rules, client, "devicetaintrules", &resourceapi.DeviceTaintRule{}, synced)
	}
	s.mirror.devices.Serve()
	return nil
}

// follow makes a watched kind of object of type O, of which a T is kept.
func follow[O, T any](s *Scheduler, trim func(O) T, seen, gone func(*mirror, T), listed func(*mirror, []T)) *watched[T] {
	return &watched[T]{
		box: s.box, seen: seen, gone: gone, listed: listed, synced: make(chan struct{}),
		trim: watchedAs(trim),
	}
}

// watchedAs is a function that takes an object of type O as one that takes what a watch has.
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

func start[T any](ctx context.Context, w *watched[T], client rest.Interface, resource string, o runtime.Object, synced *[]<-chan struct{}) {
	*synced = append(*synced, w.synced)
	go w.run(ctx, client, resource, o)
}

// served says which resources of a group version the API server serves.
func (s *Scheduler) served(groupVersion string) (map[string]bool, error) {
	list, err := s.client.Discovery().ServerResourcesForGroupVersion(groupVersion)
	if errors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	served := map[string]bool{}
	for _, r := range list.APIResources {
		served[r.Name] = true
	}
	return served, nil
}
