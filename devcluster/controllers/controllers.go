// Package controllers runs the controllers of kube-controller-manager that a cluster of
// simulated nodes needs, in this process and on shared informers. Controllers for real
// machines (node heartbeats, volumes, addresses) are not included.
package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	kubecontroller "k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/devicetainteviction"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/podgc"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/resourceclaim"
	"k8s.io/kubernetes/pkg/controller/scheduling/podgroupprotection"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
	"k8s.io/kubernetes/pkg/controller/ttlafterfinished"
)

const (
	// workers is the number of objects of a kind on which a controller works at a time.
	workers = 8
	// rediscover is the interval at which the kinds of objects are listed again, because
	// CRDs may have been added or deleted.
	rediscover = 30 * time.Second
	// keptPods is the number of ended pods above which the oldest are deleted: the
	// default of kube-controller-manager.
	keptPods = 12500
)

// controller is a controller with its name in kube-controller-manager; build returns a
// function that runs until its context ends.
type controller struct {
	name  string
	build func(context.Context, *parts) (func(context.Context), error)
}

// parts is what controllers are built from.
type parts struct {
	client    kubernetes.Interface
	config    *rest.Config
	informers informers.SharedInformerFactory
	metadata  metadata.Interface
	metas     metadatainformer.SharedInformerFactory
	mapper    meta.ResettableRESTMapper
	started   chan struct{} // closed when the informers are
}

var all = []controller{
	{names.JobController, newJob},
	{names.CronJobController, newCronJob},
	{names.TTLAfterFinishedController, func(ctx context.Context, p *parts) (func(context.Context), error) {
		return on(ttlafterfinished.New(ctx, p.informers.Batch().V1().Jobs(), p.client).Run), nil
	}},
	{names.ReplicaSetController, func(ctx context.Context, p *parts) (func(context.Context), error) {
		apps, pods := p.informers.Apps().V1(), p.informers.Core().V1().Pods()
		return on(replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), pods, p.client, replicaset.BurstReplicas).Run), nil
	}},
	{names.DeploymentController, func(ctx context.Context, p *parts) (func(context.Context), error) {
		apps, pods := p.informers.Apps().V1(), p.informers.Core().V1().Pods()
		c, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), pods, p.client)
		if err != nil {
			return nil, err
		}
		return on(c.Run), nil
	}},
	{names.StatefulSetController, func(ctx context.Context, p *parts) (func(context.Context), error) {
		apps, core := p.informers.Apps().V1(), p.informers.Core().V1()
		return on(statefulset.NewStatefulSetController(ctx, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(),
			apps.ControllerRevisions(), p.client).Run), nil
	}},
	{names.PodGroupProtectionController, func(ctx context.Context, p *parts) (func(context.Context), error) {
		c, err := podgroupprotection.NewPodGroupProtectionController(klog.FromContext(ctx),
			p.informers.Scheduling().V1beta1().PodGroups(), p.informers.Core().V1().Pods(), p.client)
		if err != nil {
			return nil, err
		}
		return on(c.Run), nil
	}},
	{names.ResourceClaimController, func(ctx context.Context, p *parts) (func(context.Context), error) {
		resource := p.informers.Resource().V1()
		c, err := resourceclaim.NewController(klog.FromContext(ctx), p.client, p.informers.Core().V1().Pods(),
			p.informers.Scheduling().V1beta1().PodGroups(), resource.ResourceClaims(), resource.ResourceClaimTemplates())
		if err != nil {
			return nil, err
		}
		return on(c.Run), nil
	}},
	{names.PodGarbageCollectorController, func(ctx context.Context, p *parts) (func(context.Context), error) {
		core := p.informers.Core().V1()
		return podgc.NewPodGC(ctx, p.client, core.Pods(), core.Nodes(), keptPods).Run, nil
	}},
	{names.GarbageCollectorController, newGarbageCollector},
	{names.NamespaceController, newNamespace},
	{names.ServiceAccountController, func(ctx context.Context, p *parts) (func(context.Context), error) {
		core := p.informers.Core().V1()
		c, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx), core.ServiceAccounts(), core.Namespaces(),
			p.client, serviceaccount.DefaultServiceAccountsControllerOptions())
		if err != nil {
			return nil, err
		}
		return on(c.Run), nil
	}},
	{names.ClusterRoleAggregationController, func(_ context.Context, p *parts) (func(context.Context), error) {
		return on(clusterroleaggregation.NewClusterRoleAggregation(p.informers.Rbac().V1().ClusterRoles(), p.client.RbacV1()).Run), nil
	}},
	{names.DisruptionController, newDisruption},
	{names.TaintEvictionController, func(ctx context.Context, p *parts) (func(context.Context), error) {
		core := p.informers.Core().V1()
		// The node lifecycle controller would have done this.
		if err := kubecontroller.AddPodNodeNameIndexer(core.Pods().Informer()); err != nil {
			return nil, err
		}
		c, err := tainteviction.New(ctx, p.client, core.Pods(), core.Nodes(), names.TaintEvictionController)
		if err != nil {
			return nil, err
		}
		return c.Run, nil
	}},
	{names.DeviceTaintEvictionController, func(_ context.Context, p *parts) (func(context.Context), error) {
		resource := p.informers.Resource().V1()
		c := devicetainteviction.New(p.client, p.informers.Core().V1().Pods(), resource.ResourceClaims(), resource.ResourceSlices(),
			resource.DeviceTaintRules(), resource.DeviceClasses(), names.DeviceTaintEvictionController)
		return func(ctx context.Context) {
			if err := c.Run(ctx, workers); err != nil {
				klog.FromContext(ctx).Error(err, "device taint eviction ended")
			}
		}, nil
	}},
}

