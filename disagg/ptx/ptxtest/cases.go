// Package ptxtest has launches of the kernels in disagg/ptx/testdata, with what they compute, for
// the tests of what reads and runs kernels.
package ptxtest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/muster-sched/muster/disagg/ptx"
	"github.com/muster-sched/muster/disagg/ptx/interp"
)

// Case is a launch on buffers, and a check of the memory afterwards.
type Case struct {
	Name, File string
	Text       string // of the module, instead of a file
	Launch     interp.Launch
	Buffers    []*interp.Buffer
	Check      func(m *interp.Memory) error
	Untraced   bool // it calls through pointers, so that not all accesses can be instrumented
}

// Module parses the module of a case; dir is the folder of the files.
func (c *Case) Module(dir string) (*ptx.Module, error) {
	if c.Text != "" {
		return ptx.Parse(c.Text)
	}
	text, err := os.ReadFile(filepath.Join(dir, c.File))
	if err != nil {
		return nil, err
	}
	return ptx.Parse(string(text))
}

// Memory returns new memory with copies of the buffers.
func (c *Case) Memory() (*interp.Memory, error) {
	m := &interp.Memory{}
	for _, b := range c.Buffers {
		if err := m.Add(&interp.Buffer{Name: b.Name, Address: b.Address, Data: append([]byte(nil), b.Data...)}); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Args encodes arguments: numbers and the addresses of buffers.
func Args(args ...any) (all [][]byte) {
	for _, a := range args {
		if b, ok := a.(*interp.Buffer); ok {
			a = b.Address
		}
		if b, ok := a.([]byte); ok {
			all = append(all, b)
			continue
		}
		b, err := binary.Append(nil, binary.LittleEndian, a)
		if err != nil {
			panic(err)
		}
		all = append(all, b)
	}
	return all
}

// maker places buffers one after another, with room between them.
type maker struct{ at uint64 }

func (m *maker) bytes(name string, data []byte) *interp.Buffer {
	if m.at == 0 {
		m.at = 0x10_0000_0000
	}
	b := &interp.Buffer{Name: name, Address: m.at, Data: data}
	m.at += (uint64(len(data))/4096 + 2) * 4096
	return b
}

func (m *maker) of(name string, values any) *interp.Buffer {
	b, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		panic(err)
	}
	return m.bytes(name, b)
}

// numbers returns n numbers from 0 to most-1, the same each time.
func numbers(n int, most uint32) []uint32 {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	all := make([]uint32, n)
	for i := range all {
		all[i] = r.Uint32N(most)
	}
	return all
}

// reals returns n floats that are multiples of 1/8 from -8 to 8: sums of products of them are exact.
func reals(n int) []float32 {
	all := make([]float32, n)
	for i, x := range numbers(n, 129) {
		all[i] = float32(x)/8 - 8
	}
	return all
}

// want compares a buffer with values; tolerance is relative, for floats.
func want(name string, values any, tolerance float64) func(*interp.Memory) error {
	expected, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		panic(err)
	}
	return func(m *interp.Memory) error {
		for _, b := range m.Buffers {
			if b.Name != name {
				continue
			}
			for i := 0; i+4 <= len(expected); i += 4 {
				x, y := binary.LittleEndian.Uint32(b.Data[i:]), binary.LittleEndian.Uint32(expected[i:])
				f, g := float64(math.Float32frombits(x)), float64(math.Float32frombits(y))
				if x != y && !(math.Abs(f-g) <= tolerance*math.Abs(g)) {
					return fmt.Errorf("%s: word %d is %#x (%g), want %#x (%g)", name, i/4, x, f, y, g)
				}
			}
			return nil
		}
		return fmt.Errorf("no buffer %s", name)
	}
}

func both(all ...func(*interp.Memory) error) func(*interp.Memory) error {
	return func(m *interp.Memory) error {
		for _, f := range all {
			if err := f(m); err != nil {
				return err
			}
		}
		return nil
	}
}

func grid(x int) [3]int { return [3]int{x, 1, 1} }

// Cases returns all cases.
func Cases() []Case {
	all := []Case{saxpy(), vectorized(), gemm(), softmax(), mma(), bulk(), callee()}
	return append(all, shapes()...)
}

func saxpy() Case {
	m := maker{}
	x, y := reals(300), reals(300)
	bx, by := m.of("x", x), m.of("y", y)
	out := append([]float32(nil), y...)
	for i := range 250 {
		out[i] = 3*x[i] + y[i]
	}
	return Case{Name: "saxpy", File: "shapes.ptx", Buffers: []*interp.Buffer{bx, by}, Check: want("y", out, 0),
		Launch: interp.Launch{Kernel: "saxpy", Grid: grid(3), Block: grid(96), Args: Args(by, bx, float32(3), uint32(250))}}
}

