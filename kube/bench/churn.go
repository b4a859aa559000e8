package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/translate"
)

// Churn is a load that comes and goes: pods are created at a rate, whatever becomes of
// them, run on simulated nodes, and are deleted when they have ended. Of twenty pods,
// eight are two gangs, four have a label that no other pod has, and two of these an
// anti-affinity by it. They ask for 1, 2, 4 or 8 GPUs.
type Churn struct {
	// Rate is how many pods are created in a second, Mean how long one runs on average:
	// between half and one and a half of it.
	Rate float64
	Mean time.Duration
	// Namespace must exist. Queue is the queue of the pods, if not empty.
	Namespace, Queue string
	// Seed decides the sizes and run times.
	Seed uint64
}

// Window is what was seen of a churn in a time.
type Window struct {
	Created, Bound, Ended int
	// Failed are the requests of the measurement that failed.
	Failed int
	// Waits are the times from the answer to a pod's creation until a watch saw its
	// binding, of the pods that were bound in this time, ascending.
	Waits []time.Duration
}

// Quantile returns the wait that a share of the pods did not exceed, 0 without pods.
func (w *Window) Quantile(share float64) time.Duration {
	if len(w.Waits) == 0 {
		return 0
	}
	return w.Waits[min(int(share*float64(len(w.Waits))), len(w.Waits)-1)]
}

// Churning is a churn under way.
type Churning struct {
	churn   Churn
	cluster *Cluster
	stop    context.CancelFunc
	halt    context.CancelFunc // ends the arrivals
	running sync.WaitGroup
	over    chan string // names of pods that have ended

	mu      sync.Mutex
	window  Window
	created map[string]time.Time // the pods that are not bound, by name
	there   int
}

// Start starts a churn; Stop ends it.
func (c *Cluster) Start(ctx context.Context, churn Churn) (*Churning, error) {
	ctx, stop := context.WithCancel(ctx)
	r := &Churning{churn: churn, cluster: c, stop: stop, created: map[string]time.Time{}, over: make(chan string, 1<<16)}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(c.client.CoreV1().RESTClient(), "pods", churn.Namespace, fields.Everything()),
		ObjectType:    &v1.Pod{},
		Transform: func(o any) (any, error) {
			if p, ok := o.(*v1.Pod); ok {
				return &churned{
					ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace},
					bound:      p.Spec.NodeName != "", ended: p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed,
				}, nil
			}
			return o, nil
		},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { r.saw(&churned{}, o) },
			UpdateFunc: r.saw,
			DeleteFunc: func(any) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.there--
			},
		},
	})
	r.running.Go(func() { informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		stop()
		return nil, context.Cause(ctx)
	}
	arrivals := make(chan int, 1<<16)
	arriving, halt := context.WithCancel(ctx)
	r.halt = halt
	r.running.Go(func() { r.arrive(arriving, arrivals) })
	for w := range c.Workers {
		rng := rand.New(rand.NewPCG(churn.Seed, uint64(w)))
		r.running.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case i := <-arrivals:
					r.create(ctx, rng, i)
				case name := <-r.over:
					if err := r.cluster.remove(ctx, r.churn.Namespace, name); err != nil && ctx.Err() == nil {
						r.failed()
						time.AfterFunc(time.Second, func() { r.over <- name })
					}
				}
			}
		})
	}
	return r, nil
}

// churned is what is kept of a pod.
type churned struct {
	metav1.ObjectMeta
	bound, ended bool
}

// arrive says when the next pod is due: at the rate, however long requests take.
func (r *Churning) arrive(ctx context.Context, arrivals chan<- int) {
	const period = 20 * time.Millisecond
	tick := time.NewTicker(period)
	defer tick.Stop()
	began, sent := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// The pods of a gang are created together: none waits for others to come.
		for due := int(time.Since(began).Seconds() * r.churn.Rate); sent < due || inGang(sent) && sent%gangOf != 0; {
			select {
			case arrivals <- sent:
				sent++
			case <-ctx.Done():
				return
			}
		}
	}
}

