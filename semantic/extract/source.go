package extract

import (
	"bytes"
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/muster-sched/muster/semantic/python"
)

// call is a call that a script makes.
type call struct {
	expr   python.Expr
	callee string
	file   string
	rank   rank
	target string // of model = f(), model
	when   *branch
	// function in which it stands, and whether that returns, or notes, what it makes
	function string
	made     bool
}

// option is an option that a script declares.
type option struct {
	key  string
	flag bool // it takes no value
	many bool // it takes several
	// unset: it is a flag that is false where the command has none.
	unset bool
}

// hydraMain is how a script loads its configuration by Hydra.
type hydraMain struct {
	dir, name string // of the configuration, relative to the job's folder
}

// maxImports bounds how many files of the folder are followed.
const maxImports = 60

// python reads a Python file of the folder, and what it imports of it.
func (x *extraction) python(file string, r rank) {
	if x.parsed[file] || len(x.parsed) > maxImports {
		return
	}
	source, ok := x.tree.open(file)
	if !ok {
		return
	}
	x.parsed[file] = true
	if path.Ext(file) == ".ipynb" {
		source = notebook(source)
	}
	statements := python.Parse(source)
	var follow []string
	for i := range statements {
		if s := &statements[i]; s.Kind == python.Import {
			follow = append(follow, x.imported(s, file)...)
			x.library(s, file, s.Function == "")
		}
	}
	if r == configured { // a configuration changes what those that it imports say
		for _, f := range follow {
			if strings.Contains(f, "config") {
				x.python(f, r)
			}
		}
	}
	when := branches(statements, file)
	x.declares = x.declares || r == declared && bytes.Contains(source, []byte("add_argument("))
	for i := range statements {
		x.when = when[i]
		x.statement(&statements[i], file, r)
	}
	x.when = nil
	x.sources = append(x.sources, parsed{file, statements, when, r})
	if r <= declared {
		for i := range statements {
			x.loads(&statements[i], file, r)
		}
	}
	for _, f := range follow {
		x.python(f, min(r, imported))
	}
}

// notebook returns the code of a Jupyter notebook, cell after cell, with empty lines for what is no Python: commands of the shell (!)
// and of IPython (%).
func notebook(source []byte) []byte {
	var n struct {
		Cells []struct {
			Type   string          `json:"cell_type"`
			Source json.RawMessage `json:"source"`
		} `json:"cells"`
	}
	if json.Unmarshal(source, &n) != nil {
		return nil
	}
	var code strings.Builder
	for i := range n.Cells {
		var lines []string
		var text string
		if json.Unmarshal(n.Cells[i].Source, &lines) == nil {
			text = strings.Join(lines, "")
		} else {
			_ = json.Unmarshal(n.Cells[i].Source, &text) // the older form; else there is none
		}
		if n.Cells[i].Type != "code" || strings.HasPrefix(text, "%%") { // a cell of another language
			continue
		}
		for line := range strings.SplitSeq(text, "\n") {
			if start := strings.TrimSpace(line); !strings.HasPrefix(start, "!") && !strings.HasPrefix(start, "%") {
				code.WriteString(line)
			}
			code.WriteByte('\n')
		}
	}
	return []byte(code.String())
}

// library notes the libraries that a file imports.
func (x *extraction) library(s *python.Statement, file string, top bool) {
	if strings.HasPrefix(s.Module, ".") || s.Module == "torchvision.utils" { // which draws for jobs of any kind
		return
	}
	at := where(file, s.Line)
	x.uses(s.Module, at, top)
	for i := range s.Module {
		if s.Module[i] == '.' && i > 0 {
			x.uses(s.Module[:i], at, top)
		}
	}
	for _, n := range s.Names {
		if facts().uses[n].framework == "" || n != strings.ToLower(n) { // the tune of "from ray import tune" is no library
			x.uses(n, at, top)
		}
		x.uses(s.Module+"."+n, at, top)
	}
}

// uses notes that a word is used.
func (x *extraction) uses(word, at string, top bool) {
	if old, ok := x.words[word]; !ok || top && !old.top {
		x.words[word] = mention{at, top}
	}
}

// imported returns the files of the folder that an import means.
func (x *extraction) imported(s *python.Statement, file string) []string {
	module := strings.TrimLeft(s.Module, ".")
	dots := len(s.Module) - len(module)
	base := path.Dir(file)
	for range dots - 1 {
		base = path.Dir(base)
	}
	rel := strings.ReplaceAll(module, ".", "/")
	dirs := []string{base}
	if dots == 0 {
		dirs = []string{base, path.Dir(x.launch.script), ".", "src", path.Dir(base)} // Python looks first beside the script that is launched
	}
	var found []string
	add := func(p string) bool {
		if x.tree.has[p] && p != file {
			found = append(found, p)
			return true
		}
		return false
	}
	for _, d := range dirs {
		if rel != "" && add(path.Join(d, rel+".py")) {
			break
		}
		if rel != "" || dots > 0 {
			ok := false
			for _, n := range s.Names {
				ok = add(path.Join(d, rel, n+".py")) || ok
			}
			if add(path.Join(d, rel, "__init__.py")) || ok {
				break
			}
		}
	}
	return found
}

