package act

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/translate"
)

// claimWorker is an actor that can write claims, on an API of these objects.
// The patches to claims that follow meet the errors in turn.
func claimWorker(t *testing.T, failures []error, objects ...runtime.Object) *Actor {
	client := fake.NewClientset(objects...)
	client.PrependReactor("patch", "resourceclaims", func(k8stesting.Action) (bool, runtime.Object, error) {
		if len(failures) == 0 {
			return false, nil, nil
		}
		err := failures[0]
		failures = failures[1:]
		return err != nil, nil, err
	})
	return New(Config{Client: client, Outcomes: &reported{}})
}

func claimNamed(name string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid"}}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "x", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: "gpu.nvidia.com", Count: 1, AllocationMode: resourceapi.DeviceAllocationModeExactCount,
	}}}
	return c
}

// allocated is an allocation of one device.
func allocated(device string) *resourceapi.AllocationResult {
	return &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
		{Request: "x", Driver: "gpu.nvidia.com", Pool: "a", Device: device},
	}}}
}

func orderOf(c *resourceapi.ResourceClaim, a *resourceapi.AllocationResult) translate.ClaimWrite {
	return translate.ClaimWrite{
		Namespace: c.Namespace, Name: c.Name, UID: c.UID, Version: "1", Allocation: a,
		Consumer: resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: "p", UID: "p"},
	}
}

func (a *Actor) claim(t *testing.T, name string) *resourceapi.ResourceClaim {
	t.Helper()
	c, err := a.client.ResourceV1().ResourceClaims("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestReserve(t *testing.T) {
	conflict := apierrors.NewConflict(resourceapi.Resource("resourceclaims"), "c", errors.New("it changed"))
	shared := claimNamed("c")
	shared.Status.Allocation = allocated("gpu-1")
	shared.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "q", UID: "q"}}
	for _, test := range []struct {
		name     string
		claim    *resourceapi.ResourceClaim
		give     *resourceapi.AllocationResult
		failures []error
		users    int
		wrong    string
	}{
		{name: "at once", claim: claimNamed("c"), give: allocated("gpu-1"), users: 1},
		{name: "after a conflict", claim: claimNamed("c"), give: allocated("gpu-1"), failures: []error{conflict}, users: 1},
		{name: "after a conflict in its status", claim: claimNamed("c"), give: allocated("gpu-1"), failures: []error{nil, conflict}, users: 1},
		{name: "one that another pod has", claim: shared, users: 2},
		{name: "one that another pod of the gang wrote", claim: shared, give: allocated("gpu-1"), failures: []error{conflict}, users: 2},
		{name: "one with other devices", claim: shared, give: allocated("gpu-2"), failures: []error{conflict}, users: 1, wrong: "it already has other devices"},
		{name: "one whose devices were taken away", claim: claimNamed("c"), failures: []error{conflict}, wrong: "it has lost its devices"},
		{name: "forbidden", claim: claimNamed("c"), give: allocated("gpu-1"),
			failures: []error{nil, apierrors.NewForbidden(resourceapi.Resource("resourceclaims"), "c", nil)}, wrong: "forbidden"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := claimWorker(t, test.failures, test.claim.DeepCopy())
			err := s.reserve(t.Context(), []translate.ClaimWrite{orderOf(test.claim, test.give)})
			c := s.claim(t, "c")
			if test.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), test.wrong) {
					t.Errorf("it is %v; want %s", err, test.wrong)
				}
			} else if err != nil || c.Status.Allocation == nil || c.Status.Allocation.Devices.Results[0].Device != "gpu-1" {
				t.Errorf("%v: the claim is %+v", err, c.Status)
			}
			if len(c.Status.ReservedFor) != test.users {
				t.Errorf("it is reserved for %+v", c.Status.ReservedFor)
			}
			if len(c.Finalizers) != 1 && test.give != nil && test.wrong == "" && test.users == 1 {
				t.Errorf("its finalizers are %v", c.Finalizers)
			}
		})
	}
}

// When the second claim of a pod cannot be had, the first is given back, and the
// pod is not taken for gone because a claim is.
func TestReserveGivesBack(t *testing.T) {
	c, other := claimNamed("c"), claimNamed("other")
	s := claimWorker(t, nil, c)
	err := s.reserve(t.Context(), []translate.ClaimWrite{orderOf(c, allocated("gpu-0")), orderOf(other, allocated("gpu-1"))})
	if err == nil || apierrors.IsNotFound(err) {
		t.Errorf("it is %v", err)
	}
	if c := s.claim(t, "c"); c.Status.Allocation != nil || len(c.Status.ReservedFor) > 0 {
		t.Errorf("the first claim is %+v", c.Status)
	}
}

// The claim for a resource is made, filled and told of; and deleted when the pod
// does not start.
func TestExtend(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"}}
	p.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1alpha1.GPUResource: resource.MustParse("2")}}}}
	o := &Bind{Pod: podNamed("p"), Node: "a", Extended: &Extended{
		Resource: v1alpha1.GPUResource, Class: "gpu.nvidia.com",
		Devices: []translate.DeviceID{{Driver: "gpu.nvidia.com", Pool: "a", Name: "gpu-0"}, {Driver: "gpu.nvidia.com", Pool: "a", Name: "gpu-3"}},
	}}
	s := claimWorker(t, nil, p)
	if err := s.extend(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	list, err := s.client.ResourceV1().ResourceClaims("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("there are %d claims (%v)", len(list.Items), err)
	}
	c := &list.Items[0]
	if got := translate.AllocatedDevices(c.Status.Allocation); len(got) != 2 || got[1].Name != "gpu-3" || !metav1.IsControlledBy(c, p) {
		t.Errorf("the claim is %+v", c)
	}
	p, err = s.client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil || p.Status.ExtendedResourceClaimStatus == nil || p.Status.ExtendedResourceClaimStatus.RequestMappings[0].ContainerName != "main" {
		t.Errorf("the pod's status is %+v (%v)", p.Status, err)
	}
	s.unextend(t.Context(), o)
	if list, err = s.client.ResourceV1().ResourceClaims("default").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("there are %d claims (%v)", len(list.Items), err)
	}
}
