package interp

import (
	"math"
	"math/bits"
	"strings"

	"github.com/muster-sched/muster/disagg/ptx"
)

// operation compiles what an instruction does: it returns the function, or sets wait.
func (c *compiler) operation(i *ptx.Instruction, at int, wait *waiting) func(t *thread) {
	base, t := i.Base(), typeOf(i.Type())
	switch base {
	case "bra", "brx", "call", "ret", "exit", "trap", "brkpt":
		return c.controlFlow(base, i)
	case "mov":
		return c.move(i, t)
	case "cvt":
		return c.convert(i)
	case "cvta", "isspacep", "mapa", "getctarank":
		return c.address(base, i)
	case "setp", "set":
		return c.compare(base, i, at)
	case "ld", "ldu", "st", "atom", "red", "cp", "discard", "prefetch", "prefetchu", "applypriority", "createpolicy":
		return c.memory(base, i)
	case "bar", "barrier", "shfl", "vote", "match", "redux", "activemask", "elect":
		if run := c.synchronize(base, i, t, wait); run != nil || *wait != nil {
			return run
		}
		return nil
	case "mbarrier":
		return c.mbarrier(i)
	case "membar", "fence", "nanosleep", "griddepcontrol", "setmaxnreg", "pmevent", "nop":
		return func(*thread) {}
	case "ldmatrix", "stmatrix", "mma":
		*wait = c.matrix(base, i)
		return nil
	case "selp", "slct", "testp", "copysign":
		return c.choose(base, i, t)
	case "addc", "subc", "madc":
		return c.carry(base, i, t)
	}
	if strings.HasSuffix(i.Op, ".pred") {
		t = typ{'p', 1, 1}
	}
	if (base == "add" || base == "sub" || base == "mad") && i.Has("cc") {
		return c.carry(base, i, t)
	}
	if t.float() {
		return c.floats(base, i, t)
	}
	return c.integers(base, i, t)
}

// operands compiles the operands after the first as values of a type.
func (c *compiler) operands(i *ptx.Instruction, t typ) (d int32, args []arg) {
	if len(i.Operands) == 0 || i.Operands[0].Kind != ptx.Name {
		c.fail("expected a register to write; found %s", i.String())
	}
	for k := 1; k < len(i.Operands); k++ {
		args = append(args, c.arg(&i.Operands[k], t))
	}
	return c.register(i.Operands[0].Text), args
}

func (c *compiler) integers(base string, i *ptx.Instruction, t typ) func(*thread) {
	if t.k == 0 || t.n > 1 {
		return nil
	}
	d, x := c.operands(i, t)
	mask := t.mask()
	if i.Has("wide") {
		mask = typ{t.k, 2 * t.bits, 1}.mask()
	}
	if base == "popc" || base == "clz" || base == "bfind" {
		mask = 1<<32 - 1
	}
	switch len(x) {
	case 1:
		if f := integer1(base, i, t); f != nil {
			return func(th *thread) { th.set(d, f(th.val(x[0]))&mask) }
		}
	case 2:
		if base == "add" && t.bits == 64 { // the most frequent ones without a call
			return func(th *thread) { th.set(d, th.val(x[0])+th.val(x[1])) }
		}
		if f := integer2(base, i, t); f != nil {
			return func(th *thread) { th.set(d, f(th.val(x[0]), th.val(x[1]))&mask) }
		}
	}
	if f := c.integer3(base, i, t); f != nil && len(x) >= 3 {
		if base == "mad" && !i.Has("hi") && !i.Has("sat") {
			wide := i.Has("wide")
			return func(th *thread) {
				if wide {
					th.set(d, (uint64(t.signed(th.val(x[0]))*t.signed(th.val(x[1])))+th.val(x[2]))&mask)
				} else {
					th.set(d, (th.val(x[0])*th.val(x[1])+th.val(x[2]))&mask)
				}
			}
		}
		return func(th *thread) {
			var v [4]uint64
			for k := range min(len(x), 4) {
				v[k] = th.val(x[k])
			}
			th.set(d, f(v[:])&mask)
		}
	}
	return nil
}

// carry compiles additions and subtractions that read or write the carry, which is a register
// after those of the function.
func (c *compiler) carry(base string, i *ptx.Instruction, t typ) func(*thread) {
	d, x := c.operands(i, t)
	writes, reads := i.Has("cc"), strings.HasSuffix(base, "c")
	carry := c.carryRegister()
	op := strings.TrimSuffix(base, "c")
	var product func(a, b uint64) uint64
	if op == "mad" {
		product = integer2("mul", i, t)
	}
	return func(th *thread) {
		a, b := th.val(x[0]), th.val(x[1])
		if product != nil {
			a, b = product(a, b), th.val(x[2])
		}
		a, b = a&t.mask(), b&t.mask()
		in := uint64(0)
		if reads {
			in = th.r[carry]
		}
		var v, out uint64
		if op == "sub" {
			v, out = bits.Sub64(a, b, in)
		} else if v, out = bits.Add64(a, b, in); t.bits < 64 {
			out = v >> t.bits & 1
		}
		if op == "sub" && t.bits < 64 {
			out = v >> 63
		}
		if writes {
			th.r[carry] = out
		}
		th.set(d, v&t.mask())
	}
}

