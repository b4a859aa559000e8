package extract

import (
	"cmp"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/semantic/metadata"
)

// candidate is a value that a field may have.
type candidate struct {
	text   string
	kind   valueKind
	unit   string
	rank   rank
	weight int
	at     string
	order  int
	key    string
	base   bool
	// as in setting
	via, function string
}

// candidates returns the values that settings give a field by its names, the best first.
func (x *extraction) candidates(of []names) []candidate {
	var all []candidate
	for _, group := range of {
		for _, key := range group.Keys {
			last := key[strings.LastIndexByte(key, '.')+1:]
			for _, s := range x.byName[last] {
				if !ends(s.key, key) || excluded(s.key) || x.skips(s.when) {
					continue
				}
				v := x.compute(s)
				if v.kind == unknown || v.kind == none || strings.Contains(v.text, "$") && !strings.Contains(v.text, "/") {
					continue
				}
				all = append(all, candidate{v.text, v.kind, group.Unit, s.rank, group.Weight, s.at, s.order, s.key, s.base, s.via, s.function})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(b.weight, a.weight), later(a.base, b.base), cmp.Compare(a.order, b.order))
	})
	return all
}

// later puts what is of a base behind what is of the configuration that changes it.
func later(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// ends is whether key ends with the parts of name.
func ends(key, name string) bool {
	return key == name || strings.HasSuffix(key, "."+name) && !strings.HasPrefix(key, "group.")
}

// excluded is whether a part of a key says that it is about something other than training.
func excluded(key string) bool {
	for part := range strings.SplitSeq(key, ".") {
		for _, n := range facts().fields.Not {
			if part == n || strings.HasPrefix(part, n+"_") {
				return true
			}
		}
	}
	return false
}

// resolve returns the metadata that the settings give.
func (x *extraction) resolve() Result {
	r := Result{Command: x.launch.text, At: x.launch.at}
	r.Sources = map[string]string{}
	x.iterations(&r)
	model := x.model()
	train := x.dataset()
	if model != nil {
		r.Model.Name = model.text
		r.Sources["model_name"] = model.at
		if f := find(facts().models, model.text); f != nil {
			r.family = f.name
		}
	}
	if train != nil {
		r.Dataset.Train = train.text
		r.Sources["train"] = train.at
	}
	x.validation(&r)
	x.frameworks(&r)
	x.task(&r)
	x.hardware(&r)
	x.batch(&r)
	x.optimizer(&r)
	x.parameters(&r)
	if len(r.Sources) == 0 {
		r.Sources = nil
	}
	return r
}

// maxCount is the largest number of iterations, samples or tokens that is believed.
const maxCount = 1e15

func positive(text string) (float64, bool) {
	f, ok := numeric(text)
	return f, ok && f > 0 && f < maxCount && !math.IsNaN(f)
}

// hardware resolves nodes and GPUs: what the launcher says, or what the code says.
func (x *extraction) hardware(r *Result) {
	t, l := &r.Training, &x.launch
	t.Nodes = l.nodes
	at := l.at
	if t.Nodes == 0 {
		if c := x.integer(facts().fields.Nodes); c != nil {
			t.Nodes = count(c.text)
			r.Sources["nodes"] = c.at
		}
	} else {
		r.Sources["nodes"] = at
	}
	switch {
	case l.gpus > 0:
		t.GPUs = l.gpus
	case l.perNode > 0:
		t.GPUs = l.perNode * max(1, t.Nodes)
	default:
		for _, c := range x.candidates(facts().fields.GPUs) {
			if last := c.key[strings.LastIndexByte(c.key, '.')+1:]; last == "device" && !devices.MatchString(c.text) { // of several
				continue
			}
			n := count(c.text)
			if devices.MatchString(c.text) {
				n = len(digits.FindAllString(c.text, -1))
			}
			if n > 0 {
				t.GPUs, at = n*max(1, t.Nodes), c.at
				break
			}
		}
	}
	if t.GPUs > 1<<20 {
		t.GPUs = 0
	}
	if t.GPUs > 0 {
		r.Sources["gpus"] = at
	}
}

// devices is a list of the numbers of GPUs, such as 0,1,2,3 and "0,".
var (
	devices = regexp.MustCompile(`^\[?\d{1,2}(, ?\d{1,2})+,?\]?$|^\d{1,2},$`)
	digits  = regexp.MustCompile(`\d+`)
)

// integer returns the best candidate that is a positive whole number, or nil.
func (x *extraction) integer(of []names) *candidate {
	for _, c := range x.candidates(of) {
		if n, err := strconv.ParseFloat(c.text, 64); err == nil && n >= 1 && n < 1e12 && n == math.Trunc(n) {
			c.text = strconv.FormatFloat(n, 'f', -1, 64)
			return &c
		}
	}
	return nil
}

// batch resolves the batch of one update: what a device takes, times the batches that are accumulated, times the devices,
// as far as these are stated.
func (x *extraction) batch(r *Result) {
	c := x.integer(facts().fields.BatchSize)
	if c == nil {
		return
	}
	n, _ := strconv.ParseInt(c.text, 10, 64)
	if ends(c.key, "train_batch_size") && c.rank != configured { // of all devices only in DeepSpeed's configuration
		c.unit = "plain"
	}
	if c.unit == "plain" && c.via != "" { // batch_size=args.batch_size_per_gpu
		for _, group := range facts().fields.BatchSize {
			if slices.Contains(group.Keys, c.via[strings.LastIndexByte(c.via, '.')+1:]) {
				c.unit = group.Unit
			}
		}
	}
	accumulate := int64(1)
	if a := x.integer(facts().fields.Accumulation); a != nil && c.unit != "global" {
		accumulate, _ = strconv.ParseInt(a.text, 10, 64)
	}
	if c.unit == "device" {
		accumulate *= int64(max(1, r.Training.GPUs))
	}
	if accumulate > 1<<20 || n > 1<<32 {
		return
	}
	r.Training.BatchSize = n * accumulate
	r.Sources["batch_size"] = c.at
}

// optimizers has the names of optimizers as they are written, without case and punctuation.
var optimizers = map[string]string{
	"adamw": "AdamW", "adam": "Adam", "sgd": "SGD", "lion": "Lion", "adafactor": "Adafactor", "lamb": "LAMB", "lars": "LARS", "rmsprop": "RMSprop", "adagrad": "Adagrad", "muon": "Muon",
	"adamwtorch": "AdamW", "adamwtorchfused": "AdamW", "adamwhf": "AdamW", "adamwfused": "AdamW", "adamwbnb8bit": "AdamW", "adamw8bit": "AdamW", "pagedadamw8bit": "AdamW", "pagedadamw32bit": "AdamW",
	"fusedadam": "Adam", "deepspeedcpuadam": "Adam", "nadam": "NAdam", "radam": "RAdam", "adadelta": "Adadelta", "sophia": "Sophia", "sophiag": "Sophia", "shampoo": "Shampoo", "fusedlamb": "LAMB", "momentum": "SGD",
	"pagedadamw": "AdamW", "adan": "Adan", "decoupledadamw": "AdamW", "novograd": "NovoGrad", "rmsproptf": "RMSprop", "soap": "SOAP", "galoreadamw": "GaLore", "schedulefreeadamw": "AdamW", "adamax": "Adamax", "sam": "SAM",
	"decoupledlionw": "Lion", "distributedfusedadam": "Adam", "distributedfusedadamwithcosineannealing": "Adam", "adabelief": "AdaBelief", "fusedsgd": "SGD", "adamw32bit": "AdamW", "cpuadam": "Adam",
}

// version is what spaCy adds to the names of what it registers: Adam.v1.
var version = regexp.MustCompile(`\.v\d+$`)

func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(text))
}

