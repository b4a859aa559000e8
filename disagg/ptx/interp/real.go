package interp

import (
	"math"
	"strings"

	"github.com/muster-sched/muster/disagg/ptx"
)

// rounding returns the mode of an instruction, rn without one.
func rounding(i *ptx.Instruction) string {
	for _, m := range [...]string{"rz", "rm", "rp", "rna"} {
		if i.Has(m) {
			return m
		}
	}
	return "rn"
}

// floats compiles operations on floats.
func (c *compiler) floats(base string, i *ptx.Instruction, t typ) func(*thread) {
	d, x := c.operands(i, t)
	mode, ftz, sat, nan := rounding(i), i.Has("ftz"), i.Has("sat"), i.Has("NaN")
	if t.bits == 64 && mode != "rn" {
		return nil
	}
	one := typ{t.k, t.bits, 1}
	finish := func(v uint64, f float64, direct bool) uint64 {
		if !direct {
			v = one.round(f, mode)
		}
		if !ftz && !sat {
			return v
		}
		f = one.decode(v)
		if ftz && t.bits == 32 {
			f = flush(f)
		}
		if sat {
			if math.IsNaN(f) {
				f = 0
			}
			f = min(max(f, 0), 1) + 0
		}
		return one.encode(f)
	}
	in := func(v uint64) float64 {
		f := one.decode(v)
		if ftz && t.bits == 32 {
			f = flush(f)
		}
		return f
	}
	relu := i.Has("relu")
	unary, binary := float1(base), float2(base, nan)
	if t.bits == 64 { // there is no wider type to round from
		switch base {
		case "add":
			binary = func(a, b float64) float64 { return a + b }
		case "sub":
			binary = func(a, b float64) float64 { return a - b }
		case "div":
			binary = func(a, b float64) float64 { return a / b }
		case "rcp":
			unary = func(a float64) float64 { return 1 / a }
		case "sqrt":
			unary = math.Sqrt
		}
	}
	var compute func(v *[3]uint64) uint64
	switch {
	case (base == "fma" || base == "mad") && len(x) == 3:
		compute = func(v *[3]uint64) uint64 {
			w := finish(one.fused(in(v[0]), in(v[1]), in(v[2]), mode), 0, true)
			if relu && one.decode(w) < 0 {
				return 0
			}
			return w
		}
	case (base == "neg" || base == "abs") && len(x) == 1:
		sign := uint64(1) << (t.bits - 1)
		compute = func(v *[3]uint64) uint64 {
			w := v[0] & one.mask()
			if ftz && t.bits == 32 {
				w = one.encode(flush(one.decode(w)))
			}
			if base == "neg" {
				return w ^ sign
			}
			return w &^ sign
		}
	case unary != nil && len(x) == 1:
		compute = func(v *[3]uint64) uint64 { return finish(0, unary(in(v[0])), false) }
	case (base == "min" || base == "max") && len(x) == 3:
		compute = func(v *[3]uint64) uint64 { return finish(0, binary(binary(in(v[0]), in(v[1])), in(v[2])), false) }
	case binary != nil && len(x) == 2:
		compute = func(v *[3]uint64) uint64 { return finish(0, binary(in(v[0]), in(v[1])), false) }
	default:
		return nil
	}
	n := len(x)
	if t.n == 2 {
		return func(th *thread) {
			var lo, hi [3]uint64
			for k := range n {
				v := th.val(x[k])
				lo[k], hi[k] = v&0xffff, v>>16&0xffff
			}
			th.set(d, compute(&lo)&0xffff|compute(&hi)&0xffff<<16)
		}
	}
	return func(th *thread) {
		var v [3]uint64
		for k := range n {
			v[k] = th.val(x[k])
		}
		th.set(d, compute(&v))
	}
}

// float1 are the functions of one float.
func float1(base string) func(float64) float64 {
	switch base {
	case "rcp":
		return func(a float64) float64 { return quotient(1, a) }
	case "sqrt":
		return root
	case "rsqrt":
		return func(a float64) float64 { return 1 / math.Sqrt(a) }
	case "ex2":
		return math.Exp2
	case "lg2":
		return math.Log2
	case "sin":
		return math.Sin
	case "cos":
		return math.Cos
	case "tanh":
		return math.Tanh
	}
	return nil
}

// float2 are the functions of two floats.
func float2(base string, nan bool) func(a, b float64) float64 {
	switch base {
	case "add":
		return sum
	case "sub":
		return func(a, b float64) float64 { return sum(a, -b) }
	case "mul":
		return func(a, b float64) float64 { return a * b } // exact, but for float64, whose only mode is rn
	case "div":
		return quotient
	case "min":
		return func(a, b float64) float64 { return least(a, b, nan) }
	case "max":
		return func(a, b float64) float64 { return greatest(a, b, nan) }
	}
	return nil
}

