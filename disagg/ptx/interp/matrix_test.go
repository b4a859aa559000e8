package interp_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/muster-sched/muster/disagg/ptx"
	"github.com/muster-sched/muster/disagg/ptx/interp"
)

// place says where the element at a row and column of a fragment is: which lane, which register of
// its, and which element in that.
type place struct{ lane, register, element int }

// A product of each type of mma is that of its matrices. The places of elements are those of the
// figures in NVIDIA's manual, from the element to the lane, the other way round than in the
// interpreter.
func TestProducts(t *testing.T) {
	for _, c := range []struct {
		op              string
		rows, depth     int
		bits, accumBits int
		a, b            func(row, col int) place
		encode          func(n int) uint64
		accumulator     func(bits uint64) float64
	}{
		{op: "m16n8k8.row.col.f32.tf32.tf32.f32", rows: 16, depth: 8, bits: 32, accumBits: 32,
			a: func(r, k int) place { return place{r%8*4 + k%4, r/8 + k/4*2, 0} }, b: func(k, n int) place { return place{n*4 + k%4, k / 4, 0} },
			encode: func(n int) uint64 { return uint64(math.Float32bits(float32(n))) }, accumulator: single},
		{op: "m16n8k4.row.col.f32.tf32.tf32.f32", rows: 16, depth: 4, bits: 32, accumBits: 32,
			a: func(r, k int) place { return place{r%8*4 + k, r / 8, 0} }, b: func(k, n int) place { return place{n*4 + k, 0, 0} },
			encode: func(n int) uint64 { return uint64(math.Float32bits(float32(n))) }, accumulator: single},
		{op: "m16n8k16.row.col.f32.bf16.bf16.f32", rows: 16, depth: 16, bits: 16, accumBits: 32,
			a: func(r, k int) place { return place{r%8*4 + k%8/2, r/8 + k/8*2, k % 2} }, b: func(k, n int) place { return place{n*4 + k%8/2, k / 8, k % 2} },
			encode: func(n int) uint64 { return uint64(math.Float32bits(float32(n)) >> 16) }, accumulator: single},
		{op: "m16n8k8.row.col.f32.bf16.bf16.f32", rows: 16, depth: 8, bits: 16, accumBits: 32,
			a: func(r, k int) place { return place{r%8*4 + k/2, r / 8, k % 2} }, b: func(k, n int) place { return place{n*4 + k/2, 0, k % 2} },
			encode: func(n int) uint64 { return uint64(math.Float32bits(float32(n)) >> 16) }, accumulator: single},
		{op: "m16n8k32.row.col.s32.s8.s8.s32", rows: 16, depth: 32, bits: 8, accumBits: 32,
			a: func(r, k int) place { return place{r%8*4 + k%16/4, r/8 + k/16*2, k % 4} }, b: func(k, n int) place { return place{n*4 + k%16/4, k / 16, k % 4} },
			encode: func(n int) uint64 { return uint64(uint8(int8(n))) }, accumulator: func(b uint64) float64 { return float64(int32(b)) }},
		{op: "m8n8k4.row.col.f64.f64.f64.f64", rows: 8, depth: 4, bits: 64, accumBits: 64,
			a: func(r, k int) place { return place{r*4 + k, 0, 0} }, b: func(k, n int) place { return place{n*4 + k, 0, 0} },
			encode: func(n int) uint64 { return math.Float64bits(float64(n)) }, accumulator: math.Float64frombits},
	} {
		r := rand.New(rand.NewPCG(11, 12))
		size := max(c.bits, 32) / 8 // of a register
		na, nb := c.rows*c.depth*c.bits/8/size/32, c.depth*8*c.bits/8/size/32
		nd := c.rows * 8 / 32
		a, b := make([]int, c.rows*c.depth), make([]int, c.depth*8)
		fragments := make([]byte, 32*(na+nb)*size)
		fill := func(m []int, columns, first int, at func(int, int) place) {
			for i := range m {
				m[i] = r.IntN(31) - 15
				p := at(i/columns, i%columns)
				offset := (p.lane*(na+nb)+first+p.register)*size + p.element*c.bits/8
				for k := range c.bits / 8 {
					fragments[offset+k] = byte(c.encode(m[i]) >> (8 * k))
				}
			}
		}
		fill(a, c.depth, 0, c.a)
		fill(b, 8, na, c.b)
		out := multiply(t, c.op, fragments, na, nb, nd, size, c.accumBits/8)
		for row := range c.rows {
			for col := range 8 {
				want := 0
				for k := range c.depth {
					want += a[row*c.depth+k] * b[k*8+col]
				}
				lane, register := row%8*4+col/2, row/8*2+col%2
				got := out[(lane*nd+register)*c.accumBits/8:]
				bits := uint64(binary.LittleEndian.Uint32(got))
				if c.accumBits == 64 {
					bits = binary.LittleEndian.Uint64(got)
				}
				if f := c.accumulator(bits); f != float64(want) {
					t.Fatalf("%s: element %d, %d is %g, want %d", c.op, row, col, f, want)
				}
			}
		}
	}
}

func single(b uint64) float64 { return float64(math.Float32frombits(uint32(b))) }

