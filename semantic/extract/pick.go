package extract

import (
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
		if c.text == "" || generic[strings.ToLower(c.text)] && len(c.text) < 3 {
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
	"Parser", "Logger", "Sampler", "Loader", "DataLoader", "Writer", "Adam", "AdamW", "SGD", "Sequential", "Module", "ModuleList", "Parallel", "DistributedDataParallel", "DataParallel", "DDP", "FSDP", "Runner", "Path", "Error", "Generator",
	"Env", "Buffer", "Wrapper", "Evaluator", "Checkpoint", "Engine", "Accelerator", "Namespace", "Environment", "Quantization", "BitsAndBytesConfig", "LoraConfig", "Compose", "Monitor", "Counter", "Manager", "Pipeline", "Workspace"}

// model resolves the model's name.
func (x *extraction) model() *candidate {
	var all []candidate
	for _, c := range x.candidates(facts().fields.Model) {
		if c.kind != word || strings.Contains(c.key, "tokenizer") || strings.Contains(c.key, "optim") || strings.Contains(c.key, "dataset") || strings.Contains(c.key, "loss") || strings.Contains(c.key, "schedule") {
			continue
		}
		c.text = modelName(c.text)
		if find(facts().datasets, c.text) != nil && find(facts().models, c.text) == nil { // rather the name of a run
			c.weight -= 15
		}
		if strings.Contains(c.key, "backbone") { // what a model is built on, where nothing else names it
			c.rank = min(c.rank, imported)
		}
		if last := c.key[strings.LastIndexByte(c.key, '.')+1:]; (last == "weights" || last == "cfg") && find(facts().models, c.text) == nil {
			continue
		}
		all = append(all, c)
	}
	for i := range x.calls {
		if c := x.modelOf(&x.calls[i]); c != nil {
			all = append(all, *c)
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
			all = append(all, candidate{text: s.value.text, kind: word, rank: min(s.rank, configured), weight: 2, at: s.at})
		}
	}
	for _, c := range x.configs {
		if name := strings.TrimSuffix(path.Base(c), path.Ext(c)); find(facts().models, name) != nil {
			all = append(all, candidate{text: name, kind: word, rank: imported, weight: 1, at: c})
		}
	}
	for _, w := range slices.Sorted(maps.Keys(x.words)) { // a library for one family of models
		if m := x.words[w]; m.module && m.top && !strings.Contains(w, ".") && find(facts().models, w) != nil {
			all = append(all, candidate{text: w, kind: word, rank: imported, at: m.at})
		}
	}
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
		all = append(all, candidate{text: name, kind: word, rank: declared, weight: 3, at: x.launch.script})
	}
	return pick(all, facts().models)
}

// toolEnd is at the end of the names of programs that train one family of models.
var toolEnd = regexp.MustCompile(`[-_](train|pretrain|finetune|trainer|cli|run)$`)

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
				if of = strings.Trim(strings.TrimPrefix(of, "is_"), "_"); !ok || flag != (part == last && s.value.text == "true") {
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
		if module = module[strings.LastIndexByte(module, '.')+1:]; find(facts().models, module) == nil {
			return nil
		}
		from.text, from.weight = module, 9
		return from
	case name == "from_preset":
		return asModel(x.argumentOf(c, from, 9, 0, "preset"))
	case strings.HasSuffix(name, "Model") && len(c.expr.Args) > 1 && c.expr.Args[1].Kind == python.String && find(facts().models, c.expr.Args[1].Text) != nil: // of a kind, by its name
		return asModel(x.argumentOf(c, from, 9, 1))
	case c.callee == "torch.hub.load":
		return asModel(x.argumentOf(c, from, 9, 1, "model"))
	case name == "YOLO" || name == "SentenceTransformer" || name == "CrossEncoder" || c.callee == "models.Transformer":
		return asModel(x.argumentOf(c, from, 9, 0, "model"))
	}
	if name == "Generator" && c.callee == name && strings.Contains(strings.ToLower(c.target), "gen") { // of a GAN
		from.text = name
		return from
	}
	if name == "" || isNoModel(name) || strings.HasPrefix(c.callee, "self.") && name == strings.ToLower(name) {
		return nil
	}
	upper := name[0] >= 'A' && name[0] <= 'Z'
	f := find(facts().models, name)
	if of, ok := strings.CutSuffix(name, "Config"); ok { // PPOConfig().environment("CartPole-v1")
		if agent := find(facts().models, of); agent != nil && agent.task == "RL" {
			name, f, c = of, agent, &call{target: "agent"}
		}
	}
	switch {
	case f != nil && upper && (strings.Contains(c.callee, "transformers.") || strings.Contains(c.callee, "applications.") || strings.Contains(c.callee, "models.") || !strings.HasSuffix(name, "Config")):
		from.weight = 6
		if !strings.Contains(strings.ToLower(c.target), "model") && !strings.Contains(strings.ToLower(c.target), "net") && c.target != "agent" {
			from.weight = 4
		}
		if isPart(name) || strings.HasPrefix(c.callee, "nn.") || strings.HasPrefix(c.callee, "torch.nn.") {
			from.weight = -15
		}
	case f != nil && strings.Contains(c.callee, "models."): // torchvision.models.resnet50()
		from.weight = 8
	case f != nil && f.task != "" && name == c.callee && (strings.HasSuffix(c.target, "model") || strings.HasSuffix(c.target, "net")): // resnet50()
		from.weight = 5
	case strings.HasPrefix(c.callee, "nn.") || strings.HasPrefix(c.callee, "torch.nn."):
		return nil
	case upper && slices.Contains([]string{"model", "net", "network", "self.model", "model_g", "generator", "agent", "policy"}, c.target):
		from.weight = 0
	default:
		return nil
	}
	from.text = modelName(name)
	return from
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
	ev := evaluation{x: x, file: c.file, from: map[*setting]bool{}, budget: 200}
	v := ev.value(e)
	if v.kind != word {
		return nil
	}
	if ev.best > from.rank {
		from.rank, from.at = ev.best, ev.at
	}
	from.weight = weight
	from.text = v.text
	return from
}

