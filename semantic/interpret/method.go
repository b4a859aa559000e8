package interpret

import (
	"slices"
	"strings"

	"github.com/muster-sched/muster/semantic/python"
)

// method follows the methods of what Python and its libraries have: of parsers of options, dicts, lists and texts. It returns false for others.
func (r *run) method(sc *scope, self *Value, name string, e *python.Expr, a arguments) (*Value, bool) {
	if self == nil {
		return nil, false
	}
	arg := func(i int) *Value {
		if i < len(a.place) {
			return a.place[i]
		}
		return nil
	}
	switch name {
	case "add_argument", "add_option":
		if self.Kind == Object && !self.Folder() {
			if p := holder(self); p != nil {
				r.declare(sc, p, e, a)
			}
			return nil, true
		}
	case "add_argument_group", "add_mutually_exclusive_group", "add_subparsers", "add_parser":
		if p := holder(self); p != nil {
			return self, true
		}
	case "__setattr__", "__setitem__":
		if k := arg(0); k != nil && k.Kind == String {
			r.setField(self, k.Text, arg(1))
		}
		return nil, true
	case "set_defaults":
		if p := holder(self); p != nil {
			for _, k := range a.keys {
				if r.costs(len(p.held)) {
					break
				}
				for _, o := range p.held {
					if o.dest == k {
						o.def = a.named[k]
					}
				}
			}
			return nil, true
		}
	case "parse_args", "parse_known_args", "parse_intermixed_args":
		if p := holder(self); p != nil {
			v := r.options(p)
			if name == "parse_known_args" {
				v = &Value{Kind: List, Items: []*Value{v, nil}}
			}
			return v, true
		}
	}
	switch self.Kind {
	case Module: // as what it has by name
		if r.costs(len(self.Fields)) {
			return nil, true
		}
		return r.ofDict(&Value{Kind: Dict, Keys: sorted(self.Fields), Fields: self.Fields}, name, a, arg)
	case Dict:
		return r.ofDict(self, name, a, arg)
	case Object:
		if self.Of != nil && isSpace[last(self.Of.Text)] {
			switch name {
			case "update":
				return r.ofDict(self, name, a, arg)
			}
		}
		if self.Folder() && member(self.Of, name) == nil && len(self.Fields) > 0 && based(self.Of, func(c *Value) bool { return c.Text == "dict" }) {
			return r.ofDict(self, name, a, arg)
		}
	case List:
		switch name {
		case "append", "extend", "insert":
			self.open = self.open || len(self.Items) == maxList || r.unsure > 0 || slices.ContainsFunc(r.loops, func(l *Loop) bool { return !l.Listed() })
			v := arg(len(a.place) - 1)
			if name == "extend" && v != nil && v.Kind == List {
				self.Items = joined(self.Items, v.Items).Items
			} else if len(self.Items) < maxList {
				self.Items = append(self.Items, v)
			}
			return nil, true
		case "index", "count", "sort", "pop", "remove", "clear":
			self.open = self.open || name != "index" && name != "count" && name != "sort"
			return nil, true
		}
	case String:
		return r.ofText(self, name, a, arg)
	}
	return nil, false
}

func (r *run) ofDict(self *Value, name string, a arguments, arg func(int) *Value) (*Value, bool) {
	switch name {
	case "items", "keys", "values", "update", "merge_with", "merge_from_dict", "copy", "to_dict", "toDict":
		n := len(self.Keys)
		if o := arg(0); o != nil {
			n += len(o.Keys)
		}
		if r.costs(n) {
			return nil, true
		}
	}
	switch name {
	case "get", "pop", "setdefault":
		if k := arg(0); k != nil && (k.Kind == String || k.Kind == Number) {
			if v, ok := self.Fields[k.Text]; ok {
				return v, true
			}
			if name == "setdefault" {
				self.put(k.Text, arg(1))
			}
			if len(a.place) > 1 {
				return arg(1), true
			}
			return &Value{}, true
		}
		return nil, true
	case "items":
		all := &Value{Kind: List}
		for _, k := range self.Keys {
			all.Items = append(all.Items, &Value{Kind: List, Items: []*Value{text(k), self.Fields[k]}})
		}
		return all, true
	case "keys", "values":
		all := &Value{Kind: List}
		for _, k := range self.Keys {
			if name == "keys" {
				all.Items = append(all.Items, text(k))
			} else {
				all.Items = append(all.Items, self.Fields[k])
			}
		}
		return all, true
	case "update", "merge_with", "merge_from_dict":
		if o := arg(0); o != nil {
			for _, k := range o.Keys {
				r.setField(self, k, o.Fields[k])
			}
		}
		for _, k := range a.keys {
			r.setField(self, k, a.named[k])
		}
		return nil, true
	case "copy", "to_dict", "toDict":
		v := &Value{Kind: Dict, Fields: map[string]*Value{}}
		for _, k := range self.Keys {
			v.put(k, self.Fields[k])
		}
		return v, true
	}
	return nil, false
}

