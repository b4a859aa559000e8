package interp

import (
	"math/bits"

	"github.com/muster-sched/muster/disagg/ptx"
)

// controlFlow compiles branches, calls and ends.
func (c *compiler) controlFlow(base string, i *ptx.Instruction) func(*thread) {
	switch base {
	case "ret":
		return (*thread).ret
	case "exit":
		return (*thread).exit
	case "trap", "brkpt":
		return func(t *thread) { t.fault("stops the kernel") }
	case "bra":
		to := c.label(i.Operands[0].Text)
		return func(t *thread) { t.pc = *to }
	case "brx":
		x := c.arg(&i.Operands[0], typ{'u', 32, 1})
		var to []*int
		for k := len(c.scopes) - 1; k >= 0 && to == nil; k-- {
			for _, name := range c.scopes[k].lists[i.Operands[1].Text] {
				to = append(to, c.label(name))
			}
		}
		return func(t *thread) {
			n := t.val(x)
			if n >= uint64(len(to)) {
				t.fault("branches to label %d of %d", n, len(to))
			}
			t.pc = *to[n]
		}
	}
	return c.call(i)
}

// call compiles a call of a function, by its name or through a register.
func (c *compiler) call(i *ptx.Instruction) func(*thread) {
	var lists [][]ptx.Operand
	named := -1
	before := 0
	for k := range i.Operands {
		switch o := &i.Operands[k]; {
		case o.Kind == ptx.List:
			lists = append(lists, o.Elems)
			if named < 0 {
				before++
			}
		case named < 0:
			named = k
		}
	}
	var results, args []ptx.Operand
	if before > 0 {
		results = lists[0]
	}
	if len(lists) > before {
		args = lists[before]
	}
	name := i.Operands[named].Text
	target := c.p.functions[name]
	through := arg{slot: -1}
	if target == nil {
		through = arg{slot: c.register(name)}
	}
	if target != nil && target.node.Block == nil {
		if name == "vprintf" {
			return func(*thread) {}
		}
		return func(t *thread) { t.fault("calls %s, which has no body", name) }
	}
	type passed struct {
		from symbol
		reg  arg
	}
	var in []passed
	for k := range args {
		if s, ok := c.symbol(args[k].Text); ok && s.space == param {
			in = append(in, passed{from: s, reg: arg{slot: -1}})
		} else {
			in = append(in, passed{reg: c.arg(&args[k], typ{'b', 64, 1})})
		}
	}
	type returned struct {
		to  symbol
		reg int32
	}
	var out []returned
	for k := range results {
		if s, ok := c.symbol(results[k].Text); ok && s.space == param {
			out = append(out, returned{to: s, reg: -1})
		} else {
			out = append(out, returned{reg: c.register(results[k].Text)})
		}
	}
	return func(t *thread) {
		f := target
		if f == nil {
			n := t.val(through) - functionBase
			if n >= uint64(len(c.p.pointers)) {
				t.fault("calls %#x, which is no function", t.val(through))
			}
			f = c.p.pointers[n]
		}
		if len(f.params) != len(in) || len(f.results) < len(out) {
			t.fault("passes %d arguments to a function of %d", len(in), len(f.params))
		}
		depth := 0
		for fr := t.frame; fr != nil; fr = fr.up {
			depth++
		}
		if depth > 1000 {
			t.fault("calls itself too deep")
		}
		caller := t.frame
		values := make([]uint64, len(in))
		for k := range in {
			values[k] = t.val(in[k].reg)
		}
		t.enter(f)
		for k, s := range f.params {
			if in[k].reg.slot < 0 && in[k].from.space == param {
				copy(t.frame.params[s.at:s.at+s.size], caller.params[in[k].from.at:])
			} else {
				t.frame.regs[f.registerOf(k)] = values[k]
			}
		}
		for k := range out {
			b := copied{from: f.results[k], reg: out[k].reg}
			if b.reg >= 0 {
				b.of = int32(f.registerOf(len(f.params) + k))
			} else {
				b.to = slot{int(out[k].to.at), f.results[k].size}
			}
			t.frame.back = append(t.frame.back, b)
		}
	}
}

// registerOf is the register of a parameter or result that is one: they are the first, in order.
func (f *function) registerOf(k int) int { return k }

