//go:build linux

package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-sched/muster/disagg/analyze"
	"github.com/muster-sched/muster/disagg/ptx/interp"
	"github.com/muster-sched/muster/gpu/driver"
)

const routinesFile = "testdata/cublas.json"

// A program of which cuBLAS computes the products writes what it writes with kernels in PTX on one memory: on two GPUs, of
// one machine and of two, with graphs and without. All values are multiples of powers of two, so that each order of a sum has the
// same bits.
func TestRoutines(t *testing.T) {
	for _, network := range []bool{false, true} {
		for _, graphs := range []bool{false, true} {
			r := newRig(t, routinesFile, "../ptx/testdata/shapes.ptx", 2)
			r.o.Graphs, r.o.Requests = graphs, 6
			if network {
				apart(t, r, nil)
			}
			_, kept, err := r.run(t, t.Context(), r.on(map[string]int{"attend": 1, "down": 1, "add": 1, "result": 1}))
			if err != nil {
				t.Fatal(err)
			}
			kernels := layer(t, 1)
			for i := range kept {
				if !slices.Equal(kept[i], kernels.alone(t, i)) {
					t.Errorf("network %t, graphs %t: request %d wrote other bytes", network, graphs, i)
				}
			}
			calls := map[string]int{}
			for _, line := range r.logged(t, "routine") {
				calls[line]++
			}
			if len(calls) != 2 || calls["0 cublasSgemm_v2"] != 3*6 || calls["1 cublasGemmEx"] != 3*6 {
				t.Errorf("calls %v", calls)
			}
			if replayed := len(r.logged(t, "graph")) > 0; replayed != graphs {
				t.Errorf("graphs %t: the driver launched some: %t", graphs, replayed)
			}
		}
	}
}

// A machine without cuBLAS, or with one that has no such function, is told from one that fails. Machines where no routine
// runs need none.
func TestMissingRoutines(t *testing.T) {
	for name, path := range map[string]string{"none.so: cannot open": "none.so", "has no cublasSgemm_v2": ""} {
		for _, network := range []bool{false, true} {
			r := newRig(t, routinesFile, "../ptx/testdata/shapes.ptx", 2)
			if path == "" {
				path = r.o.Server.Driver.Driver // a library, and another one
			}
			other := driver.Options{Program: r.o.Server.Driver.Program, Driver: r.o.Server.Driver.Driver, Environment: slices.Concat(r.o.Server.Driver.Environment, []string{"MUSTER_CUBLAS=" + path})}
			if network {
				apart(t, r, nil).Driver = other
			} else {
				r.o.Server.Driver = other
			}
			_, _, err := r.run(t, t.Context(), r.on(map[string]int{"up": 1, "down": 1}))
			missing := (*driver.Missing)(nil)
			if !errors.As(err, &missing) || !strings.Contains(missing.Text, name) || network != strings.Contains(missing.Text, "127.0.0.1:") {
				t.Errorf("network %t: %v; want %s", network, err, name)
			}
			if _, _, err := r.run(t, t.Context(), r.on(split)); network && err != nil {
				t.Errorf("with all products on the other machine: %v", err)
			}
		}
	}
}

// product is a call of a routine: C = alpha op(A) op(B) + beta C, count times.
type product struct {
	name                                     string
	a, b, c                                  string // types
	ta, tb                                   bool
	m, n, k, count                           int
	lda, ldb, ldc, strideA, strideB, strideC int // 0 for what is without gaps
	alpha, beta                              float64
	more                                     map[string]any
	// Of cublasLtMatmul: the result is another matrix, of a type, with ldd, after adding a bias to each column, and without what is negative.
	d          string
	ldd        int
	bias, relu bool
}

// expected computes C of elements.
func (p *product) expected(a, b, c, d, bias []float64) []float64 {
	out, ldc := slices.Clone(c), p.ldc
	if p.d != "" {
		out, ldc = slices.Clone(d), p.ldd
	}
	at := func(x []float64, lead, from, i, j int, transposed bool) float64 {
		if transposed {
			i, j = j, i
		}
		return x[from+i+j*lead]
	}
	for z := range p.count {
		for i := range p.m {
			for j := range p.n {
				sum := 0.0
				for l := range p.k {
					sum += at(a, p.lda, z*p.strideA, i, l, p.ta) * at(b, p.ldb, z*p.strideB, l, j, p.tb)
				}
				v := p.alpha*sum + p.beta*c[z*p.strideC+i+j*p.ldc]
				if p.bias {
					v += bias[i]
				}
				if p.relu {
					v = max(v, 0)
				}
				out[z*p.strideC+i+j*ldc] = v
			}
		}
	}
	return out
}

