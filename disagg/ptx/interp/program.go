package interp

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/disagg/ptx"
)

// Program is a module that is ready to run on a memory.
type Program struct {
	memory    *Memory
	functions map[string]*function
	pointers  []*function       // of which a pointer was taken, by its value less functionBase
	symbols   map[string]symbol // of the module
	shared    int               // bytes of shared variables
}

// functionBase is where the addresses of functions start; no buffer is there.
const functionBase = 1 << 20

type symbol struct {
	space  space
	at     uint64
	extern bool // .extern .shared: after all other shared variables
}

type function struct {
	node      *ptx.Node
	code      []inst
	registers int
	params    []slot // of the parameters, then of what it returns
	results   []slot
	paramSize int // with what it passes to others
	localSize int
	broken    *Fault // why it could not be compiled
}

// slot is a place in a frame's parameter memory.
type slot struct{ at, size int }

// inst is an instruction, compiled. Either run carries it out, or the thread waits for others.
type inst struct {
	run     func(t *thread)
	wait    waiting
	guard   int32 // register, -1 for none
	negated bool
	source  *ptx.Instruction
	line    int
	flops   int32
	tensor  int32 // floating-point operations of mma, a lane's part of them
}

// Load compiles a module, and adds its variables in global and constant memory to the memory. It
// fails if a variable is wrong; what is wrong with a function is a fault for those that run it.
func Load(m *ptx.Module, memory *Memory) (p *Program, err error) {
	p = &Program{memory: memory, functions: map[string]*function{}, symbols: map[string]symbol{}}
	at := max(memory.variables, 1<<24)
	defer func() { memory.variables = at }()
	for i := range m.Nodes {
		n := &m.Nodes[i]
		switch {
		case n.Kind == ptx.Define:
			f := p.functions[n.Func.Name]
			if f == nil {
				f = &function{}
				p.functions[n.Func.Name] = f
			}
			if f.node == nil || n.Block != nil {
				f.node = n
			}
		case n.Kind == ptx.Declare:
			if at, err = p.variables(n.Decl, at); err != nil {
				return nil, err
			}
		}
	}
	for i := range m.Nodes {
		if n := &m.Nodes[i]; n.Kind == ptx.Define && n.Block != nil {
			c := &compiler{p: p, m: m, f: p.functions[n.Func.Name]}
			c.function()
		}
	}
	for s, v := range p.symbols {
		if v.extern {
			v.at = uint64(align(p.shared, 16))
			p.symbols[s] = v
		}
	}
	return p, nil
}

// variables places the variables of a module.
func (p *Program) variables(d *ptx.Declaration, at uint64) (uint64, error) {
	for i := range d.Vars {
		v := &d.Vars[i]
		switch d.Space {
		case ".shared":
			p.symbols[v.Name] = p.placeShared(d, v)
		case ".global", ".const":
			if ptx.TypeBytes(d.Type) == 0 {
				continue // textures and samplers
			}
			n := d.Bytes(v)
			if n < 0 || n > 1<<30 {
				return at, fmt.Errorf("variable %s: expected at most 1 GiB; found %d bytes", v.Name, n)
			}
			b := &Buffer{Name: v.Name, Address: at, Data: make([]byte, n)}
			if err := initialize(b.Data, d, v); err != nil {
				return at, err
			}
			if n > 0 {
				if err := p.memory.Add(b); err != nil {
					return at, err
				}
			}
			p.symbols[v.Name] = symbol{space: global, at: at}
			at += uint64(align(int(n), 512)) + 512
		}
	}
	return at, nil
}

func (p *Program) placeShared(d *ptx.Declaration, v *ptx.Variable) symbol {
	if d.Linkage == ".extern" {
		return symbol{space: shared, extern: true}
	}
	p.shared = align(p.shared, max(d.Align, ptx.TypeBytes(d.Type), 1))
	s := symbol{space: shared, at: uint64(p.shared)}
	p.shared += int(min(max(d.Bytes(v), 0), 1<<24))
	return s
}

func align(n, to int) int { return (n + to - 1) / to * to }

// initialize writes the initial value of a variable: constants, in braces or not.
func initialize(data []byte, d *ptx.Declaration, v *ptx.Variable) error {
	size, at := ptx.TypeBytes(d.Type), 0
	for _, s := range strings.FieldsFunc(v.Init, func(r rune) bool { return strings.ContainsRune("{}, \t\r\n", r) }) {
		x, ok := constant(s, typeOf(d.Type[1:]))
		if !ok || at+size > len(data) {
			return fmt.Errorf("variable %s: expected constants for its %d bytes; found %q", v.Name, len(data), s)
		}
		put(data[at:at+size], x)
		at += size
	}
	return nil
}

// constant evaluates a constant as a value of a type.
func constant(s string, t typ) (uint64, bool) {
	minus := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	if len(s) > 2 && s[0] == '0' && (s[1]|0x20 == 'f' || s[1]|0x20 == 'd') && !strings.ContainsRune(s, '.') {
		x, err := strconv.ParseUint(s[2:], 16, 64)
		if err != nil {
			return 0, false
		}
		wide := s[1]|0x20 == 'd'
		f := math.Float64frombits(x)
		if !wide {
			f = float64(math.Float32frombits(uint32(x)))
		}
		if minus {
			f = -f
		}
		switch {
		case t.k == 'f' && t.bits == 64 || wide && t.bits == 64:
			return math.Float64bits(f), true
		case !wide && !minus:
			return x, true
		}
		return uint64(math.Float32bits(float32(f))), true
	}
	if x, ok := ptx.ParseInt(s); ok && (t.k != 'f' && t.k != 'h' || !strings.Contains(s, ".")) {
		if minus {
			x = -x
		}
		if t.k == 'f' && t.bits == 64 { // an integer where a float is expected
			return math.Float64bits(float64(int64(x))), true
		} else if t.k == 'f' && t.bits == 32 {
			return uint64(math.Float32bits(float32(int64(x)))), true
		}
		return x, true
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, false
	}
	if minus {
		f = -f
	}
	return t.encode(f), true
}