// dataset resolves what the model is trained on.
func (x *extraction) dataset() *candidate {
	var all []candidate
	for _, c := range x.candidates(facts().fields.Train) {
		last := c.key[strings.LastIndexByte(c.key, '.')+1:]
		if c.kind != word || strings.Contains(last, "model") || strings.Contains(c.key, "logger") || strings.Contains(c.key, "optim") {
			continue
		}
		if written.MatchString(c.text) {
			continue
		}
		c.text = served(datasetName(className(c.text)))
		if name := x.beside(&c); name != "" {
			c.text = name
		}
		all = append(all, c)
	}
	all = append(all, x.paths()...)
	for _, last := range slices.Sorted(maps.Keys(x.byName)) {
		if !x.datasets[last] && !namesData(last) {
			continue
		}
		for _, s := range x.byName[last] {
			if v := x.compute(s); v.kind == word && !excluded(s.key) {
				all = append(all, candidate{text: datasetName(v.text), kind: word, rank: s.rank, weight: 4, at: s.at})
			}
		}
	}
	for i := range x.calls {
		if c := x.datasetOf(&x.calls[i]); c != nil {
			all = append(all, *c)
		}
	}
	for _, group := range []string{"datamodule", "dataset", "data", "experiment", "env"} { // choices of Hydra's groups
		for _, s := range x.byName[group] {
			if s.key == "group."+group {
				all = append(all, candidate{text: s.value.text, rank: s.rank, weight: 2, at: s.at})
			}
		}
	}
	for _, s := range x.byName["task"] { // of robots, the environment
		if (s.key == "group.task" || s.key == "task") && find(facts().datasets, s.value.text) != nil {
			all = append(all, candidate{text: s.value.text, rank: s.rank, weight: 2, at: s.at})
		}
	}
	all = append(all, x.stored()...)
	all = append(all, x.inSections()...)
	for _, s := range x.byName["0"] { // the first positional argument of a tool
		if s.key == "place.0" && x.launch.tool != "" {
			all = append(all, candidate{text: datasetName(s.value.text), rank: s.rank, weight: 5, at: s.at})
		}
	}
	return pick(all, facts().datasets)
}

// paths returns what variables of the script name that have "dataset" or "data_path" in a longer name, such as nli_dataset_path.
func (x *extraction) paths() []candidate {
	var all []candidate
	for _, last := range slices.Sorted(maps.Keys(x.byName)) {
		if !strings.HasSuffix(last, "_dataset_path") && !strings.HasSuffix(last, "_dataset_name") && !strings.HasSuffix(last, "_data_path") && !strings.HasSuffix(last, "_data_dir") && !strings.HasSuffix(last, "_dataset") {
			continue
		}
		for _, s := range x.byName[last] {
			if s.rank < local || excluded(s.key) || strings.HasPrefix(last, "val") || strings.HasPrefix(last, "test") || strings.HasPrefix(last, "eval") {
				continue
			}
			if v := x.compute(s); v.kind == word {
				all = append(all, candidate{text: datasetName(v.text), kind: word, rank: s.rank, weight: 3, at: s.at})
			}
		}
	}
	return all
}

