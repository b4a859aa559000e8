package extract

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/muster-sched/muster/semantic/python"
)

// rank is how much a statement counts, because of where it stands.
type rank int

// Ranks, the least first.
const (
	library   rank = iota // what a library does if it is told nothing
	elsewhere             // a file that nothing names
	mentioned             // a command in a README
	imported              // a file that the script imports
	local                 // a variable in a function of the script
	declared              // a default that the script declares
	passed                // what the script passes to a call
	configured
	commanded
)

// value is a value as it is written.
type value struct {
	text string
	kind valueKind
}

type valueKind uint8

const (
	unknown valueKind = iota
	word
	number
	boolean
	none
)

// setting says that a key has a value.
type setting struct {
	key   string // in lower case, words joined by underscores, sections by dots
	value value
	expr  *python.Expr // instead of value, to be computed when all settings are known
	file  string
	rank  rank
	at    string
	order int
	via   string // the key of the setting from which the value was taken, if it was computed from one
	call  bool   // it is an argument of a call
	base  bool   // it is of a file on which another configuration is based, in Python
	// function has the function to which the value is passed, if that is no class: most of these are not about the job.
	function string
	when     *branch // in which it stands
}

// last returns the last part of the key.
func (s *setting) last() string {
	return s.key[strings.LastIndexByte(s.key, '.')+1:]
}

// normal returns a key in the form of setting.key: maxSteps, max-steps and MAX_STEPS are max_steps.
func normal(key string) string {
	var b strings.Builder
	lower := false
	for _, r := range key {
		switch {
		case r == '-' || r == '/' || r == ' ':
			r = '_'
			if b.Len() == 0 {
				continue
			}
		case unicode.IsUpper(r):
			if lower {
				b.WriteByte('_')
			}
			lower = false
			b.WriteRune(unicode.ToLower(r))
			continue
		}
		lower = unicode.IsLower(r)
		b.WriteRune(r)
	}
	return strings.Trim(b.String(), ".")
}

// maxSettings bounds the settings of a job, and maxAlike those whose keys end with the same name, as each may mean each other one.
// Configurations may set as many more, and the command as many more again: both are read after the code.
const (
	maxSettings = 100_000
	maxAlike    = 300
)

// add adds a setting. Where the same key is set twice by files of the same rank that override each other, the later one counts.
func (x *extraction) add(s setting) {
	s.key = normal(s.key)
	last, times := s.last(), 1+max(0, int(s.rank-passed))
	if s.key == "" || x.next >= times*maxSettings {
		return
	}
	s.order, s.base, s.when = x.next, x.inBase, x.when
	if s.rank >= configured {
		for i, old := range x.byName[last] {
			if old.key == s.key && old.rank == s.rank {
				x.byName[last][i] = &s
				return
			}
		}
	}
	if len(x.byName[last]) < times*maxAlike {
		x.byName[last] = append(x.byName[last], &s)
		x.next++
	}
}

// parse returns the value that a word of a command or of a file without types has.
func parse(text string) value {
	text = strings.TrimSpace(text)
	switch strings.ToLower(text) {
	case "", "null", "none", "~", "???":
		return value{"", none}
	case "true", "false", "yes", "no":
		return value{strings.ToLower(text), boolean}
	}
	if _, ok := numeric(text); ok {
		return value{text, number}
	}
	return value{text, word}
}

// numeric returns the number that text is: 1e5, 5_000 or 1,000, also.
func numeric(text string) (float64, bool) {
	text = strings.ReplaceAll(strings.TrimSpace(text), "_", "")
	if text == "" || !(text[0] >= '0' && text[0] <= '9' || text[0] == '-' || text[0] == '.' || text[0] == '+') {
		return 0, false
	}
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil
}

// compute returns the value of a setting.
func (x *extraction) compute(s *setting) value {
	if s.expr == nil {
		return s.value
	}
	v, best, at, via := x.evaluate(s.expr, s.file, map[*setting]bool{s: true})
	s.value, s.expr, s.via = v, nil, via
	if best > s.rank || best == local && s.rank == passed { // a value that is passed on counts as what it was
		s.rank, s.at = best, cmp.Or(at, s.at)
	}
	return v
}

// evaluation computes an expression without running it.
type evaluation struct {
	x      *extraction
	file   string
	from   map[*setting]bool // settings on the way here, so that a = b, b = a ends
	budget int
	best   rank // of the settings that were used
	at     string
	via    string
}

