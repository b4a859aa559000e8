package interpret

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/muster-sched/muster/semantic/python"
)

// arguments are what a call passes.
type arguments struct {
	place []*Value
	named map[string]*Value
	keys  []string
}

// callExpr follows a call.
func (r *run) callExpr(sc *scope, e *python.Expr) *Value {
	if e.Of.Kind == python.Name && e.Of.Text == "lambda" {
		return &Value{Kind: Function, Text: "lambda", code: &code{lambda: e}, env: sc, file: sc.file}
	}
	if e.Of.Kind == python.Name && e.Of.Text == "super" || e.Of.Kind == python.Name && strings.HasPrefix(e.Of.Text, "super.") {
		return nil
	}
	if m := e.Of; m.Kind == python.Member && m.Of.Kind == python.Call && m.Of.Callee() == "super" {
		return r.super(sc, m.Text, r.arguments(sc, e))
	}
	// What is called is known before its arguments, so that the updates of a loop are noted in their order.
	var self *Value
	name := ""
	switch e.Of.Kind {
	case python.Name:
		if before, after, ok := cutLast(e.Of.Text); ok {
			self, name = r.name(sc, before), after
		} else {
			name = e.Of.Text
		}
	case python.Member:
		self, name = r.eval(sc, e.Of.Of), e.Of.Text
	}
	a := r.arguments(sc, e)
	if v, done := r.method(sc, self, name, e, a); done {
		return v
	}
	var f *Value
	switch {
	case self != nil:
		f = r.attribute(sc, self, name)
		if f != nil && f.Kind == Function && (self.Kind == Object || self.Kind == Class) && f.self == nil && slices.Contains(f.Keys, "classmethod") {
			bound := *f
			bound.self = self
			if self.Kind == Object {
				bound.self = self.Of
			}
			f = &bound
		}
	case e.Of.Kind == python.Name:
		f = r.name(sc, e.Of.Text)
	case e.Of.Kind != python.Member:
		f = r.eval(sc, e.Of)
	}
	if f == nil {
		r.unknownCall(sc, e, self, name, a)
		return nil
	}
	r.update(sc, e, f, self, name, a)
	v := r.call(f, a.place, a.named)
	if v != nil && v.From.At == "" && v.Kind == Object {
		v.From = r.at(sc, e)
	}
	return v
}

// update notes a call that updates a model.
func (r *run) update(sc *scope, e *python.Expr, f, self *Value, name string, a arguments) {
	if f != nil && f.Kind == Function && f.file != nil {
		return
	}
	by := self
	switch {
	case name == "run": // of a session of TensorFlow
		if by = r.minimized(a.place, 0); by == nil {
			return
		}
	case name == "fit" || name == "fit_generator": // once for each pass
		if n, ok := a.epochs().Float(); self == nil || len(r.loops) == 0 || ok && n > 1 {
			return
		}
	case !updates.MatchString(name):
		return
	case name == "step" && (self != nil && !optimizes(self) || self == nil && !strings.Contains(strings.ToLower(e.Callee()), "opt")):
		return
	}
	if len(r.trace.Updates) < 100 {
		r.trace.Updates = append(r.trace.Updates, Update{slices.Clone(r.loops), by, name, fmt.Sprintf("%s:%d", sc.file.name, e.Line)})
	}
}

// epochs is how many passes a call of fit makes, if it says that.
func (a arguments) epochs() *Value {
	if v := a.named["nb_epoch"]; v != nil {
		return v
	}
	return a.named["epochs"]
}

// minimized returns what an optimizer minimizes among values and what these are made of, or nil.
func (r *run) minimized(all []*Value, depth int) *Value {
	for _, v := range all[:min(len(all), 16)] {
		switch {
		case v == nil || depth > 4 || r.spent():
		case v.Kind == Object && (v.Text == "minimize" || v.Text == "apply_gradients"):
			return v
		case v.Kind == List || v.Kind == Object && !v.Folder():
			if m := r.minimized(append(slices.Clip(v.Items), v.Of), depth+1); m != nil {
				return m
			}
		}
	}
	return nil
}

