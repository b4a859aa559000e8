package interp_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/muster-sched/muster/disagg/ptx"
	"github.com/muster-sched/muster/disagg/ptx/interp"
)

// kinds are the registers of conformance tests, by the first letters of their names.
var kinds = []struct {
	prefix, load string
}{{"%rd", "b64"}, {"%r", "b32"}, {"%h", "b16"}, {"%f", "f32"}, {"%d", "f64"}}

func kindOf(register string) string {
	for _, k := range kinds {
		if strings.HasPrefix(register, k.prefix) {
			return k.load
		}
	}
	return ""
}

// perform runs instructions on inputs, one a register named in them, and returns the values of
// registers afterwards.
func perform(t *testing.T, text string, in map[string]uint64, out ...string) []uint64 {
	t.Helper()
	var b strings.Builder
	b.WriteString(".version 8.0\n.target sm_90\n.address_size 64\n.global .align 8 .b64 cells[64];\n.visible .entry k()\n{\n" +
		".reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .b16 %h<9>; .reg .f32 %f<9>; .reg .f64 %d<9>; .reg .pred %p<9>;\n")
	memory := &interp.Memory{}
	at := 0
	var values []uint64
	for r, v := range in {
		fmt.Fprintf(&b, "ld.global.%s %s, [cells+%d];\n", kindOf(r), r, 8*at)
		values = append(values, v)
		at++
	}
	b.WriteString(text + "\n")
	for k, r := range out {
		if strings.HasPrefix(r, "%p") {
			fmt.Fprintf(&b, "selp.b32 %%r8, 1, 0, %s; st.global.b32 [cells+%d], %%r8;\n", r, 256+8*k)
		} else {
			fmt.Fprintf(&b, "st.global.%s [cells+%d], %s;\n", kindOf(r), 256+8*k, r)
		}
	}
	b.WriteString("ret;\n}\n")
	m, err := ptx.Parse(b.String())
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	p, err := interp.Load(m, memory)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	cells := memory.Buffers[0].Data
	for i, v := range values {
		binary.LittleEndian.PutUint64(cells[8*i:], v)
	}
	if _, err := p.Run(interp.Launch{Kernel: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}}, nil); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var results []uint64
	for k := range out {
		results = append(results, binary.LittleEndian.Uint64(cells[256+8*k:]))
	}
	return results
}

func f32(f float32) uint64 { return uint64(math.Float32bits(f)) }

type in = map[string]uint64

