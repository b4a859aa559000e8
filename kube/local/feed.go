package local

import (
	"context"
	"fmt"
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

// Feeder submits a workload to a cluster as its users would: as objects, when
// their time has come.
type Feeder struct {
	// Speed is how much faster time passes than in the workload.
	Speed float64
	// Workers is how many requests are under way at once.
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

// Queues makes sure that queues are there, parents first, as they are given.
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

// Feed submits jobs until there are no more or ctx ends; told is called after
// each. A job that the API server refuses is an error.
func (f *Feeder) Feed(ctx context.Context, jobs workload.Jobs, told func(*workload.Job)) error {
	began := time.Now()
	for j, err := range jobs {
		if err != nil {
			return err
		}
		at := began.Add(time.Duration(float64(j.Submitted) / f.Speed))
		if wait := time.Until(at); wait > 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(wait):
			}
		}
		if err := f.submit(ctx, &j); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("job %s: %w", j.Name, err)
		}
		told(&j)
	}
	return nil
}

func (f *Feeder) submit(ctx context.Context, j *workload.Job) error {
	if err := f.queue(ctx, &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: translate.ObjectName(j.Queue)}}); err != nil {
		return err
	}
	job := j.Job
	job.Queue = translate.ObjectName(j.Queue)
	job.Estimate = core.Time(float64(job.Estimate) / f.Speed)
	group, pods := translate.Objects(&job)
	if group != nil {
		if _, err := f.client.SchedulingV1beta1().PodGroups(namespace).Create(ctx, group, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	run := time.Duration(float64(j.Duration) / f.Speed).Round(time.Millisecond)
	work := make(chan int)
	errs := make(chan error, f.Workers)
	var workers sync.WaitGroup
	for range min(f.Workers, len(pods)) {
		workers.Go(func() {
			for i := range work {
				translate.RunFor(pods[i], run)
				if j.Outcome == workload.Failed {
					pods[i].Annotations[translate.SimulatedOutcome] = "failed"
				}
				if _, err := f.client.CoreV1().Pods(namespace).Create(ctx, pods[i], metav1.CreateOptions{}); err != nil {
					select {
					case errs <- err:
					default:
					}
				}
			}
		})
	}
	for i := range pods {
		work <- i
	}
	close(work)
	workers.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}