// carryRegister is the function's condition code.
func (c *compiler) carryRegister() int {
	top := c.scopes[0]
	r, ok := top.registers["%cc"]
	if !ok {
		r = registers{first: c.f.registers, vector: 1}
		top.registers["%cc"] = r
		c.f.registers++
	}
	return r.first
}

// move compiles mov: of one value, or packing and unpacking a vector.
func (c *compiler) move(i *ptx.Instruction, t typ) func(*thread) {
	if len(i.Operands) != 2 || t.k == 0 {
		return nil
	}
	to, from := &i.Operands[0], &i.Operands[1]
	if t.k == 'p' {
		t = typ{'b', 1, 1}
	}
	switch {
	case to.Kind == ptx.Vector && from.Kind == ptx.Name:
		n := len(to.Elems)
		size := t.bits / n
		a := c.arg(from, t)
		slots := c.registers(to)
		part := typ{'b', size, 1}.mask()
		return func(th *thread) {
			v := th.val(a)
			for k, s := range slots {
				th.set(s, v>>(k*size)&part)
			}
		}
	case from.Kind == ptx.Vector && to.Kind == ptx.Name:
		n := len(from.Elems)
		size := t.bits / n
		d := c.register(to.Text)
		part := typ{'b', size, 1}
		var args []arg
		for k := range from.Elems {
			args = append(args, c.arg(&from.Elems[k], part))
		}
		return func(th *thread) {
			var v uint64
			for k, a := range args {
				v |= th.val(a) & part.mask() << (k * size)
			}
			th.set(d, v)
		}
	case to.Kind != ptx.Name:
		return nil
	}
	d, a, mask := c.register(to.Text), c.arg(from, t), t.mask()
	return func(th *thread) { th.set(d, th.val(a)&mask) }
}

// registers returns the registers of a vector, or the one of a name.
func (c *compiler) registers(o *ptx.Operand) (slots []int32) {
	if o.Kind == ptx.Name {
		if s, r, ok := c.lookup(o.Text); ok && r.vector > 1 { // a register that is a vector itself
			for k := range r.vector {
				slots = append(slots, s+int32(k))
			}
			return slots
		}
		return []int32{c.register(o.Text)}
	}
	for k := range o.Elems {
		slots = append(slots, c.register(o.Elems[k].Text))
	}
	return slots
}

// choose compiles selp, slct, testp and copysign.
func (c *compiler) choose(base string, i *ptx.Instruction, t typ) func(*thread) {
	d, x := c.operands(i, t)
	switch {
	case base == "selp" && len(x) == 3:
		p := c.arg(&i.Operands[3], typ{'b', 1, 1})
		return func(th *thread) {
			if th.val(p)&1 == 1 {
				th.set(d, th.val(x[0])&t.mask())
			} else {
				th.set(d, th.val(x[1])&t.mask())
			}
		}
	case base == "slct" && len(x) == 3:
		of := typeOf(i.Mods()[len(i.Mods())-2])
		return func(th *thread) {
			v := th.val(x[2])
			positive := int32(v) >= 0
			if t.k == 'f' {
				positive = math.Float32frombits(uint32(v)) >= 0
			}
			if positive {
				th.set(d, th.val(x[0])&of.mask())
			} else {
				th.set(d, th.val(x[1])&of.mask())
			}
		}
	case base == "testp" && len(x) == 1:
		return func(th *thread) {
			f := t.decode(th.val(x[0]))
			ok := false
			subnormal := f != 0 && math.Abs(f) < map[int]float64{32: 0x1p-126, 64: 0x1p-1022}[t.bits]
			switch {
			case i.Has("finite"):
				ok = !math.IsInf(f, 0) && !math.IsNaN(f)
			case i.Has("infinite"):
				ok = math.IsInf(f, 0)
			case i.Has("number"):
				ok = !math.IsNaN(f)
			case i.Has("notanumber"):
				ok = math.IsNaN(f)
			case i.Has("normal"):
				ok = f != 0 && !subnormal && !math.IsInf(f, 0) && !math.IsNaN(f)
			case i.Has("subnormal"):
				ok = subnormal
			}
			th.set(d, boolean(ok))
		}
	case base == "copysign" && len(x) == 2:
		sign := uint64(1) << (t.bits - 1)
		return func(th *thread) { th.set(d, th.val(x[1])&^sign&t.mask()|th.val(x[0])&sign) }
	}
	return nil
}

