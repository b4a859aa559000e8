package extract

import (
	"cmp"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/muster-sched/muster/semantic/python"
)

// A candidate for a name is worth ten for each rank, its weight, and more if the name is known.
const knownWorth = 15

func (c *candidate) worth(all []known) int {
	w := int(c.rank)*10 + c.weight
	if f := find(all, c.text); f != nil {
		if f.task == "" {
			return w + 3
		}
		return w + knownWorth
	}
	if isGeneric(c.text) {
		return w - 40
	}
	if c.rank <= elsewhere && c.weight < 9 {
		return -100
	}
	return w
}

// pick returns the candidate that is worth most, the first of equals; nil if none says anything.
func pick(all []candidate, of []known) *candidate {
	var best *candidate
	worth := -5
	for i := range all {
		c := &all[i]
		if len(c.text) < 2 || generic[strings.ToLower(c.text)] && len(c.text) < 3 {
			continue
		}
		if w := c.worth(of); w > worth {
			best, worth = c, w
		}
	}
	return best
}

// noModel has endings of the names of classes that are part of a job, and no model.
var noModel = []string{"Tokenizer", "TokenizerFast", "Processor", "FeatureExtractor", "Scheduler", "Dataset", "Datasets", "DataModule", "Loss", "Collator", "Transform", "Callback", "Metric", "Optimizer", "Trainer", "Arguments",
	"Parser", "Logger", "Sampler", "Loader", "DataLoader", "Writer", "Adam", "AdamW", "SGD", "Sequential", "Module", "ModuleList", "Parallel", "DistributedDataParallel", "DataParallel", "DDP", "FSDP", "Runner", "Path", "Error", "Exception", "Generator",
	"Env", "Buffer", "Wrapper", "Evaluator", "Checkpoint", "Engine", "Accelerator", "Namespace", "Environment", "Quantization", "BitsAndBytesConfig", "LoraConfig", "Compose", "Monitor", "Counter", "Manager", "Pipeline", "Workspace"}

