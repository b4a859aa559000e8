package python

import "strings"

// StatementKind is what a statement does.
type StatementKind uint8

// Kinds of statements.
const (
	Expression StatementKind = iota // also return, assert, and what is not known
	Import                          // Module, Names
	Assign                          // Target, Value. A field without a value has an unknown one
	Class                           // Target is its name; Args the bases; Decorators
	Def                             // Target is its name; Params; Decorators
	For                             // Target in Value
	If                              // Value is its condition; also elif and else, of which Else is true
	While                           // Value is its condition
	Augment                         // Target += Value, or another operator
)

// Statement is a logical line of a file.
type Statement struct {
	Kind       StatementKind
	Line       int
	Indent     int    // the column in which it begins: the body of a statement stands further right
	Class      string // the class in which it stands, or empty
	Function   string // the function in which it stands, or empty
	Else       bool   // of an If: what stands before it did not hold. Of an else Value is unknown; it may be that of a loop or a try, too
	Module     string // of an import, with leading dots if it is relative
	Names      []string
	As         []string // of an import: the names that Names get here; of import a.b as c, c alone, or empty
	Target     string   // a name with dots, or empty if it is more than that
	To         []Expr   // all that an Assign, a For or a with gives a value, of each name = what is on its left
	Word       string   // with which it begins, of those that begin with a word of their own: return, with, break. Of an Augment its operator: + of +=
	Value      Expr
	Args       []Expr
	Params     []Param
	Decorators []Expr
	Calls      []Expr // every call in the statement, also those in arguments
}

// Param is a parameter of a function.
type Param struct {
	Name    string
	Default Expr // unknown if there is none
	Line    int
	Stars   int // how many stand before it, as in *args and **options
}

// block is a class or function, and how far it is indented.
type block struct {
	name   string
	class  bool
	indent int
}

// Parse returns the statements of a file in their order. It takes time in proportion to the length of source.
func Parse(source []byte) []Statement {
	p := &parser{scanner: scanner{source: string(source), line: 1}}
	var all []Statement
	var blocks []block
	var decorators []Expr
	p.advance()
	for p.tok.kind != end {
		if p.tok.kind == newline {
			p.advance()
			continue
		}
		indent := p.tok.column
		for len(blocks) > 0 && indent <= blocks[len(blocks)-1].indent {
			blocks = blocks[:len(blocks)-1]
		}
		p.calls, p.lost, p.depth = nil, false, 0
		if p.accept("@") {
			decorators = append(decorators, p.expr())
			p.skipLine()
			continue
		}
		s := p.statement()
		for _, b := range blocks {
			if b.class {
				s.Class, s.Function = b.name, ""
			} else {
				s.Function = b.name
			}
		}
		s.Calls, s.Indent = p.calls, indent
		if s.Kind == Class || s.Kind == Def {
			s.Decorators, decorators = decorators, nil
			blocks = append(blocks, block{s.Target, s.Kind == Class, indent})
		}
		all = append(all, s)
		for s.Kind == Import && len(s.Names) == 0 && p.accept(",") { // import os, sys
			s.Module, s.As = p.dotted(), p.as()
			all = append(all, s)
		}
		if !p.atEnd() && p.accept(":") && !p.atEnd() { // the body stands on the same line
			continue
		}
		p.skipLine()
	}
	return all
}

// skipLine reads to the end of a statement.
func (p *parser) skipLine() {
	for !p.atEnd() && !p.is(";") {
		p.advance()
	}
	p.accept(";")
}

func (p *parser) statement() Statement {
	s := Statement{Line: p.tok.line}
	word := ""
	if p.tok.kind == name {
		word = p.tok.text
	}
	if word == "async" {
		p.advance()
		word = p.tok.text
	}
	switch word {
	case "import":
		p.advance()
		s.Kind, s.Module = Import, p.dotted()
		s.As = p.as()
	case "from":
		p.from(&s)
	case "class":
		p.advance()
		s.Kind, s.Target = Class, p.tok.text
		p.advance()
		if p.is("(") {
			of := p.postfix(Expr{Kind: Name, Text: s.Target})
			s.Args = of.Args
			p.calls = nil
		}
	case "def":
		p.def(&s)
	case "for":
		p.advance()
		target := p.postfix(p.atom())
		to := p.rest(target)
		s.Kind, s.To = For, []Expr{to}
		if target.Kind == Name {
			s.Target = target.Text
		}
		if p.isWord("in") {
			p.advance()
			s.Value = p.expr()
		}
	case "if", "elif", "while", "return", "assert", "raise", "with", "del", "else", "try", "finally", "except", "global", "nonlocal", "pass", "yield", "case", "print":
		s.Word = word
		if word == "print" && p.peek().text == "(" {
			s.Value = p.expr()
			break
		}
		switch word {
		case "if", "elif", "else":
			s.Kind, s.Else = If, word != "if"
		case "while":
			s.Kind = While
		}
		p.advance()
		if p.atEnd() || p.is(":") {
			break
		}
		s.Value = p.expr()
		if word == "return" && p.is(",") {
			s.Value = Expr{Kind: List, Args: []Expr{s.Value}, Line: s.Line}
			for p.accept(",") && !p.atEnd() {
				s.Value.Args = append(s.Value.Args, p.expr())
			}
		}
		if word == "with" && p.isWord("as") {
			p.advance()
			if p.tok.kind == name {
				s.Kind, s.Target, s.To = Assign, p.tok.text, []Expr{{Kind: Name, Text: p.tok.text, Line: s.Line}}
			}
			p.advance()
		}
	default:
		p.assign(&s)
	}
	return s
}