// What instructions do, by NVIDIA's manual. Results are computed by hand, not by other code here.
func TestConformance(t *testing.T) {
	nan := uint64(0x7fffffff)
	for _, c := range []struct {
		text string
		in   in
		out  string
		want uint64
	}{
		{"add.s32 %r0, %r1, %r2;", in{"%r1": 0xffffffff, "%r2": 3}, "%r0", 2},
		{"add.sat.s32 %r0, %r1, %r2;", in{"%r1": 0x7fffffff, "%r2": 3}, "%r0", 0x7fffffff},
		{"sub.sat.s32 %r0, %r1, %r2;", in{"%r1": 0x80000000, "%r2": 3}, "%r0", 0x80000000},
		{"mul.lo.s32 %r0, %r1, %r2;", in{"%r1": 0x10001, "%r2": 0x10001}, "%r0", 0x20001},
		{"mul.hi.s32 %r0, %r1, %r2;", in{"%r1": 0xffffffff, "%r2": 2}, "%r0", 0xffffffff},
		{"mul.hi.u32 %r0, %r1, %r2;", in{"%r1": 0xffffffff, "%r2": 2}, "%r0", 1},
		{"mul.hi.u64 %rd0, %rd1, %rd2;", in{"%rd1": 1 << 63, "%rd2": 6}, "%rd0", 3},
		{"mul.hi.s64 %rd0, %rd1, %rd2;", in{"%rd1": math.MaxUint64, "%rd2": 6}, "%rd0", math.MaxUint64},
		{"mul.wide.s32 %rd0, %r1, %r2;", in{"%r1": 0xfffffffe, "%r2": 3}, "%rd0", 0xfffffffffffffffa},
		{"mul.wide.u32 %rd0, %r1, %r2;", in{"%r1": 0xfffffffe, "%r2": 3}, "%rd0", 0x2fffffffa},
		{"mul.wide.u16 %r0, %h1, %h2;", in{"%h1": 0xffff, "%h2": 0xffff}, "%r0", 0xfffe0001},
		{"mad.wide.s32 %rd0, %r1, %r2, %rd3;", in{"%r1": 0xffffffff, "%r2": 4, "%rd3": 100}, "%rd0", 96},
		{"mad.hi.u32 %r0, %r1, %r2, %r3;", in{"%r1": 1 << 31, "%r2": 4, "%r3": 5}, "%r0", 7},
		{"mul24.lo.s32 %r0, %r1, %r2;", in{"%r1": 0xffffff, "%r2": 5}, "%r0", 0xfffffffb},
		{"div.s32 %r0, %r1, %r2;", in{"%r1": 0xfffffff9, "%r2": 2}, "%r0", 0xfffffffd},
		{"rem.s32 %r0, %r1, %r2;", in{"%r1": 0xfffffff9, "%r2": 2}, "%r0", 0xffffffff},
		{"div.u32 %r0, %r1, %r2;", in{"%r1": 7, "%r2": 0}, "%r0", 0xffffffff},
		{"min.s32 %r0, %r1, %r2;", in{"%r1": 0xffffffff, "%r2": 0}, "%r0", 0xffffffff},
		{"max.u32 %r0, %r1, %r2;", in{"%r1": 0xffffffff, "%r2": 0}, "%r0", 0xffffffff},
		{"abs.s32 %r0, %r1;", in{"%r1": 0xfffffffb}, "%r0", 5},
		{"shl.b32 %r0, %r1, %r2;", in{"%r1": 1, "%r2": 32}, "%r0", 0},
		{"shr.s32 %r0, %r1, %r2;", in{"%r1": 0x80000000, "%r2": 40}, "%r0", 0xffffffff},
		{"shr.u32 %r0, %r1, %r2;", in{"%r1": 0x80000000, "%r2": 31}, "%r0", 1},
		{"shf.l.wrap.b32 %r0, %r1, %r2, %r3;", in{"%r1": 0x80000000, "%r2": 1, "%r3": 33}, "%r0", 3},
		{"shf.r.clamp.b32 %r0, %r1, %r2, %r3;", in{"%r1": 0, "%r2": 0xabcd, "%r3": 40}, "%r0", 0xabcd},
		{"bfe.u32 %r0, %r1, 4, 8;", in{"%r1": 0x12345}, "%r0", 0x34},
		{"bfe.s32 %r0, %r1, 4, 4;", in{"%r1": 0x80}, "%r0", 0xfffffff8},
		{"bfi.b32 %r0, %r1, %r2, 8, 4;", in{"%r1": 0xff, "%r2": 0x1000}, "%r0", 0x1f00},
		{"brev.b32 %r0, %r1;", in{"%r1": 1}, "%r0", 0x80000000},
		{"clz.b32 %r0, %r1;", in{"%r1": 0x10}, "%r0", 27},
		{"clz.b64 %r0, %rd1;", in{"%rd1": 0}, "%r0", 64},
		{"popc.b64 %r0, %rd1;", in{"%rd1": math.MaxUint64}, "%r0", 64},
		{"bfind.u32 %r0, %r1;", in{"%r1": 0}, "%r0", 0xffffffff},
		{"bfind.s32 %r0, %r1;", in{"%r1": 0xffffff00}, "%r0", 7},
		{"bfind.shiftamt.u32 %r0, %r1;", in{"%r1": 1}, "%r0", 31},
		{"lop3.b32 %r0, %r1, %r2, %r3, 0x96;", in{"%r1": 0xc, "%r2": 0xa, "%r3": 0x1}, "%r0", 7},
		{"lop3.b32 %r0, %r1, %r2, %r3, 0xe8;", in{"%r1": 0xc, "%r2": 0xa, "%r3": 0x6}, "%r0", 0xe},
		{"prmt.b32 %r0, %r1, %r2, 0x7610;", in{"%r1": 0x33221100, "%r2": 0x77665544}, "%r0", 0x77661100},
		{"prmt.b32 %r0, %r1, %r2, 0x000b;", in{"%r1": 0x80221100, "%r2": 0}, "%r0", 0xff},
		{"sad.s32 %r0, %r1, %r2, %r3;", in{"%r1": 0xffffffff, "%r2": 4, "%r3": 10}, "%r0", 15},
		{"dp4a.s32.s32 %r0, %r1, %r2, %r3;", in{"%r1": 0x010203ff, "%r2": 0x01010101, "%r3": 10}, "%r0", 15},
		{"dp2a.lo.s32.s32 %r0, %r1, %r2, %r3;", in{"%r1": 0x00030002, "%r2": 0x00000504, "%r3": 1}, "%r0", 24},
		{"add.cc.u32 %r0, %r1, %r1; addc.u32 %r2, %r3, 0;", in{"%r1": 0x80000000, "%r3": 7}, "%r2", 8},
		{"sub.cc.u32 %r0, %r1, %r2; subc.u32 %r4, %r3, 0;", in{"%r1": 1, "%r2": 2, "%r3": 7}, "%r4", 6},
		{"mad.lo.cc.u32 %r0, %r1, %r1, %r2; madc.hi.u32 %r4, %r1, %r1, 0;", in{"%r1": 0xffff, "%r2": 0x20000}, "%r4", 1},
		{"selp.b32 %r0, %r1, %r2, %p1;", in{"%r1": 5, "%r2": 6}, "%r0", 6},
		{"slct.u32.s32 %r0, %r1, %r2, %r3;", in{"%r1": 5, "%r2": 6, "%r3": 0xffffffff}, "%r0", 6},
		{"mov.b32 {%h0, %h1}, %r1; mov.b32 %r0, {%h1, %h0};", in{"%r1": 0x12345678}, "%r0", 0x56781234},
		{"mov.b64 %rd0, {%r1, %r2};", in{"%r1": 1, "%r2": 2}, "%rd0", 0x200000001},
		{"set.lt.u32.s32 %r0, %r1, %r2;", in{"%r1": 0xffffffff, "%r2": 0}, "%r0", 0xffffffff},
		{"set.gt.f32.u32 %f0, %r1, %r2;", in{"%r1": 3, "%r2": 1}, "%f0", f32(1)},
		{"setp.lt.and.u32 %p0|%p1, %r1, %r2, !%p2;", in{"%r1": 1, "%r2": 2}, "%p0", 1},
		{"setp.lt.and.u32 %p0|%p1, %r1, %r2, !%p2;", in{"%r1": 1, "%r2": 2}, "%p1", 0},
		{"setp.neu.f32 %p0, %f1, %f1;", in{"%f1": nan}, "%p0", 1},
		{"setp.ne.f32 %p0, %f1, %f1;", in{"%f1": nan}, "%p0", 0},
		{"setp.nan.f32 %p0, %f1, %f1;", in{"%f1": nan}, "%p0", 1},
		{"setp.hs.u32 %p0, %r1, %r2;", in{"%r1": 0xffffffff, "%r2": 1}, "%p0", 1},
		{"mov.pred %p0, -1;", nil, "%p0", 1},
		{"xor.pred %p0, %p1, %p2;", nil, "%p0", 0},
		{"not.pred %p0, %p1;", nil, "%p0", 1},
		{"@!%p1 mov.u32 %r0, 5;", nil, "%r0", 5},
		{"@%p1 mov.u32 %r0, 5;", nil, "%r0", 0},
		{"cvt.s32.s8 %r0, %r1;", in{"%r1": 0x1ff}, "%r0", 0xffffffff},
		{"cvt.sat.u8.s32 %r0, %r1;", in{"%r1": 300}, "%r0", 255},
		{"cvt.sat.u8.s32 %r0, %r1;", in{"%r1": 0xffffffff}, "%r0", 0},
		{"cvt.u64.u32 %rd0, %r1;", in{"%r1": 0xffffffff}, "%rd0", 0xffffffff},
		{"cvt.s64.s32 %rd0, %r1;", in{"%r1": 0xffffffff}, "%rd0", math.MaxUint64},
		{"cvt.rn.f32.u32 %f0, %r1;", in{"%r1": 0x01000001}, "%f0", f32(0x1p24)},
		{"cvt.rp.f32.u32 %f0, %r1;", in{"%r1": 0x01000001}, "%f0", f32(0x1000002)},
		{"cvt.rn.f32.s64 %f0, %rd1;", in{"%rd1": math.MaxUint64 - 6}, "%f0", f32(-7)},
		{"cvt.rn.f32.s64 %f0, %rd1;", in{"%rd1": 1<<62 + 1<<38 + 1}, "%f0", f32(0x1p62 + 0x1p39)}, // above the tie, by less than float64 holds
		{"cvt.rzi.s32.f32 %r0, %f1;", in{"%f1": f32(-2.9)}, "%r0", 0xfffffffe},
		{"cvt.rni.s32.f32 %r0, %f1;", in{"%f1": f32(2.5)}, "%r0", 2},
		{"cvt.rmi.f32.f32 %f0, %f1;", in{"%f1": f32(-2.5)}, "%f0", f32(-3)},
		{"cvt.rzi.u32.f32 %r0, %f1;", in{"%f1": f32(-5)}, "%r0", 0},
		{"cvt.rzi.s32.f32 %r0, %f1;", in{"%f1": f32(1e20)}, "%r0", 0x7fffffff},
		{"cvt.rzi.s32.f32 %r0, %f1;", in{"%f1": nan}, "%r0", 0},
		{"cvt.rn.f16.f32 %h0, %f1;", in{"%f1": f32(65520)}, "%h0", 0x7c00},
		{"cvt.rz.f16.f32 %h0, %f1;", in{"%f1": f32(65520)}, "%h0", 0x7bff},
		{"cvt.rn.f16.f32 %h0, %f1;", in{"%f1": f32(0x1p-24)}, "%h0", 1},
		{"cvt.f32.f16 %f0, %h1;", in{"%h1": 0xc500}, "%f0", f32(-5)},
		{"cvt.rn.bf16.f32 %h0, %f1;", in{"%f1": 0x3f808000}, "%h0", 0x3f80},
		{"cvt.rn.bf16.f32 %h0, %f1;", in{"%f1": 0x3f818000}, "%h0", 0x3f82},
		{"cvt.rn.f16x2.f32 %r0, %f1, %f2;", in{"%f1": f32(1), "%f2": f32(2)}, "%r0", 0x3c004000},
		{"cvt.rn.relu.f16.f32 %h0, %f1;", in{"%f1": f32(-1)}, "%h0", 0},
		{"cvt.rna.tf32.f32 %r0, %f1;", in{"%f1": 0x3f801000}, "%r0", 0x3f802000},
		{"cvt.rn.f32.f64 %f0, %d1;", in{"%d1": math.Float64bits(1 + 0x1p-24)}, "%f0", f32(1)},
		{"cvt.f64.f32 %d0, %f1;", in{"%f1": f32(0.1)}, "%d0", math.Float64bits(float64(float32(0.1)))},
		{"cvt.sat.f32.f32 %f0, %f1;", in{"%f1": f32(3)}, "%f0", f32(1)},
		{"add.rn.f32 %f0, %f1, %f2;", in{"%f1": f32(1), "%f2": f32(0x1p-24)}, "%f0", f32(1)},
		{"add.rp.f32 %f0, %f1, %f2;", in{"%f1": f32(1), "%f2": f32(0x1p-100)}, "%f0", f32(1 + 0x1p-23)},
		{"add.rz.f32 %f0, %f1, %f2;", in{"%f1": f32(1), "%f2": f32(-0x1p-100)}, "%f0", f32(1 - 0x1p-24)},
		{"add.sat.f32 %f0, %f1, %f2;", in{"%f1": f32(1), "%f2": f32(5)}, "%f0", f32(1)},
		{"mul.ftz.f32 %f0, %f1, %f2;", in{"%f1": f32(0x1p-100), "%f2": f32(0x1p-30)}, "%f0", 0},
		{"mul.f32 %f0, %f1, %f2;", in{"%f1": f32(0x1p-100), "%f2": f32(0x1p-30)}, "%f0", f32(0x1p-130)},
		{"div.rn.f32 %f0, %f1, %f2;", in{"%f1": f32(1), "%f2": f32(3)}, "%f0", 0x3eaaaaab},
		{"div.rz.f32 %f0, %f1, %f2;", in{"%f1": f32(1), "%f2": f32(3)}, "%f0", 0x3eaaaaaa},
		{"rcp.rn.f32 %f0, %f1;", in{"%f1": f32(0)}, "%f0", f32(float32(math.Inf(1)))},
		{"sqrt.rn.f32 %f0, %f1;", in{"%f1": f32(2)}, "%f0", 0x3fb504f3},
		{"min.f32 %f0, %f1, %f2;", in{"%f1": nan, "%f2": f32(2)}, "%f0", f32(2)},
		{"min.NaN.f32 %f0, %f1, %f2;", in{"%f1": nan, "%f2": f32(2)}, "%f0", nan},
		{"max.f32 %f0, %f1, %f2;", in{"%f1": 0x80000000, "%f2": 0}, "%f0", 0},
		{"neg.f32 %f0, %f1;", in{"%f1": f32(2)}, "%f0", f32(-2)},
		{"abs.f16x2 %r0, %r1;", in{"%r1": 0xbc00c000}, "%r0", 0x3c004000},
		{"ex2.approx.f32 %f0, %f1;", in{"%f1": f32(3)}, "%f0", f32(8)},
		{"lg2.approx.f32 %f0, %f1;", in{"%f1": f32(8)}, "%f0", f32(3)},
		{"rsqrt.approx.f32 %f0, %f1;", in{"%f1": f32(4)}, "%f0", f32(0.5)},
		{"copysign.f32 %f0, %f1, %f2;", in{"%f1": f32(-1), "%f2": f32(3)}, "%f0", f32(-3)},
		{"testp.infinite.f32 %p0, %f1;", in{"%f1": 0x7f800000}, "%p0", 1},
		{"fma.rn.f64 %d0, %d1, %d1, %d2;", in{"%d1": math.Float64bits(1 + 0x1p-52), "%d2": math.Float64bits(-1)}, "%d0", math.Float64bits(0x1p-51 + 0x1p-104)},
		{"fma.rn.relu.f16x2 %r0, %r1, %r2, %r3;", in{"%r1": 0xbc003c00, "%r2": 0x40004000, "%r3": 0}, "%r0", 0x4000},
		{"mov.f32 %f0, 0f40490FDB;", nil, "%f0", 0x40490fdb},
		{"mov.f64 %d0, 0d3FF0000000000000;", nil, "%d0", 0x3ff0000000000000},
		{"mov.f32 %f0, -1.5;", nil, "%f0", f32(-1.5)},
		{"mov.u32 %r0, 3<<4;", nil, "%r0", 48},
		{"mov.u32 %r0, -1;", nil, "%r0", 0xffffffff},
		{"mov.u32 %r0, %ntid.x;", nil, "%r0", 1},
		{"mov.u64 %rd1, cells; isspacep.global %p0, %rd1;", nil, "%p0", 1},
		{"mov.u64 %rd1, 0; cvta.shared.u64 %rd1, %rd1; isspacep.shared %p0, %rd1;", nil, "%p0", 1},
		{"atom.global.inc.u32 %r0, [cells+200], 3; atom.global.inc.u32 %r0, [cells+200], 3; atom.global.exch.b32 %r0, [cells+200], 9;", nil, "%r0", 2},
		{"atom.global.dec.u32 %r0, [cells+200], 3; atom.global.dec.u32 %r0, [cells+200], 3;", nil, "%r0", 3},
		{"atom.global.min.s32 %r0, [cells+200], -5; ld.global.s32 %r0, [cells+200];", nil, "%r0", 0xfffffffb},
		{"atom.global.add.noftz.f16x2 %r0, [cells+200], %r1; ld.global.b32 %r0, [cells+200];", in{"%r1": 0x3c004000}, "%r0", 0x3c004000},
		{"st.global.u8 [cells+200], %r1; ld.global.s8 %r0, [cells+200];", in{"%r1": 0x80}, "%r0", 0xffffff80},
	} {
		if got := perform(t, c.text, c.in, c.out)[0]; got != c.want {
			t.Errorf("%s %#x: %#x, want %#x", c.text, c.in, got, c.want)
		}
	}
}

