package analyze

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/muster-sched/muster/disagg/ptx"
)

// owners are compared with one owner a byte.
func TestOwners(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var o owners
		var slow [40]int
		for i := range slow {
			slow[i] = nobody
		}
		for by := range 30 {
			from := r.Uint64N(40)
			to := from + r.Uint64N(41-from)
			if by%7 == 3 {
				by = nobody
			}
			o.set(Range{from, to}, by)
			for i := from; i < to; i++ {
				slow[i] = by
			}
			var got [40]int
			at := uint64(5)
			o.of(Range{5, 38}, func(part Range, by int) {
				if part.From != at || part.To <= part.From {
					t.Fatalf("part %v after %d", part, at)
				}
				for i := part.From; i < part.To; i++ {
					got[i] = by
				}
				at = part.To
			})
			if at != 38 || !reflect.DeepEqual(got[5:38], slow[5:38]) {
				t.Fatalf("got %v, want %v", got[5:38], slow[5:38])
			}
		}
	}
}

// random makes a trace of kernels that read and write bytes of one small buffer, some of them only
// in part.
func random(r *rand.Rand, nodes int) *Trace {
	t := &Trace{Buffers: []Allocation{{Name: "m", Address: "0x1000", Bytes: 64}}}
	for i := range nodes {
		c := Call{Kernel: fmt.Sprintf("k%d", i), Name: fmt.Sprintf("k%d", i)}
		for range 1 + r.IntN(3) {
			from := r.IntN(64)
			a := Access{At: Value(fmt.Sprintf("m+%d", from)), Bytes: int64(1 + r.IntN(min(64-from, 20)))}
			switch r.IntN(4) {
			case 0, 1:
				a.Read = true
			case 2:
				a.Write, a.All = true, true
			case 3:
				a.Write = true
			}
			c.Accesses = append(c.Accesses, a)
		}
		t.Nodes = append(t.Nodes, c)
	}
	return t
}

// kernel computes what a node writes from what it reads, and writes it. In what it may write, it
// leaves every other byte as it was. It returns a hash of what it read.
func kernel(c *Call, memory []byte) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, c.Kernel)
	at := func(a Access) (int, int) {
		var n int
		fmt.Sscanf(string(a.At), "m+%d", &n)
		return n, n + int(a.Bytes)
	}
	for _, a := range c.Accesses {
		if from, to := at(a); a.Read {
			h.Write(memory[from:to])
		}
	}
	v := h.Sum64()
	for _, a := range c.Accesses {
		from, to := at(a)
		for i := from; i < to && a.Write; i++ {
			if a.All || i%2 == 0 {
				memory[i] = byte(v>>(i%8*8)) + byte(i)
			}
		}
	}
	return v
}

// A graph's kernels on several GPUs, each with a memory of its own, in any order that the edges and
// hazards allow, read what they read on one. If what waits for hazards does not wait, they do not.
func TestPartitionedRunsAreEqual(t *testing.T) {
	broken := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 9))
		trace := random(r, 12)
		g, err := Analyze("t", trace, nil)
		if err != nil {
			t.Fatal(err)
		}
		alone := make([]byte, 64)
		var want []uint64
		for i := range trace.Nodes {
			want = append(want, kernel(&trace.Nodes[i], alone))
		}
		gpu := make([]int, len(trace.Nodes))
		for i := range gpu {
			gpu[i] = r.IntN(3)
		}
		if got := distributed(t, r, trace, g, gpu, true); !slices.Equal(got, want) {
			t.Fatalf("seed %d: kernels read other bytes on GPUs %v", seed, gpu)
		}
		if got := distributed(t, r, trace, g, gpu, false); !slices.Equal(got, want) {
			broken++
		}
	}
	if broken == 0 {
		t.Error("no run without hazards differs: the test shows nothing")
	}
}

