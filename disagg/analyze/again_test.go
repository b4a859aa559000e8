package analyze

import (
	"encoding/binary"
	"reflect"
	"strings"
	"testing"

	"github.com/muster-sched/muster/disagg/ptx"
)

const aligned = `.version 8.0
.target sm_80
.address_size 64
.global .u32 count;
.visible .entry put(.param .u32 n, .param .u64 .ptr .global .align 16 to, .param .u16 a, .param .align 8 .b8 more[24]) {
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [to];
	st.global.u32 [%rd1], 1;
	ret;
}
.visible .entry counts() {
	.reg .b32 %r<2>;
	atom.global.add.u32 %r1, [count], 1;
	ret;
}`

// Modules with variables of one name do not share them.
func TestSeveralModules(t *testing.T) {
	m, err := ptx.Parse(aligned)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ptx.Parse(strings.Replace(aligned, "counts()", "others()", 1))
	if err != nil {
		t.Fatal(err)
	}
	trace := &Trace{Buffers: []Allocation{{Name: "x", Address: "0x10000", Bytes: 64}}, Nodes: []Call{{Kernel: "counts"}, {Kernel: "others"}}}
	g, err := Analyze("t", trace, []*ptx.Module{m, other})
	if err != nil || len(g.Nodes) != 2 || len(g.Edges) != 0 {
		t.Errorf("%+v, %v", g, err)
	}
}

// gemm is a call with one more argument.
func gemm(name, more, value string) Call {
	return Call{Library: name, Values: map[string]Value{"m": "2", "n": "2", "k": "2", "A": "x", "B": "y", "C": "x+32", more: Value(value)}}
}

// A call of cuBLAS runs again with its arguments in order, and those that it leaves out as cuBLAS takes them. What it leaves
// in its workspace is no result.
func TestReplayRoutine(t *testing.T) {
	buffers := []Allocation{{Name: "x", Address: "0x10000", Bytes: 64}, {Name: "y", Address: "0x20000", Bytes: 64}}
	trace := &Trace{Buffers: buffers, Nodes: []Call{
		{Library: "cublasHgemm", Values: map[string]Value{"transb": "T", "m": "2", "n": "3", "k": "4", "A": "x", "B": "y+8", "C": "x+16", "ldc": "3", "alpha": "0.1", "workspace": "y+40", "workspaceBytes": "24"}},
	}}
	r, err := NewReplay("t", trace, nil)
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	for _, v := range []uint64{0, 1, 2, 3, 4, 0x2e66, 0x10000, 2, 0x20008, 3, 0, 0x10010, 3} {
		want = binary.LittleEndian.AppendUint64(want, v)
	}
	s := r.Steps[0]
	if s.Routine != "cublasHgemm" || !reflect.DeepEqual(s.Args, want) || !reflect.DeepEqual(s.Pointers, []int{48, 64, 88}) || s.FromHost() || s.ToHost() {
		t.Errorf("%+v\nwant arguments %x", s, want)
	}
	if want := []Range{{0x10010, 0x10014}, {0x10016, 0x1001a}, {0x1001c, 0x10020}}; !reflect.DeepEqual(s.Writes, want) {
		t.Errorf("writes %x, want %x", s.Writes, want)
	}
}

