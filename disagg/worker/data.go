package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/muster-sched/muster/disagg/analyze"
	"github.com/muster-sched/muster/workload"
)

// Data is what buffers contain and requests bring. It is, of these, the first that there is: the file of the buffer, or of
// the node and request, in Folder; the values of the trace; and random content of the buffer's type, the same for the same Seed.
type Data struct {
	Replay *analyze.Replay
	Folder string
	Seed   uint64
}

// Name is the file of what a step copies from or to the host for a request: NODE.REQUEST, and NODE.REQUEST.ITERATION if the
// node runs in several iterations. A slash in a name, of a layer for example, is no folder.
func (d *Data) Name(request, step int) string {
	s := &d.Replay.Steps[step]
	name := fmt.Sprintf("%s.%d", url.PathEscape(s.Name), request)
	if slices.ContainsFunc(d.Replay.Steps, func(o analyze.Step) bool { return o.Name == s.Name && o.Iteration != s.Iteration }) {
		name += fmt.Sprintf(".%d", s.Iteration)
	}
	return name
}

// file reads a file of the folder, with these bytes; nil if there is none.
func (d *Data) file(name string, bytes uint64) ([]byte, error) {
	if d.Folder == "" {
		return nil, nil
	}
	path := filepath.Join(d.Folder, name)
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, &workload.Error{File: path, Want: fmt.Sprintf("a file that can be read; found: %v", err)}
	case uint64(len(data)) != bytes:
		return nil, &workload.Error{File: path, Want: fmt.Sprintf("%d bytes; found %d", bytes, len(data))}
	}
	return data, nil
}

// Content returns what a region contains at first.
func (d *Data) Content(r Region) ([]byte, error) {
	all := make([]byte, r.To-r.From)
	for _, b := range d.Replay.Buffers {
		if b.From < r.From || b.To > r.To {
			continue
		}
		part := all[b.From-r.From : b.To-r.From]
		data, err := d.file(url.PathEscape(b.Name), uint64(len(part)))
		if err != nil {
			return nil, err
		}
		if data != nil {
			copy(part, data)
		} else if len(b.Values) > 0 {
			clear(part)
			copy(part, b.Values)
		} else {
			d.random(part, b.Type, b.Name, -1)
		}
	}
	return all, nil
}

// Input returns what a step that copies from the host brings to a request.
func (d *Data) Input(request, step int) ([]byte, error) {
	s := &d.Replay.Steps[step]
	all := make([]byte, s.To.To-s.To.From)
	if data, err := d.file(d.Name(request, step), uint64(len(all))); data != nil || err != nil {
		return data, err
	}
	kind := ""
	for _, b := range d.Replay.Buffers {
		if s.To.From >= b.From && s.To.To <= b.To {
			kind = b.Type
		}
	}
	d.random(all, kind, fmt.Sprint(s.Name, step), request)
	return all, nil
}

// random fills bytes with content of a type: floats are multiples of 1/8 from -1 to 1, other types any bits.
func (d *Data) random(to []byte, kind, name string, request int) {
	h := fnv.New64a()
	fmt.Fprint(h, name, request)
	r := rand.New(rand.NewPCG(d.Seed, h.Sum64()))
	float := func() float32 { return float32(r.IntN(17)-8) / 8 }
	switch {
	case kind == "f64":
		for ; len(to) >= 8; to = to[8:] {
			binary.LittleEndian.PutUint64(to, math.Float64bits(float64(float())))
		}
	case kind == "f32":
		for ; len(to) >= 4; to = to[4:] {
			binary.LittleEndian.PutUint32(to, math.Float32bits(float()))
		}
	case kind == "f16" || kind == "bf16":
		for ; len(to) >= 2; to = to[2:] {
			b := math.Float32bits(float())
			half := uint16(b >> 16) // of bf16, exact: three bits are significant
			if kind == "f16" && b<<1 != 0 {
				half = uint16(b>>16&0x8000 | (b>>23&255-112)<<10 | b>>13&1023)
			}
			binary.LittleEndian.PutUint16(to, half)
		}
	}
	for i := range to {
		to[i] = byte(r.Uint32())
	}
}
