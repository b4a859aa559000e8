package interp

import "github.com/muster-sched/muster/disagg/ptx"

// An mbarrier is 64 bits in shared memory: how many arrivals are pending, how many a phase expects,
// how many bytes of copies are pending, and the phase. The layout is our own, as it is opaque.
const (
	pendingBits = 20
	bytesAt     = 2 * pendingBits
	bytesBits   = 23
	phaseAt     = 63
)

type mbarrier struct {
	pending, expected, bytes int64
	phase                    uint64
}

func unpack(v uint64) mbarrier {
	b := int64(v >> bytesAt & (1<<bytesBits - 1))
	if b >= 1<<(bytesBits-1) {
		b -= 1 << bytesBits
	}
	return mbarrier{int64(v & (1<<pendingBits - 1)), int64(v >> pendingBits & (1<<pendingBits - 1)), b, v >> phaseAt}
}

func (m mbarrier) pack() uint64 {
	return uint64(m.pending)&(1<<pendingBits-1) | uint64(m.expected)<<pendingBits | uint64(m.bytes)&(1<<bytesBits-1)<<bytesAt | m.phase<<phaseAt
}

// arrive counts arrivals, and bytes that are expected or, negative, have come. It returns the state
// before, in which waiters recognize the phase.
func (t *thread) arrive(s space, at uint64, arrivals, bytes int64) uint64 {
	b := t.bytes(s, at, 8)
	old := get(b)
	m := unpack(old)
	m.pending -= arrivals
	m.bytes += bytes
	if m.pending < 0 {
		t.fault("arrives at an mbarrier that expects no more arrivals")
	}
	if m.pending == 0 && m.bytes == 0 {
		m.pending, m.phase = m.expected, m.phase^1
	}
	put(b, m.pack())
	return old
}

func (c *compiler) mbarrier(i *ptx.Instruction) func(*thread) {
	s := shared
	if spaceOf(i) == generic {
		s = generic
	}
	one := arg{slot: -1, v: 1}
	k := 0 // of the address: after a register, if there is one
	if len(i.Operands) > 0 && i.Operands[0].Kind != ptx.Address {
		k = 1
	}
	if len(i.Operands) <= k {
		return nil
	}
	p := c.place(&i.Operands[k])
	n := one
	if len(i.Operands) > k+1 {
		n = c.arg(&i.Operands[k+1], typ{'u', 64, 1})
	}
	d := int32(-1)
	if k == 1 {
		d = c.register(i.Operands[0].Text)
	}
	switch {
	case i.Has("init"):
		return func(t *thread) {
			m := mbarrier{pending: int64(t.val(n)), expected: int64(t.val(n))}
			put(t.bytes(s, t.where(p), 8), m.pack())
		}
	case i.Has("inval"):
		return func(t *thread) { put(t.bytes(s, t.where(p), 8), 0) }
	case i.Has("arrive") && i.Has("expect_tx"):
		return func(t *thread) {
			b := t.bytes(s, t.where(p), 8)
			m := unpack(get(b))
			old := get(b)
			m.bytes += int64(t.val(n))
			put(b, m.pack())
			t.arrive(s, t.where(p), 1, 0)
			t.set(d, old)
		}
	case i.Has("expect_tx"):
		return func(t *thread) {
			b := t.bytes(s, t.where(p), 8)
			m := unpack(get(b))
			m.bytes += int64(t.val(n))
			put(b, m.pack())
		}
	case i.Has("complete_tx"):
		return func(t *thread) { t.arrive(s, t.where(p), 0, -int64(t.val(n))) }
	case i.Has("arrive"):
		return func(t *thread) { t.set(d, t.arrive(s, t.where(p), int64(t.val(n)), 0)) }
	case (i.Has("test_wait") || i.Has("try_wait")) && i.Has("parity"):
		return func(t *thread) { t.set(d, boolean(unpack(get(t.bytes(s, t.where(p), 8))).phase != t.val(n)&1)) }
	case i.Has("test_wait") || i.Has("try_wait"):
		return func(t *thread) {
			t.set(d, boolean(unpack(get(t.bytes(s, t.where(p), 8))).phase != unpack(t.val(n)).phase))
		}
	}
	return nil
}