// elements encodes values of a type.
func elements(t string, all []float64) (data []byte) {
	for _, x := range all {
		switch t {
		case "s8":
			data = append(data, byte(int8(x)))
		case "s32":
			for i := range 4 {
				data = append(data, byte(int32(x)>>(8*i)))
			}
		default:
			bits := interp.Float(t, x)
			for i := range map[string]int{"f16": 2, "bf16": 2, "f32": 4, "f64": 8}[t] {
				data = append(data, byte(bits>>(8*i)))
			}
		}
	}
	return data
}

// Each routine gets its arguments: sizes that differ, transposes, gaps between columns, strides, scalars and types.
func TestEachRoutine(t *testing.T) {
	all := []product{
		{name: "cublasSgemm", a: "f32", b: "f32", c: "f32", m: 4, n: 3, k: 5, alpha: 1},
		{name: "cublasSgemm_v2", a: "f32", b: "f32", c: "f32", ta: true, m: 4, n: 3, k: 5, lda: 7, ldb: 6, ldc: 5, alpha: 0.5, beta: 2},
		{name: "cublasDgemm", a: "f64", b: "f64", c: "f64", tb: true, m: 4, n: 3, k: 5, ldc: 6, alpha: -1, beta: 1},
		{name: "cublasHgemm", a: "f16", b: "f16", c: "f16", ta: true, tb: true, m: 4, n: 3, k: 5, alpha: 0.5, beta: 0.25},
		{name: "cublasSgemmStridedBatched", a: "f32", b: "f32", c: "f32", m: 4, n: 3, k: 5, count: 3, strideA: 20, strideB: 0, strideC: 16, alpha: 2, beta: 1},
		{name: "cublasDgemmStridedBatched", a: "f64", b: "f64", c: "f64", ta: true, m: 4, n: 3, k: 5, count: 2, strideA: 21, strideB: 15, strideC: 12, alpha: 1},
		{name: "cublasHgemmStridedBatched", a: "f16", b: "f16", c: "f16", m: 2, n: 2, k: 2, count: 4, strideA: 4, strideB: 4, strideC: 4, alpha: 1, beta: 1},
		{name: "cublasGemmEx", a: "bf16", b: "bf16", c: "f32", tb: true, m: 4, n: 3, k: 5, ldb: 4, alpha: 0.5, beta: 2, more: map[string]any{"algo": 99}},
		{name: "cublasGemmEx", a: "f16", b: "f16", c: "f16", m: 4, n: 3, k: 5, alpha: 0.5, beta: 2, more: map[string]any{"computeType": "64"}},
		{name: "cublasGemmEx", a: "s8", b: "s8", c: "s32", m: 4, n: 3, k: 5, alpha: 3, beta: -1},
		{name: "cublasGemmStridedBatchedEx", a: "f16", b: "f16", c: "f32", ta: true, m: 4, n: 3, k: 5, count: 3, lda: 6, strideA: 24, strideB: 15, strideC: 13, alpha: 0.125, beta: 4, more: map[string]any{"computeType": "CUBLAS_COMPUTE_32F_FAST_16F"}},
		{name: "cublasLtMatmul", a: "f16", b: "f16", c: "f16", d: "f16", ta: true, m: 4, n: 3, k: 5, lda: 6, ldc: 5, ldd: 7, alpha: 0.5, beta: 2, bias: true, relu: true, more: map[string]any{"epilogue": "CUBLASLT_EPILOGUE_RELU_BIAS"}},
		{name: "cublasLtMatmul", a: "f32", b: "f32", c: "f32", tb: true, m: 4, n: 3, k: 5, count: 2, strideA: 20, strideB: 15, strideC: 14, alpha: -1, beta: 1},
		{name: "cublasLtMatmul", a: "bf16", b: "bf16", c: "f32", d: "f32", m: 4, n: 3, k: 5, alpha: 1, bias: true, more: map[string]any{"biasType": "f32"}},
		{name: "cublasSgemv", a: "f32", b: "f32", c: "f32", m: 4, n: 1, k: 5, lda: 6, alpha: 2, beta: 1},
		{name: "cublasDgemv", a: "f64", b: "f64", c: "f64", ta: true, m: 4, n: 1, k: 5, alpha: 2},
	}
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	var buffers, nodes []any
	var want [][]byte
	for i := range all {
		p := &all[i]
		buffer := func(name, kind string) (to string, values []float64) {
			to = fmt.Sprint(name, i)
			for range 128 {
				x := float64(random.IntN(17) - 8)
				if kind[0] != 's' {
					x /= 8
				}
				values = append(values, x)
			}
			data := elements(kind, values)
			if err := os.WriteFile(filepath.Join(dir, to), data, 0o600); err != nil {
				t.Fatal(err)
			}
			buffers = append(buffers, map[string]any{"name": to, "address": 0x1000 * (1 + len(buffers)), "bytes": len(data)})
			return to, values
		}
		toA, a := buffer("A", p.a)
		toB, b := buffer("B", p.b)
		toC, c := buffer("C", p.c)
		values := map[string]any{"m": p.m, "n": p.n, "k": p.k, "A": toA, "B": toB, "C": toC, "alpha": p.alpha, "Atype": p.a, "Btype": p.b, "Ctype": p.c}
		set := func(name string, to *int, without int) {
			if *to != 0 {
				values[name] = *to
			} else {
				*to = without
			}
		}
		rows, inner := p.m, p.k
		if p.ta {
			values["transa"], rows = "T", p.k
		}
		if p.tb {
			values["transb"], inner = "T", p.n
		}
		if strings.HasSuffix(p.name, "gemv") { // the matrix has as many rows and columns as before the transpose
			values = map[string]any{"m": p.m, "n": p.k, "A": toA, "x": toB, "y": toC, "alpha": p.alpha}
			if p.ta {
				values["m"], values["n"], values["trans"] = p.k, p.m, "T"
			}
		}
		set("lda", &p.lda, rows)
		set("ldb", &p.ldb, inner)
		set("ldc", &p.ldc, p.m)
		set("batchCount", &p.count, 1)
		set("strideA", &p.strideA, 0)
		set("strideB", &p.strideB, 0)
		set("strideC", &p.strideC, 0)
		if p.beta != 0 {
			values["beta"] = p.beta
		}
		maps.Copy(values, p.more)
		result, kind := toC, p.c
		var d, bias []float64
		if p.d != "" {
			kind = p.d
			result, d = buffer("D", p.d)
			values["D"], values["Dtype"] = result, p.d
			set("ldd", &p.ldd, p.m)
		}
		if p.bias {
			values["bias"], bias = buffer("bias", p.d)
		}
		if strings.HasPrefix(p.name, "cublasLt") { // and with an address that is less aligned
			toB += fmt.Sprint("+", len(elements(p.b, b[:1])))
			values["B"], values["type"], b = toB, p.a, b[1:]
		}
		want = append(want, elements(kind, p.expected(a, b, c, d, bias)))
		nodes = append(nodes, map[string]any{"library": p.name, "values": values}, map[string]any{"name": fmt.Sprint("out", i), "copy": map[string]any{"from": result, "bytes": len(want[i])}})
	}
	trace, err := json.Marshal(map[string]any{"buffers": buffers, "nodes": nodes})
	file := filepath.Join(dir, "trace.json")
	if err == nil {
		err = os.WriteFile(file, trace, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, file, "../ptx/testdata/shapes.ptx", 1)
	r.data.Folder, r.o.Requests = dir, 1
	got := map[int][]byte{}
	r.o.Output = func(_, step int, data []byte) error { got[step/2] = data; return nil }
	if _, _, err := r.run(t, t.Context(), r.on(nil)); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("%+v:\n%x\nwant %x", all[i], got[i], want[i])
		}
	}
}

