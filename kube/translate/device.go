package translate

import (
	"cmp"
	"math"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/core/cluster"
)

// From the devices that drivers publish by dynamic resource allocation (DRA) to
// the engine's.

// gpuDrivers are the DRA drivers whose devices of type gpu (or of no type) are
// the GPUs of a node.
var gpuDrivers = map[string]bool{"gpu.nvidia.com": true, "gpu.amd.com": true, "gpu.intel.com": true, "npu.rebellions.ai": true}

// nicDrivers are the DRA drivers whose devices are network interfaces.
var nicDrivers = map[string]bool{"dra.net": true, "sriovnetwork.k8snetworkplumbingwg.io": true}

// Attributes of devices, by what they are called, the first that is there.
// Names without a domain are the driver's own.
var (
	indexAttributes   = []resourceapi.QualifiedName{"index", "minor"}
	productAttributes = []resourceapi.QualifiedName{"productName", "product", "model"}
	numaAttributes    = []resourceapi.QualifiedName{"resource.kubernetes.io/numaNode", "numaNode", "numa"}
	rootAttributes    = []resourceapi.QualifiedName{"resource.kubernetes.io/pcieRoot", "pcieRoot"}
)

// DeviceID names a device in the cluster.
type DeviceID struct{ Driver, Pool, Name string }

// Device is a device as its driver publishes it.
type Device struct {
	DeviceID
	Attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
	Capacity   map[resourceapi.QualifiedName]resourceapi.DeviceCapacity
	// Tainted says that a taint keeps claims off it.
	Tainted bool
	// Counters are the sets of counters of its pool that it takes from: devices
	// that have one in common may be parts of each other.
	Counters []string
	// unfit is set if several claims can have it at once, or only after conditions: it is
	// not used.
	unfit bool
}

// Slice is what is kept of a ResourceSlice whose devices are on one node.
type Slice struct {
	Name, Node, Driver, Pool string
	// Generation of the pool, and how many slices it has.
	Generation, Slices int64
	Devices            []Device
}

// SliceOf cuts a ResourceSlice down. Node is empty where the devices are not
// those of one node: they are not used.
func SliceOf(s *resourceapi.ResourceSlice) *Slice {
	o := &Slice{
		Name: s.Name, Node: ptr.Deref(s.Spec.NodeName, ""), Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name,
		Generation: s.Spec.Pool.Generation, Slices: s.Spec.Pool.ResourceSliceCount,
	}
	if o.Node == "" {
		return o
	}
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		out := Device{
			DeviceID:   DeviceID{Driver: o.Driver, Pool: o.Pool, Name: d.Name},
			Attributes: d.Attributes, Capacity: d.Capacity,
			unfit: ptr.Deref(d.AllowMultipleAllocations, false) || len(d.BindingConditions) > 0,
		}
		for j := range d.Taints {
			out.Tainted = out.Tainted || keepsOff(d.Taints[j].Effect)
		}
		for j := range d.ConsumesCounters {
			out.Counters = append(out.Counters, d.ConsumesCounters[j].CounterSet)
		}
		o.Devices = append(o.Devices, out)
	}
	return o
}

// attribute returns the first of the attributes that the device has.
func (d *Device) attribute(names []resourceapi.QualifiedName) (resourceapi.DeviceAttribute, bool) {
	for _, n := range names {
		if a, ok := d.Attributes[n]; ok {
			return a, true
		}
		if !strings.Contains(string(n), "/") {
			if a, ok := d.Attributes[resourceapi.QualifiedName(d.Driver)+"/"+n]; ok {
				return a, true
			}
		}
	}
	return resourceapi.DeviceAttribute{}, false
}

func (d *Device) text(names []resourceapi.QualifiedName) string {
	a, _ := d.attribute(names)
	return ptr.Deref(a.StringValue, "")
}