// updates are methods that change the weights of a model, or compute how.
var updates = regexp.MustCompile(`^(backward|apply_updates|apply_gradients|apply_gradient|manual_backward|optimizer_step|step|train_step|train_on_batch|minimize)$`)

// optimizes is whether an object is an optimizer.
func optimizes(v *Value) bool {
	return v != nil && v.Kind == Object && optimizer.MatchString(strings.ToLower(v.Maker()))
}

var optimizer = regexp.MustCompile(`optim|adam|sgd|lamb|lars|rmsprop|adagrad|lion|muon|adafactor`)

// unknownCall follows functions that something unknown is given.
func (r *run) unknownCall(sc *scope, e *python.Expr, self *Value, name string, a arguments) {
	r.update(sc, e, nil, self, name, a)
	for _, v := range a.place {
		if v != nil && v.Kind == Function && v.code.lambda == nil {
			r.call(v, nil, nil)
		}
	}
}

// arguments evaluates what a call passes.
func (r *run) arguments(sc *scope, e *python.Expr) arguments {
	var a arguments
	for i := range e.Args {
		arg := &e.Args[i]
		if arg.Kind == python.Unknown && arg.Text == "*" && len(arg.Args) == 1 {
			if all := r.eval(sc, &arg.Args[0]); all != nil && all.Kind == List {
				a.place = joined(a.place, all.Items).Items
			}
			continue
		}
		a.place = append(a.place, r.eval(sc, arg))
	}
	set := func(k string, v *Value) {
		if a.named == nil {
			a.named = map[string]*Value{}
		}
		if _, ok := a.named[k]; !ok {
			a.keys = append(a.keys, k)
		}
		a.named[k] = v
	}
	for i, k := range e.Keys {
		v := r.eval(sc, &e.Named[i])
		if k != "**" {
			set(k, v)
			continue
		}
		if v != nil && v.Kind != List && !r.costs(len(v.Keys)) {
			for _, k := range v.Keys {
				set(k, v.Fields[k])
			}
			if len(v.Keys) == 0 {
				set("**", v)
			}
		}
	}
	return a
}

// call calls a function, makes an object of a class, or notes that something outside of the folder is called.
func (r *run) call(f *Value, place []*Value, named map[string]*Value) *Value {
	if f == nil || r.spent() {
		return nil
	}
	switch f.Kind {
	case Function:
		return r.function(f, place, named)
	case Class:
		return r.object(f, place, named)
	case External:
		o := made(f, place, named)
		return r.outside(f.Text, o)
	case Object:
		if f.Of != nil && f.Of.Kind == Class {
			if m := member(f.Of, "__call__"); m != nil && m.Kind == Function && !isModule(f.Of) {
				bound := *m
				bound.self = f
				return r.function(&bound, place, named)
			}
		}
		return r.outside(f.Text, made(f, place, named))
	}
	return nil
}

// isModule is whether a class is one of networks, whose calls only compute.
func isModule(c *Value) bool {
	return based(c, func(b *Value) bool { return b.Kind == External && last(b.Text) == "Module" })
}

func made(by *Value, place []*Value, named map[string]*Value) *Value {
	o := &Value{Kind: Object, Of: by, Items: place}
	if by.Kind == Object {
		o.Text = by.Text
		o.Of = by
	}
	for k, v := range named {
		if o.Fields == nil {
			o.Fields = map[string]*Value{}
		}
		o.Fields[k] = v
	}
	return o
}

