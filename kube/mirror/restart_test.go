package mirror

import (
	"fmt"
	"log/slog"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/kube/objects"
)

// seen is a mirror that has seen a node of so many GPUs.
func seen(t *testing.T, gpus int64) *Mirror {
	t.Helper()
	doc, _ := policy.ByName("default")
	m := New(Config{Policy: doc.Policy, Log: slog.New(slog.DiscardHandler)})
	if err := m.rebuild(); err != nil {
		t.Fatal(err)
	}
	room := v1.ResourceList{v1alpha1.GPUResource: *resource.NewQuantity(gpus, resource.DecimalSI)}
	m.nodeSeen(objects.TrimNode(&v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Status: v1.NodeStatus{
			Capacity: room, Allocatable: room, Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		},
	}))
	return m
}

// oneGPU is a pod that asks for a GPU; on a node when gpus says which it has.
func oneGPU(name, gpus string) *objects.Pod {
	one := v1.ResourceList{v1alpha1.GPUResource: resource.MustParse("1")}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Annotations: map[string]string{}},
		Spec: v1.PodSpec{
			SchedulerName: v1alpha1.SchedulerName, Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: one, Limits: one}}},
		},
	}
	if gpus != "" {
		p.Spec.NodeName, p.Annotations[v1alpha1.GPUsAnnotation] = "n", gpus
	}
	return objects.TrimPod(p)
}

// given decides and returns the GPUs of the one pod that is bound.
func given(t *testing.T, m *Mirror) string {
	t.Helper()
	defer m.acts.Drop()
	acts := m.decide(m.Now)
	if len(acts.Bind) != 1 {
		t.Fatalf("%d pods are bound; want 1", len(acts.Bind))
	}
	return acts.Bind[0].Annotations[v1alpha1.GPUsAnnotation]
}

// A request of an earlier scheduler may take effect after a new one has decided
// otherwise: the pod has the GPUs that the API says.
func TestBoundWithOtherDevices(t *testing.T) {
	for _, answered := range []bool{false, true} {
		t.Run(fmt.Sprintf("answered first %t", answered), func(t *testing.T) {
			m := seen(t, 2)
			m.podSeen(oneGPU("p", ""))
			mine := given(t, m)
			other := map[string]string{"0": "1", "1": "0"}[mine]
			if answered {
				m.bound("p", true, false)
			}
			m.podSeen(oneGPU("p", other))
			if !answered {
				m.bound("p", true, false)
			}
			m.podSeen(oneGPU("q", ""))
			if got := given(t, m); got != mine {
				t.Errorf("the second pod gets GPU %s; want %s, for the first has %s", got, mine, other)
			}
		})
	}
}

// A pod that is on a GPU which another has counts as another scheduler's, until the
// other is gone.
func TestOnATakenDevice(t *testing.T) {
	y := newToy(t)
	y.node("a", 1)
	for _, name := range []string{"p", "q"} {
		p := newTestPod(name, 1)
		p.Spec.NodeName, p.Annotations[v1alpha1.GPUsAnnotation] = "a", "0"
		y.see(p)
	}
	y.start()
	y.run()
	if q := y.Pods["q"]; q.Group != nil || y.Nodes["a"].Count != 1 || len(y.Groups) != 1 {
		t.Errorf("it is of %v; %d pods are counted as others', in %d groups", q.Group, y.Nodes["a"].Count, len(y.Groups))
	}
	y.podGone("p")
	y.run()
	if q := y.Pods["q"]; q.Group == nil || q.Slot < 0 || y.Nodes["a"].Count != 0 {
		t.Errorf("it is of %v; %d pods are counted as others'", q.Group, y.Nodes["a"].Count)
	}
}
