package bench

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// Burden is what one tenant does to a cluster that others use.
type Burden struct {
	What BurdenKind
	N    int
}

// BurdenKind says what a tenant makes many of.
type BurdenKind string

// The burdens, each on pods that wait for more quota than there is, but for Churned.
const (
	// Pods are that many pods.
	Pods BurdenKind = "pods"
	// Unscheduled are that many pods of a scheduler that does not exist: what of the pods'
	// burden is the API server's.
	Unscheduled BurdenKind = "unscheduled"
	// Labels are that many different labels, on a hundred pods.
	Labels BurdenKind = "labels"
	// Terms are that many anti-affinities over all namespaces, each of its own, on pods
	// with a hundred each.
	Terms BurdenKind = "terms"
	// Churned are pods that are created and deleted again, at most a thousand at a time.
	Churned BurdenKind = "churned"
)

// BurdenKinds lists the burdens.
func BurdenKinds() []BurdenKind { return []BurdenKind{Pods, Unscheduled, Labels, Terms, Churned} }

// perPod is how many terms a pod has, and how many pods have all the labels.
const perPod = 100

// Lay does what the burden says to a namespace, with pods of a queue.
func (c *Cluster) Lay(ctx context.Context, b Burden, namespace, queue string) error {
	create := func(ctx context.Context, i int, change func(*v1.Pod)) (*v1.Pod, error) {
		p := newPod(namespace, fmt.Sprintf("t-%09d", i), queue, 8)
		change(p)
		return p, patiently(ctx, func() error {
			_, err := c.client.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) { // an attempt before, whose answer was lost
				return nil
			}
			return err
		})
	}
	switch b.What {
	case Pods, Unscheduled:
		return c.each(ctx, b.N, func(ctx context.Context, i int) error {
			_, err := create(ctx, i, func(p *v1.Pod) {
				if b.What == Unscheduled {
					p.Spec.SchedulerName = "nobody"
				}
			})
			return err
		})
	case Labels:
		return c.each(ctx, perPod, func(ctx context.Context, i int) error {
			_, err := create(ctx, i, func(p *v1.Pod) {
				for j := i; j < b.N; j += perPod {
					p.Labels[fmt.Sprintf("tenant.example/l%d", j)] = fmt.Sprint(j)
				}
			})
			return err
		})
	case Terms:
		return c.each(ctx, (b.N+perPod-1)/perPod, func(ctx context.Context, i int) error {
			_, err := create(ctx, i, func(p *v1.Pod) {
				p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{}}
				terms := &p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
				for j := i * perPod; j < min(b.N, (i+1)*perPod); j++ {
					*terms = append(*terms, v1.PodAffinityTerm{
						TopologyKey: v1.LabelHostname, NamespaceSelector: &metav1.LabelSelector{},
						LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
							{Key: fmt.Sprintf("tenant.example/a%d", j), Operator: metav1.LabelSelectorOpExists},
						}},
					})
				}
			})
			return err
		})
	case Churned:
		return c.each(ctx, b.N, func(ctx context.Context, i int) error {
			p, err := create(ctx, i, func(*v1.Pod) {})
			if err != nil {
				return err
			}
			return patiently(ctx, func() error { return c.remove(ctx, namespace, p.Name) })
		})
	}
	return fmt.Errorf("burden %q is not known", b.What)
}

// patiently sends a request again that failed, for up to a minute: an API server with much
// to do refuses some.
func patiently(ctx context.Context, do func() error) error {
	for end := time.Now().Add(time.Minute); ; {
		err := do()
		if err == nil || ctx.Err() != nil || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// Lift deletes all pods of a namespace, and waits until they are gone.
func (c *Cluster) Lift(ctx context.Context, namespace string) error {
	for {
		list, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 5000})
		if err != nil || len(list.Items) == 0 {
			return err
		}
		err = c.each(ctx, len(list.Items), func(ctx context.Context, i int) error {
			return patiently(ctx, func() error { return c.remove(ctx, namespace, list.Items[i].Name) })
		})
		if err != nil {
			return err
		}
	}
}

// CreateNamespace creates a namespace.
func (c *Cluster) CreateNamespace(ctx context.Context, name string) error {
	_, err := c.client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

// Isolated returns a queue with so many GPUs, which neither lends nor borrows.
func Isolated(name string, gpus int) *v1alpha1.Queue {
	return &v1alpha1.Queue{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.QueueSpec{
			Mode: "Isolated", Quota: []v1alpha1.Quota{{Model: "*", Nominal: v1alpha1.GPUs(1000 * gpus)}},
		},
	}
}