// synchronize compiles barriers, and what the lanes of a warp do together.
func (c *compiler) synchronize(base string, i *ptx.Instruction, t typ, wait *waiting) func(*thread) {
	u32 := typ{'u', 32, 1}
	ops := i.Operands
	switch base {
	case "bar", "barrier":
		if i.Has("warp") {
			mask := c.arg(&ops[0], u32)
			*wait = &collective{mask: &mask, member: func(*[32]*thread, uint32) {}}
			return nil
		}
		return c.barrier(i, wait)
	case "activemask":
		d := c.register(ops[0].Text)
		*wait = &collective{loose: true, member: func(lanes *[32]*thread, mask uint32) {
			each(lanes, mask, func(t *thread) { t.set(d, uint64(mask)) })
		}}
		return nil
	case "elect":
		d, p := int32(-1), int32(-1)
		if ops[0].Kind == ptx.Pair {
			d, p = c.register(ops[0].Elems[0].Text), c.register(ops[0].Elems[1].Text)
		}
		mask := c.arg(&ops[1], u32)
		*wait = &collective{mask: &mask, member: func(lanes *[32]*thread, mask uint32) {
			leader := bits.TrailingZeros32(mask)
			each(lanes, mask, func(t *thread) {
				t.set(d, uint64(leader))
				t.set(p, boolean(t.lane == leader))
			})
		}}
		return nil
	}
	co := &collective{loose: !i.Has("sync")}
	last := len(ops)
	if !co.loose {
		last--
		mask := c.arg(&ops[last], u32)
		co.mask = &mask
	}
	switch base {
	case "shfl":
		co.member = c.shuffle(i)
	case "vote":
		co.member = c.vote(i)
	case "match":
		co.member = c.match(i, t)
	case "redux":
		co.member = c.reduce(i, t)
	}
	if co.member == nil {
		return nil
	}
	*wait = co
	return nil
}

// each calls f for the lanes of a mask.
func each(lanes *[32]*thread, mask uint32, f func(t *thread)) {
	for ; mask != 0; mask &= mask - 1 {
		f(lanes[bits.TrailingZeros32(mask)])
	}
}

func (c *compiler) shuffle(i *ptx.Instruction) func(*[32]*thread, uint32) {
	u32 := typ{'u', 32, 1}
	d, p := int32(-1), int32(-1)
	if o := &i.Operands[0]; o.Kind == ptx.Pair {
		d, p = c.register(o.Elems[0].Text), c.register(o.Elems[1].Text)
	} else {
		d = c.register(o.Text)
	}
	a, b, cl := c.arg(&i.Operands[1], u32), c.arg(&i.Operands[2], u32), c.arg(&i.Operands[3], u32)
	mode := ""
	for _, m := range i.Mods() {
		if m == "up" || m == "down" || m == "bfly" || m == "idx" {
			mode = m
		}
	}
	return func(lanes *[32]*thread, mask uint32) {
		var values [32]uint64
		each(lanes, mask, func(t *thread) { values[t.lane] = t.val(a) & (1<<32 - 1) })
		type result struct {
			v  uint64
			ok bool
		}
		var results [32]result
		each(lanes, mask, func(t *thread) {
			by, x := int(t.val(b)&31), t.val(cl)
			clamp, segment := int(x&31), int(x>>8&31)
			lane := t.lane
			most, least := lane&segment|clamp&^segment, lane&segment
			var j int
			ok := false
			switch mode {
			case "up":
				j = lane - by
				ok = j >= most
			case "down":
				j = lane + by
				ok = j <= most
			case "bfly":
				j = lane ^ by
				ok = j <= most
			default:
				j = least | by&^segment
				ok = j <= most
			}
			if !ok {
				j = lane
			}
			v := values[lane]
			if j >= 0 && j < 32 && mask>>j&1 == 1 {
				v = values[j]
			}
			results[lane] = result{v, ok}
		})
		each(lanes, mask, func(t *thread) {
			t.set(d, results[t.lane].v)
			t.set(p, boolean(results[t.lane].ok))
		})
	}
}

