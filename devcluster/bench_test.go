package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// BenchmarkPods creates pods, binds them, has them run and deletes them, and says
// how many a second get through each. Client, server and simulator share the
// machine. For steady figures: -benchtime 10000x.
func BenchmarkPods(b *testing.B) {
	c, err := upCluster("--ephemeral", "--nodes", "1000")
	if err != nil {
		b.Fatal(err)
	}
	defer c.down()
	config, err := clientcmd.BuildConfigFromFlags("", c.ready.Kubeconfig)
	if err != nil {
		b.Fatal(err)
	}
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()

	// Counted by a watch that holds nothing.
	var running, gone atomic.Int64
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", "default", fields.Everything()),
		ObjectType:    &corev1.Pod{},
		Transform: func(object any) (any, error) {
			if p, ok := object.(*corev1.Pod); ok {
				return &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
					Status:     corev1.PodStatus{Phase: p.Status.Phase},
				}, nil
			}
			return object, nil
		},
		Handler: cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(before, after any) {
				if before.(*corev1.Pod).Status.Phase == corev1.PodPending && after.(*corev1.Pod).Status.Phase == corev1.PodRunning {
					running.Add(1)
				}
			},
			DeleteFunc: func(any) { gone.Add(1) },
		},
	})
	var watching sync.WaitGroup
	watching.Go(func() { informer.RunWithContext(ctx) })
	defer watching.Wait()
	defer cancel()
	cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)

	pods := client.CoreV1().Pods("default")
	phase := func(unit string, until *atomic.Int64, do func(i int) error) {
		began := time.Now()
		var next atomic.Int64
		var workers sync.WaitGroup
		for range 32 {
			workers.Go(func() {
				for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
					if err := do(int(i)); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		workers.Wait()
		b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), unit+"/s")
		for until != nil && until.Load() < int64(b.N) && !b.Failed() {
			time.Sleep(10 * time.Millisecond)
		}
		if until != nil {
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), unit+"-done/s")
		}
	}
	name := func(i int) string { return fmt.Sprintf("p%06d", i) }
	b.ResetTimer()
	phase("create", nil, func(i int) error {
		p := newPod(name(i))
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{} // a node has room for many
		_, err := pods.Create(ctx, p, metav1.CreateOptions{})
		return err
	})
	phase("bind", &running, func(i int) error {
		return pods.Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: name(i)}, Target: corev1.ObjectReference{Kind: "Node", Name: fmt.Sprintf("node-%05d", i%1000)},
		}, metav1.CreateOptions{})
	})
	phase("delete", &gone, func(i int) error { return pods.Delete(ctx, name(i), metav1.DeleteOptions{}) })
}
