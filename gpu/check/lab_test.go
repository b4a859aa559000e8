//go:build linux

package check

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/muster-sched/muster/disagg/ptx"
	"github.com/muster-sched/muster/disagg/ptx/ptxtest"
	"github.com/muster-sched/muster/gpu/driver"
	"github.com/muster-sched/muster/gpu/gputest"
)

// lab runs kernels on one GPU, or on two parts of it.
type lab struct {
	t       *testing.T
	p       *driver.Process
	gpus    []driver.GPU
	parts   [2]int // multiprocessors of the parts
	streams []int
}

const hostBytes = 64 << 20

// options are those of the GPU's driver, real or fake.
func options(t *testing.T, n *gputest.Node) driver.Options {
	program, path, environment := n.Worker(t, 1)
	return driver.Options{Program: program, Driver: path, Environment: environment, Host: hostBytes}
}

// newLab opens the GPU; with split its parts, of which the first has so many multiprocessors.
func newLab(t *testing.T, o driver.Options, split int) (*lab, error) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	p, err := driver.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	l := &lab{t: t, p: p}
	t.Cleanup(p.Close)
	if split > 0 {
		var parts [2]driver.GPU
		if parts, l.parts, err = p.Split(0, split); err != nil {
			return nil, err
		}
		l.gpus = parts[:]
	} else {
		g, err := p.Use(0)
		if err != nil {
			return nil, err
		}
		l.gpus = []driver.GPU{g}
	}
	if err := p.ShareHost(); err != nil {
		return nil, err
	}
	for _, g := range l.gpus {
		l.streams = append(l.streams, p.Stream(g.Number, g.Background))
	}
	return l, nil
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) alloc(bytes int) uint64 {
	l.t.Helper()
	at, err := l.p.Alloc(0, uint64(bytes))
	l.must(err)
	return at
}

func (l *lab) put(at uint64, data []byte) {
	l.t.Helper()
	for len(data) > 0 {
		n := copy(l.p.Host, data)
		l.p.Do("put %d %d 0 %d", l.streams[0], at, n)
		l.must(l.p.Sync())
		at, data = at+uint64(n), data[n:]
	}
}

func (l *lab) get(at uint64, n int) (data []byte) {
	l.t.Helper()
	for n > 0 {
		part := min(n, hostBytes)
		l.p.Do("get %d 0 %d %d", l.streams[0], at, part)
		l.must(l.p.Sync())
		data = append(data, l.p.Host[:part]...)
		at, n = at+uint64(part), n-part
	}
	return data
}

func (l *lab) fill(at uint64, value byte, n int) {
	l.p.Do("fill %d %d %d %d", l.streams[0], at, value, n)
}

// kernel is a kernel of a module that is loaded on a GPU.
type kernel struct {
	number int
	places []ptx.Place
}

func (l *lab) kernel(gpu int, text, name string) kernel {
	l.t.Helper()
	m, err := ptx.Parse(text)
	l.must(err)
	module, err := l.p.Load(l.gpus[gpu].Number, text)
	l.must(err)
	k := kernel{}
	k.number, err = l.p.Function(module, name)
	l.must(err)
	for i := range m.Nodes {
		if n := &m.Nodes[i]; n.Kind == ptx.Define && n.Func.Name == name && n.Block != nil {
			k.places = n.Func.Places()
		}
	}
	return k
}

// pack packs arguments.
func (k *kernel) pack(args [][]byte) (packed []byte) {
	for i, p := range k.places {
		packed = append(packed, make([]byte, p.At-len(packed))...)
		packed = append(packed, args[i]...)
	}
	return packed
}

// run is a launch that can be made again and again.
type run struct {
	name        string
	grid, block [3]int
	shared      int
	args        []any
	vector      float64 // FLOPs
	bytes       float64 // that it moves
}

func (l *lab) launch(gpu int, k kernel, r run, more ...any) {
	l.p.Launch(k.number, l.streams[gpu], r.grid, r.block, r.shared, k.pack(ptxtest.Args(append(append([]any(nil), r.args...), more...)...)))
}

// micros is the time of one of several launches in a row.
func (l *lab) micros(gpu, times int, launch func()) float64 {
	l.t.Helper()
	from, to := l.p.Event(l.gpus[gpu].Number, true), l.p.Event(l.gpus[gpu].Number, true)
	launch() // once without counting
	l.p.Do("record %d %d", from, l.streams[gpu])
	for range times {
		launch()
	}
	l.p.Do("record %d %d", to, l.streams[gpu])
	l.must(l.p.Sync())
	us, err := l.p.Elapsed(from, to)
	l.must(err)
	return us / float64(times)
}

// relocated replaces addresses of a case's buffers, at multiples of 8 bytes.
func relocated(data []byte, c *ptxtest.Case, first, base uint64) []byte {
	data = append([]byte(nil), data...)
	for i := 0; i+8 <= len(data); i += 8 {
		v := binary.LittleEndian.Uint64(data[i:])
		for _, b := range c.Buffers {
			if v == b.Address {
				binary.LittleEndian.PutUint64(data[i:], v-first+base)
			}
		}
	}
	return data
}