// model resolves the model's name.
func (x *extraction) model() *candidate {
	var all []candidate
	stated := append(x.candidates(facts().fields.Model), x.namedModels()...)
	stated = append(stated, x.candidates([]names{{Weight: 6, Keys: slices.Sorted(maps.Keys(x.nets))}})...)
	frame := slices.IndexFunc(stated, func(c candidate) bool {
		return c.key == "model.type" && find(facts().models, modelName(c.text)) == nil && !isGeneric(c.text)
	})
	framed := frame >= 0 && slices.ContainsFunc(stated, func(c candidate) bool { // a class that is built around a model that is known: TopDown around ViT
		return c.key == "model.backbone.type" && c.rank == stated[frame].rank && find(facts().models, modelName(c.text)) != nil
	})
	for _, c := range stated {
		if x.runs[c.key[strings.LastIndexByte(c.key, '.')+1:]] || c.kind != word || strings.Contains(c.key, "tokenizer") || strings.Contains(c.key, "optim") || strings.Contains(c.key, "dataset") || strings.Contains(c.key, "loss") || strings.Contains(c.key, "schedule") {
			continue
		}
		if saves.MatchString(c.via) || strings.HasPrefix(c.via, "group.") { // below
			continue
		}
		if x.variants[c.key] && !strings.Contains(c.key, "model") { // of a model that code names, if it does
			c.rank = min(c.rank, local)
		}
		c.text = modelName(c.text)
		if find(facts().datasets, c.text) != nil && find(facts().models, c.text) == nil { // rather the name of a run
			c.weight -= 15
		}
		if framed && c.key == "model.type" || !framed && strings.Contains(c.key, "backbone") { // what a model is built on, where nothing else names it
			c.rank = min(c.rank, imported)
		}
		if isNoModel(c.text) && find(facts().models, c.text) == nil { // a class around one, such as a LightningModule
			c.rank = min(c.rank, local)
		}
		if last := c.key[strings.LastIndexByte(c.key, '.')+1:]; (last == "weights" || last == "cfg") && find(facts().models, c.text) == nil {
			continue
		}
		all = append(all, c)
	}
	for i := range x.calls {
		if x.skips(x.calls[i].when) {
			continue
		}
		if c := x.modelOf(&x.calls[i]); c != nil {
			all = append(all, *c)
		}
	}
	for _, c := range x.modelsFollowed() {
		family := x.knownModel(c.text)
		if slices.ContainsFunc(all, func(o candidate) bool {
			return family != nil && o.rank >= declared && o.text != c.text && x.knownModel(o.text) == family
		}) { // which says more
			c.rank = local
		}
		all = append(all, c)
	}
	for _, m := range x.given.modules {
		if !x.skips(m.when) {
			all = append(all, m.candidate)
		}
	}
	all = append(all, x.sections()...)
	for _, s := range x.byName["_target_"] { // a class that a configuration makes
		if f := find(facts().models, s.value.text); f != nil && f.task != "" && !excluded(s.key) && !isNoModel(s.value.text) && !isPart(s.value.text) {
			all = append(all, candidate{text: modelName(s.value.text), kind: word, rank: s.rank, weight: -8, at: s.at})
		}
	}
	for _, s := range x.byName["name"] { // what a configuration calls itself
		if s.key == "name" && s.rank >= configured && find(facts().models, s.value.text) != nil {
			all = append(all, candidate{text: s.value.text, kind: word, rank: imported, weight: 2, at: s.at})
		}
	}
	for _, s := range x.byName["model"] { // the choice of Hydra's group
		if s.key == "group.model" {
			c := candidate{text: s.value.text, kind: word, rank: min(s.rank, configured), weight: 2, at: s.at}
			if slices.ContainsFunc(stated, func(o candidate) bool { // the class says more: vae, of CDVAE
				return o.key == "model._target_" && strings.Contains(strings.ToLower(o.text), strings.ToLower(c.text))
			}) {
				continue
			}
			if find(facts().models, c.text) == nil { // a name of one's own says less than what it is built on
				c.rank = local
			}
			all = append(all, c)
		}
	}
	for _, c := range x.configs {
		if name := schedule.ReplaceAllString(strings.TrimSuffix(path.Base(c), path.Ext(c)), ""); find(facts().models, name) != nil {
			weight := 1
			if slices.ContainsFunc(all, func(c candidate) bool { return c.text == "EncoderDecoder" }) { // of which the encoder says less
				weight = 6
			}
			all = append(all, candidate{text: name, kind: word, rank: imported, weight: weight, at: c})
		}
	}
	for _, w := range slices.Sorted(maps.Keys(x.words)) { // a library for one family of models, xgboost
		if f := find(facts().models, w); f != nil && f.name == "Gradient boosting" && x.words[w].top && facts().uses[w].framework != "" {
			all = append(all, candidate{text: w, kind: word, rank: imported, at: x.words[w].at})
		}
	}
	all = append(all, x.spoken(facts().models, modelName)...)
	if t := toolEnd.ReplaceAllString(x.launch.tool, ""); find(facts().models, t) != nil { // chemprop train, nnUNetv2_train
		all = append(all, candidate{text: t, kind: word, rank: imported, weight: 1, at: x.launch.at})
	}
	if dir := path.Base(path.Dir(x.launch.script)); find(facts().models, dir) != nil { // zipformer/train.py
		all = append(all, candidate{text: dir, kind: word, rank: imported, weight: 1, at: x.launch.script})
	}
	if f := find(facts().models, scriptName(x.launch.script)); f != nil {
		name := strings.Trim(f.is.FindString(strings.ToLower(scriptName(x.launch.script))), "_-")
		if plain(name) == plain(f.name) {
			name = f.name
		}
		if slices.ContainsFunc(all, func(c candidate) bool { return len(c.text) > len(name) && strings.HasSuffix(c.text, name) }) { // the class says more: JTNNVAE of vae_train.py
			name = ""
		}
		all = append(all, candidate{text: name, kind: word, rank: declared, weight: 3, at: x.launch.script})
	}
	if of, text, at := x.heading(); of != nil { // where nothing else says more: class Model of "# SASRec"
		all = append(all, candidate{text: strings.Trim(of.is.FindString(strings.ToLower(text)), " _-#:"), kind: word, rank: elsewhere, weight: 9, at: at})
	}
	return pick(all, facts().models)
}

// saves is in the names of what a job writes.
var saves = regexp.MustCompile(`(^|[._])(save|output|out|log|result)`)