// on adapts a function that takes a number of workers to one that takes only a context.
func on(run func(context.Context, int)) func(context.Context) {
	return func(ctx context.Context) { run(ctx, workers) }
}

func newJob(ctx context.Context, p *parts) (func(context.Context), error) {
	scheduling := p.informers.Scheduling().V1beta1()
	c, err := job.NewController(ctx, p.client, p.informers.Core().V1().Pods(), p.informers.Batch().V1().Jobs(),
		scheduling.Workloads(), scheduling.PodGroups())
	if err != nil {
		return nil, err
	}
	return on(c.Run), nil
}

func newCronJob(ctx context.Context, p *parts) (func(context.Context), error) {
	batch := p.informers.Batch().V1()
	c, err := cronjob.NewControllerV2(ctx, batch.Jobs(), batch.CronJobs(), p.client)
	if err != nil {
		return nil, err
	}
	return on(c.Run), nil
}

func newNamespace(ctx context.Context, p *parts) (func(context.Context), error) {
	c := namespace.NewNamespaceController(ctx, p.client, p.metadata, p.client.Discovery().ServerPreferredNamespacedResources,
		p.informers.Core().V1().Namespaces(), 5*time.Minute, corev1.FinalizerKubernetes)
	return on(c.Run), nil
}

func newDisruption(ctx context.Context, p *parts) (func(context.Context), error) {
	kinds := scale.NewDiscoveryScaleKindResolver(p.client.Discovery())
	scales, err := scale.NewForConfig(p.config, p.mapper, dynamic.LegacyAPIPathResolverFunc, kinds)
	if err != nil {
		return nil, err
	}
	core, apps := p.informers.Core().V1(), p.informers.Apps().V1()
	c := disruption.NewDisruptionController(ctx, core.Pods(), p.informers.Policy().V1().PodDisruptionBudgets(), core.ReplicationControllers(),
		apps.ReplicaSets(), apps.Deployments(), apps.StatefulSets(), p.client, p.mapper, scales, p.client.Discovery())
	return on(c.Run), nil
}