// gives are functions outside of the folder that give what they are given, or what does the same.
var gives = map[string]bool{"partial": true, "jit": true, "compile": true, "pmap": true, "vmap": true, "value_and_grad": true, "grad": true, "script": true, "wraps": true, "deepcopy": true, "copy": true, "filter_jit": true,
	"filter_value_and_grad": true, "remat": true, "checkpoint": true, "cast": true, "to_container": true, "freeze": true, "unfreeze": true, "Path": true, "str": true, "DataParallel": true, "DistributedDataParallel": true, "DDP": true,
	"expanduser": true, "abspath": true, "realpath": true, "int": true, "float": true, "convert_sync_batchnorm": true, "edict": true, "EasyDict": true, "DictConfig": true, "AttrDict": true, "from_dict": true, "ConfigDict": true, "vars": true, "function": true, "PurePath": true, "as_posix": true, "eval": true, "literal_eval": true, "normpath": true, "asdict": true, "module_from_spec": true}

// outside returns what a call of something outside of the folder gives.
func (r *run) outside(name string, o *Value) *Value {
	short := last(name)
	arg := func(i int, key string) *Value {
		if v, ok := o.Fields[key]; ok {
			return v
		}
		if i < len(o.Items) {
			return o.Items[i]
		}
		return nil
	}
	switch short {
	case "getattr":
		if of, k := arg(0, ""), arg(1, ""); k != nil && k.Kind == String {
			if v := r.attribute(nil, of, k.Text); v != nil && (v.Kind != Object || v.Of != of) {
				return v
			}
			if of != nil && of.Kind == External {
				return &Value{Kind: External, Text: of.Text + "." + k.Text, From: k.From}
			}
			return arg(2, "")
		}
		return nil
	case "setattr":
		if of, k := arg(0, ""), arg(1, ""); of != nil && k != nil && k.Kind == String {
			r.setField(of, k.Text, arg(2, ""))
		}
		return nil
	case "hasattr":
		if of, k := arg(0, ""), arg(1, ""); of != nil && k != nil {
			if _, ok := of.Fields[k.Text]; ok {
				return boolean(true)
			}
			if of.Kind == Object && of.Of != nil && isSpace[last(of.Of.Text)] {
				return boolean(false)
			}
		}
		return nil
	case "isinstance", "issubclass", "callable", "print", "exists", "isfile", "isdir", "is_initialized", "get_rank", "format_exc", "super", "is_main_process", "any", "all", "id", "hash", "abs", "round":
		if v := arg(0, ""); short == "round" && v != nil && v.Kind == Number {
			return v
		}
		return nil
	case "is_available":
		if strings.Contains(name, "cuda") { // a job of a cluster has a GPU
			return boolean(true)
		}
		return nil
	case "getenv", "get":
		if short == "get" && name != "os.environ.get" {
			return o
		}
		if k := arg(0, "key"); k != nil {
			if v := r.host.Environment(k.Text); v != nil {
				return v
			}
		}
		return arg(1, "default")
	case "globals", "locals":
		return nil
	case "type":
		if v := arg(0, ""); v != nil && v.Kind == Object {
			return v.Of
		}
		return nil
	case "join":
		if strings.Contains(name, "path") && len(o.Items) > 0 {
			v := &Value{Kind: String}
			for i, p := range o.Items {
				if len(v.Text) > maxText {
					return nil
				}
				if i > 0 && p != nil && p.Kind == String && strings.HasPrefix(p.Text, "/") {
					v = &Value{Kind: String}
				} else if i > 0 {
					v.Text = strings.TrimSuffix(v.Text, "/") + "/"
				}
				fillIn(v, p)
			}
			return v
		}
	case "dirname", "basename", "splitext":
		if v := arg(0, ""); v != nil && v.Kind == String && short == "basename" {
			w := *v
			w.Text = w.Text[strings.LastIndexByte(w.Text, '/')+1:]
			return &w
		} else if v != nil && v.Kind == String && short == "dirname" {
			if i := strings.LastIndexByte(v.Text, '/'); i > 0 {
				w := *v
				w.Text = w.Text[:i]
				return &w
			}
		}
		return nil
	case "dict", "Namespace", "SimpleNamespace", "Munch", "OmegaConf.create":
		v := &Value{Kind: Dict, Fields: map[string]*Value{}}
		if short == "Namespace" || short == "SimpleNamespace" {
			v.Kind, v.Of = Object, o.Of
		}
		if first := arg(0, ""); first != nil && first.Kind == Dict && !r.costs(len(first.Keys)) {
			for _, k := range first.Keys {
				v.put(k, first.Fields[k])
			}
		}
		for _, k := range sorted(o.Fields) {
			if k == "**" {
				continue
			}
			v.put(k, o.Fields[k])
		}
		return v
	case "create":
		if strings.Contains(name, "OmegaConf") {
			return arg(0, "")
		}
	case "tuple", "list", "sorted", "set":
		if v := arg(0, ""); v != nil && v.Kind == List {
			return r.listed(short, v, o)
		}
		if v := arg(0, ""); v != nil && v.Kind == Dict && !r.costs(len(v.Keys)) {
			all := &Value{Kind: List}
			for _, k := range v.Keys {
				all.Items = append(all.Items, text(k))
			}
			return all
		}
	case "len":
		if v := arg(0, ""); v != nil {
			switch v.Kind {
			case List:
				if v.open {
					return nil
				}
				return &Value{Kind: Number, Text: fmt.Sprint(len(v.Items))}
			case Dict:
				return &Value{Kind: Number, Text: fmt.Sprint(len(v.Keys))}
			case Object:
				return o
			}
		}
		return nil
	case "max", "min":
		best, ok := 0.0, false
		var from *Value
		all := o.Items
		if len(all) == 1 && all[0] != nil && all[0].Kind == List {
			all = all[0].Items
		}
		for _, i := range all {
			n, is := i.Float()
			if !is {
				return nil
			}
			if !ok || (n > best) == (short == "max") {
				best, ok, from = n, true, i
			}
		}
		return from
	case "import_module", "__import__":
		if k := arg(0, "name"); k != nil && k.Kind == String && !strings.Contains(k.Text, "$") {
			if files := r.host.Import(&python.Statement{Kind: python.Import, Module: k.Text}, ""); len(files) > 0 {
				return r.module(files[len(files)-1], false)
			}
			return &Value{Kind: External, Text: k.Text, From: k.From}
		}
		return nil
	case "load_all", "safe_load_all":
		if c := r.config(o, 0); c != nil {
			return &Value{Kind: List, Items: []*Value{c}}
		}
	case "spec_from_file_location": // a module by its path
		if p := arg(1, "location"); p != nil && p.Kind == String {
			if m := r.module(p.Text, false); m != nil {
				return m
			}
		}
	case "load", "loads", "safe_load", "full_load", "load_config", "YAML", "fromfile", "from_file", "load_yaml", "unsafe_load":
		if c := r.config(o, 0); c != nil {
			return c
		}
	case "parse_args_into_dataclasses":
		if of := parser(o); of != nil {
			all := &Value{Kind: List}
			for _, c := range dataclasses(first(of)) {
				all.Items = append(all.Items, r.optioned(c))
			}
			return all
		}
	case "cli", "ArgumentParser", "HfArgumentParser", "TrlParser":
		if c := arg(0, ""); short == "cli" && c != nil {
			switch c.Kind {
			case Class:
				return r.optioned(c)
			case Function:
				return r.optionedCall(c)
			}
		}
	case "Fire", "command", "run", "entry":
		if f := arg(0, ""); f != nil && f.Kind == Function {
			if short == "Fire" {
				return r.optionedCall(f)
			}
			return r.call(f, nil, nil)
		}
	case "spawn":
		if f := arg(0, "fn"); f != nil && f.Kind == Function {
			place := []*Value{nil}
			if a := arg(1, "args"); a != nil && a.Kind == List {
				place = append(place, a.Items...)
			}
			return r.call(f, place, nil)
		}
	case "Process", "Thread":
		if f := o.Fields["target"]; f != nil && f.Kind == Function {
			var place []*Value
			if a := o.Fields["args"]; a != nil && a.Kind == List {
				place = a.Items
			}
			return r.call(f, place, nil)
		}
	case "scan", "fori_loop":
		f, l := arg(0, ""), &Loop{Var: "scan", At: "scan"}
		if short == "fori_loop" {
			f, l.Bound = arg(2, ""), arg(1, "")
			l.Text = &python.Expr{}
		} else if l.Bound = arg(3, "length"); l.Bound == nil {
			l.Over, l.Data = arg(2, ""), true
		} else {
			l.Text = &python.Expr{}
		}
		if f != nil && f.Kind == Function {
			r.loops = append(slices.Clip(r.loops), l)
			r.call(f, nil, nil)
			r.loops = r.loops[:len(r.loops)-1]
		}
		return nil
	case "build_from_cfg":
		cfg, reg := arg(0, "cfg"), arg(1, "registry")
		return r.build(reg, cfg, o)
	}
	if gives[short] {
		v := arg(0, "")
		if v == nil {
			for _, k := range sorted(o.Fields) {
				v = o.Fields[k]
				break
			}
		}
		if v != nil && (short == "int" || short == "float") && v.Kind != Number {
			if v.Kind == String {
				if p := parsed(v.Text); p.Kind == Number {
					p.From = v.From
					return p
				}
			}
			if v.Kind != Object {
				return nil
			}
		}
		if n, ok := v.Float(); ok && short == "int" {
			return &Value{Kind: Number, Text: format(math.Trunc(n)), From: v.From}
		}
		if v != nil {
			return v
		}
		return o
	}
	given := slices.Clone(o.Items)
	var settings []*Value
	for _, k := range sorted(o.Fields) {
		given = append(given, o.Fields[k])
		if v := o.Fields[k]; v != nil && v.Kind == Dict {
			settings = []*Value{v}
		}
	}
	for _, v := range given { // what it is given to call, with its settings
		if v != nil && v.Kind == Function && v.code.lambda == nil && !r.trace.Reached[v.code.s] {
			r.call(v, settings, nil)
		}
	}
	return o
}

