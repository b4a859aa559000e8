package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

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

// GPUs writes an amount in GPUs: "2", "0.25", "-1.5".
func (m Milli) GPUs() string {
	if m < 0 {
		return "-" + (-m).GPUs()
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%03d", m/WholeGPU, m%WholeGPU), "0"), ".")
}

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
	// no PCIe switch is known, and each device has the NIC of its own index.
	Devices []DeviceSpec
	// Sets names sets of the devices, sorted by name: see [Request.From].
	Sets []DeviceSet
	// Unhealthy lists the devices that may not be used, by index.
	Unhealthy []int
	// CPUMilli is in thousandths of a core; MemMiB in MiB; both 0..MaxAmount.
	CPUMilli, MemMiB int64
	// MaxPods is the most pods the node takes, at most 32,766; 0 is no limit.
	MaxPods int
	// Others is what the node has of other resources, sorted by name; it has 0 of those
	// that are missing.
	Others []Amount
	Labels map[string]string
	Taints []Taint
	// Domains names the topology domain of the node at each configured level,
	// widest first. A domain is identified by its whole path, so names need not
	// be unique. A missing or empty name means that the place is unknown: such
	// nodes are never near enough for a required level.
	Domains []string
	// HBD names the scale-up domain (NVLink across nodes); empty when none.
	HBD string
	// Cordoned keeps new pods off the node.
	Cordoned bool
	// Blind says that the node picks devices for pods of [NodePicks] and does not know those of [EnginePicks], which it
	// may pick again. So it never has pods of both at once.
	Blind bool
}

// DeviceSpec is the position of a GPU in its node.
type DeviceSpec struct {
	// Island numbers the NVLink island, PCIe the PCIe switch, NUMA the NUMA node, NIC the
	// nearest RDMA NIC; -1 if none.
	Island, PCIe, NUMA, NIC int8
}

// Taint repels pods that do not tolerate it. All taints keep pods off, but for soft ones; Effect tells apart those that
// a driver has several kinds of, and may be empty.
type Taint struct{ Key, Value, Effect string }

// PreferNoSchedule is the effect of soft taints.
const PreferNoSchedule = "PreferNoSchedule"

// Soft reports whether the taint keeps no pods off: those that do not tolerate it would rather be elsewhere, by
// [MaxWeight].
func (t *Taint) Soft() bool { return t.Effect == PreferNoSchedule }

// Toleration lets a pod onto nodes with a taint. An empty Key matches every key, an empty Value every
// value, an empty Effect every effect.
type Toleration struct{ Key, Value, Effect string }

// Bears reports whether the toleration lets a pod onto nodes with the taint.
func (t *Toleration) Bears(o *Taint) bool {
	return (t.Key == "" || t.Key == o.Key) && (t.Value == "" || t.Value == o.Value) && (t.Effect == "" || t.Effect == o.Effect)
}

// Op is the relation of a [Requirement].
type Op uint8

// The relations a label of a node may have to a requirement's values.
const (
	In Op = iota
	NotIn
	Exists
	DoesNotExist
	// Gt and Lt hold where the label is a whole number greater, or less, than the
	// only value, which is one too; not where it is missing or something else.
	Gt
	Lt
)

// Requirement is one condition on a node's labels; several must all hold.
type Requirement struct {
	Key    string
	Op     Op
	Values []string
}

// Term asks that a pod be placed in (or, with Anti, out of) a topology domain
// of Level that already hosts a pod carrying Label. Level is a level's name, [NodeLevel],
// [HBDLevel], or [LabelLevel] and the key of a label of nodes. Nodes whose domain is not
// known are used with Anti only, as they are in no domain with another pod. With Anti it
// holds both ways: pods with Label are not placed in the domain of the pod.
//
// With MaxSkew it asks instead that pods with Label be spread: the domain hosts, the
// new pod included if it carries Label, at most MaxSkew more of them than the
// eligible domain that hosts the fewest. Eligible are the domains with a node,
// cordoned or not, that the pod's models, selectors and tolerations accept.
type Term struct {
	Level string
	Label string
	Anti  bool
	// MaxSkew is 0 for affinities, and greater only without Anti. With fewer than
	// MinDomains eligible domains, the fewest that a domain hosts counts as 0.
	MaxSkew, MinDomains int
	// With MaxSkew, AnyTaint makes domains eligible whatever the taints of their nodes, AnyLabel
	// whatever the labels and the models. Pods with GPUs still count nodes with GPUs only.
	AnyTaint, AnyLabel bool
}

// Level names that exist in every topology.
const (
	NodeLevel = "node"
	HBDLevel  = "hbd"
)

// LabelLevel begins the names of levels for terms whose domains are the nodes with the same value of a
// label, whose key follows.
const LabelLevel = "label="

// Picker says who picks the devices of a pod. It matters on nodes that are [NodeSpec.Blind].
type Picker uint8

const (
	// AnyPicker is of pods that may be beside any others.
	AnyPicker Picker = iota
	// EnginePicks is of pods that get the devices, or the part of one, that the engine picks.
	EnginePicks
	// NodePicks is of pods that get the devices that their node picks, as many as the engine counts.
	NodePicks
)

// Pickers are the names of pickers.
var Pickers = [...]string{AnyPicker: "any", EnginePicks: "engine", NodePicks: "node"}

