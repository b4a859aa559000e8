// Package ptx reads modules in PTX, the assembly language of NVIDIA's GPUs, and says what memory
// each instruction accesses. A module is kept as its text with the positions of its statements, so
// that printing gives back the same bytes, and a change is text inserted between statements.
//
// The syntax is that of NVIDIA's "Parallel Thread Execution ISA". An instruction that this package
// does not know is an instruction all the same, classified by its modifiers and operands.
package ptx

import (
	"fmt"
	"strings"
)

// Module is a text and its statements, in order.
type Module struct {
	Source string
	Nodes  []Node
}

// Kind says which statement a Node is.
type Kind uint8

// The kinds of statements.
const (
	Directive Kind = iota // .version, .loc, .pragma and other directives that declare no name
	Label
	Instruct
	Declare
	Define // a function, with a body or without
	Scope  // { ... } in a body
)

// Node is a statement. The nodes of a list are adjacent: each starts where the one before it ends.
type Node struct {
	Kind Kind
	From int // of the white space and comments before the statement
	Pos  int // of the first token
	End  int // after the last token

	Name  string       // of a label or directive, the latter with its dot
	Instr *Instruction // of Instruct
	Decl  *Declaration // of Declare
	Func  *Function    // of Define
	Block *Block       // of Scope, and of Define with a body
}

// Block is statements in braces.
type Block struct {
	Open, Close int // positions of the braces
	Nodes       []Node
}

// Declaration is variables or registers of one type.
type Declaration struct {
	Linkage string // such as .visible; "" without
	Space   string // such as .reg, .param, .global
	Align   int    // bytes, 0 without
	Vector  int    // 1, 2 or 4
	Type    string // such as .b32; "" for none
	Vars    []Variable
}

// Variable is a declared name. Count is n of name<n>, which declares name0 to name(n-1), and 0 without.
type Variable struct {
	Name  string
	Count int
	Dims  []int64 // of an array; 0 is without a size
	Init  string  // the text after =
}

// Bytes returns the bytes of a variable, 0 for an array without a size.
func (d *Declaration) Bytes(v *Variable) int64 {
	n := int64(TypeBytes(d.Type)) * int64(max(d.Vector, 1))
	for _, x := range v.Dims {
		n *= x
	}
	return n
}

// Function is an entry (a kernel) or a device function.
type Function struct {
	Entry         bool
	Linkage, Name string
	Returns       []Declaration // each with one variable
	Params        []Declaration
	HasParams     bool // there are parentheses for parameters, which may be empty
	NameEnd       int  // after the name
	ParamsEnd     int  // at the closing parenthesis of the parameters, if HasParams
}

// Instruction is an opcode with its operands.
type Instruction struct {
	Guard    string // register of @p; "" without
	Negated  bool   // @!p
	Op       string // with its modifiers, such as ld.global.v4.f32
	Operands []Operand
}

// OperandKind says how an operand is written.
type OperandKind uint8

// The kinds of operands.
const (
	Name    OperandKind = iota // a register, a special register, a symbol, or _; with Offset for sym+4
	Number                     // a constant
	Address                    // [ ... ]
	Vector                     // { ... }
	List                       // ( ... ), of call
	Pair                       // p|q
	Raw                        // anything else
)

// Operand is an operand, with its text as written but for spaces around it.
type Operand struct {
	Kind   OperandKind
	Not    bool   // !p
	Minus  bool   // -x
	Text   string // of a Name or Number without what is in the other fields; of Raw all
	Offset string // of a Name: a constant that is added, such as -8
	Elems  []Operand
}

// Base returns the opcode without modifiers.
func (i *Instruction) Base() string {
	base, _, _ := strings.Cut(i.Op, ".")
	return base
}

// Mods returns the modifiers, such as global, v4, f32.
func (i *Instruction) Mods() []string {
	_, mods, ok := strings.Cut(i.Op, ".")
	if !ok {
		return nil
	}
	return strings.Split(mods, ".")
}

// Has reports whether the opcode has a modifier.
func (i *Instruction) Has(mod string) bool {
	_, rest, ok := strings.Cut(i.Op, ".")
	for ok {
		var m string
		if m, rest, ok = strings.Cut(rest, "."); m == mod {
			return true
		}
	}
	return false
}

