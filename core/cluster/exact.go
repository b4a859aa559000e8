package cluster

import (
	"cmp"
	"math/bits"
)

// Part returns amount x part / whole, rounded down, without overflow; 0 if whole is 0. None is negative, and
// part is at most whole.
func Part(amount, part, whole int64) int64 {
	if whole == 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(amount), uint64(part))
	q, _ := bits.Div64(high, low, uint64(whole))
	return int64(q)
}

// CompareProducts compares a x b with c x d, without overflow; none is negative.
func CompareProducts(a, b, c, d int64) int {
	h1, l1 := bits.Mul64(uint64(a), uint64(b))
	h2, l2 := bits.Mul64(uint64(c), uint64(d))
	return cmp.Or(cmp.Compare(h1, h2), cmp.Compare(l1, l2))
}
