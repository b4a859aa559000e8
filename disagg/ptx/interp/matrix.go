package interp

import (
	"strings"

	"github.com/muster-sched/muster/disagg/ptx"
)

// matrix compiles ldmatrix, stmatrix and mma, which all lanes of a warp carry out together.
func (c *compiler) matrix(base string, i *ptx.Instruction) waiting {
	all := arg{slot: -1, v: 1<<32 - 1}
	co := &collective{mask: &all}
	switch base {
	case "ldmatrix", "stmatrix":
		co.member = c.fragments(base == "stmatrix", i)
	case "mma":
		co.member = c.multiply(i)
	}
	if co.member == nil {
		return nil
	}
	return co
}

// fragments compiles loads and stores of 8x8 matrices of 16 bits: lane 8n+r has the address of row
// r of matrix n, and gets two elements of row lane/4 of each, or of a column if they are transposed.
func (c *compiler) fragments(store bool, i *ptx.Instruction) func(*[32]*thread, uint32) {
	if !i.Has("m8n8") || !i.Has("b16") {
		return nil
	}
	at, reg := 1, 0
	if store {
		at, reg = 0, 1
	}
	p, slots := c.place(&i.Operands[at]), c.registers(&i.Operands[reg])
	trans := i.Has("trans")
	s := spaceOf(i)
	return func(lanes *[32]*thread, mask uint32) {
		for n, slot := range slots {
			var rows [8][]byte
			for r := range rows {
				if t := lanes[8*n+r]; t != nil {
					rows[r] = t.aligned(s, t.where(p), 16)
				} else {
					rows[r] = make([]byte, 16)
				}
			}
			each(lanes, mask, func(t *thread) {
				for k := range 2 {
					r, col := t.lane/4, t.lane%4*2+k
					if trans {
						r, col = col, r
					}
					b := rows[r][2*col : 2*col+2]
					if store {
						put(b, t.r[slot]>>(16*k))
					} else {
						t.r[slot] = t.r[slot]&^(0xffff<<(16*k)) | get(b)<<(16*k)
					}
				}
			})
		}
	}
}

// tile says which element of a matrix a lane holds in place e of its registers.
type tile func(lane, e int) (row, col int)

// multiply compiles mma.sync of shapes m16n8 and m8n8k4.f64. The layouts are those of the tables in
// the section on mma of NVIDIA's manual.
func (c *compiler) multiply(i *ptx.Instruction) func(*[32]*thread, uint32) {
	mods := i.Mods()
	if len(mods) < 6 || len(i.Operands) != 4 || i.Has("sp") {
		return nil
	}
	types := mods[len(mods)-4:]
	td, ta, tb, tc := element(types[0]), element(types[1]), element(types[2]), element(types[3])
	shape := ""
	for _, m := range mods {
		if m[0] == 'm' && m[len(m)-1] >= '0' && m[len(m)-1] <= '9' {
			shape = m
		}
	}
	rows, cols, depth := 16, 8, 0
	var a, b, cd tile
	switch {
	case shape == "m8n8k4" && td.bits == 64:
		rows, depth = 8, 4
		a = func(l, _ int) (int, int) { return l / 4, l % 4 }
		b = func(l, _ int) (int, int) { return l % 4, l / 4 }
		cd = func(l, e int) (int, int) { return l / 4, l%4*2 + e }
	case strings.HasPrefix(shape, "m16n8k"):
		for _, d := range shape[6:] {
			depth = depth*10 + int(d-'0')
		}
		per := 32 / ta.bits // elements in a register
		if depth != 4*per && depth != 8*per {
			return nil
		}
		a = func(l, e int) (int, int) {
			r := e / per
			return l/4 + 8*(r%2), l%4*per + e%per + r/2*4*per
		}
		b = func(l, e int) (int, int) { return l%4*per + e%per + e/per*4*per, l / 4 }
		cd = func(l, e int) (int, int) { return l/4 + e/2*8, l%4*2 + e%2 }
	default:
		return nil
	}
	if ta.k == 0 || tb.bits != ta.bits || td.k == 0 || tc.k == 0 {
		return nil
	}
	m := &product{rows, cols, depth, td, a, b, cd}
	sa, sb, sd := c.registers(&i.Operands[1]), c.registers(&i.Operands[2]), c.registers(&i.Operands[0])
	var sc []arg
	for k := range i.Operands[3].Elems {
		sc = append(sc, c.arg(&i.Operands[3].Elems[k], tc))
	}
	if len(sc) == 0 {
		return nil
	}
	return func(lanes *[32]*thread, mask uint32) {
		if mask != 1<<32-1 {
			lanes[first(mask)].fault("needs all 32 lanes")
		}
		av, bv, cv := make([]float64, rows*depth), make([]float64, depth*cols), make([]float64, rows*cols)
		each(lanes, mask, func(t *thread) {
			gather(t, sa, ta, a, av, depth)
			gather(t, sb, tb, b, bv, cols)
			for e := range len(sc) * m.perRegister(tc) {
				v := t.val(sc[e/m.perRegister(tc)]) >> (e % m.perRegister(tc) * tc.bits)
				r, col := cd(t.lane, e)
				cv[r*cols+col] = number(tc, v)
			}
		})
		out := m.compute(av, bv, cv)
		each(lanes, mask, func(t *thread) {
			per := m.perRegister(td)
			for k, slot := range sd {
				var v uint64
				for e := range per {
					r, col := cd(t.lane, k*per+e)
					v |= m.encode(out[r*cols+col]) & td.mask() << (e * td.bits)
				}
				t.set(slot, v)
			}
		})
	}
}

func first(mask uint32) int {
	n := 0
	for mask>>n&1 == 0 {
		n++
	}
	return n
}

// product is a product of matrices with its layouts.
type product struct {
	rows, cols, depth int
	td                typ
	a, b, cd          tile
}

func (m *product) perRegister(t typ) int { return max(32/t.bits, 1) }

func (m *product) encode(f float64) uint64 {
	if m.td.float() {
		return m.td.encode(f)
	}
	return uint64(int64(f))
}

// compute adds in float64: more exact than tensor cores, whose order of additions is not specified.
func (m *product) compute(a, b, c []float64) []float64 {
	for r := range m.rows {
		for col := range m.cols {
			s := c[r*m.cols+col]
			for k := range m.depth {
				s += a[r*m.depth+k] * b[k*m.cols+col]
			}
			c[r*m.cols+col] = s
		}
	}
	return c
}

// gather puts a lane's elements of a matrix where they belong.
func gather(t *thread, slots []int32, of typ, at tile, to []float64, width int) {
	per := max(32/of.bits, 1)
	for k, slot := range slots {
		for e := range per {
			r, col := at(t.lane, k*per+e)
			to[r*width+col] = number(of, t.r[slot]>>(e*of.bits))
		}
	}
}

// element is a type of matrices; tf32 are float32, of which tensor cores drop bits.
func element(s string) typ {
	if s == "tf32" {
		return typ{'f', 32, 2} // n tells it from f32
	}
	return typeOf(s)
}

// number is an element as a number.
func number(t typ, v uint64) float64 {
	switch {
	case t.n == 2:
		return typ{'f', 32, 1}.decode(v &^ 0x1fff)
	case t.float():
		return t.decode(v)
	}
	return float64(t.signed(v))
}
