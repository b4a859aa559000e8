package devices

import (
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/kube/translate"
)

// How the devices that the engine chose are distributed to the claims of the pods.

// allocation is what is written into a claim.
type allocation = resourceapi.AllocationResult

// Extended is a claim to create, through which a pod gets what it requests as an extended
// resource.
type Extended struct {
	Resource v1.ResourceName
	Class    string // the DeviceClass that provides it; empty if none does any more
	Config   []resourceapi.DeviceClassConfiguration
	Devices  []translate.DeviceID
}

// Start is a pod that starts with the devices that were chosen for it.
type Start struct {
	Needs    *Needs
	Node     string
	GPUs     uint64          // the devices by number
	Resource v1.ResourceName // by which it asks for GPUs
	// Extends is set if it has no claims and is on a node described by DRA: a claim is
	// created for it.
	Extends bool
}

// Granted is what to write before a pod is bound.
type Granted struct {
	Claims   []translate.ClaimWrite
	Extended *Extended // nil for none
}

// Grant distributes devices to the claims of pods that start together, and returns what
// to write for each: the devices for the pods that carry them, and a reservation for the
// others that share them.
func (x *Index) Grant(list []Start) ([]Granted, Change) {
	wrong := map[*claim]string{}
	for i := range list {
		if list[i].Needs != nil {
			x.deal(&list[i], wrong)
		}
	}
	out := make([]Granted, len(list))
	for i := range list {
		s := &list[i]
		if s.Needs == nil {
			continue
		}
		if v := x.published[s.Node]; s.Extends && s.GPUs != 0 && v != nil {
			e := &Extended{Resource: s.Resource}
			e.Devices, _ = v.devices(s.GPUs)
			if class := x.resources[s.Resource]; class != nil {
				e.Class, e.Config = class.Name, class.config
			}
			out[i].Extended = e
		}
		for _, need := range s.Needs.claims {
			c := need.claim
			if o := c.object; o != nil {
				out[i].Claims = append(out[i].Claims, translate.ClaimWrite{
					Namespace: o.Namespace, Name: o.Name, UID: o.UID, Version: o.ResourceVersion,
					Finalizer: o.finalizer, Consumer: need.consumer, Allocation: c.granted, Wrong: wrong[c],
				})
			}
		}
	}
	return out, x.changes.take()
}

// Refuse records that what was granted to a pod was not written.
func (x *Index) Refuse(n *Needs) {
	for _, need := range n.claims {
		if need.carries {
			need.claim.granted = nil
		}
	}
}

// Claims reports whether what a pod needs includes claims.
func (n *Needs) Claims() bool { return n != nil && len(n.claims) > 0 }

// Has returns the GPUs of a pod on a node by their numbers, as its claims say: the one
// that was made for it, named by extended, or those that it carries. It is false when
// the pod has no claims.
func (x *Index) Has(n *Needs, namespace, extended, node string) ([]int, bool) {
	if extended != "" {
		if c := x.claims[types.NamespacedName{Namespace: namespace, Name: extended}]; c != nil {
			return x.gpusOf(c, node), true
		}
	}
	if !n.Claims() {
		return nil, false
	}
	var out []int
	for i := range n.claims {
		if need := &n.claims[i]; need.carries {
			out = append(out, x.gpusOf(need.claim, node)...)
		}
	}
	return out, true
}

// gpusOf returns which GPUs of a node a claim has, by the engine's numbers.
func (x *Index) gpusOf(c *claim, node string) []int {
	p := x.published[node]
	if p == nil || p.inventory == nil || c.object == nil {
		return nil
	}
	devices := c.object.devices
	if !c.object.allocated {
		devices = translate.AllocatedDevices(c.granted)
	}
	var out []int
	for i := range p.inventory.GPUs {
		if d := &p.inventory.GPUs[i]; d.Name != "" && slices.Contains(devices, d.DeviceID) {
			out = append(out, i)
		}
	}
	return out
}

// Holds reports whether the claims of a pod that is gone still have its devices: those that it carries, or the one that was made for it,
// named by extended. Claims that are reserved for others do not count: their devices go on being used.
func (x *Index) Holds(n *Needs, pod types.UID, namespace, extended string) bool {
	for k := range n.carried() {
		if o := k.object; o != nil && o.allocated && len(o.consumers) == 1 && o.consumers[0].UID == pod {
			return true
		}
	}
	c := x.Claim(namespace, extended)
	return extended != "" && c != nil && c.allocated
}

// carried yields the claims whose devices are the pod's.
func (n *Needs) carried() iter.Seq[*claim] {
	return func(yield func(*claim) bool) {
		if n == nil {
			return
		}
		for i := range n.claims {
			if need := &n.claims[i]; need.carries && !yield(need.claim) {
				return
			}
		}
	}
}

// Lift records that a pod was deleted while its claims were being written: its devices
// are not free before that has ended ([Index.Land]).
func (x *Index) Lift(pod types.UID, node string, gpus uint64) {
	if v := x.published[node]; v != nil && gpus != 0 {
		x.inFlight[pod], _ = v.devices(gpus)
	}
}

// Land records that the claims of a deleted pod are written.
func (x *Index) Land(pod types.UID) Change {
	for _, d := range x.inFlight[pod] {
		x.changes.node(x.pools[poolID{d.Driver, d.Pool}])
	}
	delete(x.inFlight, pod)
	return x.changes.take()
}

// InFlight reports whether claims of deleted pods are being written.
func (x *Index) InFlight() bool { return len(x.inFlight) > 0 }
