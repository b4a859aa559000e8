package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/console"
)

// gpuClass is the device class of the GPUs that nodes publish, and their driver.
const gpuClass = "gpu.nvidia.com"

// published has a node publish its GPUs by DRA in place of the resource: the
// simulator writes its slice of what the labels say.
func published(n *v1.Node) {
	delete(n.Status.Capacity, v1alpha1.GPUResource)
	delete(n.Status.Allocatable, v1alpha1.GPUResource)
	n.Labels["nvidia.com/gpu.family"] = "hopper"
	n.Labels["nvidia.com/gpu.compute.major"], n.Labels["nvidia.com/gpu.compute.minor"] = "9", "0"
}

// publishing makes nodes that publish their GPUs, and the class of these; options
// change it first.
func (c *cluster) publishing(gpusOf func(*v1.Node), names []string, options ...func(*resourceapi.DeviceClass)) {
	c.Helper()
	for _, name := range names {
		c.node(name, gpusOf, published)
		c.until("node "+name+" publishes its GPUs", func() error {
			s, err := admin.ResourceV1().ResourceSlices().Get(ctx(), name+"-"+gpuClass, metav1.GetOptions{})
			if err == nil && s.OwnerReferences[0].UID != c.nodeUID(name) {
				err = errors.New("these are of another node of its name")
			}
			return err
		})
	}
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: gpuClass}, Spec: resourceapi.DeviceClassSpec{
		Selectors: selectors(fmt.Sprintf("device.driver == %q && device.attributes[%q].type == 'gpu'", gpuClass, gpuClass)),
	}}
	for _, o := range options {
		o(class)
	}
	_, err := admin.ResourceV1().DeviceClasses().Create(ctx(), class, metav1.CreateOptions{})
	c.must(err)
	c.Cleanup(func() { c.must(admin.ResourceV1().DeviceClasses().Delete(ctx(), gpuClass, metav1.DeleteOptions{})) })
}

func (c *cluster) nodeUID(name string) types.UID {
	c.Helper()
	n, err := admin.CoreV1().Nodes().Get(ctx(), name, metav1.GetOptions{})
	c.must(err)
	return n.UID
}

func selectors(list ...string) []resourceapi.DeviceSelector {
	var out []resourceapi.DeviceSelector
	for _, s := range list {
		out = append(out, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: s}})
	}
	return out
}

// devices requests count GPUs that match selectors.
func devices(count int64, conditions ...string) resourceapi.ResourceClaimSpec {
	return resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
		Name: "gpus", Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: gpuClass, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count, Selectors: selectors(conditions...),
		},
	}}}}
}

func (c *cluster) template(name string, spec resourceapi.ResourceClaimSpec) {
	c.Helper()
	_, err := admin.ResourceV1().ResourceClaimTemplates(c.namespace).Create(ctx(), &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec},
	}, metav1.CreateOptions{})
	c.must(err)
}

func (c *cluster) claim(name string, spec resourceapi.ResourceClaimSpec) {
	c.Helper()
	_, err := admin.ResourceV1().ResourceClaims(c.namespace).Create(ctx(), &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec,
	}, metav1.CreateOptions{})
	c.must(err)
}

// byTemplate and byClaim have a pod ask by a claim of its own, or by that one.
func byTemplate(name string) func(*v1.Pod) {
	return claiming(v1.PodResourceClaim{Name: "gpus", ResourceClaimTemplateName: &name})
}

func byClaim(name string) func(*v1.Pod) {
	return claiming(v1.PodResourceClaim{Name: "gpus", ResourceClaimName: &name})
}

func claiming(claim v1.PodResourceClaim) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.ResourceClaims = []v1.PodResourceClaim{claim}
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: claim.Name}}}
	}
}