// spoken returns what options of the command name that is known, whatever the options are called: -u wavlm_base -d cora.
func (x *extraction) spoken(of []known, name func(string) string) []candidate {
	if len(x.launch.args) > mostSpoken {
		return nil
	}
	var all []candidate
	for _, last := range slices.Sorted(maps.Keys(x.byName)) {
		for _, s := range x.byName[last] {
			if s.rank != commanded || s.value.kind != word || strings.Contains(s.value.text, "/") || x.runs[last] || excluded(s.key) || noData.MatchString(s.key) || notSpoken.MatchString(s.key) {
				continue
			}
			if text := name(s.value.text); find(of, text) != nil && !isNoModel(text) && !strings.Contains(text, "Trainer") {
				all = append(all, candidate{text: text, kind: word, rank: declared, at: s.at})
			}
		}
	}
	return all
}

// mostSpoken is how many words a command has at most that a person wrote.
const mostSpoken = 1000

// notSpoken is in the names of options whose values have the names of models and datasets in them by chance.
var notSpoken = regexp.MustCompile(`name|exp|run|tag|project|wandb|group|note|desc|host|user|job|optim|loss|sched|criterion|metric|mode`)

// namedModels returns the models that are known by name and that settings have whose words say that they name a model, but which are not listed: pretrained_model_cfg.
func (x *extraction) namedModels() []candidate {
	var keys []string
	for last := range x.byName {
		if namesModel(last) {
			keys = append(keys, last)
		}
	}
	slices.Sort(keys)
	return slices.DeleteFunc(x.candidates([]names{{Weight: 4, Keys: keys}}), func(c candidate) bool {
		return c.rank < imported || find(facts().models, c.text) == nil
	})
}

// namesModel is whether the words of a key say that it names what is trained, or what that begins with.
func namesModel(key string) bool {
	model, words := false, strings.Split(key, "_")
	for _, w := range words {
		switch w {
		case "model", "pretrained", "arch", "architecture", "backbone", "network", "llm", "checkpoint":
			model = true
		case "base", "hf", "huggingface", "name", "path", "id", "or", "cfg", "config", "ckpt", "init", "type", "lm", "language", "foundation", "initial", "from":
		default:
			return false
		}
	}
	return model && len(words) > 1
}

// schedule is what names of configurations say about the training behind the model: _8xb2-80k_coco-512x512.
var schedule = regexp.MustCompile(`[_-]\d+xb\d+.*$`)

// toolEnd is at the end, or the begin, of the names of programs that train one family of models.
var toolEnd = regexp.MustCompile(`[-_](train|pretrain|finetune|trainer|cli|run)$|^(train|pretrain|finetune)[-_]`)

// sections returns the families of models that configurations name in their keys: T5Config.num_heads=12, is_llama_config=true.
func (x *extraction) sections() []candidate {
	var all []candidate
	for _, last := range slices.Sorted(maps.Keys(x.byName)) {
		for _, s := range x.byName[last] {
			if s.rank < configured || excluded(s.key) {
				continue
			}
			for part := range strings.SplitSeq(s.key, ".") {
				of, ok := strings.CutSuffix(part, "config")
				flag := strings.HasPrefix(of, "is_")
				if of = strings.Trim(strings.TrimPrefix(of, "is_"), "_"); !ok || flag != (part == last) || flag && s.value.text != "true" {
					continue
				}
				if f := find(facts().models, of); f != nil {
					all = append(all, candidate{text: strings.Trim(f.is.FindString(of), "_"), kind: word, rank: declared, weight: 3, at: s.at})
				}
			}
		}
	}
	return all
}

func scriptName(script string) string {
	return strings.TrimSuffix(path.Base(script), ".py")
}

