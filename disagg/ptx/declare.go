package ptx

import (
	"strconv"
	"strings"
)

// directive parses a statement that starts with a dot.
func (p *parser) directive(n *Node) {
	start := p.at
	p.at++
	name := p.word()
	n.Kind, n.Name = Directive, p.s[start:p.at]
	switch name {
	case "version", "address_size":
		p.space()
		p.number()
	case "target":
		for {
			p.space()
			p.word()
			if !p.is(',') {
				break
			}
		}
	case "file":
		p.space()
		p.number()
		p.space()
		if p.peek() == '"' {
			p.quoted()
		}
		for range 2 { // the time and the size of the file
			end := p.at
			if !p.is(',') {
				p.at = end
				break
			}
			p.space()
			p.number()
		}
	case "loc":
		p.line() // it has no end of its own; inlined_at and its like are on the same line
		if k := strings.Index(p.s[n.Pos:p.at], "//"); k >= 0 {
			p.at = n.Pos + k
		}
	case "section":
		p.space()
		for p.peek() == '.' || wordByte[p.peek()] {
			p.at++
		}
		p.space()
		p.balanced('{', '}')
	case "visible", "extern", "weak", "common", "entry", "func",
		"global", "shared", "const", "local", "param", "reg", "sreg", "tex":
		p.at = start
		p.declaration(n)
	default:
		p.statement()
	}
}

// statement goes to the semicolon that ends a directive, or to the end of the line without one.
func (p *parser) statement() {
	from := p.at
	for p.at < len(p.s) {
		switch c := p.s[p.at]; c {
		case ';':
			p.at++
			return
		case '"':
			p.quoted()
			continue
		case '{', '}':
			p.at = from
			p.line()
			if k := strings.IndexAny(p.s[from:p.at], "{}"); k >= 0 {
				p.at = from + k
			}
			return
		}
		p.at++
	}
	p.at = from
	p.line()
}

// balanced consumes what is between a bracket and the one that closes it.
func (p *parser) balanced(open, end byte) {
	from := p.at
	if p.peek() != open {
		p.fail(p.at, "%q; found %s", open, p.found())
	}
	depth := 0
	for p.at < len(p.s) {
		switch c := p.s[p.at]; {
		case c == '"':
			p.quoted()
			continue
		case c == '/' && (strings.HasPrefix(p.s[p.at:], "//") || strings.HasPrefix(p.s[p.at:], "/*")):
			p.space()
			continue
		case c == open:
			depth++
		case c == end:
			if depth--; depth == 0 {
				p.at++
				return
			}
		}
		p.at++
	}
	p.fail(from, "%q to close %q; found the end of the text", end, open)
}

// declaration parses variables or a function.
func (p *parser) declaration(n *Node) {
	d := p.specifiers()
	if d.Space == ".entry" || d.Space == ".func" {
		p.function(n, d)
		return
	}
	for {
		d.Vars = append(d.Vars, p.variable())
		if !p.is(',') {
			break
		}
	}
	p.must(';')
	n.Kind, n.Name, n.Decl = Declare, "", d
}

// specifiers parses what precedes the names of a declaration.
func (p *parser) specifiers() *Declaration {
	d := &Declaration{Vector: 1}
	pointee := false
	for {
		p.space()
		if p.peek() != '.' {
			return d
		}
		from := p.at
		p.at++
		p.word()
		switch s := p.s[from:p.at]; s {
		case ".visible", ".extern", ".weak", ".common":
			d.Linkage = s
		case ".reg", ".sreg", ".param", ".global", ".shared", ".const", ".local", ".tex":
			if d.Space == "" { // .param .u64 .ptr .global
				d.Space = s
			}
		case ".entry", ".func":
			d.Space = s
			return d
		case ".align":
			p.space()
			a := p.at
			if align := int(p.integer()); d.Align == 0 && p.at > a && !pointee {
				d.Align = align
			}
		case ".attribute":
			p.space()
			p.balanced('(', ')')
		case ".v2", ".v4", ".v8":
			d.Vector = int(s[2] - '0')
		case ".ptr": // .ptr .global .align 16: of what the parameter points to
			pointee = true
		default:
			switch {
			case strings.HasPrefix(p.s[p.at:], "::"): // .shared::cta
				p.at += 2
				p.word()
			case d.Type == "":
				d.Type = s
			}
		}
	}
}

