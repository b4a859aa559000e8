package analyze

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/disagg/ptx"
)

// call is a call of a library with its arguments by name, as they are in NVIDIA's documentation of
// cuBLAS and cuDNN. It collects what is wrong with them.
type call struct {
	a      *analysis
	values map[string]Value
	e      effect
	err    error
}

func (l *call) wrong(name, format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf("values.%s: expected "+format, append([]any{name}, args...)...)
	}
}

// whole returns a whole number, or the value that stands for one that is left out; -1 requires it.
func (l *call) whole(name string, without int64) int64 {
	v, ok := l.values[name]
	if !ok && without >= 0 {
		return without
	}
	n, err := strconv.ParseInt(string(v), 0, 64)
	if err != nil || n < 0 || n > 1<<40 {
		l.wrong(name, "a whole number; found %q", v)
		return 1
	}
	return n
}

func (l *call) text(name, without string) string {
	if v, ok := l.values[name]; ok {
		return string(v)
	}
	return without
}

// element returns the bytes of an element of a type such as f16.
func (l *call) element(name, without string) int64 {
	t := l.text(name, without)
	n := ptx.TypeBytes(t)
	if n == 0 {
		l.wrong(name, "a type such as f16; found %q", t)
		return 1
	}
	return int64(n)
}

// access adds bytes at an argument. A range beyond the buffer of the argument is wrong.
func (l *call) access(name string, offset, bytes int64, read, write bool) {
	if bytes <= 0 || l.err != nil {
		return
	}
	at, err := l.a.address(l.values[name])
	if err != nil {
		l.wrong(name, "%w", err)
		return
	}
	r, err := l.a.within(at, offset+bytes)
	if err != nil {
		l.wrong(name, "%w", err)
		return
	}
	r.From += uint64(offset)
	if read {
		l.e.reads = append(l.e.reads, r)
	}
	if write {
		l.e.writes = append(l.e.writes, r)
	}
}

// mostColumns is how many columns of matrices are told apart. Beyond, a matrix is the range from its
// first to its last element, which what is written in it may leave as it was in places.
const mostColumns = 1 << 16

// matrix adds a column-major matrix of rows x cols, lead elements from column to column, with the
// batch count and the stride of the call.
func (l *call) matrix(name, leading, stride string, rows, cols, size int64, read, write bool) {
	lead := l.whole(leading, rows)
	count, apart := l.whole("batchCount", 1), l.whole(stride, 0)
	if lead < rows {
		l.wrong(leading, "at least the %d rows; found %d", rows, lead)
		return
	}
	for b := range count {
		at := b * apart * size
		switch {
		case lead == rows || cols == 1:
			l.access(name, at, rows*cols*size, read, write)
		case count*cols > mostColumns:
			l.access(name, at, ((cols-1)*lead+rows)*size, true, write)
		default:
			for c := range cols {
				l.access(name, at+c*lead*size, rows*size, read, write)
			}
		}
		if l.err != nil {
			return
		}
	}
}

// library returns what a call of a library does. Functions that are not known may do anything.
func (a *analysis) library(c *Call) (effect, error) {
	l := &call{a: a, values: c.Values}
	name := strings.TrimSuffix(c.Library, "_v2")
	switch {
	case strings.HasPrefix(name, "cublas") && (strings.Contains(name, "gemm") || strings.Contains(name, "Gemm") && !strings.Contains(name, "Grouped") || name == "cublasLtMatmul"):
		l.gemm(name)
	case strings.HasPrefix(name, "cublas") && strings.HasSuffix(name, "gemv"):
		l.gemv(name)
	case cudnn[name] != nil:
		cudnn[name](l)
	default:
		return a.anything(fmt.Sprintf("Muster does not know what %s accesses", c.Library)), nil
	}
	if n := l.whole("workspaceBytes", 0); n > 0 {
		if l.access("workspace", 0, n, false, true); l.err == nil {
			l.e.scratch = l.e.writes[len(l.e.writes)-1]
		}
	}
	if l.err != nil {
		return effect{}, l.err
	}
	e := l.e
	e.reads, e.writes = normal(e.reads), normal(e.writes)
	e.moved = float64(size(e.reads) + size(e.writes))
	a.forget(e.writes)
	return e, nil
}

// letter returns the type of cublasSgemm and its like.
func letter(name, function string) string {
	before, _, _ := strings.Cut(strings.TrimPrefix(name, "cublas"), function)
	return map[string]string{"S": "f32", "D": "f64", "H": "f16"}[before]
}

