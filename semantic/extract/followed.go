package extract

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/muster-sched/muster/semantic/interpret"
	"github.com/muster-sched/muster/semantic/python"
)

// This file has the script followed by an interpreter, and takes from it what only the order of its statements tells: which values meet, which branches are taken,
// in which loops a model is updated, and what that is.

// folder is what the interpreter is given of a job.
type folder struct{ x *extraction }

// followScript follows the script that is launched.
func (x *extraction) followScript() {
	if x.launch.script != "" {
		x.trace = interpret.Run(folder{x}, x.launch.script)
	}
}

func (f folder) Source(file string) []python.Statement {
	find := func() []python.Statement {
		for i := range f.x.sources {
			if f.x.sources[i].file == file {
				return f.x.sources[i].statements
			}
		}
		return nil
	}
	if all := find(); all != nil {
		return all
	}
	f.x.python(file, imported)
	return find()
}

func (f folder) Import(s *python.Statement, from string) []string {
	if from == "" {
		from = f.x.launch.script
	}
	return f.x.imported(s, from)
}

func (f folder) Option(name string) *interpret.Value {
	if n, ok := strings.CutPrefix(name, "argv."); ok {
		if n := count(n); n > 0 && n <= len(f.x.launch.args) {
			return scalar(parse(f.x.launch.args[n-1]), interpret.Source{At: f.x.launch.at, Rank: interpret.Commanded})
		}
		return nil
	}
	key := normal(name)
	for _, s := range slices.Backward(f.x.byName[key]) {
		if s.key == key && s.rank == f.x.launch.rank && s.file == "" && s.expr == nil && s.at == f.x.launch.at {
			return scalar(s.value, interpret.Source{At: s.at, Key: key, Rank: interpret.Commanded})
		}
	}
	return nil
}

func (f folder) Known(name, file string) *interpret.Value {
	s := f.x.lookup(name, file, nil)
	if s == nil || s.rank < configured || s.expr != nil {
		return nil
	}
	from := interpret.Source{At: s.at, Key: s.key, Rank: interpret.Configured}
	if s.rank == commanded {
		from.Rank = interpret.Commanded
	}
	return scalar(s.value, from)
}

func (f folder) Config(name, from string) *interpret.Value {
	file, ok := f.x.locate(name)
	if !ok || path.Ext(file) == ".py" {
		return nil
	}
	n := f.x.based(file, 0)
	if n == nil || n.fields == nil {
		return nil
	}
	f.x.override(n)
	interpolate(n)
	return fromNode(n, 0)
}

// fromNode returns a configuration as a value.
func fromNode(n *node, depth int) *interpret.Value {
	switch {
	case depth > maxNested:
		return nil
	case n.fields != nil:
		v := &interpret.Value{Kind: interpret.Dict, Keys: n.keys, Fields: map[string]*interpret.Value{}}
		for k, f := range n.fields {
			v.Fields[k] = fromNode(f, depth+1)
		}
		return v
	case n.list:
		v := &interpret.Value{Kind: interpret.List}
		for _, i := range n.items {
			v.Items = append(v.Items, fromNode(i, depth+1))
		}
		return v
	}
	return scalar(parse(n.scalar), interpret.Source{At: n.at, Rank: interpret.Configured})
}

func (f folder) Environment(name string) *interpret.Value {
	for _, set := range slices.Backward(f.x.launch.env) {
		if v, ok := strings.CutPrefix(set, name+"="); ok {
			return scalar(parse(v), interpret.Source{At: f.x.launch.at, Key: name, Rank: interpret.Commanded})
		}
	}
	return nil
}

// scalar returns a value as the interpreter has it.
func scalar(v value, from interpret.Source) *interpret.Value {
	s := &interpret.Value{Text: v.text, From: from}
	switch v.kind {
	case unknown:
		return nil
	case word:
		s.Kind = interpret.String
	case number:
		s.Kind = interpret.Number
	case boolean:
		s.Kind, s.Text = interpret.Bool, "false"
		if v.text == "true" || v.text == "yes" {
			s.Text = "true"
		}
	}
	return s
}

// found returns a scalar that the interpreter found, or an unknown value.
func found(v *interpret.Value) value {
	switch {
	case v == nil:
	case v.Kind == interpret.None:
		return value{"", none}
	case v.Kind == interpret.Bool:
		return value{v.Text, boolean}
	case v.Kind == interpret.Number:
		return value{v.Text, number}
	case v.Kind == interpret.String && v.Text != "$":
		return value{v.Text, word}
	}
	return value{}
}

// rankOf is how much counts what the interpreter found.
func rankOf(v *interpret.Value) rank {
	switch v.From.Rank {
	case interpret.Commanded:
		return commanded
	case interpret.Configured:
		return configured
	case interpret.Declared:
		return declared
	}
	return local
}

