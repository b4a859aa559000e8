package extract

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/muster-sched/muster/semantic/python"
)

// This file finds out by their uses what is trained, and on what: the object whose parameters an optimizer has is the model, and what a loader
// gets is the dataset, whatever they are called.

// given are the variables of files that training uses, as file:variable.
type given struct {
	models, datasets map[string]bool
	makers           map[string]bool // functions that return a model
	aliases          map[string][]alias
	modules          []module       // what is called a model without being made: model = GAT
	trainers         map[string]int // classes that train models which they have, and how many
}

type module struct {
	candidate
	when *branch
}

// alias is what a variable that is called means: optimizer_class = torch.optim.AdamW.
type alias struct {
	text string
	when *branch
}

// used notes what training uses.
func (x *extraction) used() {
	u := given{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string][]alias{}, nil, map[string]int{}}
	for f := range x.sources {
		p := &x.sources[f]
		for i := range p.statements {
			s := &p.statements[i]
			if s.Kind == python.Assign && s.Value.Kind == python.Name && isClass(s.Value.Text) && s.Target != "" {
				key := variable(p.file, s.Target)
				u.aliases[key] = append(u.aliases[key], alias{s.Value.Text, p.when[i]})
			}
			if s.Kind == python.Assign && s.Value.Kind == python.Name && (s.Target == "model" || s.Target == "net") {
				name := s.Value.Text[strings.LastIndexByte(s.Value.Text, '.')+1:]
				if k := x.knownModel(name); k != nil && k.task != "" && name[0] >= 'A' && name[0] <= 'Z' {
					u.modules = append(u.modules, module{candidate{text: modelName(name), kind: word, rank: p.rank, weight: 3, at: where(p.file, s.Line)}, p.when[i]})
				}
			}
			u.statement(s, p.file)
		}
	}
	functions, files := map[string]*python.Statement{}, map[*python.Statement]string{}
	for f := range x.sources {
		for i := range x.sources[f].statements {
			switch s := &x.sources[f].statements[i]; {
			case s.Kind == python.Def && s.Target == "__init__":
				functions[s.Class] = s
			case s.Kind == python.Def && functions[s.Target] == nil:
				functions[s.Target], files[s] = s, x.sources[f].file
			}
		}
	}
	for i := range x.calls {
		c := &x.calls[i]
		name := c.callee[strings.LastIndexByte(c.callee, '.')+1:]
		f := functions[name]
		if f == nil {
			continue
		}
		if c.target != "" && u.models[variable(c.file, c.target)] {
			u.makers[name] = true
		}
		x.bind(c, name, f.Params)
		if loadsData.MatchString(name) {
			x.defaults(c, f, files[f])
		}
	}
	x.when = nil
	x.given = u
}

// bind notes what a call of a function of the folder passes by position, under the names of its parameters: of fit(args.d), fit.dataset.
func (x *extraction) bind(c *call, name string, params []python.Param) {
	if len(params) > 0 && (params[0].Name == "self" || params[0].Name == "cls") {
		params = params[1:]
	}
	function := ""
	if name == strings.ToLower(name) {
		function = name
	}
	x.when = c.when
	for i := range c.expr.Args[:min(len(c.expr.Args), len(params))] {
		e := &c.expr.Args[i]
		if e.Kind == python.String || e.Kind == python.Number || strings.Contains(nameOf(e), ".") {
			x.add(setting{key: name + "." + params[i].Name, expr: e, file: c.file, rank: c.rank, at: where(c.file, c.expr.Line), call: true, function: function})
		}
	}
}

// defaults notes the defaults of the parameters of a function that loads data, where a call leaves them out.
func (x *extraction) defaults(c *call, f *python.Statement, file string) {
	for i := len(c.expr.Args); i < len(f.Params); i++ {
		if p := &f.Params[i]; p.Default.Kind == python.String && c.expr.Get(p.Name) == nil {
			x.add(setting{key: f.Target + "." + p.Name, expr: &p.Default, file: file, rank: min(c.rank, imported), at: where(file, p.Line), call: true, function: f.Target})
		}
	}
}

// isClass is whether a name is that of a class.
func isClass(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	return last != "" && last[0] >= 'A' && last[0] <= 'Z' && last != strings.ToUpper(last) || strings.HasPrefix(name, "torchvision.datasets.")
}

// variable is a variable of a file, also as an attribute of self.
func variable(file, name string) string {
	return file + ":" + strings.TrimPrefix(name, "self.")
}

