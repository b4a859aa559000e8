package interp

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/muster-sched/muster/disagg/ptx"
)

// compiler compiles one function.
type compiler struct {
	p      *Program
	m      *ptx.Module
	f      *function
	scopes []*scope
	now    *ptx.Node // the statement that is compiled
}

// scope has the names that a block declares.
type scope struct {
	registers map[string]registers
	symbols   map[string]symbol
	labels    map[string]*int
	lists     map[string][]string // of .branchtargets, by their label
}

// registers are a name<count>, or one name with count 0.
type registers struct {
	first, count, vector int
	predicate            bool
}

func (c *compiler) fail(format string, args ...any) {
	panic(&Fault{Kernel: c.f.node.Func.Name, Line: c.m.Line(c.now.Pos), What: fmt.Sprintf(format, args...)})
}

// function compiles the function. What is wrong with it is a fault for those that run it.
func (c *compiler) function() {
	f, header := c.f, c.f.node.Func
	defer func() {
		if fault, ok := recover().(*Fault); ok {
			f.broken = fault
		} else if fault != nil {
			panic(fault)
		}
	}()
	top := newScope()
	c.scopes = []*scope{top}
	c.now = f.node
	place := func(list []ptx.Declaration) (slots []slot) {
		for i := range list {
			d, v := &list[i], &list[i].Vars[0]
			size := int(max(d.Bytes(v), 1))
			if d.Space == ".reg" {
				size = 8
				first := f.registers
				f.registers++
				top.registers[v.Name] = registers{first: first, vector: 1}
			}
			f.paramSize = align(f.paramSize, max(d.Align, min(size, 16), 1))
			if d.Space == ".param" {
				top.symbols[v.Name] = symbol{space: param, at: uint64(f.paramSize)}
			}
			slots = append(slots, slot{f.paramSize, size})
			f.paramSize += size
		}
		return slots
	}
	f.params, f.results = place(header.Params), place(header.Returns)
	c.block(f.node.Block.Nodes)
	c.emit(inst{guard: -1, run: (*thread).ret})
}

func newScope() *scope {
	return &scope{map[string]registers{}, map[string]symbol{}, map[string]*int{}, map[string][]string{}}
}

// block compiles statements in a new scope. The parameters of the function are in the one outside.
func (c *compiler) block(nodes []ptx.Node) {
	s := newScope()
	c.scopes = append(c.scopes, s)
	for i := range nodes { // labels are used before they are defined
		if nodes[i].Kind == ptx.Label {
			s.labels[nodes[i].Name] = new(int)
			if i+1 < len(nodes) && nodes[i+1].Name == ".branchtargets" {
				text := c.m.Source[nodes[i+1].Pos:nodes[i+1].End]
				s.lists[nodes[i].Name] = strings.FieldsFunc(strings.TrimPrefix(text, ".branchtargets"), func(r rune) bool { return strings.ContainsRune(" ,;\t\r\n", r) })
			}
		}
	}
	for i := range nodes {
		n := &nodes[i]
		c.now = n
		switch n.Kind {
		case ptx.Label:
			*s.labels[n.Name] = len(c.f.code)
		case ptx.Declare:
			c.declare(s, n.Decl)
		case ptx.Scope:
			c.block(n.Block.Nodes)
		case ptx.Instruct:
			c.instruction(n.Instr)
		}
	}
	c.scopes = c.scopes[:len(c.scopes)-1]
}

func (c *compiler) declare(s *scope, d *ptx.Declaration) {
	f := c.f
	for i := range d.Vars {
		v := &d.Vars[i]
		size := int(min(max(d.Bytes(v), 0), 1<<24))
		switch d.Space {
		case ".reg":
			n := max(v.Count, 1) * d.Vector
			if f.registers+n > 1<<20 {
				c.fail("expected at most %d registers; found more", 1<<20)
			}
			s.registers[v.Name] = registers{f.registers, v.Count, d.Vector, d.Type == ".pred"}
			f.registers += n
		case ".shared":
			s.symbols[v.Name] = c.p.placeShared(d, v)
		case ".local":
			f.localSize = align(f.localSize, max(d.Align, ptx.TypeBytes(d.Type), 1))
			s.symbols[v.Name] = symbol{space: local, at: uint64(f.localSize)}
			f.localSize += size
		case ".param":
			f.paramSize = align(f.paramSize, max(d.Align, 16))
			s.symbols[v.Name] = symbol{space: param, at: uint64(f.paramSize)}
			f.paramSize += max(size, 8)
		}
	}
}

func (c *compiler) emit(i inst) {
	c.f.code = append(c.f.code, i)
}

