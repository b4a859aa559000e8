package cluster

import (
	"cmp"
	"math/bits"
	"slices"
)

// layout is how the devices of a node are linked. Nodes with the same devices share
// one layout.
type layout struct {
	// links are the groups of devices at each level, best first: NVLink islands, PCIe switches,
	// NUMA nodes. Levels at which no group has two devices are left out.
	links [][]uint64
	nic   []uint64 // the bit of the nearest NIC of each device, 0 for none
}

// defaultDevices is the layout assumed where the driver knows none.
func defaultDevices(gpus int) []DeviceSpec {
	d := make([]DeviceSpec, gpus)
	for i := range d {
		d[i] = DeviceSpec{PCIe: -1, NUMA: int8(2 * i / gpus), NIC: int8(i)}
	}
	return d
}

func newLayout(devices []DeviceSpec) *layout {
	l := &layout{nic: make([]uint64, len(devices))}
	for i, d := range devices {
		if d.NIC >= 0 {
			l.nic[i] = 1 << d.NIC
		}
	}
	for _, position := range []func(*DeviceSpec) int8{
		func(d *DeviceSpec) int8 { return d.Island },
		func(d *DeviceSpec) int8 { return d.PCIe },
		func(d *DeviceSpec) int8 { return d.NUMA },
	} {
		groups, several := map[int8]uint64{}, false
		for i := range devices {
			if g := position(&devices[i]); g >= 0 {
				several = several || groups[g] != 0
				groups[g] |= 1 << i
			}
		}
		if several {
			l.links = append(l.links, masks(groups))
		}
	}
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

// pick chooses g of the free devices with the best links between them: one NVLink island, else
// one PCIe switch, else one NUMA node, else as few of them as it takes (Kant §3.3.5). Of several
// groups it takes the one with the fewest free devices, so that large sets stay whole. It needs
// g <= the number of free devices.
func (l *layout) pick(free uint64, g int) uint64 {
	if bits.OnesCount64(free) == g {
		return free
	}
	// 1. Level by level, the best first, one group that holds them: four of two islands with four
	// and two free come from the first, and a pair from the second. Within that group one group of
	// the next level.
	var split []uint64 // the first level at which no group holds them
	for _, groups := range l.links {
		if m := tightest(groups, free, g); m != 0 {
			free = m
		} else if split == nil {
			split = groups
		}
	}
	// 2. Where no group holds them, as few groups as it takes: the fullest first.
	var out uint64
	for rest := g; rest > 0; rest = g - bits.OnesCount64(out) {
		best, bestN := uint64(0), 0
		for _, m := range split {
			if n := bits.OnesCount64(m & free &^ out); n > bestN {
				best, bestN = m&free&^out, n
			}
		}
		switch {
		case bestN == 0: // the rest are in no group
			return out | lowest(free&^out, rest)
		case bestN > rest:
			best = l.pick(best, rest)
		}
		out |= best
	}
	return out
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
		out |= l.nic[bits.TrailingZeros64(m)]
	}
	return out
}

// PickGPUs chooses g wholly free devices of a node with the best links between
// them (Kant §3.3.5), of the device sets that a names. The node has that many. beside are other pods
// of the same unit that name sets: where that is possible, they still find theirs.
func (s *State) PickGPUs(id NodeID, g int, a *Amounts, beside []Copies) uint64 {
	n := &s.nodes[id]
	if from := a.sets(); from != nil || beside != nil {
		return n.pickFrom(g, from, beside)
	}
	return n.layout.pick(n.Whole, g)
}

// NICs returns the RDMA NICs nearest to devices of a node, a bit each.
func (s *State) NICs(id NodeID, devices uint64) uint64 {
	return s.nodes[id].layout.nics(devices)
}