// gemm is C (or D) = alpha op(A) op(B) + beta C, for one or for a batch with strides.
func (l *call) gemm(name string) {
	m, n, k := l.whole("m", -1), l.whole("n", -1), l.whole("k", -1)
	t := letter(name, "gemm")
	if t == "" {
		t = l.text("type", "f16")
	}
	if strings.Contains(name, "Batched") && !strings.Contains(name, "Strided") {
		l.wrong("A", "a batch with strides: the pointers of an array are not known")
		return
	}
	rows, cols := m, k
	if l.text("transa", "N") != "N" {
		rows, cols = cols, rows
	}
	l.matrix("A", "lda", "strideA", rows, cols, l.element("Atype", t), true, false)
	rows, cols = k, n
	if l.text("transb", "N") != "N" {
		rows, cols = cols, rows
	}
	l.matrix("B", "ldb", "strideB", rows, cols, l.element("Btype", t), true, false)
	adds := l.text("beta", "0") != "0"
	size := l.element("Ctype", t)
	if _, ok := l.values["D"]; ok {
		if adds {
			l.matrix("C", "ldc", "strideC", m, n, size, true, false)
		}
		l.matrix("D", "ldd", "strideD", m, n, l.element("Dtype", t), false, true)
	} else {
		l.matrix("C", "ldc", "strideC", m, n, size, adds, true)
	}
	if _, ok := l.values["bias"]; ok {
		l.access("bias", 0, m*l.element("biasType", t), true, false)
	}
	flops := 2 * float64(m) * float64(n) * float64(k) * float64(l.whole("batchCount", 1))
	if t == "f32" || t == "f64" {
		l.e.vector += flops
	} else {
		l.e.tensor += flops
	}
}

// gemv is y = alpha op(A) x + beta y.
func (l *call) gemv(name string) {
	m, n := l.whole("m", -1), l.whole("n", -1)
	size := l.element("type", letter(name, "gemv"))
	l.matrix("A", "lda", "strideA", m, n, size, true, false)
	in, out := n, m
	if l.text("trans", "N") != "N" {
		in, out = out, in
	}
	incx, incy := l.whole("incx", 1), l.whole("incy", 1)
	l.access("x", 0, ((in-1)*incx+1)*size, true, false)
	if incy == 1 {
		l.access("y", 0, out*size, l.text("beta", "0") != "0", true)
	} else { // what lies between its elements stays
		l.access("y", 0, ((out-1)*incy+1)*size, true, true)
	}
	l.e.vector += 2 * float64(m) * float64(n)
}

// tensor returns the elements of a packed tensor, by its dimensions such as 1,64,56,56.
func (l *call) tensor(name string) int64 {
	n := int64(1)
	for _, s := range strings.Split(string(l.values[name]), ",") {
		d, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
		if err != nil || d < 1 || n > 1<<40/d {
			l.wrong(name, "dimensions such as 1,64,56,56; found %q", l.values[name])
			return 1
		}
		n *= d
	}
	return n
}

// packed adds a packed tensor with the dimensions of another argument.
func (l *call) packed(name, dims string, read, write bool) {
	l.access(name, 0, l.tensor(dims)*l.element("type", "f16"), read, write)
}

// cudnn are functions on packed tensors. As with cuBLAS, beta other than 0 reads what is written.
var cudnn = map[string]func(l *call){
	"cudnnConvolutionForward": func(l *call) {
		l.packed("x", "xDims", true, false)
		l.packed("w", "wDims", true, false)
		l.packed("y", "yDims", l.text("beta", "0") != "0", true)
		filters := int64(1)
		if d, _, ok := strings.Cut(string(l.values["wDims"]), ","); ok {
			filters, _ = strconv.ParseInt(strings.TrimSpace(d), 10, 64)
		}
		l.e.tensor += 2 * float64(l.tensor("yDims")) * float64(l.tensor("wDims")) / float64(max(filters, 1))
	},
	"cudnnActivationForward": pointwise,
	"cudnnSoftmaxForward":    pointwise,
	"cudnnAddTensor": func(l *call) {
		l.packed("A", "ADims", true, false)
		l.packed("C", "CDims", true, true)
	},
	"cudnnPoolingForward": func(l *call) {
		l.packed("x", "xDims", true, false)
		l.packed("y", "yDims", l.text("beta", "0") != "0", true)
	},
	"cudnnBatchNormalizationForwardInference": func(l *call) {
		pointwise(l)
		for _, name := range []string{"bnScale", "bnBias", "estimatedMean", "estimatedVariance"} {
			l.access(name, 0, l.tensor("bnDims")*4, true, false)
		}
	},
}

// pointwise reads x and writes y of the same dimensions.
func pointwise(l *call) {
	l.packed("x", "xDims", true, false)
	l.packed("y", "xDims", l.text("beta", "0") != "0", true)
	l.e.vector += float64(l.tensor("xDims"))
}
