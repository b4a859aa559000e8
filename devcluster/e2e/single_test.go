package e2e

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
)

const (
	byIndex = `device.attributes["gpu.nvidia.com"].index == %d`
	byUUID  = `device.attributes["gpu.nvidia.com"].uuid == %q`
)

// A claim whose selectors pick single devices gets these and no others: it waits while they are in use, though others are
// free, and gets them by preemption where it may.
func TestDRASingleDevices(t *testing.T) {
	c := begin(t)
	c.publishing(gpus(4, "H800"), []string{"a", "b"})
	high := c.priority("e2e-single", 1000)
	s := c.schedule()

	// 1. By UUID, by index, and several requests of one pod, of which the first could take what only the second accepts.
	third := c.uuid("b", 2)
	c.template("uuid", devices(1, fmt.Sprintf(byUUID, third)))
	c.create(pod("uuid", byTemplate("uuid")))
	if at := c.bound("uuid")[0]; at != "b" {
		t.Errorf("the pod is on %s, and its device on b", at)
	}
	c.has("uuid", "2")
	two := devices(1, `device.attributes["gpu.nvidia.com"].index <= 1`)
	two.Devices.Requests[0].Name = "low"
	zero := devices(1, fmt.Sprintf(byIndex, 0)).Devices.Requests[0]
	zero.Name = "zero"
	two.Devices.Requests = append(two.Devices.Requests, zero)
	c.template("two", two)
	c.create(pod("two", byTemplate("two")))
	c.has("two", "0,1")
	c.granted("two", "low", "gpu-1")
	c.granted("two", "zero", "gpu-0")

	// 2. All devices 3 are in use: the next one waits, though others are free.
	c.template("three", devices(1, fmt.Sprintf(byIndex, 3)))
	low := c.several("low", 0, 2, byTemplate("three"))
	c.phase(v1.PodRunning, low...)
	c.create(pod("next", byTemplate("three")))
	c.waits("next", "InsufficientDevices", "of the GPUs that it accepts, 2 on 2 nodes, 0 are free")
	c.create(pod("uuid-2", byTemplate("uuid")))
	c.waits("uuid-2", "InsufficientDevices", "of the GPUs that it accepts, 1 on 1 nodes, 0 are free")

	// 3. A more important one evicts who has its device, and nobody else. A restart changes nothing.
	s.stop()
	c.schedule()
	c.create(pod("high", byTemplate("uuid"), high))
	c.phase(v1.PodRunning, "high")
	c.has("high", "2")
	c.phase(v1.PodRunning, append(low, "two")...)
	c.waits("uuid-2", "InsufficientDevices")

	// 4. What is free again goes to who accepts it.
	c.delete("high")
	c.phase(v1.PodRunning, "uuid-2")
	c.has("uuid-2", "2")
	c.auditClaims()
}

// uuid returns that of a device, as its driver publishes it.
func (c *cluster) uuid(node string, device int) string {
	c.Helper()
	s, err := admin.ResourceV1().ResourceSlices().Get(ctx(), node+"-"+gpuClass, metav1.GetOptions{})
	c.must(err)
	return *s.Spec.Devices[device].Attributes["uuid"].StringValue
}

// has waits until a pod is bound, and fails the test unless it has these GPUs.
func (c *cluster) has(name, gpus string) {
	c.Helper()
	c.bound(name)
	if got := c.get(name).Annotations[v1alpha1.GPUsAnnotation]; got != gpus {
		c.Errorf("pod %s has GPUs %s, expected %s", name, got, gpus)
	}
}

// granted fails the test unless a request of the claim of a pod has a device.
func (c *cluster) granted(name, request, device string) {
	c.Helper()
	k, err := admin.ResourceV1().ResourceClaims(c.namespace).Get(ctx(), *c.get(name).Status.ResourceClaimStatuses[0].ResourceClaimName, metav1.GetOptions{})
	c.must(err)
	for _, r := range k.Status.Allocation.Devices.Results {
		if r.Request == request && r.Device == device {
			return
		}
	}
	c.Errorf("request %s of pod %s has not %s: %+v", request, name, device, k.Status.Allocation.Devices.Results)
}

// The devices of a pod that is evicted are free only when its claim is. Until then no other pod is evicted for the same
// place.
func TestDRAEvictsOnce(t *testing.T) {
	c := begin(t)
	c.publishing(gpus(4, "H800"), []string{"a", "b"})
	high := c.priority("e2e-once", 1000)
	c.schedule()
	c.template("four", devices(4))
	low := c.several("low", 0, 2, byTemplate("four"))
	c.phase(v1.PodRunning, low...)
	c.create(pod("high", byTemplate("four"), high))
	c.phase(v1.PodRunning, "high")
	left := 0
	for _, name := range low {
		if p, err := admin.CoreV1().Pods(c.namespace).Get(ctx(), name, metav1.GetOptions{}); err == nil && p.DeletionTimestamp == nil {
			left++
		}
	}
	if left != 1 {
		t.Errorf("%d of 2 pods are left, though one had to make room", left)
	}
	c.auditClaims()
}