// listed returns a copy of a list: sorted as far as its items are numbers or texts, or each once.
func (r *run) listed(by string, v, o *Value) *Value {
	all := &Value{Kind: List, Items: slices.Clone(v.Items), open: v.open}
	r.costs(len(all.Items))
	switch {
	case by == "set":
		seen := map[string]bool{}
		all.Items = slices.DeleteFunc(all.Items, func(i *Value) bool {
			if !i.Scalar() {
				return false
			}
			k := string(rune(i.Kind)) + i.Text
			again := seen[k]
			seen[k] = true
			return again
		})
	case by == "sorted" && len(o.Fields) == 0:
		slices.SortStableFunc(all.Items, func(a, b *Value) int {
			m, ok := a.Float()
			n, is := b.Float()
			switch {
			case ok && is:
				return cmp.Compare(m, n)
			case a != nil && b != nil && a.Kind == String && b.Kind == String:
				return strings.Compare(a.Text, b.Text)
			}
			return 0
		})
	}
	return all
}

func sorted(m map[string]*Value) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// parser returns the object whose method an object is the result of, if that was made with classes.
func parser(o *Value) *Value {
	for n := 0; o != nil && n < 5; n++ {
		if m := last(o.Maker()); o.Of != nil && o.Of.Kind == External && (strings.HasSuffix(m, "Parser")) {
			return o
		}
		o = o.Of
	}
	return nil
}

