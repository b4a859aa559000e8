package mirror

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/frag"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/settings"
	"github.com/muster-sched/muster/kube/stats"
	"github.com/muster-sched/muster/kube/tables"
)

func queueObject(name, parent string, quota ...v1alpha1.Quota) *v1alpha1.Queue {
	q := &v1alpha1.Queue{Spec: v1alpha1.QueueSpec{Parent: parent, Quota: quota}}
	q.Name = name
	return q
}

func GPUs(n int64) v1alpha1.GPUs { return v1alpha1.GPUs(n * int64(core.WholeGPU)) }

func TestStatsOfQueues(t *testing.T) {
	y := newToy(t)
	y.node("a", 8)
	y.node("b", 8)
	y.node("c", 8)
	weight := int64(3)
	vision := queueObject("vision", "lab", v1alpha1.Quota{Model: "H800", Nominal: GPUs(4)})
	vision.Spec.Weight = &weight
	y.queuesListed([]*v1alpha1.Queue{
		queueObject("lab", "", v1alpha1.Quota{Model: "H800", Nominal: GPUs(2)}), vision,
		queueObject("guest", "lab"), queueObject("lender", "", v1alpha1.Quota{Model: "H800", Nominal: GPUs(10)}), queueObject("any", "", v1alpha1.Quota{Model: "*", Nominal: GPUs(10)}),
	})
	y.start()
	for name, queue := range map[string]string{"v1": "vision", "v2": "vision", "g1": "guest", "l1": "lab", "o1": "any"} {
		p := newTestPod(name, 3)
		p.Labels[v1alpha1.QueueLabel] = queue
		y.see(p)
	}
	y.run()
	late := newTestPod("late", 8)
	late.Labels[v1alpha1.QueueLabel] = "any"
	y.see(late)
	y.run()
	st := y.Stats()
	got := map[string]stats.Queue{}
	for _, q := range st.Queues {
		got[q.Name] = q
	}
	h800 := func(n int64) map[string]core.Milli {
		return map[string]core.Milli{"H800": core.Milli(n) * core.WholeGPU}
	}
	usage := func(model string, nominal, used, borrowed int64) stats.Usage {
		return stats.Usage{Model: model, Nominal: core.Milli(GPUs(nominal)), Used: core.Milli(GPUs(used)), Borrowed: core.Milli(GPUs(borrowed))}
	}
	for _, want := range []stats.Queue{
		{Name: "lab", Used: h800(3), Running: 1, WeightPermille: 250,
			Subtree: stats.Subtree{Usage: []stats.Usage{usage("H800", 6, 12, 6)}, Waiting: 0, Running: 4}},
		{Name: "vision", Used: h800(6), Running: 2, WeightPermille: 750,
			Subtree: stats.Subtree{Usage: []stats.Usage{usage("H800", 4, 6, 2)}, Waiting: 0, Running: 2}},
		{Name: "guest", Used: h800(3), Running: 1, WeightPermille: 250,
			Subtree: stats.Subtree{Usage: []stats.Usage{usage("H800", 0, 3, 3)}, Waiting: 0, Running: 1}},
		{Name: "any", Used: h800(3), Waiting: 1, Running: 1, WeightPermille: 250,
			Subtree: stats.Subtree{Usage: []stats.Usage{usage("*", 10, 3, 0), usage("H800", 0, 3, 0)}, Waiting: 1, Running: 1}},
	} {
		if !reflect.DeepEqual(got[want.Name], want) {
			t.Errorf("got  %+v\nwant %+v", got[want.Name], want)
		}
	}
	if idle := st.Models[0].Idle; len(idle) != len(stats.Shapes)+len(stats.Jobs) || idle[len(stats.Shapes)-1][frag.Stranded] != 9*core.WholeGPU {
		t.Errorf("of the idle GPUs: %v", idle)
	}
	st.Models[0].Idle = nil
	if want := []stats.Model{{Model: "H800", Nodes: 3, GPUs: 24, Used: 15 * core.WholeGPU, Free: 9 * core.WholeGPU, Fragmented: 3}}; !reflect.DeepEqual(st.Models, want) {
		t.Errorf("got %+v", st.Models)
	}
	if st.Seen != 6 || st.Jobs != 6 {
		t.Errorf("%d jobs were seen, %d are not over; 6 came", st.Seen, st.Jobs)
	}
	y.podGone(late.UID)
	y.run()
	if st := y.Stats(); st.Seen != 6 || st.Jobs != 5 {
		t.Errorf("%d jobs were seen, %d are not over; one of 6 went", st.Seen, st.Jobs)
	}
}