// optimizer resolves the optimizer and the learning rate.
func (x *extraction) optimizer(r *Result) {
	best := candidate{rank: -1}
	for _, c := range x.candidates(facts().fields.Optimizer) {
		c.text = version.ReplaceAllString(c.text, "")
		if o := optimizers[plain(c.text[strings.LastIndexByte(c.text, '.')+1:])]; o != "" {
			best = c
			best.text = o
			break
		}
	}
	for i := range x.calls {
		c := &x.calls[i]
		if x.skips(c.when) {
			continue
		}
		name := c.callee[strings.LastIndexByte(c.callee, '.')+1:]
		if o := optimizers[plain(name)]; o != "" && c.rank > best.rank && name != strings.ToLower(name) || o != "" && strings.HasPrefix(c.callee, "optax.") && best.rank < 0 {
			best = candidate{text: o, rank: c.rank, at: where(c.file, c.expr.Line)}
			for i := range c.expr.Args[:min(len(c.expr.Args), 2)] { // Adam(parameters, 1e-4), or Adam(1e-4) in Keras
				x.add(setting{key: name + ".lr", expr: &c.expr.Args[i], file: c.file, rank: c.rank, at: best.at})
			}
		}
	}
	if best.rank >= 0 {
		r.Training.Optimizer = best.text
		r.Sources["optimizer"] = best.at
	}
	for _, c := range x.candidates(facts().fields.LearnRate) {
		if f, ok := positive(c.text); ok && f <= 100 {
			r.Training.LearnRate = f
			r.Sources["lr"] = c.at
			break
		}
	}
	for _, c := range x.candidates(facts().fields.Precision) {
		if c.function != "" && c.function != "from_pretrained" && c.function != "autocast" || c.rank == imported {
			continue
		}
		if p := precision(c); p != "" {
			r.Training.Precision = p
			r.Sources["precision"] = c.at
			break
		}
	}
}