// Type returns the last modifier, the type of most instructions.
func (i *Instruction) Type() string {
	return i.Op[strings.LastIndexByte(i.Op, '.')+1:]
}

// TypeBytes returns the bytes of a value of a type such as f32 or .b8, 0 if there is no such type.
func TypeBytes(t string) int {
	switch strings.TrimPrefix(t, ".") {
	case "b8", "u8", "s8", "e4m3", "e5m2":
		return 1
	case "b16", "u16", "s16", "f16", "bf16", "e4m3x2", "e5m2x2":
		return 2
	case "b32", "u32", "s32", "f32", "f16x2", "bf16x2", "tf32", "u16x2", "s16x2":
		return 4
	case "b64", "u64", "s64", "f64", "texref", "samplerref", "surfref":
		return 8
	case "b128":
		return 16
	}
	return 0
}

// String returns the instruction in a usual form, without comments.
func (i *Instruction) String() string {
	var b strings.Builder
	if i.Guard != "" {
		b.WriteByte('@')
		if i.Negated {
			b.WriteByte('!')
		}
		b.WriteString(i.Guard + " ")
	}
	b.WriteString(i.Op)
	for n := range i.Operands {
		switch {
		case n == 0:
			b.WriteByte(' ')
		default:
			b.WriteString(", ")
		}
		b.WriteString(i.Operands[n].String())
	}
	b.WriteByte(';')
	return b.String()
}

// String returns the operand in a usual form.
func (o *Operand) String() string {
	sign := ""
	switch {
	case o.Not:
		sign = "!"
	case o.Minus:
		sign = "-"
	}
	switch o.Kind {
	case Address:
		return "[" + join(o.Elems, ", ") + "]"
	case Vector:
		return sign + "{" + join(o.Elems, ", ") + "}"
	case List:
		return "(" + join(o.Elems, ", ") + ")"
	case Pair:
		return join(o.Elems, "|")
	}
	if o.Offset != "" {
		return sign + o.Text + "+" + o.Offset
	}
	return sign + o.Text
}

func join(all []Operand, by string) string {
	var b strings.Builder
	for i := range all {
		if i > 0 {
			b.WriteString(by)
		}
		b.WriteString(all[i].String())
	}
	return b.String()
}

// Error is what is wrong with a text.
type Error struct {
	Line int
	Want string // what was expected, and what was found
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: expected %s", e.Line, e.Want) }

// String prints the module by its statements: the same bytes that were parsed.
func (m *Module) String() string { return m.Insert(nil) }

// Insertion is text to insert before a byte of the source.
type Insertion struct {
	At   int
	Text string
}

// Insert prints the module with insertions, which are in order of their positions. An insertion
// lies between statements, at the end of a block, or within a function's header or an instruction.
func (m *Module) Insert(all []Insertion) string {
	p := printer{source: m.Source, left: all}
	p.b.Grow(len(m.Source) + len(m.Source)/8)
	p.nodes(m.Nodes)
	return p.b.String()
}

type printer struct {
	b      strings.Builder
	source string
	left   []Insertion
}

func (p *printer) nodes(all []Node) {
	for i := range all {
		n := &all[i]
		p.span(n.From, n.Pos)
		if n.Block == nil {
			p.span(n.Pos, n.End)
			continue
		}
		p.span(n.Pos, n.Block.Open+1)
		p.nodes(n.Block.Nodes)
		last := n.Block.Open + 1
		if k := len(n.Block.Nodes); k > 0 {
			last = n.Block.Nodes[k-1].End
		}
		p.span(last, n.End)
	}
}

func (p *printer) span(from, to int) {
	for len(p.left) > 0 && p.left[0].At >= from && p.left[0].At < to {
		p.b.WriteString(p.source[from:p.left[0].At])
		p.b.WriteString(p.left[0].Text)
		from, p.left = p.left[0].At, p.left[1:]
	}
	p.b.WriteString(p.source[from:to])
}

// Line returns the number of the line of a position, from 1.
func (m *Module) Line(pos int) int { return 1 + strings.Count(m.Source[:pos], "\n") }

// Walk calls f for each node of a list and of the blocks in it, in order.
func Walk(nodes []Node, f func(*Node)) {
	for i := range nodes {
		f(&nodes[i])
		if nodes[i].Block != nil {
			Walk(nodes[i].Block.Nodes, f)
		}
	}
}
