// Package interpret follows the script of a job from its first line without running it: modules of the folder that it imports, functions that it calls with
// what they are given, objects and their attributes, options and their defaults. It is an abstract interpreter of Python: a value that cannot be
// known is unknown, both branches of a condition that is not known are followed, and a loop is followed once. It knows what only a run of the
// statements in their order tells: which values meet, which functions are reached, and in which loops a model is updated.
package interpret

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/muster-sched/muster/semantic/python"
)

// Host is what a script is followed in: the folder of the job, and its command.
type Host interface {
	// Source returns a file of the folder, or nil.
	Source(file string) []python.Statement
	// Import returns the files of the folder that a statement in a file imports, or a module of that name.
	Import(s *python.Statement, from string) []string
	// Option returns what the command says for an option, or nil.
	Option(name string) *Value
	// Known returns what a name with dots in a file means by other ways than following the script, or nil.
	Known(name, file string) *Value
	// Config returns the values of a configuration that a file of the folder names, or nil.
	Config(name, from string) *Value
	// Environment returns a variable of the environment, or nil.
	Environment(name string) *Value
}

// Loop is a loop in which something happens.
type Loop struct {
	Var   string       // the variable, or the counter that is compared
	Bound *Value       // how often it runs at most; nil: not known
	Text  *python.Expr // of Bound; nil: it has none
	Over  *Value       // what it runs over, where that is no range; may be nil
	Data  bool         // it runs over something else than a range
	Limit *Value       // at which it ends by itself: if step >= Limit: break
	Count string       // the counter of Limit
	// Raised is whether the counter Var is raised in the loop, and Counts whether it is in a loop over data in it.
	Raised, Counts bool
	At             string
}

// Listed is whether the loop runs over items that are all known.
func (l *Loop) Listed() bool { return l.Over != nil && (l.Over.Kind == List || l.Over.Kind == Dict) }

// Update is a call that changes the weights of a model.
type Update struct {
	Loops []*Loop // around it, across functions, the outermost first
	By    *Value  // the optimizer or model whose method is called; may be nil
	Name  string  // of the method
	At    string
}

// Trace is what happens as a script is followed.
type Trace struct {
	Updates []Update
	Values  map[*python.Expr]*Value    // what expressions are found to be, the first time that they are known
	Entered map[*python.Statement]bool // whether the body of an If that is reached is entered
	Files   map[string]bool            // that are followed
	Reached map[*python.Statement]bool // functions that are called
}

// Trains is whether a loop was found in which a model is updated.
func (t *Trace) Trains() bool {
	return slices.ContainsFunc(t.Updates, func(u Update) bool { return len(u.Loops) > 0 })
}

// These bound the work: the expressions and statements, the calls in calls, and the items of what a loop over a known list follows.
const (
	maxWork  = 400_000
	maxDepth = 40
	maxItems = 256
	maxList  = 256
)

// Run follows a script.
func Run(h Host, script string) *Trace {
	r := &run{host: h, modules: map[string]*Value{}, trace: &Trace{Values: map[*python.Expr]*Value{}, Entered: map[*python.Statement]bool{}, Files: map[string]bool{}, Reached: map[*python.Statement]bool{}}}
	m := r.module(script, true)
	for _, f := range r.commands {
		if said := h.Option("argv.1"); !r.trace.Reached[f.code.s] && (len(r.commands) == 1 || said != nil && strings.ReplaceAll(said.Text, "-", "_") == f.Text) {
			r.optionedCall(f)
		}
	}
	if m != nil && len(r.trace.Updates) == 0 { // what a program calls that runs the script
		for _, name := range []string{"main", "train", "run"} {
			if f := m.Fields[name]; f != nil && f.Kind == Function && !r.trace.Reached[f.code.s] {
				r.call(f, nil, nil)
			}
		}
	}
	return r.trace
}

type run struct {
	host     Host
	trace    *Trace
	modules  map[string]*Value
	work     int
	depth    int
	loops    []*Loop
	unsure   int // how many conditions that are not known are around
	calling  []*python.Statement
	commands []*Value // functions that are commands of the script
}

// spent is whether there is no work left.
func (r *run) spent() bool { return r.costs(1) }

