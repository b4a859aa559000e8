// Package interp runs kernels in PTX on the CPU, one instruction after the other. It is slow and
// exact, so that what is said about kernels without a GPU can be compared with what they do.
//
// Integers and IEEE operations on floats are exact to the bit. The approximate functions of GPUs (ex2.approx and
// its like) are computed in float64 and rounded, and sums in mma are in float64 and rounded once,
// so that both differ from a GPU in the last bits. Copies are made at once, which is one of the
// orders that the memory model allows. Threads run until they have to wait for others.
//
// Not supported, and reported as such: wgmma, tcgen05, tensor maps, textures, clusters of more than
// one block.
package interp

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// Buffer is an allocation in global memory.
type Buffer struct {
	Name    string
	Address uint64
	Data    []byte
}

// Memory is global memory: buffers that do not overlap, in order of their addresses.
type Memory struct {
	Buffers []*Buffer

	variables uint64 // where the variables of the next module go
}

// Add adds a buffer. It fails if it overlaps another, or has an address that stands for other spaces.
func (m *Memory) Add(b *Buffer) error {
	at, _ := slices.BinarySearchFunc(m.Buffers, b.Address, func(o *Buffer, a uint64) int { return cmp.Compare(o.Address, a) })
	end := b.Address + uint64(len(b.Data))
	switch {
	case b.Address == 0 || end < b.Address || end > windows:
		return fmt.Errorf("buffer %s: expected addresses above 0 and below %#x; found %#x to %#x", b.Name, uint64(windows), b.Address, end)
	case at < len(m.Buffers) && m.Buffers[at].Address < end:
		return fmt.Errorf("buffer %s overlaps %s", b.Name, m.Buffers[at].Name)
	case at > 0 && m.Buffers[at-1].Address+uint64(len(m.Buffers[at-1].Data)) > b.Address:
		return fmt.Errorf("buffer %s overlaps %s", b.Name, m.Buffers[at-1].Name)
	}
	m.Buffers = slices.Insert(m.Buffers, at, b)
	return nil
}

// Find returns the buffer that contains an address, nil without one.
func (m *Memory) Find(address uint64) *Buffer {
	at, found := slices.BinarySearchFunc(m.Buffers, address, func(o *Buffer, a uint64) int { return cmp.Compare(o.Address, a) })
	if !found {
		at--
	}
	if at < 0 || address-m.Buffers[at].Address >= uint64(len(m.Buffers[at].Data)) {
		return nil
	}
	return m.Buffers[at]
}

// The spaces other than global have windows of generic addresses, as on GPUs.
const (
	windows      = 0x7e00_0000_0000
	sharedWindow = windows
	localWindow  = windows + 1<<32
	paramWindow  = windows + 2<<32
	windowsEnd   = windows + 3<<32
)

// space is a state space; generic is decided by the address.
type space uint8

const (
	generic space = iota
	global
	shared
	local
	param
)

// resolve turns a generic address into a space and an address in it.
func resolve(a uint64) (space, uint64) {
	switch {
	case a < windows || a >= windowsEnd:
		return global, a
	case a < localWindow:
		return shared, a - sharedWindow
	case a < paramWindow:
		return local, a - localWindow
	}
	return param, a - paramWindow
}

// bytes returns n bytes at an address, to read or write. Anything outside what there is, is a fault.
func (t *thread) bytes(s space, a uint64, n int) []byte {
	if s == generic {
		s, a = resolve(a)
	}
	var all []byte
	switch s {
	case global:
		b := t.block.last
		if b == nil || a-b.Address >= uint64(len(b.Data)) {
			if b = t.block.run.memory.Find(a); b == nil {
				t.fault("accesses %d bytes at %#x, which are in no buffer", n, a)
			}
			t.block.last = b
		}
		all, a = b.Data, a-b.Address
	case shared:
		a &= 1<<32 - 1
		all = t.block.shared
	case local:
		if a+uint64(n) > uint64(len(t.local)) && a+uint64(n) <= mostLocal {
			t.local = append(t.local, make([]byte, int(a)+n-len(t.local))...)
		}
		all = t.local
	case param:
		all = t.frame.params
	}
	if a > uint64(len(all)) || uint64(n) > uint64(len(all))-a {
		t.fault("accesses %d bytes at %#x of %s memory, which ends at %#x", n, a, [...]string{"generic", "global", "shared", "local", "param"}[s], len(all))
	}
	return all[a : a+uint64(n)]
}

const mostLocal = 1 << 20

// seen tells the observer about an access of global memory.
func (t *thread) seen(in *inst, s space, a uint64, n int, read, write bool) {
	if t.block.run.observe == nil || n == 0 {
		return
	}
	if s == generic {
		if s, a = resolve(a); s != global {
			return
		}
	}
	if s == global {
		t.block.run.observe(in.source, a, n, read, write)
	}
}

func get(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

func put(b []byte, v uint64) {
	switch len(b) {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(b, uint32(v))
	default:
		binary.LittleEndian.PutUint64(b, v)
	}
}
