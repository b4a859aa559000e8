package interp

import (
	"math"
	"strings"

	"github.com/muster-sched/muster/disagg/ptx"
)

// place is an address operand: a register or a symbol, and an offset.
type place struct {
	base arg
	by   uint64
}

func (t *thread) where(p place) uint64 { return t.val(p.base) + p.by }

// place compiles an address operand.
func (c *compiler) place(o *ptx.Operand) place {
	if o.Kind != ptx.Address || len(o.Elems) != 1 {
		c.fail("expected an address; found %s", o.String())
	}
	e := o.Elems[0]
	if e.Kind == ptx.Number {
		v, _ := constant(e.Text, typ{'u', 64, 1})
		return place{base: arg{slot: -1}, by: v}
	}
	if e.Kind != ptx.Name {
		c.fail("expected an address; found %s", o.String())
	}
	p := place{}
	if e.Offset != "" {
		v, ok := constant(e.Offset, typ{'s', 64, 1})
		if !ok {
			c.fail("expected an offset; found %s", e.Offset)
		}
		p.by = v
		e.Offset = ""
	}
	a, ok := c.name(e.Text)
	if !ok {
		c.fail("expected an address; found %s", e.Text)
	}
	p.base = a
	return p
}

// spaceOf returns the state space that an opcode names.
func spaceOf(i *ptx.Instruction) space {
	for _, m := range i.Mods() {
		switch name, _, _ := strings.Cut(m, "::"); name {
		case "global", "const":
			return global
		case "shared":
			return shared
		case "local":
			return local
		case "param":
			return param
		}
	}
	return generic
}

// width is the vector and type of a load or store.
func width(i *ptx.Instruction) (n int, t typ) {
	n = 1
	for _, m := range i.Mods() {
		if len(m) == 2 && m[0] == 'v' && m[1] >= '2' && m[1] <= '8' {
			n = int(m[1] - '0')
		} else if x := typeOf(m); x.k != 0 {
			t = x
		} else if m == "b128" {
			t = typ{'b', 128, 1}
		}
	}
	if t.n == 2 {
		t = typ{'b', 32, 1}
	}
	return n, t
}

func (c *compiler) memory(base string, i *ptx.Instruction) func(*thread) {
	at := len(c.f.code) - 1
	f := c.f
	in := func() *inst { return &f.code[at] }
	switch base {
	case "prefetch", "prefetchu", "applypriority", "createpolicy":
		return func(*thread) {}
	case "cp":
		return c.copies(i, in)
	case "atom", "red":
		return c.atomic(base, i, in)
	case "discard":
		p, s := c.place(&i.Operands[0]), spaceOf(i)
		return func(t *thread) {
			a := t.where(p)
			clear(t.bytes(s, a, 128))
			t.seen(in(), s, a, 128, false, true)
		}
	}
	n, typ := width(i)
	if typ.k == 0 || typ.bits < 8 || typ.bits > 64 || len(i.Operands) < 2 || i.Has("async") || i.Has("bulk") {
		return nil
	}
	s, size := spaceOf(i), typ.bits/8
	if base == "st" {
		p := c.place(&i.Operands[0])
		var from []arg
		if o := &i.Operands[1]; o.Kind == ptx.Vector {
			for k := range o.Elems {
				from = append(from, c.arg(&o.Elems[k], typ))
			}
		} else if _, r, ok := c.lookup(o.Text); ok && r.vector > 1 {
			for _, slot := range c.registers(o) {
				from = append(from, arg{slot: slot})
			}
		} else {
			from = append(from, c.arg(o, typ))
		}
		if len(from) < n {
			c.fail("expected %d values; found %d", n, len(from))
		}
		return func(t *thread) {
			a := t.where(p)
			b := t.aligned(s, a, n*size)
			for k := range n {
				put(b[k*size:(k+1)*size], t.val(from[k]))
			}
			t.seen(in(), s, a, n*size, false, true)
		}
	}
	p, to := c.place(&i.Operands[1]), c.registers(&i.Operands[0])
	if len(to) < n {
		c.fail("expected %d registers; found %d", n, len(to))
	}
	signed, constant := typ.k == 's', i.Has("const")
	return func(t *thread) {
		a := t.where(p)
		b := t.aligned(s, a, n*size)
		for k := range n {
			v := get(b[k*size : (k+1)*size])
			if signed { // the register may be wider
				v = uint64(typ.signed(v))
			}
			t.set(to[k], v)
		}
		if !constant { // which is in global memory here only
			t.seen(in(), s, a, n*size, true, false)
		}
	}
}

// aligned is bytes for an access that has to be aligned to its width.
func (t *thread) aligned(s space, a uint64, n int) []byte {
	if a&uint64(n-1) != 0 && n&(n-1) == 0 {
		t.fault("accesses %d bytes at %#x, which is not aligned", n, a)
	}
	return t.bytes(s, a, n)
}

