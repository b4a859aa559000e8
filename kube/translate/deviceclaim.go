package translate

import (
	"fmt"
	"k8s.io/apimachinery/pkg/types"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/core"
)

// From claims for devices to what a pod needs, and from the devices that the
// engine chose to the allocation of a claim.

// DeviceClaim is what a ResourceClaim requests.
type DeviceClaim struct {
	Requests    []ClaimRequest
	Constraints []Constraint
	config      []resourceapi.DeviceClaimConfiguration
}

// ClaimRequest asks for devices: for those of one of the alternatives.
type ClaimRequest struct {
	Name string
	Any  []DeviceNeed
}

// DeviceNeed asks for devices of a class.
type DeviceNeed struct {
	// Name is how results name it: that of its request, and for alternatives
	// their own after a slash.
	Name, Class string
	Selectors   []string
	// Count is how many, 0 for all that a node has.
	Count       int
	tolerations []resourceapi.DeviceToleration
}

// Constraint asks that the devices of some requests (of all, where none are
// named) have an attribute and are alike in it or, with Distinct, all unlike.
type Constraint struct {
	Requests  []string
	Attribute string
	Distinct  bool
}

// DeviceClaimOf reads a claim. An error says, in the words of its author, what in it is
// not supported.
func DeviceClaimOf(s *resourceapi.ResourceClaimSpec) (*DeviceClaim, error) {
	c := &DeviceClaim{config: s.Devices.Config}
	for i := range s.Devices.Requests {
		r := &s.Devices.Requests[i]
		out := ClaimRequest{Name: r.Name}
		if e := r.Exactly; e != nil {
			if ptr.Deref(e.AdminAccess, false) {
				return nil, fmt.Errorf("request %s: adminAccess is not supported: each device is allocated to one pod at a time", r.Name)
			}
			n, err := needOf(r.Name, e.DeviceClassName, e.Selectors, e.AllocationMode, e.Count, e.Capacity, e.DerivedAttributes)
			if err != nil {
				return nil, err
			}
			n.tolerations = e.Tolerations
			out.Any = append(out.Any, n)
		}
		for j := range r.FirstAvailable {
			e := &r.FirstAvailable[j]
			n, err := needOf(r.Name+"/"+e.Name, e.DeviceClassName, e.Selectors, e.AllocationMode, e.Count, e.Capacity, e.DerivedAttributes)
			if err != nil {
				return nil, err
			}
			if j > 0 && n.Count != out.Any[0].Count {
				return nil, fmt.Errorf("request %s: the alternatives in firstAvailable request different numbers of devices; expected the same number", r.Name)
			}
			n.tolerations = e.Tolerations
			out.Any = append(out.Any, n)
		}
		if len(out.Any) == 0 {
			return nil, fmt.Errorf("request %s: expected exactly or firstAvailable", r.Name)
		}
		c.Requests = append(c.Requests, out)
	}
	for i := range s.Devices.Constraints {
		k := &s.Devices.Constraints[i]
		out := Constraint{Requests: k.Requests}
		switch {
		case k.MatchAttribute != nil:
			out.Attribute = string(*k.MatchAttribute)
		case k.DistinctAttribute != nil:
			out.Attribute, out.Distinct = string(*k.DistinctAttribute), true
		default:
			return nil, fmt.Errorf("constraint %d: expected matchAttribute or distinctAttribute", i)
		}
		c.Constraints = append(c.Constraints, out)
	}
	return c, nil
}

func needOf(name, class string, selectors []resourceapi.DeviceSelector, mode resourceapi.DeviceAllocationMode, count int64,
	capacity *resourceapi.CapacityRequirements, derived []resourceapi.DeviceDerivedAttribute,
) (DeviceNeed, error) {
	n := DeviceNeed{Name: name, Class: class}
	switch {
	case capacity != nil:
		return n, fmt.Errorf("request %s: parts of a device's capacity are not supported: expected whole devices", name)
	case len(derived) > 0:
		return n, fmt.Errorf("request %s: derived attributes are not supported", name)
	}
	switch mode {
	case resourceapi.DeviceAllocationModeExactCount, "":
		if count > 64 {
			return n, fmt.Errorf("request %s: %d devices are requested, expected at most 64", name, count)
		}
		n.Count = max(1, int(count))
	case resourceapi.DeviceAllocationModeAll:
	default:
		return n, fmt.Errorf("request %s: allocation mode %q is not supported", name, mode)
	}
	var err error
	n.Selectors, err = Expressions(selectors)
	if err != nil {
		return n, fmt.Errorf("request %s: %w", name, err)
	}
	return n, nil
}

// Expressions are the CEL conditions of selectors.
func Expressions(list []resourceapi.DeviceSelector) ([]string, error) {
	var out []string
	for i := range list {
		if list[i].CEL == nil {
			return nil, fmt.Errorf("selector %d: expected one in CEL", i)
		}
		out = append(out, list[i].CEL.Expression)
	}
	return out, nil
}

// Concerns reports whether the constraint is about the devices of a request.
func (k *Constraint) Concerns(r *ClaimRequest) bool {
	return len(k.Requests) == 0 || slices.ContainsFunc(k.Requests, func(name string) bool {
		main, _, _ := strings.Cut(name, "/")
		return main == r.Name
	})
}

// Key names the constraint: those of the same key hold together.
func (k *Constraint) Key() string { return k.Attribute + "\x00" + strconv.FormatBool(k.Distinct) }

