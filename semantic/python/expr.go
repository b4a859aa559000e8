package python

import (
	"strings"
)

// Kind is what an expression is.
type Kind uint8

// Kinds of expressions.
const (
	Unknown Kind = iota // anything else
	String              // Text is its value
	Format              // a string with fields: Text is what stands between the quotes
	Number              // Text is as written
	Bool                // Text is True or False
	None
	Name   // Text is the name, with dots where it is an attribute of a name, such as args.lr
	Call   // Of is what is called; Args, and Named with Keys
	List   // also a tuple or a set: Args
	Dict   // Named with Keys; a key that is no string is empty
	Binary // Text is the operator, Args the two operands
	Negate // Args has one
	Not    // Args has one
	Choice // Args[0] if Args[1] else Args[2]
	Index  // Of[Args[0]]
	Member // Of.Text, where Of is more than a name
	Each   // a comprehension: Args[0] for Args[1] in Args[2]
)

// Expr is an expression.
type Expr struct {
	Kind  Kind
	Text  string
	Of    *Expr
	Args  []Expr
	Keys  []string
	Named []Expr
	Line  int
}

// Callee returns the name of what a call calls, with dots: torch.optim.AdamW. Where the function is a member of more than
// a name, as in YOLO("x").train(), it begins with a dot.
func (e *Expr) Callee() string {
	if e.Kind != Call {
		return ""
	}
	switch e.Of.Kind {
	case Name:
		return e.Of.Text
	case Member:
		return "." + e.Of.Text
	}
	return ""
}

// Get returns the keyword argument of a call or the entry of a dict, or nil.
func (e *Expr) Get(key string) *Expr {
	for i, k := range e.Keys {
		if k == key {
			return &e.Named[i]
		}
	}
	return nil
}

// maxDepth bounds the nesting of expressions, and maxChain how many operators or calls follow each other in one.
const (
	maxDepth = 60
	maxChain = 300
)

type parser struct {
	scanner
	tok   token
	ahead []token
	depth int
	calls []Expr // all calls of the statement, the inner ones first
	lost  bool   // what follows in the statement is not understood
}

func (p *parser) advance() {
	if len(p.ahead) > 0 {
		p.tok, p.ahead = p.ahead[0], p.ahead[1:]
		return
	}
	p.tok = p.next()
}

func (p *parser) peek() token {
	if len(p.ahead) == 0 {
		p.ahead = append(p.ahead, p.next())
	}
	return p.ahead[0]
}

func (p *parser) is(op string) bool {
	return p.tok.kind == operator && p.tok.text == op
}

func (p *parser) isWord(w string) bool {
	return p.tok.kind == name && p.tok.text == w
}

func (p *parser) accept(op string) bool {
	if p.is(op) {
		p.advance()
		return true
	}
	return false
}

func (p *parser) atEnd() bool { return p.tok.kind == newline || p.tok.kind == end }

// strength has how strongly binary operators bind.
var strength = map[string]int{
	"or": 1, "and": 2, "in": 4, "is": 4, "not": 4, "<": 4, ">": 4, "==": 4, "!=": 4, "<=": 4, ">=": 4,
	"|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "//": 10, "%": 10, "@": 10, "**": 12,
}

// expr reads an expression with its condition.
func (p *parser) expr() Expr {
	if p.depth >= maxDepth || p.lost {
		p.lost = true
		return Expr{Line: p.tok.line}
	}
	p.depth++
	defer func() { p.depth-- }()
	if p.isWord("lambda") {
		return p.lambda()
	}
	e := p.binary(0)
	if p.accept(":=") {
		e = p.expr()
	}
	if p.isWord("if") {
		p.advance()
		when := p.binary(0)
		if !p.isWord("else") { // the condition of a comprehension
			return Expr{Line: e.Line}
		}
		p.advance()
		return Expr{Kind: Choice, Args: []Expr{e, when, p.expr()}, Line: e.Line}
	}
	return e
}