// statement notes what a statement gives to an optimizer, a loader or a trainer.
func (u *given) statement(s *python.Statement, file string) {
	optimizes := strings.Contains(strings.ToLower(s.Target), "opt")
	for i := range s.Calls {
		callee := s.Calls[i].Callee()
		name := strings.ToLower(callee[strings.LastIndexByte(callee, '.')+1:])
		optimizes = optimizes || optimizers[plain(name)] != "" || strings.Contains(name, "optim")
	}
	for i := range s.Calls {
		c := &s.Calls[i]
		callee := c.Callee()
		at := strings.LastIndexByte(callee, '.')
		name := callee[at+1:]
		model := func(e *python.Expr) {
			if e != nil && e.Kind == python.Name {
				owner := strings.TrimPrefix(e.Text, "self.")
				owner, _, _ = strings.Cut(owner, ".")
				u.models[variable(file, owner)] = true
			}
		}
		switch {
		case optimizes && at > 0 && strings.Contains(name, "param"):
			if s.Class != "" && strings.HasPrefix(callee, "self.") && strings.Count(callee, ".") == 2 {
				u.trainers[s.Class]++
			}
			model(&python.Expr{Kind: python.Name, Text: callee[:at]})
		case name == "create" && c.Get("apply_fn") != nil: // TrainState.create(apply_fn=model.apply)
			model(c.Get("apply_fn"))
		case name == "prepare" || name == "setup":
			for k := range c.Args {
				model(&c.Args[k])
			}
		case around.MatchString(callee), name == "fit" && at > 0, strings.HasSuffix(name, "Trainer"), name == "initialize":
			model(c.Get("model"))
			if len(c.Args) > 0 {
				model(&c.Args[0])
			}
		}
		about := strings.ToLower(s.Target)
		if strings.HasSuffix(strings.ToLower(name), "loader") && (strings.Contains(about, "train") || !validates.MatchString(about)) {
			if d := c.Get("dataset"); d != nil {
				u.dataset(file, d)
			} else if len(c.Args) > 0 {
				u.dataset(file, &c.Args[0])
			}
		}
		u.dataset(file, c.Get("train_dataset"))
	}
}

// validates is in the names of what a model is validated with.
var validates = regexp.MustCompile(`test|val|eval|dev|infer|predict`)

func (u *given) dataset(file string, e *python.Expr) {
	if e != nil && e.Kind == python.Name {
		u.datasets[variable(file, e.Text)] = true
	}
}

// trains is whether a call makes the model that is trained.
func (x *extraction) trains(c *call) bool {
	return x.trained(c) || c.made && x.given.makers[c.function]
}

// trained is whether the variable to which a call is assigned is the model that is trained.
func (x *extraction) trained(c *call) bool {
	return c.target != "" && x.given.models[variable(c.file, c.target)]
}

// called returns what a call calls, where that is a variable that has a class.
func (x *extraction) called(c *call) string {
	for _, a := range x.given.aliases[variable(c.file, c.callee)] {
		if !x.skips(a.when) {
			return a.text
		}
	}
	return c.callee
}

// fedBy returns the path that a section of a configuration names, where a dataset that is trained on is made of that: Clips(**config.train_data).
func (x *extraction) fedBy(c *call) *candidate {
	if c.target == "" || !x.given.datasets[variable(c.file, c.target)] {
		return nil
	}
	var sections []string
	for i, k := range c.expr.Keys {
		if e := &c.expr.Named[i]; k == "**" && nameOf(e) != "" {
			sections = append(sections, nameOf(e))
		}
	}
	for i := range c.expr.Args {
		if name := nameOf(&c.expr.Args[i]); strings.Contains(name, ".") {
			sections = append(sections, name)
		}
	}
	for _, of := range sections {
		prefix := normal(of[strings.LastIndexByte(of, '.')+1:]) + "."
		var best *setting
		for _, last := range slices.Sorted(maps.Keys(x.byName)) {
			for _, s := range x.byName[last] {
				if strings.Contains("."+s.key, "."+prefix) && s.rank >= declared && storesData.MatchString(last) && !noData.MatchString(last) && (best == nil || s.order < best.order) && x.compute(s).kind == word {
					best = s
				}
			}
		}
		if best != nil {
			return &candidate{text: datasetName(best.value.text), kind: word, rank: best.rank, weight: 4, at: best.at}
		}
	}
	return nil
}

// storesData is in the names of settings that say where data is.
var storesData = regexp.MustCompile(`path|root|dir|file|folder|name`)