// instruction compiles one instruction.
func (c *compiler) instruction(i *ptx.Instruction) {
	in := inst{guard: -1, negated: i.Negated, source: i, line: c.m.Line(c.now.Pos)}
	if i.Guard != "" {
		in.guard = c.register(i.Guard)
	}
	at := len(c.f.code)
	c.emit(in)
	defer func() { // an index beyond the operands: the opcode takes more of them
		if e := recover(); e != nil {
			if _, ok := e.(runtime.Error); ok {
				c.fail("expected the operands of %s; found %s", i.Op, i)
			}
			panic(e)
		}
	}()
	in.run = c.operation(i, at, &in.wait)
	if in.run == nil && in.wait == nil {
		in.run = func(t *thread) { t.fault("is an instruction that cannot run here") }
	}
	in.flops, in.tensor = operations(i)
	c.f.code[at] = in
}

// operations counts the floating-point operations of an instruction.
func operations(i *ptx.Instruction) (vector, tensor int32) {
	t := typeOf(i.Type())
	switch base := i.Base(); {
	case base == "mma":
		var m, n, k int32
		for _, mod := range i.Mods() {
			if got, err := fmt.Sscanf(mod, "m%dn%dk%d", &m, &n, &k); err == nil && got == 3 {
				return 0, 2 * m * n * k / 32
			}
		}
	case !t.float():
	case base == "fma" || base == "mad":
		return int32(2 * t.n), 0
	case base == "add" || base == "sub" || base == "mul" || base == "div" || base == "rcp" || base == "sqrt" || base == "ex2" || base == "lg2" || base == "max" || base == "min":
		return int32(t.n), 0
	}
	return 0, 0
}

// lookup finds a register by its name; ok is false if there is none.
func (c *compiler) lookup(name string) (slot int32, r registers, ok bool) {
	component := 0
	if k := strings.IndexByte(name, '.'); k >= 0 {
		if len(name) != k+2 {
			return 0, r, false
		}
		component = strings.IndexByte("xyzw", name[k+1])
		name = name[:k]
		if component < 0 {
			return 0, r, false
		}
	}
	end := len(name)
	for end > 0 && name[end-1] >= '0' && name[end-1] <= '9' {
		end--
	}
	for i := len(c.scopes) - 1; i >= 0; i-- {
		s := c.scopes[i]
		if r, ok := s.registers[name]; ok && r.count == 0 {
			return int32(r.first + component), r, component < r.vector
		}
		if end == len(name) || len(name)-end > 7 {
			continue
		}
		for k := end; k < len(name); k++ { // %r1<4> declares %r10 to %r13
			if r, ok := s.registers[name[:k]]; ok && r.count > 0 && (name[k] != '0' || k == len(name)-1) {
				n := 0
				for _, d := range name[k:] {
					n = n*10 + int(d-'0')
				}
				if n < r.count {
					return int32(r.first + n*r.vector + component), r, component < r.vector
				}
			}
		}
	}
	return 0, r, false
}

func (c *compiler) register(name string) int32 {
	if name == "_" {
		return -1
	}
	slot, _, ok := c.lookup(name)
	if !ok {
		c.fail("expected a register; found %s", name)
	}
	return slot
}

func (c *compiler) symbol(name string) (symbol, bool) {
	for i := len(c.scopes) - 1; i >= 0; i-- {
		if s, ok := c.scopes[i].symbols[name]; ok {
			return s, true
		}
	}
	s, ok := c.p.symbols[name]
	return s, ok
}

// label returns where a label is, once all is compiled.
func (c *compiler) label(name string) *int {
	for i := len(c.scopes) - 1; i >= 0; i-- {
		if l, ok := c.scopes[i].labels[name]; ok {
			return l
		}
	}
	c.fail("expected a label; found %s", name)
	return nil
}

// arg is an operand that is read: a register, or a constant, or what a function computes.
type arg struct {
	slot    int32 // -1 without
	v       uint64
	special func(t *thread) uint64
}

func (t *thread) val(a arg) uint64 {
	switch {
	case a.slot >= 0:
		return t.r[a.slot]
	case a.special == nil:
		return a.v
	}
	return a.special(t)
}

// set writes a register; slot -1 is _.
func (t *thread) set(slot int32, v uint64) {
	if slot >= 0 {
		t.r[slot] = v
	}
}

// arg compiles an operand that is read as a value of a type.
func (c *compiler) arg(o *ptx.Operand, t typ) arg {
	if o.Not {
		plain := *o
		plain.Not = false
		a := c.arg(&plain, t)
		return arg{slot: -1, special: func(t *thread) uint64 { return t.val(a) ^ 1 }}
	}
	switch o.Kind {
	case ptx.Number, ptx.Raw:
		if v, ok := c.constant(o, t); ok {
			return arg{slot: -1, v: v & t.mask()}
		}
	case ptx.Name:
		a, ok := c.name(o.Text)
		if !ok {
			break
		}
		if o.Minus {
			return arg{slot: -1, special: func(t *thread) uint64 { return -t.val(a) }}
		}
		if o.Offset == "" {
			return a
		}
		if by, ok := constant(o.Offset, typ{'s', 64, 1}); ok {
			return arg{slot: -1, special: func(t *thread) uint64 { return t.val(a) + by }}
		}
	}
	c.fail("expected a value; found %s", o.String())
	return arg{}
}