// gangOf is the number of pods of a gang.
const gangOf = 4

// inGang reports whether the i-th pod is one of a gang.
func inGang(i int) bool { return i%20 < 2*gangOf }

// create creates the i-th pod.
func (r *Churning) create(ctx context.Context, rng *rand.Rand, i int) {
	name := fmt.Sprintf("c-%09d", i)
	size := []int64{1, 1, 1, 2, 2, 4, 8}[rng.IntN(7)]
	p := newPod(r.churn.Namespace, name, r.churn.Queue, size)
	runs := time.Duration((0.5 + rng.Float64()) * float64(r.churn.Mean))
	p.Annotations[translate.SimulatedDuration] = runs.Round(time.Millisecond).String()
	switch {
	case inGang(i):
		p.Labels[v1alpha1.GangLabel] = fmt.Sprintf("g-%09d", i/gangOf)
		p.Annotations[v1alpha1.MinMemberAnnotation] = fmt.Sprint(gangOf)
	case i%20 < 12:
		p.Labels["serial"] = name
		if i%2 == 0 {
			p.Spec.Affinity = apartFrom("serial", name)
		}
	}
	_, err := r.cluster.client.CoreV1().Pods(r.churn.Namespace).Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		if ctx.Err() == nil {
			r.failed()
		}
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.window.Created++
	r.there++
	if _, seen := r.created[name]; seen { // the watch was faster than the answer
		delete(r.created, name)
		r.window.Waits = append(r.window.Waits, 0)
		return
	}
	r.created[name] = time.Now()
}

// newPod returns a pod of Muster's that asks for GPUs and a core.
func newPod(namespace, name, queue string, gpus int64) *v1.Pod {
	need := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	if gpus > 0 {
		need[v1alpha1.GPUResource] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec: v1.PodSpec{
			SchedulerName: v1alpha1.SchedulerName, RestartPolicy: v1.RestartPolicyNever,
			Containers: []v1.Container{{Name: "main", Image: "none", Resources: v1.ResourceRequirements{Requests: need, Limits: need}}},
		},
	}
	if queue != "" {
		p.Labels[v1alpha1.QueueLabel] = queue
	}
	return p
}

// apartFrom keeps a pod from the nodes of pods with a label.
func apartFrom(key, value string) *v1.Affinity {
	return &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
		TopologyKey:   v1.LabelHostname,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}},
	}}}}
}

// saw takes note of a pod that changed.
func (r *Churning) saw(before, after any) {
	was, _ := before.(*churned)
	p, ok := after.(*churned)
	if !ok || was == nil {
		return
	}
	if p.ended && !was.ended {
		r.over <- p.Name
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.ended && !was.ended {
		r.window.Ended++
	}
	if p.bound && !was.bound {
		r.window.Bound++
		if at, ok := r.created[p.Name]; ok {
			r.window.Waits = append(r.window.Waits, time.Since(at))
			delete(r.created, p.Name)
		} else {
			r.created[p.Name] = time.Time{}
		}
	}
}

// remove deletes a pod at once.
func (c *Cluster) remove(ctx context.Context, namespace, name string) error {
	now := int64(0)
	err := c.client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// failed counts a request that failed: an API server with much to do refuses some.
func (r *Churning) failed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.window.Failed++
}

// Cut returns what was seen since the last cut, and how many pods are there and how many
// of these are not bound.
func (r *Churning) Cut() (w Window, there, waiting int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, r.window = r.window, Window{}
	slices.Sort(w.Waits)
	return w, r.there, len(r.created)
}

// StopArrivals ends the arrivals: pods that are there go on, and are deleted when they end.
func (r *Churning) StopArrivals() { r.halt() }

// Stop ends the churn. Pods that are there stay.
func (r *Churning) Stop() {
	r.stop()
	r.running.Wait()
}
