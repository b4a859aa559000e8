package kube

import (
	"log/slog"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/kube/feed"
	"github.com/muster-sched/muster/kube/mirror"
)

// shown is a mirror that observes what a test shows it.
type shown struct {
	*mirror.Mirror
	t     testing.TB
	box   *mirror.Mailbox
	feeds map[string]feed.Feed
}

func newShown(t testing.TB) *shown {
	doc, _ := policy.ByName("default")
	m := mirror.New(mirror.Config{Policy: doc.Policy, Log: slog.New(slog.DiscardHandler)})
	box := mirror.NewMailbox()
	return &shown{Mirror: m, t: t, box: box, feeds: mirror.Feeds(box)}
}

// show has the mirror observe an object of a resource.
func (s *shown) show(resource string, object any) {
	s.t.Helper()
	if err := s.feeds[resource].Add(object); err != nil {
		s.t.Fatal(err)
	}
	for _, f := range s.box.Take(nil) {
		f(s.Mirror)
	}
}

func (s *shown) see(pods ...*v1.Pod) {
	s.t.Helper()
	for _, p := range pods {
		s.show("pods", p)
	}
}

// node shows a node with GPUs.
func (s *shown) node(name string, gpus int64) {
	s.t.Helper()
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"nvidia.com/gpu.product": "NVIDIA-H800"}}}
	n.Status.Capacity = v1.ResourceList{v1alpha1.GPUResource: *resource.NewQuantity(gpus, resource.DecimalSI)}
	n.Status.Allocatable = n.Status.Capacity
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	s.show("nodes", n)
}

// podOf is a pod of Muster's that asks for GPUs.
func podOf(name string, gpus int64) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec: v1.PodSpec{SchedulerName: v1alpha1.SchedulerName, Containers: []v1.Container{{
			Name:      "main",
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1alpha1.GPUResource: *resource.NewQuantity(gpus, resource.DecimalSI)}},
		}}},
	}
}
