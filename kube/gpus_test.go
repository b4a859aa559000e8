package kube_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// Nodes of a scenario of which single GPUs are spoken of publish them by DRA: a
// device plugin says how many are sick, and not which.

// The drivers of GPUs and of NICs, and the device class of the GPUs.
const (
	gpuDriver = "gpu.nvidia.com"
	nicDriver = "dra.net"
)

// published is a node that publishes its GPUs, and the generation of its slices.
type published struct {
	core.Node
	generation int64
}

// publish writes the ResourceSlices of a node as its drivers would, and waits until
// they are seen: its GPUs, of which those that are sick are tainted, and NICs, each
// beside the GPU of its number. Half of them are on each of two NUMA nodes, as where
// a scenario says nothing.
func (s *stage) publish(n *published) error {
	n.generation++
	if n.generation == 1 && len(s.published) == 1 {
		if err := s.provide(); err != nil {
			return err
		}
	}
	var gpus, nics []resourceapi.Device
	for i := range n.GPUs {
		where := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"resource.kubernetes.io/pcieRoot": {StringValue: ptr.To(fmt.Sprint("root", i))},
			"resource.kubernetes.io/numaNode": {IntValue: ptr.To(int64(2 * i / n.GPUs))},
		}
		nics = append(nics, resourceapi.Device{Name: fmt.Sprint("nic-", i), Attributes: where})
		d := resourceapi.Device{Name: fmt.Sprint("gpu-", i), Attributes: where}
		if slices.Contains(n.Unhealthy, i) {
			d.Taints = []resourceapi.DeviceTaint{{Key: gpuDriver + "/unhealthy", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
		}
		gpus = append(gpus, d)
	}
	return errors.Join(s.publishSlice(n, gpuDriver, gpus), s.publishSlice(n, nicDriver, nics))
}

func (s *stage) publishSlice(n *published, driver string, devices []resourceapi.Device) error {
	client := s.client.ResourceV1().ResourceSlices()
	o := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: n.Name + "-" + driver}, Spec: resourceapi.ResourceSliceSpec{
		NodeName: &n.Name, Driver: driver, Devices: devices,
		Pool: resourceapi.ResourcePool{Name: n.Name, Generation: n.generation, ResourceSliceCount: 1},
	}}
	var err error
	if n.generation == 1 {
		_, err = client.Create(context.Background(), o, metav1.CreateOptions{})
	} else {
		var old *resourceapi.ResourceSlice
		if old, err = client.Get(context.Background(), o.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		o.ResourceVersion = old.ResourceVersion
		_, err = client.Update(context.Background(), o, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	return s.saw("ResourceSlice", o.Name, "", strconv.FormatInt(n.generation, 10))
}

// provide makes the device class by which pods that ask for GPUs as a resource get
// those that are published.
func (s *stage) provide() error {
	expression := fmt.Sprintf("device.driver == %q", gpuDriver)
	o, err := s.client.ResourceV1().DeviceClasses().Create(context.Background(), &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: gpuDriver}, Spec: resourceapi.DeviceClassSpec{
			ExtendedResourceName: ptr.To(string(v1alpha1.GPUResource)),
			Selectors:            []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return s.saw("DeviceClass", o.Name, "", o.ResourceVersion)
}

// health has a GPU fail, or recover.
func (s *stage) health(ev *core.DeviceHealth) error {
	n := s.published[ev.Node]
	if n == nil {
		return errors.New("a device plugin does not say which GPU failed")
	}
	n.Unhealthy = slices.DeleteFunc(slices.Clone(n.Unhealthy), func(i int) bool { return i == ev.GPU })
	if !ev.Healthy {
		n.Unhealthy = append(n.Unhealthy, ev.GPU)
	}
	return s.publish(n)
}

// freeClaims takes away the claims of pods that are gone, as the controllers of
// Kubernetes do.
func (s *stage) freeClaims() error {
	if len(s.published) == 0 {
		return nil
	}
	client := s.client.ResourceV1().ResourceClaims(s.namespace)
	list, err := client.List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		c := &list.Items[i]
		_, err := s.client.CoreV1().Pods(s.namespace).Get(context.Background(), metav1.GetControllerOf(c).Name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			if err != nil {
				return err
			}
			continue
		}
		patch := []byte(`{"metadata":{"finalizers":null}}`)
		if _, err := client.Patch(context.Background(), c.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
		if err := client.Delete(context.Background(), c.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		if err := s.saw("ResourceClaim", c.Name, "", ""); err != nil {
			return err
		}
	}
	return nil
}

// unpublish removes what the nodes of the scenario published.
func (s *stage) unpublish() error {
	if len(s.published) == 0 {
		return nil
	}
	client := s.client.ResourceV1()
	errs := []error{client.DeviceClasses().Delete(context.Background(), gpuDriver, metav1.DeleteOptions{})}
	for name := range s.published {
		for _, driver := range []string{gpuDriver, nicDriver} {
			errs = append(errs, client.ResourceSlices().Delete(context.Background(), name+"-"+driver, metav1.DeleteOptions{}))
		}
	}
	return errors.Join(errs...)
}
