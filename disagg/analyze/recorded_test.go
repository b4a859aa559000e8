package analyze

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/muster-sched/muster/disagg/instrument"
	"github.com/muster-sched/muster/disagg/ptx"
	"github.com/muster-sched/muster/disagg/ptx/interp"
	"github.com/muster-sched/muster/disagg/ptx/ptxtest"
)

// What an instrumented kernel records, here on the interpreter, is what the analyzer finds out by
// running the original: with bitmaps of bytes exactly, with intervals at least.
func TestRecorded(t *testing.T) {
	m := parse(t)
	folder := t.TempDir()
	trace := func(recorded *Recorded) *Trace {
		return &Trace{
			Buffers: []Allocation{{Name: "in", Address: "0x10000", Bytes: 1152}, {Name: "out", Address: "0x20000", Bytes: 4096}},
			Nodes:   []Call{{Name: "t", Kernel: "transpose", Grid: []int{2, 2}, Block: []int{8, 8}, Shared: 144, Args: []Value{"out", "in", "24"}, Recorded: recorded}},
		}
	}
	analyze := func(recorded *Recorded) Node {
		g, err := Analyze(filepath.Join(folder, "trace.json"), trace(recorded), []*ptx.Module{m})
		if err != nil {
			t.Fatal(err)
		}
		return g.Nodes[0]
	}
	const window, bytes = 0x10000, 0x20000
	sites := 0
	for _, granule := range []int{1, 16} {
		r, err := instrument.Rewrite(m, instrument.Options{Granule: granule})
		if err != nil {
			t.Fatal(err)
		}
		sites = len(r.Sites)
		rewritten, err := ptx.Parse(r.Text)
		if err != nil {
			t.Fatal(err)
		}
		memory := &interp.Memory{}
		buffers := map[string]*interp.Buffer{
			"in": {Name: "in", Address: 0x10000, Data: make([]byte, 1152)}, "out": {Name: "out", Address: 0x20000, Data: make([]byte, 4096)},
			"reads": {Name: "reads", Address: 0x100000, Data: make([]byte, bytes/8)}, "writes": {Name: "writes", Address: 0x200000, Data: make([]byte, bytes/8)},
			"probe": {Name: "probe", Address: 0x300000, Data: r.Probe(window, bytes, 0x100000, 0x200000)},
		}
		for _, b := range buffers {
			if err := memory.Add(b); err != nil {
				t.Fatal(err)
			}
		}
		p, err := interp.Load(rewritten, memory)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Run(interp.Launch{Kernel: "transpose", Grid: [3]int{2, 2, 1}, Block: [3]int{8, 8, 1}, Shared: 144,
			Args: ptxtest.Args(buffers["out"], buffers["in"], uint32(24), buffers["probe"])}, nil); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"probe", "reads", "writes"} {
			if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%s.%d", name, granule)), buffers[name].Data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := analyze(nil)
	if len(want.Reads) != 16 || total(want.Writes) != 512 { // 16 rows of 16 of 24 elements
		t.Fatalf("reads %v, writes %v", want.Reads, want.Writes)
	}
	got := analyze(&Recorded{Probe: "probe.1", Reads: "reads.1", Writes: "writes.1", Granule: 1})
	if !reflect.DeepEqual(got.Reads, want.Reads) || !reflect.DeepEqual(got.Writes, want.Writes) {
		t.Errorf("by bytes: %v, %v; want %v, %v", got.Reads, got.Writes, want.Reads, want.Writes)
	}
	got = analyze(&Recorded{Probe: "probe.1"})
	span := uint64(15*48 + 32)
	if w := []Part{{"in", 0, span}, {"out", 0, span}}; !reflect.DeepEqual(got.Reads, w) || !reflect.DeepEqual(got.Writes, w[1:]) {
		t.Errorf("by intervals: %v, %v; want %v", got.Reads, got.Writes, w)
	}
	got = analyze(&Recorded{Probe: "probe.16", Reads: "reads.16", Writes: "writes.16", Granule: 16})
	if !reflect.DeepEqual(got.Writes, want.Writes) || total(got.Reads) != 1024 { // rows are whole granules; what is written counts as read
		t.Errorf("by granules: %v, %v", got.Reads, got.Writes)
	}
	for recorded, want := range map[Recorded]string{
		{Probe: "none"}:                      "nodes[0].recorded.probe: a file that can be read; found: open " + filepath.Join(folder, "none") + ": no such file or directory",
		{Probe: "reads.1"}:                   fmt.Sprintf("nodes[0].recorded.probe: a probe buffer of %d bytes for %d sites; found 16384", 32+16*sites, sites),
		{Probe: "probe.1", Reads: "probe.1"}: fmt.Sprintf("nodes[0].recorded.reads: 16384 bytes for the window of the probe; found %d", 32+16*sites),
	} {
		file := filepath.Join(folder, "trace.json")
		_, err := Analyze(file, trace(&recorded), []*ptx.Module{m})
		if err == nil || err.Error() != file+": "+want {
			t.Errorf("%+v: %v, want %s", recorded, err, want)
		}
	}
}