// name compiles a name that is read: a register, a special register, a symbol, a function.
func (c *compiler) name(name string) (arg, bool) {
	if slot, _, ok := c.lookup(name); ok {
		return arg{slot: slot}, true
	}
	if f, ok := specials[name]; ok {
		return arg{slot: -1, special: f}, true
	}
	if s, ok := c.symbol(name); ok {
		switch {
		case s.extern:
			return arg{slot: -1, special: func(*thread) uint64 { return c.p.symbols[name].at }}, true
		case s.space == local:
			return arg{slot: -1, special: func(t *thread) uint64 { return s.at + uint64(t.frame.local) }}, true
		}
		return arg{slot: -1, v: s.at}, true
	}
	if name == "WARP_SZ" {
		return arg{slot: -1, v: 32}, true
	}
	if f := c.p.functions[name]; f != nil {
		c.p.pointers = append(c.p.pointers, f)
		return arg{slot: -1, v: functionBase + uint64(len(c.p.pointers)-1)}, true
	}
	return arg{}, false
}

// constant evaluates a constant, or two with an operator between them.
func (c *compiler) constant(o *ptx.Operand, t typ) (uint64, bool) {
	if o.Kind == ptx.Number {
		text := o.Text
		if o.Minus {
			text = "-" + text
		}
		return constant(text, t)
	}
	for _, op := range []string{"<<", ">>", "|", "&", "+", "*"} {
		a, b, ok := strings.Cut(o.Text, op)
		if !ok {
			continue
		}
		x, ok1 := constant(strings.TrimSpace(a), t)
		y, ok2 := constant(strings.TrimSpace(b), t)
		if !ok1 || !ok2 {
			return 0, false
		}
		switch op {
		case "<<":
			return x << y, true
		case ">>":
			return x >> y, true
		case "|":
			return x | y, true
		case "&":
			return x & y, true
		case "+":
			return x + y, true
		}
		return x * y, true
	}
	return 0, false
}

// specials are the special registers. The clock counts the instructions of the thread's block.
var specials = func() map[string]func(t *thread) uint64 {
	m := map[string]func(t *thread) uint64{
		"%laneid":              func(t *thread) uint64 { return uint64(t.lane) },
		"%warpid":              func(t *thread) uint64 { return uint64(t.warp) },
		"%nwarpid":             func(t *thread) uint64 { return uint64((len(t.block.threads) + 31) / 32) },
		"%smid":                func(*thread) uint64 { return 0 },
		"%nsmid":               func(*thread) uint64 { return 1 },
		"%gridid":              func(*thread) uint64 { return 0 },
		"%clock":               func(t *thread) uint64 { return uint64(uint32(t.block.run.steps)) },
		"%clock_hi":            func(t *thread) uint64 { return uint64(t.block.run.steps >> 32) },
		"%clock64":             func(t *thread) uint64 { return uint64(t.block.run.steps) },
		"%globaltimer":         func(t *thread) uint64 { return uint64(t.block.run.steps) },
		"%lanemask_eq":         func(t *thread) uint64 { return 1 << t.lane },
		"%lanemask_lt":         func(t *thread) uint64 { return 1<<t.lane - 1 },
		"%lanemask_le":         func(t *thread) uint64 { return 1<<(t.lane+1) - 1 },
		"%lanemask_gt":         func(t *thread) uint64 { return uint64(^uint32(1<<(t.lane+1) - 1)) },
		"%lanemask_ge":         func(t *thread) uint64 { return uint64(^uint32(1<<t.lane - 1)) },
		"%dynamic_smem_size":   func(t *thread) uint64 { return uint64(t.block.run.launch.Shared) },
		"%total_smem_size":     func(t *thread) uint64 { return uint64(len(t.block.shared)) },
		"%is_explicit_cluster": func(*thread) uint64 { return 0 },
		"%cluster_ctarank":     func(*thread) uint64 { return 0 },
		"%cluster_nctarank":    func(*thread) uint64 { return 1 },
	}
	for i, axis := range []string{".x", ".y", ".z"} {
		m["%tid"+axis] = func(t *thread) uint64 { return uint64(t.tid[i]) }
		m["%ntid"+axis] = func(t *thread) uint64 { return uint64(t.block.run.launch.Block[i]) }
		m["%ctaid"+axis] = func(t *thread) uint64 { return uint64(t.block.id[i]) }
		m["%nctaid"+axis] = func(t *thread) uint64 { return uint64(t.block.run.launch.Grid[i]) }
		m["%clusterid"+axis] = m["%ctaid"+axis]
		m["%nclusterid"+axis] = m["%nctaid"+axis]
		m["%cluster_ctaid"+axis] = func(*thread) uint64 { return 0 }
		m["%cluster_nctaid"+axis] = func(*thread) uint64 { return 1 }
	}
	return m
}()
