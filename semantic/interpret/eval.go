package interpret

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/semantic/python"
)

// eval returns what an expression means, and notes it.
func (r *run) eval(sc *scope, e *python.Expr) *Value {
	if e == nil || r.spent() || r.depth > maxDepth*3 {
		return nil
	}
	r.depth++
	v := r.value(sc, e)
	r.depth--
	if v != nil && v.Kind == String && r.costs(len(v.Text)/textStep) {
		return nil
	}
	if v != nil && r.trace.Values[e] == nil {
		r.trace.Values[e] = v
	}
	return v
}

func (r *run) value(sc *scope, e *python.Expr) *Value {
	switch e.Kind {
	case python.String:
		return &Value{Kind: String, Text: e.Text, From: r.at(sc, e)}
	case python.Format:
		return r.fill(sc, e)
	case python.Number:
		return &Value{Kind: Number, Text: e.Text, From: r.at(sc, e)}
	case python.Bool:
		return boolean(e.Text == "True")
	case python.None:
		return &Value{}
	case python.Name:
		return r.name(sc, e.Text)
	case python.Member:
		return r.attribute(sc, r.eval(sc, e.Of), e.Text)
	case python.List:
		v := &Value{Kind: List}
		for i := range e.Args {
			item := r.eval(sc, &e.Args[i])
			if e.Args[i].Text == "*" && e.Args[i].Kind == python.Unknown && len(e.Args[i].Args) == 1 {
				if all := r.eval(sc, &e.Args[i].Args[0]); all != nil && all.Kind == List {
					v = joined(v.Items, all.Items)
					continue
				}
			}
			v.Items = append(v.Items, item)
		}
		return v
	case python.Dict:
		v := &Value{Kind: Dict, Fields: map[string]*Value{}}
		for i, k := range e.Keys {
			item := r.eval(sc, &e.Named[i])
			if k == "**" {
				if item != nil && !r.costs(len(item.Keys)) {
					for _, k := range item.Keys {
						v.put(k, item.Fields[k])
					}
				}
				continue
			}
			v.put(k, item)
		}
		return v
	case python.Each:
		over := r.eval(sc, &e.Args[2])
		inner := &scope{vars: map[string]*Value{}, outer: sc, file: sc.file, self: sc.self, class: sc.class}
		v := &Value{Kind: List}
		if over != nil && (over.Kind == List || over.Kind == Dict) {
			items := over.Items
			for _, k := range over.Keys[:min(len(over.Keys), maxItems)] {
				if over.Kind == Dict {
					items = append(items, text(k))
				}
			}
			for _, item := range items[:min(len(items), maxItems)] {
				r.assign(inner, &e.Args[1], item)
				v.Items = append(v.Items, r.eval(inner, &e.Args[0]))
			}
			return v
		}
		r.assign(inner, &e.Args[1], element(over))
		item := r.eval(inner, &e.Args[0])
		return &Value{Kind: Object, Of: &Value{Kind: External, Text: "each"}, Items: []*Value{over, item}}
	case python.Negate:
		v := r.eval(sc, &e.Args[0])
		if n, ok := v.Float(); ok {
			return &Value{Kind: Number, Text: format(-n), From: v.From}
		}
	case python.Not:
		if holds, sure := truth(r.eval(sc, &e.Args[0])); sure {
			return boolean(!holds)
		}
	case python.Binary:
		return r.binary(sc, e)
	case python.Choice:
		holds, sure := truth(r.eval(sc, &e.Args[1]))
		if sure && holds {
			return r.eval(sc, &e.Args[0])
		}
		b := r.eval(sc, &e.Args[2])
		if sure {
			return b
		}
		switch a := r.eval(sc, &e.Args[0]); {
		case a == nil || a.Kind == None || alike(a, b):
			return b
		case b == nil || b.Kind == None:
			return a
		}
	case python.Index:
		return r.index(sc, e)
	case python.Call:
		return r.callExpr(sc, e)
	}
	return nil
}

