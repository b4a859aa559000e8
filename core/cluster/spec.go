package cluster

import "slices"

// Time is nanoseconds since an origin the driver chose. Only events carry it.
type Time int64

// Second is one second of [Time].
const Second Time = 1e9

// Never is later than every event.
const Never Time = 1<<63 - 1

// Seconds returns t in seconds.
func (t Time) Seconds() float64 { return float64(t) / float64(Second) }

// Milli counts thousandths of a GPU: 1000 is one device.
type Milli int64

// WholeGPU is one whole device.
const WholeGPU Milli = 1000

// MaxGPUs is the most devices a node may have: a device set is one 64-bit mask.
const MaxGPUs = 64

// NodeSpec describes a node as the driver knows it.
type NodeSpec struct {
	Name string
	// Model is the GPU model of every device of the node; empty when GPUs is 0.
	Model string
	// GPUs is the number of devices, 0..MaxGPUs.
	GPUs int
	// Devices gives the position of each device; nil or GPUs long. When nil,
	// the devices share one NVLink island, the NUMA nodes split them in halves,
	// and each device has the NIC of its own index.
	Devices []DeviceSpec
	// Unhealthy lists the devices that may not be used, by index.
	Unhealthy []int
	// CPUMilli is in thousandths of a core; MemMiB in MiB.
	CPUMilli, MemMiB int64
	Labels           map[string]string
	Taints           []Taint
	// Domains names the topology domain of the node at each configured level,
	// widest first. A domain is identified by its whole path, so names need not
	// be unique. A missing or empty name means that the place is unknown: such
	// nodes are never near enough for a required level.
	Domains []string
	// HBD names the scale-up domain (NVLink across nodes); empty when none.
	HBD string
	// Cordoned keeps new pods off the node.
	Cordoned bool
}

// DeviceSpec is the position of a GPU in its node.
type DeviceSpec struct {
	// Island numbers the NVLink island, NUMA the NUMA node, NIC the nearest
	// RDMA NIC; -1 when there is none.
	Island, NUMA, NIC int8
}

// Taint repels pods that do not tolerate it. All taints are NoSchedule.
type Taint struct{ Key, Value string }

// Toleration lets a pod onto nodes with a taint. An empty Value matches every
// value of Key; an empty Key every taint.
type Toleration struct{ Key, Value string }

// Op is the relation of a [Requirement].
type Op uint8

// The relations a label of a node may have to a requirement's values.
const (
	In Op = iota
	NotIn
	Exists
	DoesNotExist
)

// Requirement is one condition on a node's labels; several must all hold.
type Requirement struct {
	Key    string
	Op     Op
	Values []string
}

// Term asks that a pod be placed in (or, with Anti, out of) a topology domain
// of Level that already hosts a pod carrying Label. Level is a level's name,
// [NodeLevel] or [HBDLevel].
type Term struct {
	Level string
	Label string
	Anti  bool
}

// Level names that exist in every topology.
const (
	NodeLevel = "node"
	HBDLevel  = "hbd"
)

// Request is what one pod needs.
type Request struct {
	// GPU is below WholeGPU for a part of one shared device, or a multiple of
	// WholeGPU for whole devices; 0 for a pod without GPUs.
	GPU Milli
	// CPUMilli is in thousandths of a core; MemMiB in MiB.
	CPUMilli, MemMiB int64
	// Models lists the GPU models the pod accepts; empty accepts any.
	Models []string
	// Selector must hold for the node.
	Selector []Requirement
	// Tolerations lists the taints the pod bears.
	Tolerations []Toleration
}

// Equal reports whether two requests ask for the same, in the same words.
func (r *Request) Equal(o *Request) bool {
	return r.GPU == o.GPU && r.CPUMilli == o.CPUMilli && r.MemMiB == o.MemMiB && slices.Equal(r.Models, o.Models) &&
		slices.EqualFunc(r.Selector, o.Selector, Requirement.equal) && slices.Equal(r.Tolerations, o.Tolerations)
}

func (r Requirement) equal(o Requirement) bool {
	return r.Key == o.Key && r.Op == o.Op && slices.Equal(r.Values, o.Values)
}
