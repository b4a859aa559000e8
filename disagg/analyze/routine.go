package analyze

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/disagg/ptx/interp"
)

// The arguments after the handle of functions of cuBLAS, as NVIDIA's documentation names them.
const (
	gemmArgs          = "transa transb m n k alpha A lda B ldb beta C ldc"
	gemmStridedArgs   = "transa transb m n k alpha A lda strideA B ldb strideB beta C ldc strideC batchCount"
	gemmExArgs        = "transa transb m n k alpha A Atype lda B Btype ldb beta C Ctype ldc computeType algo"
	gemmStridedExArgs = "transa transb m n k alpha A Atype lda strideA B Btype ldb strideB beta C Ctype ldc strideC batchCount computeType algo"
	gemvArgs          = "trans m n alpha A lda x incx beta y incy"
	// What the descriptions that cublasLtMatmul takes say.
	matmulArgs = "transa transb m n k computeType scaleType epilogue bias biasType batchCount alpha beta A Atype lda strideA B Btype ldb strideB C Ctype ldc strideC D Dtype ldd strideD"
)

// routines are the functions that can run again, by their symbols: programs that call cublasSgemm call cublasSgemm_v2.
var routines = map[string]string{
	"cublasSgemm_v2": gemmArgs, "cublasDgemm_v2": gemmArgs, "cublasHgemm": gemmArgs,
	"cublasSgemmStridedBatched": gemmStridedArgs, "cublasDgemmStridedBatched": gemmStridedArgs, "cublasHgemmStridedBatched": gemmStridedArgs,
	"cublasGemmEx": gemmExArgs, "cublasGemmStridedBatchedEx": gemmStridedExArgs, "cublasLtMatmul": matmulArgs,
	"cublasSgemv_v2": gemvArgs, "cublasDgemv_v2": gemvArgs,
}

// Argument is what an argument of a routine is; each has eight bytes of Args.
type Argument uint8

// The kinds of arguments.
const (
	Number  Argument = iota
	Address          // of a buffer
	Scalar           // a value of which the routine takes the address
)

// Routine returns the arguments of a function of cuBLAS after the handle; none if it cannot run again.
func Routine(symbol string) (all []Argument) {
	for _, name := range strings.Fields(routines[symbol]) {
		all = append(all, kindOf(name))
	}
	return all
}

func kindOf(name string) Argument {
	switch name {
	case "A", "B", "C", "D", "bias", "x", "y":
		return Address
	case "alpha", "beta":
		return Scalar
	}
	return Number
}

// repeatRoutine packs the arguments of a call of cuBLAS.
func (a *analysis) repeatRoutine(c *Call, r *Again) error {
	symbol := strings.TrimSuffix(c.Library, "_v2")
	if routines[symbol+"_v2"] != "" {
		symbol += "_v2"
	}
	if routines[symbol] == "" {
		return fmt.Errorf("library: expected gemm of f16, f32 or f64, with strided batches or without, cublasGemmEx, cublasGemmStridedBatchedEx, cublasLtMatmul, or gemv of f32 or f64, which can run again; found %s", c.Library)
	}
	p := packer{l: call{a: a, values: inPlace(c.Values)}, symbol: symbol}
	p.types()
	r.Routine = symbol
	for _, name := range strings.Fields(routines[symbol]) {
		if kindOf(name) == Address {
			r.Pointers = append(r.Pointers, len(r.Args))
		}
		r.Args = binary.LittleEndian.AppendUint64(r.Args, p.argument(name))
	}
	return p.l.err
}

// inPlace gives the arguments of cublasLtMatmul that has only one of C and D both: they are one matrix then.
func inPlace(values map[string]Value) map[string]Value {
	values = maps.Clone(values)
	for _, x := range [2][2]string{{"C", "D"}, {"D", "C"}} {
		if _, ok := values[x[0]]; ok || values[x[1]] == "" {
			continue
		}
		for _, format := range []string{"%s", "%stype", "ld%s", "stride%s"} {
			name := func(matrix string) string {
				if format == "ld%s" {
					matrix = strings.ToLower(matrix)
				}
				return fmt.Sprintf(format, matrix)
			}
			if v, ok := values[name(x[1])]; ok {
				values[name(x[0])] = v
			}
		}
	}
	return values
}

// packer encodes the arguments of a call.
type packer struct {
	l       call
	symbol  string
	element string // the type of elements, where the function's name does not say it
	compute uint64 // cublasComputeType_t
	scale   string // the type of alpha and beta
}

