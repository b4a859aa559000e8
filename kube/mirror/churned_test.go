package mirror

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// freshTexts are the places of a pod where a tenant can write a text that was never seen before.
var freshTexts = []struct {
	where string
	write func(p *v1.Pod, text string)
}{
	{"queue", func(p *v1.Pod, s string) { p.Labels[v1alpha1.QueueLabel] = s }},
	{"pool", func(p *v1.Pod, s string) { p.Labels[v1alpha1.PoolLabel] = s }},
	{"gang", func(p *v1.Pod, s string) { p.Labels[v1alpha1.GangLabel] = s }},
	{"gang of two", func(p *v1.Pod, s string) {
		p.Labels[v1alpha1.GangLabel], p.Annotations[v1alpha1.MinMemberAnnotation] = s, "2"
	}},
	{"label", func(p *v1.Pod, s string) { p.Labels["tenant.example/"+s] = s }},
	{"user", func(p *v1.Pod, s string) { p.Annotations[v1alpha1.UserAnnotation] = s }},
	{"priority class", func(p *v1.Pod, s string) { p.Annotations[v1alpha1.PriorityClassAnnotation] = s }},
	{"models", func(p *v1.Pod, s string) { p.Annotations[v1alpha1.GPUModelsAnnotation] = s + "|H800" }},
	{"task", func(p *v1.Pod, s string) { p.Annotations[v1alpha1.TaskAnnotation] = s }},
	{"topology", func(p *v1.Pod, s string) { p.Annotations[v1alpha1.RequiredTopologyAnnotation] = s }},
	{"dependency", func(p *v1.Pod, s string) { p.Annotations[v1alpha1.DependencyAnnotation] = "afterok:" + s }},
	{"array", func(p *v1.Pod, s string) { p.Labels[v1alpha1.SlurmArrayLabel] = s }},
	{"stage", func(p *v1.Pod, s string) { p.Annotations[v1alpha1.StageAnnotation] = s }},
	{"another scheduler's key", func(p *v1.Pod, s string) { p.Annotations["scheduling.volcano.sh/"+s] = s }},
	{"group", func(p *v1.Pod, s string) { p.Annotations["pod-group-name"] = s }},
	{"node selector", func(p *v1.Pod, s string) { p.Spec.NodeSelector = map[string]string{s: s} }},
	{"toleration", func(p *v1.Pod, s string) {
		p.Spec.Tolerations = []v1.Toleration{{Key: s, Operator: v1.TolerationOpExists}}
	}},
	{"resource", func(p *v1.Pod, s string) {
		p.Spec.Containers[0].Resources.Requests[v1.ResourceName("tenant.example/"+s)] = resource.MustParse("1")
	}},
	{"memory", func(p *v1.Pod, s string) {
		p.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = *resource.NewQuantity(number(s)<<20, resource.BinarySI)
	}},
	{"CPU", func(p *v1.Pod, s string) {
		p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = *resource.NewMilliQuantity(number(s), resource.DecimalSI)
	}},
	{"disk", func(p *v1.Pod, s string) {
		p.Spec.Containers[0].Resources.Requests[v1.ResourceEphemeralStorage] = *resource.NewQuantity(number(s)<<20, resource.BinarySI)
	}},
	{"affinity", func(p *v1.Pod, s string) {
		p.Spec.Affinity = farFrom(&metav1.LabelSelector{MatchLabels: map[string]string{s: s}})
	}},
	{"affinity to namespaces", func(p *v1.Pod, s string) {
		p.Spec.Affinity = farFrom(&metav1.LabelSelector{})
		p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].Namespaces = []string{s}
	}},
	{"affinity by a domain", func(p *v1.Pod, s string) {
		p.Spec.Affinity = farFrom(&metav1.LabelSelector{})
		p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].TopologyKey = s
	}},
	{"spread", func(p *v1.Pod, s string) {
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: s, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{}}}
	}},
	{"volume", func(p *v1.Pod, s string) {
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: s}}}}
	}},
	{"claim", func(p *v1.Pod, s string) {
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "c", ResourceClaimName: &s}}
	}},
	{"pod group", func(p *v1.Pod, s string) {
		p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &s}
	}},
	{"owner", func(p *v1.Pod, s string) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "tenant.example/v1", Kind: "Thing", Name: s, UID: p.UID + "-owner", Controller: new(true)}}
	}},
	{"host port", func(p *v1.Pod, s string) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: int32(1 + number(s)%65535), HostIP: s}}
	}},
}