func (e *evaluation) value(p *python.Expr) value {
	e.budget--
	if p == nil || e.budget < 0 {
		return value{}
	}
	switch p.Kind {
	case python.String:
		return value{p.Text, word}
	case python.Number:
		return value{p.Text, number}
	case python.Bool:
		return value{strings.ToLower(p.Text), boolean}
	case python.None:
		return value{"", none}
	case python.Name:
		return e.name(p.Text)
	case python.Negate:
		if v := e.value(&p.Args[0]); v.kind == number {
			return value{"-" + v.text, number}
		}
	case python.Binary:
		return e.binary(p)
	case python.Format:
		return e.format(p.Text)
	case python.Index:
		if p.Of.Kind == python.Name && p.Of.Text == "sys.argv" && len(p.Args) == 1 && p.Args[0].Kind == python.Number {
			if n := count(p.Args[0].Text); n > 0 && n <= len(e.x.launch.args) {
				e.best, e.at = max(e.best, e.x.launch.rank), e.x.launch.at
				return parse(e.x.launch.args[n-1])
			}
		}
		if p.Of.Kind == python.Name && p.Of.Text == "os.environ" && len(p.Args) == 1 {
			return e.environment(&p.Args[0])
		}
		if p.Of.Kind == python.Name && len(p.Args) == 1 && p.Args[0].Kind == python.String { // config["lr"]
			return e.name(p.Of.Text + "." + p.Args[0].Text)
		}
	case python.List:
		var all []string
		for i := range p.Args {
			if v := e.value(&p.Args[i]); v.text != "" && i < 8 {
				all = append(all, v.text)
			}
		}
		if len(all) > 0 {
			return value{strings.Join(all, ", "), word}
		}
	case python.Choice: // where only one of both can be known, it is the default
		if e.x.trace != nil {
			switch holds := found(e.x.trace.Values[&p.Args[1]]); {
			case holds.kind == none, holds.kind == boolean && holds.text == "false":
				return e.value(&p.Args[2])
			case holds.kind == boolean:
				return e.value(&p.Args[0])
			}
		}
		a, b := e.value(&p.Args[0]), e.value(&p.Args[2])
		if hasGPU(&p.Args[1]) || p.Args[0].Kind == python.Index && p.Args[0].Of.Text == "sys.argv" && a.kind != unknown {
			return a
		}
		if a.kind == unknown {
			return b
		}
		if b.kind == unknown || a == b {
			return a
		}
	case python.Call:
		return e.call(p)
	}
	return value{}
}

// hasGPU is whether a condition asks for a GPU: a job of a cluster has one.
func hasGPU(when *python.Expr) bool {
	if when.Kind == python.Binary && when.Text == "and" {
		return hasGPU(&when.Args[0])
	}
	return strings.HasSuffix(when.Callee(), "cuda.is_available")
}

func (e *evaluation) name(name string) value {
	s := e.x.lookup(name, e.file, e.from)
	if s == nil {
		if name == "os.sep" || name == "os.path.sep" {
			return value{"/", word}
		}
		switch last := name[strings.LastIndexByte(name, '.')+1:]; last {
		case "bfloat16", "float16", "float32", "half": // torch.bfloat16
			return value{last, word}
		}
		return value{}
	}
	if s.rank > e.best {
		e.best, e.at, e.via = s.rank, s.at, s.key
	}
	if s.expr == nil {
		return s.value
	}
	e.from[s] = true
	defer delete(e.from, s)
	file := e.file
	e.file = s.file
	defer func() { e.file = file }()
	return e.value(s.expr)
}

// lookup returns the setting that a name in a file means: that of the highest rank whose key ends as the name does. A name
// without dots is one of the same file, or one that the command or a configuration sets.
func (x *extraction) lookup(name, file string, from map[*setting]bool) *setting {
	name = normal(name)
	last := name[strings.LastIndexByte(name, '.')+1:]
	plain := last == name
	var best *setting
	score := -100
	for _, s := range x.byName[last] {
		if from[s] || plain && s.file != file && s.rank < configured || x.skips(s.when) {
			continue
		}
		sc := int(s.rank) * 4
		if s.call { // args.lr is rather an option than the lr of a call
			sc -= 12
		}
		if s.key == name || strings.HasSuffix(name, "."+s.key) || strings.HasSuffix(s.key, "."+name) {
			sc += 2
		}
		if s.file == file {
			sc++
		}
		if sc > score {
			best, score = s, sc
		}
	}
	if _, option := x.options[last]; best == nil && plain && option { // a parameter of a function in another file
		for _, s := range x.byName[last] {
			if !from[s] && s.key == last && s.rank >= declared && !s.call && !x.skips(s.when) && (best == nil || s.rank > best.rank) {
				best = s
			}
		}
	}
	return best
}