func newGarbageCollector(ctx context.Context, p *parts) (func(context.Context), error) {
	// These objects own nothing, and there are as many of them as nodes.
	ignored := map[schema.GroupResource]struct{}{
		{Resource: "nodes"}: {},
		{Group: "resource.k8s.io", Resource: "resourceslices"}: {},
		{Group: "coordination.k8s.io", Resource: "leases"}:     {},
		{Resource: "events"}:                         {},
		{Group: "events.k8s.io", Resource: "events"}: {},
	}
	c, err := garbagecollector.NewGarbageCollector(ctx, p.client, p.metadata, p.mapper, ignored,
		informerfactory.NewInformerFactory(p.informers, p.metas), p.started)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		var both sync.WaitGroup
		both.Go(func() { c.Run(ctx, 2*workers, rediscover) })
		both.Go(func() { c.Sync(ctx, p.client.Discovery(), rediscover) })
		both.Wait()
	}, nil
}

// Names lists the available controllers by their names in kube-controller-manager.
func Names() []string {
	list := make([]string, len(all))
	for i := range all {
		list[i] = all[i].name
	}
	return list
}

// Select returns the controllers that a list of names and "*" selects, as
// kube-controller-manager's flag --controllers does: "-name" leaves one out, and without
// "*" only the named ones are selected.
func Select(list []string) ([]string, error) {
	known := Names()
	on := func(name string) bool { return slices.Contains(list, "*") || slices.Contains(list, name) }
	for _, item := range list {
		if name := strings.TrimPrefix(item, "-"); item != "*" && !slices.Contains(known, name) {
			return nil, fmt.Errorf("expected *, or controllers of %s; found %q", strings.Join(known, ", "), item)
		}
	}
	return slices.DeleteFunc(known, func(name string) bool {
		return !on(name) || slices.Contains(list, "-"+name)
	}), nil
}

// Run starts the named controllers and returns once they know the state of the cluster.
// The controllers run until ctx ends; the returned function waits until they have
// stopped. The feature gates of this process must be those of the server.
func Run(ctx context.Context, config *rest.Config, selected []string) (wait func(), err error) {
	p, err := newParts(ctx, config)
	if err != nil {
		return nil, err
	}
	var runs []func(context.Context)
	for _, c := range all {
		if !slices.Contains(selected, c.name) {
			continue
		}
		run, err := c.build(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		runs = append(runs, run)
	}
	p.informers.Start(ctx.Done())
	p.metas.Start(ctx.Done())
	close(p.started)
	var running sync.WaitGroup
	for _, run := range runs {
		running.Go(func() { run(ctx) })
	}
	p.informers.WaitForCacheSync(ctx.Done())
	return running.Wait, ctx.Err()
}

func newParts(ctx context.Context, config *rest.Config) (*parts, error) {
	config = rest.AddUserAgent(rest.CopyConfig(config), "controllers")
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	metas, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	go wait.UntilWithContext(ctx, func(context.Context) { mapper.Reset() }, rediscover)
	return &parts{
		client: client, config: config, metadata: metas, mapper: mapper,
		informers: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(strip)),
		metas:     metadatainformer.NewSharedInformerFactoryWithOptions(metas, 0, metadatainformer.WithTransform(strip)),
		started:   make(chan struct{}),
	}, nil
}

// strip removes the parts of an object that take much memory and that no controller
// reads.
func strip(object any) (any, error) {
	if o, err := meta.Accessor(object); err == nil {
		o.SetManagedFields(nil)
	}
	// No controller writes a pod that has no owner, so its spec's contents can go.
	if p, ok := object.(*corev1.Pod); ok && metav1.GetControllerOf(p) == nil {
		p.Annotations, p.Spec.Containers, p.Spec.InitContainers, p.Spec.Volumes = nil, nil, nil, nil
		p.Status.ContainerStatuses, p.Status.InitContainerStatuses, p.Status.PodIPs, p.Status.HostIPs = nil, nil, nil, nil
	}
	return object, nil
}