func vectorized() Case {
	m := maker{}
	const n = 512 + 37
	x, y := reals(n), reals(n + 1)[1:]
	bx, by, bo := m.of("x", x), m.of("y", y), m.of("out", make([]float32, n))
	out := make([]float32, n)
	for i := range out {
		out[i] = x[i] + 0.5*y[i]
	}
	pointers := Args(bo, bx, by)
	data := append(append(append([]byte(nil), pointers[0]...), pointers[1]...), pointers[2]...)
	return Case{Name: "vectorized", File: "elementwise.ptx", Buffers: []*interp.Buffer{bx, by, bo}, Check: want("out", out, 0),
		Launch: interp.Launch{Kernel: "add_vectorized", Grid: grid(2), Block: grid(128), Args: Args(uint32(n), float32(0.5), data)}}
}

func gemm() Case {
	m := maker{}
	const n = 32
	a, b := reals(n*n), reals(n*n + 1)[1:]
	ba, bb, bc := m.of("a", a), m.of("b", b), m.of("c", make([]float32, n*n))
	out := make([]float32, n*n)
	for i := range n {
		for j := range n {
			var s float32
			for k := range n {
				s += a[i*n+k] * b[k*n+j]
			}
			out[i*n+j] = s
		}
	}
	return Case{Name: "gemm", File: "shapes.ptx", Buffers: []*interp.Buffer{ba, bb, bc}, Check: want("c", out, 0),
		Launch: interp.Launch{Kernel: "gemm", Grid: [3]int{2, 2, 1}, Block: [3]int{16, 16, 1}, Args: Args(bc, ba, bb, uint32(n))}}
}

func softmax() Case {
	m := maker{}
	const rows, stride, n = 3, 400, 388
	x := reals(rows * stride)
	bx, bo := m.of("x", x), m.of("out", make([]float32, rows*stride))
	out := make([]float32, rows*stride)
	for r := range rows {
		row := x[r*stride : r*stride+n]
		most, sum := math.Inf(-1), 0.0
		for _, v := range row {
			most = max(most, float64(v))
		}
		for _, v := range row {
			sum += math.Exp(float64(v) - most)
		}
		for i, v := range row {
			out[r*stride+i] = float32(math.Exp(float64(v)-most) / sum)
		}
	}
	return Case{Name: "softmax", File: "triton_softmax.ptx", Buffers: []*interp.Buffer{bx, bo}, Check: want("out", out, 1e-5),
		Launch: interp.Launch{Kernel: "softmax_kernel", Grid: grid(rows), Block: grid(128), Shared: 64, Args: Args(bo, bx, uint32(stride), uint32(n))}}
}

// toHalf encodes a small multiple of 1/8.
func toHalf(f float32) uint16 {
	if f == 0 {
		return 0
	}
	b := math.Float32bits(f)
	return uint16(b>>16&0x8000 | (b>>23&255-112)<<10 | b>>13&1023)
}

func mma() Case {
	m := maker{}
	const k = 48
	a, b := reals(16*k), reals(8*k + 1)[1:]
	ha, hb := make([]uint16, len(a)), make([]uint16, len(b))
	for i, f := range a {
		ha[i] = toHalf(f)
	}
	for i, f := range b {
		hb[i] = toHalf(f)
	}
	out := make([]float32, 16*8)
	for i := range 16 {
		for j := range 8 {
			for d := range k {
				out[i*8+j] += a[i*k+d] * b[j*k+d]
			}
		}
	}
	ba, bb, bc := m.of("a", ha), m.of("b", hb), m.of("c", make([]float32, 16*8))
	return Case{Name: "mma", File: "mma.ptx", Buffers: []*interp.Buffer{ba, bb, bc}, Check: want("c", out, 0),
		Launch: interp.Launch{Kernel: "gemm16x8", Grid: grid(1), Block: grid(32), Args: Args(ba, bb, bc, uint32(k))}}
}

func bulk() Case {
	m := maker{}
	x := reals(512)
	bx, bo := m.of("x", x), m.of("out", make([]float32, 512))
	out := make([]float32, 512)
	for i := range out {
		out[i] = -2 * x[i]
	}
	return Case{Name: "bulk", File: "hopper.ptx", Buffers: []*interp.Buffer{bx, bo}, Check: want("out", out, 0),
		Launch: interp.Launch{Kernel: "bulk_scale", Grid: grid(2), Block: grid(256), Args: Args(bo, bx, float32(-2))}}
}

func callee() Case {
	m := maker{}
	x := reals(101)
	bx, bo := m.of("x", x), m.of("out", make([]float32, 100))
	out := make([]float32, 100)
	for i := range out {
		out[i] = x[i] + x[i+1]
	}
	return Case{Name: "callee", File: "callee.ptx", Buffers: []*interp.Buffer{bx, bo}, Check: want("out", out, 0),
		Launch: interp.Launch{Kernel: "weighted", Grid: grid(2), Block: grid(64), Args: Args(bo, bx, uint32(100))}}
}
