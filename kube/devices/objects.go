package devices

import (
	"cmp"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/kube/translate"
)

// What is kept of the API's objects.

// Claim is what is kept of a ResourceClaim.
type Claim struct {
	metav1.ObjectMeta
	version   uint64
	owner     types.UID // what it was made for, empty when users made it
	deleting  bool
	finalizer bool
	spec      *translate.DeviceClaim
	wrong     string
	allocated bool
	devices   []translate.DeviceID
	node      *v1.NodeSelector // where the devices are, nil for everywhere
	consumers []resourceapi.ResourceClaimConsumerReference
}

// ClaimOf cuts a ResourceClaim down.
func ClaimOf(c *resourceapi.ResourceClaim) *Claim {
	o := &Claim{
		ObjectMeta: translate.Identity(&c.ObjectMeta), deleting: c.DeletionTimestamp != nil,
		finalizer: slices.Contains(c.Finalizers, resourceapi.Finalizer),
		consumers: c.Status.ReservedFor,
	}
	o.version, _ = strconv.ParseUint(c.ResourceVersion, 10, 64)
	if owner := metav1.GetControllerOfNoCopy(c); owner != nil {
		o.owner = owner.UID
	}
	var err error
	if o.spec, err = translate.DeviceClaimOf(&c.Spec); err != nil {
		o.wrong = err.Error()
	}
	if a := c.Status.Allocation; a != nil {
		o.allocated, o.devices, o.node = true, translate.AllocatedDevices(a), a.NodeSelector
	}
	return o
}

// Class is what is kept of a DeviceClass.
type Class struct {
	metav1.ObjectMeta
	selectors []string
	config    []resourceapi.DeviceClassConfiguration
	wrong     string
	// resource is the extended resource that its devices are; where several
	// classes have it, the last that was made has.
	resource v1.ResourceName
	created  metav1.Time
}

// ClassOf cuts a DeviceClass down.
func ClassOf(c *resourceapi.DeviceClass) *Class {
	o := &Class{
		ObjectMeta: translate.Identity(&c.ObjectMeta), config: c.Spec.Config,
		resource: v1.ResourceName(ptr.Deref(c.Spec.ExtendedResourceName, "")), created: c.CreationTimestamp,
	}
	var err error
	if o.selectors, err = translate.Expressions(c.Spec.Selectors); err != nil {
		o.wrong = err.Error()
	}
	return o
}

// ClaimRef is how a pod, or a PodGroup, refers to a claim.
type ClaimRef struct {
	// Name is what it is called in the pod; Source the claim or the template.
	Name, Source string
	Template     bool
	// Claim is the name of the ResourceClaim, empty while it has not been made;
	// None says that none is needed.
	Claim string
	None  bool
}

// PodClaims returns the claims to which a pod refers.
func PodClaims(p *v1.Pod) []ClaimRef {
	var out []ClaimRef
	for i := range p.Spec.ResourceClaims {
		c := &p.Spec.ResourceClaims[i]
		r := ClaimRef{Name: c.Name, Source: ptr.Deref(c.ResourceClaimName, ""), Claim: ptr.Deref(c.ResourceClaimName, "")}
		if c.ResourceClaimTemplateName != nil {
			r.Source, r.Template = *c.ResourceClaimTemplateName, true
			for _, s := range p.Status.ResourceClaimStatuses {
				if s.Name == c.Name {
					r.Claim, r.None = ptr.Deref(s.ResourceClaimName, ""), s.ResourceClaimName == nil
				}
			}
		}
		out = append(out, r)
	}
	return out
}

// GroupClaims returns the claims to which a PodGroup refers, without the names of those
// that are made for it.
func GroupClaims(g *schedulingv1beta1.PodGroup) []ClaimRef {
	var out []ClaimRef
	for i := range g.Spec.ResourceClaims {
		c := &g.Spec.ResourceClaims[i]
		out = append(out, ClaimRef{
			Name: c.Name, Source: cmp.Or(ptr.Deref(c.ResourceClaimName, ""), ptr.Deref(c.ResourceClaimTemplateName, "")),
			Template: c.ResourceClaimTemplateName != nil,
		})
	}
	return out
}
