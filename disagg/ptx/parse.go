package ptx

import (
	"fmt"
	"strconv"
	"strings"
)

// mostNested is how deep blocks and operands may be nested.
const mostNested = 200

// Parse reads a module. An error is an *Error.
func Parse(source string) (m *Module, err error) {
	p := &parser{s: source}
	defer func() {
		if e, ok := recover().(*Error); ok {
			m, err = nil, e
		} else if e != nil {
			panic(e)
		}
	}()
	nodes := p.nodes(false)
	if end := len(source); len(nodes) == 0 || nodes[len(nodes)-1].End < end { // what follows the last statement
		from := 0
		if len(nodes) > 0 {
			from = nodes[len(nodes)-1].End
		}
		if from < end {
			nodes = append(nodes, Node{Kind: Directive, From: from, Pos: end, End: end})
		}
	}
	return &Module{Source: source, Nodes: nodes}, nil
}

type parser struct {
	s      string
	at     int
	depth  int
	stack  []Operand     // of the lists that are being parsed
	spare  []Operand     // operands are allocated by the thousand
	instrs []Instruction // and so are instructions
}

func (p *parser) fail(at int, format string, args ...any) {
	panic(&Error{Line: 1 + strings.Count(p.s[:min(at, len(p.s))], "\n"), Want: fmt.Sprintf(format, args...)})
}

// found quotes what is at a position, for errors.
func (p *parser) found() string {
	if p.at >= len(p.s) {
		return "the end of the text"
	}
	line, _, _ := strings.Cut(p.s[p.at:], "\n")
	if len(line) > 40 {
		line = line[:40]
	}
	return strconv.Quote(line)
}

// space skips white space and comments. Lines of a preprocessor count as comments.
func (p *parser) space() {
	for p.at < len(p.s) {
		switch c := p.s[p.at]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v' || c == 0:
			p.at++
		case c == '/' && strings.HasPrefix(p.s[p.at:], "//"), c == '#':
			p.line()
		case c == '/' && strings.HasPrefix(p.s[p.at:], "/*"):
			n := strings.Index(p.s[p.at+2:], "*/")
			if n < 0 {
				p.fail(p.at, "*/ to end the comment; found the end of the text")
			}
			p.at += n + 4
		default:
			return
		}
	}
}

// line goes to the end of the line.
func (p *parser) line() {
	if n := strings.IndexByte(p.s[p.at:], '\n'); n >= 0 {
		p.at += n
	} else {
		p.at = len(p.s)
	}
}

func (p *parser) peek() byte {
	if p.at < len(p.s) {
		return p.s[p.at]
	}
	return 0
}