func (r *run) at(sc *scope, e *python.Expr) Source {
	return Source{At: sc.file.name + ":" + strconv.Itoa(e.Line)}
}

// name returns what a name with dots means.
func (r *run) name(sc *scope, name string) *Value {
	first, rest, more := strings.Cut(name, ".")
	v, ok := r.lookup(sc, first)
	if !ok {
		switch {
		case first == "__name__":
			if sc.file.main {
				return text("__main__")
			}
			return text(strings.TrimSuffix(sc.file.name, ".py"))
		case builtins[first]:
			v = &Value{Kind: External, Text: first}
		case sc.file.star && r.known(name, sc.file.name) == nil:
			v, ok = &Value{Kind: External, Text: first}, true
		}
	}
	for more && v != nil {
		var part string
		part, rest, more = strings.Cut(rest, ".")
		v = r.attribute(sc, v, part)
	}
	if v == nil && (!ok || strings.Contains(name, ".")) {
		return r.known(name, sc.file.name)
	}
	return v
}

// searched is what it costs to ask the host, in steps.
const searched = 50

// known asks the host for a name.
func (r *run) known(name, file string) *Value {
	if r.costs(searched) {
		return nil
	}
	return r.host.Known(name, file)
}

func (r *run) lookup(sc *scope, name string) (*Value, bool) {
	for n := 0; sc != nil; sc = sc.outer {
		if n++; n%8 == 0 && r.spent() {
			break
		}
		if v, ok := sc.vars[name]; ok {
			return v, true
		}
	}
	return nil, false
}

// attribute returns an attribute of a value.
func (r *run) attribute(sc *scope, v *Value, name string) *Value {
	if v == nil {
		return nil
	}
	if f, ok := v.Fields[name]; ok {
		return f
	}
	switch v.Kind {
	case Module:
		if name == "__dict__" {
			return v
		}
		if v.file != nil && !r.costs(searched) {
			if files := r.host.Import(&python.Statement{Kind: python.Import, Module: "." + name}, v.Text); len(files) > 0 {
				return r.module(files[len(files)-1], false)
			}
		}
	case External:
		return &Value{Kind: External, Text: v.Text + "." + name}
	case Class:
		if m := member(v, name); m != nil {
			return m
		}
		if name == "__name__" {
			return text(v.Text)
		}
	case Object:
		if name == "__dict__" {
			return v
		}
		if v.Of != nil && v.Of.Kind == Class {
			if m := member(v.Of, name); m != nil {
				if m.Kind != Function || slices.Contains(m.Keys, "staticmethod") {
					return m
				}
				bound := *m
				bound.self = v
				if slices.Contains(m.Keys, "property") {
					return r.call(&bound, nil, nil)
				}
				return &bound
			}
			if name == "__class__" {
				return v.Of
			}
			if based(v.Of, func(c *Value) bool { return c.Kind == External && c.Text != "object" && c.Text != "abc.ABC" }) { // which has it
				return &Value{Kind: Object, Of: v, Text: name}
			}
			return nil
		}
		if v.Of != nil && v.Of.Kind == External && isSpace[last(v.Of.Text)] { // of settings, whose names are all known
			return nil
		}
		return &Value{Kind: Object, Of: v, Text: name}
	case Dict, List, String, Number:
		return &Value{Kind: Object, Of: v, Text: name}
	}
	return nil
}

// isSpace has classes of which an object only has the attributes that it is given.
var isSpace = map[string]bool{"Namespace": true, "SimpleNamespace": true}

// member returns a member of a class or of those that it is based on.
func member(c *Value, name string) *Value {
	var m *Value
	based(c, func(b *Value) bool {
		m = b.Fields[name]
		return m != nil
	})
	return m
}