func (p *parser) lambda() Expr {
	e := Expr{Line: p.tok.line}
	var names []string
	p.advance()
	for !p.atEnd() && !p.is(":") {
		if p.is(")") || p.is("]") || p.is("}") {
			return e
		}
		if p.tok.kind == name {
			names = append(names, p.tok.text)
		}
		p.advance()
	}
	p.advance()
	body := p.expr()
	return Expr{Kind: Call, Text: strings.Join(names, " "), Of: &Expr{Kind: Name, Text: "lambda"}, Args: []Expr{body}, Line: e.Line}
}

func (p *parser) binary(least int) Expr {
	if p.depth >= maxDepth || p.lost {
		p.lost = true
		return Expr{Line: p.tok.line}
	}
	p.depth++
	defer func() { p.depth-- }()
	e := p.unary()
	for n := 0; (p.tok.kind == operator || p.tok.kind == name) && !p.lost; n++ {
		p.lost = n == maxChain
		op := p.tok.text
		s, ok := strength[op]
		if !ok || s < least {
			break
		}
		p.advance()
		if op == "not" || op == "is" { // not in, is not
			if p.isWord("not") {
				op = "is not"
			}
			if p.isWord("in") || p.isWord("not") {
				p.advance()
			}
		}
		e = Expr{Kind: Binary, Text: op, Args: []Expr{e, p.binary(s + 1)}, Line: e.Line}
	}
	return e
}

func (p *parser) unary() Expr {
	line := p.tok.line
	switch {
	case p.is("-"):
		p.advance()
		return Expr{Kind: Negate, Args: []Expr{p.binary(11)}, Line: line}
	case p.is("+"):
		p.advance()
		return p.binary(11)
	case p.is("*"): // of a call: all items of a list
		p.advance()
		return Expr{Text: "*", Args: []Expr{p.binary(11)}, Line: line}
	case p.is("~"), p.is("**"):
		p.advance()
		p.binary(11)
		return Expr{Line: line}
	case p.isWord("not"):
		p.advance()
		return Expr{Kind: Not, Args: []Expr{p.binary(4)}, Line: line}
	case p.isWord("await"), p.isWord("yield"):
		p.advance()
		return p.binary(0)
	}
	return p.postfix(p.atom())
}

func (p *parser) atom() Expr {
	t := p.tok
	e := Expr{Line: t.line}
	switch t.kind {
	case text:
		e.Kind = String
		var all strings.Builder
		for p.tok.kind == text {
			if p.tok.format && strings.Contains(p.tok.text, "{") {
				e.Kind = Format
			}
			all.WriteString(p.tok.text)
			p.advance()
		}
		e.Text = all.String()
	case number:
		e.Kind, e.Text = Number, t.text
		p.advance()
	case name:
		p.advance()
		switch t.text {
		case "True", "False":
			e.Kind, e.Text = Bool, t.text
		case "None":
			e.Kind = None
		default:
			e.Kind, e.Text = Name, t.text
		}
	case operator:
		switch t.text {
		case "(", "[":
			p.advance()
			closing := map[string]string{"(": ")", "[": "]"}[t.text]
			items, comma := p.items(closing)
			if len(items) == 1 && (t.text == "(" && !comma || items[0].Kind == Each) {
				return items[0]
			}
			e.Kind, e.Args = List, items
		case "{":
			p.advance()
			p.dict(&e)
		default:
			p.advance()
			if t.text != "..." {
				p.lost = true
			}
		}
	default:
		p.lost = true
	}
	return e
}

// items reads the items of a list up to its closing bracket, and whether a comma is among them.
func (p *parser) items(closing string) (items []Expr, comma bool) {
	for !p.atEnd() && !p.lost {
		if p.accept(closing) {
			return items, comma
		}
		if p.is(",") {
			comma = true
			p.advance()
			continue
		}
		if p.accept(":") { // a slice without a begin
			continue
		}
		items = append(items, p.expr())
		if p.isWord("for") || p.isWord("async") {
			return []Expr{p.each(items[len(items)-1], closing)}, true
		}
		if p.is("=") || p.is(":") { // not an item after all
			p.advance()
		}
	}
	return items, comma
}