func (e *evaluation) binary(p *python.Expr) value {
	a, b := e.value(&p.Args[0]), e.value(&p.Args[1])
	if p.Text == "or" {
		if a.kind == unknown || a.kind == none {
			return b
		}
		return a
	}
	if a.kind == unknown && b.kind == word && p.Text == "+" && strings.HasPrefix(b.text, "/") { // in a folder that is not known
		return value{"$" + b.text, word}
	}
	if a.kind == word && b.kind == word && p.Text == "+" {
		return value{a.text + b.text, word}
	}
	if a.kind == word && p.Text == "/" && b.kind == word { // of pathlib
		return value{strings.TrimSuffix(a.text, "/") + "/" + b.text, word}
	}
	if a.kind != number || b.kind != number {
		return value{}
	}
	m, ok1 := numeric(a.text)
	n, ok2 := numeric(b.text)
	if !ok1 || !ok2 {
		return value{}
	}
	switch p.Text {
	case "+":
		m += n
	case "-":
		m -= n
	case "*":
		m *= n
	case "/", "//":
		if n == 0 {
			return value{}
		}
		m /= n
		if p.Text == "//" {
			m = float64(int64(m))
		}
	case "**":
		if n < 0 || n > 60 {
			return value{}
		}
		base := m
		for m = 1; n >= 1; n-- {
			m *= base
		}
	case "<<":
		if n < 0 || n > 50 {
			return value{}
		}
		m *= float64(int64(1) << int(n))
	default:
		return value{}
	}
	if math.IsInf(m, 0) || math.IsNaN(m) {
		return value{}
	}
	return value{strconv.FormatFloat(m, 'f', -1, 64), number}
}

// format fills in the fields of f"{a}/b". One that is not known makes the whole unknown.
func (e *evaluation) format(text string) value {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "{")
		b.WriteString(before)
		if !ok {
			return value{b.String(), word}
		}
		field, after, ok := strings.Cut(rest, "}")
		field, _, _ = strings.Cut(field, ":")
		field, _, _ = strings.Cut(field, "!")
		v := value{}
		if ok && field != "" && strings.Trim(field, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") == "" {
			v = e.name(field)
		}
		if v.kind != word && v.kind != number || b.Len() > 1000 {
			return value{}
		}
		b.WriteString(v.text)
		text = after
	}
}

// call computes the calls that only pass a value on.
func (e *evaluation) call(p *python.Expr) value {
	callee := p.Callee()
	name := callee[strings.LastIndexByte(callee, '.')+1:]
	arg := func(i int) value {
		if i < len(p.Args) {
			return e.value(&p.Args[i])
		}
		return value{}
	}
	switch name {
	case "int", "float", "str", "Path", "abspath", "expanduser", "eval", "PosixPath", "realpath", "ConfigDict", "placeholder", "FieldReference", "lower":
		return arg(0)
	case "field", "Field", "Option", "Argument", "ib", "attrib":
		if d := p.Get("default"); d != nil {
			return e.value(d)
		}
		if d := p.Get("default_factory"); d != nil && d.Kind == python.Call && len(d.Args) == 1 {
			return e.value(&d.Args[0])
		}
		return arg(0)
	case "get", "getenv", "pop", "getattr", "setdefault": // os.environ.get("X", "3"), getattr(args, "x", 3)
		if name == "getenv" || strings.HasSuffix(callee, "environ."+name) {
			if len(p.Args) > 0 {
				if v := e.environment(&p.Args[0]); v.kind != unknown {
					return v
				}
			}
		}
		i := 1
		if name == "getattr" {
			i = 2
		}
		if len(p.Args) >= i && p.Args[i-1].Kind == python.String && name != "getenv" && !strings.Contains(callee, "environ") {
			if v := e.name("x." + p.Args[i-1].Text); v.kind != unknown {
				return v
			}
		}
		return arg(i)
	case "join":
		var all []string
		for i := range p.Args {
			if v := arg(i); v.kind == word {
				all = append(all, strings.TrimSuffix(v.text, "/"))
			} else if i > 0 {
				return value{}
			}
		}
		if strings.Contains(callee, "path") && len(all) > 0 {
			return value{strings.Join(all, "/"), word}
		}
	}
	return value{}
}

// environment returns the value of a variable that the command sets.
func (e *evaluation) environment(name *python.Expr) value {
	if name.Kind != python.String {
		return value{}
	}
	for _, set := range slices.Backward(e.x.launch.env) {
		if v, ok := strings.CutPrefix(set, name.Text+"="); ok {
			if l := &e.x.launch; l.rank > e.best {
				e.best, e.at = l.rank, l.at
			}
			return parse(v)
		}
	}
	return value{}
}

func where(file string, line int) string {
	return fmt.Sprintf("%s:%d", file, line)
}
