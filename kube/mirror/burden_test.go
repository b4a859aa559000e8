package mirror

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// burdens are what a tenant makes many of, on pods that wait for more than its queue has; n of each.
var burdens = map[string]func(n int) []*v1.Pod{
	"pods": func(n int) []*v1.Pod { return heavy(n, func(int, *v1.Pod) {}) },
	"pods of one gang": func(n int) []*v1.Pod {
		return heavy(n, func(_ int, p *v1.Pod) { p.Labels[v1alpha1.GangLabel] = "gang" })
	},
	"labels": func(n int) []*v1.Pod {
		return heavy(n/100, func(i int, p *v1.Pod) {
			for j := range 100 {
				p.Labels[fmt.Sprintf("tenant.example/l%d", 100*i+j)] = "v"
			}
		})
	},
	"pods with a term each": func(n int) []*v1.Pod {
		return heavy(n, func(i int, p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				TopologyKey: v1.LabelHostname, NamespaceSelector: &metav1.LabelSelector{},
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{fmt.Sprintf("tenant.example/a%d", i): "v"}},
			}}}}
		})
	},
	"pods with a term each that excludes": func(n int) []*v1.Pod {
		return heavy(n, func(i int, p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				TopologyKey: v1.LabelHostname, NamespaceSelector: &metav1.LabelSelector{},
				LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"serve", fmt.Sprint("tenant", i)}},
				}},
			}}}}
		})
	},
	"terms": func(n int) []*v1.Pod {
		return heavy(n/100, func(i int, p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{}}
			terms := &p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			for j := range 100 {
				*terms = append(*terms, v1.PodAffinityTerm{
					TopologyKey: v1.LabelHostname, NamespaceSelector: &metav1.LabelSelector{},
					LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{fmt.Sprintf("tenant.example/a%d", 100*i+j): "v"}},
				})
			}
		})
	},
}

// heavy are pods of the tenant.
func heavy(n int, change func(int, *v1.Pod)) []*v1.Pod {
	out := make([]*v1.Pod, n)
	for i := range out {
		out[i] = newTestPod(fmt.Sprint("heavy-", i), 8)
		out[i].Namespace, out[i].Labels[v1alpha1.QueueLabel] = "tenant", "tenant"
		change(i, out[i])
	}
	return out
}

// others has a pod of others come, start and leave.
func (y *toy) others() {
	y.t.Helper()
	p := newTestPod(fmt.Sprint("other-", y.now), 1)
	p.Labels[v1alpha1.QueueLabel], p.Labels["app"] = "others", "serve"
	y.now += core.Second
	y.see(p)
	if at := y.run(); at[p.Name] == "" {
		y.t.Fatal("a pod of others waits")
	}
	y.podGone(p.UID)
	y.run()
}

// What the scheduler does for others, counted by what it allocates, does not grow with what one tenant makes, and
// when the tenant's pods are gone nothing of them is left.
func TestTenantBurdensNobody(t *testing.T) {
	few, many := 500, 20_000
	if testing.Short() {
		many = 2000
	}
	for what, make := range burdens {
		// Pods with affinities of their own are classes of their own. The engine keeps those of jobs that have ended for jobs like them,
		// and tries as many of a user as do not take turns in each pass.
		keeps, plateau := uint64(128), 0.
		if strings.Contains(what, "term") {
			keeps, plateau = 1024, 20*core.DefaultCrowd
		}
		work := func(n int) float64 {
			y := newToy(t)
			for i := range 8 {
				y.node(fmt.Sprint("n", i), 8)
			}
			y.queuesListed([]*v1alpha1.Queue{
				queueObject("tenant", "", v1alpha1.Quota{Model: "H800", Nominal: GPUs(4), BorrowingLimit: new(v1alpha1.GPUs)}),
				queueObject("others", "", v1alpha1.Quota{Model: "H800", Nominal: GPUs(60)}),
			})
			y.start()
			for range 20 { // tables grow to their size
				y.others()
			}
			y.Explain(20)
			runtime.GC()
			var before runtime.MemStats
			runtime.ReadMemStats(&before)
			empty := left(y)
			list := make(n)
			y.see(list...)
			y.run()
			y.Explain(20)
			y.Statuses(metav1.NewTime(startOfTime)) // as the scheduler does every few seconds
			per := testing.AllocsPerRun(50, y.others)
			for _, p := range list {
				y.podGone(p.UID)
			}
			list = nil
			y.run()
			for range 2 + n/1000 { // a part of those that are gone is dropped in each
				y.Explain(20)
			}
			y.Statuses(metav1.NewTime(startOfTime))
			y.others()
			y.Explain(20)
			for name, is := range left(y) {
				if is > empty[name] {
					t.Errorf("%s: %d %s are left of %d; %d were there before", what, is, name, n, empty[name])
				}
			}
			runtime.GC()
			runtime.GC()
			var after runtime.MemStats
			if runtime.ReadMemStats(&after); n == many && after.HeapAlloc > before.HeapAlloc+uint64(n)*keeps {
				t.Errorf("%s: %d bytes are left of each of %d", what, (after.HeapAlloc-before.HeapAlloc)/uint64(n), n)
			}
			runtime.KeepAlive(y)
			return per
		}
		a, b := work(few), work(many)
		t.Logf("%s: a pod of others takes %.0f allocations beside %d, %.0f beside %d", what, a, few, b, many)
		if b > max(2*a+50, plateau) {
			t.Errorf("%s: a pod of others takes %.0f allocations beside %d, %.0f beside %d", what, a, few, b, many)
		}
	}
}

// left says how much the tables have of things that come and go.
func left(y *toy) map[string]int {
	return map[string]int{
		"pods": len(y.Pods), "groups": len(y.Groups), "jobs": len(y.Jobs), "waiters": y.reports.Waiters(), "dirty groups": len(y.dirty),
		"groups to be counted": y.Pending(), "stages": len(y.Stages), "kinds of pods and selectors": y.Peers.Len(), "pods that succeeded": y.Done.Len(),
	}
}
