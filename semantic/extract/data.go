package extract

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/muster-sched/muster/semantic/python"
)

// This file resolves what a job trains on, and is validated with.

// dataset resolves what the model is trained on.
func (x *extraction) dataset() *candidate {
	var all []candidate
	var forms []string // of datasets whose own names are known
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
			forms = append(forms, c.text)
			c.text = name
		}
		all = append(all, c)
	}
	all = slices.DeleteFunc(all, func(c candidate) bool { return slices.Contains(forms, c.text) }) // such as dataset_type, from which the class was taken
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
		if x.skips(x.calls[i].when) {
			continue
		}
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
	for _, s := range x.byName["hf_path"] { // of a model or of a dataset
		if v := x.compute(s); v.kind == word && find(facts().models, v.text) == nil && !excluded(s.key) {
			all = append(all, candidate{text: datasetName(v.text), kind: word, rank: s.rank, weight: 8, at: s.at})
		}
	}
	for _, s := range x.byName["task"] { // of robots, the environment
		if (s.key == "group.task" || s.key == "task") && find(facts().datasets, s.value.text) != nil {
			all = append(all, candidate{text: s.value.text, rank: s.rank, weight: 2, at: s.at})
		}
	}
	if f := find(facts().datasets, scriptName(x.launch.script)); f != nil { // train_cifar10.py
		if name := strings.Trim(f.is.FindString(strings.ToLower(scriptName(x.launch.script))), "_-"); len(name) > 2 {
			all = append(all, candidate{text: name, kind: word, rank: imported, weight: 1, at: x.launch.script})
		}
	}
	all = append(all, x.datasetsFollowed()...)
	all = append(all, x.spoken(facts().datasets, datasetName)...)
	all = append(all, x.stored()...)
	for _, w := range x.others {
		if name := datasetName(w); find(facts().datasets, name) != nil {
			all = append(all, candidate{text: name, kind: word, rank: imported, weight: -3, at: x.launch.at})
		}
	}
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
		if !strings.HasSuffix(last, "_dataset_path") && !strings.HasSuffix(last, "_dataset_name") && !strings.HasSuffix(last, "_data_path") && !strings.HasSuffix(last, "_data_dir") && !strings.HasSuffix(last, "_dataset") &&
			!strings.HasPrefix(last, "dataroot_") && !strings.HasPrefix(last, "data_root_") {
			continue
		}
		for _, s := range x.byName[last] {
			if s.rank < local || excluded(s.key) || strings.HasPrefix(last, "val") || strings.HasPrefix(last, "test") || strings.HasPrefix(last, "eval") {
				continue
			}
			weight := 3
			if strings.HasPrefix(last, "data") { // the first of several roots
				weight = 7
			}
			if v := x.compute(s); v.kind == word {
				all = append(all, candidate{text: datasetName(v.text), kind: word, rank: s.rank, weight: weight, at: s.at})
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
		case "file", "files", "dir", "path", "paths", "folder", "root", "list", "filelist", "manifest", "name", "names", "set", "sets":
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
	for _, serves := range []string{"DataModule", "_dataset", "Dataset", "Detection"} {
		if of, ok := strings.CutSuffix(name, serves); ok && find(facts().datasets, of) != nil {
			return of
		}
	}
	return name
}

// datasetOf returns the dataset that a call loads, or nil.
func (x *extraction) datasetOf(c *call) *candidate {
	if as := x.called(c); as != c.callee {
		of := *c
		of.callee = as
		c = &of
	}
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
		from.rank = max(0, from.rank-2)
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
	case name == "open" || name == "memmap" || c.callee == "np.fromfile" || name == "loadtxt" || name == "genfromtxt" || name == "loadmat" || name == "MatReader" || name == "File" || c.callee == "np.load" || c.callee == "torch.load":
		r := by(3, 0)
		if r != nil && x.knownDataset(r.text) == nil {
			if !x.isArrays(c) || noData.MatchString(strings.ToLower(r.text)) {
				return nil
			}
			r.rank, r.weight = min(r.rank, local), -3 // where nothing else names it
		}
		return r
	case name == "untar_data" && len(c.expr.Args) > 0: // of fastai: URLs.PETS
		from.text, from.weight = strings.ToLower(c.expr.Args[0].Text[strings.LastIndexByte(c.expr.Args[0].Text, '.')+1:]), 9
		return from
	case fetches[name]:
		return x.fetched(c, from)
	case name == "ImageFolder" || name == "WebDataset":
		return by(6, 0, "root", "urls")
	case name == "read_h5ad":
		return by(8, 0)
	case name == "read_csv" || name == "read_parquet":
		return by(2, 0)
	case x.knownDataset(name) == nil && x.fedBy(c) != nil:
		return x.fedBy(c)
	case x.knownDataset(name) == nil && (strings.HasSuffix(x.classes[name], "Dataset") || c.target != "" && x.given.datasets[variable(c.file, c.target)] && x.isPath(c)): // of one's own, made of a folder or a file
		r := by(3, 0, "root", "path", "folder", "data_dir", "file")
		if r != nil && (!x.isPath(c) || isGeneric(r.text)) {
			return nil
		}
		return r
	case strings.HasPrefix(name, "fetch_") && len(c.expr.Args) > 0: // of scikit-learn
		return by(6, 0, "name")
	case loadsData.MatchString(name):
		return by(4, 0, "name", "path", "root", "data_dir", "dataset", "dataset_name")
	}
	if f := x.knownModel(name); f != nil && f.task == "RL" && len(c.expr.Args) > 1 { // PPO("MlpPolicy", "CartPole-v1")
		return by(8, 1, "env")
	}
	if r := x.readsFolder(c, name); r != nil && x.knownDataset(name) == nil {
		return r
	}
	if judges.MatchString(name) || x.knownDataset(name) == nil || name == strings.ToLower(name) && !strings.Contains(c.callee, "datasets.") {
		return nil
	}
	from.text, from.weight = served(strings.TrimSuffix(name, "AsrDataModule")), 6
	if strings.Contains(c.callee, "datasets.") {
		from.weight = 9
	}
	return from
}