// number returns a whole number of at most 127, -1 when there is none.
func (d *Device) number(names []resourceapi.QualifiedName) int {
	a, ok := d.attribute(names)
	if !ok || a.IntValue == nil || *a.IntValue < 0 || *a.IntValue > math.MaxInt8 {
		return -1
	}
	return int(*a.IntValue)
}

func (d *Device) isGPU() bool {
	kind := d.text([]resourceapi.QualifiedName{"type"})
	return gpuDrivers[d.Driver] && !d.unfit && (kind == "" || kind == "gpu")
}

func (d *Device) isNIC() bool {
	rdma, ok := d.attribute([]resourceapi.QualifiedName{"rdma"})
	return nicDrivers[d.Driver] && !d.unfit && (!ok || rdma.BoolValue == nil || *rdma.BoolValue)
}

// Inventory is the devices that the slices of a node publish.
type Inventory struct {
	// GPUs and NICs have their place by the engine's number; a place whose Name
	// is empty has no device now.
	GPUs, NICs []Device
	// Parts are devices that are neither: partitions of GPUs, and what takes from the same counters.
	Parts []Device
	// Layout is where the GPUs are in the node.
	Layout []cluster.DeviceSpec
	// Product is the model of the GPUs, as [Model] writes it; those of another
	// model are not used.
	Product string
	// Paired is set if every GPU has a nearest NIC that is not the nearest of another
	// GPU.
	Paired bool
	// Complete says that all slices of the pools were there.
	Complete bool
}

// InventoryOf reads the slices of a node. GPUs are numbered as their driver
// numbers them, else by name.
func InventoryOf(list []*Slice) *Inventory {
	v := &Inventory{Complete: true}
	type pool struct{ driver, name string }
	newest, count := map[pool]int64{}, map[pool]int64{}
	for _, s := range list {
		p := pool{s.Driver, s.Pool}
		if s.Generation > newest[p] {
			newest[p], count[p] = s.Generation, 0
		}
		if s.Generation == newest[p] {
			count[p]++
		}
	}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b *Slice) int { return cmp.Compare(a.Name, b.Name) })
	var gpus []Device
	for _, s := range list {
		p := pool{s.Driver, s.Pool}
		if s.Generation < newest[p] {
			continue
		}
		v.Complete = v.Complete && count[p] == s.Slices
		for _, d := range s.Devices {
			switch {
			case d.isGPU():
				gpus = append(gpus, d)
			case d.isNIC():
				v.NICs = append(v.NICs, d)
			case len(d.Counters) > 0, gpuDrivers[d.Driver] && d.text([]resourceapi.QualifiedName{"type"}) == "mig":
				v.Parts = append(v.Parts, d)
			}
		}
	}
	byName := func(a, b Device) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Driver, b.Driver))
	}
	slices.SortFunc(gpus, byName)
	slices.SortFunc(v.NICs, byName)
	v.number(gpus)
	v.pair()
	return v
}

// number gives the GPUs their places.
func (v *Inventory) number(gpus []Device) {
	taken, own := map[int]bool{}, true
	for i := range gpus {
		n := gpus[i].number(indexAttributes)
		if n < 0 || n >= cluster.MaxGPUs || taken[n] {
			own = false
			break
		}
		taken[n] = true
	}
	for i := range gpus {
		place := i
		if own {
			place = gpus[i].number(indexAttributes)
		}
		for len(v.GPUs) <= place {
			v.GPUs = append(v.GPUs, Device{})
		}
		v.GPUs[place] = gpus[i]
		if v.Product == "" {
			v.Product = plainModel(strings.ReplaceAll(gpus[i].text(productAttributes), " ", "-"))
		}
	}
}

// maxNICs is how many NICs of a node the engine can tell apart.
const maxNICs = 64

