package place

import (
	"math"
	"math/bits"
	"slices"
)

// Entropy returns how evenly what a job holds is distributed over leaf groups, in nats: 0 in
// one group, ln n in n groups that hold the same (ASI, §4.1, equation 1). Groups of which it
// holds nothing do not count, and neither does the order.
func Entropy(held []int64) float64 {
	held = slices.DeleteFunc(slices.Clone(held), func(g int64) bool { return g <= 0 })
	slices.Sort(held) // a sum of floats depends on the order
	sum := int64(0)
	for _, g := range held {
		sum += g
	}
	h := 0.0
	for _, g := range held {
		share := float64(g) / float64(sum)
		h -= share * math.Log(share)
	}
	return h
}

// FractionBits is how many binary places NLogN and log2 have.
const FractionBits = 20

// NLogN returns n x log2 n, 0 for 0. What is to be placed being given, the entropy of a
// distribution is the lower, the greater the sum of NLogN over the groups: H = ln G - (ln 2 / G)
// x sum(NLogN). It is an integer, so that every machine decides alike.
func NLogN(n int) int64 {
	if n <= 1 {
		return 0
	}
	return int64(n) * log2(uint64(n))
}

// log2 returns the logarithm of n, at least 1, rounded down.
func log2(n uint64) int64 {
	whole := bits.Len64(n) - 1
	out := int64(whole) << FractionBits
	// The rest is the logarithm of x, in [1, 2), here with 63 binary places. Each square doubles
	// the logarithm, and shows its next binary place.
	x := n << (63 - whole)
	for place := int64(1) << (FractionBits - 1); place > 0; place >>= 1 {
		if x, _ = bits.Mul64(x, x); x>>63 == 1 {
			out += place
		} else {
			x <<= 1
		}
	}
	return out
}
