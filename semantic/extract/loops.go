package extract

import (
	"regexp"
	"strings"

	"github.com/muster-sched/muster/semantic/python"
)

// This file finds out for how long a job trains from its loops: from the names of their variables, and from what they do where these say nothing.

// loop is a loop with a bound, or over data.
type loop struct {
	unit  string       // by its variable: the key loop.epochs or loop.steps, or empty
	bound *python.Expr // nil: it has none, as one over a loader
}

// trained are functions that update a model, by name, and the unit of one call.
type trained struct {
	functions map[string]string // at the top of a file
	methods   map[string]string
}

// loops notes the bounds of the loops that train, in all files. Of loops in loops, also of those in functions that loops call, the outermost that has a bound is for how long.
func (x *extraction) loops() {
	of := trained{map[string]string{}, map[string]string{}}
	for range maxCallsDeep {
		more := false
		for f := range x.sources {
			all := x.sources[f].statements
			for i := range all {
				s := &all[i]
				known := of.functions
				if s.Class != "" {
					known = of.methods
				}
				if s.Kind != python.Def || known[s.Target] != "" || s.Class == "" && s.Indent > 0 {
					continue
				}
				if unit := of.updatesIn(all, i); unit != "" {
					known[s.Target] = unit
					more = true
				}
			}
		}
		if !more {
			break
		}
	}
	called := of.calledInLoops(x.sources)
	for f := range x.sources {
		p := &x.sources[f]
		for i := range p.statements {
			s := &p.statements[i]
			if s.Kind != python.For && s.Kind != python.While {
				if s.Kind == python.If {
					x.limit(p, i, &of)
				}
				continue
			}
			if l := of.lengthOf(p.statements, i, called); l.unit != "" && l.bound != nil {
				x.bound(p, i, l.unit, l.bound)
			}
		}
	}
	x.when = nil
}

// maxCallsDeep bounds how deep the functions call each other that are looked through for what trains.
const maxCallsDeep = 5

// bound notes for how long the statement i of a file says that the job trains.
func (x *extraction) bound(p *parsed, i int, key string, e *python.Expr) {
	s := &p.statements[i]
	in := p.rank
	switch {
	case in == declared && strings.HasPrefix(key, "trained."):
		in = passed
	case in == declared && s.Function != "":
		in = local
	}
	x.when = p.when[i]
	x.add(setting{key: key, expr: e, file: p.file, rank: in, at: where(p.file, s.Line)})
}

// lengthOf returns the unit and the bound of the loop all[i], if it is one that says for how long the job trains.
func (of *trained) lengthOf(all []python.Statement, i int, called map[string]bool) loop {
	s := &all[i]
	l := loopOf(s)
	if l.unit == "loop.steps" && endsAtEpoch(l.bound) { // for it in range(1, args.max_epoch + 1)
		l.unit = "loop.epochs"
	}
	trains := of.updatesIn(all, i)
	if counter, bound := whileBelow(s); counter != "" && trains != "" { // by where it counts
		if unit := countedIn(all, i, counter); unit != "" {
			l.unit, l.bound = unit, bound
		}
	}
	around := outer(all, i)
	if l.unit == "" && l.bound != nil && trains != "" && around == nil && trains != whole && !otherLoop.MatchString(strings.ToLower(s.Target)) {
		l.unit = trains
	}
	if l.unit == "loop.epochs" && overBatches(all, i) { // the epochs of an update, as in PPO
		return loop{}
	}
	if trains != "" && called[s.Class+"."+s.Function] { // of each epoch, or of each step
		return loop{}
	}
	if trains != "" && around == nil && !otherLoop.MatchString(strings.ToLower(s.Target)) {
		switch l.unit {
		case "loop.epochs":
			l.unit = "trained.epochs"
		case "loop.steps":
			l.unit = "trained.steps"
		}
	}
	return l
}

// endsAtEpoch is whether the bound of a loop is a number of epochs, by its name.
func endsAtEpoch(e *python.Expr) bool {
	if e != nil && e.Kind == python.Binary && (e.Text == "+" || e.Text == "-") {
		e = &e.Args[0]
	}
	return e != nil && e.Kind == python.Name && unitOf(e.Text) == "loop.epochs"
}