// each reads a comprehension behind its element, up to and with the bracket that closes it. Of several loops only the first is kept.
func (p *parser) each(element Expr, closing string) Expr {
	e := Expr{Kind: Each, Line: element.Line}
	if p.isWord("async") {
		p.advance()
	}
	p.advance()
	to := p.rest(p.postfix(p.atom()))
	if !p.isWord("in") {
		p.skipTo(closing)
		return Expr{Line: element.Line}
	}
	p.advance()
	e.Args = []Expr{element, to, p.binary(0)}
	p.skipTo(closing)
	return e
}

// rest reads what follows the first of the variables of a loop, and returns all.
func (p *parser) rest(first Expr) Expr {
	if !p.is(",") {
		return first
	}
	all := Expr{Kind: List, Args: []Expr{first}, Line: first.Line}
	for p.accept(",") && !p.isWord("in") {
		all.Args = append(all.Args, p.postfix(p.atom()))
	}
	return all
}

// skipTo reads up to and with the bracket that closes what is open.
func (p *parser) skipTo(closing string) {
	for open := 0; !p.atEnd(); {
		switch {
		case p.is("("), p.is("["), p.is("{"):
			open++
		case open == 0 && p.is(closing):
			p.advance()
			return
		case p.is(")"), p.is("]"), p.is("}"):
			open--
		}
		p.advance()
	}
}

func (p *parser) dict(e *Expr) {
	e.Kind = Dict
	for !p.atEnd() && !p.lost && !p.accept("}") {
		if p.accept(",") {
			continue
		}
		if p.accept("**") {
			e.Keys, e.Named = append(e.Keys, "**"), append(e.Named, p.expr())
			continue
		}
		key := p.expr()
		if !p.accept(":") {
			e.Kind = List // a set
			e.Args = append(e.Args, key)
			if p.isWord("for") {
				p.skipTo("}")
				return
			}
			continue
		}
		value := p.expr()
		if p.isWord("for") {
			p.skipTo("}")
			*e = Expr{Line: e.Line}
			return
		}
		k := ""
		if key.Kind == String {
			k = key.Text
		}
		e.Keys, e.Named = append(e.Keys, k), append(e.Named, value)
	}
}

// postfix reads calls, indexes and attributes behind e.
func (p *parser) postfix(e Expr) Expr {
	for n := 0; !p.lost; n++ {
		p.lost = n == maxChain
		switch {
		case p.is("("):
			p.advance()
			of := e
			e = Expr{Kind: Call, Of: &of, Line: e.Line}
			p.arguments(&e)
			p.calls = append(p.calls, e)
		case p.is("["):
			p.advance()
			of := e
			first := p.is(":")
			items, _ := p.items("]")
			if len(items) > 1 || first { // a slice, or several
				items = []Expr{{Kind: List, Args: items}}
			}
			e = Expr{Kind: Index, Of: &of, Args: items, Line: e.Line}
		case p.is("."):
			p.advance()
			if p.tok.kind != name {
				p.lost = true
				return e
			}
			if e.Kind == Name {
				e.Text += "." + p.tok.text
			} else {
				of := e
				e = Expr{Kind: Member, Of: &of, Text: p.tok.text, Line: p.tok.line}
			}
			p.advance()
		default:
			return e
		}
	}
	return e
}

func (p *parser) arguments(e *Expr) {
	for !p.atEnd() && !p.lost {
		switch {
		case p.accept(")"):
			return
		case p.accept(","):
		case p.accept("**"):
			e.Keys, e.Named = append(e.Keys, "**"), append(e.Named, p.expr())
		case p.tok.kind == name && p.peek().kind == operator && p.peek().text == "=":
			e.Keys = append(e.Keys, p.tok.text)
			p.advance()
			p.advance()
			e.Named = append(e.Named, p.expr())
		default:
			e.Args = append(e.Args, p.expr())
			if p.isWord("for") || p.isWord("async") {
				e.Args[len(e.Args)-1] = p.each(e.Args[len(e.Args)-1], ")")
				return
			}
			if p.is("=") || p.is(":") {
				p.advance()
			}
		}
	}
}
