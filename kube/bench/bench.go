// Package bench measures schedulers on a real Kubernetes API: how fast pods
// that wait are bound, by Muster, by another scheduler and by a loop that does
// nothing but create bindings, which is as fast as the API server goes.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Shape is what waits: a number of groups of Size pods each. A group of one pod is a pod
// without a PodGroup.
type Shape struct{ Groups, Size int }

func (s Shape) String() string { return fmt.Sprintf("%dx%d", s.Groups, s.Size) }

// Pods is how many pods the shape has.
func (s Shape) Pods() int { return s.Groups * s.Size }

// MaxPods is how many pods a shape may have.
const MaxPods = 200_000

// ParseShape reads a shape such as 500x20; false if it is none.
func ParseShape(text string) (Shape, bool) {
	groups, size, _ := strings.Cut(text, "x")
	g, err1 := strconv.Atoi(groups)
	n, err2 := strconv.Atoi(size)
	if err1 != nil || err2 != nil || g < 1 || n < 1 || g > MaxPods || n > MaxPods || g*n > MaxPods {
		return Shape{}, false
	}
	return Shape{g, n}, true
}

// Result is what a scheduler made of a shape. Times are in seconds.
type Result struct {
	Scheduler string `json:"scheduler"`
	Nodes     int    `json:"nodes"`
	Shape     string `json:"shape"`
	Pods      int    `json:"pods"`
	// Bound is how many were bound in the time there was.
	Bound int `json:"bound"`
	// First and All are from the start of the scheduler's work to the first and
	// the last binding that a watch saw.
	First float64 `json:"first_s"`
	All   float64 `json:"all_s"`
	// Rate is bindings a second, from the first to the last.
	Rate float64 `json:"pods_per_s"`
}

// WriteHeader writes the header of a table of results.
func WriteHeader(w io.Writer) {
	fmt.Fprintf(w, "%-15s %6s %9s %6s %8s %8s %8s\n", "SCHEDULER", "NODES", "SHAPE", "BOUND", "FIRST", "ALL", "PODS/S")
}

// WriteRow writes the result as a row of the table.
func (r *Result) WriteRow(w io.Writer) {
	fmt.Fprintf(w, "%-15s %6d %9s %6d %7.2fs %7.2fs %8.0f\n", r.Scheduler, r.Nodes, r.Shape, r.Bound, r.First, r.All, r.Rate)
}

// Cluster is an API server that takes what a measurement needs.
type Cluster struct {
	client kubernetes.Interface
	config *rest.Config
	// Workers is how many requests are under way at once.
	Workers int
}

// NewCluster returns a cluster to measure on.
func NewCluster(config *rest.Config, workers int) (*Cluster, error) {
	c := rest.CopyConfig(config)
	c.QPS = -1
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(c)
	return &Cluster{client: client, config: config, Workers: workers}, err
}

// each calls do for 0..n-1, this many at once, until one fails.
func (c *Cluster) each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(c.Workers, n) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// CreateNodes creates nodes of eight GPUs that are ready.
func (c *Cluster) CreateNodes(ctx context.Context, n int) error {
	room := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("128"), v1.ResourceMemory: resource.MustParse("1Ti"), v1.ResourcePods: resource.MustParse("250"),
		"nvidia.com/gpu": resource.MustParse("8"),
	}
	return c.each(ctx, n, func(ctx context.Context, i int) error {
		name := nodeName(i)
		_, err := c.client.CoreV1().Nodes().Create(ctx, &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				v1.LabelHostname: name, "nvidia.com/gpu.product": "NVIDIA-H800", "leaf": fmt.Sprint(i / 32),
			}},
			Status: v1.NodeStatus{
				Capacity: room, Allocatable: room,
				Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
			},
		}, metav1.CreateOptions{})
		return err
	})
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

const namespace = metav1.NamespaceDefault

