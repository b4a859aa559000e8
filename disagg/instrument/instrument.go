// Package instrument rewrites modules in PTX so that their kernels record which bytes of global
// memory they access: what Tessera (arXiv:2604.10180) does in §III-A and §IV, with the widths of
// accesses, predicates and generic addresses, and with bitmaps where one interval would join
// buffers.
//
// Each kernel gets one more parameter, the last: the address of a probe buffer.
//
//	0   u64  start of the window that the bitmaps cover, a multiple of 32
//	8   u64  bytes of the window
//	16  u64  address of the bitmap of reads
//	24  u64  address of the bitmap of writes
//	32  for each site: u64 the lowest address, u64 the end of the highest access
//
// Without bitmaps only the sites are used. A bit of a bitmap stands for a granule of the window,
// from the lowest bit of the first 32-bit word on.
package instrument

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/muster-sched/muster/disagg/ptx"
)

// Options say what to record beside the interval of each site.
type Options struct {
	Granule int // bytes of a bit of the bitmaps, a power of two; 0 is no bitmaps
}

// Site is an access that is recorded.
type Site struct {
	Function    string           `json:"function"`
	Line        int              `json:"line"`
	Op          string           `json:"op"`
	Read        bool             `json:"read"`
	Write       bool             `json:"write"`
	Instruction *ptx.Instruction `json:"-"`
}

// Limit is an instruction whose accesses are not recorded.
type Limit struct {
	Function string `json:"function"`
	Line     int    `json:"line"`
	Why      string `json:"why"`
}

// Result is the new text, and what the sites in the probe buffer are.
type Result struct {
	Text   string
	Sites  []Site
	Limits []Limit
}

// headerBytes is where the sites start.
const headerBytes = 32

// Probe returns a probe buffer before a launch. A window of 0 bytes is for no bitmaps.
func (r *Result) Probe(window, bytes, reads, writes uint64) []byte {
	b := make([]byte, headerBytes+16*len(r.Sites))
	for i, v := range []uint64{window, bytes, reads, writes} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	for i := range r.Sites {
		binary.LittleEndian.PutUint64(b[headerBytes+16*i:], math.MaxUint64)
	}
	return b
}

// Interval is the addresses that a site accessed: from From to before To. Both are 0 if it did not.
type Interval struct{ From, To uint64 }

// Intervals reads a probe buffer after launches: an interval a site.
func (r *Result) Intervals(probe []byte) ([]Interval, error) {
	if len(probe) != headerBytes+16*len(r.Sites) {
		return nil, fmt.Errorf("expected a probe buffer of %d bytes for %d sites; found %d", headerBytes+16*len(r.Sites), len(r.Sites), len(probe))
	}
	all := make([]Interval, len(r.Sites))
	for i := range all {
		b := probe[headerBytes+16*i:]
		if from, to := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]); to > 0 {
			all[i] = Interval{from, to}
		}
	}
	return all, nil
}

// writer collects insertions.
type writer struct {
	m       *ptx.Module
	o       Options
	prefix  string // of all new names, which occurs nowhere in the source
	changed map[string]*ptx.Node
	out     Result
	all     []ptx.Insertion
	calls   int
	f       *ptx.Function // that is rewritten
	types   map[string]string
}

// Rewrite instruments a module. It fails if the module is not for 64-bit addresses, or the granule
// is no power of two; the error says what was expected.
func Rewrite(m *ptx.Module, o Options) (*Result, error) {
	if o.Granule != 0 && (o.Granule < 0 || bits.OnesCount(uint(o.Granule)) != 1) {
		return nil, fmt.Errorf("a granule that is a power of two; found %d", o.Granule)
	}
	w := &writer{m: m, o: o, prefix: "muster_"}
	for n := 1; strings.Contains(m.Source, w.prefix); n++ {
		w.prefix = fmt.Sprintf("muster%d_", n)
	}
	wide := false
	for i := range m.Nodes {
		n := &m.Nodes[i]
		if n.Name == ".address_size" && strings.HasSuffix(m.Source[n.Pos:n.End], "64") {
			wide = true
		}
	}
	if !wide {
		return nil, fmt.Errorf("a module with .address_size 64")
	}
	w.choose()
	for i := range m.Nodes {
		if n := &m.Nodes[i]; n.Kind == ptx.Define {
			w.function(n)
		}
	}
	slices.SortStableFunc(w.all, func(a, b ptx.Insertion) int { return a.At - b.At })
	w.out.Text = m.Insert(w.all)
	return &w.out, nil
}

