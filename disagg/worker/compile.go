package worker

import (
	"encoding/binary"
	"slices"

	"github.com/muster-sched/muster/disagg/analyze"
)

// Kind is what an operation does.
type Kind uint8

// The kinds of operations.
const (
	Initialize Kind = iota // what the trace's memory contained at first, in the memory of a request
	Execute                // a step: a launch, a fill, a copy
	Copy                   // a transfer between two GPUs of one site
	Send                   // a transfer to a GPU of another site
	Receive                // a transfer from there
)

// Op is an operation on a stream. Steps of a GPU are on one stream in order; transfers between two GPUs are on another.
type Op struct {
	Kind     Kind
	GPU      int // where it runs; of a transfer the receiver
	From     int // of a transfer the sender
	Step     int // of Execute; of a transfer the one that reads
	Writer   int // of a transfer the step that wrote; -1 for what was there at first
	Bytes    []analyze.Range
	Waits    []int // operations of the same site on other streams that end before
	Recorded bool  // others wait for it
	Host     int64 // where in the host's memory of a request its bytes are: of copies from and to the host, Send and Receive
	Flag     int   // of Send and Receive: which flag says that the bytes have arrived
}

// site returns where the operation runs.
func (o *Op) site(sites []int) int {
	if o.Kind == Send {
		return sites[o.From]
	}
	return sites[o.GPU]
}

// stream identifies the stream of an operation at a site: of a GPU's steps, or of transfers from one to another.
func (o *Op) stream() stream {
	if o.Kind == Initialize || o.Kind == Execute {
		return stream{o.GPU, o.GPU}
	}
	return stream{o.From, o.GPU}
}

type stream struct{ from, to int }

// size is the bytes of an operation.
func (o *Op) size() (n int64) {
	for _, r := range o.Bytes {
		n += int64(r.To - r.From)
	}
	return n
}

// version says where the newest content of an atom is.
type version struct {
	writer int32 // step; -1 for what was there at first
	home   int8  // the GPU that wrote it
	on     uint16
}

// Code is a segment under a plan, with the memory as the segments before it left it. Operations are in an order in which each
// comes after all that it waits for: what is submitted in this order cannot wait for itself.
type Code struct {
	Ops   []Op
	Host  int64 // bytes of the host's memory that a request needs for it
	Flags int
	after []version
}

// hostAlign is the alignment of what shares the host's memory.
const hostAlign = 64

// first is the state before the first segment: each GPU has initialized its memory.
func (p *Program) first() []version {
	all := make([]version, len(p.atoms))
	for i := range all {
		all[i] = version{-1, 0, 1<<p.GPUs - 1}
	}
	return all
}

// compiler makes the code of a segment. For each GPU and atom it knows which operation wrote the GPU's copy last, and
// which have read it since; -1 and none are those of earlier segments, which have ended.
type compiler struct {
	p     *Program
	sites []int
	code  *Code
	wrote []int32
	read  [][]int32
}

// Compile makes the code of a segment. gpu has the GPU of each step, and sites the site of each GPU.
func (p *Program) Compile(segment int, before []version, gpu, sites []int) *Code {
	c := &compiler{p: p, sites: sites, code: &Code{after: slices.Clone(before)}, wrote: make([]int32, p.GPUs*len(p.atoms)), read: make([][]int32, p.GPUs*len(p.atoms))}
	for i := range c.wrote {
		c.wrote[i] = -1
	}
	if segment == 0 {
		c.initialize()
	}
	s := p.Segments[segment]
	for step := s.From; step < s.To; step++ {
		g := gpu[step]
		c.transfer(step, g)
		o := Op{Kind: Execute, GPU: g, Step: step, Host: -1}
		switch again := &p.Steps[step].Again; {
		case again.FromHost():
			o.Host = c.host(int64(again.To.To - again.To.From))
		case again.ToHost():
			o.Host = c.host(int64(again.From.To - again.From.From))
		}
		c.add(o, g, p.reads[step], g, p.writes[step])
		for _, a := range p.writes[step] {
			c.code.after[a] = version{int32(step), int8(g), 1 << g}
		}
	}
	return c.code
}

// initialize copies what the trace's memory contained to where a step may read it.
func (c *compiler) initialize() {
	for g, need := range c.p.Need {
		var all []int32
		for a, is := range c.p.unwritten {
			if is && need[find(c.p.Regions, c.p.atoms[a].From)] {
				all = append(all, int32(a))
			}
		}
		if len(all) > 0 {
			c.add(Op{Kind: Initialize, GPU: g, Bytes: c.p.ranges(all)}, g, nil, g, all)
		}
	}
}

// transfer moves to a GPU what a step there reads and the GPU does not have: one transfer for each step that wrote some
// of it.
func (c *compiler) transfer(step, to int) {
	var writers []int32
	missing := map[int32][]int32{}
	for _, a := range c.p.reads[step] {
		if v := c.code.after[a]; v.on>>to&1 == 0 {
			if missing[v.writer] == nil {
				writers = append(writers, v.writer)
			}
			missing[v.writer] = append(missing[v.writer], a)
			c.code.after[a].on |= 1 << to
		}
	}
	slices.Sort(writers)
	for _, w := range writers {
		atoms := missing[w]
		from := int(c.code.after[atoms[0]].home)
		o := Op{Kind: Copy, GPU: to, From: from, Step: step, Writer: int(w), Bytes: c.p.ranges(atoms)}
		if c.sites[from] == c.sites[to] {
			c.add(o, from, atoms, to, atoms)
			continue
		}
		o.Host, o.Flag = c.host(o.size()), c.code.Flags
		c.code.Flags++
		o.Kind = Send
		c.add(o, from, atoms, to, nil)
		o.Kind = Receive
		c.add(o, from, nil, to, atoms)
	}
}

// host takes bytes of the host's memory.
func (c *compiler) host(n int64) (at int64) {
	at = c.code.Host
	c.code.Host += (n + hostAlign - 1) / hostAlign * hostAlign
	return at
}

// add adds an operation that reads atoms on one GPU and writes atoms on another. It waits for those that wrote what it
// reads, and for those that accessed what it writes.
func (c *compiler) add(o Op, from int, reads []int32, to int, writes []int32) {
	me := int32(len(c.code.Ops))
	latest := map[stream]int32{} // of each stream, the last operation to wait for: those before it have ended then
	need := func(k int32) {
		if k < 0 {
			return
		}
		s := c.code.Ops[k].stream()
		if at, ok := latest[s]; s != o.stream() && (!ok || at < k) {
			latest[s] = k
		}
	}
	for _, a := range reads {
		need(c.wrote[from*len(c.p.atoms)+int(a)])
	}
	for _, a := range writes {
		at := to*len(c.p.atoms) + int(a)
		need(c.wrote[at])
		for _, k := range c.read[at] {
			need(k)
		}
	}
	for _, k := range latest {
		o.Waits = append(o.Waits, int(k))
		c.code.Ops[k].Recorded = true
	}
	slices.Sort(o.Waits)
	c.code.Ops = append(c.code.Ops, o)
	for _, a := range reads {
		at := from*len(c.p.atoms) + int(a)
		c.read[at] = append(c.read[at], me)
	}
	for _, a := range writes {
		at := to*len(c.p.atoms) + int(a)
		c.wrote[at], c.read[at] = me, nil
	}
}

// pointer is the address, or another number of eight bytes, in packed arguments.
func pointer(args []byte, at int) uint64 { return binary.LittleEndian.Uint64(args[at:]) }
