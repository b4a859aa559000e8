package pause

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/translate"
)

// A paused pod requests no CPU, and the memory of what was on its GPUs beside its own: the kubelet then admits those that use its CPU, and
// no others for which there is no memory. Its memory grows before the pause, and its CPU is given back after that; to go on, the other way
// round.

// defaultContainer names the container of a pod that people mean: kubectl's annotation.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// hadOf returns what a pod has, before it is resized.
func hadOf(p *v1.Pod) *objects.Had {
	a := translate.Requests(p)
	had := &objects.Had{CPUMilli: a.CPUMilli, MemMiB: a.MemMiB, Containers: map[string]objects.HadContainer{}}
	for _, c := range objects.Resizable(p) {
		had.Containers[c.Name] = objects.HadContainer{
			CPU: text(c.Resources.Requests, v1.ResourceCPU), Memory: text(c.Resources.Requests, v1.ResourceMemory), MemoryLimit: text(c.Resources.Limits, v1.ResourceMemory),
		}
	}
	return had
}

func text(list v1.ResourceList, name v1.ResourceName) string {
	if q, ok := list[name]; ok {
		return q.String()
	}
	return ""
}

// holder is the container whose memory grows: that in which the processes are, as far as can be known.
func holder(p *v1.Pod) string {
	name := p.Annotations[defaultContainer]
	for i := range p.Spec.Containers {
		if p.Spec.Containers[i].Name == name {
			return name
		}
	}
	return p.Spec.Containers[0].Name
}

// shape is what a pod has of what it had.
type shape struct {
	cpu   bool  // its CPU
	image int64 // MiB of memory beside its own
}

// resize returns a patch of the subresource resize that gives a pod a shape; nil if it has that. An error says that what it had is not
// known of a container, or makes no sense.
func resize(p *v1.Pod, had *objects.Had, to shape) ([]byte, error) {
	type values map[v1.ResourceName]string
	type container struct {
		Name      string            `json:"name"`
		Resources map[string]values `json:"resources"`
	}
	lists := map[string][]container{}
	for _, c := range objects.Resizable(p) {
		was, ok := had.Containers[c.Name]
		if !ok {
			return nil, fmt.Errorf("what container %s had is not known", c.Name)
		}
		if !to.cpu && was.CPU != "" {
			was.CPU = "0"
		}
		if to.image > 0 && c.Name == holder(p) {
			if was.Memory == "" {
				was.Memory = "0" // QoS stays Burstable by another container
			}
			for _, q := range []*string{&was.Memory, &was.MemoryLimit} {
				if *q == "" {
					continue
				}
				own, err := resource.ParseQuantity(*q)
				if err != nil {
					return nil, fmt.Errorf("container %s had memory %q: %w", c.Name, *q, err)
				}
				own.Add(*resource.NewQuantity(to.image<<20, resource.BinarySI))
				*q = own.String()
			}
		}
		requests, limits := values{}, values{}
		differs := func(into values, list v1.ResourceList, name v1.ResourceName, want string) error {
			if want == "" {
				return nil
			}
			q, err := resource.ParseQuantity(want)
			if err != nil {
				return fmt.Errorf("container %s had %s %q: %w", c.Name, name, want, err)
			}
			if has, ok := list[name]; !ok || has.Cmp(q) != 0 {
				into[name] = want
			}
			return nil
		}
		for _, err := range []error{
			differs(requests, c.Resources.Requests, v1.ResourceCPU, was.CPU), differs(requests, c.Resources.Requests, v1.ResourceMemory, was.Memory),
			differs(limits, c.Resources.Limits, v1.ResourceMemory, was.MemoryLimit),
		} {
			if err != nil {
				return nil, err
			}
		}
		if len(requests)+len(limits) == 0 {
			continue
		}
		of := "containers"
		if c.RestartPolicy != nil {
			of = "initContainers"
		}
		lists[of] = append(lists[of], container{c.Name, map[string]values{"requests": requests, "limits": limits}})
	}
	if len(lists) == 0 {
		return nil, nil
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": types.UID(p.UID)}, "spec": lists})
}

// resized reports whether the kubelet has given a pod what its spec says; an error says that it will not.
func resized(p *v1.Pod) (bool, error) {
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		if c.Status != v1.ConditionTrue {
			continue
		}
		switch c.Type {
		case v1.PodResizePending:
			if c.Reason == v1.PodReasonInfeasible {
				return false, fmt.Errorf("the kubelet cannot resize it: %s", c.Message)
			}
			return false, nil
		case v1.PodResizeInProgress:
			return false, nil
		}
	}
	has := map[string]*v1.ResourceRequirements{}
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			has[list[i].Name] = list[i].Resources
		}
	}
	for _, c := range objects.Resizable(p) {
		r := has[c.Name]
		if r == nil {
			continue // a kubelet that does not say it
		}
		cpu, want := r.Requests.Cpu(), c.Resources.Requests.Cpu()
		// A container without a request has the fewest shares that there are, which some kubelets report as 2m.
		if cpu.Cmp(*want) != 0 && !(want.IsZero() && cpu.MilliValue() <= 2) {
			return false, nil
		}
		if r.Requests.Memory().Cmp(*c.Resources.Requests.Memory()) != 0 || r.Limits.Memory().Cmp(*c.Resources.Limits.Memory()) != 0 {
			return false, nil
		}
	}
	return true, nil
}