// modelOf returns the model that a call makes or loads, or nil.
func (x *extraction) modelOf(c *call) *candidate {
	if as := x.called(c); as != c.callee {
		of := *c
		of.callee = as
		c = &of
	}
	name := c.callee[strings.LastIndexByte(c.callee, '.')+1:]
	from := &candidate{kind: word, rank: c.rank, at: where(c.file, c.expr.Line)}
	switch {
	case name == "from_pretrained" || name == "from_config" && len(c.expr.Args) > 0:
		class := strings.TrimSuffix(c.callee, "."+name)
		class = class[strings.LastIndexByte(class, '.')+1:]
		if isNoModel(class) || strings.HasSuffix(class, "Config") || name == "from_config" {
			return nil
		}
		return asModel(x.argumentOf(c, from, 9, 0, "pretrained_model_name_or_path", "model_name"))
	case name == "create_model" || name == "get_model" || name == "build_model" || name == "load_model" || name == "get_peft_model" || name == "create_model_and_transforms" || name == "get_model_config":
		return asModel(x.argumentOf(c, from, 9, 0, "model_name", "name", "arch"))
	case strings.HasSuffix(name, "_recipe"): // llm.llama31_8b.pretrain_recipe()
		module := strings.TrimSuffix(c.callee, "."+name)
		if module = module[strings.LastIndexByte(module, '.')+1:]; x.knownModel(module) == nil {
			return nil
		}
		from.text, from.weight = module, 9
		return from
	case name == "LightningCLI" && len(c.expr.Args) > 0 && c.expr.Args[0].Kind == python.Name:
		from.text, from.weight = c.expr.Args[0].Text[strings.LastIndexByte(c.expr.Args[0].Text, '.')+1:], 6
		return from
	case strings.HasPrefix(name, "from_") && strings.Count(c.callee, ".") == 1 && x.knownModel(strings.TrimSuffix(c.callee, "."+name)) != nil && strings.HasPrefix(strings.ToLower(c.target), "model"): // GPT.from_size("350m"), of a class of one's own
		from.text, from.weight = strings.TrimSuffix(c.callee, "."+name), 4
		return from
	case strings.HasSuffix(name, "AgentTrainer") && x.isAgent(strings.TrimSuffix(name, "AgentTrainer")): // MADDPGAgentTrainer
		from.text, from.weight = strings.TrimSuffix(name, "AgentTrainer"), 4
		return from
	case name == "Agent" && x.isAgent(c.target): // dqn = Agent(), of a module of one's own
		from.text, from.weight = c.target, 4
		return from
	case strings.HasSuffix(name, "Trainer") && x.words[strings.TrimSuffix(name, "Trainer")].at != "": // of a model's own: NetTrainer beside Net
		from.text, from.rank, from.weight = strings.TrimSuffix(name, "Trainer"), min(from.rank, local), 0
		return from
	case name == "from_preset":
		return asModel(x.argumentOf(c, from, 9, 0, "preset"))
	case strings.HasSuffix(name, "Model") && len(c.expr.Args) > 1 && c.expr.Args[1].Kind == python.String && x.knownModel(c.expr.Args[1].Text) != nil: // of a kind, by its name
		return asModel(x.argumentOf(c, from, 9, 1))
	case strings.HasSuffix(name, "Model") && x.kindOf(c) != nil: // the same, by an option
		return x.kindOf(c)
	case strings.HasSuffix(name, "_learner") && len(c.expr.Args) > 1: // of fastai: vision_learner(dls, resnet34)
		from.text, from.weight = c.expr.Args[1].Text[strings.LastIndexByte(c.expr.Args[1].Text, '.')+1:], 8
		if x.knownModel(from.text) == nil {
			return nil
		}
		return from
	case strings.HasPrefix(c.callee, "model_zoo."):
		if m := asModel(x.argumentOf(c, from, 9, 0)); m != nil && x.knownModel(m.text) != nil {
			return m
		}
		return nil
	case c.callee == "torch.hub.load":
		return asModel(x.argumentOf(c, from, 9, 1, "model"))
	case name == "YOLO" || name == "SentenceTransformer" || name == "CrossEncoder" || c.callee == "models.Transformer":
		return asModel(x.argumentOf(c, from, 9, 0, "model"))
	}
	if name == "Generator" && c.callee == name && strings.Contains(strings.ToLower(c.target), "gen") { // of a GAN
		from.text = name
		return from
	}
	if name == "" || isNoModel(name) && !(strings.HasSuffix(name, "Generator") && x.trained(c)) || strings.HasPrefix(c.callee, "self.") && name == strings.ToLower(name) {
		return nil
	}
	upper := name[0] >= 'A' && name[0] <= 'Z'
	if args := c.expr.Args; upper && len(args) > 0 && args[0].Kind == python.Name && x.classes[args[0].Text] == "Module" { // NeuralNetClassifier(Net): what trains a module of one's own
		from.text, from.weight = args[0].Text, -2
		return from
	}
	f := x.knownModel(name)
	if of, ok := strings.CutSuffix(name, "Config"); ok { // PPOConfig().environment("CartPole-v1")
		if agent := x.knownModel(of); agent != nil && agent.task == "RL" {
			name, f, c = of, agent, &call{target: "agent"}
		}
	}
	switch {
	case f != nil && upper && (strings.Contains(c.callee, "transformers.") || strings.Contains(c.callee, "applications.") || strings.Contains(c.callee, "models.") || !strings.HasSuffix(name, "Config")):
		from.weight = 6
		if !strings.Contains(strings.ToLower(c.target), "model") && !strings.Contains(strings.ToLower(c.target), "net") && c.target != "agent" && !x.trained(c) {
			from.weight = 4
		}
		if isPart(name) || strings.HasPrefix(c.callee, "nn.") || strings.HasPrefix(c.callee, "torch.nn.") {
			from.weight = -15
		}
	case f != nil && strings.Contains(c.callee, "models."): // torchvision.models.resnet50()
		from.weight = 8
	case f != nil && f.task != "" && name == c.callee && (strings.HasSuffix(c.target, "model") || strings.HasSuffix(c.target, "net") || !upper && x.trains(c)): // resnet50()
		from.weight = 5
	case f != nil && f.task != "" && !upper && x.trained(c): // model.resnet50(), of a module of one's own
		from.weight = 5
	case strings.HasPrefix(c.callee, "nn.") || strings.HasPrefix(c.callee, "torch.nn."):
		return nil
	case upper && slices.Contains([]string{"model", "net", "network", "self.model", "model_g", "generator", "agent", "policy"}, c.target):
		from.weight = 0
	case upper && x.trains(c) && !strings.HasSuffix(name, "Config"): // whatever it is called
		from.rank, from.weight = min(from.rank, local), -4
	default:
		return nil
	}
	if base := x.classes[name]; x.given.trainers[name] == 1 && f == nil && (base == "" || base == "object") { // what it trains is the model
		from.rank, from.weight = min(from.rank, local), -6
	}
	from.text = modelName(name)
	if of := makes.ReplaceAllString(name, ""); of != name && x.knownModel(of) != nil { // build_ssd()
		from.text = of
	}
	return from
}

