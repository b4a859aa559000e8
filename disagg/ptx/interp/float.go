package interp

import "math"

// typ is a type of instructions: k is u, s or b for bits, f for IEEE floats, h for bf16, p for
// predicates; n is 2 for pairs such as f16x2.
type typ struct {
	k    byte
	bits int
	n    int
}

func typeOf(s string) typ {
	switch s {
	case "pred":
		return typ{'p', 1, 1}
	case "f16x2":
		return typ{'f', 16, 2}
	case "bf16":
		return typ{'h', 16, 1}
	case "bf16x2":
		return typ{'h', 16, 2}
	case "tf32":
		return typ{'b', 32, 1}
	case "u16x2", "s16x2":
		return typ{s[0], 16, 2}
	}
	if len(s) >= 2 && (s[0] == 'u' || s[0] == 's' || s[0] == 'b' || s[0] == 'f') {
		switch s[1:] {
		case "8":
			return typ{s[0], 8, 1}
		case "16":
			return typ{s[0], 16, 1}
		case "32":
			return typ{s[0], 32, 1}
		case "64":
			return typ{s[0], 64, 1}
		}
	}
	return typ{}
}

func (t typ) float() bool { return t.k == 'f' || t.k == 'h' }

func (t typ) mask() uint64 {
	if t.bits >= 64 {
		return math.MaxUint64
	}
	return 1<<t.bits - 1
}

// signed extends a value of the type to 64 bits, by its sign if the type has one.
func (t typ) signed(x uint64) int64 {
	x &= t.mask()
	if t.k == 's' && t.bits < 64 && x>>(t.bits-1) == 1 {
		x |= ^t.mask()
	}
	return int64(x)
}

// decode returns the float in the low bits.
func (t typ) decode(x uint64) float64 {
	switch {
	case t.bits == 64:
		return math.Float64frombits(x)
	case t.k == 'h':
		return float64(math.Float32frombits(uint32(x) << 16))
	case t.bits == 32:
		return float64(math.Float32frombits(uint32(x)))
	}
	return half(uint16(x))
}

// Float returns the bits of a value in a type of floats such as f16, rounded to the nearest.
func Float(t string, x float64) uint64 { return typeOf(t).encode(x) }

// encode rounds to the nearest, ties to even.
func (t typ) encode(f float64) uint64 { return t.round(f, "rn") }

// round returns the bits of a value in this type, rounded by mode rn, rz, rm, rp or rna.
func (t typ) round(f float64, mode string) uint64 {
	if math.IsNaN(f) {
		return t.nan()
	}
	switch {
	case t.bits == 64:
		return math.Float64bits(f)
	case t.k == 'h':
		return uint64(math.Float32bits(float32(quantize(f, 8, -126, 127, mode))) >> 16)
	case t.bits == 32:
		if mode == "rn" {
			return uint64(math.Float32bits(float32(f)))
		}
		return uint64(math.Float32bits(float32(quantize(f, 24, -126, 127, mode))))
	}
	return uint64(toHalf(quantize(f, 11, -14, 15, mode)))
}

// nan is the NaN that GPUs return.
func (t typ) nan() uint64 {
	switch {
	case t.bits == 64:
		return 0x7fffffffffffffff&math.Float64bits(math.NaN()) | 0x7ff8000000000000
	case t.bits == 32:
		return 0x7fffffff
	}
	return 0x7fff
}

