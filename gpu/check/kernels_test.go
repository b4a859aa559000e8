//go:build linux

package check

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/muster-sched/muster/disagg/instrument"
	"github.com/muster-sched/muster/disagg/ptx"
	"github.com/muster-sched/muster/disagg/ptx/interp"
	"github.com/muster-sched/muster/disagg/ptx/ptxtest"
	"github.com/muster-sched/muster/disagg/roofline"
	"github.com/muster-sched/muster/gpu/gputest"
)

const (
	testdata = "../../disagg/ptx/testdata"
	first    = 0x10_0000_0000 // the address of the first buffer of a case
	window   = 1 << 20        // all of them are within so many bytes
)

// TestCheckKernels runs the experiments A8 and B1 to B7 of the study on which docs/adr/0031, 0058 and 0061 rest. That study takes
// modules that Triton compiles for B2; here are kernels of our own, one of them in the shape of Triton's.
func TestCheckKernels(t *testing.T) {
	dir := os.Getenv("MUSTER_GPU_CHECK")
	var n *gputest.Node
	s := small
	if dir != "" {
		n, s = gputest.NewGPU(t), large
	} else {
		n = gputest.NewNode(t, 512)
	}
	r := newReport(t, dir)
	o := options(t, n)
	// Each has a process of its own with the driver: a kernel that fails ends the process.
	in := func(names string, do func(r *report, l *lab)) {
		r.run(names, func(r *report) {
			l, err := newLab(r.t, o, 0)
			if err != nil {
				r.t.Fatal(err)
			}
			defer l.p.Close()
			do(r, l)
		})
	}
	l, err := newLab(t, o, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.Device = l.gpus[0].Name
	l.p.Close()
	in("A8", func(r *report, l *lab) { hashes(r, l, s, dir != "") })
	in("B1", footprints)
	in("B2", recordings)
	in("B3", func(r *report, l *lab) { slowdown(r, l, s) })
	in("B7", func(r *report, l *lab) { calibration(r, l, s) })
	in("B6", func(r *report, l *lab) { partition(r, l, o, s) })
	if dir != "" || !testing.Short() { // it takes a driver's start for each run
		r.run("B4", func(r *report) { pipelines(r, o, s) })
	}
	for _, w := range r.Rows {
		if w.Name == "B1" && w.Verdict != "met" {
			t.Error("kernels that record what they access record something else, or compute something else")
		}
		if w.Name == "A8" && w.Unit == "%" && w.Verdict != "met" {
			t.Error("hashes of the GPU take regions for equal that differ, or for different that are equal")
		}
		if w.Name == "B2" && w.Verdict != "met" {
			t.Error("a block that records what it accesses gives another graph")
		}
		if w.Name == "B6" && w.Criterion == "all" && w.Verdict != "met" {
			t.Error("graphs write other bytes than single launches")
		}
	}
}

// sizes are how large kernels are: a GPU's are what it takes to fill it.
type sizes struct {
	matrix, vector, cached int // of square matrices; elements; elements that stay in the L2 cache
	times, requests        int
	split                  int // multiprocessors of the first part
	layers                 int
	regions, region        int       // of each replica; bytes
	deep, steps            int       // of a step of short kernels: its layers; and how often it runs
	speeds                 []float64 // of links, Gbps
}

var (
	small = sizes{matrix: 16, vector: 512, cached: 256, times: 1, requests: 3, split: 10, layers: 1, regions: 200, region: 16 << 10, deep: 2, steps: 4, speeds: []float64{25, 200}}
	large = sizes{matrix: 1024, vector: 16 << 20, cached: 1 << 20, times: 50, requests: 400, split: 88, layers: 8, regions: 4096, region: 256 << 10, deep: 16, steps: 4000, speeds: []float64{25, 50, 100, 200, 400, 800}}
)

// footprints is B1: kernels compute on the GPU what they compute on the interpreter and, instrumented, record the
// intervals and the bytes that the interpreter observes.
func footprints(r *report, l *lab) {
	cases, traced, exact, same := ptxtest.Cases(), 0, 0, 0
	for i := range cases {
		c := &cases[i]
		m, err := c.Module(testdata)
		l.must(err)
		plain, _ := l.carryOut(c, m.Source, nil)
		if err := c.Check(plain); err != nil {
			r.t.Logf("B1: %s: %v", c.Name, err)
		} else {
			same++
		}
		if c.Untraced {
			continue
		}
		traced++
		rewritten, err := instrument.Rewrite(m, instrument.Options{Granule: 1})
		l.must(err)
		memory, got := l.carryOut(c, rewritten.Text, rewritten)
		if why := differs(c, m, rewritten, got, plain, memory); why != "" {
			r.t.Logf("B1: %s: %s", c.Name, why)
		} else {
			exact++
		}
	}
	r.judge("B1", "kernels that compute what they are to compute", float64(same), fmt.Sprintf("of %d", len(cases)), "all", same == len(cases))
	r.judge("B1", "and record what the interpreter observes", float64(exact), fmt.Sprintf("of %d", traced), "all", exact == traced)
}

// recorded is what an instrumented kernel left; addresses are those of the case.
type recorded struct {
	intervals     []instrument.Interval
	reads, writes []byte
}

// carryOut runs a case on the GPU, and returns its memory; with instrumented kernels also what they recorded.
func (l *lab) carryOut(c *ptxtest.Case, text string, r *instrument.Result) (*interp.Memory, *recorded) {
	l.t.Helper()
	base := l.alloc(window)
	for _, b := range c.Buffers {
		l.put(base+b.Address-first, relocated(b.Data, c, first, base))
	}
	k := l.kernel(0, text, c.Launch.Kernel)
	var args [][]byte
	for _, a := range c.Launch.Args {
		args = append(args, relocated(a, c, first, base))
	}
	var probe, reads, writes uint64
	if r != nil {
		reads, writes = l.alloc(window/8), l.alloc(window/8)
		l.fill(reads, 0, window/8)
		l.fill(writes, 0, window/8)
		start := r.Probe(base, window, reads, writes)
		probe = l.alloc(len(start))
		l.put(probe, start)
		args = append(args, ptxtest.Args(probe)...)
	}
	l.p.Launch(k.number, l.streams[0], c.Launch.Grid, c.Launch.Block, c.Launch.Shared, k.pack(args))
	l.must(l.p.Sync())
	memory := &interp.Memory{}
	for _, b := range c.Buffers {
		data := l.get(base+b.Address-first, len(b.Data))
		if slices.ContainsFunc(c.Buffers, func(o *interp.Buffer) bool { return o == b }) && bytes.Equal(data, relocated(b.Data, c, first, base)) {
			data = append([]byte(nil), b.Data...) // it may contain addresses, and did not change
		}
		l.must(memory.Add(&interp.Buffer{Name: b.Name, Address: b.Address, Data: data}))
	}
	if r == nil {
		return memory, nil
	}
	got := &recorded{reads: l.get(reads, window/8), writes: l.get(writes, window/8)}
	intervals, err := r.Intervals(l.get(probe, len(r.Probe(0, 0, 0, 0))))
	l.must(err)
	for _, v := range intervals {
		if v.From >= base && v.To <= base+window {
			v = instrument.Interval{From: v.From - base + first, To: v.To - base + first}
		}
		got.intervals = append(got.intervals, v)
	}
	return memory, got
}

// differs says in what the GPU's memory or records differ from the interpreter's; "" if in nothing.
func differs(c *ptxtest.Case, m *ptx.Module, r *instrument.Result, got *recorded, plain, memory *interp.Memory) string {
	for i, b := range plain.Buffers {
		if !bytes.Equal(b.Data, memory.Buffers[i].Data) {
			return "instrumented, it wrote other bytes to " + b.Name
		}
	}
	own, err := c.Memory()
	if err != nil {
		return err.Error()
	}
	p, err := interp.Load(m, own)
	if err != nil {
		return err.Error()
	}
	of := map[*ptx.Instruction]instrument.Interval{}
	bits := [2][]byte{make([]byte, window/8), make([]byte, window/8)}
	_, err = p.Run(c.Launch, func(i *ptx.Instruction, address uint64, n int, read, write bool) {
		v, ok := of[i]
		if !ok {
			v.From = address
		}
		of[i] = instrument.Interval{From: min(v.From, address), To: max(v.To, address+uint64(n))}
		for k := address; k < address+uint64(n) && address >= first; k++ {
			for which, is := range []bool{read, write} {
				if is {
					bits[which][(k-first)/8] |= 1 << ((k - first) % 8)
				}
			}
		}
	})
	if err != nil {
		return err.Error()
	}
	for k, s := range r.Sites {
		want, v := of[s.Instruction], got.intervals[k]
		if want.From > 0 && want.From < first { // a variable of the module: its address is the driver's
			if v.To-v.From != want.To-want.From {
				return fmt.Sprintf("line %d: recorded %d bytes, observed %d", s.Line, v.To-v.From, want.To-want.From)
			}
		} else if v != want {
			return fmt.Sprintf("line %d, %s: recorded %#x, observed %#x", s.Line, s.Op, v, want)
		}
	}
	for which, name := range []string{"reads", "writes"} {
		if have := [2][]byte{got.reads, got.writes}[which]; !bytes.Equal(have, bits[which]) {
			return "the bitmap of " + name + " is another"
		}
	}
	return ""
}

// runs are launches of a size that fills a GPU, on memory of their own.
func (l *lab) runs(s sizes) []run {
	n := s.matrix
	a, b, c := l.alloc(4*n*n), l.alloc(4*n*n), l.alloc(4*n*n)
	x, y := l.alloc(4*s.vector), l.alloc(4*s.vector)
	for _, m := range []struct {
		at    uint64
		bytes int
	}{{a, 4 * n * n}, {b, 4 * n * n}, {x, 4 * s.vector}, {y, 4 * s.vector}} {
		l.fill(m.at, 0, m.bytes)
	}
	vector := func(name string, n int) run {
		return run{name: name, grid: [3]int{(n + 255) / 256, 1, 1}, block: [3]int{256, 1, 1}, args: []any{y, x, float32(0.5), uint32(n)}, vector: 2 * float64(n), bytes: 12 * float64(n)}
	}
	return []run{
		{name: "gemm", grid: [3]int{n / 16, n / 16, 1}, block: [3]int{16, 16, 1}, args: []any{c, a, b, uint32(n)}, vector: 2 * math.Pow(float64(n), 3), bytes: 12 * float64(n) * float64(n)},
		vector("saxpy", s.vector),
		{name: "transpose", grid: [3]int{n / 8, n / 8, 1}, block: [3]int{8, 8, 1}, shared: 144, args: []any{b, a, uint32(n)}, bytes: 4 * float64(n) * float64(n)},
		{name: "histogram", grid: [3]int{4 * s.vector / 256, 1, 1}, block: [3]int{256, 1, 1}, args: []any{c, x, uint32(4 * s.vector)}, bytes: 4 * float64(s.vector)},
		vector("saxpy in L2", s.cached),
	}
}

func (r *run) kernel() string { return strings.Fields(r.name)[0] }

func (l *lab) module(file string) *ptx.Module {
	l.t.Helper()
	text, err := os.ReadFile(testdata + "/" + file)
	l.must(err)
	m, err := ptx.Parse(string(text))
	l.must(err)
	return m
}

// slowdown is B3: how much longer kernels take that record what they access.
func slowdown(r *report, l *lab, s sizes) {
	m := l.module("shapes.ptx")
	for _, granule := range []int{0, 512} {
		rewritten, err := instrument.Rewrite(m, instrument.Options{Granule: granule})
		l.must(err)
		reads, writes := l.alloc(window/8), l.alloc(window/8)
		var ratios []float64
		for _, x := range l.runs(s)[:4] {
			plain, recording := l.kernel(0, m.Source, x.kernel()), l.kernel(0, rewritten.Text, x.kernel())
			probe := l.alloc(len(rewritten.Probe(0, 0, 0, 0)))
			l.put(probe, rewritten.Probe(x.args[0].(uint64)&^31, window, reads, writes))
			without := l.micros(0, s.times, func() { l.launch(0, plain, x) })
			with := l.micros(0, s.times, func() { l.launch(0, recording, x, probe) })
			ratios = append(ratios, with/without)
			r.record("B3", fmt.Sprintf("%s, recording%s", x.name, bitmaps(granule)), with/without, "x")
		}
		slices.Sort(ratios)
		median := (ratios[1] + ratios[2]) / 2
		r.judge("B3", "median, recording"+bitmaps(granule), median, "x", "< 5", median < 5)
	}
}

func bitmaps(granule int) string {
	if granule == 0 {
		return " intervals"
	}
	return fmt.Sprintf(" intervals and bitmaps of %d B", granule)
}

// hopper is a GPU that Table I of the paper does not have, by NVIDIA's data sheet of it.
var hopper = roofline.Spec{Name: "H200", Vector: 67e12, Tensor: 989e12, BytesPerSecond: 4800e9}

// calibration is B7: the time of kernels by the time that the planner's roofline gives them.
func calibration(r *report, l *lab, s sizes) {
	known := append([]roofline.Spec{hopper}, roofline.Specs...)
	at := slices.IndexFunc(known, func(x roofline.Spec) bool { return strings.Contains(strings.ReplaceAll(r.Device, " ", ""), x.Name) })
	m := l.module("shapes.ptx")
	for _, x := range l.runs(s) {
		k := l.kernel(0, m.Source, x.kernel())
		us := l.micros(0, s.times, func() { l.launch(0, k, x) })
		r.record("B7", x.name, us, "us")
		if at >= 0 {
			r.record("B7", x.name+", by the roofline of "+known[at].Name, us/known[at].Micros(x.vector, 0, x.bytes), "x")
		}
	}
	if at < 0 {
		r.t.Logf("B7: there are no published figures of %q here, so times are not compared", r.Device)
	}
}