func dataclasses(v *Value) []*Value {
	if v == nil {
		return nil
	}
	if v.Kind == Class || v.Kind == External {
		return []*Value{v}
	}
	return v.Items
}

// optioned returns an object of a class whose fields are options.
func (r *run) optioned(c *Value) *Value {
	if c == nil || c.Kind != Class {
		return nil
	}
	o := r.object(c, nil, nil)
	if o == nil {
		return nil
	}
	for k, d := range o.Fields {
		if v := r.host.Option(k); v != nil {
			o.Fields[k] = v
		} else if d.Scalar() {
			d := *d
			d.From.Key, d.From.Rank = k, Declared
			o.Fields[k] = &d
		}
	}
	return o
}

// optionedCall calls a function whose parameters are options.
func (r *run) optionedCall(f *Value) *Value {
	named := map[string]*Value{}
	if f.code.s != nil {
		for _, p := range f.code.s.Params {
			if v := r.host.Option(p.Name); v != nil {
				named[p.Name] = v
			}
		}
	}
	return r.call(f, nil, named)
}

// config returns the configuration that a call reads: yaml.safe_load(open("a.yaml")).
func (r *run) config(v *Value, depth int) *Value {
	if v == nil || depth > 4 || r.spent() {
		return nil
	}
	if v.Kind == String {
		if r.costs(maxWork / 100) { // to read a file takes long
			return nil
		}
		return r.host.Config(v.Text, "")
	}
	for _, i := range v.Items[:min(len(v.Items), 4)] {
		if c := r.config(i, depth+1); c != nil {
			return c
		}
	}
	if v.Of != nil && v.Kind == Object && v.Of.Kind == Object {
		return r.config(v.Of, depth+1)
	}
	return nil
}

