package kube

import (
	"context"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/feed"
	"github.com/muster-sched/muster/kube/mirror"
)

// watch starts all watches. It returns a channel that is closed when everything has been
// listed once.
func (s *Scheduler) watch(ctx context.Context) ([]<-chan struct{}, error) {
	var synced []<-chan struct{}
	all := mirror.Feeds(s.box)
	start := func(client rest.Interface, resource string, object runtime.Object) {
		synced = append(synced, all[resource].Synced())
		lw := cache.NewListWatchFromClient(client, resource, "", fields.Everything())
		r := cache.NewReflectorWithOptions(lw, object, all[resource], cache.ReflectorOptions{Name: "muster " + resource})
		go r.RunWithContext(ctx)
	}

	core := s.client.CoreV1().RESTClient()
	all["pods"] = observed{all["pods"], func(o any) {
		if p, ok := o.(*v1.Pod); ok {
			s.recovery.Observe(p)
		}
	}, s.recovery.Gone, func(list []metav1.Object) { s.recovery.Only(true, list) }}
	all["nodes"] = observed{all["nodes"], func(o any) {
		if n, ok := o.(*v1.Node); ok {
			s.recovery.ObserveNode(n)
		}
	}, s.recovery.Gone, func(list []metav1.Object) { s.recovery.Only(false, list) }}
	start(core, "pods", &v1.Pod{})
	start(core, "nodes", &v1.Node{})
	start(core, "namespaces", &v1.Namespace{})
	start(s.client.SchedulingV1().RESTClient(), "priorityclasses", &schedulingv1.PriorityClass{})
	start(s.client.PolicyV1().RESTClient(), "poddisruptionbudgets", &policyv1.PodDisruptionBudget{})
	start(core, "persistentvolumeclaims", &v1.PersistentVolumeClaim{})
	start(core, "persistentvolumes", &v1.PersistentVolume{})
	storageAPI := s.client.StorageV1().RESTClient()
	start(storageAPI, "storageclasses", &storagev1.StorageClass{})
	start(storageAPI, "csinodes", &storagev1.CSINode{})

	if served, err := s.served(ctx, schedulingv1beta1.SchemeGroupVersion.String()); err != nil {
		return nil, err
	} else if served["podgroups"] {
		start(s.client.SchedulingV1beta1().RESTClient(), "podgroups", &schedulingv1beta1.PodGroup{})
	} else {
		s.log.Info("this cluster does not serve native PodGroups", "api", schedulingv1beta1.SchemeGroupVersion)
	}

	served, err := s.served(ctx, v1alpha1.GroupVersion.String())
	if err != nil {
		return nil, err
	}
	if served["queues"] {
		start(s.muster, "queues", &v1alpha1.Queue{})
	} else {
		s.log.Warn("this cluster has no Queues: the custom resource definitions are not installed", "api", v1alpha1.GroupVersion)
	}
	if served["schedulingpolicies"] {
		start(s.muster, "schedulingpolicies", &v1alpha1.SchedulingPolicy{})
	}
	if served["topologies"] {
		start(s.muster, "topologies", &v1alpha1.Topology{})
	}
	if served["ledgers"] {
		start(s.muster, "ledgers", &v1alpha1.Ledger{})
	}

	served, err = s.served(ctx, resourceapi.SchemeGroupVersion.String())
	if err != nil || !served["resourceclaims"] { // what DRA has
		return synced, err
	}
	dra := s.client.ResourceV1().RESTClient()
	start(dra, "resourceslices", &resourceapi.ResourceSlice{})
	start(dra, "deviceclasses", &resourceapi.DeviceClass{})
	start(dra, "resourceclaims", &resourceapi.ResourceClaim{})
	if served["devicetaintrules"] {
		start(dra, "devicetaintrules", &resourceapi.DeviceTaintRule{})
	}
	s.mirror.Devices.Serve()
	return synced, nil
}

// served says which resources of a group version the API server serves. Where there is no answer it
// asks again for a while: an API server that starts, or is overloaded, refuses a few requests.
func (s *Scheduler) served(ctx context.Context, groupVersion string) (map[string]bool, error) {
	var list *metav1.APIResourceList
	failed := false
	err := act.Retry(ctx, func() (err error) {
		list, err = s.client.Discovery().ServerResourcesForGroupVersion(groupVersion)
		if err != nil && act.IsTransient(err) && !failed {
			failed = true
			s.log.Warn("the API server does not answer: asking again", "for", act.Patience, "error", err)
		}
		return err
	})
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

// observed is a feed of which the objects are shown to another observer first: all that are there or change (see), those that were deleted (gone), and
// from time to time which are there (only).
type observed struct {
	feed.Feed
	see  func(any)
	gone func(metav1.Object)
	only func([]metav1.Object)
}

// Transformer is that of the feed.
func (o observed) Transformer() cache.TransformFunc {
	t, ok := o.Feed.(cache.TransformingStore)
	if !ok || t.Transformer() == nil {
		return nil
	}
	then := t.Transformer()
	return func(x any) (any, error) {
		o.see(x)
		return then(x)
	}
}

// Add handles a new object.
func (o observed) Add(x any) error {
	o.see(x)
	return o.Feed.Add(x)
}

// Update handles a changed object.
func (o observed) Update(x any) error {
	o.see(x)
	return o.Feed.Update(x)
}

// Delete handles a deleted object.
func (o observed) Delete(x any) error {
	if m, err := meta.Accessor(x); err == nil {
		o.gone(m)
	}
	return o.Feed.Delete(x)
}

// Replace handles the list of all objects. Those that the transformer had are trimmed.
func (o observed) Replace(list []any, version string) error {
	there := make([]metav1.Object, 0, len(list))
	for _, x := range list {
		o.see(x)
		if m, err := meta.Accessor(x); err == nil {
			there = append(there, m)
		}
	}
	o.only(there)
	return o.Feed.Replace(list, version)
}