// stored returns what options of the command name that has no other name for a dataset, but lies in a folder of data: -s data/nerf/lego.
func (x *extraction) stored() []candidate {
	var all []candidate
	for _, last := range slices.Sorted(maps.Keys(x.byName)) {
		for _, s := range x.byName[last] {
			if s.rank != commanded || s.value.kind != word || !strings.Contains(s.value.text, "/") || excluded(s.key) || noData.MatchString(s.key) {
				continue
			}
			parts := strings.Split(strings.ToLower(strings.Trim(s.value.text, "/")), "/")
			if slices.ContainsFunc(parts[:len(parts)-1], func(p string) bool { return p == "data" || p == "dataset" || p == "datasets" }) {
				all = append(all, candidate{text: datasetName(s.value.text), kind: word, rank: declared, weight: 1, at: s.at})
			}
		}
	}
	return all
}

// inSections returns the known datasets and environments that configurations or the command name in a section of those.
func (x *extraction) inSections() []candidate {
	var all []candidate
	for _, last := range slices.Sorted(maps.Keys(x.byName)) {
		for _, s := range x.byName[last] {
			section := s.key[:len(s.key)-len(last)]
			if s.rank < configured || s.value.kind != word || excluded(s.key) || !strings.Contains(s.key, "data") && !strings.Contains(section, "env") || section == "" {
				continue
			}
			if name := datasetName(className(s.value.text)); find(facts().datasets, name) != nil {
				c := candidate{text: name, kind: word, rank: declared, weight: 1, at: s.at}
				if s.rank == commanded {
					c.rank = commanded
				}
				all = append(all, c)
			}
		}
	}
	return all
}

// beside returns, for the class that reads a dataset of a form that others have, too, such as that of COCO, the dataset's name by the folder that stands beside
// the class in the configuration. It returns nothing if the folder does not tell.
func (x *extraction) beside(c *candidate) string {
	section, last := c.key[:strings.LastIndexByte(c.key, '.')+1], c.key[strings.LastIndexByte(c.key, '.')+1:]
	form := find(facts().datasets, c.text)
	if section == "" || form == nil || form.name != "COCO" && form.name != "Pascal VOC" || last != "type" && last != "name" && last != "_target_" {
		return ""
	}
	for _, folder := range []string{"data_root", "root", "data_dir", "dataset_dir", "img_folder", "img_dir", "image_dir"} {
		for _, s := range x.byName[folder] {
			if s.key != section+folder || s.rank < c.rank {
				continue
			}
			v := x.compute(s)
			if name := datasetName(v.text); v.kind == word && strings.Contains(v.text, "/") && name != "" && find(facts().datasets, name) != form {
				return name
			}
		}
	}
	return ""
}

// namesData is whether the words of a key say that it names what a model is trained on: input_training_file, hf_dataset_path.
func namesData(key string) bool {
	words, data, more := strings.Split(key, "_"), false, false
	for _, w := range words {
		switch w {
		case "train", "training", "data", "dataset", "datasets", "corpus", "wavs", "audio":
			data = true
		case "file", "files", "dir", "path", "paths", "folder", "root", "list", "filelist", "manifest", "name", "names":
			more = true
		case "input", "hf", "the", "of", "or":
		default:
			return false
		}
	}
	return data && more && len(words) > 1
}

// noData is in the names of options that name files of another kind.
var noData = regexp.MustCompile(`out|save|log|model|ckpt|checkpoint|weight|config|cfg|token|vocab|cache|val|test|dev|resume|init|pretrain`)

// className returns the last part of a class or a function with its module, such as data.CocoDataset and torchtune.datasets.alpaca_dataset, and other
// texts as they are. Of a class that only serves a dataset that is known, it returns that.
func className(text string) string {
	i := strings.LastIndexByte(text, '.')
	if i <= 0 || i+1 == len(text) || strings.Contains(text, "/") {
		return text
	}
	name := text[i+1:]
	if upper := name[0] >= 'A' && name[0] <= 'Z'; !upper && !strings.Contains(text, ".datasets.") {
		return text
	}
	return served(name)
}