// distributed runs nodes and transfers in a random order. Nodes of a GPU keep their order.
func distributed(t *testing.T, r *rand.Rand, trace *Trace, g *Graph, gpu []int, wait bool) []uint64 {
	t.Helper()
	number := map[string]int{}
	for i, n := range g.Nodes {
		number[n.Name] = i
	}
	n := len(g.Nodes)
	type task struct{ needs []int }
	tasks := make([]task, n+len(g.Edges)) // nodes, then transfers
	for i := range n {
		for k := range i {
			if gpu[k] == gpu[i] {
				tasks[i].needs = append(tasks[i].needs, k)
			}
		}
	}
	for e := range g.Edges {
		edge := &g.Edges[e]
		i, j, me := number[edge.From], number[edge.To], n+e
		if gpu[i] == gpu[j] {
			continue
		}
		tasks[me].needs = append(tasks[me].needs, i)
		tasks[j].needs = append(tasks[j].needs, me)
		for _, name := range edge.After {
			if k := number[name]; wait && gpu[k] == gpu[j] {
				tasks[me].needs = append(tasks[me].needs, k)
				for other := range g.Edges { // and what it sends
					if o := &g.Edges[other]; o.From == name && gpu[number[o.To]] != gpu[k] {
						tasks[me].needs = append(tasks[me].needs, n+other)
					}
				}
			}
		}
		for _, name := range edge.Before {
			if k := number[name]; wait && gpu[k] == gpu[i] {
				tasks[k].needs = append(tasks[k].needs, me)
			}
		}
	}
	memories := [3][]byte{make([]byte, 64), make([]byte, 64), make([]byte, 64)}
	results := make([]uint64, n)
	done := make([]bool, len(tasks))
	for range tasks {
		var ready []int
		for i := range tasks {
			if !done[i] && !slices.ContainsFunc(tasks[i].needs, func(k int) bool { return !done[k] }) {
				ready = append(ready, i)
			}
		}
		if len(ready) == 0 {
			t.Fatal("nodes and transfers wait for each other")
		}
		i := ready[r.IntN(len(ready))]
		done[i] = true
		if i < n {
			results[i] = kernel(&trace.Nodes[i], memories[gpu[i]])
			continue
		}
		e := &g.Edges[i-n]
		from, to := gpu[number[e.From]], gpu[number[e.To]]
		for _, p := range e.Parts {
			if from != to {
				copy(memories[to][p.Offset:p.Offset+p.Bytes], memories[from][p.Offset:])
			}
		}
	}
	return results
}