// costs notes work in proportion to what is copied or searched, and is whether there is none left.
func (r *run) costs(n int) bool {
	r.work += n
	return r.work > maxWork
}

// flow is how a block ends.
type flow uint8

const (
	goesOn flow = iota
	breaks
	returns
)

// module follows a file once.
func (r *run) module(name string, main bool) *Value {
	if m, ok := r.modules[name]; ok {
		return m
	}
	all := r.host.Source(name)
	if all == nil || r.depth > maxDepth {
		return nil
	}
	f := &file{name: name, all: all, ends: ends(all), main: main}
	r.modules[name] = &Value{Kind: Module, Text: name, Fields: map[string]*Value{}, file: f}
	m := r.modules[name]
	r.trace.Files[name] = true
	r.depth++
	loops, unsure := r.loops, r.unsure
	r.loops, r.unsure = nil, 0
	r.block(&scope{vars: m.Fields, file: f}, 0, len(all))
	r.loops, r.unsure = loops, unsure
	r.depth--
	return r.modules[name] // which it may have replaced
}

// ends returns for each statement where its body ends.
func ends(all []python.Statement) []int {
	e := make([]int, len(all))
	var open []int
	for i := range all {
		for len(open) > 0 && all[open[len(open)-1]].Indent >= all[i].Indent {
			e[open[len(open)-1]] = i
			open = open[:len(open)-1]
		}
		open = append(open, i)
	}
	for _, i := range open {
		e[i] = len(all)
	}
	return e
}

// block follows the statements from and to.
func (r *run) block(sc *scope, from, to int) (flow, *Value) {
	for i := from; i < to; {
		if r.spent() {
			return goesOn, nil
		}
		s := &sc.file.all[i]
		end := sc.file.ends[i]
		switch {
		case s.Kind == python.If && !s.Else:
			next := end // of the chain
			for next < to && sc.file.all[next].Kind == python.If && sc.file.all[next].Else && sc.file.all[next].Indent == s.Indent {
				next = sc.file.ends[next]
			}
			if how, v := r.choose(sc, i, next); how != goesOn {
				return how, v
			}
			i = next
			continue
		case s.Kind == python.If: // else of a loop or of try
			if how, v := r.block(sc, i+1, end); how != goesOn {
				return how, v
			}
		case s.Kind == python.For || s.Kind == python.While:
			if how, v := r.loop(sc, i, end); how == returns {
				return how, v
			}
		case s.Kind == python.Def:
			r.define(sc, s, i+1, end)
		case s.Kind == python.Class:
			r.class(sc, s, i+1, end)
		case s.Word == "try" || s.Word == "finally" || s.Word == "with":
			r.simple(sc, s)
			if how, v := r.block(sc, i+1, end); how != goesOn {
				return how, v
			}
		case s.Word == "except" || s.Word == "case":
		case s.Word == "return":
			v := r.eval(sc, &s.Value)
			if r.unsure == 0 {
				return returns, v
			}
			sc.result = append(sc.result, v)
			return breaks, nil
		case s.Word == "raise":
			return breaks, nil
		case s.Value.Kind == python.Name && (s.Value.Text == "break" || s.Value.Text == "continue"):
			return breaks, nil
		default:
			r.simple(sc, s)
			if s.Word == "with" || end > i+1 && s.Kind != python.Import { // with a body
				if how, v := r.block(sc, i+1, end); how != goesOn {
					return how, v
				}
			}
		}
		i = end
	}
	return goesOn, nil
}