// served returns of a class or a function that only serves a dataset that is known, such as COCODataset, that dataset.
func served(name string) string {
	name = strings.TrimSuffix(strings.TrimSuffix(name, "Train"), "Training")
	for _, serves := range []string{"DataModule", "_dataset", "Dataset"} {
		if of, ok := strings.CutSuffix(name, serves); ok && find(facts().datasets, of) != nil {
			return of
		}
	}
	return name
}

// datasetOf returns the dataset that a call loads, or nil.
func (x *extraction) datasetOf(c *call) *candidate {
	parts := strings.Split(strings.TrimPrefix(c.callee, "."), ".")
	name := parts[len(parts)-1]
	from := &candidate{kind: word, rank: c.rank, at: where(c.file, c.expr.Line)}
	by := func(weight, place int, keys ...string) *candidate {
		r := x.argumentOf(c, from, weight, place, keys...)
		if r != nil {
			r.text = datasetName(r.text)
		}
		return r
	}
	lower := strings.ToLower(c.target)
	if strings.Contains(lower, "test") || strings.Contains(lower, "val") || strings.Contains(lower, "eval") {
		from.rank = max(0, from.rank-1)
	}
	switch {
	case name == "load_dataset":
		r := by(9, 0, "path")
		if r == nil || generic[strings.ToLower(r.text)] {
			from.rank = c.rank
			r = by(8, 99, "data_files", "data_dir")
		}
		return r
	case name == "load_data" && len(parts) > 1: // keras.datasets.mnist.load_data()
		from.text, from.weight = parts[len(parts)-2], 9
		return from
	case c.callee == "tfds.load" || c.callee == "tfds.builder" || name == "load_from_disk" || name == "load_iterable_dataset" || c.callee == "gym.make" || c.callee == "gymnasium.make" || name == "make_vec_env" || c.callee == "envpool.make" || name == "make_atari_env" || name == "environment":
		return by(9, 0, "name", "env_id", "id", "task_id")
	case name == "Planetoid" || name == "TUDataset" || name == "Amazon" || name == "Coauthor" || name == "MoleculeNet":
		return by(9, 1, "name")
	case strings.HasSuffix(name, "PropPredDataset"):
		return by(9, 0, "name")
	case name == "open" || name == "memmap" || c.callee == "np.fromfile" || name == "loadtxt" || name == "File" || c.callee == "np.load" || c.callee == "torch.load":
		if r := by(3, 0); r != nil && find(facts().datasets, r.text) != nil {
			return r
		}
		return nil
	case name == "ImageFolder" || name == "WebDataset":
		return by(6, 0, "root", "urls")
	case name == "read_h5ad":
		return by(8, 0)
	case name == "read_csv" || name == "read_parquet":
		return by(2, 0)
	case loadsData.MatchString(name):
		return by(4, 0, "name", "path", "root", "data_dir", "dataset", "dataset_name")
	}
	if f := find(facts().models, name); f != nil && f.task == "RL" && len(c.expr.Args) > 1 { // PPO("MlpPolicy", "CartPole-v1")
		return by(8, 1, "env")
	}
	if find(facts().datasets, name) == nil || name == strings.ToLower(name) && !strings.Contains(c.callee, "datasets.") {
		return nil
	}
	from.text, from.weight = served(strings.TrimSuffix(name, "AsrDataModule")), 6
	if strings.Contains(c.callee, "datasets.") {
		from.weight = 9
	}
	return from
}

// loadsData are the names of functions of a job's own that make what it trains on from its name or folder, which come first.
var loadsData = regexp.MustCompile(`^(load|get|build|make|create|prepare|setup|construct)_(train(ing)?_)?(data(_?sets?|_?loaders?)?|loaders?|corpus|envs?)$`)

// validation resolves with what the model is validated, if that is named.
func (x *extraction) validation(r *Result) {
	of := facts().fields.Valid
	for _, group := range of {
		for _, key := range group.Keys {
			last := key[strings.LastIndexByte(key, '.')+1:]
			for _, s := range x.byName[last] {
				if !ends(s.key, key) || s.rank <= elsewhere {
					continue
				}
				v := x.compute(s)
				if v.kind != word || strings.Contains(v.text, "$") {
					continue
				}
				if name := datasetName(className(v.text)); name != "" && !generic[strings.ToLower(name)] {
					r.Dataset.Valid = name
					r.Sources["valid"] = s.at
					return
				}
			}
		}
	}
}
