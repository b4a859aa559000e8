package fleet

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// nodes watches the nodes and keeps a ResourceSlice for each that publishes its GPUs
// through DRA.
type nodes struct {
	client     kubernetes.Interface
	store      cache.Store // of *liveNode
	controller cache.Controller
	slices     workqueue.TypedRateLimitingInterface[string] // names of nodes
	// changed is called for a node that became ready.
	changed func(name string)
}

// liveNode is what the simulator remembers of a node.
type liveNode struct {
	metav1.ObjectMeta
	ip          string
	ready       bool
	allocatable []amount
	// dra has the labels and annotations from which [slice] builds the slice; nil if the
	// node has no slice.
	dra *corev1.Node
}

func newNodes(client kubernetes.Interface) *nodes {
	f := &nodes{
		client: client,
		slices: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
	f.store, f.controller = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "", fields.Everything()),
		ObjectType:    &corev1.Node{},
		Transform: func(object any) (any, error) {
			if n, ok := object.(*corev1.Node); ok {
				return condenseNode(n), nil
			}
			return object, nil
		},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(object any) {
				n := object.(*liveNode)
				f.published(n)
				f.changed(n.Name)
			},
			UpdateFunc: func(before, after any) {
				was, n := before.(*liveNode), after.(*liveNode)
				if was.UID != n.UID || was.dra == nil && n.dra != nil {
					f.published(n)
				}
				if n.ready && !was.ready {
					f.changed(n.Name)
				}
			},
			DeleteFunc: func(object any) {
				if n, ok := object.(*liveNode); ok && n.dra != nil {
					f.slices.Add(n.Name)
				} else if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
					f.slices.Add(gone.Key)
				}
			},
		},
	})
	return f
}

func condenseNode(n *corev1.Node) *liveNode {
	l := &liveNode{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID}, allocatable: amounts(n.Status.Allocatable)}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			l.ready = c.Status == corev1.ConditionTrue
		}
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			l.ip = a.Address
		}
	}
	if count, _ := strconv.Atoi(n.Labels[labelCount]); count > 0 {
		if _, isResource := n.Status.Capacity[GPUResource]; !isResource {
			l.dra = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, Labels: n.Labels, Annotations: n.Annotations}}
		}
	}
	return l
}

// published ensures that the slice of the node exists.
func (f *nodes) published(n *liveNode) {
	if n.dra != nil {
		f.slices.Add(n.Name)
	}
}

// get returns a node that exists and is ready, or nil.
func (f *nodes) get(name string) *liveNode {
	object, ok, _ := f.store.GetByKey(name)
	if !ok {
		return nil
	}
	if n := object.(*liveNode); n.ready {
		return n
	}
	return nil
}

// start runs the nodes until ctx ends. It returns when they are known and their slices
// exist.
func (f *nodes) start(ctx context.Context, running *sync.WaitGroup) error {
	running.Go(func() { f.controller.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), f.controller.HasSynced) {
		return ctx.Err()
	}
	// Publish the nodes that are known now first, so that all are published when this
	// returns.
	var first []string
	for _, object := range f.store.List() {
		if n := object.(*liveNode); n.dra != nil {
			first = append(first, n.Name)
		}
	}
	if err := each(ctx, first, func(name string) error { return f.publish(ctx, name) }); err != nil {
		return err
	}
	running.Go(func() {
		<-ctx.Done()
		f.slices.ShutDown()
	})
	running.Go(func() {
		for {
			name, quit := f.slices.Get()
			if quit {
				return
			}
			if err := f.publish(ctx, name); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Publishing GPUs", "node", name)
				f.slices.AddRateLimited(name)
			} else {
				f.slices.Forget(name)
			}
			f.slices.Done(name)
		}
	})
	return nil
}

// publish creates the slice of a node that exists, or deletes the slice of one that is
// gone.
func (f *nodes) publish(ctx context.Context, name string) error {
	api := f.client.ResourceV1().ResourceSlices()
	object, ok, _ := f.store.GetByKey(name)
	if !ok || object.(*liveNode).dra == nil {
		err := api.Delete(ctx, sliceName(name), metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	want := slice(object.(*liveNode).dra)
	_, err := api.Create(ctx, want, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	there, err := api.Get(ctx, want.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if len(there.OwnerReferences) == 1 && there.OwnerReferences[0].UID == object.(*liveNode).UID {
		return nil
	}
	// The slice belongs to a deleted node of the same name.
	if err := api.Delete(ctx, want.Name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("ResourceSlice of a node that no longer exists: %w", err)
	}
	_, err = api.Create(ctx, want, metav1.CreateOptions{})
	return err
}