// auditClaims fails the test unless every device is in one claim, and every pod
// that runs has claims that are reserved for it, with the devices on its node that
// its annotation says.
func (c *cluster) auditClaims() {
	c.Helper()
	list, err := admin.ResourceV1().ResourceClaims(c.namespace).List(ctx(), metav1.ListOptions{})
	c.must(err)
	holder, claims := map[string]string{}, map[string]*resourceapi.ResourceClaim{}
	for i := range list.Items {
		k := &list.Items[i]
		if claims[k.Name] = k; k.Status.Allocation == nil {
			continue
		}
		if !slices.Contains(k.Finalizers, resourceapi.Finalizer) {
			c.Errorf("claim %s has devices and no finalizer", k.Name)
		}
		for _, r := range k.Status.Allocation.Devices.Results {
			id := r.Pool + "/" + r.Device
			if holder[id] != "" {
				c.Errorf("device %s is in the claims %s and %s", id, holder[id], k.Name)
			}
			holder[id] = k.Name
		}
	}
	pods, err := admin.CoreV1().Pods(c.namespace).List(ctx(), metav1.ListOptions{})
	c.must(err)
	for i := range pods.Items {
		p := &pods.Items[i]
		var names []string
		for _, s := range p.Status.ResourceClaimStatuses {
			names = append(names, ptr.Deref(s.ResourceClaimName, ""))
		}
		if s := p.Status.ExtendedResourceClaimStatus; s != nil {
			names = append(names, s.ResourceClaimName)
		}
		for _, name := range names {
			k := claims[name]
			switch {
			case p.Status.Phase != v1.PodRunning:
			case k == nil || k.Status.Allocation == nil:
				c.Errorf("pod %s runs without devices", p.Name)
			case len(k.Status.ReservedFor) != 1 || k.Status.ReservedFor[0].UID != p.UID:
				c.Errorf("claim %s of pod %s is reserved for %+v", k.Name, p.Name, k.Status.ReservedFor)
			default:
				var got []string
				for _, r := range k.Status.Allocation.Devices.Results {
					if r.Pool != p.Spec.NodeName || r.Driver != gpuClass {
						c.Errorf("claim %s of pod %s on %s has %+v", k.Name, p.Name, p.Spec.NodeName, r)
					}
					got = append(got, strings.TrimPrefix(r.Device, "gpu-"))
				}
				slices.Sort(got) // the results are in the order of the requests
				if want := p.Annotations[v1alpha1.GPUsAnnotation]; strings.Join(got, ",") != want {
					c.Errorf("pod %s has devices %v, and its annotation is %q", p.Name, got, want)
				}
			}
		}
	}
}

// A pod that asks by claims gets the devices that the engine chose; when it ends
// they are another's; what cannot be had is said; and a scheduler that starts again
// finds everything as it is.
func TestDRA(t *testing.T) {
	c := begin(t)
	c.publishing(gpus(4, "A100"), []string{"a"})
	c.nodesNamed("h", 2, gpus(4, "H800"), published)
	s := c.schedule()
	c.template("two", devices(2))
	c.template("a100", devices(4, `device.attributes["gpu.nvidia.com"].productName.contains("A100")`))
	c.template("fourth", devices(1, `device.attributes["gpu.nvidia.com"].index == 4`))

	c.create(pod("big", byTemplate("a100")))
	if at := c.bound("big")[0]; at != "a" {
		t.Errorf("the pod for an A100 is on %s", at)
	}
	names := c.several("p", 0, 4, byTemplate("two"))
	c.phase(v1.PodRunning, append(names, "big")...)
	c.auditClaims()
	c.seesPublished()

	c.create(pod("late", byTemplate("two")), pod("picky", byTemplate("fourth")))
	c.waits("late", "Resources")
	c.waits("picky", "ResourceClaimPending", "no node publishes such a device")

	s.stop()
	c.schedule()
	c.delete(names[2])
	c.phase(v1.PodRunning, "late")
	c.auditClaims()
}

// seesPublished fails the test unless the nodes and their GPUs are seen that pods of
// TestDRA use.
func (c *cluster) seesPublished() {
	c.Helper()
	people, err := console.New(address)
	c.must(err)
	nodes, err := people.Nodes(ctx())
	c.must(err)
	var got []string
	for _, n := range nodes {
		got = append(got, fmt.Sprintf("%s %s %d %s %s", n.Name, n.Model, n.GPUs, n.Used, n.State))
	}
	if want := []string{"a A100 4 4 alloc", "h0 H800 4 4 alloc", "h1 H800 4 4 alloc"}; !slices.Equal(got, want) {
		c.Errorf("the nodes are %v, expected %v", got, want)
	}
}