// build makes what a registry has under the type that a section says.
func (r *run) build(reg, cfg *Value, o *Value) *Value {
	if cfg == nil {
		return o
	}
	kind := cfg.Fields["type"]
	if kind == nil {
		kind = cfg.Fields["name"]
	}
	if kind == nil || kind.Kind != String {
		return o
	}
	var c *Value
	if reg != nil {
		c = reg.Fields[kind.Text]
	}
	if c == nil {
		return o
	}
	named := map[string]*Value{}
	r.costs(len(cfg.Fields))
	for k, v := range cfg.Fields {
		if k != "type" {
			named[k] = v
		}
	}
	return r.call(c, nil, named)
}

// function calls a function of the folder.
func (r *run) function(f *Value, place []*Value, named map[string]*Value) *Value {
	if f.code.lambda != nil {
		sc := &scope{vars: map[string]*Value{}, outer: f.env, file: f.file, self: f.env.self, class: f.env.class}
		for i, p := range strings.Fields(f.code.lambda.Text) {
			if i < len(place) {
				sc.vars[p] = place[i]
			} else {
				sc.vars[p] = named[p]
			}
		}
		return r.eval(sc, &f.code.lambda.Args[0])
	}
	s := f.code.s
	times := 0
	for _, c := range r.calling {
		if c == s {
			times++
		}
	}
	if times > 1 || len(r.calling) > maxDepth {
		return nil
	}
	r.trace.Reached[s] = true
	sc := &scope{vars: map[string]*Value{}, outer: f.env, file: f.file, self: f.self, class: f.code.class}
	if f.self != nil {
		place = append([]*Value{f.self}, place...)
	}
	used := map[string]bool{}
	for i := range s.Params {
		p := &s.Params[i]
		switch {
		case p.Stars == 1:
			all := &Value{Kind: List}
			if i < len(place) {
				all.Items = place[i:]
				place = place[:i]
			}
			sc.vars[p.Name] = all
		case p.Stars == 2:
			all := &Value{Kind: Dict, Fields: map[string]*Value{}}
			for _, k := range sorted(named) {
				if !used[k] {
					all.put(k, named[k])
				}
			}
			sc.vars[p.Name] = all
		case i < len(place):
			sc.vars[p.Name] = place[i]
		default:
			if v, ok := named[p.Name]; ok {
				sc.vars[p.Name] = v
				used[p.Name] = true
			} else if p.Default.Kind != python.Unknown {
				sc.vars[p.Name] = r.eval(f.env, &p.Default)
			} else {
				sc.vars[p.Name] = nil
				if v := r.known(p.Name, f.file.name); v != nil && v.From.Rank > 0 {
					sc.vars[p.Name] = v
				}
			}
		}
	}
	r.calling = append(r.calling, s)
	unsure := r.unsure
	r.unsure = 0
	how, v := r.block(sc, f.code.start, f.code.end)
	if v.Folder() && v.Given == "" {
		v.Given = f.Text
	}
	r.unsure = unsure
	r.calling = r.calling[:len(r.calling)-1]
	if how == returns && v != nil && (v.Kind != None || len(sc.result) == 0) || len(sc.result) == 0 {
		if how == returns && len(sc.result) > 0 {
			for _, o := range sc.result {
				if o != nil && o.Kind != None && !alike(o, v) && v.Scalar() {
					return nil
				}
			}
		}
		return v
	}
	var all *Value
	for _, o := range sc.result {
		switch {
		case o == nil || o.Kind == None:
		case all == nil:
			all = o
		case !alike(all, o):
			return nil
		}
	}
	return all
}

