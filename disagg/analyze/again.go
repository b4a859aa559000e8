package analyze

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-sched/muster/disagg/ptx"
)

// Replay is a trace as it runs again, on other addresses: all nodes of all iterations, in order.
type Replay struct {
	Steps   []Step
	Buffers []Content // in the order in which they were allocated; of two, one after the other, addresses may be the same
}

// Content is a buffer, with the first bytes of its content if the trace has them, and its type such as f32.
type Content struct {
	Name string
	Range
	Type   string
	Values []byte
}

// Step is a node of a trace. Of the bytes that it may write and may leave as they are, all are in Reads as well.
type Step struct {
	Name          string // of the node of the graph
	Graph         string
	Iteration     int
	Reads, Writes []Range
	Again
}

// Again is how to run a node again: it is a launch if it has a Kernel, a call of cuBLAS if it has a Routine, and otherwise a
// fill, or a copy in which an empty range is the host's memory.
type Again struct {
	Kernel      string
	Module      int // of those that were given
	Grid, Block [3]int
	Shared      int
	Routine     string // the symbol of a function of which Routine returns the arguments
	Args        []byte // packed
	Pointers    []int  // where in Args there are addresses of buffers

	Fill     bool
	From, To Range
}

func (a *Again) copies() bool { return a.Kernel == "" && a.Routine == "" && !a.Fill }

// FromHost reports whether a node copies from the host's memory.
func (a *Again) FromHost() bool { return a.copies() && a.From.To == 0 }

// ToHost reports whether a node copies to the host's memory.
func (a *Again) ToHost() bool { return a.copies() && a.To.To == 0 }

// NewReplay makes the steps of a trace; file is its name, for errors, which are *workload.Error.
func NewReplay(file string, t *Trace, modules []*ptx.Module) (*Replay, error) {
	a, steps, err := follow(file, t, modules)
	if err != nil {
		return nil, err
	}
	if _, err := a.fold(t, steps); err != nil {
		return nil, wrong(file, "nodes", err)
	}
	for i := range t.Nodes {
		if x := t.Nodes[i].Allocate; x != nil && len(x.Values) > 0 {
			return nil, wrong(file, fmt.Sprintf("nodes[%d].allocate.values", i), errors.New("values in the buffers that there are at first; found some later"))
		}
	}
	r := &Replay{}
	for _, b := range a.all {
		r.Buffers = append(r.Buffers, Content{b.Name, Range{b.from, b.to}, b.Type, b.values})
		if at := a.pointerIn(b); at >= 0 {
			return nil, wrong(file, fmt.Sprintf("buffers[%d].values[%d]", slices.Index(a.all, b), at), errors.New("no address of a buffer, as buffers get other addresses; found one"))
		}
	}
	names := map[string]string{}
	for _, s := range steps {
		if s.name != "" {
			names[fmt.Sprintf("%s/%d", s.graph, s.position)] = s.name
		}
	}
	for _, s := range steps {
		if s.again.err != nil {
			return nil, wrong(file, s.field, s.again.err)
		}
		r.Steps = append(r.Steps, Step{names[fmt.Sprintf("%s/%d", s.graph, s.position)], s.graph, s.call.Iteration, s.reads, without(s.writes, s.scratch), s.again.Again})
	}
	return r, nil
}

// again is how to run a node again, or why that is not possible.
type again struct {
	Again
	err error
}

// pointerIn returns which of a buffer's values is the address of a buffer; -1 if none is.
func (a *analysis) pointerIn(b *buffer) int {
	if ptx.TypeBytes(b.Type) != 8 || b.Type == "f64" {
		return -1
	}
	for k := 0; k+8 <= len(b.values); k += 8 {
		if a.inBuffer(binary.LittleEndian.Uint64(b.values[k:])) {
			return k / 8
		}
	}
	return -1
}

func (a *analysis) inBuffer(address uint64) bool {
	return slices.ContainsFunc(a.all, func(b *buffer) bool { return address >= b.from && address < b.to })
}

// repeat finds out how to run a node again. The live buffers are those that the node finds.
func (a *analysis) repeat(c *Call) (r again) {
	switch {
	case c.Fill != nil:
		r.Fill = true
		r.To, r.err = a.side(c.Fill.To, c.Fill.Bytes)
	case c.Copy != nil:
		for _, x := range []struct {
			v  Value
			to *Range
		}{{c.Copy.From, &r.From}, {c.Copy.To, &r.To}} {
			if x.v != "" && r.err == nil {
				*x.to, r.err = a.side(x.v, c.Copy.Bytes)
			}
		}
	case c.Kernel != "":
		r.err = a.repeatLaunch(c, &r.Again)
	default:
		r.err = a.repeatRoutine(c, &r.Again)
	}
	return r
}

func (a *analysis) repeatLaunch(c *Call, r *Again) error {
	k, ok := a.kernels[c.Kernel]
	if !ok {
		return fmt.Errorf("kernel: expected one of the modules; found %q", c.Kernel)
	}
	f := a.functions[c.Kernel]
	if len(k.Variables) > 0 && slices.ContainsFunc(k.Variables, func(name string) bool { return a.changing[name] }) {
		return fmt.Errorf("kernel: expected one without variables of its module, which requests on a GPU would share; found %s in %s", strings.Join(k.Variables, ", "), c.Kernel)
	}
	args, err := a.arguments(c, f.Params)
	if err != nil {
		return err
	}
	*r = Again{Kernel: c.Kernel, Grid: three(c.Grid), Block: three(c.Block), Shared: c.Shared, Module: slices.Index(a.sources, a.modules[c.Kernel])}
	for i, p := range f.Places() {
		r.Args = append(r.Args, make([]byte, p.At-len(r.Args))...)
		r.Args = append(r.Args, args[i].bytes...)
		for _, at := range args[i].pointers {
			r.Pointers = append(r.Pointers, p.At+at)
		}
		if b := args[i].bytes; len(b) == 8 && len(args[i].pointers) == 0 && a.inBuffer(binary.LittleEndian.Uint64(b)) {
			return fmt.Errorf("args[%d]: expected a buffer with an offset, such as x+16, as buffers get other addresses; found the address %s", i, c.Args[i])
		}
	}
	return nil
}