// pair finds where each GPU is, and its nearest NIC: one on the same PCIe root, else on the same
// NUMA node. NICs that are equally near are assigned in turn.
func (v *Inventory) pair() {
	used := make([]int, len(v.NICs))
	roots := map[string]int8{}
	v.Paired = len(v.GPUs) > 0
	for i := range v.GPUs {
		g := &v.GPUs[i]
		at := cluster.DeviceSpec{PCIe: -1, NUMA: int8(g.number(numaAttributes)), NIC: -1}
		root := g.text(rootAttributes)
		if root != "" {
			if _, ok := roots[root]; !ok {
				roots[root] = int8(len(roots))
			}
			at.PCIe = roots[root]
		}
		best := 0
		for j := range v.NICs[:min(len(v.NICs), maxNICs)] {
			n := &v.NICs[j]
			near := 0
			if root != "" && root == n.text(rootAttributes) {
				near = 2
			} else if at.NUMA >= 0 && int(at.NUMA) == n.number(numaAttributes) {
				near = 1
			}
			if near > best || near == best && near > 0 && used[j] < used[at.NIC] {
				best, at.NIC = near, int8(j)
			}
		}
		if at.NIC >= 0 {
			used[at.NIC]++
		}
		v.Layout = append(v.Layout, at)
	}
	for i := range v.Layout {
		if nic := v.Layout[i].NIC; v.GPUs[i].Name != "" && (nic < 0 || used[nic] != 1) {
			v.Paired = false
		}
	}
}

// Unusable returns the places of GPUs that nothing may be placed on: tainted, of
// another model, or without a device; and those that share counters with a
// device for which inUse holds. tainted says which devices the rules of the
// cluster taint beside.
func (v *Inventory) Unusable(tainted func(DeviceID) bool, inUse func(DeviceID) bool) uint64 {
	var set uint64
	for i := range v.GPUs {
		g := &v.GPUs[i]
		other := plainModel(strings.ReplaceAll(g.text(productAttributes), " ", "-")) != v.Product
		bad := g.Name == "" || g.Tainted || other || tainted(g.DeviceID)
		for j := 0; j < len(v.Parts) && !bad; j++ {
			p := &v.Parts[j]
			bad = p.Pool == g.Pool && slices.ContainsFunc(p.Counters, func(c string) bool { return slices.Contains(g.Counters, c) }) && inUse(p.DeviceID)
		}
		if bad {
			set |= 1 << i
		}
	}
	return set
}

// TaintRule is what is kept of a DeviceTaintRule, which taints devices beside what
// their drivers say.
type TaintRule struct {
	Name                 string
	driver, pool, device *string
	none                 bool // it keeps nothing off
}

// TaintRuleOf cuts a rule down.
func TaintRuleOf(r *resourceapi.DeviceTaintRule) *TaintRule {
	o := &TaintRule{Name: r.Name}
	if s := r.Spec.DeviceSelector; s != nil {
		o.driver, o.pool, o.device = s.Driver, s.Pool, s.Device
	}
	o.none = r.Spec.DeviceSelector == nil || !keepsOff(r.Spec.Taint.Effect)
	return o
}

// Concerns reports whether the rule may keep claims off devices of a pool.
func (r *TaintRule) Concerns(driver, pool string) bool {
	return !r.none && (r.driver == nil || *r.driver == driver) && (r.pool == nil || *r.pool == pool)
}

// Taints reports whether the rule keeps claims off a device.
func (r *TaintRule) Taints(d DeviceID) bool {
	return r.Concerns(d.Driver, d.Pool) && (r.device == nil || *r.device == d.Name)
}

// keepsOff reports whether a taint of the effect keeps claims off a device.
func keepsOff(e resourceapi.DeviceTaintEffect) bool {
	return e == resourceapi.DeviceTaintEffectNoSchedule || e == resourceapi.DeviceTaintEffectNoExecute
}

// Count returns how many GPUs there are.
func (v *Inventory) Count() int {
	n := 0
	for i := range v.GPUs {
		if v.GPUs[i].Name != "" {
			n++
		}
	}
	return n
}
