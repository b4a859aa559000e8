package analyze

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/disagg/ptx"
	"github.com/muster-sched/muster/disagg/ptx/interp"
)

// effect is what a node does to memory. Writes are certain: after them, all bytes of them are new.
// What a node may write, and may leave as it was, is in Reads as well.
type effect struct {
	reads, writes []Range
	scratch       Range  // of the writes: a workspace, whose content no node needs
	why           string // it needs one GPU: why its bytes are not known
	vector        float64
	tensor        float64 // FLOPs
	moved         float64 // bytes that it reads and writes
}

// mostInterpreted is how many instructions a launch may run here.
const mostInterpreted = 1_000_000_000

// launch finds out what a kernel accesses: from what was recorded, or by running it here on the
// trace's memory. If neither can be, it may read and write all that there is.
func (a *analysis) launch(c *Call) (effect, error) {
	switch {
	case len(c.Accesses) > 0:
		return a.recorded(c)
	case c.Recorded != nil:
		return a.probed(c)
	}
	k, p := a.kernels[c.Kernel], a.programs[c.Kernel]
	switch {
	case p == nil:
		return a.anything(fmt.Sprintf("there is no text of kernel %s", c.Kernel)), nil
	case len(k.Limits) > 0:
		return a.anything(strings.Join(k.Limits, ", ")), nil
	}
	l := interp.Launch{Kernel: c.Kernel, Shared: c.Shared, Steps: mostInterpreted, Grid: three(c.Grid), Block: three(c.Block)}
	args, err := a.arguments(c, a.parameters[c.Kernel])
	if err != nil {
		return effect{}, err
	}
	for _, x := range args {
		l.Args = append(l.Args, x.bytes)
	}
	s := newSeen()
	s.kernel, s.indexes, s.unknown = c.Kernel, k.indexes, a.unknown
	count, err := p.Run(l, s.observe)
	if fault, ok := err.(*interp.Fault); ok {
		return a.anything(fault.Error()), nil
	} else if err != nil {
		return effect{}, err
	}
	reads, writes := s.ranges(a)
	a.learn(reads, writes)
	return effect{reads: reads, writes: writes, vector: float64(count.Vector), tensor: float64(count.Tensor), moved: float64(size(reads) + size(writes))}, nil
}

func three(n []int) (all [3]int) {
	for i := range all {
		all[i] = 1
		if i < len(n) {
			all[i] = n[i]
		}
	}
	return all
}

// recorded returns the accesses that the trace has.
func (a *analysis) recorded(c *Call) (effect, error) {
	var e effect
	for i, x := range c.Accesses {
		at, err := a.address(x.At)
		if err != nil {
			return e, fmt.Errorf("accesses[%d].at: expected %w", i, err)
		}
		r, err := a.within(at, x.Bytes)
		if err != nil {
			return e, fmt.Errorf("accesses[%d]: expected %w", i, err)
		}
		if x.Read || x.Write && !x.All {
			e.reads = append(e.reads, r)
		}
		if x.Write {
			e.writes = append(e.writes, r)
		}
	}
	e.reads, e.writes = normal(e.reads), normal(e.writes)
	e.moved = float64(size(e.reads) + size(e.writes))
	a.forget(e.writes)
	return e, nil
}

// anything is a node that may access all buffers. What it wrote is not known.
func (a *analysis) anything(why string) effect {
	var all []Range
	for _, b := range a.live {
		all = append(all, Range{b.from, b.to})
	}
	all = normal(all)
	a.forget(all)
	return effect{reads: all, writes: all, why: why, moved: 2 * float64(size(all))}
}

// forget remembers that the content of bytes is no longer that of the traced run.
func (a *analysis) forget(all []Range) {
	for _, r := range all {
		a.unknown.set(r, 0)
	}
}

// learn says that a node computed bytes from others here: they are as known as those.
func (a *analysis) learn(reads, writes []Range) {
	by := nobody
	for _, r := range reads {
		a.unknown.of(r, func(_ Range, is int) { by = max(by, is) })
	}
	for _, r := range writes {
		a.unknown.set(r, by)
	}
}

// argument is the bytes of a parameter, and where in them addresses of buffers are.
type argument struct {
	bytes    []byte
	pointers []int
}

// arguments encodes a kernel's arguments by the types of its parameters.
func (a *analysis) arguments(c *Call, params []ptx.Declaration) (all []argument, err error) {
	if len(c.Args) != len(params) {
		return nil, fmt.Errorf("args: expected the %d arguments of kernel %s; found %d", len(params), c.Kernel, len(c.Args))
	}
	for i := range params {
		d := &params[i]
		n := int(d.Bytes(&d.Vars[0]))
		var b argument
		if len(d.Vars[0].Dims) > 0 {
			b, err = a.fields(c.Args[i], n)
		} else {
			t := strings.TrimPrefix(d.Type, ".")
			if b.bytes, err = a.encode(c.Args[i], t); isAddress(c.Args[i], t) {
				b.pointers = []int{0}
			}
		}
		if err != nil {
			return nil, fmt.Errorf("args[%d]: expected %w", i, err)
		}
		all = append(all, b)
	}
	return all, nil
}