// based is whether a class, or one that it is based on, is as f says.
func based(c *Value, f func(*Value) bool) bool {
	all := []*Value{c}
	for n := 0; len(all) > 0 && n < 30; n++ {
		if all[0] != nil {
			if f(all[0]) {
				return true
			}
			all = append(all, all[0].base...)
		}
		all = all[1:]
	}
	return false
}

func (r *run) index(sc *scope, e *python.Expr) *Value {
	of := r.eval(sc, e.Of)
	if len(e.Args) != 1 {
		return nil
	}
	k := r.eval(sc, &e.Args[0])
	if of == nil {
		if e.Of.Kind == python.Name && e.Args[0].Kind == python.String {
			return r.known(e.Of.Text+"."+e.Args[0].Text, sc.file.name)
		}
		return nil
	}
	if of.Kind == External && of.Text == "os.environ" && k != nil {
		return r.host.Environment(k.Text)
	}
	switch {
	case of.Kind == External && of.Text == "sys.argv":
		if k != nil && k.Kind == Number {
			return r.host.Option("argv." + k.Text)
		}
		return nil
	case k == nil:
		if of.Kind == Object {
			return &Value{Kind: Object, Of: of, Text: "[]"}
		}
		return nil
	case k.Kind == List: // a slice
		if of.Kind == Object {
			return &Value{Kind: Object, Of: of, Text: "[]"}
		}
		return nil
	case of.Kind == List || of.Kind == String:
		n, ok := k.Float()
		if of.Kind == String || !ok {
			return nil
		}
		i := int(n)
		if i < 0 {
			i += len(of.Items)
		}
		if i < 0 || i >= len(of.Items) {
			return nil
		}
		return of.Items[i]
	case k.Kind == String || k.Kind == Number:
		if f, ok := of.Fields[k.Text]; ok {
			return f
		}
		if of.Kind == External { // models.__dict__["resnet18"]
			if strings.HasSuffix(of.Text, ".__dict__") {
				return &Value{Kind: External, Text: strings.TrimSuffix(of.Text, "__dict__") + k.Text, From: k.From}
			}
			return nil
		}
		if of.Kind == Object {
			if of.Of != nil && of.Of.Kind == Class {
				if get := member(of.Of, "__getitem__"); get != nil && !based(of.Of, func(c *Value) bool { return strings.HasSuffix(c.Text, "Dataset") }) {
					bound := *get
					bound.self = of
					return r.call(&bound, []*Value{k}, nil)
				}
			}
			return &Value{Kind: Object, Of: of, Text: k.Text}
		}
	}
	return nil
}

// truth says whether a value counts as true, if that is known.
func truth(v *Value) (holds, sure bool) {
	if v == nil {
		return false, false
	}
	switch v.Kind {
	case None:
		return false, true
	case Bool:
		return v.Text == "true", true
	case Number:
		n, ok := v.Float()
		return n != 0, ok
	case String:
		return v.Text != "", v.Text != "$"
	case List:
		return len(v.Items) > 0, !v.open
	case Dict:
		return len(v.Keys) > 0, len(v.Keys) > 0
	case Object:
		return true, v.Folder()
	case Class, Function, Module:
		return true, true
	}
	return false, false
}

func (r *run) binary(sc *scope, e *python.Expr) *Value {
	a := r.eval(sc, &e.Args[0])
	switch e.Text {
	case "and", "or":
		holds, sure := truth(a)
		if sure && holds == (e.Text == "or") {
			return a
		}
		b := r.eval(sc, &e.Args[1])
		if sure {
			return b
		}
		if h, s := truth(b); s && h == (e.Text == "or") && b.Kind == Bool {
			return b
		}
		if e.Text == "or" && a == nil && b != nil && b.Kind != Bool {
			return b
		}
		return nil
	}
	b := r.eval(sc, &e.Args[1])
	if v, ok := compare(e.Text, a, b); ok {
		return v
	}
	switch e.Text {
	case "==", "!=", "in", "not", "is", "is not", "<", ">", "<=", ">=":
		return nil
	}
	return arithmetic(e.Text, a, b)
}

