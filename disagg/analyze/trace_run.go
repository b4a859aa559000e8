package analyze

import (
	"errors"
	"fmt"

	"github.com/muster-sched/muster/disagg/ptx"
	"github.com/muster-sched/muster/disagg/ptx/interp"
)

// mostMemory is how many bytes of buffers may be live at once if kernels are to run here.
const mostMemory = 4 << 30

// analysis goes through a trace.
type analysis struct {
	kernels    map[string]Kernel
	parameters map[string][]ptx.Declaration
	functions  map[string]*ptx.Function
	programs   map[string]*interp.Program
	modules    map[string]*ptx.Module
	sources    []*ptx.Module   // all of them, in order
	changing   map[string]bool // variables of modules in global memory
	folder     string          // of the trace
	memory     *interp.Memory
	live       []*buffer // in the order in which they were allocated
	all        []*buffer
	unknown    owners // bytes whose content here is not that of the traced run
}

// buffer is an allocation with what was found out about it.
type buffer struct {
	Allocation
	from, to uint64
	content  *interp.Buffer // nil beyond mostMemory
	values   []byte         // of its content at first, those that the trace has
	written  bool
	read     []Range // of what it held before the trace
}

// newAnalysis loads modules. Kernels of one name in two of them are the first.
func newAnalysis(modules []*ptx.Module) (*analysis, error) {
	a := &analysis{kernels: map[string]Kernel{}, parameters: map[string][]ptx.Declaration{}, functions: map[string]*ptx.Function{}, programs: map[string]*interp.Program{}, modules: map[string]*ptx.Module{}, sources: modules, changing: map[string]bool{}, memory: &interp.Memory{}}
	for _, m := range modules {
		p, err := interp.Load(m, a.memory)
		if err != nil {
			return nil, err
		}
		for _, k := range Kernels(m) {
			if _, ok := a.kernels[k.Name]; !ok {
				a.kernels[k.Name], a.programs[k.Name], a.modules[k.Name] = k, p, m
			}
		}
		for i := range m.Nodes {
			if n := &m.Nodes[i]; n.Kind == ptx.Declare && n.Decl.Space == ".global" {
				for _, v := range n.Decl.Vars {
					a.changing[v.Name] = true
				}
			}
			if n := &m.Nodes[i]; n.Kind == ptx.Define && n.Block != nil && n.Func.Entry && a.parameters[n.Func.Name] == nil {
				a.parameters[n.Func.Name], a.functions[n.Func.Name] = n.Func.Params, n.Func
			}
		}
	}
	return a, nil
}

// allocate adds a buffer.
func (a *analysis) allocate(x Allocation) error {
	at, err := a.address(x.Address)
	if err != nil || x.Name == "" {
		return fmt.Errorf("a name and an address; found %q and %q", x.Name, x.Address)
	}
	used := uint64(0)
	for _, b := range a.live {
		used += b.to - b.from
		if b.Name == x.Name {
			return fmt.Errorf("a name that no other live buffer has; found %q", x.Name)
		}
		if at < b.to && b.from < at+uint64(x.Bytes) {
			return fmt.Errorf("addresses that no other live buffer has; found those of %s", b.Name)
		}
	}
	b := &buffer{Allocation: x, from: at, to: at + uint64(x.Bytes)}
	if used+uint64(x.Bytes) <= mostMemory {
		b.content = &interp.Buffer{Name: x.Name, Address: at, Data: make([]byte, x.Bytes)}
		if err := a.memory.Add(b.content); err != nil {
			return errors.Join(errors.New("addresses of global memory"), err)
		}
		if err := a.initialize(b); err != nil {
			return err
		}
	} else {
		clear(a.programs) // none can run
	}
	if len(x.Values) == 0 {
		a.forget([]Range{{b.from, b.to}})
	} else {
		a.learn(nil, []Range{{b.from, b.to}})
	}
	a.live, a.all = append(a.live, b), append(a.all, b)
	return nil
}

// initialize writes the values of a buffer.
func (a *analysis) initialize(b *buffer) error {
	n := ptx.TypeBytes(b.Type)
	if len(b.Values) > 0 && (n == 0 || n > 8 || n*len(b.Values) > len(b.content.Data)) {
		return fmt.Errorf("a type such as u32, and values for at most %d bytes; found %q and %d values", b.Bytes, b.Type, len(b.Values))
	}
	for _, v := range b.Values {
		e, err := a.encode(Value(fmt.Sprintf("%.17g", v)), b.Type)
		if err != nil {
			if e, err = a.encode(Value(fmt.Sprintf("%d", int64(v))), b.Type); err != nil {
				return err
			}
		}
		b.values = append(b.values, e...)
	}
	copy(b.content.Data, b.values)
	return nil
}

// free removes a live buffer.
func (a *analysis) free(name string) error {
	for i, b := range a.live {
		if b.Name == name {
			a.live = append(a.live[:i:i], a.live[i+1:]...)
			for k, m := range a.memory.Buffers {
				if m == b.content {
					a.memory.Buffers = append(a.memory.Buffers[:k:k], a.memory.Buffers[k+1:]...)
					break
				}
			}
			return nil
		}
	}
	return fmt.Errorf("the name of a live buffer; found %q", name)
}

// does finds out what a node does.
func (a *analysis) does(c *Call) (effect, error) {
	switch {
	case c.Copy != nil:
		return a.copies(c.Copy)
	case c.Fill != nil:
		r, err := a.side(c.Fill.To, c.Fill.Bytes)
		if err != nil {
			return effect{}, fmt.Errorf("fill.to: expected %w", err)
		}
		if b := a.memory.Find(r.From); b != nil {
			clear(b.Data[r.From-b.Address:][:c.Fill.Bytes])
		}
		a.learn(nil, []Range{r})
		return effect{writes: []Range{r}, moved: float64(c.Fill.Bytes)}, nil
	case c.Library != "":
		return a.library(c)
	}
	return a.launch(c)
}

func (a *analysis) side(v Value, bytes int64) (Range, error) {
	at, err := a.address(v)
	if err != nil {
		return Range{}, err
	}
	return a.within(at, bytes)
}

// copies is a copy between buffers, or from or to the host.
func (a *analysis) copies(c *Copy) (e effect, err error) {
	var from, to Range
	if c.From != "" {
		if from, err = a.side(c.From, c.Bytes); err != nil {
			return e, fmt.Errorf("copy.from: expected %w", err)
		}
		e.reads = []Range{from}
		e.moved += float64(c.Bytes)
	}
	if c.To != "" {
		if to, err = a.side(c.To, c.Bytes); err != nil {
			return e, fmt.Errorf("copy.to: expected %w", err)
		}
		e.writes = []Range{to}
		e.moved += float64(c.Bytes)
	}
	switch source, target := a.memory.Find(from.From), a.memory.Find(to.From); {
	case c.From == "" && c.To == "":
		return e, errors.New("copy: expected a buffer from which or to which it copies; found none")
	case c.To == "":
	case c.From == "":
		a.forget(e.writes)
	case source != nil && target != nil:
		a.learn(e.reads, e.writes)
		copy(target.Data[to.From-target.Address:][:c.Bytes], source.Data[from.From-source.Address:])
	}
	return e, nil
}
