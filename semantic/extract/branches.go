package extract

import (
	"regexp"
	"slices"
	"strings"

	"github.com/muster-sched/muster/semantic/python"
)

// This file finds out which branches of a script do not run: those whose conditions ask for another value of an option or a configuration than
// the job has, as in if args.net == "vgg".

// branch is a body that runs if a condition holds, and those before it did not, or that of a function, which runs if it is called.
type branch struct {
	when  *python.Expr // nil: of an else
	not   []*python.Expr
	outer *branch // in which it stands; nil: none
	file  string
	at    *python.Statement
	known uint8 // whether it is taken: 0 if that is not found out yet
}

// Values of branch.known.
const (
	asking uint8 = 1 + iota
	isTaken
	isSkipped
)

// branches returns for each statement of a file the branch in which it stands, or nil.
func branches(all []python.Statement, file string) []*branch {
	type open struct {
		b      *branch
		indent int
	}
	of := make([]*branch, len(all))
	var stack []open
	var last []open // by which an else is one: the branches that ended last, the outermost first
	for i := range all {
		s := &all[i]
		for len(stack) > 0 && s.Indent <= stack[len(stack)-1].indent {
			top := stack[len(stack)-1]
			last = append(slices.DeleteFunc(last, func(o open) bool { return o.indent >= top.indent }), top)
			stack = stack[:len(stack)-1]
		}
		var outer *branch
		if len(stack) > 0 {
			outer = stack[len(stack)-1].b
		}
		of[i] = outer
		if s.Kind == python.Def {
			stack = append(stack, open{&branch{outer: outer, file: file, at: s}, s.Indent})
			continue
		}
		if s.Kind != python.If {
			last = slices.DeleteFunc(last, func(o open) bool { return o.indent >= s.Indent })
			continue
		}
		b := &branch{outer: outer, file: file, at: s}
		if s.Value.Kind != python.Unknown {
			b.when = &s.Value
		}
		if s.Else {
			j := slices.IndexFunc(last, func(o open) bool { return o.indent == s.Indent })
			if j < 0 { // of a loop, or of a try
				continue
			}
			before := last[j].b
			b.not = append(slices.Clip(before.not), before.when)
			if len(b.not) > maxElse {
				continue
			}
		}
		last = slices.DeleteFunc(last, func(o open) bool { return o.indent >= s.Indent })
		stack = append(stack, open{b, s.Indent})
	}
	return of
}

// maxElse bounds how many conditions follow each other.
const maxElse = 100

// skips reports whether a branch is known not to run. Nothing is known before all is read.
func (x *extraction) skips(b *branch) bool {
	for ; b != nil && x.settled; b = b.outer {
		if b.known == 0 {
			b.known = asking // what asks for itself is taken
			b.known = x.decide(b)
		}
		if b.known == isSkipped {
			return true
		}
	}
	return false
}

func (x *extraction) decide(b *branch) uint8 {
	if taken, followed := x.entered(b.at, b.file); followed {
		if taken {
			return isTaken
		}
		return isSkipped
	}
	for _, before := range b.not {
		if before == nil {
			return isTaken
		}
		if holds, ok := x.truth(before, b.file, 0); ok && holds {
			return isSkipped
		}
	}
	if b.when != nil {
		if holds, ok := x.truth(b.when, b.file, 0); ok && !holds {
			return isSkipped
		}
	}
	return isTaken
}

// truth says whether a condition holds, if that is known.
func (x *extraction) truth(e *python.Expr, file string, depth int) (holds, ok bool) {
	if depth > 20 {
		return false, false
	}
	switch e.Kind {
	case python.Bool:
		return e.Text == "True", true
	case python.Not:
		holds, ok = x.truth(&e.Args[0], file, depth+1)
		return !holds, ok
	case python.Binary:
		switch e.Text {
		case "and", "or":
			a, knownA := x.truth(&e.Args[0], file, depth+1)
			b, knownB := x.truth(&e.Args[1], file, depth+1)
			if end := e.Text == "or"; knownA && a == end || knownB && b == end { // one is enough
				return end, true
			}
			return a, knownA && knownB
		case "==", "!=":
			a, knownA := x.operand(&e.Args[0], file)
			b, knownB := x.operand(&e.Args[1], file)
			return alike(a, b) == (e.Text == "=="), knownA && knownB
		case "in", "not":
			a, known := x.operand(&e.Args[0], file)
			if !known || a.kind == none || e.Args[1].Kind != python.List || len(e.Args[1].Args) == 0 {
				return false, false
			}
			for i := range e.Args[1].Args {
				b, known := x.operand(&e.Args[1].Args[i], file)
				if !known {
					return false, false
				}
				holds = holds || alike(a, b)
			}
			return holds == (e.Text == "in"), true
		}
	case python.Name:
		v, known := x.operand(e, file)
		return v.text != "" && v.text != "false" && v.text != "no" && v.text != "0", known
	}
	return false, false
}

// alike is whether two values are equal in Python. What a command says has no type.
func alike(a, b value) bool {
	if m, ok := numeric(a.text); ok && a.kind != none && b.kind != none {
		n, ok := numeric(b.text)
		return ok && m == n
	}
	return a.text == b.text
}

// operand returns the value of a constant, of an option or a configuration, or of a name that a file sets once.
func (x *extraction) operand(e *python.Expr, file string) (value, bool) {
	switch e.Kind {
	case python.String, python.Number, python.None:
		v := evaluation{x: x, budget: 2}
		return v.value(e), true
	case python.Bool:
		return value{strings.ToLower(e.Text), boolean}, true
	case python.Name, python.Index:
	default:
		return value{}, false
	}
	key := e.Text
	if e.Kind == python.Index {
		if e.Of.Kind != python.Name || len(e.Args) != 1 || e.Args[0].Kind != python.String {
			return value{}, false
		}
		key = e.Of.Text + "." + e.Args[0].Text
	}
	key = normal(key)
	last := key[strings.LastIndexByte(key, '.')+1:]
	option, isOption := x.options[last]
	if key != last && !holders.MatchString(key[:len(key)-len(last)]) || strings.HasPrefix(key, "self.") && !isOption {
		return value{}, false
	}
	ev := evaluation{x: x, file: file, from: map[*setting]bool{}, budget: 200}
	v := ev.value(e)
	if v.kind == unknown {
		return value{"false", boolean}, isOption && option.unset && len(x.byName[last]) == 0
	}
	if key == last && !isOption && ev.best < configured { // a variable
		set := 0
		for _, s := range x.byName[last] {
			if s.key == last && s.file == file && !s.call {
				set++
			}
		}
		return v, set == 1
	}
	return v, ev.best >= declared
}

// holders is in the names of objects that have options or configurations.
var holders = regexp.MustCompile(`arg|opt|cfg|conf|flag|param|parse|setting|(^|\.)(hp|hps|self|c|p|a|o)\.`)