// A launch runs again with its arguments packed as the driver takes them, and the places of addresses known.
func TestReplay(t *testing.T) {
	m, err := ptx.Parse(aligned)
	if err != nil {
		t.Fatal(err)
	}
	buffers := []Allocation{{Name: "x", Address: "0x10000", Bytes: 64}, {Name: "y", Address: "0x20000", Bytes: 64, Type: "u64", Values: []float64{7}}}
	trace := &Trace{Buffers: buffers, Nodes: []Call{
		{Name: "in", Copy: &Copy{To: "x", Bytes: 8}},
		{Name: "put", Kernel: "put", Args: []Value{"5", "x+16", "3", "u32:9 y+8 f32:0.5"}},
		{Name: "put", Iteration: 1, Copy: &Copy{To: "x", Bytes: 8}},
		{Name: "out", Iteration: 1, Kernel: "put", Args: []Value{"5", "x+20", "3", "1 2"}},
	}}
	r, err := NewReplay("t", trace, []*ptx.Module{m})
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	want = binary.LittleEndian.AppendUint64(want, 5)
	want = binary.LittleEndian.AppendUint64(want, 0x10010)
	want = binary.LittleEndian.AppendUint64(want, 3)
	want = binary.LittleEndian.AppendUint64(want, 9)
	want = binary.LittleEndian.AppendUint64(want, 0x20008)
	want = binary.LittleEndian.AppendUint64(want, 0x3f000000)
	s := r.Steps[1]
	if !reflect.DeepEqual(s.Args, want) || !reflect.DeepEqual(s.Pointers, []int{8, 32}) || s.Name != "out" || !reflect.DeepEqual(s.Writes, []Range{{0x10010, 0x10014}}) {
		t.Errorf("%+v\nwant arguments %x", s, want)
	}
	if in := r.Steps[0]; !in.FromHost() || in.ToHost() || in.To != (Range{0x10000, 0x10008}) {
		t.Errorf("%+v", in)
	}
	if y := r.Buffers[1]; y.Range != (Range{0x20000, 0x20040}) || binary.LittleEndian.Uint64(y.Values) != 7 {
		t.Errorf("%+v", y)
	}
	for _, c := range []struct {
		name    string
		buffers []Allocation
		node    Call
		want    string
	}{
		{"a number that is an address", buffers, Call{Kernel: "put", Args: []Value{"5", "0x10010", "3", "1"}},
			"t: nodes[0].args[1]: a buffer with an offset, such as x+16, as buffers get other addresses; found the address 0x10010"},
		{"an address in memory", append([]Allocation{{Name: "list", Address: "0x30000", Bytes: 8, Type: "u64", Values: []float64{0x10000}}}, buffers...), Call{Fill: &Copy{To: "x", Bytes: 8}},
			"t: buffers[0].values[0]: no address of a buffer, as buffers get other addresses; found one"},
		{"a variable", buffers, Call{Kernel: "counts"},
			"t: nodes[0].kernel: one without variables of its module, which requests on a GPU would share; found count in counts"},
		{"a library", buffers, Call{Library: "cusparseSpMM"},
			"t: nodes[0].library: gemm of f16, f32 or f64, with strided batches or without, cublasGemmEx, cublasGemmStridedBatchedEx, cublasLtMatmul, or gemv of f32 or f64, which can run again; found cusparseSpMM"},
		{"a transpose that is none", buffers, gemm("cublasSgemm", "transa", "X"), `t: nodes[0].values.transa: N, T or C; found "X"`},
		{"a scalar that is no number", buffers, gemm("cublasSgemm", "alpha", "one"), `t: nodes[0].values.alpha: a number; found "one"`},
		{"a type that cuBLAS has not", buffers, gemm("cublasGemmEx", "Atype", "u16"), `t: nodes[0].values.Atype: a type such as f16; found "u16"`},
		{"a computation that it has not", buffers, gemm("cublasGemmEx", "computeType", "CUBLAS_COMPUTE_8F"), `t: nodes[0].values.computeType: one such as CUBLAS_COMPUTE_32F; found "CUBLAS_COMPUTE_8F"`},
		{"an algorithm that is no number", buffers, gemm("cublasGemmEx", "algo", "best"), `t: nodes[0].values.algo: a whole number; found "best"`},
		{"an epilogue without its bias", buffers, gemm("cublasLtMatmul", "epilogue", "GELU_BIAS"),
			`t: nodes[0].values.epilogue: CUBLASLT_EPILOGUE_DEFAULT, RELU or GELU, and BIAS, RELU_BIAS or GELU_BIAS if there is a bias; found "GELU_BIAS"`},
		{"a batch over two buffers", append([]Allocation{{Name: "z", Address: "0x10040", Bytes: 64}}, buffers...), Call{Library: "cublasSgemmStridedBatched", Values: map[string]Value{"m": "4", "n": "4", "k": "1", "A": "y", "B": "y", "C": "x", "strideC": "16", "batchCount": "2"}},
			"t: nodes[0].values.C: at most the 64 bytes that are left of buffer x; found 128"},
		{"a kernel elsewhere", buffers, Call{Kernel: "none", Accesses: []Access{{At: "x", Bytes: 4, Read: true}}},
			`t: nodes[0].kernel: one of the modules; found "none"`},
		{"a late buffer with values", buffers, Call{Allocate: &Allocation{Name: "z", Address: "0x40000", Bytes: 8, Type: "u64", Values: []float64{7}}},
			"t: nodes[0].allocate.values: values in the buffers that there are at first; found some later"},
	} {
		_, err := NewReplay("t", &Trace{Buffers: c.buffers, Nodes: []Call{c.node}}, []*ptx.Module{m})
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: %v\nwant %s", c.name, err, c.want)
		}
	}
}