// atomic compiles atom and red.
func (c *compiler) atomic(base string, i *ptx.Instruction, in func() *inst) func(*thread) {
	n, typ := width(i)
	op := ""
	for _, m := range i.Mods() {
		switch m {
		case "add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec":
			op = m
		}
	}
	f := atomics(op, i, typ)
	if f == nil || typ.bits > 64 || n > 1 {
		return nil
	}
	var d int32 = -1
	k := 0
	if base == "atom" {
		d, k = c.register(i.Operands[0].Text), 1
	}
	if len(i.Operands) < k+2 || op == "cas" && len(i.Operands) < k+3 {
		return nil
	}
	p, x := c.place(&i.Operands[k]), c.arg(&i.Operands[k+1], typ)
	y := arg{slot: -1}
	if op == "cas" {
		y = c.arg(&i.Operands[k+2], typ)
	}
	s, size := spaceOf(i), typ.bits/8
	if i.Has("noftz") && strings.Contains(i.Op, "x2") {
		size = 4
	}
	return func(t *thread) {
		a := t.where(p)
		b := t.aligned(s, a, size)
		old := get(b)
		put(b, f(old, t.val(x), t.val(y)))
		t.set(d, old)
		t.seen(in(), s, a, size, true, true)
	}
}

// atomics returns the new value from the old one and the operands.
func atomics(op string, i *ptx.Instruction, t typ) func(old, x, y uint64) uint64 {
	pair := typeOf(i.Type())
	switch {
	case op == "add" && pair.n == 2 && pair.float():
		one := typ{pair.k, pair.bits, 1}
		return func(old, x, _ uint64) uint64 {
			lo := one.encode(one.decode(old&0xffff) + one.decode(x&0xffff))
			hi := one.encode(one.decode(old>>16&0xffff) + one.decode(x>>16&0xffff))
			return lo&0xffff | hi&0xffff<<16
		}
	case op == "add" && t.float():
		return func(old, x, _ uint64) uint64 { return t.encode(t.decode(old) + t.decode(x)) }
	case t.float() && op != "exch" && op != "cas":
		return nil
	}
	switch op {
	case "exch":
		return func(_, x, _ uint64) uint64 { return x }
	case "cas":
		return func(old, x, y uint64) uint64 {
			if (old^x)&t.mask() == 0 {
				return y
			}
			return old
		}
	case "inc":
		return func(old, x, _ uint64) uint64 {
			if old >= x&t.mask() {
				return 0
			}
			return old + 1
		}
	case "dec":
		return func(old, x, _ uint64) uint64 {
			if x &= t.mask(); old == 0 || old > x {
				return x
			}
			return old - 1
		}
	}
	f := integer2(op, &ptx.Instruction{}, t)
	if f == nil {
		return nil
	}
	return func(old, x, _ uint64) uint64 { return f(old, x) & t.mask() }
}

// copies compiles cp. The copy is made at once.
func (c *compiler) copies(i *ptx.Instruction, in func() *inst) func(*thread) {
	switch {
	case i.Has("prefetch"), i.Has("commit_group"), i.Has("wait_group"), i.Has("wait_all"):
		return func(*thread) {}
	case i.Has("mbarrier") && i.Has("arrive"):
		p, counted := c.place(&i.Operands[0]), i.Has("noinc")
		return func(t *thread) {
			if counted { // otherwise the count goes up first, and down again
				t.arrive(shared, t.where(p), 1, 0)
			}
		}
	case i.Has("tensor"):
		return nil
	}
	_, accesses := ptx.Effects(i)
	if len(accesses) != 2 || accesses[0].Opaque != "" {
		return nil
	}
	to, from := c.place(&i.Operands[0]), c.place(&i.Operands[1])
	u32 := typ{'u', 32, 1}
	n := c.arg(&i.Operands[2], u32)
	sides := [2]space{shared, shared}
	for k, a := range accesses {
		if a.Space == ptx.Global {
			sides[k] = global
		}
	}
	if !i.Has("bulk") {
		valid := n
		ignored := arg{slot: -1}
		if at := accesses[1].Size; at != 2 {
			if _, r, ok := c.lookup(i.Operands[at].Text); ok && r.predicate {
				valid, ignored = n, c.arg(&i.Operands[at], typ{'b', 1, 1})
			} else {
				valid = c.arg(&i.Operands[at], u32)
			}
		}
		return func(t *thread) {
			size, have := int(t.val(n)), int(min(t.val(valid), t.val(n)))
			if t.val(ignored)&1 == 1 {
				have = 0
			}
			b := t.aligned(sides[0], t.where(to), size)
			clear(b)
			if have > 0 {
				a := t.where(from)
				copy(b, t.bytes(sides[1], a, have))
				t.seen(in(), sides[1], a, have, true, false)
			}
		}
	}
	var add func(old, x, y uint64) uint64
	var typ typ
	if i.Has("reduce") {
		_, typ = width(i)
		for _, op := range []string{"add", "min", "max", "and", "or", "xor", "inc", "dec"} {
			if i.Has(op) {
				add = atomics(op, i, typ)
			}
		}
		if add == nil {
			return nil
		}
	}
	counts := strings.Contains(i.Op, "complete_tx")
	var bar place
	if counts {
		bar = c.place(&i.Operands[3])
	}
	return func(t *thread) {
		size := int(t.val(n))
		a, b := t.where(to), t.where(from)
		if (a|b|uint64(size))&15 != 0 || size > math.MaxInt32 {
			t.fault("copies %d bytes from %#x to %#x, which is not aligned to 16", size, b, a)
		}
		dst, src := t.bytes(sides[0], a, size), t.bytes(sides[1], b, size)
		if add == nil {
			copy(dst, src)
		} else {
			for k := 0; k < size; k += typ.bits / 8 {
				e := k + typ.bits/8
				put(dst[k:e], add(get(dst[k:e]), get(src[k:e]), 0))
			}
		}
		t.seen(in(), sides[0], a, size, add != nil, true)
		t.seen(in(), sides[1], b, size, true, false)
		if counts {
			t.arrive(shared, t.where(bar), 0, -int64(size))
		}
	}
}