// statement reads what a statement says.
func (x *extraction) statement(s *python.Statement, file string, r rank) {
	for i := range s.Calls {
		x.call(&s.Calls[i], s, file, r)
	}
	for i := range s.Decorators {
		x.decorator(&s.Decorators[i], s, file, r)
	}
	in := r
	if s.Function != "" && r == declared {
		in = local
	}
	switch s.Kind {
	case python.Assign:
		if s.Target == "" || s.Value.Kind == python.Unknown {
			return
		}
		key := s.Target
		if m := s.Value.Get("metadata"); s.Class != "" && m != nil {
			if h := m.Get("help"); h != nil && saysDataset.MatchString(strings.ToLower(h.Text)) {
				x.datasets[normal(key)] = true
			}
		}
		if s.Class != "" && s.Function == "" {
			key = s.Class + "." + key
		}
		x.assign(key, &s.Value, file, in, 0)
	case python.Def:
		// Fire makes options of the parameters of any function.
		if !launched(s) && in == declared && x.words["fire"].at == "" {
			in = local
		}
		if launched(s) || strings.HasPrefix(s.Target, "train") || s.Target == "main" || s.Target == "run" {
			for i := range s.Params {
				p := &s.Params[i]
				if p.Default.Kind != python.Unknown {
					x.add(setting{key: p.Name, expr: &p.Default, file: file, rank: in, at: where(file, p.Line)})
				}
			}
		}
	case python.Class:
		if len(s.Args) > 0 && s.Args[0].Kind == python.Name {
			x.classes[s.Target] = s.Args[0].Text[strings.LastIndexByte(s.Args[0].Text, '.')+1:]
		}
		x.uses(s.Target, where(file, s.Line), false)
	}
}

// launched is whether a function's parameters are options of a command, as in Typer, Click and Fire.
func launched(s *python.Statement) bool {
	for i := range s.Decorators {
		if c := s.Decorators[i].Callee(); strings.HasSuffix(c, ".command") || strings.HasSuffix(c, "entrypoint") {
			return true
		}
	}
	return false
}

// assign notes key = e. Dicts, also as calls of dict(), are sections.
func (x *extraction) assign(key string, e *python.Expr, file string, r rank, depth int) {
	fields := e.Kind == python.Dict
	if e.Kind == python.Call {
		c := e.Callee()
		c = c[strings.LastIndexByte(c, '.')+1:]
		fields = c == "dict" || c == "ConfigDict" || c == "Namespace" || c == "SimpleNamespace" || c == "EasyDict" || c == "AttrDict" || c == "Dict" || c == "edict"
		if fields && len(e.Args) == 1 && e.Args[0].Kind == python.Dict {
			e = &e.Args[0]
		}
	}
	if !fields {
		x.add(setting{key: key, expr: e, file: file, rank: r, at: where(file, e.Line)})
		return
	}
	for i, k := range e.Keys {
		if k != "" && k != "**" && depth < 8 {
			x.assign(key+"."+k, &e.Named[i], file, r, depth+1)
		}
	}
}