// readsFolder returns the dataset of which a call gets the part to train on, where nothing else names one: trainGenerator(2, "data/cells/train").
func (x *extraction) readsFolder(c *call, name string) *candidate {
	all := slices.Concat(c.expr.Args, c.expr.Named)
	for i := range all {
		parts := strings.Split(strings.ToLower(strings.Trim(all[i].Text, "./")), "/")
		if all[i].Kind != python.String || len(parts) < 3 || noData.MatchString(strings.ToLower(all[i].Text)) || !slices.Contains([]string{"data", "dataset", "datasets"}, parts[0]) {
			continue
		}
		if text := datasetName(all[i].Text); text != "" && (strings.HasPrefix(parts[len(parts)-1], "train") || strings.Contains(strings.ToLower(name), "train")) {
			return &candidate{text: text, kind: word, rank: min(c.rank, local), weight: -3, at: where(c.file, c.expr.Line)}
		}
	}
	return nil
}

// fetches are functions and commands that get a file of the net.
var fetches = map[string]bool{"check_output": true, "check_call": true, "system": true, "run": true, "urlretrieve": true, "urlopen": true, "download": true, "download_url": true, "get_file": true}

// fetched returns the dataset that is known and that code gets from the net, which tells where nothing else names one.
func (x *extraction) fetched(c *call, from *candidate) *candidate {
	all := slices.Clone(c.expr.Args)
	for _, e := range c.expr.Args {
		all = append(all, e.Args...)
	}
	for _, e := range all {
		if e.Kind != python.String || !strings.Contains(e.Text, "://") {
			continue
		}
		for word := range strings.FieldsSeq(e.Text) {
			if name := datasetName(word); strings.Contains(word, "://") && x.knownDataset(name) != nil {
				from.text, from.rank, from.weight = name, min(from.rank, local), -3
				return from
			}
		}
	}
	return nil
}

// isPath is whether the first argument of a call is a path.
func (x *extraction) isPath(c *call) bool {
	r := x.argumentOf(c, &candidate{}, 0, 0, "root", "path", "folder", "data_dir", "file")
	return r != nil && strings.Contains(r.text, "/")
}

// isArrays is whether the first argument of a call is a file of numbers in a folder: data/tank.npz.
func (x *extraction) isArrays(c *call) bool {
	r := x.argumentOf(c, &candidate{}, 0, 0)
	return r != nil && strings.Contains(r.text, "/") && !written.MatchString(r.text) && arrays.MatchString(r.text)
}

// arrays is at the end of the names of files of numbers.
var arrays = regexp.MustCompile(`\.(npz|npy|mat|h5|hdf5|nc)$`)

// judges is a class that measures a model on a dataset, as a program does that trains on another one, too.
var judges = regexp.MustCompile(`(Evaluator|Metrics?|Eval|Scorer)$`)

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