// is consumes c after white space, and reports whether it was there.
func (p *parser) is(c byte) bool {
	p.space()
	if p.at < len(p.s) && p.s[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *parser) must(c byte) {
	if !p.is(c) {
		p.fail(p.at, "%q; found %s", c, p.found())
	}
}

// wordByte has the bytes of identifiers.
var wordByte = func() (t [256]bool) {
	for c := range t {
		b := byte(c)
		t[c] = b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_' || b == '$' || b == '%'
	}
	return t
}()

func (p *parser) word() string {
	from := p.at
	for p.at < len(p.s) && wordByte[p.s[p.at]] {
		p.at++
	}
	return p.s[from:p.at]
}

// nodes parses statements up to the end of the text or, in a block, its closing brace.
func (p *parser) nodes(inBlock bool) []Node {
	if p.depth++; p.depth > mostNested {
		p.fail(p.at, "at most %d nested blocks; found more", mostNested)
	}
	defer func() { p.depth-- }()
	var all []Node
	for {
		from := p.at
		p.space()
		if p.at >= len(p.s) {
			if inBlock {
				p.fail(p.at, "} to end the block; found the end of the text")
			}
			p.at = from // what is left belongs to no statement
			return all
		}
		n := Node{From: from, Pos: p.at}
		switch c := p.s[p.at]; {
		case c == '}' && inBlock:
			return all
		case c == '{':
			n.Kind, n.Block = Scope, p.block()
		case c == '.':
			p.directive(&n)
		case c == '@' || wordByte[c]:
			p.instruction(&n)
		case c == ';': // an empty statement
			p.at++
			n.Kind, n.Name = Directive, ";"
		default:
			p.fail(p.at, "a statement; found %s", p.found())
		}
		n.End = p.at
		all = append(all, n)
	}
}

func (p *parser) block() *Block {
	b := &Block{Open: p.at}
	p.at++
	b.Nodes = p.nodes(true)
	b.Close = p.at
	p.at++
	return b
}

// instruction parses a label or an instruction.
func (p *parser) instruction(n *Node) {
	var i Instruction
	if p.s[p.at] == '@' {
		p.at++
		i.Negated = p.is('!')
		p.space()
		if i.Guard = p.word(); i.Guard == "" {
			p.fail(p.at, "a predicate after @; found %s", p.found())
		}
		p.space()
	}
	from := p.at
	name := p.word()
	if i.Guard == "" {
		end := p.at
		p.space()
		if p.peek() == ':' && !strings.HasPrefix(p.s[p.at:], "::") {
			p.at++
			n.Kind, n.Name = Label, name
			return
		}
		p.at = end
	}
	for p.at < len(p.s) {
		if c := p.s[p.at]; c == '.' || wordByte[c] {
			p.at++
		} else if strings.HasPrefix(p.s[p.at:], "::") {
			p.at += 2
		} else {
			break
		}
	}
	if i.Op = p.s[from:p.at]; i.Op == "" {
		p.fail(p.at, "an instruction; found %s", p.found())
	}
	p.space()
	if p.peek() != ';' {
		if i.Base() == "call" {
			i.Operands = p.operands(';', true)
		} else {
			i.Operands = p.operands(';', false)
		}
	}
	p.must(';')
	if len(p.instrs) == cap(p.instrs) {
		p.instrs = make([]Instruction, 0, 1024)
	}
	p.instrs = append(p.instrs, i)
	n.Kind, n.Instr = Instruct, &p.instrs[len(p.instrs)-1]
}

// operands parses operands separated by commas, up to a byte, which it leaves.
func (p *parser) operands(end byte, call bool) []Operand {
	if p.depth++; p.depth > mostNested {
		p.fail(p.at, "at most %d nested operands; found more", mostNested)
	}
	base := len(p.stack)
	for {
		p.space()
		if p.peek() == end && len(p.stack) == base {
			p.depth--
			return nil
		}
		o := p.operand(end, call)
		p.stack = append(p.stack, o)
		p.space()
		if p.at >= len(p.s) {
			p.fail(p.at, "%q; found the end of the text", end)
		}
		if p.s[p.at] == ',' {
			p.at++
			continue
		}
		break
	}
	all := p.stack[base:]
	if len(p.spare)+len(all) > cap(p.spare) {
		p.spare = make([]Operand, 0, 1024+len(all))
	}
	k := len(p.spare)
	p.spare = append(p.spare, all...)
	p.stack = p.stack[:base]
	p.depth--
	return p.spare[k:len(p.spare):len(p.spare)]
}

// operand parses one; what has none of the usual forms is Raw, up to the next comma or the end.
func (p *parser) operand(end byte, call bool) Operand {
	from := p.at
	o := p.usual(call)
	p.space()
	if c := p.peek(); p.at > from && (c == ',' || c == end) {
		return o
	}
	if p.at > from && p.at < len(p.s) && p.s[p.at] == '|' && (o.Kind == Name || o.Kind == Number) {
		p.at++
		p.space()
		q := p.usual(false)
		if p.space(); p.peek() == ',' || p.peek() == end {
			return Operand{Kind: Pair, Elems: []Operand{o, q}}
		}
	}
	p.at = from
	depth := 0
	for p.at < len(p.s) {
		c := p.s[p.at]
		switch {
		case depth == 0 && (c == ',' || c == end), c == ';':
			text := strings.TrimRight(p.s[from:p.at], " \t\r\n")
			if text == "" {
				p.fail(from, "an operand; found %s", p.found())
			}
			return Operand{Kind: Raw, Text: text}
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == ')' || c == ']' || c == '}':
			depth--
		case c == '"':
			p.quoted()
			continue
		}
		p.at++
	}
	p.fail(from, "%q after the operands; found the end of the text", end)
	return o
}

// usual parses an operand in one of the usual forms, or stops where it cannot.
func (p *parser) usual(call bool) Operand {
	var o Operand
	switch p.peek() {
	case '!':
		o.Not = true
		p.at++
		p.space()
	case '-':
		o.Minus = true
		p.at++
		p.space()
	}
	switch c := p.peek(); {
	case c == '[':
		p.at++
		o.Kind, o.Elems = Address, p.operands(']', false)
		p.at++
	case c == '{':
		p.at++
		o.Kind, o.Elems = Vector, p.operands('}', false)
		p.at++
	case c == '(' && call:
		p.at++
		o.Kind, o.Elems = List, p.operands(')', false)
		p.at++
	case c >= '0' && c <= '9' || c == '.' && p.at+1 < len(p.s) && p.s[p.at+1] >= '0' && p.s[p.at+1] <= '9':
		o.Kind, o.Text = Number, p.number()
	case wordByte[c]:
		from := p.at
		p.word()
		for p.peek() == '.' || strings.HasPrefix(p.s[p.at:], "::") { // %tid.x, a component of a vector
			p.at++
			if p.peek() == ':' {
				p.at++
			}
			p.word()
		}
		o.Kind, o.Text = Name, p.s[from:p.at]
		end := p.at
		p.space()
		if c := p.peek(); c == '+' || c == '-' {
			sign := ""
			for c := p.peek(); c == '+' || c == '-'; c = p.peek() {
				p.at++
				if c == '-' {
					sign += "-"
				}
				p.space()
			}
			if c := p.peek(); c >= '0' && c <= '9' && len(sign) < 2 {
				o.Offset = sign + p.number()
				end = p.at
			}
		}
		p.at = end
	}
	return o
}

// number consumes a constant.
func (p *parser) number() string {
	from := p.at
	exponent := false // whether e starts an exponent: not in 0x, 0f and 0d
	if p.at+1 < len(p.s) {
		c := p.s[p.at+1] | 0x20
		exponent = p.s[p.at] != '0' || c != 'x' && c != 'f' && c != 'd' && c != 'b'
	}
	for p.at < len(p.s) {
		c := p.s[p.at]
		if (c == '+' || c == '-') && exponent && p.at > from && p.s[p.at-1]|0x20 == 'e' {
			p.at++
			continue
		}
		if c != '.' && (!wordByte[c] || c == '%' || c == '$') {
			break
		}
		p.at++
	}
	return p.s[from:p.at]
}

// quoted consumes a string.
func (p *parser) quoted() {
	from := p.at
	for p.at++; p.at < len(p.s) && p.s[p.at] != '"'; p.at++ {
		if p.s[p.at] == '\\' {
			p.at++
		}
	}
	if p.at >= len(p.s) {
		p.fail(from, "\" to end the string; found the end of the text")
	}
	p.at++
}