// A run of another machine can call the routines and nothing else of the library, and what it says is an address is translated.
func TestForeignRoutine(t *testing.T) {
	good := Setup{Sites: []int{0}, Devices: []int{0}, Need: [][]bool{nil}, Calls: []bool{true}, Slots: 1, Deadline: 1}
	routine := analyze.Again{Routine: "cublasSgemv_v2", Args: make([]byte, 8*11), Pointers: []int{32, 48, 72}}
	for name, change := range map[string]func(a *analyze.Again){
		"":                    func(*analyze.Again) {},
		"another function":    func(a *analyze.Again) { a.Routine = "cublasSetLoggerCallback" },
		"too few arguments":   func(a *analyze.Again) { a.Args = a.Args[:80] },
		"too many":            func(a *analyze.Again) { a.Args = make([]byte, 8*12) },
		"an address as it is": func(a *analyze.Again) { a.Pointers = []int{32, 48} },
		"a translated number": func(a *analyze.Again) { a.Pointers = []int{0, 32, 48, 72} },
		"a kernel, too":       func(a *analyze.Again) { a.Kernel, a.Module = "k", 0 },
	} {
		s, a := good, routine
		change(&a)
		s.Modules, s.Steps = []string{""}, []analyze.Again{a}
		if err := s.check(); (err == nil) != (name == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