// Request is what one pod needs.
type Request struct {
	// GPU is below WholeGPU for a part of one shared device, or a multiple of
	// WholeGPU for whole devices; 0 for a pod without GPUs.
	GPU Milli
	// Picker says who picks the devices; nothing for a pod without any: see [Request.Picks].
	Picker Picker
	// From says how many of the whole GPUs must be of which device sets of the node ([NodeSpec.Sets]), sorted by name;
	// the others may be any. A node that does not name the set has no such devices.
	From []Amount
	// CPUMilli is in thousandths of a core; MemMiB in MiB; both 0..MaxAmount.
	CPUMilli, MemMiB int64
	// Others is what the pod takes of other resources, sorted by name.
	Others []Amount
	// Models lists the GPU models the pod accepts; empty accepts any.
	Models []string
	// Speeds has for each of Models how fast the pod works there, in thousandths of the speed
	// for which run times hold, 1..1e6; empty if it is the same on all.
	Speeds []int64
	// All requirements of Selector must hold for the node and, if AnyOf is not empty, all
	// requirements of one of its alternatives.
	Selector []Requirement
	AnyOf    [][]Requirement
	// Tolerations lists the taints that the pod tolerates.
	Tolerations []Toleration
}

// Picks returns who picks the devices of the pod, AnyPicker if it has none.
func (r *Request) Picks() Picker {
	if r.GPU == 0 {
		return AnyPicker
	}
	return r.Picker
}

// Equal reports whether two requests are the same, in the same form.
func (r *Request) Equal(o *Request) bool {
	return r.GPU == o.GPU && r.Picker == o.Picker && slices.Equal(r.From, o.From) && r.CPUMilli == o.CPUMilli && r.MemMiB == o.MemMiB && slices.Equal(r.Others, o.Others) && slices.Equal(r.Models, o.Models) && slices.Equal(r.Speeds, o.Speeds) &&
		equalSelectors(r.Selector, o.Selector) && slices.EqualFunc(r.AnyOf, o.AnyOf, equalSelectors) && slices.Equal(r.Tolerations, o.Tolerations)
}

func equalSelectors(a, b []Requirement) bool {
	return slices.EqualFunc(a, b, func(r, o Requirement) bool {
		return r.Key == o.Key && r.Op == o.Op && slices.Equal(r.Values, o.Values)
	})
}

// Check reports what is wrong with a request's amounts and selectors.
func (r *Request) Check() error {
	if err := checkRoom(r.CPUMilli, r.MemMiB); err != nil {
		return err
	}
	if err := checkAmounts(r.Others); err != nil {
		return err
	}
	if int(r.Picker) >= len(Pickers) {
		return fmt.Errorf("picker %d, expected 0..%d", r.Picker, len(Pickers)-1)
	}
	if err := r.checkFrom(); err != nil {
		return err
	}
	if len(r.Speeds) > 0 && len(r.Speeds) != len(r.Models) {
		return fmt.Errorf("%d speeds, expected one for each of %d GPU models", len(r.Speeds), len(r.Models))
	}
	for _, m := range r.Models {
		if err := CheckModel(m); err != nil {
			return err
		}
	}
	for _, s := range r.Speeds {
		if s < 1 || s > maxSpeed {
			return fmt.Errorf("speed %d, expected 1..%d", s, maxSpeed)
		}
	}
	for _, selector := range append([][]Requirement{r.Selector}, r.AnyOf...) {
		for k := range selector {
			if err := selector[k].Check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Check reports what is wrong with a requirement.
func (r *Requirement) Check() error {
	if r.Op > Lt {
		return fmt.Errorf("label %s: unknown relation %d", r.Key, r.Op)
	}
	if r.Op == Gt || r.Op == Lt {
		if len(r.Values) != 1 {
			return fmt.Errorf("label %s: %d values to compare with, expected 1", r.Key, len(r.Values))
		}
		if _, err := strconv.ParseInt(r.Values[0], 10, 64); err != nil {
			return fmt.Errorf("label %s: %q to compare with, expected a whole number", r.Key, r.Values[0])
		}
	}
	return nil
}

// Allows reports whether labels satisfy the request's selector and alternatives.
func (r *Request) Allows(labels map[string]string) bool {
	return matches(r.Selector, labels) &&
		(len(r.AnyOf) == 0 || slices.ContainsFunc(r.AnyOf, func(rs []Requirement) bool { return matches(rs, labels) }))
}

// matches reports whether labels satisfy every requirement.
func matches(selector []Requirement, labels map[string]string) bool {
	for i := range selector {
		r := &selector[i]
		v, has := labels[r.Key]
		ok := false
		switch r.Op {
		case In:
			ok = has && slices.Contains(r.Values, v)
		case NotIn:
			ok = !has || !slices.Contains(r.Values, v)
		case Exists:
			ok = has
		case DoesNotExist:
			ok = !has
		case Gt, Lt:
			n, wrong := strconv.ParseInt(v, 10, 64)
			than, bad := strconv.ParseInt(r.Values[0], 10, 64)
			ok = wrong == nil && bad == nil && (r.Op == Gt && n > than || r.Op == Lt && n < than)
		}
		if !ok {
			return false
		}
	}
	return true
}