// CreatePods creates the pods of a shape, for the scheduler of that name. Where
// there are more pods than the nodes have GPUs they ask for a core each, and no
// GPU.
func (c *Cluster) CreatePods(ctx context.Context, s Shape, nodes int, scheduler string) error {
	if s.Size > 1 {
		err := c.each(ctx, s.Groups, func(ctx context.Context, i int) error {
			_, err := c.client.SchedulingV1beta1().PodGroups(namespace).Create(ctx, &schedulingv1beta1.PodGroup{
				ObjectMeta: metav1.ObjectMeta{Name: groupName(i)},
				Spec: schedulingv1beta1.PodGroupSpec{SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{
					Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: int32(s.Size)},
				}},
			}, metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return err
		}
	}
	one := v1.ResourceList{v1.ResourceCPU: resource.MustParse("8"), "nvidia.com/gpu": resource.MustParse("1")}
	if s.Pods() > 8*nodes {
		one = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	}
	return c.each(ctx, s.Pods(), func(ctx context.Context, i int) error {
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: podName(i)},
			Spec: v1.PodSpec{
				SchedulerName: scheduler,
				Containers:    []v1.Container{{Name: "main", Image: "none", Resources: v1.ResourceRequirements{Requests: one, Limits: one}}},
			},
		}
		if s.Size > 1 {
			name := groupName(i / s.Size)
			p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &name}
		}
		_, err := c.client.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
		return err
	})
}

func groupName(i int) string { return fmt.Sprintf("group-%05d", i) }
func podName(i int) string   { return fmt.Sprintf("pod-%06d", i) }

// Raw creates a binding for every pod of a shape: as fast as it goes.
func (c *Cluster) Raw(ctx context.Context, s Shape, nodes int) error {
	return c.each(ctx, s.Pods(), func(ctx context.Context, i int) error {
		return c.client.CoreV1().Pods(namespace).Bind(ctx, &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: podName(i)},
			Target:     v1.ObjectReference{Kind: "Node", Name: nodeName(i % nodes)},
		}, metav1.CreateOptions{})
	})
}

// Watch observes bindings until all pods of a shape are bound or the context
// ends. start is called once it sees the cluster.
func (c *Cluster) Watch(ctx context.Context, s Shape, start func(ctx context.Context) error) (Result, error) {
	r := Result{Shape: s.String(), Pods: s.Pods()}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	bindings := make(chan time.Time, s.Pods())
	seen := func(o any) {
		if p, ok := o.(*boundPod); ok && p.bound {
			bindings <- time.Now()
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(c.client.CoreV1().RESTClient(), "pods", namespace, fields.Everything()),
		ObjectType:    &v1.Pod{},
		Transform: func(o any) (any, error) {
			if p, ok := o.(*v1.Pod); ok {
				return &boundPod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}, bound: p.Spec.NodeName != ""}, nil
			}
			return o, nil
		},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: seen,
			UpdateFunc: func(old, now any) {
				if p, ok := old.(*boundPod); ok && !p.bound {
					seen(now)
				}
			},
		},
	})
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return r, context.Cause(ctx)
	}
	began := time.Now()
	go func() {
		if err := start(ctx); err != nil {
			cancel(err)
		}
	}()
	for r.Bound < s.Pods() {
		select {
		case <-ctx.Done():
			if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				return r, err
			}
			return r, nil
		case at := <-bindings:
			r.All = at.Sub(began).Seconds()
			if r.Bound == 0 {
				r.First = r.All
			}
			r.Bound++
		}
		if r.All > r.First {
			r.Rate = float64(r.Bound-1) / (r.All - r.First)
		}
	}
	return r, nil
}

// WarmUp waits until a scheduler binds a pod.
func (c *Cluster) WarmUp(ctx context.Context, scheduler string) error {
	const name = "warm-up"
	pods := c.client.CoreV1().Pods(namespace)
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PodSpec{SchedulerName: scheduler, Containers: []v1.Container{{Name: "main", Image: "none"}}},
	}
	if _, err := pods.Create(ctx, p, metav1.CreateOptions{}); err != nil {
		return err
	}
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		p, err := pods.Get(ctx, name, metav1.GetOptions{})
		return err == nil && p.Spec.NodeName != "", err
	})
	if err != nil {
		return err
	}
	now := int64(0)
	return pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
}

// boundPod is what is kept of a pod.
type boundPod struct {
	metav1.ObjectMeta
	bound bool
}
