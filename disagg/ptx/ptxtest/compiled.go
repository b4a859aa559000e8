package ptxtest

import "slices"

// Compiled returns launches of the kernels of disagg/instrument/testdata/kernels.cu, whose text in
// PTX is given.
func Compiled(text string) []Case {
	all := []Case{horner(), reduce(), sort(), steps(), branches()}
	for i := range all {
		all[i].Text = text
	}
	return all
}

func horner() Case {
	m := maker{}
	c, x := []float32{1, -2, 0.5, 3}, reals(100)
	y := make([]float32, 100)
	for i := range 90 {
		s := float32(0)
		for k := 3; k >= 0; k-- {
			s = s*x[i] + c[k] // exact: few bits
		}
		y[i] = s
	}
	bc, bx, by := m.of("c", c), m.of("x", x), m.of("y", make([]float32, 100))
	return shape("horner", 2, 64, want("y", y, 0), Args(by, bx, bc, int32(4), int32(90)), bc, bx, by)
}

func reduce() Case {
	m := maker{}
	x := numbers(300, 1000)
	sum := uint32(0)
	for _, v := range x[:290] {
		sum += v
	}
	bx, bo := m.of("x", x), m.of("out", uint32(0))
	return shape("reduce", 2, 64, want("out", sum, 0), Args(bo, bx, int32(290)), bx, bo)
}

func sort() Case {
	m := maker{}
	x := numbers(64, 1<<31)
	out := slices.Clone(x)
	for i := 0; i < 64; i += 4 {
		slices.Sort(out[i : i+4])
	}
	bx := m.of("x", x)
	return shape("sort", 1, 16, want("x", out, 0), Args(bx), bx)
}

func steps() Case {
	m := maker{}
	x, out := make([]uint32, 30), make([]uint32, 30)
	for i := range x {
		x[i] = uint32(i + 1)
		for n := x[i]; n != 1; out[i]++ {
			if n%2 == 1 {
				n = 3*n + 1
			} else {
				n /= 2
			}
		}
	}
	bx := m.of("x", x)
	return shape("steps", 1, 30, want("x", out, 0), Args(bx), bx)
}

func branches() Case {
	m := maker{}
	x, out := make([]int32, 64), make([]int32, 64)
	for i, v := range numbers(64, 4000) {
		n := int32(v) - 2000
		x[i] = n
		switch n & 7 {
		case 0:
			n = 1
		case 1:
			n *= 3
		case 2:
			n = -n
		case 3:
			n /= 5
		case 4:
			n %= 7
		case 5:
			n ^= 0x55
		default:
			n = int32(float64(n) * 0.25)
		}
		out[i] = n
	}
	bx := m.of("x", x)
	return shape("branches", 1, 64, want("x", out, 0), Args(bx), bx)
}