// precision returns the precision that a value means, or nothing.
func precision(c candidate) string {
	text := strings.ToLower(c.text[strings.LastIndexByte(c.text, '.')+1:])
	if c.kind == boolean {
		if text != "true" && text != "yes" {
			return ""
		}
		switch {
		case strings.Contains(c.key, "bf16"):
			return "bf16"
		case strings.Contains(c.key, "fp16"), strings.HasSuffix(c.key, "amp"):
			return "fp16"
		}
		return ""
	}
	switch {
	case strings.Contains(text, "bf16") || strings.Contains(text, "bfloat16"):
		return "bf16"
	case strings.Contains(text, "fp8") || strings.Contains(text, "float8"):
		return "fp8"
	case strings.Contains(text, "fp16") || strings.HasPrefix(text, "16") || strings.Contains(text, "float16") || text == "half":
		return "fp16"
	case strings.Contains(text, "fp32") || strings.HasPrefix(text, "32") || strings.Contains(text, "float32") || text == "full":
		return "fp32"
	}
	return ""
}

// parameters resolves what else is known of the model.
func (x *extraction) parameters(r *Result) {
	params := map[string]string{}
	for name, keys := range facts().fields.Parameters {
		for _, c := range x.candidates([]names{{Keys: keys}}) {
			if c.function == "" && c.rank > elsewhere && (c.kind == number || name == "flavor") {
				params[name] = c.text
				r.Sources[name] = c.at
				break
			}
		}
	}
	if r.family != "" && plain(r.family) != plain(r.Model.Name) {
		params["model_family"] = r.family
		r.Sources["model_family"] = r.Sources["model_name"]
	}
	if len(params) > 0 {
		r.Model.Parameters = params
	}
}

// frameworks resolves what the code trains with.
func (x *extraction) frameworks(r *Result) {
	best := 0
	for _, w := range slices.Sorted(maps.Keys(x.words)) {
		if u := facts().uses[w]; u.framework != "" && x.weight(w) > best {
			best = x.weight(w)
			r.Training.Framework = u.framework
			r.Sources["framework"] = x.words[w].at
		}
	}
}

// weight is how much a word tells: less where only a function uses it.
func (x *extraction) weight(word string) int {
	w := facts().uses[word].weight
	if !x.words[word].top {
		w -= 35
	}
	return max(1, w)
}

// task resolves the kind of problem: by the model, the dataset, or the libraries.
func (x *extraction) task(r *Result) {
	set := func(t metadata.Task, at string) {
		if r.Model.Task == "" && t != "" {
			r.Model.Task = t
			r.Sources["task_type"] = at
		}
	}
	best, task, at := 0, metadata.Task(""), ""
	for _, w := range slices.Sorted(maps.Keys(x.words)) {
		if u := facts().uses[w]; u.task != "" && x.weight(w) > best {
			best, task, at = x.weight(w), u.task, x.words[w].at
		}
	}
	if best >= 75 && task != metadata.NLP && task != metadata.Vision { // a library for one thing, with a model that others use, too
		set(task, at)
	}
	for _, c := range x.candidates([]names{{Keys: facts().fields.Multimodal}}) {
		if c.rank >= configured && c.kind == word {
			set(metadata.Multimodal, c.at)
		}
	}
	if r.Model.Name != "" {
		if f := find(facts().models, r.Model.Name); f != nil {
			if d := find(facts().datasets, r.Dataset.Train); d != nil && (f.task == metadata.Graph || f.task == metadata.Vision && d.task == metadata.Speech) { // graphs of points or of atoms, pictures of sound
				set(d.task, r.Sources["train"])
			}
			set(f.task, r.Sources["model_name"])
		}
	}
	if r.Dataset.Train != "" {
		if d := find(facts().datasets, r.Dataset.Train); d != nil {
			set(d.task, r.Sources["train"])
		}
	}
	if r.Model.Task == "" {
		for _, s := range x.byName["_target_"] { // the parts of a model that is not known
			if f := find(facts().models, modelName(s.value.text)); f != nil && s.rank >= configured && strings.HasPrefix(s.key, "model.") {
				set(f.task, s.at)
			}
		}
	}
	set(task, at)
	if of, _, at := x.heading(); of != nil {
		set(of.task, at)
	}
	if r.Model.Task == "" {
		set(x.subject())
	}
}

// heading returns the first heading of the README, without what decorates it, and where that is, if it names a family of models.
func (x *extraction) heading() (of *known, text, at string) {
	source, ok := x.tree.open("README.md")
	if !ok {
		return nil, "", ""
	}
	n := 0
	for line := range strings.SplitSeq(string(source), "\n") {
		if n++; strings.HasPrefix(line, "#") {
			for _, text := range append([]string{line}, strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" #:,()", r) })...) {
				if of := find(facts().models, text); of != nil {
					return of, text, where("README.md", n)
				}
			}
			break
		}
	}
	return nil, "", ""
}
