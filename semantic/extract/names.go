package extract

import (
	"embed"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"

	"github.com/muster-sched/muster/semantic/metadata"
)

//go:embed knowledge
var files embed.FS

// known is a family of models, or a dataset.
type known struct {
	name string
	task metadata.Task // or empty
	is   *regexp.Regexp
}

// use is what a library, a tool or a call tells.
type use struct {
	task      metadata.Task
	framework string
	weight    int
}

// names are keys that mean the same.
type names struct {
	Unit   string   `yaml:"unit"`
	Weight int      `yaml:"weight"`
	Keys   []string `yaml:"keys"`
}

// fields has by which names code calls the fields.
type fields struct {
	Not          []string            `yaml:"not"`
	Iterations   []names             `yaml:"iterations"`
	BatchSize    []names             `yaml:"batch_size"`
	Accumulation []names             `yaml:"accumulation"`
	LearnRate    []names             `yaml:"lr"`
	Optimizer    []names             `yaml:"optimizer"`
	Precision    []names             `yaml:"precision"`
	Model        []names             `yaml:"model"`
	Train        []names             `yaml:"train"`
	Valid        []names             `yaml:"valid"`
	GPUs         []names             `yaml:"gpus"`
	Nodes        []names             `yaml:"nodes"`
	Parameters   map[string][]string `yaml:"parameters"`
	// Multimodal has keys that only models have which take pictures or sound beside text.
	Multimodal []string `yaml:"multimodal"`
}

type knowledge struct {
	models, datasets []known
	uses             map[string]use
	fields           fields
}

// facts reads the knowledge that is built in.
var facts = sync.OnceValue(func() *knowledge {
	k := &knowledge{models: readKnown("models.tsv"), datasets: readKnown("datasets.tsv"), uses: map[string]use{}}
	for _, row := range readTable("libraries.tsv", 4) {
		weight, err := strconv.Atoi(row[3])
		if err != nil {
			panic(fmt.Sprintf("libraries.tsv: %s: weight %q is no number", row[0], row[3]))
		}
		k.uses[row[0]] = use{metadata.Task(dash(row[1])), dash(row[2]), weight}
	}
	if err := yaml.UnmarshalWithOptions(readFile("fields.yaml"), &k.fields, yaml.Strict()); err != nil {
		panic("fields.yaml: " + err.Error())
	}
	return k
})

func readFile(name string) []byte {
	data, err := files.ReadFile(path.Join("knowledge", name))
	if err != nil {
		panic(err)
	}
	return data
}

func readTable(name string, columns int) [][]string {
	var rows [][]string
	for i, line := range strings.Split(string(readFile(name)), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		row := strings.Split(line, "\t")
		if len(row) != columns {
			panic(fmt.Sprintf("%s:%d: %d columns, want %d", name, i+1, len(row), columns))
		}
		rows = append(rows, row)
	}
	return rows
}

func readKnown(name string) []known {
	var all []known
	for _, row := range readTable(name, 3) {
		all = append(all, known{row[0], metadata.Task(dash(row[1])), regexp.MustCompile(row[2])})
	}
	return all
}

