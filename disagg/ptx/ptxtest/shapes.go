package ptxtest

import (
	"math"

	"github.com/muster-sched/muster/disagg/ptx/interp"
)

// shapes are the other kernels of shapes.ptx.
func shapes() []Case {
	return []Case{histogram(), gather(), transpose(), compact(), batched(), scan(), total(), largest(), halves(), reverse(), pointers(), gridSync()}
}

func shape(name string, blocks, threads int, check func(*interp.Memory) error, args [][]byte, buffers ...*interp.Buffer) Case {
	return Case{Name: name, File: "shapes.ptx", Buffers: buffers, Check: check,
		Launch: interp.Launch{Kernel: name, Grid: grid(blocks), Block: grid(threads), Args: args}}
}

func histogram() Case {
	m := maker{}
	x := make([]byte, 200)
	bins := make([]uint32, 16)
	for i, v := range numbers(200, 256) {
		x[i] = byte(v)
		if i < 190 {
			bins[v/16]++
		}
	}
	bx, bb := m.bytes("x", x), m.of("bins", make([]uint32, 16))
	return shape("histogram", 3, 64, want("bins", bins, 0), Args(bb, bx, uint32(190)), bx, bb)
}

func gather() Case {
	m := maker{}
	in, index := numbers(1000, 1<<31), numbers(64, 1000)
	out := make([]uint32, 64)
	for i := range out {
		out[i] = in[index[i]]
	}
	bi, bx, bo := m.of("in", in), m.of("index", index), m.of("out", make([]uint32, 64))
	return shape("gather", 1, 64, want("out", out, 0), Args(bo, bi, bx), bi, bx, bo)
}

func transpose() Case {
	m := maker{}
	const n = 24
	in, out := make([]uint16, n*n), make([]uint16, n*n)
	for i := range n {
		for j := range n {
			in[i*n+j] = uint16(i*n + j)
			out[j*n+i] = in[i*n+j]
		}
	}
	bi, bo := m.of("in", in), m.of("out", make([]uint16, n*n))
	c := shape("transpose", 1, 1, want("out", out, 0), Args(bo, bi, uint32(n)), bi, bo)
	c.Launch.Grid, c.Launch.Block, c.Launch.Shared = [3]int{3, 3, 1}, [3]int{8, 8, 1}, 8*9*2
	return c
}

func compact() Case {
	m := maker{}
	x := numbers(32, 100)
	out := make([]uint32, 32)
	n := uint32(0)
	for _, v := range x {
		if v%2 == 1 {
			out[n] = v
			n++
		}
	}
	bx, bo, bc := m.of("x", x), m.of("out", make([]uint32, 32)), m.of("count", uint32(0))
	return shape("compact", 1, 32, both(want("out", out, 0), want("count", n, 0)), Args(bo, bc, bx), bx, bo, bc)
}

func batched() Case {
	m := maker{}
	a, b := m.of("a", []float32{1, 2, 3, 4, 9}), m.of("b", []float32{5, 6, 7, 8, 9})
	list := m.of("list", []uint64{a.Address, b.Address})
	return shape("batched", 2, 4, both(want("a", []float32{2, 3, 4, 5, 9}, 0), want("b", []float32{6, 7, 8, 9, 9}, 0)), Args(list), a, b, list)
}

func scan() Case {
	m := maker{}
	x := numbers(32, 1000)
	out := append([]uint32(nil), x...)
	for i := 1; i < 32; i++ {
		out[i] += out[i-1]
	}
	bx := m.of("x", x)
	return shape("scan", 1, 32, want("x", out, 0), Args(bx), bx)
}

func total() Case {
	m := maker{}
	x := numbers(160, 1000)
	sum := uint32(0)
	for _, v := range x {
		sum += v
	}
	bx, bp, bo := m.of("x", x), m.of("partial", make([]uint32, 5)), m.of("out", uint32(0))
	return shape("total", 5, 32, want("out", sum, 0), Args(bo, bp, bx), bx, bp, bo)
}

func largest() Case {
	m := maker{}
	x := reals(64)
	most := x[0]
	for _, v := range x {
		most = max(most, v)
	}
	bx, bo := m.of("x", x), m.of("out", float32(-100))
	return shape("largest", 1, 64, want("out", most, 0), Args(bo, bx), bx, bo)
}

func halves() Case {
	m := maker{}
	x, y := reals(64), reals(65)[1:]
	hx, hy, sum, z := make([]uint16, 64), make([]uint16, 64), make([]uint16, 64), make([]uint16, 64)
	for i := range x {
		hx[i], hy[i] = toHalf(x[i]), toHalf(y[i])
		v := 2*x[i] + y[i] // at most 24, in eighths: both types hold it
		sum[i] = toHalf(v)
		z[i] = bfloat(v)
	}
	bx, by, bz := m.of("x", hx), m.of("y", hy), m.of("z", make([]uint16, 64))
	return shape("halves", 1, 32, both(want("y", sum, 0), want("z", z, 0)), Args(by, bz, bx), bx, by, bz)
}

func reverse() Case {
	m := maker{}
	bx := m.of("x", []float32{1, 2, 3, 4, 5, 6, 7, 8})
	return shape("reverse", 1, 2, want("x", []float32{4, 6, 2, 1, 8, 14, 6, 5}, 0), Args(bx), bx)
}

func pointers() Case {
	m := maker{}
	x := numbers(16, 100)
	out := make([]uint32, 16)
	for i, v := range x {
		out[i] = [4]uint32{2*v + 1, v * v, 2*v + 2, v * v}[i%4]
	}
	bx := m.of("x", x)
	c := shape("pointers", 1, 16, want("x", out, 0), Args(bx), bx)
	c.Untraced = true
	return c
}

func gridSync() Case {
	m := maker{}
	const n = 7
	out := make([]uint32, n)
	for i := range out {
		k := uint32(i+1) % n
		out[i] = k * k
	}
	bo, bm, ba := m.of("out", make([]uint32, n)), m.of("mail", make([]uint32, n)), m.of("arrived", uint32(0))
	return shape("grid_sync", n, 1, want("out", out, 0), Args(bo, bm, ba), bo, bm, ba)
}

// bfloat rounds to bf16, ties to even.
func bfloat(f float32) uint16 {
	b := math.Float32bits(f)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