// fma rounds once: compared with arithmetic that is exact.
func TestFusedRoundsOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var text strings.Builder
	text.WriteString(".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out)\n{\n.reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .f32 %f<9>;\n" +
		"ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r1, %r2, 256, %r1; mad.wide.u32 %rd1, %r1, 16, %rd1; mad.wide.u32 %rd2, %r1, 8, %rd2;\n" +
		"ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1]; fma.rn.f32 %f5, %f1, %f2, %f3; fma.rz.f32 %f6, %f1, %f2, %f3; st.global.v2.f32 [%rd2], {%f5, %f6}; ret;\n}\n")
	m, err := ptx.Parse(text.String())
	if err != nil {
		t.Fatal(err)
	}
	const n = 1 << 14
	in := &interp.Buffer{Name: "in", Address: 1 << 32, Data: make([]byte, 16*n)}
	out := &interp.Buffer{Name: "out", Address: 1 << 33, Data: make([]byte, 8*n)}
	memory := &interp.Memory{}
	if memory.Add(in) != nil || memory.Add(out) != nil {
		t.Fatal("buffers")
	}
	for i := range n { // exponents near each other, so that what is rounded away matters
		for k := range 3 {
			e := 120 + r.Uint32N(16)
			if k == 2 {
				e = 100 + r.Uint32N(50)
			}
			binary.LittleEndian.PutUint32(in.Data[16*i+4*k:], r.Uint32N(2)<<31|e<<23|r.Uint32N(1<<23)&^(1<<r.Uint32N(23)-1))
		}
	}
	p, err := interp.Load(m, memory)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Run(interp.Launch{Kernel: "k", Grid: [3]int{n / 256, 1, 1}, Block: [3]int{256, 1, 1},
		Args: [][]byte{binary.LittleEndian.AppendUint64(nil, in.Address), binary.LittleEndian.AppendUint64(nil, out.Address)}}, nil); err != nil {
		t.Fatal(err)
	}
	at := func(b []byte, i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])) }
	for i := range n {
		a, b, c := at(in.Data, 4*i), at(in.Data, 4*i+1), at(in.Data, 4*i+2)
		exact := func(f float32) *big.Float { return new(big.Float).SetPrec(400).SetFloat64(float64(f)) }
		s := exact(a)
		s.Mul(s, exact(b)).Add(s, exact(c))
		nearest, _ := s.Float32()
		toZero := new(big.Float).SetPrec(24).SetMode(big.ToZero).Set(s)
		rz, _ := toZero.Float32()
		if got := at(out.Data, 2*i); got != nearest {
			t.Fatalf("fma.rn(%g, %g, %g) = %g, want %g", a, b, c, got, nearest)
		}
		if got := at(out.Data, 2*i+1); got != rz {
			t.Fatalf("fma.rz(%g, %g, %g) = %g, want %g", a, b, c, got, rz)
		}
	}
}
