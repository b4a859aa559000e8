package analyze

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"github.com/muster-sched/muster/disagg/instrument"
)

// Recorded is what an instrumented kernel left in its probe buffer and, if it has any, in its
// bitmaps: names of files, beside the trace.
type Recorded struct {
	Probe   string `json:"probe"`
	Reads   string `json:"reads,omitempty"`
	Writes  string `json:"writes,omitempty"`
	Granule int    `json:"granule,omitempty" min:"1"`
}

// probed returns what a kernel accessed by its probe buffer. An interval says that its first and
// last bytes were accessed; what lies between may be, so that a write of it is none of all bytes,
// but for bitmaps with a granule of one byte. Bytes in no live buffer do not count.
func (a *analysis) probed(c *Call) (effect, error) {
	module := a.modules[c.Kernel]
	if module == nil {
		return effect{}, fmt.Errorf("recorded: expected a kernel of the modules; found %q", c.Kernel)
	}
	if k := a.kernels[c.Kernel]; len(k.Limits) > 0 {
		return a.anything(k.Limits[0]), nil
	}
	rewritten, err := instrument.Rewrite(module, instrument.Options{})
	if err != nil {
		return effect{}, fmt.Errorf("recorded: expected %w", err)
	}
	probe, err := a.file("probe", c.Recorded.Probe)
	if err != nil {
		return effect{}, err
	}
	intervals, err := rewritten.Intervals(probe)
	if err != nil {
		return effect{}, fmt.Errorf("recorded.probe: %w", err)
	}
	var e effect
	for k, s := range rewritten.Sites {
		r := Range{intervals[k].From, intervals[k].To}
		if s.Read {
			e.reads = append(e.reads, r)
		}
		if s.Write {
			e.writes = append(e.writes, r)
		}
	}
	start, bytes := binary.LittleEndian.Uint64(probe), binary.LittleEndian.Uint64(probe[8:])
	for k, path := range []string{c.Recorded.Reads, c.Recorded.Writes} {
		name, list := [...]string{"reads", "writes"}[k], [...]*[]Range{&e.reads, &e.writes}[k]
		if path == "" {
			continue
		}
		bitmap, err := a.file(name, path)
		if err != nil {
			return effect{}, err
		}
		granule := uint64(max(c.Recorded.Granule, 1))
		if want := (bytes + 8*granule - 1) / (8 * granule); uint64(len(bitmap)) < want {
			return effect{}, fmt.Errorf("recorded.%s: expected %d bytes for the window of the probe; found %d", name, want, len(bitmap))
		}
		*list = intersect(normal(*list), append(granules(bitmap, start, bytes, granule), outside(start, bytes)...))
	}
	var live []Range
	for _, b := range a.live {
		live = append(live, Range{b.from, b.to})
	}
	live = normal(live)
	e.reads, e.writes = intersect(normal(e.reads), live), intersect(normal(e.writes), live)
	if c.Recorded.Writes == "" || c.Recorded.Granule > 1 {
		e.reads = normal(append(e.reads, e.writes...))
	}
	e.moved = float64(size(e.reads) + size(e.writes))
	a.forget(e.writes)
	return e, nil
}

// file reads a file beside the trace.
func (a *analysis) file(field, name string) ([]byte, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(a.folder, name)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("recorded.%s: expected a file that can be read; found: %v", field, err)
	}
	return data, nil
}

// granules returns the ranges whose bits are set.
func granules(bitmap []byte, start, bytes, granule uint64) (all []Range) {
	for g := uint64(0); g*granule < bytes; g++ {
		if bitmap[g/8]>>(g%8)&1 == 0 {
			continue
		}
		r := Range{start + g*granule, start + min((g+1)*granule, bytes)}
		if n := len(all); n > 0 && all[n-1].To == r.From {
			all[n-1].To = r.To
		} else {
			all = append(all, r)
		}
	}
	return all
}

// outside returns the addresses that are in no window.
func outside(start, bytes uint64) []Range {
	return []Range{{0, start}, {start + bytes, 1<<64 - 1}}
}

// intersect returns what a normal list shares with another list.
func intersect(a, b []Range) (all []Range) {
	b = normal(b)
	for i, j := 0, 0; i < len(a) && j < len(b); {
		if r := (Range{max(a[i].From, b[j].From), min(a[i].To, b[j].To)}); r.From < r.To {
			all = append(all, r)
		}
		if a[i].To < b[j].To {
			i++
		} else {
			j++
		}
	}
	return all
}
