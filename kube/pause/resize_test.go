package pause

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func quantities(pairs ...string) v1.ResourceList {
	list := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// running is a pod of a sidecar and two containers, of which main has a memory limit.
func running() *v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "u", Annotations: map[string]string{defaultContainer: "main"}},
		Spec: v1.PodSpec{
			InitContainers: []v1.Container{{Name: "proxy", RestartPolicy: &always, Resources: v1.ResourceRequirements{Requests: quantities("cpu", "1")}}},
			Containers: []v1.Container{
				{Name: "log", Resources: v1.ResourceRequirements{Requests: quantities("memory", "1Gi")}},
				{Name: "main", Resources: v1.ResourceRequirements{Requests: quantities("cpu", "60", "memory", "100Gi"), Limits: quantities("memory", "120Gi")}},
			},
		},
	}
}

func TestResize(t *testing.T) {
	had := hadOf(running())
	if had.CPUMilli != 61_000 || had.MemMiB != 101*1024 {
		t.Errorf("it had %+v", had)
	}
	for _, x := range []struct {
		name string
		to   shape
		want string
	}{
		{"as it is", shape{cpu: true}, ""},
		{"before the pause", shape{cpu: true, image: 1024}, `{"metadata":{"uid":"u"},"spec":{"containers":[{"name":"main","resources":{"limits":{"memory":"121Gi"},"requests":{"memory":"101Gi"}}}]}}`},
		{"paused", shape{image: 1024}, `{"metadata":{"uid":"u"},"spec":{"containers":[{"name":"main","resources":{"limits":{"memory":"121Gi"},"requests":{"cpu":"0","memory":"101Gi"}}}],"initContainers":[{"name":"proxy","resources":{"limits":{},"requests":{"cpu":"0"}}}]}}`},
	} {
		got, err := resize(running(), had, x.to)
		if err != nil || string(got) != x.want {
			t.Errorf("%s: %v\n%s\nexpected\n%s", x.name, err, got, x.want)
		}
	}
	other := running()
	other.Spec.Containers[0].Name = "other"
	if _, err := resize(other, had, shape{}); err == nil {
		t.Error("a container of which nothing is known is resized")
	}
}

func TestResized(t *testing.T) {
	has := func(cpu string) *v1.Pod {
		p := running()
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", Resources: &v1.ResourceRequirements{
			Requests: quantities("cpu", cpu, "memory", "100Gi"), Limits: quantities("memory", "120Gi"),
		}}}
		return p
	}
	pending := func(reason string) *v1.Pod {
		p := has("60")
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: reason}}
		return p
	}
	paused := has("2m")
	paused.Spec.Containers[1].Resources.Requests[v1.ResourceCPU] = resource.MustParse("0")
	for _, x := range []struct {
		name      string
		pod       *v1.Pod
		done, bad bool
	}{
		{"as its spec says", has("60"), true, false},
		{"the kubelet has not seen it", has("30"), false, false},
		{"the kubelet says nothing", running(), true, false},
		{"the fewest shares", paused, true, false},
		{"deferred", pending(v1.PodReasonDeferred), false, false},
		{"infeasible", pending(v1.PodReasonInfeasible), false, true},
	} {
		if done, err := resized(x.pod); done != x.done || (err != nil) != x.bad {
			t.Errorf("%s: %v, %v", x.name, done, err)
		}
	}
}