// choose follows the branches of a condition that can be taken. What is set where that is not sure counts if nothing else is known, or all branches agree.
func (r *run) choose(sc *scope, from, to int) (flow, *Value) {
	var known []map[string]*Value // what the branches set that may be taken and do not end the block
	for i := from; i < to; i = sc.file.ends[i] {
		s, end := &sc.file.all[i], sc.file.ends[i]
		holds, sure := true, true
		if !s.Else || s.Word != "else" {
			holds, sure = truth(r.eval(sc, &s.Value))
		}
		r.trace.Entered[s] = r.trace.Entered[s] || holds || !sure
		if sure && !holds {
			continue
		}
		if sure {
			for j := end; j < to; j = sc.file.ends[j] {
				if o := &sc.file.all[j]; !r.trace.Entered[o] {
					r.trace.Entered[o] = false // and is known not to be
				}
			}
			if len(known) == 0 && (r.unsure == 0 || s.Word != "else" || i == from) {
				return r.block(sc, i+1, end)
			}
		}
		over := &scope{vars: map[string]*Value{}, outer: sc, file: sc.file, self: sc.self, class: sc.class, branch: true}
		r.unsure++
		how, _ := r.block(over, i+1, end)
		r.unsure--
		sc.result = append(sc.result, over.result...)
		if how == breaks {
			r.limit(sc, &s.Value)
		} else {
			known = append(known, over.vars)
		}
		if sure {
			break
		}
	}
	set := map[string]*Value{}
	for i, vars := range known {
		for name, v := range vars {
			if old, ok := set[name]; ok && i > 0 && v != nil && old != nil && !alike(old, v) {
				v = nil
			} else if v == nil {
				v = old
			}
			set[name] = v
		}
	}
	for name, v := range set {
		if old := sc.vars[name]; old == nil || old.Kind == None {
			sc.vars[name] = v
		}
	}
	return goesOn, nil
}

// alike is whether two values mean the same.
func alike(a, b *Value) bool {
	if a == b {
		return true
	}
	if a == nil || b == nil || a.Kind != b.Kind {
		return false
	}
	switch a.Kind {
	case None:
		return true
	case Object:
		return a.Of == b.Of && a.Maker() == b.Maker()
	}
	return a.Kind <= String && a.Text == b.Text
}

// limit notes the limit at which a loop ends by itself.
func (r *run) limit(sc *scope, when *python.Expr) {
	if when.Kind == python.Binary && when.Text == "or" {
		r.limit(sc, &when.Args[0])
		r.limit(sc, &when.Args[1])
		return
	}
	if when.Kind == python.Binary && when.Text == "and" {
		r.limit(sc, &when.Args[1])
		return
	}
	if len(r.loops) == 0 || when.Kind != python.Binary || when.Text != ">=" && when.Text != ">" && when.Text != "==" || when.Args[0].Kind != python.Name {
		return
	}
	if v := r.eval(sc, &when.Args[1]); v != nil && v.Kind == Number {
		l := r.loops[len(r.loops)-1]
		l.Limit, l.Count = v, when.Args[0].Text
	}
}

// loop follows a loop: over a list that is known for each item, else once.
func (r *run) loop(sc *scope, i, end int) (flow, *Value) {
	s := &sc.file.all[i]
	l := &Loop{Var: s.Target, At: fmt.Sprintf("%s:%d", sc.file.name, s.Line)}
	if s.Kind == python.While {
		v := r.eval(sc, &s.Value)
		if holds, sure := truth(v); sure && !holds {
			return goesOn, nil
		}
		below(&s.Value, func(counter string, bound *python.Expr) {
			l.Var, l.Text, l.Bound = counter, bound, r.eval(sc, bound)
		})
		return r.body(sc, l, i, end)
	}
	over := r.eval(sc, &s.Value)
	var to *python.Expr
	if len(s.To) > 0 {
		to = &s.To[0]
		if to.Kind == python.List && len(to.Args) > 0 && to.Args[0].Kind == python.Name {
			l.Var = to.Args[0].Text
		}
	}
	ranged(&s.Value, over, l)
	if l.Bound == nil && l.Text != nil {
		l.Bound = r.eval(sc, l.Text)
	}
	if over != nil && (over.Kind == List || over.Kind == Dict) && to != nil {
		items := over.Items
		if over.Kind == Dict {
			items = nil
			for _, k := range over.Keys[:min(len(over.Keys), maxItems)] {
				items = append(items, text(k))
			}
		}
		for _, item := range items[:min(len(items), maxItems)] {
			r.assign(sc, to, item)
			if how, v := r.body(sc, l, i, end); how == returns {
				return how, v
			}
		}
		return goesOn, nil
	}
	if to != nil {
		r.assign(sc, to, element(over))
	}
	return r.body(sc, l, i, end)
}

// body follows the body of a loop.
func (r *run) body(sc *scope, l *Loop, i, end int) (flow, *Value) {
	r.loops = append(slices.Clip(r.loops), l)
	how, v := r.block(sc, i+1, end)
	r.loops = r.loops[:len(r.loops)-1]
	if how == returns { // at some time
		sc.result = append(sc.result, v)
		how = goesOn
	}
	return how, nil
}