// entered is whether the branch of a condition is taken, or a function called, if that was followed.
func (x *extraction) entered(s *python.Statement, file string) (taken, followed bool) {
	if x.trace == nil || s == nil {
		return false, false
	}
	if s.Kind == python.Def { // the script was followed to its end if it trains something on the way
		return x.trace.Reached[s], x.trace.Files[file] && s.Class == "" && x.trace.Trains()
	}
	taken, followed = x.trace.Entered[s]
	return taken, followed
}

// lengthsFollowed notes for how long the loops run, across functions and files, in which the model is updated.
func (x *extraction) lengthsFollowed() {
	if x.trace == nil {
		return
	}
	for i := range x.trace.Updates {
		if unit, bound, at := x.lengthOfUpdate(&x.trace.Updates[i]); unit != "" {
			x.add(setting{key: "followed." + unit, value: found(bound), rank: max(rankOf(bound), passed), at: cmp.Or(bound.From.At, at), via: normal(bound.From.Key)})
		}
	}
}

// lengthOfUpdate returns the unit and the number of the outermost loop around an update that says for how long the job trains, and where that is.
func (x *extraction) lengthOfUpdate(u *interpret.Update) (unit string, bound *interpret.Value, at string) {
	whole := func(v *interpret.Value) bool {
		n, ok := v.Float()
		return ok && n > 1
	}
	for i, l := range u.Loops {
		inner := u.Loops[i+1:]
		data := slices.ContainsFunc(inner, func(in *interpret.Loop) bool { return in.Data })
		if unit := unitOf(l.Count); unit != "" && unit != unitOf(l.Var) && whole(l.Limit) {
			return strings.TrimPrefix(unit, "loop."), l.Limit, l.At
		}
		if l.Bound == nil && !l.Listed() { // of each batch, or without an end
			if n := slices.IndexFunc(inner, func(in *interpret.Loop) bool { return unitOf(in.Count) == "loop.steps" && whole(in.Limit) }); n >= 0 {
				return "steps", inner[n].Limit, inner[n].At
			}
			return "", nil, ""
		}
		if !whole(l.Bound) || otherLoop.MatchString(strings.ToLower(l.Var)) || otherLoop.MatchString(l.Bound.From.Key) {
			continue
		}
		unit := strings.TrimPrefix(unitOf(l.Var), "loop.")
		if key := x.unitOfKey(normal(l.Bound.From.Key)); unit == "" || key == "epochs" {
			unit = key
		}
		switch {
		case l.Raised && data && l.Counts:
			unit = "steps"
		case l.Raised && data:
			unit = "epochs"
		case unit != "":
		case slices.ContainsFunc(inner, func(in *interpret.Loop) bool { return unitOf(in.Var) != "" && whole(in.Bound) }): // which says what it counts
			continue
		case data:
			unit = "epochs"
		default:
			unit = "steps"
		}
		return unit, l.Bound, l.At
	}
	return "", nil, ""
}

// unitOfKey is what an option or a setting counts, by its name or its help: epochs, steps, or nothing.
func (x *extraction) unitOfKey(key string) string {
	last := key[strings.LastIndexByte(key, '.')+1:]
	unit := x.lengths[last]
	for _, group := range facts().fields.Iterations {
		if unit == "" && slices.Contains(group.Keys, last) && group.Weight > 3 {
			unit = group.Unit
		}
	}
	switch {
	case unit == "" || unit == "token" || unit == "sample" || unit == "duration":
		return ""
	case unit == "epoch":
		return "epochs"
	}
	return "steps"
}

// evaluate returns what an expression in a file means, and with what rank, where and by which option that is stated: as the script was followed, or by the names in it.
func (x *extraction) evaluate(p *python.Expr, file string, from map[*setting]bool) (v value, r rank, at, via string) {
	e := evaluation{x: x, file: file, from: from, budget: 200}
	v = e.value(p)
	if x.trace == nil {
		return v, e.best, e.at, e.via
	}
	t := x.trace.Values[p]
	if f := found(t); f.kind != unknown && f != v && (v.kind == unknown || !strings.Contains(f.text, "$")) {
		return f, rankOf(t), t.From.At, normal(t.From.Key)
	}
	return v, e.best, e.at, e.via
}

// reach calls f for a value and what it is made of, the nearest first, until f returns false.
func reach(v *interpret.Value, f func(*interpret.Value, int) bool) {
	type at struct {
		v     *interpret.Value
		depth int
	}
	known := map[*interpret.Value]bool{nil: true}
	all := []at{{v, 0}}
	for n := 0; n < len(all) && n < maxReach; n++ {
		v, depth := all[n].v, all[n].depth
		if known[v] {
			continue
		}
		known[v] = true
		if !f(v, depth) {
			continue
		}
		next := func(o *interpret.Value) { all = append(all, at{o, depth + 1}) }
		for _, i := range v.Items {
			next(i)
		}
		if v.Kind == interpret.Object && v.Of != nil && v.Of.Kind == interpret.Object {
			next(v.Of)
		}
		for _, k := range slices.Sorted(maps.Keys(v.Fields)) {
			if v.Kind != interpret.Module && v.Kind != interpret.Class {
				next(v.Fields[k])
			}
		}
	}
}