// convert compiles cvt.
func (c *compiler) convert(i *ptx.Instruction) func(*thread) {
	mods := i.Mods()
	if len(mods) < 2 {
		return nil
	}
	to, from := typeOf(mods[len(mods)-2]), typeOf(mods[len(mods)-1])
	if mods[len(mods)-2] == "tf32" {
		d, x := c.operands(i, from)
		mode := rounding(i)
		return func(th *thread) {
			f := quantize(from.decode(th.val(x[0])), 11, -126, 127, mode)
			th.set(d, uint64(math.Float32bits(float32(f))))
		}
	}
	if to.k == 0 || from.k == 0 {
		return nil
	}
	d, x := c.operands(i, from)
	mode, whole := rounding(i), ""
	for _, m := range mods {
		if len(m) == 3 && strings.HasPrefix(m, "r") && m[2] == 'i' {
			whole = m[:2]
		}
	}
	ftz, sat, relu := i.Has("ftz"), i.Has("sat"), i.Has("relu")
	if to.n == 2 { // cvt.rn.f16x2.f32 d, a, b: a is the upper half
		if len(x) != 2 {
			return nil
		}
		one := typ{to.k, to.bits, 1}
		half := func(v uint64) uint64 {
			f := from.decode(v)
			if relu && !(f > 0) {
				f = 0
			}
			return one.round(f, mode) & 0xffff
		}
		return func(th *thread) { th.set(d, half(th.val(x[0]))<<16|half(th.val(x[1]))) }
	}
	if len(x) != 1 {
		return nil
	}
	return func(th *thread) {
		v := th.val(x[0])
		switch {
		case !from.float() && !to.float():
			th.set(d, integerToInteger(from, to, v, sat))
		case !from.float():
			th.set(d, integerToFloat(from, to, v, mode))
		case to.float():
			f := from.decode(v)
			if ftz && from.bits == 32 {
				f = flush(f)
			}
			if whole != "" {
				f = toWhole(f, whole)
			}
			if relu && f < 0 {
				f = 0
			}
			w := to.round(f, mode)
			if ftz && to.bits == 32 {
				w = to.encode(flush(to.decode(w)))
			}
			if sat {
				g := to.decode(w)
				if math.IsNaN(g) {
					g = 0
				}
				w = to.encode(min(max(g, 0), 1))
			}
			th.set(d, w)
		default:
			f := from.decode(v)
			if ftz && from.bits == 32 {
				f = flush(f)
			}
			m := whole
			if m == "" {
				m = mode
			}
			th.set(d, floatToInteger(to, toWhole(f, m)))
		}
	}
}

func integerToInteger(from, to typ, v uint64, sat bool) uint64 {
	x := from.signed(v)
	if sat {
		lo, hi := int64(0), int64(to.mask()>>1)
		if to.k == 's' {
			lo = -hi - 1
		} else {
			hi = int64(min(to.mask(), math.MaxInt64))
		}
		if from.k != 's' && from.bits == 64 && x < 0 {
			x = math.MaxInt64
		}
		x = min(max(x, lo), hi)
	}
	// A register may be wider than the type, and holds the value extended.
	if to.k == 's' {
		return uint64(to.signed(uint64(x)))
	}
	return uint64(x) & to.mask()
}

func integerToFloat(from, to typ, v uint64, mode string) uint64 {
	if from.k == 's' {
		x := from.signed(v)
		f := float64(x)
		if to.bits == 64 && mode == "rn" {
			return math.Float64bits(f)
		}
		return to.round(odd(f, errorOf(x, f)), mode)
	}
	x := v & from.mask()
	f := float64(x)
	err := 0.0
	if f < 0x1p64 {
		err = float64(int64(x - uint64(f)))
	} else {
		err = -1
	}
	if to.bits == 64 {
		return math.Float64bits(f)
	}
	return to.round(odd(f, err), mode)
}

// errorOf is what rounding an integer to float64 took away.
func errorOf(x int64, f float64) float64 {
	if f >= 0x1p63 {
		return -1
	}
	return float64(x - int64(f))
}

func toWhole(f float64, mode string) float64 {
	switch mode {
	case "rz":
		return math.Trunc(f)
	case "rm":
		return math.Floor(f)
	case "rp":
		return math.Ceil(f)
	}
	return math.RoundToEven(f)
}

// floatToInteger clamps, as GPUs do; a NaN is 0, or the most negative number of 64 bits.
func floatToInteger(to typ, f float64) uint64 {
	switch {
	case math.IsNaN(f) && to.bits == 64:
		return 1 << 63
	case math.IsNaN(f):
		return 0
	}
	if to.k == 's' {
		lo, hi := -math.Ldexp(1, to.bits-1), math.Ldexp(1, to.bits-1)
		switch {
		case f <= lo:
			return uint64(int64(-1) << (to.bits - 1))
		case f >= hi:
			return to.mask() >> 1
		}
		return uint64(int64(f))
	}
	switch {
	case f <= 0:
		return 0
	case f >= math.Ldexp(1, to.bits):
		return to.mask()
	}
	return uint64(f)
}
