package cluster

import (
	"math/bits"
	"slices"
)

// shared files the devices that pods share by what is free on them, so that
// the tightest fit is found without a scan.
type shared struct {
	filled  [16]uint64 // which free amounts have devices
	devices [WholeGPU][]uint32
	free    Milli // in all
}

// sharedKey names a device: ordered by node, then device.
func sharedKey(id NodeID, device int) uint32 { return uint32(id)<<6 | uint32(device) }

// add files a device under what is free on it. Untouched and exhausted devices are
// not filed.
func (s *shared) add(free int16, key uint32) {
	if free <= 0 || free >= int16(WholeGPU) {
		return
	}
	list := s.devices[free]
	i, _ := slices.BinarySearch(list, key)
	s.devices[free] = slices.Insert(list, i, key)
	s.filled[free/64] |= 1 << (free % 64)
	s.free += Milli(free)
}

func (s *shared) remove(free int16, key uint32) {
	if free <= 0 || free >= int16(WholeGPU) {
		return
	}
	list := s.devices[free]
	i, ok := slices.BinarySearch(list, key)
	if !ok {
		panic("cluster: shared device is not filed")
	}
	s.devices[free] = slices.Delete(list, i, i+1)
	s.free -= Milli(free)
	if len(s.devices[free]) == 0 {
		s.filled[free/64] &^= 1 << (free % 64)
	}
}

// FindShared returns the shared device of the pool whose free part is the
// smallest that holds share, on a node that fit accepts: its node and number.
// Ties go to the lowest node, then device. With widest, the largest part wins.
func (s *State) FindShared(p *Pool, share Milli, widest bool, fit func(NodeID) bool) (NodeID, int, bool) {
	for i := range p.shared.filled {
		w := i
		if widest {
			w = len(p.shared.filled) - 1 - i
		}
		word := p.shared.filled[w]
		for word != 0 {
			b := bits.TrailingZeros64(word)
			if widest {
				b = 63 - bits.LeadingZeros64(word)
			}
			word &^= 1 << b
			free := w*64 + b
			if Milli(free) < share {
				continue
			}
			for _, key := range p.shared.devices[free] {
				if id := NodeID(key >> 6); fit(id) {
					return id, int(key & 63), true
				}
			}
		}
	}
	return 0, 0, false
}