// multiply runs mma on fragments: for each lane its registers of A, then of B.
func multiply(t *testing.T, op string, fragments []byte, na, nb, nd, size, result int) []byte {
	t.Helper()
	kind, accumulator := map[int]string{4: "b32", 8: "f64"}[size], map[int]string{4: "b32", 8: "f64"}[result]
	names := func(prefix string, n int) string {
		var all []string
		for k := range n {
			all = append(all, fmt.Sprintf("%s%d", prefix, k))
		}
		return "{" + strings.Join(all, ", ") + "}"
	}
	var b strings.Builder
	fmt.Fprintf(&b, ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out)\n{\n.reg .%s %%a<4>, %%b<4>; .reg .%s %%d<4>; .reg .b64 %%rd<3>; .reg .b32 %%r;\n", kind, accumulator)
	fmt.Fprintf(&b, "ld.param.u64 %%rd1, [in]; ld.param.u64 %%rd2, [out]; mov.u32 %%r, %%laneid; mad.wide.u32 %%rd1, %%r, %d, %%rd1; mad.wide.u32 %%rd2, %%r, %d, %%rd2;\n", (na+nb)*size, nd*result)
	for k := range na {
		fmt.Fprintf(&b, "ld.global.%s %%a%d, [%%rd1+%d];\n", kind, k, k*size)
	}
	for k := range nb {
		fmt.Fprintf(&b, "ld.global.%s %%b%d, [%%rd1+%d];\n", kind, k, (na+k)*size)
	}
	for k := range nd {
		fmt.Fprintf(&b, "mov.%s %%d%d, 0;\n", accumulator, k)
	}
	fmt.Fprintf(&b, "mma.sync.aligned.%s %s, %s, %s, %s;\n", op, names("%d", nd), names("%a", na), names("%b", nb), names("%d", nd))
	for k := range nd {
		fmt.Fprintf(&b, "st.global.%s [%%rd2+%d], %%d%d;\n", accumulator, k*result, k)
	}
	b.WriteString("ret;\n}\n")
	m, err := ptx.Parse(b.String())
	if err != nil {
		t.Fatal(err)
	}
	in, out := &interp.Buffer{Name: "in", Address: 1 << 32, Data: fragments}, &interp.Buffer{Name: "out", Address: 1 << 33, Data: make([]byte, 32*nd*result)}
	memory := &interp.Memory{}
	if memory.Add(in) != nil || memory.Add(out) != nil {
		t.Fatal("buffers")
	}
	p, err := interp.Load(m, memory)
	if err != nil {
		t.Fatal(err)
	}
	l := interp.Launch{Kernel: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}}
	for _, x := range []*interp.Buffer{in, out} {
		l.Args = append(l.Args, binary.LittleEndian.AppendUint64(nil, x.Address))
	}
	if _, err := p.Run(l, nil); err != nil {
		t.Fatalf("%s: %v\n%s", op, err, b.String())
	}
	return out.Data
}

// ldmatrix.trans loads the transposed matrix, and stmatrix.trans brings it back.
func TestTransposedMatrices(t *testing.T) {
	text := `.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
	.reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .pred %p;
	.shared .align 16 .b8 m[256];
	ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
	mov.u32 %r1, %laneid;
	setp.lt.u32 %p, %r1, 16;
	mov.u32 %r2, m;
	mad.lo.u32 %r3, %r1, 8, %r2;
	mad.wide.u32 %rd3, %r1, 8, %rd1;
	ld.global.v2.b32 {%r4, %r5}, [%rd3];
	st.shared.v2.b32 [%r3], {%r4, %r5};
	bar.warp.sync 0xffffffff;
	and.b32 %r3, %r1, 7;
	mad.lo.u32 %r3, %r3, 16, %r2;
	ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r6}, [%r3];
	mad.wide.u32 %rd3, %r1, 4, %rd2;
	st.global.b32 [%rd3], %r6;
	stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%r3], {%r6};
	bar.warp.sync 0xffffffff;
	mad.lo.u32 %r3, %r1, 4, %r2;
	ld.shared.b32 %r7, [%r3];
	st.global.b32 [%rd3+128], %r7;
	ret;
}`
	m, err := ptx.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	in, out := &interp.Buffer{Name: "in", Address: 1 << 32, Data: make([]byte, 256)}, &interp.Buffer{Name: "out", Address: 1 << 33, Data: make([]byte, 256)}
	for i := range 64 {
		binary.LittleEndian.PutUint16(in.Data[2*i:], uint16(i))
	}
	memory := &interp.Memory{}
	if memory.Add(in) != nil || memory.Add(out) != nil {
		t.Fatal("buffers")
	}
	p, err := interp.Load(m, memory)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Run(interp.Launch{Kernel: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1},
		Args: [][]byte{binary.LittleEndian.AppendUint64(nil, in.Address), binary.LittleEndian.AppendUint64(nil, out.Address)}}, nil); err != nil {
		t.Fatal(err)
	}
	for i := range 64 { // lane i/2 has elements i and i+1 of a row: of the transposed matrix
		if got := binary.LittleEndian.Uint16(out.Data[2*i:]); int(got) != i%8*8+i/8 {
			t.Errorf("element %d is %d, want %d", i, got, i%8*8+i/8)
		}
		if got := binary.LittleEndian.Uint16(out.Data[128+2*i:]); int(got) != i {
			t.Errorf("element %d came back as %d", i, got)
		}
	}
}