func (r *run) ofText(self *Value, name string, a arguments, arg func(int) *Value) (*Value, bool) {
	if r.costs(len(self.Text) / textStep) {
		return nil, true
	}
	v := *self
	switch name {
	case "lower":
		v.Text = strings.ToLower(v.Text)
	case "upper":
		v.Text = strings.ToUpper(v.Text)
	case "strip", "rstrip", "lstrip", "expanduser", "resolve", "absolute", "encode", "as_posix":
		if name == "rstrip" && arg(0) != nil {
			v.Text = strings.TrimRight(v.Text, arg(0).Text)
		}
	case "joinpath":
		for _, p := range a.place {
			if len(v.Text) > maxText {
				return nil, true
			}
			v.Text = strings.TrimSuffix(v.Text, "/") + "/"
			fillIn(&v, p)
		}
	case "replace":
		if x, y := arg(0), arg(1); x != nil && y != nil && x.Text != "" && len(v.Text) < maxText {
			if n := strings.Count(v.Text, x.Text); len(v.Text)+n*(len(y.Text)-len(x.Text)) > maxText {
				return nil, true
			}
			v.Text = strings.ReplaceAll(v.Text, x.Text, y.Text)
		}
	case "split", "rsplit":
		all := &Value{Kind: List}
		parts := strings.Fields(v.Text)
		if sep := arg(0); sep != nil && sep.Kind == String && sep.Text != "" {
			parts = strings.Split(v.Text, sep.Text)
		}
		if r.costs(len(parts)) {
			return nil, true
		}
		for _, p := range parts {
			w := *self
			w.Text = p
			all.Items = append(all.Items, &w)
		}
		return all, true
	case "join":
		if l := arg(0); l != nil && l.Kind == List {
			out := &Value{Kind: String}
			for i, p := range l.Items {
				if len(out.Text) > maxText {
					return nil, true
				}
				if i > 0 {
					out.Text += self.Text
				}
				fillIn(out, p)
			}
			return out, true
		}
		return nil, true
	case "startswith", "endswith":
		p := arg(0)
		if p == nil || p.Kind != String || strings.Contains(self.Text, "$") {
			return nil, true
		}
		if name == "startswith" {
			return boolean(strings.HasPrefix(self.Text, p.Text)), true
		}
		return boolean(strings.HasSuffix(self.Text, p.Text)), true
	case "format":
		out := &Value{Kind: String, From: self.From}
		rest, n := self.Text, 0
		for {
			before, after, ok := strings.Cut(rest, "{")
			out.Text += before
			if !ok || len(out.Text) > maxText {
				return out, true
			}
			field, next, ok := strings.Cut(after, "}")
			if !ok {
				return out, true
			}
			field, _, _ = strings.Cut(field, ":")
			first, more, dotted := strings.Cut(field, ".")
			var of *Value
			if named, ok := a.named[first]; ok {
				of = named
			} else {
				if i, ok := number(first); ok {
					n = int(i)
				}
				of = arg(n)
				n++
			}
			if dotted {
				of = r.attribute(nil, of, more)
			}
			fillIn(out, of)
			rest = next
		}
	default:
		return nil, false
	}
	return &v, true
}

// holder returns the parser to which options are added: itself, or that of which a group is.
func holder(v *Value) *Value {
	if v == nil || v.Kind != Object || v.Folder() && !based(v.Of, func(c *Value) bool { return strings.HasSuffix(c.Text, "ArgumentParser") }) {
		return nil
	}
	m := last(v.Maker())
	if strings.HasSuffix(m, "Parser") || strings.HasSuffix(m, "ArgParser") || v.Folder() {
		return v
	}
	return nil
}

// declare notes an option.
func (r *run) declare(sc *scope, p *Value, e *python.Expr, a arguments) {
	o := &options{}
	for _, n := range a.place {
		if n == nil || n.Kind != String {
			return
		}
		if t := strings.TrimLeft(n.Text, "-"); strings.HasPrefix(n.Text, "--") || o.dest == "" || !strings.HasPrefix(n.Text, "-") {
			if o.dest == "" || len(o.dest) == 1 {
				o.dest = strings.ReplaceAll(t, "-", "_")
			}
		}
	}
	if d := a.named["dest"]; d != nil && d.Kind == String {
		o.dest = d.Text
	}
	if act := a.named["action"]; act != nil && act.Kind == String {
		switch act.Text {
		case "store_true":
			o.def = boolean(false)
		case "store_false":
			o.def = boolean(true)
		}
	}
	if o.def == nil {
		o.def = &Value{}
	}
	if d, ok := a.named["default"]; ok {
		o.def = d
		if d != nil {
			c := *d
			c.From.At = r.at(sc, e).At
			o.def = &c
		}
	}
	if len(p.held) < 2000 && o.dest != "" {
		p.held = append(p.held, o)
	}
}

// options returns what the options of a parser are, by the command or their defaults.
func (r *run) options(p *Value) *Value {
	v := &Value{Kind: Object, Of: &Value{Kind: External, Text: "argparse.Namespace"}, Fields: map[string]*Value{}}
	if r.costs(len(p.held)) {
		return nil
	}
	for _, o := range p.held {
		if said := r.host.Option(o.dest); said != nil {
			v.put(o.dest, said)
			continue
		}
		d := o.def
		if d != nil {
			c := *d
			c.From.Key = o.dest
			c.From.Rank = max(c.From.Rank, Declared)
			d = &c
		}
		v.put(o.dest, d)
	}
	return v
}

// builtins are functions of Python.
var builtins = map[string]bool{"range": true, "len": true, "enumerate": true, "zip": true, "list": true, "dict": true, "tuple": true, "set": true, "int": true, "float": true, "str": true, "max": true, "min": true,
	"getattr": true, "setattr": true, "hasattr": true, "isinstance": true, "open": true, "print": true, "vars": true, "iter": true, "next": true, "sorted": true, "reversed": true, "type": true, "eval": true,
	"globals": true, "map": true, "filter": true, "sum": true, "round": true, "any": true, "all": true, "bool": true, "object": true, "__import__": true, "super": true, "abs": true, "callable": true, "issubclass": true}