// integer parses a whole number; 0 where there is none.
func (p *parser) integer() int64 {
	x, _ := ParseInt(p.number())
	return int64(x)
}

func (p *parser) variable() Variable {
	p.space()
	v := Variable{Name: p.word()}
	if v.Name == "" {
		p.fail(p.at, "a name; found %s", p.found())
	}
	if p.is('<') {
		p.space()
		v.Count = int(min(max(p.integer(), 0), 1<<24))
		p.must('>')
	}
	for p.is('[') {
		p.space()
		v.Dims = append(v.Dims, p.integer())
		p.must(']')
	}
	if p.is('=') {
		p.space()
		from := p.at
		if p.peek() == '{' {
			p.balanced('{', '}')
		} else {
			for p.at < len(p.s) && p.s[p.at] != ',' && p.s[p.at] != ';' {
				p.at++
			}
		}
		v.Init = p.s[from:p.at]
	}
	return v
}

// function parses a function after .entry or .func.
func (p *parser) function(n *Node, d *Declaration) {
	f := &Function{Entry: d.Space == ".entry", Linkage: d.Linkage}
	p.space()
	for p.peek() == '.' { // .attribute(...)
		p.at++
		p.word()
		if p.space(); p.peek() == '(' {
			p.balanced('(', ')')
			p.space()
		}
	}
	if p.is('(') {
		f.Returns = p.params()
	}
	p.space()
	if f.Name = p.word(); f.Name == "" {
		p.fail(p.at, "the name of a function; found %s", p.found())
	}
	f.NameEnd = p.at
	if p.is('(') {
		f.Params, f.HasParams, f.ParamsEnd = p.params(), true, 0
		f.ParamsEnd = p.at - 1
	}
	n.Kind, n.Name, n.Func = Define, "", f
	for { // directives such as .maxntid 128, 1, 1
		p.space()
		switch c := p.peek(); {
		case c == '{':
			n.Block = p.block()
			return
		case c == ';':
			p.at++
			return
		case c == '.':
			p.at++
			if p.word() == "pragma" {
				p.space()
				if p.peek() == '"' {
					p.quoted()
				}
				p.is(';')
			}
		case c == '"':
			p.quoted()
		case c == '(':
			p.balanced('(', ')')
		case c == ',' || c == ':' || wordByte[c]:
			p.at++
		default:
			p.fail(p.at, "{ or ; after the header of function %s; found %s", f.Name, p.found())
		}
	}
}

// params parses parameters up to the closing parenthesis, which it consumes.
func (p *parser) params() []Declaration {
	var all []Declaration
	for {
		p.space()
		if p.peek() == ')' {
			p.at++
			return all
		}
		d := p.specifiers()
		if d.Space == "" {
			p.fail(p.at, "a parameter; found %s", p.found())
		}
		d.Vars = []Variable{p.variable()}
		all = append(all, *d)
		p.is(',')
	}
}

// ParseInt reads an integer constant: decimal, 0x, 0b or octal, with a U at the end or without.
func ParseInt(s string) (uint64, bool) {
	s = strings.TrimRight(s, "Uu")
	if x, err := strconv.ParseUint(s, 10, 64); err == nil && (len(s) == 1 || s[0] != '0') {
		return x, true
	}
	if len(s) > 1 && s[0] == '0' && s[1]|0x20 != 'o' && !strings.Contains(s, "_") {
		x, err := strconv.ParseUint(s, 0, 64)
		return x, err == nil
	}
	return 0, false
}

// Place is where a parameter lies in the packed parameters of a function.
type Place struct{ At, Bytes int }

// Places returns where the parameters lie when they are packed: in order, each aligned as it is declared or, without,
// as its type is.
func (f *Function) Places() (all []Place) {
	at := 0
	for i := range f.Params {
		d := &f.Params[i]
		n, align := int(d.Bytes(&d.Vars[0])), d.Align
		if align == 0 {
			align = TypeBytes(d.Type) * max(d.Vector, 1)
		}
		align = max(align, 1)
		at = (at + align - 1) / align * align
		all = append(all, Place{at, n})
		at += n
	}
	return all
}
