package cluster

import (
	"cmp"
	"math/bits"
	"slices"
)

// layout is how the devices of a node are linked. Nodes with the same devices share
// one layout.
type layout struct {
	islands []uint64 // devices by NVLink island
	numas   []uint64 // devices by NUMA node, which is as far as PCIe reaches
	nic     []int8   // nearest NIC of each device, -1 for none
}

// defaultDevices is the layout assumed where the driver knows none.
func defaultDevices(gpus int) []DeviceSpec {
	d := make([]DeviceSpec, gpus)
	for i := range d {
		d[i] = DeviceSpec{Island: 0, NUMA: int8(2 * i / gpus), NIC: int8(i)}
	}
	return d
}

func newLayout(devices []DeviceSpec) *layout {
	l := &layout{nic: make([]int8, len(devices))}
	islands, numas := map[int8]uint64{}, map[int8]uint64{}
	for i, d := range devices {
		if d.Island >= 0 {
			islands[d.Island] |= 1 << i
		}
		if d.NUMA >= 0 {
			numas[d.NUMA] |= 1 << i
		}
		l.nic[i] = d.NIC
	}
	l.islands, l.numas = masks(islands), masks(numas)
	return l
}

// masks returns the values of m, the mask with the lowest device first.
func masks(m map[int8]uint64) []uint64 {
	var out []uint64
	for _, v := range m {
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b uint64) int {
		return cmp.Compare(bits.TrailingZeros64(a), bits.TrailingZeros64(b))
	})
	return out
}

// pick chooses g of the free devices with the best links between them: one
// NVLink island, else one NUMA node (PCIe), else as few of both as it takes
// (Kant §3.3.5). Of several it takes the one with the fewest free devices, so
// that large sets stay whole. It needs g <= the number of free devices.
func (l *layout) pick(free uint64, g int) uint64 {
	if bits.OnesCount64(free) == g {
		return free
	}
	// 1. One NVLink island: the one with the fewest free, so that four of two islands with four
	// and two free come from the first, and a pair from the second. In it one NUMA node if possible,
	// else as few as it takes.
	if m := tightest(l.islands, free, g); m != 0 {
		if n := tightest(l.numas, m, g); n != 0 {
			m = n
		}
		return lowest(l.spanning(l.numas, m, g), g)
	}
	// 2. No island has g free: one NUMA node, in it as few islands as it takes.
	if m := tightest(l.numas, free, g); m != 0 {
		return lowest(l.spanning(l.islands, m, g), g)
	}
	// 3. As few islands as it takes, wherever they are.
	return lowest(l.spanning(l.islands, free, g), g)
}

// TightestDevice returns the healthy device with the least free that holds a part of that
// size, the lowest of several; -1 if no device does, or if part is 0.
func (n *Node) TightestDevice(part Milli) int {
	best := -1
	for d := range n.Spec.GPUs {
		if part > 0 && n.FreeOn(d) >= part && (best < 0 || n.FreeOn(d) < n.FreeOn(best)) {
			best = d
		}
	}
	return best
}

// tightest returns the free devices of the group that has the fewest, but at
// least g; 0 if no group has.
func tightest(groups []uint64, free uint64, g int) uint64 {
	best, bestN := uint64(0), MaxGPUs+1
	for _, m := range groups {
		if n := bits.OnesCount64(m & free); n >= g && n < bestN {
			best, bestN = m&free, n
		}
	}
	return best
}

// spanning returns at least g of the free devices out of as few groups as it
// takes, the fullest groups first.
func (l *layout) spanning(groups []uint64, free uint64, g int) uint64 {
	var out uint64
	for bits.OnesCount64(out) < g {
		best, bestN := uint64(0), 0
		for _, m := range groups {
			if n := bits.OnesCount64(m & free &^ out); n > bestN {
				best, bestN = m&free&^out, n
			}
		}
		if bestN == 0 {
			return free // the rest belongs to no group
		}
		if need := g - bits.OnesCount64(out); bestN > need {
			best = lowest(best, need)
		}
		out |= best
	}
	return out
}

// lowest returns the g lowest bits of m.
func lowest(m uint64, g int) uint64 {
	var out uint64
	for ; g > 0; g-- {
		b := m & -m
		out |= b
		m &^= b
	}
	return out
}

// nics returns the set of NICs nearest to the devices.
func (l *layout) nics(devices uint64) uint64 {
	var out uint64
	for m := devices; m != 0; m &= m - 1 {
		if n := l.nic[bits.TrailingZeros64(m)]; n >= 0 {
			out |= 1 << n
		}
	}
	return out
}

// PickGPUs chooses g wholly free devices of a node with the best links between
// them (Kant §3.3.5). The node has that many.
func (s *State) PickGPUs(id NodeID, g int) uint64 {
	n := &s.nodes[id]
	return n.layout.pick(n.Whole, g)
}

// NICs returns the RDMA NICs nearest to devices of a node, a bit each.
func (s *State) NICs(id NodeID, devices uint64) uint64 {
	return s.nodes[id].layout.nics(devices)
}