func dash(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

// find returns the first of all to which name belongs, or nil.
func find(all []known, name string) *known {
	if len(name) > 300 {
		return nil
	}
	name = strings.ToLower(name)
	for i := range all {
		if all[i].is.MatchString(name) {
			return &all[i]
		}
	}
	return nil
}

// knownModel returns the known model to which name belongs, or nil, and remembers the answer.
func (x *extraction) knownModel(name string) *known {
	return remembered(x.models, facts().models, name)
}

// knownDataset returns the known dataset to which name belongs, or nil, and remembers the answer.
func (x *extraction) knownDataset(name string) *known {
	return remembered(x.data, facts().datasets, name)
}

func remembered(answers map[string]*known, all []known, name string) *known {
	k, ok := answers[name]
	if !ok {
		k = find(all, name)
		answers[name] = k
	}
	return k
}

// modelName returns a model's name from a value: of a path of a file system, its last part.
func modelName(text string) string {
	text = strings.TrimSpace(text)
	text = strings.TrimSuffix(strings.TrimSuffix(text, "/"), ".git")
	if strings.HasPrefix(text, "@") { // a reference
		return ""
	}
	if strings.HasPrefix(text, "$") && strings.Contains(text, "/") { // a folder that is not known
		text = "/" + path.Base(text)
	}
	if strings.ContainsAny(text, "${}()*\n") || len(text) > 120 {
		return ""
	}
	if i := strings.Index(text, "://"); i >= 0 {
		text = path.Base(text)
	}
	switch path.Ext(text) {
	case ".pt", ".pth", ".npz", ".yaml", ".yml", ".json", ".bin", ".ckpt", ".safetensors", ".py", ".cfg":
		text = path.Base(strings.TrimSuffix(text, path.Ext(text)))
	}
	if name, _, ok := strings.Cut(text, "?"); ok {
		return modelName(name)
	}
	local := strings.HasPrefix(text, "/") || strings.HasPrefix(text, ".") || strings.HasPrefix(text, "~") || strings.Count(text, "/") > 1
	if local {
		parts := strings.Split(text, "/")
		for i := len(parts) - 1; i >= 0; i-- {
			if find(facts().models, parts[i]) != nil {
				return parts[i]
			}
		}
		return path.Base(text)
	}
	if first, _, ok := strings.Cut(text, "."); ok && strings.ContainsAny(first, "0123456789") && find(facts().models, first) != nil && text[strings.LastIndexByte(text, '.')+1:] == strings.ToLower(text[strings.LastIndexByte(text, '.')+1:]) {
		return text // of timm: vit_small_patch16_224.augreg_in21k
	}
	if strings.Contains(text, ".") && !strings.Contains(text, "/") { // a class with its module
		if parts := strings.Split(text, "."); len(parts) > 1 && strings.Trim(parts[0], "abcdefghijklmnopqrstuvwxyz_0123456789") == "" && len(parts[0]) > 1 && !strings.ContainsAny(parts[len(parts)-1][:min(1, len(parts[len(parts)-1]))], "0123456789") {
			text = parts[len(parts)-1]
		}
	}
	if m := head.FindStringSubmatch(text); m != nil && !strings.HasPrefix(text, "Auto") && find(facts().models, m[1]) != nil {
		text = m[1]
	}
	return text
}

// head is what Hugging Face adds to the name of a model in that of a class: GPT2LMHeadModel, ViTForImageClassification.
var head = regexp.MustCompile(`^([A-Z][A-Za-z0-9]*?)(LMHeadModel|For[A-Z][A-Za-z0-9]+|DoubleHeadsModel|Model|_?Net)$`)

// generic has names that say nothing.
var generic = map[string]bool{
	"": true, "model": true, "net": true, "base": true, "small": true, "large": true, "tiny": true, "default": true, "custom": true, "none": true, "auto": true, "data": true, "dataset": true,
	"datasets": true, "train": true, "training": true, "input": true, "inputs": true, "raw": true, "processed": true, "path": true, "root": true, "dir": true, "true": true, "false": true,
	"images": true, "img": true, "imgs": true, "text": true, "json": true, "csv": true, "parquet": true, "imagefolder": true, "audiofolder": true, "arrow": true, "webdataset": true, "output": true,
	"checkpoint": true, "checkpoints": true, "ckpt": true, "last": true, "best": true, "latest": true, "data-bin": true, "databin": true, "my_data": true, "custom_dataset": true, "test": true,
	"val": true, "valid": true, "main": true, "module": true, "jsonl": true, "file": true, "local": true, "src": true, "home": true, "mnt": true, "tmp": true, "content": true, "store": true,
	"dict": true, "shards": true, "folder": true, "hf": true, "torch": true, "random": true, "synthetic_data": true, "my_dataset": true, "self": true, "config": true, "args": true, "full": true,
	"meta": true, "metadata": true, "manifest": true, "annotations": true, "labels": true, "trainset": true, "pairs": true, "train_dataset": true, "train_data": true, "training_data": true, "x": true, "x_train": true, "subset": true, "imagenet1k_v1": true, "generalizedrcnn": true, "encoderdecoder": true, "encoderdecodermodel": true, "decoderonlymodel": true, "imageclassifier": true, "asr": true, "tts": true, "run": true, "npz": true, "npy": true, "hdf5": true, "h5": true, "lmdb": true, "ase": true, "tfrecord": true, "tfrecords": true, "zarr": true, "nlp": true, "cv": true, "asr_model": true, "rec": true, "det": true, "cls": true, "seg": true, "litmodel": true, "littransformer": true,
}

// isGeneric is whether a name says nothing, as do numbers (200k) and names of defaults (DefaultSegmentor).
func isGeneric(name string) bool {
	lower := strings.ToLower(name)
	return generic[lower] || sizeOnly.MatchString(lower) || wrapsData.MatchString(lower) || strings.HasPrefix(lower, "default") && find(facts().models, lower) == nil
}

// written is how the folders begin that jobs write into.
var written = regexp.MustCompile(`^(\./)?(results?|outputs?|out|runs?|exps?|experiments|logs?|checkpoints?|work_dirs?)/`)

// wrapsData is a class that puts datasets together, or reads any.
var wrapsData = regexp.MustCompile(`^(cache|persistent|concat|repeat|mixed|raw|balanced|class_?balanced|iterable|base|custom|multi|chain|streaming|image|video|text|png|vos|lmdb|simple|hdf5|record)[_-]?(raw|image|video|text)?_?data_?sets?$`)

var sizeOnly = regexp.MustCompile(`^[0-9.]+[kmbx]?$|^(data|part|split|shard|set)s?[_-]?[0-9]*$|^(train|training)[_-]?(list|files?|data|set|split|filelist|manifest)$`)

// datasetName returns a dataset's name from a value: of a path, the part that is a dataset that is known, or the last that
// says something.
func datasetName(text string) string {
	text = strings.Trim(strings.TrimSpace(text), "()[]'\", ")
	if name, part, ok := strings.Cut(text, "#"); ok && count(part) > 0 { // of ms-swift: so many of its samples
		text = name
	}
	if name, parts, ok := strings.Cut(text, ":"); ok && name != "" && described.MatchString(parts) { // ImageNet:split=TRAIN:root=/data
		text = name
	}
	if i := strings.Index(text, "://"); i >= 0 {
		text = text[i+3:]
	} else if name, version, ok := strings.Cut(text, ":"); ok && (strings.ContainsAny(version, ".*") && !strings.Contains(text, "/") || strings.Count(name, "/") == 1 && !strings.ContainsAny(version, "./*")) { // of TensorFlow Datasets, of ms-swift
		text = name
	}
	if strings.Count(text, `\`) > 1 { // of Windows
		text = strings.ReplaceAll(text, `\`, "/")
	}
	if strings.ContainsAny(text, "()\n<>") || strings.HasPrefix(text, "@") || len(text) > 300 || path.Ext(text) == ".py" {
		return ""
	}
	if first, rest, ok := strings.Cut(text, ","); ok && (strings.Contains(rest, "/") || strings.Contains(rest, "$")) {
		text = first
		if _, weight := numeric(first); weight { // of a mixture, as Megatron takes them: [1.0,/data/pile]
			text = strings.TrimSpace(rest)
		}
	}
	hub := strings.Count(text, "/") == 1 && !strings.HasPrefix(text, ".") && !strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "~") && path.Ext(text) == "" && !strings.ContainsAny(text, "$*")
	parts := strings.Split(strings.Trim(text, "/"), "/")
	hub = hub && len(parts) == 2 && !generic[strings.ToLower(parts[0])]
	if !strings.Contains(text, "/") && path.Ext(text) == "" && !strings.HasPrefix(text, "PyG-") {
		if strings.ContainsAny(text, "${*") {
			return ""
		}
		return text
	}
	for i := len(parts) - 1; i >= 0; i-- {
		if k := find(facts().datasets, parts[i]); k != nil && !strings.ContainsAny(parts[i], "${}*") {
			if hub {
				return text
			}
			if i > 0 && strings.HasPrefix(parts[i], parts[i-1]+".") { // a part of it: cora/cora.cites
				return parts[i-1]
			}
			return inList(trimData(parts[i]), k)
		}
	}
	if hub && !generic[strings.ToLower(parts[1])] {
		return text
	}
	for i := len(parts) - 1; i >= 0; i-- {
		name := trimData(parts[i])
		if i > 0 && strings.HasPrefix(strings.ToLower(name), "train") && !isGeneric(parts[i-1]) && !strings.ContainsAny(parts[i-1], "${}*~.") && strings.ContainsAny(name, "_-") {
			continue // nq/train_mined.jsonl
		}
		if len(name) > 2 && !isGeneric(name) && !strings.ContainsAny(name, "${}*") && name != "." && name != ".." && name != "~" && !strings.HasPrefix(strings.ToLower(name), "path") {
			return name
		}
	}
	return ""
}

// inList returns of the name of a list of files, such as vctk_audio_train_filelist, the dataset that it is of.
func inList(name string, of *known) string {
	lower := strings.ToLower(name)
	at := of.is.FindStringIndex(lower)
	if at == nil || !strings.Contains(lower, "list") && !strings.Contains(lower, "manifest") {
		return name
	}
	is := strings.Trim(name[at[0]:at[1]], "_-.")
	if strings.HasPrefix(plain(of.name), plain(is)) { // ljs
		return of.name
	}
	return is
}

// described is what parts of a dataset's name say about it.
var described = regexp.MustCompile(`^\w+=[^:]*(:\w+=[^:]*)*$`)

// trimData takes the extensions of data files away, and what Megatron adds to them.
func trimData(name string) string {
	name = strings.TrimPrefix(name, "PyG-")
	for {
		switch ext := path.Ext(name); strings.ToLower(ext) {
		case ".yaml", ".yml", ".json", ".jsonl", ".csv", ".spacy", ".conllu", ".record", ".list", ".lst", ".cleaned", ".tsv", ".txt", ".bin", ".npz", ".npy", ".h5", ".hdf5", ".parquet", ".zip", ".tar", ".gz", ".lmdb", ".idx", ".pkl", ".pt", ".arrow", ".tfrecord",
			".tfrecords", ".xyz", ".extxyz", ".h5ad", ".sdf", ".smi", ".pdb", ".cif", ".mat", ".feather", ".msgpack", ".rec", ".nc", ".zarr", ".beton", ".ndjson", ".avro", ".orc", ".db", ".sqlite", ".fa",
			".fasta", ".vcf", ".bed", ".ply", ".xml", ".xz", ".bz2", ".zst", ".tgz", ".pickle", ".pth", ".train", ".mp4", ".avi", ".wav", ".flac", ".mp3", ".png", ".jpg", ".jpeg", ".obj", ".las", ".laz", ".nii", ".dcm", ".data", ".names":
			name = strings.TrimSuffix(name, ext)
			continue
		}
		name = strings.TrimSuffix(strings.TrimSuffix(name, "_text_document"), "_text_sentence")
		return name
	}
}
