package interp

import (
	"fmt"

	"github.com/muster-sched/muster/disagg/ptx"
)

// Launch is a kernel with its arguments, each in the bytes of its parameter.
type Launch struct {
	Kernel      string
	Grid, Block [3]int
	Shared      int // dynamic shared memory, bytes
	Args        [][]byte
	Steps       int64 // how many instructions all threads may run; 0 is DefaultSteps
}

// DefaultSteps is the limit of a launch that sets none.
const DefaultSteps = 1 << 32

// Count is what a launch ran: instructions, those whose predicate was false included, and operations
// on floats, of which a fused one is two, outside and inside mma.
type Count struct{ Steps, Vector, Tensor int64 }

// Observe is called for each access of global memory, in the order in which they are made.
type Observe func(i *ptx.Instruction, address uint64, bytes int, read, write bool)

// Fault is an instruction that cannot be carried out. The memory is then as it was at that moment.
type Fault struct {
	Kernel string
	Line   int
	What   string
}

func (f *Fault) Error() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s", f.Kernel, f.What)
	}
	return fmt.Sprintf("%s, line %d: %s", f.Kernel, f.Line, f.What)
}

// run is a launch under way.
type run struct {
	program *Program
	memory  *Memory
	launch  Launch
	entry   *function
	observe Observe
	steps   int64
	limit   int64
	count   Count
}

type state uint8

const (
	runs state = iota
	waits
	exited
)

type thread struct {
	block      *block
	warp, lane int
	tid        [3]uint32
	state      state
	frame      *frame
	r          []uint64 // registers of the frame
	pc         int
	local      []byte
	yielded    bool // it ran out of its slice of time
	later      []written
}

// frame is a call of a function.
type frame struct {
	f      *function
	regs   []uint64
	params []byte
	local  int      // where its local variables start
	pc     int      // in the caller
	back   []copied // what the call returns
	up     *frame
}

// fault ends the launch because of the instruction that the thread runs.
func (t *thread) fault(format string, args ...any) {
	var in *inst
	if k := t.pc - 1; t.frame != nil && k >= 0 && k < len(t.frame.f.code) {
		in = &t.frame.f.code[k]
	}
	t.faultIn(in, format, args...)
}

func (t *thread) faultIn(in *inst, format string, args ...any) {
	f := &Fault{Kernel: t.block.run.launch.Kernel, What: fmt.Sprintf(format, args...)}
	if in != nil && in.source != nil {
		f.Line = in.line
		f.What = fmt.Sprintf("thread %v of block %v: %s %s", t.tid, t.block.id, in.source.Op, f.What)
	}
	panic(f)
}

// slice is how many instructions a thread runs before others do; patience is how many turns a block
// has in which it only polls memory, before other blocks have theirs.
const (
	slice    = 4096
	patience = 16
	resident = 4096 // blocks that have started and not ended
)

// Run runs a launch. An error is a *Fault or says what is wrong with the launch.
func (p *Program) Run(l Launch, observe Observe) (count Count, err error) {
	f := p.functions[l.Kernel]
	if f == nil || f.node.Block == nil || !f.node.Func.Entry {
		return count, fmt.Errorf("kernel: expected one of the module; found %q", l.Kernel)
	}
	if len(l.Args) != len(f.params) {
		return count, fmt.Errorf("args: expected the %d of %s; found %d", len(f.params), l.Kernel, len(l.Args))
	}
	for i, a := range l.Args {
		if len(a) != f.params[i].size {
			return count, fmt.Errorf("args[%d]: expected %d bytes; found %d", i, f.params[i].size, len(a))
		}
	}
	blocks, threads := l.Grid[0]*l.Grid[1]*l.Grid[2], l.Block[0]*l.Block[1]*l.Block[2]
	if total := float64(l.Grid[0]) * float64(l.Grid[1]) * float64(l.Grid[2]) * float64(l.Block[0]) * float64(l.Block[1]) * float64(l.Block[2]); total > 1<<40 {
		return count, fmt.Errorf("grid: expected at most 2^40 threads; found %v of %v", l.Grid, l.Block)
	}
	if min(l.Grid[0], l.Grid[1], l.Grid[2], l.Block[0], l.Block[1], l.Block[2]) < 1 || threads > 1024 {
		return count, fmt.Errorf("block: expected a grid, and blocks of 1 to 1024 threads; found %v and %v", l.Grid, l.Block)
	}
	if l.Shared < 0 || p.shared+l.Shared > 1<<24 {
		return count, fmt.Errorf("shared: expected at most 16 MiB of shared memory; found %d bytes", p.shared+l.Shared)
	}
	r := &run{program: p, memory: p.memory, launch: l, entry: f, observe: observe, limit: l.Steps}
	if r.limit == 0 {
		r.limit = DefaultSteps
	}
	defer func() {
		count = r.count
		count.Steps = r.steps
		if f, ok := recover().(*Fault); ok {
			err = f
		} else if f != nil {
			panic(f)
		}
	}()
	var live []*block
	for next := 0; next < blocks || len(live) > 0; {
		if next < blocks && len(live) < resident {
			live = append(live, r.start(next))
			next++
		}
		kept := live[:0]
		for i := len(live) - 1; i >= 0; i-- { // the newest first: those before it are polling
			if live[i].run1() {
				live[i] = nil
			}
		}
		for _, b := range live {
			if b != nil {
				kept = append(kept, b)
			}
		}
		live = kept
	}
	return count, nil
}

