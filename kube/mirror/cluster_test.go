package mirror

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/owners"
	"github.com/muster-sched/muster/kube/tables"
)

// toy is a mirror without an API: a test tells it what it sees, and answers for
// the API server.
type toy struct {
	t testing.TB
	*Mirror
	now core.Time
}

// startOfTime is when tests begin.
var startOfTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func builtins(name string) (core.Policy, bool) {
	d, ok := policy.ByName(name)
	return d.Policy, ok
}

func newToy(t testing.TB) *toy {
	doc, _ := policy.ByName("default")
	m := New(Config{Policy: doc.Policy, Log: slog.New(slog.DiscardHandler), Builtins: builtins})
	return &toy{t: t, Mirror: m, now: core.Time(startOfTime.UnixNano())}
}

// start has everything listed and the engine built.
func (y *toy) start() {
	y.t.Helper()
	y.Mirror.Now = y.now
	if err := y.rebuild(); err != nil {
		y.t.Fatal(err)
	}
}

// node adds a node with GPUs, and labels given as key, value, key, value...
func (y *toy) node(name string, gpus int, labels ...string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"nvidia.com/gpu.product": "NVIDIA-H800"}}}
	for i := 0; i < len(labels); i += 2 {
		n.Labels[labels[i]] = labels[i+1]
	}
	n.Status.Capacity = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("96"), v1.ResourceMemory: resource.MustParse("1Ti"), v1.ResourcePods: resource.MustParse("110"),
		v1alpha1.GPUResource: *resource.NewQuantity(int64(gpus), resource.DecimalSI),
	}
	n.Status.Allocatable = n.Status.Capacity
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	y.nodeSeen(objects.TrimNode(n))
	return n
}

// newTestPod is a pod of Muster's that asks for GPUs.
func newTestPod(name string, gpus int) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", UID: types.UID(name), CreationTimestamp: metav1.NewTime(startOfTime),
			Labels: map[string]string{}, Annotations: map[string]string{},
		},
		Spec: v1.PodSpec{SchedulerName: v1alpha1.SchedulerName, Containers: []v1.Container{{
			Name:      "main",
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1alpha1.GPUResource: *resource.NewQuantity(int64(gpus), resource.DecimalSI)}},
		}}},
	}
}

// gang returns the pods of a gang by label, all of which must start together.
func newTestGang(name string, pods, gpus int) []*v1.Pod {
	var out []*v1.Pod
	for i := range pods {
		p := newTestPod(fmt.Sprintf("%s-%d", name, i), gpus)
		p.Labels[v1alpha1.GangLabel], p.Annotations[v1alpha1.MinMemberAnnotation] = name, fmt.Sprint(pods)
		out = append(out, p)
	}
	return out
}

func (y *toy) see(pods ...*v1.Pod) {
	for _, p := range pods {
		y.podSeen(objects.TrimPod(p))
	}
}

// pass lets the engine decide and returns copies of what is to be bound and
// evicted.
func (y *toy) pass() ([]tables.Binding, []tables.Eviction) {
	a := y.decide(y.now)
	if asked := slices.Clone(a.Ask); len(asked) > 0 {
		y.acts.Drop()
		for _, g := range asked {
			y.asked(g.ID, &owners.Gang{}, nil) // owners of pods say nothing
		}
		a = y.decide(y.now)
	}
	bind, evict := append([]tables.Binding(nil), a.Bind...), append([]tables.Eviction(nil), a.Evict...)
	y.acts.Drop()
	return bind, evict
}

// run lets the engine decide, binds what it says and returns where pods are now,
// by name.
func (y *toy) run() map[string]string {
	bind, _ := y.pass()
	at := map[string]string{}
	for _, b := range bind {
		at[b.Of.Object.Name] = b.Node
		y.bound(b.Of.Object.UID, true, false)
		o := *b.Of.Object
		o.Node, o.Phase, o.Started = b.Node, v1.PodRunning, time.Unix(0, int64(y.now))
		o.Amounts.GPUs = int64(b.Of.Task.Spec.GPU / core.WholeGPU)
		y.podSeen(&o)
	}
	return at
}