// maxReach bounds how many values are looked through of which one is made.
const maxReach = 2000

// modelsFollowed returns the models that are updated as the script is followed.
func (x *extraction) modelsFollowed() []candidate {
	var all []candidate
	if x.trace == nil {
		return nil
	}
	for i := range x.trace.Updates {
		u := &x.trace.Updates[i]
		found := false
		reach(u.By, func(v *interpret.Value, depth int) bool {
			if found || depth > 12 {
				return false
			}
			c := candidate{kind: word, rank: declared, weight: 9, at: cmp.Or(v.From.At, u.At)}
			switch {
			case v.Folder():
				name := v.Of.Text
				if k := x.knownModel(v.Given); k != nil && v.Given == strings.ToLower(v.Given) {
					name = makes.ReplaceAllString(v.Given, "")
				}
				if optimizers[plain(name)] != "" || isNoModel(name) && x.knownModel(name) == nil || !slices.ContainsFunc(v.Bases(), isNetwork) {
					return true
				}
				c.text = modelName(name)
				if k := x.knownModel(name); k == nil {
					c.rank, c.weight = local, -2
					all = append(all, c)
					return true
				}
			case v.Kind == interpret.Object && v.Of != nil && v.Of.Kind == interpret.External:
				name := v.Maker()
				short := name[strings.LastIndexByte(name, '.')+1:]
				if k := x.knownModel(short); k == nil || k.task == "" || isNoModel(short) || isPart(short) || strings.Contains(name, "nn.") || optimizers[plain(short)] != "" {
					return true
				}
				c.text = modelName(short)
			default:
				return v.Kind != interpret.Dict || depth < 4
			}
			all = append(all, c)
			found = true
			return false
		})
	}
	names := map[string]bool{}
	for _, c := range all {
		names[c.text] = true
	}
	if len(names) > 2 { // the networks of an agent
		for i := range all {
			all[i].rank = min(all[i].rank, local)
		}
	}
	return all
}

// isNetwork is whether a class is one of networks.
func isNetwork(class string) bool {
	last := class[strings.LastIndexByte(class, '.')+1:]
	return last == "Module" || last == "Model" || last == "LightningModule" || last == "PreTrainedModel" || last == "Layer" || last == "Block"
}

// datasetsFollowed returns what the loops run over in which the model is updated, and what the loss is made of.
func (x *extraction) datasetsFollowed() []candidate {
	var all []candidate
	if x.trace == nil {
		return nil
	}
	for i := range x.trace.Updates {
		u := &x.trace.Updates[i]
		for _, l := range slices.Backward(u.Loops) {
			if l.Data && l.Over != nil {
				all = append(all, x.dataIn(l.Over, u.At, 0)...)
				break
			}
		}
		if !strings.Contains(u.Name, "step") {
			all = append(all, x.dataIn(u.By, u.At, 3)...)
		}
	}
	return all
}

// dataIn returns the datasets that a value is made of. less is how much less they weigh.
func (x *extraction) dataIn(of *interpret.Value, at string, less int) []candidate {
	var all []candidate
	reach(of, func(v *interpret.Value, depth int) bool {
		c := candidate{kind: word, rank: max(declared, rankOf(v)), weight: 6 - min(depth, 6) - less, at: cmp.Or(v.From.At, at), via: v.From.Key}
		switch {
		case v.Kind == interpret.String:
			c.text = datasetName(v.Text)
			if x.knownDataset(c.text) == nil && (!strings.Contains(v.Text, "/") || noData.MatchString(strings.ToLower(v.Text)) || written.MatchString(v.Text)) {
				return len(v.Items) > 0
			}
			if x.knownDataset(c.text) == nil {
				c.rank, c.weight = min(c.rank, local), -less
			}
		case v.Kind == interpret.Object:
			name := v.Maker()
			short := name[strings.LastIndexByte(name, '.')+1:]
			switch {
			case judges.MatchString(short) || strings.HasPrefix(name, "."):
				return depth < maxMade
			case x.knownDataset(short) != nil:
				c.text = served(short)
			case v.Folder() && slices.ContainsFunc(v.Bases(), isDataset): // by its words: SpeakerDatasetTIMIT
				c.text = strings.TrimSuffix(short, "Dataset")
				if k := x.knownDataset(normal(short)); k != nil {
					c.text = strings.Trim(k.is.FindString(normal(short)), "_-")
				} else {
					c.rank, c.weight = local, -1-less
				}
			default:
				return depth < maxMade
			}
		default:
			return depth < maxMade
		}
		if c.text != "" {
			all = append(all, c)
		}
		return depth < maxMade
	})
	return all
}

// maxMade bounds how far behind a value the dataset is of which it is made.
const maxMade = 10

// isDataset is whether a class is one of datasets.
func isDataset(class string) bool {
	return strings.HasSuffix(class, "Dataset")
}