func (c *compiler) vote(i *ptx.Instruction) func(*[32]*thread, uint32) {
	d, a := c.register(i.Operands[0].Text), c.arg(&i.Operands[1], typ{'b', 1, 1})
	return func(lanes *[32]*thread, mask uint32) {
		var yes uint32
		each(lanes, mask, func(t *thread) {
			if t.val(a)&1 == 1 {
				yes |= 1 << t.lane
			}
		})
		v := uint64(yes)
		switch {
		case i.Has("all"):
			v = boolean(yes == mask)
		case i.Has("any"):
			v = boolean(yes != 0)
		case i.Has("uni"):
			v = boolean(yes == mask || yes == 0)
		}
		each(lanes, mask, func(t *thread) { t.set(d, v) })
	}
}

func (c *compiler) match(i *ptx.Instruction, t typ) func(*[32]*thread, uint32) {
	d, p := int32(-1), int32(-1)
	if o := &i.Operands[0]; o.Kind == ptx.Pair {
		d, p = c.register(o.Elems[0].Text), c.register(o.Elems[1].Text)
	} else {
		d = c.register(o.Text)
	}
	a := c.arg(&i.Operands[1], t)
	return func(lanes *[32]*thread, mask uint32) {
		var same [32]uint32
		each(lanes, mask, func(x *thread) {
			each(lanes, mask, func(y *thread) {
				if (x.val(a)^y.val(a))&t.mask() == 0 {
					same[x.lane] |= 1 << y.lane
				}
			})
		})
		each(lanes, mask, func(x *thread) {
			v := same[x.lane]
			if i.Has("all") && v != mask {
				v = 0
			}
			x.set(d, uint64(v))
			x.set(p, boolean(v == mask))
		})
	}
}

func (c *compiler) reduce(i *ptx.Instruction, t typ) func(*[32]*thread, uint32) {
	d, a := c.register(i.Operands[0].Text), c.arg(&i.Operands[1], t)
	op := ""
	for _, m := range i.Mods() {
		switch m {
		case "add", "min", "max", "and", "or", "xor":
			op = m
		}
	}
	f := integer2(op, &ptx.Instruction{}, t)
	if f == nil || t.float() {
		return nil
	}
	return func(lanes *[32]*thread, mask uint32) {
		first, v := true, uint64(0)
		each(lanes, mask, func(x *thread) {
			if first {
				first, v = false, x.val(a)&t.mask()
			} else {
				v = f(v, x.val(a)) & t.mask()
			}
		})
		each(lanes, mask, func(x *thread) { x.set(d, v) })
	}
}

// barrier compiles barriers of the block.
func (c *compiler) barrier(i *ptx.Instruction, wait *waiting) func(*thread) {
	u32 := typ{'u', 32, 1}
	ops := i.Operands
	if i.Has("cluster") {
		if i.Has("arrive") {
			return func(*thread) {}
		}
		*wait = &barrier{all: true, cluster: true, id: arg{slot: -1}}
		return nil
	}
	switch {
	case i.Has("arrive"):
		id := c.arg(&ops[0], u32)
		return func(t *thread) { t.block.arrived[t.val(id)]++ }
	case i.Has("red"):
		d := c.register(ops[0].Text)
		b := &barrier{id: c.arg(&ops[1], u32), all: len(ops) == 3}
		if !b.all {
			b.count = c.arg(&ops[2], u32)
		}
		p := c.arg(&ops[len(ops)-1], typ{'b', 1, 1})
		b.done = func(t *thread, group []*thread) {
			n := 0
			for _, g := range group {
				n += int(g.val(p) & 1)
			}
			switch {
			case i.Has("popc"):
				t.result(d, uint64(n))
			case i.Has("and"):
				t.result(d, boolean(n == len(group)))
			default:
				t.result(d, boolean(n > 0))
			}
		}
		*wait = b
		return nil
	}
	b := &barrier{id: c.arg(&ops[0], u32), all: len(ops) < 2}
	if !b.all {
		b.count = c.arg(&ops[1], u32)
	}
	*wait = b
	return nil
}

// result sets a register when all threads of a barrier have read theirs: it may be their operand.
func (t *thread) result(d int32, v uint64) { t.later = append(t.later, written{d, v}) }

type written struct {
	d int32
	v uint64
}
