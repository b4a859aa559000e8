package cluster

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// Device sets: a node may name sets of its devices, such as those of one model revision or the one of some
// serial number, and a request may say how many of its devices must be of which sets. Sets may overlap.
// Which devices of a node are free decides whether it takes a pod, so it is asked node by node; the fit
// index counts devices only.

// DeviceSet names some devices of a node, a bit each.
type DeviceSet struct {
	Name    string
	Devices uint64
}

// checkSets reports what is wrong with the device sets of a node: they are sorted by name, each name is there once.
func checkSets(sets []DeviceSet, gpus int) error {
	for i := range sets {
		switch d := &sets[i]; {
		case d.Name == "":
			return fmt.Errorf("a device set without a name")
		case d.Devices&^lowest(^uint64(0), gpus) != 0:
			return fmt.Errorf("device set %s has devices that the node does not have", d.Name)
		case i > 0 && sets[i-1].Name >= d.Name:
			return fmt.Errorf("device sets %s and then %s, expected each name once, in order", sets[i-1].Name, d.Name)
		}
	}
	return nil
}

// checkFrom reports what is wrong with the device sets that a request names.
func (r *Request) checkFrom() error {
	if len(r.From) == 0 {
		return nil
	}
	if err := checkAmounts(r.From); err != nil {
		return err
	}
	left := int64(r.GPU / WholeGPU)
	for _, a := range r.From {
		if a.Value < 1 || a.Value > left {
			return fmt.Errorf("%d GPUs of device set %s, expected 1..%d: as many as the pod takes whole, less those of other sets", a.Value, a.Name, left)
		}
		left -= a.Value
	}
	if r.Picker == NodePicks {
		return fmt.Errorf("GPUs of device sets, which the node picks: the engine must pick them")
	}
	return nil
}

// FromSets returns how many GPUs the request wants of device sets.
func (r *Request) FromSets() int {
	n := 0
	for _, a := range r.From {
		n += int(a.Value)
	}
	return n
}

// Want asks for N of some devices, a bit each.
type Want struct {
	Devices uint64
	N       int
}

// Distribute gives each of the wants as many of the free devices as it asks for, of those that it accepts. It
// returns nil if that is not possible. Where there are several ways, wants get devices that come early in the
// order; prefer comes before all others. after are wants for which enough must be left.
func Distribute(free, prefer uint64, wants, after []Want) []uint64 {
	all := append(slices.Clone(wants), after...)
	if !possible(free, all) {
		return nil
	}
	given := make([]uint64, len(wants))
	for _, among := range [2]uint64{free & prefer, free &^ prefer} {
		for m := among; m != 0; m &= m - 1 {
			d := m & -m
			for w := range wants {
				if all[w].N == 0 || all[w].Devices&d == 0 {
					continue
				}
				all[w].N--
				if possible(free&^d, all) {
					free &^= d
					given[w] |= d
					break
				}
				all[w].N++
			}
		}
	}
	return given
}

// possible reports whether each of the wants can have what it asks for at once.
func possible(free uint64, wants []Want) bool { return times(free, wants, 1) == 1 }

// matching is which want has which devices.
type matching struct {
	free  uint64
	wants []Want
	given []uint64
}

// give gives a want one more device: a free one, or one whose holder finds another. seen are the devices that
// were tried.
func (m *matching) give(w int, seen *uint64) bool {
	for c := m.wants[w].Devices & m.free &^ m.given[w]; c != 0; c &= c - 1 {
		d := c & -c
		if *seen&d != 0 {
			continue
		}
		*seen |= d
		holder := slices.IndexFunc(m.given, func(given uint64) bool { return given&d != 0 })
		if holder >= 0 {
			if !m.give(holder, seen) {
				continue
			}
			m.given[holder] &^= d
		}
		m.given[w] |= d
		return true
	}
	return false
}

// times returns how many times the wants can be met with the free devices, at most most: it matches devices to wants along
// augmenting paths.
func times(free uint64, wants []Want, most int) int {
	if len(wants) == 1 && wants[0].N > 0 {
		return min(most, bits.OnesCount64(free&wants[0].Devices)/wants[0].N)
	}
	m := matching{free, wants, make([]uint64, len(wants))}
	for n := range most {
		for w := range wants {
			for range wants[w].N {
				if !m.give(w, new(uint64)) {
					return n
				}
			}
		}
	}
	return most
}