// isAddress reports whether a value of a type is the address of a buffer by its name.
func isAddress(v Value, t string) bool {
	_, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		_, err = strconv.ParseInt(string(v), 0, 64)
	}
	return err != nil && ptx.TypeBytes(t) == 8 && t != "f64"
}

// encode encodes one value of a type.
func (a *analysis) encode(v Value, t string) ([]byte, error) {
	n := ptx.TypeBytes(t)
	var bits uint64
	switch text := string(v); t {
	case "f32", "f64":
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("a number; found %q", text)
		}
		bits = math.Float64bits(f)
		if t == "f32" {
			bits = uint64(math.Float32bits(float32(f)))
		}
	default:
		if x, err := strconv.ParseInt(text, 0, 64); err == nil {
			bits = uint64(x)
			break
		}
		x, err := a.address(v)
		if err != nil {
			return nil, err
		}
		bits = x
	}
	return binary.LittleEndian.AppendUint64(nil, bits)[:n], nil
}

// fields encodes a struct: values separated by spaces, each with its type, such as "u32:5 x+16";
// without one it is an address. Each is aligned to its size.
func (a *analysis) fields(v Value, n int) (all argument, err error) {
	b := make([]byte, 0, n)
	for _, f := range strings.Fields(string(v)) {
		t, text, ok := strings.Cut(f, ":")
		if !ok {
			t, text = "u64", f
		}
		size := ptx.TypeBytes(t)
		if size == 0 || size > 8 {
			return all, fmt.Errorf("a type such as u32; found %q", f)
		}
		e, err := a.encode(Value(text), t)
		if err != nil {
			return all, err
		}
		for len(b)%size != 0 {
			b = append(b, 0)
		}
		if isAddress(Value(text), t) {
			all.pointers = append(all.pointers, len(b))
		}
		b = append(b, e...)
	}
	if len(b) > n {
		return all, fmt.Errorf("values of at most %d bytes; found %d", n, len(b))
	}
	all.bytes = append(b, make([]byte, n-len(b))...)
	return all, nil
}

// seen collects the bytes that a launch accesses, in pages of bits.
type seen struct {
	indexes map[*ptx.Instruction]bool
	unknown owners
	kernel  string

	pages map[uint64]*page
	last  *page
	at    uint64
}

const pageBytes = 4096

type page struct{ reads, writes [pageBytes / 64]uint64 }

func newSeen() *seen { return &seen{pages: map[uint64]*page{}, at: math.MaxUint64} }

// observe notes reads of bytes that the launch has not written itself, and writes.
func (s *seen) observe(i *ptx.Instruction, address uint64, n int, read, write bool) {
	if read && len(s.unknown) > 0 && s.indexes[i] {
		s.unknown.of(Range{address, address + uint64(n)}, func(_ Range, by int) {
			if by != nobody { // the rest of the run would be guesswork
				panic(&interp.Fault{Kernel: s.kernel, What: "what it accesses depends on data that the trace does not have"})
			}
		})
	}
	for k := range uint64(n) {
		at := address + k
		if number := at / pageBytes; number != s.at {
			if s.at, s.last = number, s.pages[number]; s.last == nil {
				s.last = &page{}
				s.pages[number] = s.last
			}
		}
		word, bit := at%pageBytes/64, uint64(1)<<(at%64)
		if read && s.last.writes[word]&bit == 0 {
			s.last.reads[word] |= bit
		}
		if write {
			s.last.writes[word] |= bit
		}
	}
}

// ranges returns what was accessed of the live buffers: not the variables of modules.
func (s *seen) ranges(a *analysis) (reads, writes []Range) {
	for _, b := range a.live {
		for number := b.from / pageBytes; number <= (b.to-1)/pageBytes; number++ {
			p := s.pages[number]
			if p == nil {
				continue
			}
			reads = collect(reads, &p.reads, number*pageBytes, b)
			writes = collect(writes, &p.writes, number*pageBytes, b)
		}
	}
	return normal(reads), normal(writes)
}

func collect(to []Range, bits *[pageBytes / 64]uint64, base uint64, b *buffer) []Range {
	for k := uint64(0); k < pageBytes; k++ {
		if at := base + k; bits[k/64]>>(k%64)&1 == 1 && at >= b.from && at < b.to {
			if n := len(to); n > 0 && to[n-1].To == at {
				to[n-1].To++
			} else {
				to = append(to, Range{at, at + 1})
			}
		}
	}
	return to
}