// below calls f for the counter and the bound of n < bound, which may be one of several conditions.
func below(e *python.Expr, f func(string, *python.Expr)) {
	switch {
	case e.Kind == python.Binary && e.Text == "and":
		below(&e.Args[1], f)
		below(&e.Args[0], f)
	case e.Kind == python.Binary && (e.Text == "<" || e.Text == "<=" || e.Text == "!=") && (e.Args[0].Kind == python.Name || e.Args[0].Kind == python.Index):
		name := e.Args[0].Text
		if e.Args[0].Kind == python.Index && len(e.Args[0].Args) == 1 {
			name = e.Args[0].Args[0].Text
		}
		f(name, &e.Args[1])
	case e.Kind == python.Not:
		if n := &e.Args[0]; n.Kind == python.Binary && (n.Text == ">=" || n.Text == ">") && n.Args[0].Kind == python.Name {
			f(n.Args[0].Text, &n.Args[1])
		}
	}
}

// element returns an item of what a loop runs over.
func element(over *Value) *Value {
	if over == nil || over.Kind != Object {
		return nil
	}
	switch over.Maker() {
	case "range", "itertools.count":
		return nil
	case "enumerate":
		return &Value{Kind: List, Items: []*Value{nil, element(first(over))}}
	case "zip":
		all := &Value{Kind: List}
		for _, i := range over.Items {
			all.Items = append(all.Items, element(i))
		}
		return all
	}
	return &Value{Kind: Object, Of: over, Text: "[]"}
}

func first(v *Value) *Value {
	if v != nil && len(v.Items) > 0 {
		return v.Items[0]
	}
	return nil
}

// ranged notes how often a loop runs.
func ranged(e *python.Expr, over *Value, l *Loop) {
	for n := 0; n < 6; n++ {
		if over == nil {
			break
		}
		name := last(over.Maker())
		switch {
		case name == "range" || name == "trange" || name == "arange":
			l.Bound = span(over)
			l.Text = e
			if of := l.Bound; of != nil && of.Kind == Object || of == nil && measures(e) { // range(0, len(loader), 8)
				l.Bound, l.Over, l.Data = nil, of, true
			}
			return
		case name == "islice" && len(over.Items) > 1:
			l.Bound, l.Text, l.Over, l.Data = over.Items[min(2, len(over.Items)-1)], e, over.Items[0], true
			return
		case name == "count" && over.Of.Kind == External:
			l.Text = nil
			return
		case wraps[name]:
			if t := over.Fields["total"]; t != nil && t.Kind == Number && first(over) == nil {
				l.Bound, l.Text = t, e
			}
			over = first(over)
			continue
		case name == "zip":
			for _, i := range over.Items {
				if m := last(i.Maker()); m == "range" {
					l.Bound, l.Text = span(i), e
				}
			}
			over = first(over)
			l.Over, l.Data = over, true
			return
		}
		break
	}
	l.Over, l.Data = over, true
	if over == nil { // by its words
		for c := e; c != nil && c.Kind == python.Call; {
			name := last(c.Callee())
			if name == "range" || name == "trange" {
				l.Text, l.Data = e, measures(c)
				return
			}
			if !wraps[name] || len(c.Args) == 0 {
				break
			}
			c = &c.Args[0]
		}
	}
}

// measures is whether an expression asks for the length of something.
func measures(e *python.Expr) bool {
	return e.Callee() == "len" || slices.ContainsFunc(e.Args, func(a python.Expr) bool { return measures(&a) })
}

// wraps are functions that give what they are given, item by item.
var wraps = map[string]bool{"tqdm": true, "enumerate": true, "iter": true, "list": true, "progress_bar": true, "track": true, "ProgressBar": true, "log_every": true, "tqdm_notebook": true, "reversed": true, "cycle": true, "notebook": true, "Tqdm": true, "progress": true}

// span returns how many numbers a range has.
func span(v *Value) *Value {
	if len(v.Items) == 1 || len(v.Items) == 0 {
		return first(v)
	}
	to := v.Items[1]
	if a, ok := v.Items[0].Float(); ok && to != nil {
		if b, ok := to.Float(); ok {
			step := 1.0
			if len(v.Items) > 2 {
				if step, ok = v.Items[2].Float(); !ok || step == 0 {
					return nil
				}
			}
			return &Value{Kind: Number, Text: format(max(0, math.Ceil((b-a)/step))), From: to.From}
		}
	}
	return to
}