// Taints close devices, until they are taken away.
func TestDRATaints(t *testing.T) {
	c := begin(t)
	c.publishing(gpus(4, "H800"), []string{"a"})
	rules := admin.ResourceV1().DeviceTaintRules()
	_, err := rules.Create(ctx(), &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "worn"}, Spec: resourceapi.DeviceTaintRuleSpec{
		DeviceSelector: &resourceapi.DeviceTaintSelector{Pool: ptr.To("a"), Device: ptr.To("gpu-1")},
		Taint:          resourceapi.DeviceTaint{Key: "worn", Effect: resourceapi.DeviceTaintEffectNoSchedule},
	}}, metav1.CreateOptions{})
	c.must(err)
	c.schedule()
	c.template("three", devices(3))
	c.template("one", devices(1))
	c.create(pod("three", byTemplate("three")))
	c.bound("three")
	if got := c.get("three").Annotations[v1alpha1.GPUsAnnotation]; got != "0,2,3" {
		t.Errorf("the pod has %s", got)
	}
	c.create(pod("one", byTemplate("one")))
	c.waits("one", "Resources")
	c.must(rules.Delete(ctx(), "worn", metav1.DeleteOptions{}))
	c.phase(v1.PodRunning, "one")
	c.auditClaims()
}

// Pods that share a claim run on the node of its devices, a gang of them too.
func TestDRAShared(t *testing.T) {
	c := begin(t)
	c.publishing(gpus(4, "H800"), []string{"a", "b"})
	c.schedule()
	c.claim("alone", devices(3))
	c.claim("gang", devices(3))
	c.create(pod("s1", byClaim("alone")), pod("s2", byClaim("alone")))
	if at := c.bound("s1", "s2"); at[0] != at[1] {
		t.Errorf("pods that share a claim are on %v", at)
	}

	c.group("g", 3, func(g *schedulingv1beta1.PodGroup) {
		g.Spec.ResourceClaims = []schedulingv1beta1.PodGroupResourceClaim{{Name: "gpus", ResourceClaimName: ptr.To("gang")}}
	})
	at := c.bound(c.several("g", 0, 3, byClaim("gang"), ofGroup("g"))...)
	claims := admin.ResourceV1().ResourceClaims(c.namespace)
	k, err := claims.Get(ctx(), "gang", metav1.GetOptions{})
	c.must(err)
	if r := k.Status.ReservedFor; len(r) != 1 || r[0].Resource != "podgroups" || r[0].Name != "g" {
		t.Errorf("the gang's claim is reserved for %+v", r)
	}
	for _, node := range at {
		if pool := k.Status.Allocation.Devices.Results[0].Pool; node != pool {
			t.Errorf("pods of the gang are on %v, and the devices of its claim on %s", at, pool)
		}
	}
	c.delete("s1", "s2")
	c.until("the claim is free", func() error {
		k, err := claims.Get(ctx(), "alone", metav1.GetOptions{})
		if err == nil && k.Status.Allocation != nil {
			err = errors.New("it has devices")
		}
		return err
	})
}

// A pod that asks for a resource which a device class provides gets devices by a
// claim that the scheduler makes.
func TestDRAExtended(t *testing.T) {
	c := begin(t)
	c.publishing(gpus(4, "H800"), []string{"a"}, func(d *resourceapi.DeviceClass) {
		d.Spec.ExtendedResourceName = ptr.To(v1alpha1.GPUResource)
	})
	s := c.schedule()
	c.create(pod("p", func(p *v1.Pod) {
		second := p.Spec.Containers[0]
		second.Name = "second"
		list := v1.ResourceList{v1alpha1.GPUResource: resource.MustParse("2")}
		second.Resources = v1.ResourceRequirements{Requests: list, Limits: list}
		p.Spec.Containers = append(p.Spec.Containers, second)
	}))
	c.phase(v1.PodRunning, "p")
	status := c.get("p").Status.ExtendedResourceClaimStatus
	if status == nil || len(status.RequestMappings) != 2 {
		t.Fatalf("the pod's claim is %+v", status)
	}
	k, err := admin.ResourceV1().ResourceClaims(c.namespace).Get(ctx(), status.ResourceClaimName, metav1.GetOptions{})
	c.must(err)
	var got []string
	for _, r := range k.Status.Allocation.Devices.Results {
		got = append(got, r.Request+":"+r.Device)
	}
	if want := "container-0-request-0:gpu-0 container-1-request-0:gpu-1 container-1-request-0:gpu-2"; strings.Join(got, " ") != want {
		t.Errorf("the claim has %v; want %s", got, want)
	}
	c.auditClaims()

	c.create(pod("q", asks(2)))
	c.waits("q", "Resources")
	s.stop()
	c.schedule()
	c.delete("p")
	c.phase(v1.PodRunning, "q")
	c.auditClaims()
}
