package local

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/translate"
	"github.com/muster-sched/muster/workload"
)

// Feeder submits a workload to a cluster like its users would: as objects, at their
// submission times.
type Feeder struct {
	// Speed is the factor by which time passes faster than in the workload.
	Speed float64
	// Workers is the number of concurrent requests.
	Workers int

	client kubernetes.Interface
	muster rest.Interface
	known  map[string]bool // queues that are there
}

const namespace = metav1.NamespaceDefault

// NewFeeder returns a feeder for a cluster.
func NewFeeder(config *rest.Config, speed float64) (*Feeder, error) {
	c := rest.CopyConfig(config)
	c.QPS = -1
	muster, err := kube.NewClient(c)
	if err != nil {
		return nil, err
	}
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(c)
	return &Feeder{Speed: speed, Workers: 32, client: client, muster: muster, known: map[string]bool{}}, err
}

// Queues creates the given queues, parents first, if they do not exist.
func (f *Feeder) Queues(ctx context.Context, queues []core.Queue) error {
	for i := range queues {
		if err := f.queue(ctx, translate.QueueObject(&queues[i])); err != nil {
			return err
		}
	}
	return nil
}

func (f *Feeder) queue(ctx context.Context, q *v1alpha1.Queue) error {
	if f.known[q.Name] {
		return nil
	}
	err := f.muster.Post().Resource("queues").Body(q).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("queue %s: %w", q.Name, err)
	}
	f.known[q.Name] = true
	return nil
}

// Feed submits jobs until there are no more or ctx ends, and returns when all exist. It
// calls told after each job, from several goroutines. It returns an error for the first
// job that the API server refuses.
func (f *Feeder) Feed(ctx context.Context, jobs workload.Jobs, told func(*workload.Job)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	requests := make(chan struct{}, f.Workers)
	var under sync.WaitGroup
	defer under.Wait()
	for j, err := range jobs {
		if err != nil {
			return err
		}
		at := began.Add(time.Duration(float64(j.Submitted) / f.Speed))
		if wait := time.Until(at); wait > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
		}
		if err := f.queue(ctx, &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: translate.ObjectName(j.Queue)}}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case requests <- struct{}{}: // the first request of the job
		}
		under.Go(func() {
			if err := f.submit(ctx, &j, requests); err != nil {
				cancel(fmt.Errorf("job %s: %w", j.Name, err))
				return
			}
			told(&j)
		})
	}
	under.Wait()
	return context.Cause(ctx)
}

// submit creates the objects of a job. It holds one of the requests that may be
// under way, and gives it back.
func (f *Feeder) submit(ctx context.Context, j *workload.Job, requests chan struct{}) error {
	job := j.Job
	job.Queue = translate.ObjectName(j.Queue)
	job.Estimate = core.Time(float64(job.Estimate) / f.Speed)
	group, pods := translate.Objects(&job)
	var err error
	if group != nil {
		_, err = f.client.SchedulingV1beta1().PodGroups(namespace).Create(ctx, group, metav1.CreateOptions{})
	}
	for _, p := range pods {
		if err != nil {
			break
		}
		if j.Duration > 0 {
			translate.RunFor(p, time.Duration(float64(j.Duration)/f.Speed).Round(time.Millisecond))
		}
		if j.Outcome == workload.Failed {
			p.Annotations[translate.SimulatedOutcome] = "failed"
		}
		_, err = f.client.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
	}
	<-requests
	return err
}

// Cluster reads back the nodes of the cluster, as a workload's generator needs
// to know them.
func (f *Feeder) Cluster(ctx context.Context) (workload.Cluster, error) {
	var c workload.Cluster
	o := metav1.ListOptions{Limit: 5000}
	for {
		list, err := f.client.CoreV1().Nodes().List(ctx, o)
		if err != nil {
			return c, err
		}
		for i := range list.Items {
			n, _, err := translate.Node(&list.Items[i])
			if err != nil {
				return c, err
			}
			c.Nodes = append(c.Nodes, n)
		}
		if o.Continue = list.Continue; o.Continue == "" {
			return c, nil
		}
	}
}

// Fill returns a workload with a one-GPU pod for every GPU of the cluster, of the GPU's
// model. All pods are submitted at once and never end.
func (f *Feeder) Fill(ctx context.Context) (workload.Jobs, error) {
	c, err := f.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	gpus := map[string]int{}
	cpu, mem := map[string]int64{}, map[string]int64{}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.GPUs == 0 {
			continue
		}
		if gpus[n.Model] == 0 || n.CPUMilli/int64(n.GPUs) < cpu[n.Model] {
			cpu[n.Model] = n.CPUMilli / int64(n.GPUs)
		}
		if gpus[n.Model] == 0 || n.MemMiB/int64(n.GPUs) < mem[n.Model] {
			mem[n.Model] = n.MemMiB / int64(n.GPUs)
		}
		gpus[n.Model] += n.GPUs
	}
	return func(yield func(workload.Job, error) bool) {
		for _, model := range slices.Sorted(maps.Keys(gpus)) {
			for i := range gpus[model] {
				j := workload.Job{Job: core.Job{
					Name: fmt.Sprintf("%s-%06d", model, i), Queue: "default",
					Tasks: []core.Task{{Pods: 1, Request: core.Request{
						GPU: core.WholeGPU, CPUMilli: cpu[model] / 2, MemMiB: mem[model] / 2, Models: []string{model},
					}}},
				}}
				if !yield(j, nil) {
					return
				}
			}
		}
	}, nil
}