func boolean(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// address compiles conversions between spaces and generic addresses.
func (c *compiler) address(base string, i *ptx.Instruction) func(*thread) {
	d, x := c.operands(i, typ{'u', 64, 1})
	if base == "mapa" { // a cluster has one block
		return func(th *thread) { th.set(d, th.val(x[0])) }
	}
	if base == "getctarank" {
		return func(th *thread) { th.set(d, 0) }
	}
	var s space
	window := uint64(0)
	switch {
	case strings.Contains(i.Op, ".shared"):
		s, window = shared, sharedWindow
	case i.Has("local"):
		s, window = local, localWindow
	case i.Has("param"):
		s, window = param, paramWindow
	case i.Has("const"):
		s = generic // constants are in global memory here, and in no window of their own
	default:
		s = global
	}
	switch {
	case base == "isspacep":
		return func(th *thread) {
			got, _ := resolve(th.val(x[0]))
			th.set(d, boolean(got == s))
		}
	case i.Has("to"):
		return func(th *thread) { th.set(d, th.val(x[0])-window) }
	}
	return func(th *thread) { th.set(d, th.val(x[0])+window) }
}

// compare compiles setp and set.
func (c *compiler) compare(base string, i *ptx.Instruction, at int) func(*thread) {
	mods := i.Mods()
	if len(mods) < 2 || len(i.Operands) < 3 {
		return nil
	}
	t := typeOf(mods[len(mods)-1])
	result := typ{'p', 1, 1}
	if base == "set" {
		result = typeOf(mods[len(mods)-2])
	}
	op, combine := mods[0], ""
	for _, m := range mods[1:] {
		if m == "and" || m == "or" || m == "xor" {
			combine = m
		}
	}
	test := comparison(op, t, i.Has("ftz"))
	if test == nil || t.k == 0 {
		return nil
	}
	var d, q int32 = -1, -1
	if o := &i.Operands[0]; o.Kind == ptx.Pair {
		d, q = c.register(o.Elems[0].Text), c.register(o.Elems[1].Text)
	} else {
		d = c.register(o.Text)
	}
	a, b := c.arg(&i.Operands[1], t), c.arg(&i.Operands[2], t)
	with := arg{slot: -1}
	if combine != "" && len(i.Operands) > 3 {
		with = c.arg(&i.Operands[3], typ{'b', 1, 1})
	}
	join := func(x, p bool) uint64 {
		switch combine {
		case "and":
			x = x && p
		case "or":
			x = x || p
		case "xor":
			x = x != p
		}
		switch {
		case !x || base == "setp":
			return boolean(x)
		case result.float():
			return result.encode(1)
		}
		return result.mask()
	}
	if t.n == 2 { // two predicates, of each half
		one := typ{t.k, t.bits, 1}
		test := comparison(op, one, i.Has("ftz"))
		return func(th *thread) {
			x, y, p := th.val(a), th.val(b), th.val(with)&1 == 1
			th.set(d, join(test(x, y), p))
			th.set(q, join(test(x>>16, y>>16), p))
		}
	}
	return func(th *thread) {
		x, p := test(th.val(a), th.val(b)), th.val(with)&1 == 1
		th.set(d, join(x, p))
		if q >= 0 {
			th.set(q, join(!x, p))
		}
	}
}

// comparison returns the test of an operator, nil if there is no such.
func comparison(op string, t typ, ftz bool) func(a, b uint64) bool {
	if !t.float() {
		switch op {
		case "eq":
			return func(a, b uint64) bool { return (a^b)&t.mask() == 0 }
		case "ne":
			return func(a, b uint64) bool { return (a^b)&t.mask() != 0 }
		case "lt", "lo":
			return t.less
		case "gt", "hi":
			return func(a, b uint64) bool { return t.less(b, a) }
		case "le", "ls":
			return func(a, b uint64) bool { return !t.less(b, a) }
		case "ge", "hs":
			return func(a, b uint64) bool { return !t.less(a, b) }
		}
		return nil
	}
	unordered := len(op) == 3 && op[2] == 'u'
	if op == "num" || op == "nan" {
		return func(a, b uint64) bool {
			return (math.IsNaN(t.decode(a)) || math.IsNaN(t.decode(b))) == (op == "nan")
		}
	}
	var f func(a, b float64) bool
	switch strings.TrimSuffix(op, "u") {
	case "eq":
		f = func(a, b float64) bool { return a == b }
	case "ne":
		f = func(a, b float64) bool { return a != b }
	case "lt":
		f = func(a, b float64) bool { return a < b }
	case "le":
		f = func(a, b float64) bool { return a <= b }
	case "gt":
		f = func(a, b float64) bool { return a > b }
	case "ge":
		f = func(a, b float64) bool { return a >= b }
	default:
		return nil
	}
	return func(a, b uint64) bool {
		x, y := t.decode(a), t.decode(b)
		if math.IsNaN(x) || math.IsNaN(y) {
			return unordered
		}
		if ftz {
			x, y = flush(x), flush(y)
		}
		return f(x, y)
	}
}
