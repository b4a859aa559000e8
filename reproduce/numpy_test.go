package reproduce

import (
	"math"
	"slices"
	"testing"
)

// The numbers of numpy.random.default_rng, as numpy prints them: of random(3) for the seed 1, and, from numpy's documentation, of random() and
// of integers(low=0, high=10, size=3) for 12345.
func TestNumpyRand(t *testing.T) {
	for seed, want := range map[uint32][]float64{1: {0.51182162, 0.9504637, 0.14415961}, 12345: {0.22733602246716966}} {
		r := newNumpyRand(seed)
		for _, x := range want {
			if got := float64(r.uint64()>>11) / (1 << 53); math.Abs(got-x) > 1e-8 {
				t.Errorf("%v, want %v", got, x)
			}
		}
	}
	r := newNumpyRand(12345)
	if got := []int{r.integers(10), r.integers(10), r.integers(10)}; !slices.Equal(got, []int{6, 2, 7}) {
		t.Errorf("%v, want [6 2 7]", got)
	}
}