func last(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// define notes a function.
func (r *run) define(sc *scope, s *python.Statement, start, end int) {
	f := &Value{Kind: Function, Text: s.Target, code: &code{s: s, start: start, end: end, class: sc.class}, env: sc, file: sc.file}
	for i := range s.Decorators {
		d := &s.Decorators[i]
		if d.Kind == python.Name && (d.Text == "property" || d.Text == "cached_property" || strings.HasSuffix(d.Text, ".cached_property")) {
			f.Keys = []string{"property"}
		}
		if d.Kind == python.Name && (d.Text == "staticmethod" || d.Text == "classmethod") {
			f.Keys = []string{d.Text}
		}
		r.register(sc, d, f)
	}
	sc.vars[s.Target] = f
}

// register follows what a decorator of the folder does, such as to note a class under a name.
func (r *run) register(sc *scope, d *python.Expr, v *Value) {
	if last(d.Callee()) == "command" && v.Kind == Function {
		r.commands = append(r.commands, v)
	}
	by := r.eval(sc, d)
	if by != nil && by.Kind == Function {
		r.call(by, []*Value{v}, nil)
	}
	if by != nil && by.Kind == Object && len(by.Items) > 0 && by.Of != nil && by.Of.Kind == Object && by.Items[0] != nil && by.Items[0].Kind == String { // of a registry outside of the folder
		by.Of.put(by.Items[0].Text, v)
	} else if by != nil && by.Kind == Object && by.Of != nil && by.Of.Kind == Object && strings.HasPrefix(by.Text, "register") {
		by.Of.put(v.Text, v)
	}
}

// class follows the body of a class.
func (r *run) class(sc *scope, s *python.Statement, start, end int) {
	c := &Value{Kind: Class, Text: s.Target, Fields: map[string]*Value{}, code: &code{s: s, start: start, end: end}, file: sc.file, env: sc}
	for i := range s.Args[:min(len(s.Args), maxDepth)] {
		c.base = append(c.base, r.eval(sc, &s.Args[i]))
	}
	sc.vars[s.Target] = c
	inner := &scope{vars: c.Fields, outer: sc, file: sc.file, class: c}
	r.block(inner, start, end)
	for i := start; i < end; i++ { // the fields in their order
		if f := &sc.file.all[i]; f.Kind == python.Assign && f.Function == "" && f.Class == s.Target && f.Target != "" {
			c.Keys = append(c.Keys, f.Target)
		}
	}
	for i := range s.Decorators {
		r.register(sc, &s.Decorators[i], c)
	}
}

// simple follows a statement without a body.
func (r *run) simple(sc *scope, s *python.Statement) {
	switch s.Kind {
	case python.Import:
		r.imports(sc, s)
	case python.Assign:
		if s.Value.Kind == python.Unknown && len(s.Value.Args) == 0 {
			if s.Value.Line > 0 { // else it is only an annotation
				r.assignAll(sc, s, nil)
			}
			return
		}
		r.assignAll(sc, s, r.eval(sc, &s.Value))
	case python.Augment:
		v := r.eval(sc, &s.Value)
		if len(s.To) == 0 {
			return
		}
		for i, l := range r.loops {
			if l.Var == s.To[0].Text && l.Var != "" {
				l.Raised = true
				l.Counts = l.Counts || slices.ContainsFunc(r.loops[i+1:], func(in *Loop) bool { return in.Data })
			}
		}
		old := r.eval(sc, &s.To[0])
		switch {
		case len(r.loops) > 0 && (old == nil || old.Kind == Number):
			v = nil
		case s.Word == "+" && old != nil && old.Kind == List && v != nil && v.Kind == List:
			v = joined(old.Items, v.Items)
		case old != nil && v != nil:
			v = arithmetic(s.Word, old, v)
		default:
			v = nil
		}
		r.assign(sc, &s.To[0], v)
	default:
		r.eval(sc, &s.Value)
	}
}

func (r *run) assignAll(sc *scope, s *python.Statement, v *Value) {
	for i := range s.To {
		r.assign(sc, &s.To[i], v)
	}
}

// assign gives a variable, an attribute, an item or several of these a value.
func (r *run) assign(sc *scope, to *python.Expr, v *Value) {
	switch to.Kind {
	case python.Name:
		name, attribute, ok := cutLast(to.Text)
		if !ok {
			sc.vars[to.Text] = v
			return
		}
		if o := r.name(sc, name); o != nil {
			r.setField(o, attribute, v)
		}
	case python.Member:
		if o := r.eval(sc, to.Of); o != nil {
			r.setField(o, to.Text, v)
		}
	case python.Index:
		if o := r.eval(sc, to.Of); o != nil && len(to.Args) == 1 {
			k := r.eval(sc, &to.Args[0])
			switch {
			case o.Kind == External && o.Text == "sys.modules":
				r.modules[sc.file.name] = v
			case k != nil && (k.Kind == String || k.Kind == Number):
				r.setField(o, k.Text, v)
			}
		}
	case python.List:
		for i := range to.Args {
			switch {
			case v == nil:
				r.assign(sc, &to.Args[i], nil)
			case v.Kind == List:
				var item *Value
				if i < len(v.Items) {
					item = v.Items[i]
				}
				r.assign(sc, &to.Args[i], item)
			case v.Kind == Object:
				r.assign(sc, &to.Args[i], &Value{Kind: Object, Of: v, Text: "[]"})
			default:
				r.assign(sc, &to.Args[i], nil)
			}
		}
	}
}

// setField sets a field of an object. Where it is not sure that this runs, what is known stays.
func (r *run) setField(o *Value, key string, v *Value) {
	if o.Kind == External || o.Kind <= List {
		return
	}
	if old := o.Fields[key]; r.unsure > 0 && old != nil && old.Kind != None {
		return
	}
	o.put(key, v)
}

func cutLast(name string) (before, after string, ok bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return "", name, false
	}
	return name[:i], name[i+1:], true
}