// calledInLoops returns the functions that update a model and that loops with a bound call which do so thereby, as class.name.
func (of *trained) calledInLoops(files []parsed) map[string]bool {
	called := map[string]bool{}
	for f := range files {
		all := files[f].statements
		for i := range all {
			s := &all[i]
			if s.Kind != python.For && s.Kind != python.While || otherLoop.MatchString(strings.ToLower(s.Target)) {
				continue
			}
			l := loopOf(s)
			if l.bound == nil {
				continue
			}
			for j := i + 1; j < len(all) && all[j].Indent > s.Indent; j++ {
				for k := range all[j].Calls {
					name, method := of.calls(&all[j].Calls[k])
					switch {
					case name == "":
					case l.unit == "" && (method && of.methods[name] == whole || !method && of.functions[name] == whole): // of each run
					case method:
						called["method."+name] = true
					default:
						called["."+name] = true
					}
				}
			}
		}
	}
	for f := range files {
		for i := range files[f].statements {
			if s := &files[f].statements[i]; s.Kind == python.Def && s.Class != "" && called["method."+s.Target] {
				called[s.Class+"."+s.Target] = true
			}
		}
	}
	return called
}

// calls returns the function that a call calls, if that updates a model, and whether it is a method.
func (of *trained) calls(c *python.Expr) (name string, method bool) {
	callee := c.Callee()
	at := strings.LastIndexByte(callee, '.')
	if at < 0 {
		if of.functions[callee] == "" {
			return "", false
		}
		return callee, false
	}
	name = callee[at+1:]
	if of.methods[name] == "" {
		if of.functions[name] == "" || at == 0 || len(c.Args)+len(c.Named) == 0 { // module.function(x), and not net.train()
			return "", false
		}
		return name, false
	}
	if name == "train" && len(c.Args)+len(c.Named) == 0 && !trainers.MatchString(strings.ToLower(callee[:at])) { // net.train()
		return "", false
	}
	return name, true
}

// trainers is in the names of objects whose train() trains.
var trainers = regexp.MustCompile(`train|runner|engine|learner|agent|solver|exp|algo|workspace|^self$|^$`)

// whileBelow returns of while n < bound the counter n and its bound, or nothing.
func whileBelow(s *python.Statement) (counter string, bound *python.Expr) {
	c := &s.Value
	if s.Kind != python.While || c.Kind != python.Binary || c.Text != "<" && c.Text != "<=" {
		return "", nil
	}
	return nameOf(&c.Args[0]), &c.Args[1]
}

// nameOf returns what e is called: n, self.n, state.n for state["n"]. It returns nothing for what has no name.
func nameOf(e *python.Expr) string {
	switch {
	case e.Kind == python.Name:
		return e.Text
	case e.Kind == python.Index && e.Of.Kind == python.Name && len(e.Args) == 1 && e.Args[0].Kind == python.String:
		return e.Of.Text + "." + e.Args[0].Text
	}
	return ""
}

// countedIn is the unit of what a counter counts in the body of the loop all[i], by whether it counts in a loop over data. It is empty if the counter does not count by one there.
func countedIn(all []python.Statement, i int, counter string) string {
	inner, passes, unit := -1, false, ""
	for j := i + 1; j < len(all) && all[j].Indent > all[i].Indent; j++ {
		s := &all[j]
		if s.Indent <= inner {
			inner = -1
		}
		if s.Kind == python.For && inner < 0 && loopOf(s).bound == nil {
			inner, passes = s.Indent, true
		}
		if s.Kind == python.Augment && s.Target == counter {
			if s.Value.Text != "1" {
				return ""
			}
			unit = "loop.epochs"
			if inner >= 0 {
				unit = "loop.steps"
			}
		}
	}
	if unit == "loop.epochs" && !passes {
		return "" // its name says what it counts
	}
	return unit
}

// limit notes a limit at which a loop that trains ends: if step >= 1000: break.
func (x *extraction) limit(p *parsed, i int, of *trained) {
	all, s := p.statements, &p.statements[i]
	c := &s.Value
	if c.Kind != python.Binary || c.Text != ">=" && c.Text != ">" && c.Text != "==" {
		return
	}
	breaks := false
	for j := i + 1; j < len(all) && all[j].Indent > s.Indent; j++ {
		breaks = breaks || all[j].Value.Kind == python.Name && all[j].Value.Text == "break"
	}
	counter := nameOf(&c.Args[0])
	unit := unitOf(counter)
	if !breaks || unit == "" {
		return
	}
	indent := s.Indent
	for j := i - 1; j >= 0 && indent > 0; j-- {
		o := &all[j]
		if o.Indent >= indent {
			continue
		}
		indent = o.Indent
		switch {
		case o.Kind == python.Def || o.Kind == python.Class:
			return
		case o.Kind != python.For && o.Kind != python.While:
		case o.Target == counter: // of each epoch, if anything
			return
		case of.updatesIn(all, j) != "":
			x.bound(p, i, unit, &c.Args[1])
			return
		}
	}
}

// unitOf is the unit that the name of a counter says, as a key, or nothing.
func unitOf(counter string) string {
	switch t := strings.ToLower(counter[strings.LastIndexByte(counter, '.')+1:]); {
	case strings.Contains(t, "epoch") || t == "ep":
		return "loop.epochs"
	case strings.Contains(t, "step") || t == "it" || t == "iter" || strings.HasPrefix(t, "iteration") || t == "update" || t == "i_iter" || t == "cur_iter" || t == "iter_num" || strings.HasSuffix(t, "itrs"):
		return "loop.steps"
	}
	return ""
}

