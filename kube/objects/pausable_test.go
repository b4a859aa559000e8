package objects

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/core"
)

func TestReadPausable(t *testing.T) {
	want := core.Suspension{Pause: 5 * core.Second, Resume: 10 * core.Second, HostMemMiB: 160 * 1024}
	if got, err := readPausable("pause=5s, resume=10s,memory=160Gi"); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, wrong := range []string{"", "true", "pause=5s,resume=10s", "pause=5s,resume=10s,memory=0", "pause=-5s,resume=10s,memory=1Gi", "pause=5s,resume=10s,memory=1Gi,pause=5s", "pause=5s,resume=x,memory=1Gi", "pause=5s,resume=1s,memory=1Ei1", "pause=5s,resume=1s,memory=28E474976710"} {
		if got, err := readPausable(wrong); err == nil || got != (core.Suspension{}) {
			t.Errorf("%q: %+v, %v", wrong, got, err)
		}
	}
}

func TestReadCheckpointWithin(t *testing.T) {
	if got, err := readCheckpointWithin("2m"); err != nil || got != 2*time.Minute {
		t.Errorf("%v, %v", got, err)
	}
	for _, wrong := range []string{"", "0s", "-1m", "2h", "soon"} {
		if got, err := readCheckpointWithin(wrong); err == nil || got != 0 {
			t.Errorf("%q: %v, %v", wrong, got, err)
		}
	}
}

func TestNotPausable(t *testing.T) {
	fine := func() *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Gi"),
		}}}}}}
	}
	if why := NotPausable(fine()); why != "" {
		t.Error(why)
	}
	for name, edit := range map[string]func(*v1.Pod){
		"GPUs of the kubelet": func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("1") },
		"claims":              func(p *v1.Pod) { p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu"}} },
		"Guaranteed":          func(p *v1.Pod) { p.Status.QOSClass = v1.PodQOSGuaranteed },
		"no memory":           func(p *v1.Pod) { delete(p.Spec.Containers[0].Resources.Requests, v1.ResourceMemory) },
		"init container":      func(p *v1.Pod) { p.Spec.InitContainers = []v1.Container{*p.Spec.Containers[0].DeepCopy()} },
		"restarts": func(p *v1.Pod) {
			p.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
		},
	} {
		p := fine()
		if edit(p); NotPausable(p) == "" {
			t.Errorf("%s: it can be paused", name)
		}
	}
}

// What a pod had before its pause counts while it is paused, and is read as it was written.
func TestReadPause(t *testing.T) {
	had := &Had{GPUs: 0b1100, CPUMilli: 60_000, MemMiB: 1024, Containers: map[string]HadContainer{"main": {CPU: "60", Memory: "1Gi"}}}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: v1.PodStatus{Conditions: []v1.PodCondition{
		{Type: "muster.sh/Paused", Status: v1.ConditionTrue, Reason: "Paused", Message: WithHad("paused", had)},
	}}}
	o := &Pod{}
	if o.readPause(p); o.Amounts.CPUMilli != 60_000 || o.Request.MemMiB != 1024 || o.Pause.GPUs != 0b1100 || o.Pause.Had.Containers["main"] != had.Containers["main"] {
		t.Errorf("%+v", o.Pause)
	}
	if got := WithoutPlace(p.Status.Conditions[0].Message); got != "paused" {
		t.Error(got)
	}
}
