package translate

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/component-helpers/resource"
)

// GPUResource returns the name of the only resource by which a pod asks for whole
// GPUs, empty when there is none or several.
func GPUResource(p *v1.Pod) v1.ResourceName {
	if list := GPUResources(resource.PodRequests(p, resource.PodResourcesOptions{})); len(list) == 1 {
		return list[0]
	}
	return ""
}

// ExtendedRequests returns the requests of the claim by which a pod gets by DRA
// what its containers ask for as a resource, and which container has which. Init
// containers that end before the others begin use what the others have; an error
// says that they ask for more.
func ExtendedRequests(p *v1.Pod, name v1.ResourceName, class string) ([]resourceapi.DeviceRequest, []v1.ContainerExtendedResourceRequest, error) {
	var requests []resourceapi.DeviceRequest
	var mappings []v1.ContainerExtendedResourceRequest
	all := slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
	short := func(i int) bool {
		policy := all[i].RestartPolicy
		return i < len(p.Spec.InitContainers) && (policy == nil || *policy != v1.ContainerRestartPolicyAlways)
	}
	at := make([]int, len(all)) // the place in requests, and one
	for i := range all {
		if n := asked(&all[i], name); n > 0 && !short(i) {
			r := resourceapi.DeviceRequest{Name: requestName(i, &all[i], name), Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: n,
			}}
			requests = append(requests, r)
			at[i] = len(requests)
			mappings = append(mappings, v1.ContainerExtendedResourceRequest{ContainerName: all[i].Name, ResourceName: string(name), RequestName: r.Name})
		}
	}
	for i := range all {
		n := asked(&all[i], name)
		if n == 0 || !short(i) {
			continue
		}
		for j := i + 1; j < len(all) && n > 0; j++ {
			if at[j] > 0 {
				r := &requests[at[j]-1]
				n -= r.Exactly.Count
				mappings = append(mappings, v1.ContainerExtendedResourceRequest{ContainerName: all[i].Name, ResourceName: string(name), RequestName: r.Name})
			}
		}
		if n > 0 {
			return nil, nil, fmt.Errorf("init container %s requests %d %s more than the containers after it: not supported with DRA", all[i].Name, n, name)
		}
	}
	return requests, mappings, nil
}

func asked(c *v1.Container, name v1.ResourceName) int64 {
	q := c.Resources.Requests[name]
	return q.Value()
}

// requestName names a request after the place of its container, and of the
// resource among those that the container asks for.
func requestName(container int, c *v1.Container, name v1.ResourceName) string {
	var names []string
	for n := range c.Resources.Requests {
		names = append(names, string(n))
	}
	slices.Sort(names)
	return fmt.Sprintf("container-%d-request-%d", container, slices.Index(names, string(name)))
}