// imports binds what an import gives.
func (r *run) imports(sc *scope, s *python.Statement) {
	if r.costs(searched) {
		return
	}
	files := r.host.Import(s, sc.file.name)
	if len(s.Names) == 0 { // import a.b as c
		module := s.Module
		to, rest, _ := strings.Cut(module, ".")
		if len(s.As) > 0 {
			to, rest = s.As[0], ""
		}
		if len(files) == 0 {
			if rest != "" {
				module = to
			}
			sc.vars[to] = &Value{Kind: External, Text: module}
			return
		}
		m := r.module(files[len(files)-1], false)
		if rest != "" { // a of a.b
			outer := sc.vars[to]
			if outer == nil || outer.Kind != Module {
				outer = &Value{Kind: Module, Text: to, Fields: map[string]*Value{}}
			}
			at := outer
			parts := strings.Split(rest, ".")
			for i, p := range parts {
				if i == len(parts)-1 {
					at.put(p, m)
				} else {
					next := at.Fields[p]
					if next == nil || next.Kind != Module {
						next = &Value{Kind: Module, Text: p, Fields: map[string]*Value{}}
						at.put(p, next)
					}
					at = next
				}
			}
			m = outer
		}
		sc.vars[to] = m
		return
	}
	for i, name := range s.Names {
		as := s.As[i]
		if len(files) == 0 {
			if sc.file.star = sc.file.star || name == "*"; name != "*" {
				sc.vars[as] = &Value{Kind: External, Text: strings.TrimLeft(s.Module, ".") + "." + name}
			}
			continue
		}
		var v *Value
		found := false
		for _, f := range files {
			base := strings.TrimSuffix(path.Base(f), ".py")
			if base == name && last(s.Module) != name && base != "__init__" {
				v, found = r.module(f, false), true
				break
			}
			m := r.module(f, false)
			if m == nil {
				continue
			}
			if name == "*" {
				if r.costs(len(m.Fields)) {
					return
				}
				for k, v := range m.Fields {
					sc.vars[k] = v
				}
				continue
			}
			if field, ok := m.Fields[name]; ok {
				v, found = field, true
				break
			}
		}
		if name != "*" && (found || sc.vars[as] == nil) {
			sc.vars[as] = v
		}
	}
}