// A part of a buffer that another node overwrites comes from that one; the rest from the first.
func TestPartialOverwrite(t *testing.T) {
	trace := &Trace{Buffers: []Allocation{{Name: "x", Address: "4096", Bytes: 100}, {Name: "w", Address: "8192", Bytes: 50}, {Name: "y", Address: "12288", Bytes: 100}},
		Nodes: []Call{
			{Fill: &Copy{To: "x", Bytes: 100}},
			{Copy: &Copy{From: "w+10", To: "x+40", Bytes: 20}},
			{Copy: &Copy{From: "x", To: "y", Bytes: 100}},
		}}
	g, err := Analyze("t", trace, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []Edge{
		{From: "0.fill", To: "2.copy", Bytes: 80, Parts: []Part{{"x", 0, 40}, {"x", 60, 40}}},
		{From: "1.copy", To: "2.copy", Bytes: 20, Parts: []Part{{"x", 40, 20}}, After: []string{"0.fill"}},
	}
	if !reflect.DeepEqual(g.Edges, want) {
		t.Errorf("got %+v\nwant %+v", g.Edges, want)
	}
	if want := []Held{{"w", "input", 20}}; !reflect.DeepEqual(g.Buffers, want) {
		t.Errorf("buffers %+v, want %+v", g.Buffers, want)
	}
}

// What an iteration leaves for the next is an edge to it; what came with earlier ones stays.
func TestIterations(t *testing.T) {
	trace := &Trace{Buffers: []Allocation{{Name: "cache", Address: "4096", Bytes: 64}, {Name: "out", Address: "8192", Bytes: 64}}}
	for i := range 3 {
		trace.Nodes = append(trace.Nodes,
			Call{Iteration: i, Kernel: "append", Name: "append", Accesses: []Access{{At: Value(fmt.Sprintf("cache+%d", 16*i)), Bytes: 16, Write: true, All: true}}},
			Call{Iteration: i, Kernel: "attend", Name: "attend", Accesses: []Access{{At: "cache", Bytes: int64(16 * (i + 1)), Read: true}, {At: "out", Bytes: 16, Write: true, All: true}}})
	}
	g, err := Analyze("t", trace, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []Edge{
		{From: "append", To: "attend", Bytes: 16, Parts: []Part{{"cache", 16, 16}}, Next: true},
		{From: "append", To: "attend", Bytes: 16, Parts: []Part{{"cache", 32, 16}}},
	}
	if !reflect.DeepEqual(g.Edges, want) {
		t.Errorf("got %+v\nwant %+v", g.Edges, want)
	}
	if want := []Held{{"cache", "state", 64}}; !reflect.DeepEqual(g.Buffers, want) {
		t.Errorf("buffers %+v, want %+v", g.Buffers, want)
	}
	trace.Nodes = trace.Nodes[:5]
	if _, err := Analyze("t", trace, nil); err == nil || err.Error() != `t: nodes: the same nodes in all iterations of graph "": 1; found 2 in iteration 0` && err.Error() != `t: nodes: the same nodes in all iterations of graph "": 1; found 2 in iteration 1` {
		t.Errorf("error %v", err)
	}
}

func TestLibraries(t *testing.T) {
	buffers := []Allocation{{Name: "a", Address: "0x10000", Bytes: 4096}, {Name: "b", Address: "0x20000", Bytes: 4096}, {Name: "c", Address: "0x30000", Bytes: 4096}}
	for _, c := range []struct {
		name          string
		values        map[string]Value
		reads, writes []Part
		wrong         string
	}{
		{name: "cublasSgemm_v2", values: map[string]Value{"m": "4", "n": "3", "k": "2", "A": "a", "lda": "4", "B": "b", "ldb": "8", "C": "c", "ldc": "4"},
			reads: []Part{{"a", 0, 32}, {"b", 0, 8}, {"b", 32, 8}, {"b", 64, 8}}, writes: []Part{{"c", 0, 48}}},
		{name: "cublasGemmEx", values: map[string]Value{"m": "4", "n": "3", "k": "2", "transa": "T", "A": "a", "B": "b+2", "C": "c", "beta": "1"},
			reads: []Part{{"a", 0, 16}, {"b", 2, 12}, {"c", 0, 24}}, writes: []Part{{"c", 0, 24}}},
		{name: "cublasLtMatmul", values: map[string]Value{"m": "4", "n": "2", "k": "2", "A": "a", "B": "b", "D": "c", "bias": "a+100", "workspace": "b+1024", "workspaceBytes": "512"},
			reads: []Part{{"a", 0, 16}, {"a", 100, 8}, {"b", 0, 8}}, writes: []Part{{"b", 1024, 512}, {"c", 0, 16}}},
		{name: "cudnnConvolutionForward", values: map[string]Value{"x": "a", "xDims": "1,2,4,4", "w": "b", "wDims": "8,2,3,3", "y": "c", "yDims": "1,8,2,2"},
			reads: []Part{{"a", 0, 64}, {"b", 0, 288}}, writes: []Part{{"c", 0, 64}}},
		{name: "cublasSgemv", values: map[string]Value{"m": "4", "n": "2", "A": "a", "x": "b", "y": "c", "incy": "2"},
			reads: []Part{{"a", 0, 32}, {"b", 0, 8}, {"c", 0, 28}}, writes: []Part{{"c", 0, 28}}},
		{name: "cublasSgemm", values: map[string]Value{"m": "4"}, wrong: `t: nodes[0].values.n: a whole number; found ""`},
		{name: "cublasSgemm", values: map[string]Value{"m": "4000", "n": "1", "k": "1", "A": "a", "B": "b", "C": "c"}, wrong: `t: nodes[0].values.A: at most the 4096 bytes that are left of buffer a; found 16000`},
	} {
		g, err := Analyze("t", &Trace{Buffers: buffers, Nodes: []Call{{Library: c.name, Values: c.values}}}, nil)
		if c.wrong != "" {
			if err == nil || err.Error() != c.wrong {
				t.Errorf("%s: %v, want %s", c.name, err, c.wrong)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !reflect.DeepEqual(g.Nodes[0].Reads, c.reads) || !reflect.DeepEqual(g.Nodes[0].Writes, c.writes) {
			t.Errorf("%s: reads %v, writes %v; want %v, %v", c.name, g.Nodes[0].Reads, g.Nodes[0].Writes, c.reads, c.writes)
		}
	}
	g, err := Analyze("t", &Trace{Buffers: buffers, Nodes: []Call{{Library: "cusparseSpMM"}}}, nil)
	if err != nil || g.Nodes[0].OneGPU == "" || len(g.Nodes[0].Writes) != 3 {
		t.Errorf("an unknown function: %+v, %v", g, err)
	}
}

// Kernels whose accesses depend on data run here if the data are known, and otherwise may do
// anything.
func TestAccessesByData(t *testing.T) {
	m, err := ptx.Parse(`.version 8.0
.target sm_80
.address_size 64
.visible .entry gather(.param .u64 out, .param .u64 in, .param .u64 index) {
	.reg .b64 %rd<9>;
	.reg .b32 %r<5>;
	.shared .align 4 .b8 staged[64];
	ld.param.u64 %rd1, [out];
	ld.param.u64 %rd2, [in];
	ld.param.u64 %rd3, [index];
	mov.u32 %r1, %tid.x;
	mad.wide.u32 %rd4, %r1, 4, %rd3;
	ld.global.u32 %r2, [%rd4];
	mad.wide.u32 %rd5, %r2, 4, %rd2;
	ld.global.u32 %r3, [%rd5];
	st.shared.u32 [staged], %r3;
	mad.wide.u32 %rd6, %r1, 4, %rd1;
	st.global.u32 [%rd6], %r3;
	ret;
}`)
	if err != nil {
		t.Fatal(err)
	}
	known := Allocation{Name: "index", Address: "0x20000", Bytes: 16, Type: "u32", Values: []float64{3, 1, 0, 3}}
	unknown := known
	unknown.Type, unknown.Values = "", nil
	others := []Allocation{{Name: "in", Address: "0x10000", Bytes: 64}, {Name: "out", Address: "0x30000", Bytes: 16}}
	launch := Call{Name: "gather", Kernel: "gather", Block: []int{4}, Args: []Value{"out", "in", "index"}}
	for _, c := range []struct {
		name    string
		index   Allocation
		before  []Call
		reads   []Part
		writes  []Part
		withWhy bool
	}{
		{name: "the index is known", index: known,
			reads: []Part{{"in", 0, 8}, {"in", 12, 4}, {"index", 0, 16}}, writes: []Part{{"out", 0, 16}}},
		{name: "the index is not known", index: unknown, withWhy: true},
		{name: "the index comes from the host", index: known, before: []Call{{Copy: &Copy{To: "index", Bytes: 4}}}, withWhy: true},
		{name: "other data come from the host", index: known, before: []Call{{Copy: &Copy{To: "in", Bytes: 64}}},
			reads: []Part{{"in", 0, 8}, {"in", 12, 4}, {"index", 0, 16}}, writes: []Part{{"out", 0, 16}}},
		{name: "the index is cleared", index: unknown, before: []Call{{Fill: &Copy{To: "index", Bytes: 16}}},
			reads: []Part{{"in", 0, 4}, {"index", 0, 16}}, writes: []Part{{"out", 0, 16}}},
		{name: "the index is a copy", index: unknown, before: []Call{
			{Allocate: &Allocation{Name: "kept", Address: "0x40000", Bytes: 16, Type: "u32", Values: []float64{1, 1, 1, 1}}},
			{Copy: &Copy{From: "kept", To: "index", Bytes: 16}}, {Free: "kept"}},
			reads: []Part{{"in", 4, 4}, {"index", 0, 16}}, writes: []Part{{"out", 0, 16}}},
	} {
		trace := &Trace{Buffers: append([]Allocation{c.index}, others...), Nodes: append(slices.Clone(c.before), launch)}
		g, err := Analyze("t", trace, []*ptx.Module{m})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		n := g.Nodes[len(g.Nodes)-1]
		if c.withWhy {
			if n.OneGPU != "gather: what it accesses depends on data that the trace does not have" || total(n.Writes) != 96 {
				t.Errorf("%s: %+v", c.name, n)
			}
			continue
		}
		if n.OneGPU != "" || !reflect.DeepEqual(n.Reads, c.reads) || !reflect.DeepEqual(n.Writes, c.writes) {
			t.Errorf("%s: %+v", c.name, n)
		}
	}
}

func parse(t *testing.T) *ptx.Module {
	t.Helper()
	text, err := os.ReadFile("../ptx/testdata/shapes.ptx")
	if err != nil {
		t.Fatal(err)
	}
	m, err := ptx.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Addresses that depend on no data need none, whatever the kernel computes.
func TestMatricesOfUnknownContent(t *testing.T) {
	trace := &Trace{
		Buffers: []Allocation{{Name: "a", Address: "0x10000", Bytes: 4096}, {Name: "b", Address: "0x20000", Bytes: 4096}, {Name: "c", Address: "0x30000", Bytes: 8192}, {Name: "bins", Address: "0x40000", Bytes: 64}},
		Nodes: []Call{
			{Name: "gemm", Kernel: "gemm", Grid: []int{2, 2}, Block: []int{16, 16}, Args: []Value{"c", "a", "b", "32"}},
			{Name: "transpose", Kernel: "transpose", Grid: []int{3, 3}, Block: []int{8, 8}, Shared: 144, Args: []Value{"c+4096", "c", "24"}},
			{Name: "histogram", Kernel: "histogram", Grid: []int{4}, Block: []int{64}, Args: []Value{"bins", "c+4096", "250"}},
		}}
	g, err := Analyze("t", trace, []*ptx.Module{parse(t)})
	if err != nil {
		t.Fatal(err)
	}
	want := []Edge{
		{From: "gemm", To: "transpose", Bytes: 1152, Parts: []Part{{"c", 0, 1152}}},
		{From: "transpose", To: "histogram", Bytes: 250, Parts: []Part{{"c", 4096, 250}}},
	}
	if !reflect.DeepEqual(g.Edges, want) {
		t.Errorf("got %+v\nwant %+v", g.Edges, want)
	}
	for _, n := range g.Nodes {
		if n.OneGPU != "" {
			t.Errorf("%s: %s", n.Name, n.OneGPU)
		}
	}
	if g.Nodes[0].Vector != 2*32*32*32 {
		t.Errorf("%g operations", g.Nodes[0].Vector)
	}
	p, err := g.Profile([]string{"A100", "L40S"})
	if err != nil || len(p.Kernels) != 3 || len(p.Edges) != 2 || p.Kernels[0].Micros[0] < 2 {
		t.Errorf("profile %+v, %v", p, err)
	}
}