// isAgent is whether a name is that of a family of agents.
func (x *extraction) isAgent(name string) bool {
	f := x.knownModel(name)
	return f != nil && f.task == "RL"
}

// makes is at the begin of the names of functions that return what the rest of the name says.
var makes = regexp.MustCompile(`^(build|create|make|get)_`)

// kindOf returns the model that is known and that an option names to the class that makes it: RNNModel(args.model, words).
func (x *extraction) kindOf(c *call) *candidate {
	if len(c.expr.Args) < 2 || !strings.HasSuffix(nameOf(&c.expr.Args[0]), ".model") {
		return nil
	}
	m := asModel(x.argumentOf(c, &candidate{kind: word, rank: c.rank, at: where(c.file, c.expr.Line)}, 6, 0))
	if m == nil || x.knownModel(m.text) == nil {
		return nil
	}
	return m
}

func asModel(c *candidate) *candidate {
	if c != nil {
		c.text = modelName(c.text)
	}
	return c
}

// isPart is whether a class is a part of a model.
func isPart(class string) bool {
	for _, end := range []string{"Layer", "Block", "Conv", "Encoder", "Decoder", "Cell", "Head", "Embed", "Embedding"} {
		if strings.HasSuffix(class, end) {
			return true
		}
	}
	return false
}

func isNoModel(class string) bool {
	if of, ok := strings.CutSuffix(class, "Wrapper"); ok && find(facts().models, of) != nil {
		return false
	}
	for _, n := range noModel {
		if strings.HasSuffix(class, n) {
			return true
		}
	}
	return false
}

// argumentOf fills in a candidate by an argument of a call: a positional one, or one by name. It returns nil if that is not
// known to be a name.
func (x *extraction) argumentOf(c *call, from *candidate, weight, place int, keys ...string) *candidate {
	var e *python.Expr
	if place < len(c.expr.Args) {
		e = &c.expr.Args[place]
	}
	for _, k := range keys {
		if a := c.expr.Get(k); a != nil {
			e = a
		}
	}
	if e == nil {
		return nil
	}
	v, best, at, _ := x.evaluate(e, c.file, map[*setting]bool{})
	if v.kind != word {
		return nil
	}
	if best > from.rank {
		from.rank, from.at = best, cmp.Or(at, from.at)
	}
	from.weight = weight
	from.text = v.text
	return from
}
