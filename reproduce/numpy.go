package reproduce

import "math/bits"

// numpyRand is numpy's default random generator (PCG64, O'Neill 2014, seeded by SeedSequence): so that what was drawn in Python for runs
// of the authors' code is drawn again here.
type numpyRand struct {
	high, low       uint64
	incHigh, incLow uint64
	half            uint32 // the upper half of the last number, if there is one
	has             bool
}

// newNumpyRand is numpy.random.default_rng(seed).
func newNumpyRand(seed uint32) *numpyRand {
	// 1. SeedSequence: the seed is mixed into a pool of four words, and eight words come out.
	hash := uint32(0x43b0d7e5)
	mixed := func(v uint32) uint32 {
		v ^= hash
		hash *= 0x931e8875
		v *= hash
		return v ^ v>>16
	}
	var pool [4]uint32
	for i := range pool {
		pool[i] = mixed([4]uint32{seed}[i])
	}
	for from := range pool {
		for to := range pool {
			if from != to {
				v := 0xca01f9dd*pool[to] - 0x4973f715*mixed(pool[from])
				pool[to] = v ^ v>>16
			}
		}
	}
	hash = 0x8b51f9dd
	var word [4]uint64
	for i := range 8 {
		v := pool[i%4] ^ hash
		hash *= 0x58f38ded
		v *= hash
		word[i/2] |= uint64(v^v>>16) << (32 * (i % 2))
	}

	// 2. PCG64 takes them as its state and its stream.
	r := &numpyRand{incHigh: word[2]<<1 | word[3]>>63, incLow: word[3]<<1 | 1}
	r.step()
	var carry uint64
	r.low, carry = bits.Add64(r.low, word[1], 0)
	r.high, _ = bits.Add64(r.high, word[0], carry)
	r.step()
	return r
}

func (r *numpyRand) step() {
	const multHigh, multLow = 0x2360ed051fc65da4, 0x4385df649fccf645
	high, low := bits.Mul64(r.low, multLow)
	high += r.high*multLow + r.low*multHigh
	var carry uint64
	r.low, carry = bits.Add64(low, r.incLow, 0)
	r.high, _ = bits.Add64(high, r.incHigh, carry)
}

func (r *numpyRand) uint64() uint64 {
	r.step()
	return bits.RotateLeft64(r.high^r.low, -int(r.high>>58))
}

func (r *numpyRand) uint32() uint32 {
	if r.has {
		r.has = false
		return r.half
	}
	v := r.uint64()
	r.half, r.has = uint32(v>>32), true
	return uint32(v)
}

// integers returns a number below n, as integers(0, n) does (Lemire's method).
func (r *numpyRand) integers(n uint32) int {
	for {
		m := uint64(r.uint32()) * uint64(n)
		if left := uint32(m); left >= n || left >= -n%n {
			return int(m >> 32)
		}
	}
}