// number is that of a text.
func number(text string) int64 {
	n, err := strconv.ParseInt(text[1:], 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// farFrom is an affinity that keeps the pod off nodes with pods of a selector.
func farFrom(of *metav1.LabelSelector) *v1.Affinity {
	return &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
		{TopologyKey: v1.LabelHostname, LabelSelector: of},
	}}}
}

// A tenant's pods come and go, a million of them with MUSTER_FULL, at most a thousand at a time. Each has a text somewhere that no pod
// had before. When they are gone, nothing of them is left, and what the scheduler does for a pod of others costs what it did.
func TestChurnedPodsLeaveNothing(t *testing.T) {
	all := 100_000
	switch {
	case os.Getenv("MUSTER_FULL") != "":
		all = 1_000_000
	case testing.Short():
		all = 5000
	}
	const there = 1000
	y := newToy(t)
	for i := range 8 {
		y.node(fmt.Sprint("n", i), 8)
	}
	y.queuesListed([]*v1alpha1.Queue{
		queueObject("tenant", "", v1alpha1.Quota{Model: "H800", Nominal: GPUs(4), BorrowingLimit: new(v1alpha1.GPUs)}),
		queueObject("others", "", v1alpha1.Quota{Model: "H800", Nominal: GPUs(60)}),
	})
	y.start()
	churn := func(from, to int) {
		var pods []*v1.Pod
		for i := from; i < to; i++ {
			p := newTestPod(fmt.Sprint("t-", i), 8)
			p.Namespace, p.Labels[v1alpha1.QueueLabel] = "tenant", "tenant"
			freshTexts[i%len(freshTexts)].write(p, fmt.Sprint("x", i))
			pods = append(pods, p)
			y.see(p)
			if i%100 == 99 {
				y.now += core.Second
				y.run()
				y.Explain(20)
			}
			if i%1000 == 999 { // as the scheduler does every few seconds
				y.Statuses(metav1.NewTime(startOfTime))
			}
			if len(pods) > there {
				y.podGone(pods[0].UID)
				pods = pods[1:]
			}
		}
		for _, p := range pods {
			y.podGone(p.UID)
		}
		for range 2 + there/20 { // a part of those that are gone is dropped in each
			y.run()
			y.Explain(20)
		}
		y.Statuses(metav1.NewTime(startOfTime))
		y.others()
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}

	// 1. Tables grow to the size that so many pods at a time need.
	churn(0, 2*there)
	empty, before, cost := left(y), heap(), testing.AllocsPerRun(50, y.others)

	// 2. Nothing more is left of any number of them.
	churn(2*there, all)
	for name, is := range left(y) {
		if is > empty[name] {
			t.Errorf("%d %s are left; expected %d", is, name, empty[name])
		}
	}
	after := heap()
	t.Logf("heap: %d KiB before, %d KiB after %d pods", before>>10, after>>10, all)
	// The mix of requests has 16,384 of them, and some lists are kept until there are thousands.
	if over := int64(after) - int64(before); over > 6<<20 {
		t.Errorf("%d bytes are left of each of %d pods", over/int64(all), all)
	}
	if now := testing.AllocsPerRun(50, y.others); now > cost+50 {
		t.Errorf("a pod of others takes %.0f allocations; expected %.0f, as before", now, cost)
	}
	runtime.KeepAlive(y)
}
