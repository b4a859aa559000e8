package interp

import (
	"math/bits"

	"github.com/muster-sched/muster/disagg/ptx"
)

// binary are the integer operations of two operands.
func integer2(base string, i *ptx.Instruction, t typ) func(a, b uint64) uint64 {
	switch base {
	case "add":
		if i.Has("sat") {
			return func(a, b uint64) uint64 {
				s := t.signed(a) + t.signed(b)
				return uint64(min(max(s, -1<<31), 1<<31-1))
			}
		}
		return func(a, b uint64) uint64 { return a + b }
	case "sub":
		if i.Has("sat") {
			return func(a, b uint64) uint64 {
				s := t.signed(a) - t.signed(b)
				return uint64(min(max(s, -1<<31), 1<<31-1))
			}
		}
		return func(a, b uint64) uint64 { return a - b }
	case "and":
		return func(a, b uint64) uint64 { return a & b }
	case "or":
		return func(a, b uint64) uint64 { return a | b }
	case "xor":
		return func(a, b uint64) uint64 { return a ^ b }
	case "shl":
		return func(a, b uint64) uint64 {
			if b &= 1<<32 - 1; b >= uint64(t.bits) {
				return 0
			}
			return a << b
		}
	case "shr":
		return func(a, b uint64) uint64 {
			b &= 1<<32 - 1
			if t.k == 's' {
				return uint64(t.signed(a) >> min(b, 63))
			}
			if b >= uint64(t.bits) {
				return 0
			}
			return a & t.mask() >> b
		}
	case "min":
		return func(a, b uint64) uint64 {
			if t.less(b, a) {
				return b
			}
			return a
		}
	case "max":
		return func(a, b uint64) uint64 {
			if t.less(a, b) {
				return b
			}
			return a
		}
	case "div", "rem":
		return func(a, b uint64) uint64 { return t.divide(a, b, base == "rem") }
	case "mul":
		switch {
		case i.Has("wide"):
			return func(a, b uint64) uint64 { return uint64(t.signed(a) * t.signed(b)) }
		case i.Has("hi"):
			return t.high
		}
		return func(a, b uint64) uint64 { return a * b }
	case "mul24":
		short := typ{t.k, 24, 1}
		if i.Has("hi") {
			return func(a, b uint64) uint64 { return uint64(short.signed(a)*short.signed(b)) >> 16 }
		}
		return func(a, b uint64) uint64 { return uint64(short.signed(a) * short.signed(b)) }
	}
	return nil
}

// less compares two values of the type.
func (t typ) less(a, b uint64) bool {
	if t.k == 's' {
		return t.signed(a) < t.signed(b)
	}
	return a&t.mask() < b&t.mask()
}

// divide divides. By zero, GPUs return all ones and, as remainder, the dividend.
func (t typ) divide(a, b uint64, remainder bool) uint64 {
	a, b = a&t.mask(), b&t.mask()
	switch {
	case b == 0 && remainder:
		return a
	case b == 0:
		return t.mask()
	case t.k != 's' && remainder:
		return a % b
	case t.k != 's':
		return a / b
	}
	x, y := t.signed(a), t.signed(b)
	switch {
	case y == -1 && remainder:
		return 0
	case y == -1:
		return uint64(-x)
	case remainder:
		return uint64(x % y)
	}
	return uint64(x / y)
}

// high is the upper half of a product.
func (t typ) high(a, b uint64) uint64 {
	if t.bits < 64 {
		return uint64(t.signed(a)*t.signed(b)) >> t.bits
	}
	hi, _ := bits.Mul64(a, b)
	if t.k == 's' {
		if int64(a) < 0 {
			hi -= b
		}
		if int64(b) < 0 {
			hi -= a
		}
	}
	return hi
}

// integer1 are the integer operations of one operand.
func integer1(base string, i *ptx.Instruction, t typ) func(a uint64) uint64 {
	switch base {
	case "not":
		return func(a uint64) uint64 { return ^a }
	case "cnot":
		return func(a uint64) uint64 {
			if a&t.mask() == 0 {
				return 1
			}
			return 0
		}
	case "neg":
		return func(a uint64) uint64 { return -a }
	case "abs":
		return func(a uint64) uint64 { return uint64(max(t.signed(a), -t.signed(a))) }
	case "popc":
		return func(a uint64) uint64 { return uint64(bits.OnesCount64(a & t.mask())) }
	case "clz":
		return func(a uint64) uint64 { return uint64(bits.LeadingZeros64(a&t.mask()) - 64 + t.bits) }
	case "brev":
		return func(a uint64) uint64 { return bits.Reverse64(a) >> (64 - t.bits) }
	case "bfind":
		amount := i.Has("shiftamt")
		return func(a uint64) uint64 {
			x := a & t.mask()
			if s := t.signed(a); t.k == 's' && s < 0 {
				x = uint64(^s)
			}
			n := bits.Len64(x) - 1
			if n >= 0 && amount {
				n = t.bits - 1 - n
			}
			return uint64(uint32(int32(n)))
		}
	}
	return nil
}