// choose finds the functions that get the parameter: all that have a body, but for those that are
// called through pointers, and those that they call.
func (w *writer) choose() {
	bodies := map[string]*ptx.Node{}
	calls := map[string][]string{}
	var queue []string
	for i := range w.m.Nodes {
		n := &w.m.Nodes[i]
		if n.Kind == ptx.Define && n.Block != nil {
			bodies[n.Func.Name] = n
		}
	}
	for i := range w.m.Nodes {
		n := &w.m.Nodes[i]
		switch {
		case n.Kind == ptx.Declare:
			for _, v := range n.Decl.Vars { // tables of functions
				for _, word := range strings.FieldsFunc(v.Init, func(r rune) bool { return strings.ContainsRune("{}, \t\r\n", r) }) {
					if bodies[word] != nil {
						queue = append(queue, word)
					}
				}
			}
		case n.Name == ".alias":
			queue = append(queue, strings.FieldsFunc(w.m.Source[n.Pos:n.End], func(r rune) bool { return strings.ContainsRune(",; \t\r\n", r) })...)
		case n.Kind == ptx.Define && n.Block != nil:
			ptx.Walk(n.Block.Nodes, func(s *ptx.Node) {
				if s.Kind != ptx.Instruct {
					return
				}
				if s.Instr.Base() == "call" {
					calls[n.Func.Name] = append(calls[n.Func.Name], s.Instr.Callee())
					return
				}
				for k := range s.Instr.Operands {
					if o := &s.Instr.Operands[k]; o.Kind == ptx.Name && bodies[o.Text] != nil {
						queue = append(queue, o.Text)
					}
				}
			})
		}
	}
	w.changed = bodies
	for ; len(queue) > 0; queue = queue[1:] {
		n := bodies[queue[0]]
		if n == nil || n.Func.Entry {
			continue
		}
		delete(w.changed, queue[0])
		w.limits(n, "in a function that is called through a pointer")
		queue = append(queue, calls[queue[0]]...)
	}
}

// limits reports all accesses of a function that is left as it is.
func (w *writer) limits(n *ptx.Node, why string) {
	ptx.Walk(n.Block.Nodes, func(s *ptx.Node) {
		if s.Kind != ptx.Instruct {
			return
		}
		if _, accesses := ptx.Effects(s.Instr); slices.ContainsFunc(accesses, func(a ptx.Access) bool { return a.Space != ptx.Inside }) {
			w.out.Limits = append(w.out.Limits, Limit{n.Func.Name, w.m.Line(s.Pos), s.Instr.Op + " " + why})
		}
	})
}

func (w *writer) insert(at int, format string, args ...any) {
	w.all = append(w.all, ptx.Insertion{At: at, Text: fmt.Sprintf(format, args...)})
}

func (w *writer) base() string { return "%" + w.prefix + "base" }

// byRegister reports whether a function has its parameters in registers, as old modules do.
func byRegister(f *ptx.Function) bool {
	all := append(slices.Clone(f.Params), f.Returns...)
	return len(all) > 0 && all[0].Space == ".reg"
}

// function adds the parameter to a function and instruments its body.
func (w *writer) function(n *ptx.Node) {
	f := n.Func
	if w.changed[f.Name] == nil {
		return
	}
	parameter := ".param .u64 " + w.prefix + "probe"
	if byRegister(f) {
		parameter = ".reg .u64 " + w.base()
	}
	switch {
	case !f.HasParams:
		w.insert(f.NameEnd, "(%s)", parameter)
	case len(f.Params) == 0:
		w.insert(f.ParamsEnd, "%s", parameter)
	default:
		w.insert(f.ParamsEnd, ", %s", parameter)
	}
	if n.Block == nil {
		return
	}
	if !byRegister(f) {
		w.insert(n.Block.Open+1, "\n\t.reg .u64 %s;\n\tld.param.u64 %s, [%sprobe];", w.base(), w.base(), w.prefix)
	}
	w.f, w.types = f, map[string]string{}
	ptx.Walk(n.Block.Nodes, func(s *ptx.Node) {
		switch {
		case s.Kind == ptx.Declare && s.Decl.Space == ".reg":
			for _, v := range s.Decl.Vars {
				w.types[v.Name] = s.Decl.Type
			}
		case s.Kind == ptx.Instruct && s.Instr.Base() == "call":
			w.call(s)
		case s.Kind == ptx.Instruct:
			w.accesses(s)
		}
	})
}

// typeOf returns the type of a register by the declarations of the function.
func (w *writer) typeOf(register string) string {
	if t, ok := w.types[register]; ok {
		return t
	}
	return w.types[strings.TrimRight(register, "0123456789")]
}

// call passes the probe buffer to a function that has the parameter.
func (w *writer) call(s *ptx.Node) {
	callee := s.Instr.Callee()
	n := w.changed[callee]
	if n == nil {
		return
	}
	argument := w.base()
	if !byRegister(n.Func) {
		argument = fmt.Sprintf("%sarg%d", w.prefix, w.calls)
		w.calls++
		w.insert(s.Pos, ".param .b64 %s; st.param.b64 [%s], %s;\n\t", argument, argument, w.base())
	}
	list := -1
	named := false
	for k := range s.Instr.Operands {
		switch s.Instr.Operands[k].Kind {
		case ptx.Name:
			named = true
		case ptx.List:
			if named {
				list = k
			}
		}
	}
	text := w.m.Source[s.Pos:s.End]
	switch {
	case list < 0:
		w.insert(s.End-1, ", (%s)", argument)
	case len(s.Instr.Operands[list].Elems) == 0:
		w.insert(s.Pos+lastParenthesis(text), "%s", argument)
	default:
		w.insert(s.Pos+lastParenthesis(text), ", %s", argument)
	}
}

// lastParenthesis returns where the last ) outside comments is.
func lastParenthesis(s string) int {
	last := -1
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == ')':
			last = i
		case strings.HasPrefix(s[i:], "//"):
			for i < len(s) && s[i] != '\n' {
				i++
			}
		case strings.HasPrefix(s[i:], "/*"):
			i += strings.Index(s[i:], "*/") + 1
		}
	}
	return last
}