// Numbers of NVIDIA's cublas_api.h and library_types.h.
var (
	operations   = map[string]uint64{"N": 0, "T": 1, "C": 2}
	epilogues    = map[string]uint64{"DEFAULT": 1, "RELU": 2, "BIAS": 4, "RELU_BIAS": 6, "GELU": 32, "GELU_BIAS": 36}
	dataTypes    = map[string]uint64{"f32": 0, "f64": 1, "f16": 2, "s8": 3, "s32": 10, "bf16": 14}
	computeTypes = map[string]uint64{"16F": 64, "16F_PEDANTIC": 65, "32F": 68, "32F_PEDANTIC": 69, "32F_FAST_16F": 74, "32F_FAST_16BF": 75, "32F_FAST_TF32": 77, "64F": 70, "64F_PEDANTIC": 71, "32I": 72, "32I_PEDANTIC": 73}
)

// types finds the types of elements and of scalars. Without a computeType, the computation is in f32, and in f64 and s32 for
// such results.
func (p *packer) types() {
	function := "gemm"
	if strings.Contains(p.symbol, "gemv") {
		function = "gemv"
	}
	if t := letter(p.symbol, function); t != "" {
		p.element, p.scale = t, t
		return
	}
	p.element = p.l.text("type", "f16")
	kind := map[string]string{"f64": "64F", "s32": "32I"}[p.l.text("Ctype", p.element)]
	if kind == "" {
		kind = "32F"
	}
	kind = strings.TrimPrefix(p.l.text("computeType", kind), "CUBLAS_COMPUTE_")
	for name, n := range computeTypes {
		if kind == name || kind == strconv.FormatUint(n, 10) {
			bits, _, _ := strings.Cut(name, "_")
			p.compute, p.scale = n, map[string]string{"16F": "f16", "32F": "f32", "64F": "f64", "32I": "s32"}[bits]
			return
		}
	}
	p.l.wrong("computeType", "one such as CUBLAS_COMPUTE_32F; found %q", p.l.values["computeType"])
}

// argument is an argument, or what cuBLAS takes where the call leaves it out: matrices without gaps, one of a batch.
func (p *packer) argument(name string) uint64 {
	l := &p.l
	rows := func(trans, plain, transposed string) int64 {
		if l.text(trans, "N") != "N" {
			plain = transposed
		}
		return l.whole(plain, -1)
	}
	without := int64(-1) // it must be there
	switch name {
	case "bias":
		if l.values[name] == "" {
			return 0
		}
		fallthrough
	case "A", "B", "C", "D", "x", "y":
		at, err := l.a.address(l.values[name])
		if err != nil {
			l.wrong(name, "%w", err)
		}
		return at
	case "alpha":
		return p.scalar(name, "1")
	case "beta":
		return p.scalar(name, "0")
	case "transa", "transb", "trans":
		n, ok := operations[l.text(name, "N")]
		if !ok {
			l.wrong(name, "N, T or C; found %q", l.values[name])
		}
		return n
	case "Atype", "Btype", "Ctype", "Dtype", "biasType":
		n, ok := dataTypes[l.text(name, p.element)]
		if !ok {
			l.wrong(name, "a type such as f16; found %q", l.text(name, p.element))
		}
		return n
	case "computeType":
		return p.compute
	case "scaleType":
		return dataTypes[p.scale]
	case "epilogue":
		usual := "DEFAULT"
		if l.values["bias"] != "" {
			usual = "BIAS"
		}
		text := strings.TrimPrefix(l.text(name, usual), "CUBLASLT_EPILOGUE_")
		n := epilogues[text]
		if n == 0 || strings.HasSuffix(text, "BIAS") != (l.values["bias"] != "") {
			l.wrong(name, "CUBLASLT_EPILOGUE_DEFAULT, RELU or GELU, and BIAS, RELU_BIAS or GELU_BIAS if there is a bias; found %q", text)
		}
		return n
	case "algo":
		n, err := strconv.ParseInt(l.text(name, "-1"), 0, 32)
		if err != nil {
			l.wrong(name, "a whole number; found %q", l.values[name])
		}
		return uint64(n)
	case "lda":
		without = rows("transa", "m", "k")
	case "ldb":
		without = rows("transb", "k", "n")
	case "ldc", "ldd":
		without = l.whole("m", -1)
	case "strideA", "strideB", "strideC", "strideD":
		return uint64(l.whole(name, 0))
	case "batchCount", "incx", "incy":
		without = 1
	}
	n := l.whole(name, without)
	if n > math.MaxInt32 {
		l.wrong(name, "at most %d; found %d", math.MaxInt32, n)
	}
	return uint64(n)
}

// scalar encodes alpha or beta.
func (p *packer) scalar(name, without string) uint64 {
	text := p.l.text(name, without)
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || p.scale == "s32" && x != float64(int32(x)) {
		p.l.wrong(name, "a number; found %q", text)
	}
	if p.scale == "s32" {
		return uint64(uint32(int32(x)))
	}
	return interp.Float(p.scale, x)
}