// call notes a call, and what is declared or passed by it.
func (x *extraction) call(c *python.Expr, s *python.Statement, file string, r rank) {
	callee := c.Callee()
	name := callee[strings.LastIndexByte(callee, '.')+1:]
	if name == "" && c.Of != nil && c.Of.Kind == python.Call && len(c.Of.Args) == 1 { // LazyCall(Net)(depth=50)
		callee = c.Of.Args[0].Text
		name = callee[strings.LastIndexByte(callee, '.')+1:]
	}
	if name == "" {
		return
	}
	at := where(file, c.Line)
	switch {
	case name == "add_argument" || name == "add_arg" || name == "add_option":
		if r == imported && !x.declares { // the script has its options in a file of their own
			r = declared
		}
		x.argument(c, file, r, "default", c.Get("default"))
		return
	case strings.HasPrefix(name, "DEFINE_") && len(c.Args) >= 1 && c.Args[0].Kind == python.String: // absl
		x.options[normal(c.Args[0].Text)] = option{key: c.Args[0].Text, flag: name == "DEFINE_bool" || name == "DEFINE_boolean"}
		if len(c.Args) >= 2 {
			x.add(setting{key: c.Args[0].Text, expr: &c.Args[1], file: file, rank: r, at: at})
		} else if d := c.Get("default"); d != nil {
			x.add(setting{key: c.Args[0].Text, expr: d, file: file, rank: r, at: at})
		}
		return
	case name == "set_defaults":
		for i, k := range c.Keys {
			x.add(setting{key: k, expr: &c.Named[i], file: file, rank: r, at: at})
		}
		return
	case name == "dict" || name == "field" || name == "Field" || name == "print" || name == "format":
		return
	}
	if name == "import_module" && len(c.Args) > 0 {
		x.modules = append(x.modules, composedName{c.Args[0], file, r})
	}
	p := r
	if r == declared {
		p = passed
	}
	if name != "lambda" {
		x.uses(name, at, r >= declared)
		target, made := "", false
		if m := maker(&s.Value); m != nil && m.Line == c.Line && m.Callee() == callee {
			target, made = s.Target, s.Kind == python.Assign || s.Kind == python.Expression
		}
		if len(x.calls) < maxCalls {
			x.calls = append(x.calls, call{*c, callee, file, p, target, x.when, s.Function, made})
		}
	}
	if (name == "fine_tune" || name == "fit_one_cycle" || name == "fit") && len(c.Args) > 0 && c.Args[0].Kind == python.Number { // of fastai
		x.add(setting{key: name + ".epochs", expr: &c.Args[0], file: file, rank: p, at: at})
	}
	key := name
	if evaluates(c, s) {
		key = "eval." + name
	}
	function := ""
	if name == strings.ToLower(name) {
		function = name
	}
	for i, k := range c.Keys {
		if k == "**" {
			continue
		}
		if r == configured && s.Kind == python.Assign && s.Value.Kind == python.Call && s.Value.Line == c.Line && strings.Contains(s.Target, ".") { // data.train.dataset = L(read)(names="coco")
			x.add(setting{key: s.Target + "." + k, expr: &c.Named[i], file: file, rank: r, at: at})
		}
		if v := &c.Named[i]; v.Kind != python.Dict && v.Callee() != "dict" {
			x.add(setting{key: key + "." + k, expr: v, file: file, rank: p, at: where(file, v.Line), call: true, function: function})
		} else {
			x.assign(key+"."+k, v, file, p, 0)
		}
	}
}

// maker returns the call that makes a value: Net(3) of Net(3).to(device). Nil: none.
func maker(e *python.Expr) *python.Expr {
	for e.Kind == python.Call {
		if len(e.Args) > 0 && e.Args[0].Kind == python.Call && around.MatchString(e.Callee()) {
			e = &e.Args[0]
			continue
		}
		if e.Of.Kind != python.Member {
			return e
		}
		e = e.Of.Of
	}
	return nil
}

// around are calls that return the model that they are given in a form that trains in parallel, faster, or elsewhere.
var around = regexp.MustCompile(`(^|\.)(DataParallel|DistributedDataParallel|DDP|FSDP|FullyShardedDataParallel|compile|convert_sync_batchnorm|gpu|cuda|to_gpu|to_cuda|to_device)$`)

// evaluates is whether a call is about what a model is evaluated with: by what it is assigned to, what it is given, and the
// function in which it stands.
func evaluates(c *python.Expr, s *python.Statement) bool {
	about := s.Target + " " + s.Function
	if len(c.Args) > 0 && c.Args[0].Kind == python.Name {
		about += " " + c.Args[0].Text
	}
	about = strings.ToLower(about)
	for _, w := range []string{"test", "val", "eval", "infer", "predict"} {
		if strings.Contains(about, w) {
			return !strings.Contains(about, "train")
		}
	}
	return false
}

