package cluster

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
)

// Node is the current state of a node. The fields are for reading.
type Node struct {
	// What a search for room looks at comes first: it fits one cache line.

	// CPU and Mem are free, in thousandths of a core and MiB; negative if the node has become
	// smaller than its pods.
	CPU, Mem int64
	// Whole is the set of healthy devices that are wholly free.
	Whole   uint64
	healthy uint64
	split   uint64 // devices of which a part is free
	Spec    *NodeSpec
	pool    int32
	closed  int16 // how many reasons it is closed for: see Close
	// reserved is how many of its pods are or may be on what its pods lend: see lent.go.
	reserved int16
	member   int32 // place in the pool's nodes
	// Up is false while the node is lost.
	Up      bool
	indexed int8  // the free count it is indexed under, -1 when it takes no pods
	left    int16 // how many more pods it takes, anyPods without a limit

	pods []Held // and, in a crowd, gaps: see Pods

	leaf    int32   // leaf group within the pool
	slot    int32   // place within the leaf group
	part    []int16 // milli-GPU free on each device, WholeGPU when untouched
	layout  *layout
	domains []int32 // domain at each level, then HBD; -1 when unknown
	dom     []int32 // the same, numbered within the pool
	others  *others // free of other resources, nil when there is none
	crowd   *crowd  // nil while the pods are few
	// A node is three cache lines, and what comes first is in one.
}

// anyPods is what is left of no limit.
const anyPods = math.MaxInt16

// PodsLeft returns how many more pods the node takes.
func (n *Node) PodsLeft() int {
	if n.left == anyPods {
		return math.MaxInt
	}
	return int(n.left)
}

// countPods brings what is left up to date with the pods on the node.
func (n *Node) countPods() {
	if n.Spec.MaxPods == 0 {
		n.left = anyPods
		return
	}
	n.left = int16(max(0, n.Spec.MaxPods-n.Count()-int(n.reserved)))
}

// Need is what pods together need of a node beside GPUs.
type Need struct {
	Pods     int
	CPU, Mem int64
	// Others is what each of the pods needs of other resources.
	Others *Amounts
	// Reserve is the share, in thousandths, of the cores of each wholly free GPU that must be
	// left on the node: see [Node.Reserved].
	Reserve int64
}

// Has reports whether the node has what pods need beside GPUs, and of the device sets that they name.
func (n *Node) Has(need Need) bool {
	return n.CPU >= need.CPU && n.Mem >= need.Mem && int(n.left) >= need.Pods &&
		(need.Reserve == 0 && need.Others == nil || n.hasBeside(&need))
}

// hasBeside is Has for what is reserved, and for other resources.
func (n *Node) hasBeside(need *Need) bool {
	return (need.Reserve == 0 || n.CPU-n.Reserved(need.Reserve) >= need.CPU) &&
		(need.Others == nil || n.Times(need.Others, need.Pods) == need.Pods)
}

// Reserved returns the cores, in thousandths, that are kept for the GPUs that are wholly free:
// for each of them a share, in thousandths, of the node's cores divided by its GPUs.
func (n *Node) Reserved(share int64) int64 {
	if n.Spec.GPUs == 0 {
		return 0
	}
	return n.Spec.CPUMilli / int64(n.Spec.GPUs) * int64(n.Free()) / 1000 * share
}

// Free returns how many devices of the node are healthy and wholly free.
func (n *Node) Free() int { return bits.OnesCount64(n.Whole) }

// HealthyGPUs returns how many devices of the node are healthy.
func (n *Node) HealthyGPUs() int { return bits.OnesCount64(n.healthy) }

// FreeOn returns the milli-GPU free on a device, WholeGPU when it is untouched;
// 0 when it is not healthy.
func (n *Node) FreeOn(gpu int) Milli {
	if n.healthy>>gpu&1 == 0 {
		return 0
	}
	return Milli(n.part[gpu])
}

// PartOn is FreeOn, of devices that are not healthy too.
func (n *Node) PartOn(gpu int) Milli { return Milli(n.part[gpu]) }

// Parts returns how many pods that each take part of a device the node's GPUs
// can hold.
func (n *Node) Parts(part Milli) int {
	k := 0
	for d, free := range n.part {
		if n.healthy>>d&1 == 1 {
			k += int(Milli(free) / part)
		}
	}
	return k
}

// FreeMilli returns how much GPU is free on healthy devices, parts included.
func (n *Node) FreeMilli() Milli {
	m := Milli(n.Free()) * WholeGPU
	for split := n.Split(); split != 0; split &= split - 1 {
		m += Milli(n.part[bits.TrailingZeros64(split)])
	}
	return m
}

// Node returns a node for reading; it stays valid until the next AddNode.
func (s *State) Node(id NodeID) *Node { return &s.nodes[id] }

// Check reports what is wrong with a node's description.
func Check(n *NodeSpec) error {
	switch {
	case n.Name == "":
		return errors.New("node without a name")
	case n.GPUs < 0 || n.GPUs > MaxGPUs:
		return fmt.Errorf("node %s: gpus must be 0..%d, found %d", n.Name, MaxGPUs, n.GPUs)
	case n.Devices != nil && len(n.Devices) != n.GPUs:
		return fmt.Errorf("node %s: %d devices described, %d expected", n.Name, len(n.Devices), n.GPUs)
	case n.MaxPods < 0 || n.MaxPods >= anyPods:
		return fmt.Errorf("node %s: at most %d pods, expected 0..%d", n.Name, n.MaxPods, anyPods-1)
	case (n.GPUs > 0) != (n.Model != ""):
		return fmt.Errorf("node %s: a GPU model is expected with GPUs, and only then", n.Name)
	}
	if err := CheckModel(n.Model); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	for _, u := range n.Unhealthy {
		if u < 0 || u >= n.GPUs {
			return fmt.Errorf("node %s: unhealthy device %d, expected 0..%d", n.Name, u, n.GPUs-1)
		}
	}
	if err := checkRoom(n.CPUMilli, n.MemMiB); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	for _, d := range n.Devices {
		if d.NIC >= 64 {
			return fmt.Errorf("node %s: NIC %d, expected below 64", n.Name, d.NIC)
		}
	}
	if err := checkAmounts(n.Others); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	if err := checkSets(n.Sets, n.GPUs); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	return nil
}

// equal reports whether nothing that may change of a node differs.
func (n *NodeSpec) equal(o *NodeSpec) bool {
	return n.CPUMilli == o.CPUMilli && n.MemMiB == o.MemMiB && n.MaxPods == o.MaxPods && n.HBD == o.HBD && slices.Equal(n.Others, o.Others) && maps.Equal(n.Labels, o.Labels) &&
		slices.Equal(n.Taints, o.Taints) && slices.Equal(n.Domains, o.Domains) && slices.Equal(n.Sets, o.Sets) && n.Blind == o.Blind
}

// Split returns the set of healthy devices of which a part is free.
func (n *Node) Split() uint64 { return n.split & n.healthy }

// PoolNumber returns the place of the node's pool in [State.Pools].
func (n *Node) PoolNumber() int { return int(n.pool) }

// Healthy returns the set of healthy devices of a node.
func (n *Node) Healthy() uint64 { return n.healthy }
