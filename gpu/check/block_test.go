//go:build linux

package check

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/muster-sched/muster/disagg/analyze"
	"github.com/muster-sched/muster/disagg/instrument"
	"github.com/muster-sched/muster/disagg/ptx"
)

// call is a launch on tensors: what it reads and writes, by name.
type call struct {
	name, kernel  string
	module        int
	grid, block   int
	shared        int
	more          []any // arguments after the tensors
	args          []string
	reads, writes []string
}

const (
	rows   = 32 // of square matrices: those of the block
	tensor = 4 * rows * rows
	gap    = 2 * tensor // from one tensor to the next: what lies between belongs to none
)

// attention is two layers of a block: x becomes softmax(x q) v + x. The scores of both layers are in one tensor, as an
// allocator would place them.
func attention() (all []call) {
	for i := range 2 {
		x, q, v, p, o := fmt.Sprint("x", i), fmt.Sprint("q", i), fmt.Sprint("v", i), fmt.Sprint("p", i), fmt.Sprint("x", i+1)
		all = append(all,
			call{fmt.Sprint("score", i), "gemm", 0, rows / 16, 16, 0, []any{uint32(rows)}, []string{"s", x, q}, []string{x, q}, []string{"s"}},
			call{fmt.Sprint("soft", i), "softmax_kernel", 1, rows, 128, 64, []any{uint32(rows), uint32(rows)}, []string{p, "s"}, []string{"s"}, []string{p}},
			call{fmt.Sprint("mix", i), "gemm", 0, rows / 16, 16, 0, []any{uint32(rows)}, []string{o, p, v}, []string{p, v}, []string{o}},
			call{fmt.Sprint("add", i), "saxpy", 0, rows * rows / 256, 256, 0, []any{float32(1), uint32(rows * rows)}, []string{o, x}, []string{o, x}, []string{o}})
	}
	return all
}

// shape is the grid and the block of a call; gemm has two dimensions.
func (c *call) shape() (grid, block [3]int) {
	if c.kernel == "gemm" {
		return [3]int{c.grid, c.grid, 1}, [3]int{c.block, c.block, 1}
	}
	return [3]int{c.grid, 1, 1}, [3]int{c.block, 1, 1}
}

// recordings is B2: the launches of a block, instrumented, access their tensors and nothing else; and the analyzer makes of
// what they recorded the graph that the tensors give.
func recordings(r *report, l *lab) {
	modules := []*ptx.Module{l.module("shapes.ptx"), l.module("triton_softmax.ptx")}
	calls, base := attention(), l.alloc(window)
	at := map[string]uint64{}
	trace := &analyze.Trace{}
	for _, c := range calls {
		for _, name := range c.args {
			if at[name] == 0 {
				at[name] = base + uint64(len(at)*gap)
				trace.Buffers = append(trace.Buffers, analyze.Allocation{Name: name, Address: analyze.Value(fmt.Sprint(at[name])), Bytes: tensor, Type: "f32"})
			}
		}
	}
	l.fill(base, 0, window)
	folder, exact := r.t.TempDir(), 0
	for i := range calls {
		c := &calls[i]
		got := l.recording(c, modules[c.module].Source, base, at)
		if bytes.Equal(got.reads, bits(c.reads, base, at)) && bytes.Equal(got.writes, bits(c.writes, base, at)) {
			exact++
		} else {
			r.t.Logf("B2: %s accesses other bytes than its tensors", c.name)
		}
		files := &analyze.Recorded{Probe: c.name + ".probe", Reads: c.name + ".reads", Writes: c.name + ".writes", Granule: 1}
		for name, data := range map[string][]byte{files.Probe: got.probe, files.Reads: got.reads, files.Writes: got.writes} {
			l.must(os.WriteFile(filepath.Join(folder, name), data, 0o600))
		}
		grid, block := c.shape()
		node := analyze.Call{Name: c.name, Kernel: c.kernel, Grid: grid[:], Block: block[:], Shared: c.shared, Recorded: files}
		for _, name := range c.args {
			node.Args = append(node.Args, analyze.Value(name))
		}
		for _, x := range c.more {
			node.Args = append(node.Args, analyze.Value(fmt.Sprint(x)))
		}
		trace.Nodes = append(trace.Nodes, node)
	}
	r.judge("B2", "launches that access their tensors and nothing else", float64(exact), fmt.Sprintf("of %d", len(calls)), "all", exact == len(calls))
	g, err := analyze.Analyze(filepath.Join(folder, "block.json"), trace, modules)
	l.must(err)
	found := map[string]uint64{}
	for _, e := range g.Edges {
		found[e.From+" "+e.To] += e.Bytes
	}
	want := edges(calls)
	if !maps.Equal(found, want) {
		r.t.Logf("B2: edges by their bytes %v; by tensors %v", found, want)
	}
	same := 0
	for e, n := range found {
		if want[e] == n {
			same++
		}
	}
	r.judge("B2", "edges of the graph of what was recorded that are right", float64(same), fmt.Sprintf("of %d", len(want)), "all", maps.Equal(found, want))
}

// edges are the bytes between calls by their tensors alone: who wrote each last.
func edges(calls []call) map[string]uint64 {
	all, last := map[string]uint64{}, map[string]string{}
	for _, c := range calls {
		for _, name := range c.reads {
			if from := last[name]; from != "" {
				all[from+" "+c.name] += tensor
			}
		}
		for _, name := range c.writes {
			last[name] = c.name
		}
	}
	return all
}

// bits are a bitmap of tensors, a bit a byte.
func bits(names []string, base uint64, at map[string]uint64) []byte {
	all := make([]byte, window/8)
	for _, name := range names {
		from := (at[name] - base) / 8
		for i := range all[from : from+tensor/8] {
			all[from+uint64(i)] = 0xff
		}
	}
	return all
}

// left is what an instrumented launch leaves.
type left struct{ probe, reads, writes []byte }

// recording runs a call, instrumented.
func (l *lab) recording(c *call, text string, base uint64, at map[string]uint64) left {
	l.t.Helper()
	m, err := ptx.Parse(text)
	l.must(err)
	rewritten, err := instrument.Rewrite(m, instrument.Options{Granule: 1})
	l.must(err)
	k := l.kernel(0, rewritten.Text, c.kernel)
	reads, writes := l.alloc(window/8), l.alloc(window/8)
	l.fill(reads, 0, window/8)
	l.fill(writes, 0, window/8)
	start := rewritten.Probe(base, window, reads, writes)
	probe := l.alloc(len(start))
	l.put(probe, start)
	x := run{shared: c.shared}
	x.grid, x.block = c.shape()
	for _, name := range c.args {
		x.args = append(x.args, at[name])
	}
	l.launch(0, k, x, append(slices.Clone(c.more), probe)...)
	l.must(l.p.Sync())
	got := left{l.get(probe, len(start)), l.get(reads, window/8), l.get(writes, window/8)}
	if binary.LittleEndian.Uint64(got.probe) != base {
		l.t.Fatalf("the probe buffer is of another window")
	}
	return got
}
