package e2e

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/tables"
)

// requests gives each of so many containers the same requests.
func requests(containers int, list map[v1.ResourceName]string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		all := v1.ResourceList{}
		for name, amount := range list {
			all[name] = resource.MustParse(amount)
		}
		limits := all.DeepCopy()
		delete(limits, v1.ResourceCPU)
		delete(limits, v1.ResourceMemory)
		c := p.Spec.Containers[0]
		p.Spec.Containers = nil
		for i := range containers {
			c.Name = string(rune('a' + i))
			c.Resources = v1.ResourceRequirements{Requests: all, Limits: limits}
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
}

// A tenant who asks for more than there can be is told so, whatever numbers it makes when they
// are added up, and nothing of it runs. The others run, after a restart too.
func TestBeyondAllBounds(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 2)
	tenant := c.tenant()
	first := c.schedule()
	gangOf := func(name string, n int, options ...func(*v1.Pod)) (names []string) {
		options = append(options, label(v1alpha1.GangLabel, name), note(v1alpha1.MinMemberAnnotation, fmt.Sprint(n)))
		for i := range n {
			names = append(names, fmt.Sprintf("%s-%d", name, i))
			c.createAs(tenant, pod(names[i], options...))
		}
		return names
	}
	two := gangOf("two", 2, requests(1, map[v1.ResourceName]string{v1.ResourceCPU: "5P", "nvidia.com/gpu": "1"}))
	seven := gangOf("seven", 7, requests(1, map[v1.ResourceName]string{v1.ResourceCPU: "3P"}))
	c.createAs(tenant,
		pod("nine", requests(1, map[v1.ResourceName]string{v1.ResourceCPU: "9E"})),
		pod("both", requests(2, map[v1.ResourceName]string{v1.ResourceCPU: "5P"})),
		pod("sum", requests(2, map[v1.ResourceName]string{v1.ResourceCPU: "5E", v1.ResourceMemory: "5E"})),
		pod("eight", requests(1, map[v1.ResourceName]string{"nvidia.com/gpu": "2305843009213693960"})),
		pod("whole", func(p *v1.Pod) { // of the pod, and not of its container
			p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("9E")}}
		}),
		pod("at-first", func(p *v1.Pod) {
			always := v1.ContainerRestartPolicyAlways
			for i := range 2 {
				p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{
					Name: fmt.Sprint("first", i), Image: "example.com/first", RestartPolicy: &always,
					Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("5E")}},
				})
			}
		}),
		pod("nan", asks(0), note("gpu-fraction", "NaN")),
	)
	others := c.several("other", 0, 4, asks(2))
	absurd := append(append(two, seven...), "nine", "both", "sum", "eight", "whole", "at-first", "nan")
	for again := range 2 {
		c.bound(others...)
		for _, p := range absurd {
			c.waits(p, tables.ReasonMisconfigured, "expected")
		}
		c.unbound(absurd...)
		if again == 0 {
			first.stop()
			c.schedule()
			others = append(others, c.several("later", 0, 4, asks(2))...)
		}
	}
}