func (p *parser) dotted() string {
	var b strings.Builder
	for p.is(".") || p.is("...") || p.tok.kind == name && p.tok.text != "import" && p.tok.text != "as" {
		word := p.tok.kind == name
		b.WriteString(p.tok.text)
		p.advance()
		if word && !p.is(".") {
			break
		}
	}
	return b.String()
}

// as reads the name that an import gives a module, if it does.
func (p *parser) as() []string {
	if !p.isWord("as") {
		return nil
	}
	p.advance()
	to := p.tok.text
	p.advance()
	return []string{to}
}

func (p *parser) from(s *Statement) {
	p.advance()
	s.Kind, s.Module = Import, p.dotted()
	if !p.isWord("import") {
		return
	}
	p.advance()
	for !p.atEnd() && !p.is(";") {
		if p.tok.kind == name && p.tok.text == "as" {
			p.advance()
			if n := len(s.As); n > 0 {
				s.As[n-1] = p.tok.text
			}
		} else if p.tok.kind == name || p.is("*") {
			s.Names, s.As = append(s.Names, p.tok.text), append(s.As, p.tok.text)
		}
		p.advance()
	}
}

func (p *parser) def(s *Statement) {
	p.advance()
	s.Kind, s.Target = Def, p.tok.text
	p.advance()
	if !p.accept("(") {
		return
	}
	stars := 0
	for !p.atEnd() && !p.lost && !p.accept(")") {
		if p.accept(",") || p.accept("/") {
			stars = 0
			continue
		}
		if p.is("*") || p.is("**") {
			stars = len(p.tok.text)
			p.advance()
			continue
		}
		param := Param{Name: p.tok.text, Line: p.tok.line, Stars: stars}
		if p.tok.kind != name {
			p.lost = true
			return
		}
		p.advance()
		if p.accept(":") {
			ann := p.expr()
			if ann.Kind == Index && len(ann.Args) == 1 && ann.Args[0].Kind == List { // Annotated[int, typer.Option()] = 1
				param.Default = Expr{Line: param.Line}
			}
		}
		if p.accept("=") {
			param.Default = p.expr()
		}
		s.Params = append(s.Params, param)
	}
	if p.accept("->") {
		p.expr()
	}
}

// augments are the operators that change what stands before them.
var augments = map[string]bool{"+=": true, "-=": true, "*=": true, "/=": true, "//=": true, "**=": true, "%=": true, "|=": true, "&=": true, "^=": true, "@=": true, ">>=": true, "<<=": true}

// assign reads an assignment, or an expression.
func (p *parser) assign(s *Statement) {
	e := p.expr()
	if p.is(",") { // a tuple: a, b = f()
		items := []Expr{e}
		for p.accept(",") && !p.atEnd() && !p.is("=") {
			items = append(items, p.expr())
		}
		e = Expr{Kind: List, Args: items, Line: s.Line}
	}
	target := e
	s.To = []Expr{e}
	switch {
	case p.is(":") && target.Kind == Name:
		p.advance()
		p.expr()
		s.Kind = Assign
		if p.accept("=") {
			s.Value = p.expr()
		}
	case p.is("="):
		s.Kind = Assign
		for n := 0; p.accept("="); n++ { // a = b = 1
			if n > 0 {
				s.To = append(s.To, s.Value)
			}
			s.Value = p.expr()
			if p.is(",") {
				items := []Expr{s.Value}
				for p.accept(",") && !p.atEnd() {
					items = append(items, p.expr())
				}
				s.Value = Expr{Kind: List, Args: items, Line: s.Line}
			}
		}
	case p.tok.kind == operator && augments[p.tok.text]:
		s.Word = strings.TrimSuffix(p.tok.text, "=")
		p.advance()
		s.Kind, s.Value = Augment, p.expr()
	default:
		s.Value, s.To = e, nil
		return
	}
	switch {
	case target.Kind == Name:
		s.Target = target.Text
	case target.Kind == Index && len(target.Args) == 1 && target.Args[0].Kind == String && target.Of.Kind == Name: // config["lr"] = 1
		s.Target = target.Of.Text + "." + target.Args[0].Text
	}
}