// ofSet asks for n devices of the set of that name, of anySet for any.
type ofSet struct {
	set string
	n   int
}

const anySet = ""

// from returns the device sets that a request names, and what it takes of any.
func (r *Request) from() []ofSet {
	if len(r.From) == 0 {
		return nil
	}
	var out []ofSet
	left := int(r.GPU / WholeGPU)
	for _, a := range r.From {
		out = append(out, ofSet{a.Name, int(a.Value)})
		left -= int(a.Value)
	}
	if left > 0 {
		out = append(out, ofSet{anySet, left})
	}
	return out
}

// set returns the devices of a set, none if the node does not name it.
func (n *NodeSpec) set(name string) uint64 {
	i, ok := slices.BinarySearchFunc(n.Sets, name, func(d DeviceSet, name string) int { return strings.Compare(d.Name, name) })
	if !ok {
		return 0
	}
	return n.Sets[i].Devices
}

// wants returns what so many pods of a request want on the node.
func (n *Node) wants(from []ofSet, times int) []Want {
	out := make([]Want, len(from))
	for i, f := range from {
		out[i].N = f.n * times
		if out[i].Devices = ^uint64(0); f.set != anySet {
			out[i].Devices = n.Spec.set(f.set)
		}
	}
	return out
}

// TimesFrom returns how many pods of a request the free ones of a node's devices would hold by the sets that the
// request names, at most most.
func (r *Request) TimesFrom(n *NodeSpec, free uint64, most int) int {
	if len(r.From) == 0 {
		return most
	}
	var wants []Want
	left := int(r.GPU / WholeGPU)
	for _, a := range r.From {
		w := Want{n.set(a.Name), int(a.Value)}
		wants = append(wants, w)
		left -= w.N
	}
	if left > 0 {
		wants = append(wants, Want{^uint64(0), left})
	}
	return times(free&lowest(^uint64(0), n.GPUs), wants, most)
}

// Copies are N pods that need what Of says.
type Copies struct {
	Of *Amounts
	N  int
}

// pickFrom chooses g wholly free devices as a request wants them by the sets that it names, so that as many as possible
// of the pods beside it, and then of others like it, find theirs. Of the ways that are left it takes the best links as
// far as the sets allow.
func (n *Node) pickFrom(g int, from []ofSet, beside []Copies) uint64 {
	if from == nil {
		from = []ofSet{{anySet, g}}
	}
	wants := n.wants(from, 1)
	if len(wants) == 1 && beside == nil {
		return n.layout.pick(n.Whole&wants[0].Devices, g)
	}
	accepted := uint64(0)
	for i := range wants {
		accepted |= wants[i].Devices
	}
	var after []Want
	add := func(from []ofSet, most int) {
		for range most {
			more := append(slices.Clone(after), n.wants(from, 1)...)
			if !possible(n.Whole, append(slices.Clone(wants), more...)) {
				return
			}
			after = more
		}
	}
	for _, c := range beside {
		add(c.Of.sets(), min(c.N, MaxGPUs))
	}
	if len(from) > 1 {
		add(from, MaxGPUs)
	}
	out := uint64(0)
	for _, given := range Distribute(n.Whole, n.layout.pick(n.Whole&accepted, g), wants, after) {
		out |= given
	}
	return out
}

// Accepted returns the devices of a node that are of the sets that a names, or all if a takes some of any.
func (s *State) Accepted(id NodeID, a *Amounts) uint64 {
	accepted := uint64(0)
	for _, w := range s.nodes[id].wants(a.sets(), 1) {
		accepted |= w.Devices
	}
	return accepted
}

// AppendFree appends which devices of a node are free of each set that a names.
func (s *State) AppendFree(key []byte, id NodeID, a *Amounts) []byte {
	n := &s.nodes[id]
	for _, w := range n.wants(a.sets(), 1) {
		key = binary.AppendUvarint(key, w.Devices&n.Whole)
	}
	return key
}

// Suits reports whether the devices of an allocation are as its request wants them by the sets that it names.
func (s *State) Suits(a *Alloc) bool {
	from := s.amounts[a.Others].sets()
	return from == nil || a.GPUs == 0 || possible(a.GPUs, s.nodes[a.Node].wants(from, 1))
}