// object makes an object of a class of the folder.
func (r *run) object(c *Value, place []*Value, named map[string]*Value) *Value {
	o := &Value{Kind: Object, Of: c, Text: c.Text, Items: place, Fields: map[string]*Value{}}
	r.costs(len(c.Fields) + 4*len(named))
	var names []string // of fields, those of bases first
	seen := map[string]bool{}
	init := member(c, "__init__")
	chain := []*Value{}
	based(c, func(b *Value) bool { chain = append(chain, b); return false })
	slices.Reverse(chain)
	for _, b := range chain {
		if b.Kind == Class && !r.costs(len(b.Keys)) {
			for _, k := range b.Keys {
				if !seen[k] {
					seen[k] = true
					names = append(names, k)
				}
				if v := b.Fields[k]; v != nil && v.Kind != Function {
					o.put(k, r.defaultOf(v))
				}
			}
		}
	}
	if init != nil && init.Kind == Function {
		bound := *init
		bound.self = o
		r.function(&bound, place, named)
	} else {
		for i, v := range place {
			if i < len(names) {
				o.put(names[i], v)
			}
		}
		for _, k := range sorted(named) {
			o.put(k, named[k])
		}
		if post := member(c, "__post_init__"); post != nil && post.Kind == Function {
			bound := *post
			bound.self = o
			r.function(&bound, nil, nil)
		}
	}
	for _, k := range sorted(named) { // to know what it was made of
		if _, ok := o.Fields[k]; !ok {
			o.put(k, named[k])
		}
	}
	return o
}

// defaultOf returns the default of a field: that of field(default=3), else the value itself.
func (r *run) defaultOf(v *Value) *Value {
	if v.Kind != Object {
		return v
	}
	switch last(v.Maker()) {
	case "field", "Field", "ib", "attrib":
		if d, ok := v.Fields["default"]; ok {
			return d
		}
		if d := v.Fields["default_factory"]; d != nil {
			return r.call(d, nil, nil)
		}
		return first(v)
	}
	return v
}

// super calls a method of what the class is based on.
func (r *run) super(sc *scope, name string, a arguments) *Value {
	c := sc.class
	if c == nil || sc.self == nil {
		return nil
	}
	for _, b := range c.base {
		if b == nil || b.Kind != Class {
			continue
		}
		if m := member(b, name); m != nil && m.Kind == Function {
			bound := *m
			bound.self = sc.self
			return r.function(&bound, a.place, a.named)
		}
	}
	if name == "__init__" && len(sc.self.Items) == 0 {
		sc.self.Items = a.place
	}
	return nil
}