// otherLoop is in the names of variables of loops that count neither steps nor epochs.
var otherLoop = regexp.MustCompile(`episode|fold|seed|run|trial|client|round|stage|task|rank|layer|restart|split`)

// loopOf returns the loop that a statement is: for epoch in range(10), while step < 1000.
func loopOf(s *python.Statement) loop {
	var l loop
	target := s.Target
	if s.Kind == python.While {
		if c := &s.Value; c.Kind == python.Binary && (c.Text == "<" || c.Text == "<=") && c.Args[0].Kind == python.Name {
			target, l.bound = c.Args[0].Text, &c.Args[1]
		}
	}
	for _, c := range s.Calls {
		name := c.Callee()
		if s.Kind == python.For && (name == "islice" || name == "itertools.islice") && len(c.Args) > 1 { // so many batches of data without an end
			l.bound = &c.Args[min(2, len(c.Args)-1)]
			break
		}
		if s.Kind != python.For || (name != "range" && name != "trange" && !strings.HasSuffix(name, ".trange")) || len(c.Args) == 0 {
			continue
		}
		last := c.Args[0]
		if len(c.Args) > 1 {
			last = c.Args[1]
			if last.Kind == python.Binary && last.Text == "+" && last.Args[1].Text == "1" { // range(1, n + 1)
				last = last.Args[0]
			} else if last.Kind == python.Binary && last.Text == "+" && last.Args[0].Text == "1" { // range(1, 1 + n)
				last = last.Args[1]
			} else if last.Kind == python.Number && c.Args[0].Text == "1" { // range(1, 1001)
				last = python.Expr{Kind: python.Binary, Text: "-", Args: []python.Expr{last, c.Args[0]}, Line: last.Line}
			}
		}
		l.bound = &last
		break
	}
	l.unit = unitOf(target)
	return l
}

// updatesIn is the unit of one run through the body of all[i], a loop or a function: an inner loop over data that updates the model makes an epoch of it
// (the key loop.passes), an update without one a step (loop.turns). It is empty if nothing is updated, and whole if a loop
// in it says how often. It knows the units of functions that the body calls.
func (of *trained) updatesIn(all []python.Statement, i int) string {
	inner, told := -1, -1 // how far a loop over data in the body is indented, and one whose variable says what it counts
	for j := i + 1; j < len(all) && all[j].Indent > all[i].Indent; j++ {
		s := &all[j]
		if s.Indent <= inner {
			inner = -1
		}
		if s.Indent <= told {
			told = -1
		}
		if s.Kind == python.For || s.Kind == python.While {
			switch l := loopOf(s); {
			case l.bound == nil && s.Kind == python.For && inner < 0:
				inner = s.Indent
			case l.bound != nil && l.unit != "" && told < 0:
				told = s.Indent
			}
		}
		for k := range s.Calls {
			c := &s.Calls[k]
			name, method := of.calls(c)
			unit := ""
			switch {
			case updates.MatchString(c.Callee()):
				unit = "loop.turns"
			case name != "" && method:
				unit = of.methods[name]
			case name != "":
				unit = of.functions[name]
			}
			switch {
			case unit == "":
			case told >= 0:
				return whole
			case inner >= 0 && unit != whole:
				return "loop.passes"
			default:
				return unit
			}
		}
	}
	return ""
}

// whole is the unit of what has a loop in it that says how many epochs or steps it is.
const whole = "whole"

// updates are calls that change the weights of a model.
var updates = regexp.MustCompile(`(^|\.)(backward|apply_updates|apply_gradients|apply_gradient|manual_backward|optimizer_step|optimize_parameters|train_step|train_on_batch)$`)

// outer returns the innermost loop around the statement all[i] in its function, or nil.
func outer(all []python.Statement, i int) *python.Statement {
	indent := all[i].Indent
	for j := i - 1; j >= 0 && indent > 0; j-- {
		s := &all[j]
		if s.Indent >= indent {
			continue
		}
		indent = s.Indent
		switch s.Kind {
		case python.For, python.While:
			return s
		case python.Def, python.Class:
			return nil
		}
	}
	return nil
}

// overBatches is whether the loop all[i] is in one over what something collects as it trains.
func overBatches(all []python.Statement, i int) bool {
	s := outer(all, i)
	return s != nil && s.Kind == python.For && s.Value.Kind == python.Name && batches.MatchString(strings.ToLower(s.Value.Text))
}

// batches is in the names of what gives a job its data as it trains.
var batches = regexp.MustCompile(`collector|loader|rollouts?|batches|stream|iterator`)
