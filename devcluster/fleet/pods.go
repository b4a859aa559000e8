package fleet

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// pods watches the bound pods and simulates their lifecycle.
type pods struct {
	client     kubernetes.Interface
	kubelets   Kubelets
	nodes      *nodes
	store      cache.Store // of *pod
	controller cache.Controller
	queue      workqueue.TypedRateLimitingInterface[string] // keys in store
	room       *room

	mu sync.Mutex
	// ends is when running pods end; the status has only whole seconds.
	ends map[types.UID]end
	// paused is since when pods are that an agent paused.
	paused map[types.UID]time.Time
	// saved is what processes have saved, by place.
	saved map[string]progress
	last  netip.Addr // the highest address given out
}

// end is when the containers that began at the time began end; began is as in the status.
type end struct{ began, at time.Time }

func newPods(client kubernetes.Interface, nodes *nodes, kubelets Kubelets) *pods {
	f := &pods{
		client:   client,
		kubelets: kubelets,
		nodes:    nodes,
		queue:    workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		room:     newRoom(),
		ends:     make(map[types.UID]end),
		paused:   make(map[types.UID]time.Time),
		saved:    make(map[string]progress),
		last:     netip.AddrFrom4([4]byte{10, 0, 0, 0}),
	}
	f.store, f.controller = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", "",
			fields.OneTermNotEqualSelector("spec.nodeName", "")),
		ObjectType: &corev1.Pod{},
		Transform: func(object any) (any, error) {
			if p, ok := object.(*corev1.Pod); ok {
				return condense(p), nil
			}
			return object, nil
		},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(object any) {
				f.took(object.(*pod).ip)
				f.account(object.(*pod))
				f.add(object)
			},
			UpdateFunc: func(before, object any) {
				if was := before.(*pod); was.UID != object.(*pod).UID {
					f.room.release(was)
				}
				f.account(object.(*pod))
				f.add(object)
			},
			DeleteFunc: func(object any) {
				p, ok := object.(*pod)
				if gone, unseen := object.(cache.DeletedFinalStateUnknown); unseen {
					p, ok = gone.Obj.(*pod)
				}
				if ok {
					f.room.release(p)
					f.forget(p)
				}
			},
		},
	})
	return f
}

func (f *pods) add(object any) {
	if key, err := cache.MetaNamespaceKeyFunc(object); err == nil {
		f.queue.Add(key)
	}
}

// took records an address that is in use.
func (f *pods) took(ip netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ip.Is4() && f.last.Less(ip) {
		f.last = ip
	}
}

// address returns an address that was not used before.
func (f *pods) address() netip.Addr {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = f.last.Next()
	return f.last
}

// forget drops everything about a pod that ended.
func (f *pods) forget(p *pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.ends, p.UID)
	delete(f.paused, p.UID)
}

// endOf returns when the containers of a running pod end.
func (f *pods) endOf(p *pod) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e, ok := f.ends[p.UID]; ok && e.began.Equal(p.began) {
		return e.at
	}
	return p.began.Add(p.duration)
}

// begins records that the containers of a pod begin now, as if they had begun at a time before.
func (f *pods) begins(p *pod, now, as time.Time) {
	if p.duration < 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ends[p.UID] = end{now.Truncate(time.Second), as.Add(p.duration)}
}

// nodeChanged queues the pods of a node that became ready.
func (f *pods) nodeChanged(name string) {
	for _, object := range f.store.List() {
		if object.(*pod).node == name {
			f.add(object)
		}
	}
}

// start runs the pods until ctx ends. It returns when they are known.
func (f *pods) start(ctx context.Context, running *sync.WaitGroup) error {
	running.Go(func() { f.controller.RunWithContext(ctx) })
	for range writers {
		running.Go(func() {
			for f.next(ctx) {
			}
		})
	}
	running.Go(func() {
		<-ctx.Done()
		f.queue.ShutDown()
	})
	if !cache.WaitForCacheSync(ctx.Done(), f.controller.HasSynced) {
		return ctx.Err()
	}
	return nil
}

// next takes a pod from the queue and carries out its next step. It returns false when
// the queue is shut down.
func (f *pods) next(ctx context.Context) bool {
	key, quit := f.queue.Get()
	if quit {
		return false
	}
	defer f.queue.Done(key)
	object, ok, _ := f.store.GetByKey(key)
	if !ok {
		return true
	}
	p := object.(*pod)
	later, err := f.step(ctx, p)
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err), ctx.Err() != nil:
		// If the pod has changed in the API, the watch will deliver the change soon.
		f.queue.Forget(key)
	default:
		klog.FromContext(ctx).Error(err, "Running a pod", "pod", key)
		f.queue.AddRateLimited(key)
	}
	if later > 0 {
		f.queue.AddAfter(key, later)
	}
	return true
}

