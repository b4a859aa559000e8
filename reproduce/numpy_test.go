package reproduce

import (
	"math"
	"testing"
)

// The first numbers of numpy.random.default_rng(1).random(3), as numpy prints them.
func TestNumpyRand(t *testing.T) {
	r := newNumpyRand(1)
	for _, want := range []float64{0.51182162, 0.9504637, 0.14415961} {
		if got := r.random(); math.Abs(got-want) > 1e-8 {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
