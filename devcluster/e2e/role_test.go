package e2e

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// apart keeps a pod off nodes that host pods with a label, near keeps it to them.
func apart(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: hostsOf(key, value)}}
	}
}

func near(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: hostsOf(key, value)}}
	}
}

func hostsOf(key, value string) []v1.PodAffinityTerm {
	return []v1.PodAffinityTerm{{
		TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}},
	}}
}

// asksCPU has a pod ask for CPUs, beside its GPUs.
func asksCPU(n string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		list := p.Spec.Containers[0].Resources.Requests.DeepCopy()
		if list == nil {
			list = v1.ResourceList{}
		}
		list[v1.ResourceCPU] = resource.MustParse(n)
		p.Spec.Containers[0].Resources.Requests = list
	}
}

// Of a gang of several roles each keeps to its own affinities, and is meant by its
// own labels: a launcher goes beside workers that keep apart.
func TestRolesOfGang(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 2)
	c.schedule()
	c.group("mpi", 3)
	worker := []func(*v1.Pod){label("role", "worker"), apart("role", "worker"), asks(8), ofGroup("mpi")}
	launcher := pod("launcher", label("role", "launcher"), asks(0), ofGroup("mpi"))
	c.create(launcher)
	workers := c.bound(c.several("worker", 0, 2, worker...)...)
	if workers[0] == workers[1] {
		t.Errorf("both workers are on %s", workers[0])
	}
	c.bound("launcher")
}

// Pods of a running gang that a selector means which comes later count each for
// itself, though they were one role until then.
func TestSelectorOfRole(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 2)
	c.schedule()
	c.group("train", 2)
	c.create(pod("master", label("role", "master"), asks(8), ofGroup("train")), pod("worker", label("role", "worker"), asks(8), ofGroup("train")))
	on := c.bound("master", "worker")
	c.create(pod("beside-master", near("role", "master"), asks(0)), pod("beside-worker", near("role", "worker"), asks(0)))
	if got := c.bound("beside-master", "beside-worker"); got[0] != on[0] || got[1] != on[1] {
		t.Errorf("beside master and worker, which are on %v, are pods on %v", on, got)
	}
	for _, name := range []string{"master", "worker"} {
		if c.get(name).DeletionTimestamp != nil {
			t.Errorf("%s was told to leave", name)
		}
	}
}

// What a running pod gives back when it is resized in place others get as soon as
// its node says so.
func TestResizedInPlace(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.schedule()
	// has says what the container has, as the kubelet would.
	has := func(cpu string) {
		c.until("the pod's status is changed", func() error {
			p := c.get("first")
			if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Running == nil {
				return errors.New("it does not run")
			}
			p.Status.ContainerStatuses[0].Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}
			_, err := admin.CoreV1().Pods(c.namespace).UpdateStatus(ctx(), p, metav1.UpdateOptions{})
			return err
		})
	}
	c.create(pod("first", asksCPU("100")))
	c.bound("first")
	has("100")
	c.create(pod("second", asksCPU("100")))
	c.waits("second", "InsufficientCPU")
	_, err := admin.CoreV1().Pods(c.namespace).Patch(ctx(), "first", types.StrategicMergePatchType,
		[]byte(`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"20"}}}]}}`), metav1.PatchOptions{}, "resize")
	c.must(err)
	c.waits("second", "InsufficientCPU")
	has("20")
	c.bound("second")
	c.create(pod("third", asksCPU("20")))
	c.waits("third", "InsufficientCPU")
}