// step carries out the next step in the lifecycle of a pod, or returns the time until
// then; 0 means until the pod or its node changes.
func (f *pods) step(ctx context.Context, p *pod) (later time.Duration, err error) {
	n := f.nodes.get(p.node)
	now := time.Now()
	switch {
	case n == nil || n.ip == "" || p.left: // a node without an address is not simulated
		return 0, nil
	case !p.deadline.IsZero():
		if !p.ended() && p.phase != corev1.PodPending && now.Before(p.stop) {
			return p.stop.Sub(now), nil
		}
		return 0, f.leave(ctx, p, now)
	case p.ended():
		f.forget(p)
		return 0, nil
	case p.phase == corev1.PodPending:
		no, err := f.admit(ctx, p, n)
		if err != nil {
			return 0, err
		}
		if no != nil {
			return 0, f.write(ctx, p, no.status())
		}
		first := *p
		first.ip = f.address()
		status := first.running(now, n.ip)
		begins := now
		if x, ok := f.restored(p); ok {
			begins = now.Add(-x.ran)
			status.Conditions = append(status.Conditions, corev1.PodCondition{
				Type: Restored, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now), Message: "goes on after " + x.ran.String() + ", saved by pod " + x.pod,
			})
		}
		f.begins(p, now, begins)
		return 0, f.write(ctx, p, status)
	case p.outgrown:
		return 0, f.resize(ctx, p)
	case p.duration < 0, f.isPaused(p): // an agent lets it go on
		return 0, nil
	}
	if at := f.endOf(p); now.Before(at) {
		return at.Sub(now), nil
	}
	code := int32(0)
	if p.failed {
		code = 1
	}
	if p.restartsAfter(p.failed) {
		f.begins(p, now, now)
	}
	return 0, f.write(ctx, p, p.finished(now, p.failed, code))
}

// leave removes a pod that is being deleted from its node. A controller that waits for
// the pod's end with a finalizer sees it fail first, as with a kubelet.
func (f *pods) leave(ctx context.Context, p *pod, now time.Time) error {
	if p.watched && !p.ended() {
		if err := f.write(ctx, p, p.finished(now, true, 143)); err != nil {
			return err
		}
	}
	return f.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(p.UID)),
	})
}

// write writes the status of a pod.
func (f *pods) write(ctx context.Context, p *pod, status corev1.PodStatus) error {
	return f.kubelets.UpdatePodStatus(ctx, p.Namespace, p.Name, func(of *metav1.ObjectMeta, now *corev1.PodStatus) error {
		if of.UID != p.UID || of.ResourceVersion != p.ResourceVersion {
			return apierrors.NewConflict(corev1.Resource("pods"), p.Name, errors.New("it has changed"))
		}
		merge(now, &status)
		return nil
	})
}

// resize gives the containers of a pod that was resized in place what its spec says.
func (f *pods) resize(ctx context.Context, p *pod) error {
	return f.kubelets.UpdatePodStatus(ctx, p.Namespace, p.Name, func(of *metav1.ObjectMeta, now *corev1.PodStatus) error {
		if of.UID != p.UID || of.ResourceVersion != p.ResourceVersion {
			return apierrors.NewConflict(corev1.Resource("pods"), p.Name, errors.New("it has changed"))
		}
		for _, list := range [][]corev1.ContainerStatus{now.ContainerStatuses, now.InitContainerStatuses} {
			for i := range list {
				list[i].Resources = p.resourcesOf(list[i].Name)
			}
		}
		return nil
	})
}

// merge overwrites the changed parts of a pod's status, conditions one by one.
func merge(s, changes *corev1.PodStatus) {
	s.Phase = changes.Phase
	if changes.Reason != "" {
		s.Reason, s.Message = changes.Reason, changes.Message
	}
	if changes.StartTime != nil {
		s.StartTime = changes.StartTime
		s.HostIP, s.HostIPs, s.PodIP, s.PodIPs = changes.HostIP, changes.HostIPs, changes.PodIP, changes.PodIPs
	}
	if changes.ContainerStatuses != nil {
		s.ContainerStatuses = changes.ContainerStatuses
	}
	if changes.InitContainerStatuses != nil {
		s.InitContainerStatuses = changes.InitContainerStatuses
	}
	for _, c := range changes.Conditions {
		if i := slices.IndexFunc(s.Conditions, func(of corev1.PodCondition) bool { return of.Type == c.Type }); i >= 0 {
			s.Conditions[i] = c
		} else {
			s.Conditions = append(s.Conditions, c)
		}
	}
}