// argument notes an option or a positional argument that is declared.
func (x *extraction) argument(c *python.Expr, file string, r rank, kind string, def *python.Expr) {
	var names []string
	for i := range c.Args {
		if c.Args[i].Kind == python.String {
			names = append(names, c.Args[i].Text)
		}
	}
	if len(names) == 0 {
		return
	}
	key := ""
	for _, n := range names {
		if t := strings.TrimLeft(n, "-"); len(t) > len(key) {
			key, _, _ = strings.Cut(t, "/") // --amp/--no-amp of click
		}
	}
	if d := c.Get("dest"); d != nil && d.Kind == python.String {
		key = d.Text
	}
	o := option{key: key}
	if a := c.Get("action"); a != nil && (strings.HasPrefix(a.Text, "store_") || a.Text == "count") {
		o.flag = true
		o.unset = a.Text == "store_true" && c.Get("default") == nil
	}
	if n := c.Get("nargs"); n != nil && n.Text != "?" && n.Text != "1" {
		o.many = true
	}
	if a := c.Get("is_flag"); a != nil && a.Text == "True" {
		o.flag = true
	}
	for _, n := range names {
		if strings.HasPrefix(n, "-") {
			x.options[normal(strings.TrimLeft(n, "-"))] = o
		} else if len(names) == 1 && kind == "default" {
			x.places = append(x.places, key)
		}
	}
	if h := c.Get("help"); h != nil && counts(normal(key)) == "" {
		if m := saysLength.FindStringSubmatch(strings.ToLower(h.Text)); m != nil {
			x.lengths[normal(key)] = m[1]
		}
	}
	if h := c.Get("help"); h != nil && saysDataset.MatchString(strings.ToLower(h.Text)) {
		x.datasets[normal(key)] = true
	} else if h != nil && saysModel.MatchString(strings.ToLower(h.Text)) {
		x.nets[normal(key)] = true
	} else if h != nil && saysRun.MatchString(strings.ToLower(h.Text)) {
		x.runs[normal(key)] = true
	}
	if among := c.Get("choices"); among != nil && among.Kind == python.List && len(among.Args) > 1 {
		x.variants[normal(key)] = !slices.ContainsFunc(among.Args, func(e python.Expr) bool { return e.Kind != python.String || x.knownModel(e.Text) != nil })
	}
	if def != nil {
		x.add(setting{key: key, expr: def, file: file, rank: r, at: where(file, c.Line)})
	}
}

// saysDataset is in the help of an option that names what a model is trained on.
var saysDataset = regexp.MustCompile(`\b(which|name of( the)?|train(ing)?|choose( a| the)?|select( a| the)?) (data ?set|corpus)\b|\b(input|train(ing)?) data\b|\bdata ?set(s)?( name)? (to (use|train)|for training|used for)|^(the )?(name of (the )?)?data ?set( name)?\s*($|[.,;:(\[])`)

// saysModel is the help of an option that names what is trained.
var saysModel = regexp.MustCompile(`^(?:the |which |(?:choose|select) (?:a |the )?)?(?:name of (?:the )?)?(?:model|network|backbone|architecture)(?: (?:name|architecture|arch|type))?(?: to (?:use|train))?\s*(?:$|[.,;:(\[])`)

// saysLength is the help of an option that says for how long a job trains.
var saysLength = regexp.MustCompile(`^(?:the |total |max(?:imum|imal)? )*(?:number|nr\.?|no\.?|amount) of (?:total |full |training |train |optimizer |gradient |update )*(epoch|step|iteration|update)s?\b(?: (?:to|for) (?:train|run|do)| to train|,|\.|$|;)`)

// saysRun is in the help of an option that names a run, or the folder into which it is written.
var saysRun = regexp.MustCompile(`\b(folder|directory|dir|file|name)\b.*\b(to save|to store|saved|stored|to write)\b|\bname (of|for) (the |this )?(run|experiment)\b|\b(run|experiment) name\b`)

// decorator notes what a decorator says: the options of click, and Hydra's configuration.
func (x *extraction) decorator(d *python.Expr, s *python.Statement, file string, r rank) {
	callee := d.Callee()
	switch {
	case strings.HasSuffix(callee, "option"):
		x.argument(d, file, r, "option", d.Get("default"))
	case callee == "hydra.main" || callee == "hydra_main" || strings.HasSuffix(callee, "hydra_runner"):
		h := &hydraMain{dir: path.Dir(file)}
		if text := lastText(d.Get("config_path")); text != "" {
			h.dir = x.hydraFolder(h.dir, text)
		}
		if ext := path.Ext(h.dir); ext == ".yaml" || ext == ".yml" { // of Hydra before 1.0, a file
			h.name, h.dir = strings.TrimSuffix(path.Base(h.dir), ext), path.Dir(h.dir)
		}
		if n := d.Get("config_name"); n != nil && n.Kind == python.String {
			h.name = n.Text
		}
		if x.hydra == nil {
			x.hydra = h
		}
		x.uses("hydra", where(file, d.Line), true)
	}
}

// lastText returns the last text in an expression: conf of str(ROOT / "conf").
func lastText(e *python.Expr) string {
	switch {
	case e == nil:
	case e.Kind == python.String:
		return e.Text
	case e.Kind == python.Call || e.Kind == python.Binary:
		for i := len(e.Args) - 1; i >= 0; i-- {
			if text := lastText(&e.Args[i]); text != "" {
				return text
			}
		}
	}
	return ""
}

// hydraFolder returns the folder of configurations that code names in a file of a folder: relative to that, or to the job's folder if it is only there.
func (x *extraction) hydraFolder(dir, name string) string {
	at := path.Join(dir, name)
	for _, p := range []string{at, path.Join(path.Dir(dir), name), path.Clean(name)} {
		if x.tree.folders[p] || x.tree.has[p] {
			return p
		}
	}
	return at
}