// quantize rounds to p significant bits with exponents from least to most; beyond is infinite.
func quantize(f float64, p, least, most int, mode string) float64 {
	if f == 0 || math.IsInf(f, 0) || math.IsNaN(f) {
		return f
	}
	_, e := math.Frexp(f)
	unit := max(e-1, least) - p + 1
	x := math.Ldexp(f, -unit)
	switch mode {
	case "rz":
		x = math.Trunc(x)
	case "rm":
		x = math.Floor(x)
	case "rp":
		x = math.Ceil(x)
	case "rna":
		x = math.Round(x)
	default:
		x = math.RoundToEven(x)
	}
	if x == 0 {
		return math.Copysign(0, f)
	}
	x = math.Ldexp(x, unit)
	largest := math.Ldexp(2-math.Ldexp(1, 1-p), most)
	if math.Abs(x) > largest {
		if mode == "rz" || mode == "rm" && x > 0 || mode == "rp" && x < 0 {
			return math.Copysign(largest, x)
		}
		return math.Inf(int(math.Copysign(1, x)))
	}
	return x
}

func half(x uint16) float64 {
	sign := 1.0
	if x&0x8000 != 0 {
		sign = -1
	}
	e, m := int(x>>10&31), float64(x&1023)
	switch e {
	case 0:
		return sign * math.Ldexp(m, -24)
	case 31:
		if m != 0 {
			return math.NaN()
		}
		return sign * math.Inf(1)
	}
	return sign * math.Ldexp(1024+m, e-25)
}

// toHalf encodes a value that is one of the type's.
func toHalf(f float64) uint16 {
	var sign uint16
	if math.Signbit(f) {
		sign, f = 0x8000, -f
	}
	switch {
	case f == 0:
		return sign
	case math.IsInf(f, 0):
		return sign | 0x7c00
	}
	_, e := math.Frexp(f)
	if e < -13 {
		return sign | uint16(math.Ldexp(f, 24))
	}
	return sign | uint16(e+14)<<10 | uint16(math.Ldexp(f, 11-e))&1023
}

// odd returns the float64 nearest to r + err that has an odd last bit, where r is the exact result
// rounded to nearest and err has the sign of what rounding took away. Rounding it once more, to
// fewer bits and in any mode, gives the rounded exact result.
func odd(r, err float64) float64 {
	if err == 0 || math.IsInf(r, 0) || math.IsNaN(r) || math.Float64bits(r)&1 == 1 {
		return r
	}
	if err > 0 {
		return math.Nextafter(r, math.Inf(1))
	}
	return math.Nextafter(r, math.Inf(-1))
}

// sum is a + b, rounded to odd.
func sum(a, b float64) float64 {
	s := a + b
	bb := s - a
	return odd(s, (a-(s-bb))+(b-bb))
}

// fused is a * b + c rounded once to the type: the product of two float32 is exact in float64.
func (t typ) fused(a, b, c float64, mode string) uint64 {
	if t.bits == 64 {
		return t.round(math.FMA(a, b, c), mode)
	}
	return t.round(sum(a*b, c), mode)
}

// quotient is a / b, rounded to odd.
func quotient(a, b float64) float64 {
	q := a / b
	if b == 0 || math.IsInf(q, 0) || math.IsNaN(q) || math.IsInf(b, 0) || q == 0 {
		return q
	}
	r := -math.FMA(q, b, -a)
	if b < 0 {
		r = -r
	}
	return odd(q, r)
}

// root is the square root of a, rounded to odd.
func root(a float64) float64 {
	s := math.Sqrt(a)
	if s == 0 || math.IsInf(s, 0) || math.IsNaN(s) {
		return s
	}
	return odd(s, -math.FMA(s, s, -a))
}

// flush turns a subnormal of float32 into zero.
func flush(f float64) float64 {
	if math.Abs(f) < 0x1p-126 {
		return math.Copysign(0, f)
	}
	return f
}

// least and greatest are min and max as PTX has them: a NaN loses, and -0 is less than 0.
func least(a, b float64, nan bool) float64 {
	switch {
	case math.IsNaN(a) && (nan || math.IsNaN(b)), nan && math.IsNaN(b):
		return math.NaN()
	case math.IsNaN(a):
		return b
	case math.IsNaN(b):
		return a
	}
	return math.Min(a, b)
}

func greatest(a, b float64, nan bool) float64 { return -least(-a, -b, nan) }