// What is kept up as things change is what counting everything gives.
func TestStatsAreKeptUp(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		y := newToy(t)
		nodes := map[string]*v1.Node{}
		for i := range 6 {
			name := fmt.Sprint("n", i)
			nodes[name] = y.node(name, 4)
		}
		y.queuesListed([]*v1alpha1.Queue{queueObject("q", "", v1alpha1.Quota{Model: "H800", Nominal: GPUs(20)}), queueObject("r", "")})
		y.start()
		live := map[string]*v1.Pod{}
		var open []tables.Binding
		for step := range 300 {
			y.now += core.Second
			switch k := r.IntN(12); {
			case k < 4:
				list := newTestGang(fmt.Sprint("g", step), 1+r.IntN(3), 1+r.IntN(3))
				queue := [...]string{"q", "r", "none"}[r.IntN(3)]
				for _, p := range list {
					p.Labels[v1alpha1.QueueLabel] = queue
					if r.IntN(4) == 0 {
						delete(p.Spec.Containers[0].Resources.Requests, v1alpha1.GPUResource)
						p.Annotations[v1alpha1.GPUFractionAnnotation] = "0.3"
					}
					live[p.Name] = p
				}
				y.see(list[r.IntN(len(list)):]...)
			case k < 6:
				for name, p := range live {
					if known := y.Pods[p.UID]; known != nil && !known.InFlight {
						y.podGone(p.UID)
					}
					delete(live, name)
					break
				}
			case k == 6:
				n := nodes[fmt.Sprint("n", r.IntN(6))]
				n.Spec.Unschedulable = !n.Spec.Unschedulable
				n.Status.Allocatable = v1.ResourceList{}
				for name, q := range n.Status.Capacity {
					n.Status.Allocatable[name] = q
				}
				n.Status.Allocatable[v1alpha1.GPUResource] = *resource.NewQuantity(int64(2+r.IntN(3)), resource.DecimalSI)
				y.nodeSeen(objects.TrimNode(n))
			case k == 7:
				y.nodeGone(fmt.Sprint("n", r.IntN(6)))
			case k == 8:
				y.outdated = true
			case k == 9:
				p := newTestPod(fmt.Sprint("foreign", step), r.IntN(3))
				p.Spec.SchedulerName, p.Spec.NodeName = "other", fmt.Sprint("n", r.IntN(6))
				live[p.Name] = p
				y.see(p)
			case k == 10:
				q := queueObject("q", "", v1alpha1.Quota{Model: "H800", Nominal: GPUs(int64(r.IntN(30)))})
				y.queueSeen(q)
			default:
				y.Explain(3)
			}
			bind, evict := y.pass()
			open = append(open, bind...)
			for _, e := range evict {
				if r.IntN(2) == 0 {
					y.podGone(e.Of.Object.UID)
				}
			}
			for len(open) > 0 && r.IntN(3) > 0 {
				b := open[0]
				open = open[1:]
				ok := r.IntN(4) > 0
				y.bound(b.Of.Object.UID, ok, !ok && r.IntN(2) == 0)
				if p := y.Pods[b.Of.Object.UID]; ok && p != nil && p.State != tables.PodWaiting {
					o := *p.Object
					o.Node, o.Phase = b.Node, v1.PodRunning
					y.podSeen(&o)
				}
			}
			got := y.Stats()
			y.Census = tables.NewCensus(&y.Tables)
			for _, n := range y.Nodes {
				n.Counted = stats.Node{}
				y.NoteNode(n)
			}
			for _, g := range y.Groups {
				g.Counted = stats.Group{}
				y.NoteGroup(g)
			}
			if want := y.Stats(); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, step %d:\ngot  %+v\nwant %+v", seed, step, got, want)
			}
		}
	}
}

// full is a mirror of a fleet as large as ASI's, with a pod on every GPU.
func full(tb testing.TB) *toy {
	y := newToy(tb)
	left := 155_410
	for i := range 37_707 {
		n := 4
		if i%8 == 0 {
			n = 5
		}
		y.node(fmt.Sprintf("n%05d", i), n)
	}
	y.start()
	for i := 0; left > 0; i++ {
		n := min(left, 1+i%16)
		y.see(newTestGang(fmt.Sprintf("g%05d", i), n, 1)...)
		left -= n
	}
	y.run()
	if st := y.Stats(); st.Running < 150_000 {
		tb.Fatalf("%d pods run", st.Running)
	}
	return y
}

// A second in which about 2,500 pods start or end.
func BenchmarkStats(b *testing.B) {
	y := full(b)
	for b.Loop() {
		n := 0
		for _, g := range y.Groups {
			for _, p := range g.Pods {
				y.NotePod(p)
			}
			if n++; n == 300 {
				break
			}
		}
		y.Stats()
	}
}

// A look at the statuses of a hundred queues and a topology while nothing
// changes.
func BenchmarkCensus(b *testing.B) {
	y := full(b)
	for i := range 100 {
		q := queueObject(fmt.Sprint("q", i), "", v1alpha1.Quota{Model: "H800", Nominal: GPUs(100)})
		y.queueSeen(q)
	}
	inTopologies((*settings.Topologies).Observe)(y.Mirror, topologyObject("net", "x/core", "x/spine", "x/leaf"))
	for b.Loop() {
		if n := len(y.Statuses(metav1.NewTime(startOfTime))); n != 101 {
			b.Fatalf("%d statuses", n)
		}
	}
}

func BenchmarkRebuild(b *testing.B) {
	y := full(b)
	for b.Loop() {
		y.outdated = true
		y.pass()
	}
}

// An update of every pod, of which nothing that is kept differs: most updates are
// such. It reports the memory that the tables of the fleet take, objects and engine
// included.
func BenchmarkPodSeen(b *testing.B) {
	y := full(b)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	list := make([]*objects.Pod, 0, len(y.Pods))
	for _, p := range y.Pods {
		o := *p.Object
		list = append(list, &o)
	}
	i := 0
	for b.Loop() {
		y.podSeen(list[i%len(list)])
		i++
	}
	b.ReportMetric(float64(m.HeapAlloc)/float64(len(list)), "B/pod")
}