// Holds reports whether the constraint holds for any number of GPUs and NICs of a
// node that may be chosen. aligned says that it is about one GPU and the NIC that
// is nearest to it.
func (k *Constraint) Holds(v *Inventory, gpus, nics int, aligned bool) bool {
	if gpus+nics < 2 {
		return true
	}
	if aligned && !k.Distinct {
		for i := range v.GPUs {
			if g := &v.GPUs[i]; g.Name != "" {
				if v.Layout[i].NIC < 0 {
					return false
				}
				a, _, ok := g.Qualified(k.Attribute)
				b, _, also := v.NICs[v.Layout[i].NIC].Qualified(k.Attribute)
				if !ok || !also || a != b {
					return false
				}
			}
		}
		return v.Paired
	}
	seen := map[string]bool{}
	for _, set := range []struct {
		count   int
		devices []Device
	}{{gpus, v.GPUs}, {nics, v.NICs}} {
		for i := range set.devices {
			if set.count == 0 || set.devices[i].Name == "" {
				continue
			}
			value, _, ok := set.devices[i].Qualified(k.Attribute)
			if !ok || k.Distinct && seen[value] {
				return false
			}
			seen[value] = true
		}
	}
	return k.Distinct || len(seen) == 1
}

// Qualified returns the value of the attribute of that whole name as text, which
// differs where values do; whether it is there, and is one value.
func (d *Device) Qualified(name string) (value string, there, single bool) {
	a, ok := d.Attributes[resourceapi.QualifiedName(name)]
	if domain, id, cut := strings.Cut(name, "/"); !ok && cut && domain == d.Driver {
		a, ok = d.Attributes[resourceapi.QualifiedName(id)]
	}
	switch {
	case !ok:
	case a.StringValue != nil:
		return "s" + *a.StringValue, true, true
	case a.IntValue != nil:
		return "i" + strconv.FormatInt(*a.IntValue, 10), true, true
	case a.BoolValue != nil:
		return "b" + strconv.FormatBool(*a.BoolValue), true, true
	case a.VersionValue != nil:
		return "v" + *a.VersionValue, true, true
	}
	return "", ok, false
}

// Grant is the devices that are given for a request.
type Grant struct {
	Need    *DeviceNeed
	Devices []DeviceID
	// Config is that of the class.
	Config []resourceapi.DeviceClassConfiguration
}

// Allocation writes down which devices of a node a claim has: one grant a
// request, in their order.
func (c *DeviceClaim) Allocation(node string, grants []Grant) *resourceapi.AllocationResult {
	out := &resourceapi.AllocationResult{NodeSelector: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchFields: []v1.NodeSelectorRequirement{{Key: NodeName, Operator: v1.NodeSelectorOpIn, Values: []string{node}}},
	}}}}
	type configs struct{ from, to int }
	classes := map[string]configs{}
	given := map[string]bool{}
	for i := range grants {
		g := &grants[i]
		main, _, _ := strings.Cut(g.Need.Name, "/")
		given[main], given[g.Need.Name] = true, true
		for _, d := range g.Devices {
			out.Devices.Results = append(out.Devices.Results, resourceapi.DeviceRequestAllocationResult{
				Request: g.Need.Name, Driver: d.Driver, Pool: d.Pool, Device: d.Name, Tolerations: g.Need.tolerations,
			})
		}
		at, ok := classes[g.Need.Class]
		if !ok {
			at.from = len(out.Devices.Config)
			for j := range g.Config {
				out.Devices.Config = append(out.Devices.Config, resourceapi.DeviceAllocationConfiguration{
					Source: resourceapi.AllocationConfigSourceClass, DeviceConfiguration: g.Config[j].DeviceConfiguration,
				})
			}
			at.to = len(out.Devices.Config)
			classes[g.Need.Class] = at
		}
		for j := at.from; j < at.to; j++ {
			out.Devices.Config[j].Requests = append(out.Devices.Config[j].Requests, g.Need.Name)
		}
	}
	for i := range c.config {
		k := &c.config[i]
		if len(k.Requests) == 0 || slices.ContainsFunc(k.Requests, func(r string) bool { return given[r] }) {
			out.Devices.Config = append(out.Devices.Config, resourceapi.DeviceAllocationConfiguration{
				Source: resourceapi.AllocationConfigSourceClaim, Requests: k.Requests, DeviceConfiguration: k.DeviceConfiguration,
			})
		}
	}
	return out
}

// AllocatedDevices are the devices that a claim has, without those it may only
// look at.
func AllocatedDevices(a *resourceapi.AllocationResult) []DeviceID {
	var out []DeviceID
	if a == nil {
		return nil
	}
	for i := range a.Devices.Results {
		if r := &a.Devices.Results[i]; !ptr.Deref(r.AdminAccess, false) {
			out = append(out, DeviceID{Driver: r.Driver, Pool: r.Pool, Name: r.Device})
		}
	}
	return out
}

// InNodes adds to a request that the node is one of those that a selector picks.
func InNodes(s *v1.NodeSelector, r *core.Request) error { return nodeTerms(s, r) }

// AddAlternatives adds to a request that one of the alternatives must hold,
// beside those that it has.
func AddAlternatives(r *core.Request, any [][]core.Requirement) {
	if len(r.AnyOf) == 0 {
		r.AnyOf = any
		return
	}
	r.AnyOf = product(r.AnyOf, any)
}

// ClaimWrite asks to write a claim for a pod, or to take the pod off it.
type ClaimWrite struct {
	Namespace, Name string
	UID             types.UID
	Version         string // its resource version as it was seen; empty: it is read first
	Finalizer       bool   // as it was seen it has the finalizer of allocated claims
	// Allocation is written unless the claim has it already; nil for none.
	Allocation *resourceapi.AllocationResult
	Consumer   resourceapi.ResourceClaimConsumerReference
	// Last says that no pod uses the claim any more, the consumer's other pods
	// included.
	Last bool
	// Wrong says why the devices are not available; it is empty if they are.
	Wrong string
}