// integer3 are the integer operations of three operands and more.
func (c *compiler) integer3(base string, i *ptx.Instruction, t typ) func(x []uint64) uint64 {
	switch base {
	case "mad", "mad24":
		mul := integer2(map[string]string{"mad": "mul", "mad24": "mul24"}[base], i, t)
		return func(x []uint64) uint64 { return mul(x[0], x[1]) + x[2] }
	case "sad":
		return func(x []uint64) uint64 {
			if t.less(x[0], x[1]) {
				return uint64(t.signed(x[1])-t.signed(x[0])) + x[2]
			}
			return uint64(t.signed(x[0])-t.signed(x[1])) + x[2]
		}
	case "bfe":
		return func(x []uint64) uint64 {
			at, n := int(x[1]&255), int(x[2]&255)
			if n == 0 {
				return 0
			}
			var out uint64
			sign := uint64(0)
			if t.k == 's' {
				sign = x[0] >> min(at+n-1, t.bits-1) & 1
			}
			for k := range t.bits {
				bit := sign
				if k < n && at+k < t.bits {
					bit = x[0] >> (at + k) & 1
				}
				out |= bit << k
			}
			return out
		}
	case "bfi":
		return func(x []uint64) uint64 {
			at, n := int(x[2]&255), int(x[3]&255)
			out := x[1]
			for k := 0; k < n && at+k < t.bits; k++ {
				out = out&^(1<<(at+k)) | x[0]>>k&1<<(at+k)
			}
			return out
		}
	case "lop3":
		return func(x []uint64) uint64 {
			var out uint64
			for k := range 32 {
				index := x[0]>>k&1<<2 | x[1]>>k&1<<1 | x[2]>>k&1
				out |= x[3] >> index & 1 << k
			}
			return out
		}
	case "shf":
		left, wrap := i.Has("l"), i.Has("wrap")
		return func(x []uint64) uint64 {
			n := x[2] & (1<<32 - 1)
			if wrap {
				n &= 31
			}
			n = min(n, 32)
			both := x[1]<<32 | x[0]&(1<<32-1)
			if left {
				return both << n >> 32
			}
			return both >> n
		}
	case "prmt":
		mode := ""
		for _, m := range i.Mods() {
			if m != "b32" {
				mode = m
			}
		}
		return func(x []uint64) uint64 { return permute(x[0]&(1<<32-1)|x[1]<<32, x[2], mode) }
	case "dp4a", "dp2a":
		mods := i.Mods()
		ta, tb := typeOf(mods[len(mods)-2]), typeOf(mods[len(mods)-1])
		return func(x []uint64) uint64 {
			s := x[2]
			for k := range 4 {
				a, b := typ{ta.k, 8, 1}, typ{tb.k, 8, 1}
				if base == "dp2a" {
					if k >= 2 {
						break
					}
					at := k
					if i.Has("hi") {
						at += 2
					}
					s += uint64(typ{ta.k, 16, 1}.signed(x[0]>>(16*k)) * b.signed(x[1]>>(8*at)))
					continue
				}
				s += uint64(a.signed(x[0]>>(8*k)) * b.signed(x[1]>>(8*k)))
			}
			return s
		}
	}
	return nil
}

// permute picks four of eight bytes.
func permute(x, selector uint64, mode string) (out uint64) {
	for k := range uint64(4) {
		s := selector >> (4 * k) & 15
		n := selector & 3
		switch mode {
		case "f4e":
			s = n + k
		case "b4e":
			s = (n - k) & 7
		case "rc8":
			s = n
		case "ecl":
			s = max(k, n)
		case "ecr":
			s = min(k, n)
		case "rc16":
			s = n&1<<1 | k&1
		}
		b := x >> (8 * (s & 7)) & 255
		if s&8 != 0 { // the sign in all bits
			b = uint64(int64(int8(b))>>7) & 255
		}
		out |= b << (8 * k)
	}
	return out
}
