package cluster

import (
	"math"
	"testing"
)

func TestSums(t *testing.T) {
	const most, least = math.MaxInt64, math.MinInt64
	for _, c := range []struct{ a, b, sum int64 }{
		{0, 0, 0}, {2, 3, 5}, {2, -3, -1}, {most, 0, most}, {0, most, most}, {most, 1, most}, {1, most, most},
		{most, most, most}, {least, 0, least}, {least, -1, least}, {-1, least, least}, {least, least, least}, {most, least, -1}, {least, most, -1},
	} {
		if got := Plus(c.a, c.b); got != c.sum {
			t.Errorf("Plus(%d, %d) = %d, want %d", c.a, c.b, got, c.sum)
		}
	}
	for _, c := range []struct {
		n          int
		a, product int64
	}{
		{0, most, 0}, {most, 0, 0}, {1, most, most}, {2, 1 << 61, 1 << 62}, {2, 1 << 62, most}, {3, 1 << 62, most}, {4, 1 << 62, most},
		{7, 3e18, most}, {1_000_000, MaxAmount, most}, {MaxHeld, MaxAmount, MaxHeld * MaxAmount},
	} {
		if got := Times(c.n, c.a); got != c.product {
			t.Errorf("Times(%d, %d) = %d, want %d", c.n, c.a, got, c.product)
		}
	}
}

func TestTextOfGPUs(t *testing.T) {
	for m, want := range map[Milli]string{0: "0", 250: "0.25", 500: "0.5", 1000: "1", 1001: "1.001", 20_000: "20", -1500: "-1.5", -1: "-0.001"} {
		if got := m.GPUs(); got != want {
			t.Errorf("%d milli-GPU are %q, want %q", m, got, want)
		}
	}
}