// compare returns the truth of a comparison, or nil where that is not known. It returns false for other operators.
func compare(op string, a, b *Value) (*Value, bool) {
	switch op {
	case "is", "is not", "==", "!=":
		if a == nil || b == nil || a.Kind == External || b.Kind == External || a.Kind == Object && !a.Folder() || b.Kind == Object && !b.Folder() || a.Kind == List || b.Kind == List {
			return nil, true
		}
		if a.Kind == String && strings.Contains(a.Text, "$") || b.Kind == String && strings.Contains(b.Text, "$") {
			return nil, true
		}
		if a.Kind == Dict && b.Kind == Dict && a != b {
			return nil, true
		}
		same := alike(a, b)
		if m, ok := number(a.Text); ok && (a.Kind == Number || b.Kind == Number) { // what a command says has no type
			n, is := number(b.Text)
			same = is && m == n
		}
		return boolean(same == (op == "is" || op == "==")), true
	case "in", "not":
		if a == nil || b == nil || !a.Scalar() {
			return nil, true
		}
		found, sure := false, true
		switch {
		case b.Kind == List:
			for _, i := range b.Items {
				if i == nil || !i.Scalar() {
					sure = false
				} else if i.Kind == a.Kind && i.Text == a.Text {
					found = true
				}
			}
		case b.Kind == Dict:
			_, found = b.Fields[a.Text]
			sure = len(b.Keys) > 0
		case b.Kind == Module:
			_, found = b.Fields[a.Text]
		case b.Kind == String && a.Kind == String:
			found = strings.Contains(b.Text, a.Text)
			sure = found || !strings.Contains(b.Text, "$")
		default:
			return nil, true
		}
		if !sure && !found {
			return nil, true
		}
		return boolean(found == (op == "in")), true
	case "<", ">", "<=", ">=":
		m, ok1 := a.Float()
		n, ok2 := b.Float()
		if !ok1 || !ok2 {
			return nil, true
		}
		switch op {
		case "<":
			return boolean(m < n), true
		case ">":
			return boolean(m > n), true
		case "<=":
			return boolean(m <= n), true
		}
		return boolean(m >= n), true
	}
	return nil, false
}

// arithmetic returns a op b. An object in it is kept as where the result is from.
func arithmetic(op string, a, b *Value) *Value {
	if a == nil || b == nil {
		if op == "+" || op == "/" || op == "%" {
			if s := a; s != nil && s.Kind == String && op != "%" {
				return join(op, s, text("$"))
			} else if b != nil && b.Kind == String && op != "%" {
				return join(op, text("$"), b)
			}
		}
		return nil
	}
	from := a.From
	if b.From.Rank > from.Rank && (op == "+" || op == "-" || op == "*" || from.Key == "") { // of total // batch, the total
		from = b.From
	}
	if a.Kind == Bool && b.Kind == Number {
		a = &Value{Kind: Number, Text: map[string]string{"true": "1"}[a.Text] + map[string]string{"false": "0"}[a.Text]}
	}
	m, ok1 := a.Float()
	n, ok2 := b.Float()
	switch {
	case a.Kind == String && op == "%":
		return percent(a, b)
	case a.Kind == String && b.Kind == String && (op == "+" || op == "/"):
		return join(op, a, b)
	case a.Kind == List && b.Kind == List && op == "+":
		return joined(a.Items, b.Items)
	case a.Kind == List && op == "*":
		if !ok2 || n*float64(len(a.Items)) > maxList {
			return nil
		}
		return &Value{Kind: List, Items: slices.Repeat(a.Items, max(int(n), 0))}
	case a.Kind == Object || b.Kind == Object:
		if a.Kind == String || b.Kind == String {
			if op == "+" || op == "/" {
				made := a // what the text is made of
				if a.Kind == Object {
					a = text("$")
				} else {
					made, b = b, text("$")
				}
				v := join(op, a, b)
				if v != nil {
					v.Items = []*Value{made}
				}
				return v
			}
		}
		return &Value{Kind: Object, Of: &Value{Kind: External, Text: op}, Items: []*Value{a, b}}
	case !ok1 || !ok2:
		return nil
	}
	switch op {
	case "+":
		m += n
	case "-":
		m -= n
	case "*":
		m *= n
	case "/", "//", "%":
		if n == 0 {
			return nil
		}
		switch op {
		case "/":
			m /= n
		case "//":
			m = math.Floor(m / n)
		default:
			m -= n * math.Floor(m/n) // of the sign of n
		}
	case "**":
		m = math.Pow(m, n)
	case "<<":
		m *= math.Pow(2, n)
	default:
		return nil
	}
	if math.IsInf(m, 0) || math.IsNaN(m) {
		return nil
	}
	return &Value{Kind: Number, Text: format(m), From: from}
}

