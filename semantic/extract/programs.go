package extract

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// This file says which programs train, and what of the folder a program or a module is.

// entryPoint returns the module that runs where a program is called that the folder installs, or nothing: in pyproject.toml or setup.cfg, NAME = "MODULE:FUNCTION".
func (x *extraction) entryPoint(program string) string {
	if x.programs == nil {
		x.programs = map[string]string{}
		for _, file := range []string{"pyproject.toml", "setup.cfg", "setup.py"} {
			source, _ := x.tree.open(file)
			for line := range strings.SplitSeq(string(source), "\n") {
				if m := entryPoint.FindStringSubmatch(line); m != nil && len(line) < 300 {
					x.programs[m[1]] = m[2]
				}
			}
		}
	}
	return x.programs[program]
}

// wrappers run the command that follows them.
var wrappers = map[string]bool{
	"srun": true, "nohup": true, "env": true, "uv": true, "uvx": true, "poetry": true, "pipenv": true, "sudo": true, "nice": true, "numactl": true, "singularity": true, "apptainer": true, "docker": true,
	"conda": true, "mamba": true, "pixi": true, "rye": true, "time": true, "timeout": true, "stdbuf": true, "nsys": true, "mpirun": true, "torchrun": true, "accelerate": true, "ray": true, "sbatch": true,
}

// tools are programs that train what their arguments say.
var tools = map[string]bool{
	"llamafactory-cli": true, "axolotl": true, "fairseq-train": true, "fairseq-hydra-train": true, "yolo": true, "litgpt": true, "tune": true, "trl": true,
	"swift": true, "nnUNetv2_train": true, "ns-train": true, "t2t-trainer": true, "allennlp": true, "rasa": true, "mim": true, "onmt_train": true,
}

// trains reports whether a program is called for what it does, such as mace_run_train, and has options.
func trains(program string, words []string) bool {
	named := slices.ContainsFunc(strings.FieldsFunc(program, func(r rune) bool { return r == '-' || r == '_' }), func(w string) bool {
		return w == "train" || w == "pretrain" || w == "finetune" || w == "trainer"
	})
	options := 0
	for _, w := range words {
		if strings.HasPrefix(w, "--") || len(w) == 2 && w[0] == '-' {
			options++
		}
	}
	if len(words) > 0 { // chemprop train
		switch words[0] {
		case "train", "fit", "pretrain", "finetune", "fine-tune":
			return options > 1 && !strings.HasPrefix(program, "-") && !strings.Contains(program, "=")
		}
	}
	return options > 3 && !launchers[program] && !wrappers[program] && !prints[program] && saysTraining(words) || named && (options > 2 || len(words) > 0 && isConfig(words[0]))
}

// saysTraining reports whether options say what is trained on, and for how long: --train-sets a b --after-epochs 20.
func saysTraining(words []string) bool {
	data, length := false, false
	for _, w := range words {
		name, ok := strings.CutPrefix(w, "--")
		if strings.HasSuffix(w, ".py") || w == "-m" { // the program launches another one
			return false
		}
		if !ok {
			continue
		}
		name, _, _ = strings.Cut(name, "=")
		name = normal(name)
		data = data || namesData(name) && strings.HasPrefix(name, "train")
		length = length || counts(name) != ""
	}
	return data && length
}

// trainsBy reports whether a program is told to train by a configuration of the folder: dp --pt train input.json.
func (x *extraction) trainsBy(dir, program string, words []string) bool {
	for i, w := range words {
		if w == "train" && i+1 < len(words) {
			_, ok := x.tree.find(dir, words[i+1])
			return ok && slices.Contains(stems[:4], path.Ext(words[i+1])) && !strings.HasPrefix(program, "-")
		}
		if !strings.HasPrefix(w, "-") {
			break
		}
	}
	return false
}

// moduleLaunch is what python -m launches.
func (x *extraction) moduleLaunch(l *launch, module string, args []string) bool {
	rel := strings.ReplaceAll(module, ".", "/")
	l.args = args
	for _, p := range []string{rel + ".py", rel + "/__main__.py", "src/" + rel + ".py"} {
		if f, ok := x.tree.find(l.dir, p); ok {
			l.script = f
			return true
		}
	}
	if strings.HasPrefix(module, "pip") || strings.HasPrefix(module, "venv") || module == "http.server" || module == "pytest" || module == "build" || strings.HasPrefix(module, "unittest") {
		return false
	}
	for i, a := range args { // a launcher that is not in the folder
		if f, ok := x.tree.find(l.dir, a); ok && strings.HasSuffix(a, ".py") && entryScore(path.Base(f)) > 0 {
			l.script, l.args = f, args[i+1:]
			return true
		}
		if m := classIn.FindStringSubmatch(a); m != nil { // harness model_def:CIFARTrial
			if f, ok := x.tree.find(l.dir, strings.ReplaceAll(m[1], ".", "/")+".py"); ok {
				l.script, l.args = f, args[i+1:]
				return true
			}
		}
	}
	x.uses(module, l.at, true)
	top, rest, _ := strings.Cut(module, ".")
	x.uses(top, l.at, true)
	x.uses(toolEnd.ReplaceAllString(top, ""), l.at, true) // open_clip_train
	l.module, l.tool = module, top
	if rest != "" {
		l.tool = rest[strings.LastIndexByte(rest, '.')+1:]
	}
	return true
}

// classIn is a class with its module, as programs take them that run it.
var classIn = regexp.MustCompile(`^([a-z_][\w.]*):[A-Za-z_]\w*$`)

// entryPoint is a program that a package installs: its name, and the module of the function that it runs.
var entryPoint = regexp.MustCompile(`^\s*["']?([\w.-]+)["']?\s*=\s*["']?([\w.]+):\w+`)