// block is a block of threads (a CTA).
type block struct {
	run     *run
	id      [3]int
	threads []*thread
	shared  []byte
	last    *Buffer // of the last access
	arrived map[uint64]int
}

// start makes the block with an index.
func (r *run) start(index int) *block {
	l := &r.launch
	b := &block{run: r, arrived: map[uint64]int{}}
	b.id = [3]int{index % l.Grid[0], index / l.Grid[0] % l.Grid[1], index / l.Grid[0] / l.Grid[1]}
	b.shared = make([]byte, align(r.program.shared, 16)+l.Shared)
	n := l.Block[0] * l.Block[1] * l.Block[2]
	for i := range n {
		t := &thread{block: b, warp: i / 32, lane: i % 32}
		t.tid = [3]uint32{uint32(i % l.Block[0]), uint32(i / l.Block[0] % l.Block[1]), uint32(i / l.Block[0] / l.Block[1])}
		t.enter(r.entry)
		for k, a := range l.Args {
			copy(t.frame.params[r.entry.params[k].at:], a)
		}
		t.frame.pc = -1
		b.threads = append(b.threads, t)
	}
	return b
}

// enter starts a call of a function.
func (t *thread) enter(f *function) {
	up := t.frame
	if f.broken != nil {
		panic(f.broken)
	}
	fr := &frame{f: f, regs: make([]uint64, f.registers), params: make([]byte, f.paramSize), pc: t.pc, up: up}
	if up != nil {
		fr.local = align(up.local+up.f.localSize, 16)
	}
	t.frame, t.r, t.pc = fr, fr.regs, 0
}

// copied says from where in the callee's memory a result goes to which place in the caller's.
type copied struct {
	from slot
	to   slot
	reg  int32 // or to which register; -1 for none
	of   int32 // the callee's register; -1 for none
}

func (t *thread) ret() {
	fr := t.frame
	if fr.up == nil {
		t.state = exited
		return
	}
	up := fr.up
	for _, c := range fr.back {
		if c.reg >= 0 {
			up.regs[c.reg] = fr.regs[c.of]
		} else {
			n := min(c.from.size, c.to.size)
			copy(up.params[c.to.at:c.to.at+n], fr.params[c.from.at:c.from.at+n])
		}
	}
	t.frame, t.r, t.pc = up, up.regs, fr.pc
}

func (t *thread) exit() { t.state = exited }

// go1 runs a thread until it waits, exits or has had its slice.
func (t *thread) go1() {
	t.yielded = false
	r := t.block.run
	var in *inst
	for n := 0; n < slice; n++ {
		in = &t.frame.f.code[t.pc]
		t.pc++
		if in.guard >= 0 && (t.r[in.guard]&1 == 1) == in.negated {
			r.steps++
			continue
		}
		r.steps++
		r.count.Vector += int64(in.flops)
		if in.wait != nil {
			r.count.Tensor += int64(in.tensor)
			t.state = waits
			return
		}
		in.run(t)
		if t.state != runs {
			return
		}
	}
	t.yielded = true
	if r.steps > r.limit {
		t.faultIn(in, "ran when the limit of %d instructions was reached", r.limit)
	}
}

// run1 runs a block until it ends, which it reports, or only polls memory.
func (b *block) run1() (ended bool) {
	for turn := 0; turn < patience; turn++ {
		ran, left, polled := false, 0, false
		for _, t := range b.threads {
			if t.state == runs {
				t.go1()
				ran = true
				polled = polled || t.yielded
			}
			if t.state != exited {
				left++
			}
		}
		if left == 0 {
			return true
		}
		met := b.meet()
		if met || !polled {
			turn = -1
		}
		if !met && !ran {
			b.stuck()
		}
	}
	return false
}

// stuck reports a deadlock.
func (b *block) stuck() {
	for _, t := range b.threads {
		if t.state == waits {
			t.fault("waits for threads that do not come")
		}
	}
}