// joined returns a list of the items of both, of at most maxList.
func joined(a, b []*Value) *Value {
	all := append(slices.Clip(a), b...)
	return &Value{Kind: List, Items: all[:min(len(all), maxList)]}
}

func format(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// maxText bounds a text that is put together, and textStep is how much of one costs a step.
const (
	maxText  = 1000
	textStep = 64
)

func join(op string, a, b *Value) *Value {
	s := a.Text + b.Text
	if op == "/" {
		s = strings.TrimSuffix(a.Text, "/") + "/" + b.Text
		if strings.HasPrefix(b.Text, "/") {
			s = b.Text
		}
	}
	if len(s) > maxText {
		return nil
	}
	v := &Value{Kind: String, Text: s, From: a.From}
	if b.From.Rank > a.From.Rank {
		v.From = b.From
	}
	return v
}

// percent fills in "%s_%d" % (a, b).
func percent(a, b *Value) *Value {
	items := []*Value{b}
	if b.Kind == List {
		items = b.Items
	}
	out := &Value{Kind: String, From: a.From}
	rest := a.Text
	for {
		before, after, ok := strings.Cut(rest, "%")
		out.Text += before
		if !ok || len(out.Text) > maxText {
			return out
		}
		end := strings.IndexAny(after, "sdfrge%")
		if end < 0 {
			return nil
		}
		if after[end] == '%' {
			out.Text += "%"
		} else if len(items) == 0 {
			return nil
		} else {
			fillIn(out, items[0])
			items = items[1:]
		}
		rest = after[end+1:]
	}
}

// fillIn adds a value to a text.
func fillIn(out *Value, v *Value) {
	if v == nil || v.Kind != String && v.Kind != Number || len(out.Text)+len(v.Text) > maxText {
		out.Text += "$"
		return
	}
	out.Text += v.Text
	if v.From.Rank > out.From.Rank {
		out.From = v.From
	}
}

// fill fills in f"{a}/b".
func (r *run) fill(sc *scope, e *python.Expr) *Value {
	out := &Value{Kind: String, From: r.at(sc, e)}
	rest := e.Text
	for {
		before, after, ok := strings.Cut(rest, "{")
		out.Text += before
		if !ok || len(out.Text) > maxText {
			return out
		}
		field, next, ok := strings.Cut(after, "}")
		if !ok {
			return out
		}
		if !strings.ContainsAny(field, "([") {
			field, _, _ = strings.Cut(field, ":")
			field, _, _ = strings.Cut(field, "!")
		}
		if len(field) > 200 {
			return nil
		}
		if r.costs(searched) {
			return nil
		}
		if s := python.Parse([]byte(field)); len(s) > 0 {
			v := &s[0].Value
			fillIn(out, r.value(sc, v))
		} else {
			out.Text += "$"
		}
		rest = next
	}
}
