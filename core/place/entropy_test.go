package place

import (
	"math"
	"testing"
)

func TestEntropy(t *testing.T) {
	for _, c := range []struct {
		held []int64
		want float64
	}{
		{nil, 0}, {[]int64{0}, 0}, {[]int64{8}, 0}, {[]int64{8, 0, 8}, math.Log(2)}, {[]int64{1, 1, 1, 1}, math.Log(4)},
		{[]int64{24, 8}, 0.75*math.Log(4./3) + 0.25*math.Log(4)},
	} {
		if got := Entropy(c.held); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v: %v, want %v", c.held, got, c.want)
		}
	}
}

func TestNLogN(t *testing.T) {
	for n := 1; n < 200_000; n = n*5/4 + 1 {
		got, want := float64(NLogN(n))/(1<<FractionBits), float64(n)*math.Log2(float64(n))
		if math.Abs(got-want) > float64(n)/(1<<(FractionBits-1)) {
			t.Errorf("%d: %v, want %v", n, got, want)
		}
	}
}
