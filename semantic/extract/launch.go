package extract

import (
	"bytes"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/semantic/shell"
)

// launch is what a command launches, and on what.
type launch struct {
	text   string
	at     string // "command", or file:line
	rank   rank   // of what it says
	script string // the Python file of the folder
	module string // of python -m, where it is no file of the folder
	tool   string // a program that trains, such as llamafactory-cli
	dir    string // in which it is launched, relative to the folder
	args   []string

	env []string // that is set for it, NAME=value

	configs []string // that the command reads, without its naming them

	gpus, perNode, nodes int // as the launcher says; 0: it does not
	precision            string
}

// argument is an argument of the script.
type argument struct {
	key, value string
	raw        string
	override   bool // key=value without hyphens
	place      bool // without a key
}

// command finds the launch command, and reads what it launches.
func (x *extraction) command(given string) {
	if strings.TrimSpace(given) != "" {
		x.commands([]byte(given), "command", commanded, ".", shell.Call{}, 0)
		if x.launch.text == "" {
			x.launch = launch{text: given, at: "command", rank: commanded}
		}
		return
	}
	for _, f := range x.launchFiles() {
		if x.launchFile(f) {
			return
		}
	}
}

// commands takes the first command of a script that launches something. Directives for Slurm say on how many nodes.
func (x *extraction) commands(source []byte, at string, r rank, dir string, call shell.Call, depth int) bool {
	if x.scripts++; x.scripts > maxScripts || x.tree.ctx.Err() != nil {
		return false
	}
	own := path.Dir(at)
	if dir != "." && strings.HasPrefix(own+"/", dir+"/") { // a script that is launched in its own folder
		own = path.Join(".", strings.TrimPrefix(own, dir))
	}
	call.Dir = own
	s := shell.ParseCall(source, call)
	var exported []string
	for _, name := range s.Exported {
		if v := s.Vars[name]; !strings.Contains(v.Value, "$") {
			exported = append(exported, name+"="+v.Value)
		}
	}
	start := dir
	var best *launch
	score, chosen := 0, -1
	for i, c := range s.Commands {
		if c.Words[0] == "cd" && len(c.Words) > 1 && !strings.Contains(c.Words[1], "$") {
			if next := path.Join(dir, c.Words[1]); x.tree.folders[next] {
				dir = next
			}
			continue
		}
		l := launch{text: strings.Join(append(slices.Clone(c.Env), c.Words...), " "), at: at, rank: r, dir: dir}
		if at != "command" {
			l.at = where(at, c.Line)
		}
		for _, e := range c.Env {
			l.environment(e)
		}
		l.env = append(slices.Clone(exported), c.Env...)
		if !x.follow(&l, c.Words, depth) {
			continue
		}
		if n := l.score(); n > score && (n > 1 || at == "command") {
			best, score, chosen = &l, n, i
		}
	}
	if best == nil && s.Skipped { // a value that it compares may be another one
		call.All = true
		return x.commands(source, at, r, start, call, depth)
	}
	if best == nil {
		return false
	}
	for _, c := range s.Comments {
		if rest, ok := strings.CutPrefix(c.Text, "#SBATCH "); ok {
			best.slurm(shell.Split(rest))
		}
	}
	if v, ok := s.Vars["CUDA_VISIBLE_DEVICES"]; ok {
		best.environment("CUDA_VISIBLE_DEVICES=" + v.Value)
	}
	x.launch = *best
	for i, c := range s.Commands {
		if i != chosen && i < chosen+maxOthers {
			x.others = append(x.others, c.Words[1:min(len(c.Words), maxOthers)]...)
		}
	}
	return true
}

// maxOthers bounds how many commands beside the launch command are read, and how many words of each.
const maxOthers = 20

// score is how likely a launched script trains: what downloads, prepares or evaluates does not. Of several, the first counts.
func (l *launch) score() int {
	if l.tool == "setup.py" || path.Base(l.script) == "setup.py" || asksHelp(l.args) {
		return 0
	}
	name := strings.ToLower(l.script + l.module + l.tool)
	if len(l.args) > 0 && !isOption(l.args[0]) {
		name += " " + strings.ToLower(l.args[0])
	}
	for _, w := range []string{"eval", "prepare", "preprocess", "download", "test", "sample", "infer", "generate", "export", "convert", "plot", "serve", "demo", "predict", "tokenize", "build_", "process", "validate", "analyze", "compute_", "make_", "average", "decode", "recogni", "vocab"} {
		if strings.Contains(name, w) && !strings.Contains(name, "train") {
			return 1
		}
	}
	if strings.Contains(name, "train") || strings.Contains(name, "tune") || l.tool != "" && path.Ext(l.tool) != ".py" {
		return 3
	}
	return 2
}

// asksHelp reports whether a command only asks for help. A program may have another use for -h, with a value.
func asksHelp(args []string) bool {
	for i, w := range args {
		if w == "--help" || w == "-h" && (i+1 == len(args) || isOption(args[i+1])) {
			return true
		}
	}
	return false
}

// environment notes a variable that is set for the command.
func (l *launch) environment(assignment string) {
	name, v, _ := strings.Cut(assignment, "=")
	if (name == "CUDA_VISIBLE_DEVICES" || name == "HIP_VISIBLE_DEVICES") && v != "" && !strings.Contains(v, "$") && l.perNode == 0 {
		l.perNode = strings.Count(v, ",") + 1
	}
}

// slurm notes what options of sbatch and srun say.
func (l *launch) slurm(cmds []shell.Command) {
	if len(cmds) == 0 {
		return
	}
	for _, a := range split(cmds[0].Words, nil) {
		n := count(a.value)
		switch normal(a.key) {
		case "nodes", "n":
			if a.key != "n" && l.nodes == 0 {
				l.nodes = n
			}
		case "gres", "gpus_per_node":
			if strings.Contains(a.value, "gpu") || normal(a.key) == "gpus_per_node" {
				if n := count(a.value[strings.LastIndexByte(a.value, ':')+1:]); n > 0 && l.perNode == 0 {
					l.perNode = n
				}
			}
		case "gpus", "g":
			if n := count(a.value[strings.LastIndexByte(a.value, ':')+1:]); n > 0 && l.gpus == 0 {
				l.gpus = n
			}
		}
	}
}

// count returns the number that text is, or 0. Of a range, as in 1:4 of elastic launches, the upper bound.
func count(text string) int {
	text = text[strings.LastIndexByte(text, ':')+1:]
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 0 || n > 1_000_000 {
		return 0
	}
	return n
}

// launchers start a script that follows, and may start it several times.
var launchers = map[string]bool{
	"torchrun": true, "accelerate": true, "deepspeed": true, "srun": true, "mpirun": true, "mpiexec": true, "horovodrun": true, "composer": true, "colossalai": true, "torchx": true,
	"python": true, "python3": true, "bash": true, "sh": true,
}

// prints are commands that show a text, which may have a command in it.
var prints = map[string]bool{"echo": true, "printf": true, "cat": true, "grep": true, "sed": true, "log": true}

// follow finds what the words of a command launch, through wrappers such as srun and torchrun.
func (x *extraction) follow(l *launch, words []string, depth int) bool {
	var options []string // of launchers
	defer func() { x.launcher(l, options) }()
	for i := 0; i < len(words); i++ {
		w := words[i]
		base := path.Base(w)
		switch {
		case strings.HasSuffix(w, ".py") && !(i > 0 && strings.HasPrefix(words[i-1], "--config")):
			f, ok := x.tree.find(l.dir, w)
			if !ok && !strings.Contains(w, "/") { // that the folder installs, or the only one of that name, in whose folder it is launched
				f, ok = x.tree.find(".", "$/"+w)
			}
			if !ok {
				f = ""
				l.tool = base
			}
			l.script, l.args = f, words[i+1:]
			if len(l.args) > 0 && strings.HasSuffix(l.args[0], ".py") && entryScore(path.Base(w)) == 0 && entryScore(path.Base(l.args[0])) > 0 {
				continue // a launcher in Python, such as deepy.py
			}
			return true
		case x.isPython(l.dir, w) && (i == 0 || strings.HasPrefix(path.Base(words[i-1]), "python")): // ./train, or python train
			f, _ := x.tree.find(l.dir, w)
			l.script, l.args = f, words[i+1:]
			return true
		case (w == "-m" || w == "--module") && i+1 < len(words):
			m := words[i+1]
			if strings.HasPrefix(m, "torch.distributed") || strings.HasPrefix(m, "accelerate") || strings.HasPrefix(m, "deepspeed") || m == "paddle.distributed.launch" ||
				strings.HasSuffix(m, ".launch") && slices.Contains(words[i+2:], "--") {
				i++
				options = append(options, m)
				continue
			}
			return x.moduleLaunch(l, m, words[i+2:])
		case launchers[base] && (i == 0 || !strings.HasPrefix(words[i-1], "-")):
			x.uses(base, l.at, true)
			options = append(options, base)
		case base == "make" && i == 0:
			for _, f := range []string{"Makefile", "makefile", "GNUmakefile"} {
				if data, ok := x.tree.open(path.Join(l.dir, f)); ok && depth < 4 && x.commands(recipes(data, words[1:]), f, l.rank, l.dir, shell.Call{Env: l.env}, depth+1) {
					text, at := l.text, l.at
					if *l = x.launch; at == "command" {
						l.text, l.at = text, at
					}
					return true
				}
			}
			return false
		case strings.HasSuffix(w, ".sh") || strings.HasSuffix(w, ".sbatch") || strings.HasSuffix(w, ".slurm"):
			f, ok := x.tree.find(l.dir, w)
			if !ok && slices.ContainsFunc(words[i+1:], func(w string) bool { _, is := x.tree.find(l.dir, w); return is && strings.HasSuffix(w, ".py") }) {
				continue // a launcher that is not in the folder
			}
			if data, readable := x.tree.open(f); ok && readable && depth < 4 && x.commands(data, f, l.rank, l.dir, shell.Call{Params: words[i+1:], Env: l.env}, depth+1) {
				text, at := l.text, l.at
				*l = x.launch
				if at == "command" {
					l.text, l.at = text, at
				}
				return true
			}
			return false
		case i > 0 && strings.HasPrefix(w, "--wrap") && path.Base(words[0]) == "sbatch":
			_, command, ok := strings.Cut(w, "=")
			if !ok && i+1 < len(words) {
				command = words[i+1]
			}
			if depth < 4 && x.commands([]byte(command), l.at, l.rank, l.dir, shell.Call{Env: l.env}, depth+1) {
				at := l.at
				*l = x.launch
				l.at = at
				l.slurm([]shell.Command{{Words: words}})
				return true
			}
			return false
		case w == "-c" && i+1 < len(words) && i > 0 && (path.Base(words[i-1]) == "bash" || path.Base(words[i-1]) == "sh"):
			if depth < 4 && x.commands([]byte(words[i+1]), l.at, l.rank, l.dir, shell.Call{Env: l.env}, depth+1) {
				at := l.at
				*l = x.launch
				l.at = at
				return true
			}
			return false
		case base == "tune" && i+1 < len(words) && words[i+1] == "run": // of torchtune: options of torchrun, a recipe, its arguments
			x.uses(base, l.at, true)
			options = append(options, "torchrun")
			i++
			if rest := words[i+1:]; !slices.ContainsFunc(rest, func(w string) bool { return strings.HasSuffix(w, ".py") }) {
				options = append(options, rest...)
				l.tool, l.args = base, rest
				return true
			}
		case (i == 0 || wrappers[path.Base(words[0])]) && x.entryPoint(base) != "":
			return x.moduleLaunch(l, x.entryPoint(base), words[i+1:])
		case (tools[base] || i == 0 && len(words) > 1 && facts().uses[base].framework != "" || trains(base, words[i+1:]) || x.trainsBy(l.dir, base, words[i+1:])) && (i == 0 || wrappers[path.Base(words[0])] && (!strings.HasPrefix(words[i-1], "-") || strings.Contains(words[i-1], "=")) && words[i-1] != "activate"):
			x.uses(base, l.at, true)
			l.tool, l.args = base, words[i+1:]
			return true
		default:
			options = append(options, w)
		}
	}
	for i, w := range words { // ssh node "cd job && torchrun train.py", --command="python train.py"
		if _, v, ok := strings.Cut(w, "="); ok && strings.HasPrefix(w, "--") {
			w = v
		}
		all := strings.Fields(w)
		if i > 0 && len(all) > 1 && depth < 4 && !prints[words[0]] && slices.ContainsFunc(all, func(f string) bool { return launchers[path.Base(f)] }) && x.commands([]byte(w), l.at, l.rank, l.dir, shell.Call{Env: l.env}, depth+1) {
			at := l.at
			*l = x.launch
			l.at = at
			return true
		}
	}
	for _, w := range words { // submit job.yaml, which says what is run: entrypoint: python -m harness trial:Trial
		f, ok := x.tree.find(l.dir, w)
		if !ok || depth >= 4 || !slices.Contains(stems[:2], path.Ext(f)) || len(words) > 20 {
			continue
		}
		n := x.config(f)
		run := n.get("entrypoint")
		if run == nil {
			continue
		}
		text := run.scalar
		for _, i := range run.items {
			text += " " + i.scalar
		}
		if x.commands([]byte(text), l.at, l.rank, l.dir, shell.Call{Env: l.env}, depth+1) {
			at := l.at
			*l = x.launch
			l.at, l.configs = at, append(l.configs, f)
			return true
		}
	}
	for i, w := range words { // dora -P package run
		if f, ok := x.tree.find(l.dir, w+"/train.py"); ok && i > 0 && i+1 < len(words) && words[i+1] == "run" {
			l.script, l.args = f, words[i+2:]
			return true
		}
	}
	return false
}

// isPython is whether a word names a file without an extension whose first line says that Python runs it.
func (x *extraction) isPython(dir, word string) bool {
	f, ok := x.tree.find(dir, word)
	if !ok || path.Ext(f) != "" {
		return false
	}
	source, ok := x.tree.open(f)
	first, _, _ := bytes.Cut(source[:min(len(source), 100)], []byte("\n"))
	return ok && bytes.HasPrefix(first, []byte("#!")) && bytes.Contains(first, []byte("python"))
}

// launcher notes on how many GPUs the options of launchers start the script.
func (x *extraction) launcher(l *launch, words []string) {
	launched := map[string]bool{}
	for _, w := range words {
		launched[w] = true
	}
	mpi := launched["mpirun"] || launched["mpiexec"] || launched["horovodrun"] || launched["composer"]
	if launched["srun"] {
		l.slurm([]shell.Command{{Words: words}})
	}
	for _, a := range split(words, nil) {
		n := count(a.value)
		switch normal(a.key) {
		case "mixed_precision":
			l.precision = a.value
		case "config_file": // of accelerate
			if f, ok := x.tree.find(l.dir, a.value); ok {
				if c := x.config(f); c != nil {
					l.gpus, l.nodes, l.precision = count(c.text("num_processes")), count(c.text("num_machines")), c.text("mixed_precision")
				}
			}
		}
		if all := strings.Split(a.value, ","); normal(a.key) == "gpus" && len(all) > 1 && count(all[1]) > 0 { // of PaddlePaddle
			l.perNode = len(all)
		}
		if n == 0 {
			continue
		}
		switch normal(a.key) {
		case "nproc_per_node", "num_gpus", "gpus_per_node", "nproc_per_machine", "ngpu":
			l.perNode = n
		case "nnodes", "num_nodes", "num_machines":
			l.nodes = n
		case "num_processes", "nproc":
			l.gpus = n
		case "np", "n":
			if mpi {
				l.gpus = n
			}
		}
	}
	if launched["torchrun"] && l.perNode == 0 && l.gpus == 0 && l.nodes == 0 {
		l.perNode = 1
	}
}

// split takes words apart into options and what stands alone. options has those that a script declares.
func split(words []string, options map[string]option) []argument {
	var all []argument
	for i := 0; i < len(words); i++ {
		w := words[i]
		name := strings.TrimLeft(w, "-")
		_, isNumber := numeric(w)
		switch {
		case name == "" || w == "\\":
		case strings.HasPrefix(w, "-") && !isNumber:
			a := argument{raw: w}
			var has bool
			a.key, a.value, has = strings.Cut(name, "=")
			o, known := options[normal(a.key)]
			if known {
				a.key = o.key
			}
			if !has && !(known && o.flag) {
				var values []string
				for i+1 < len(words) && !isOption(words[i+1]) && len(values) < 16 && (len(values) == 0 || known && o.many || !known && isListed(values[0]) && isListed(words[i+1])) {
					values = append(values, words[i+1])
					i++
				}
				a.value = strings.Join(values, ", ")
				has = len(values) > 0
			}
			if !has {
				a.value = "true"
			}
			all = append(all, a)
		case yacs.MatchString(w) && i+1 < len(words): // SOLVER.MAX_ITER 90000
			all = append(all, argument{key: w, value: words[i+1], raw: w, override: true})
			i++
		default:
			key, v, ok := strings.Cut(w, "=")
			plain := strings.TrimLeft(key, "+~")
			if ok && plain != "" && strings.Trim(strings.ToLower(plain), "abcdefghijklmnopqrstuvwxyz0123456789_./-@") == "" {
				plain, _, _ = strings.Cut(plain, "@")
				all = append(all, argument{key: plain, value: v, raw: w, override: true})
			} else {
				all = append(all, argument{value: w, raw: w, place: true})
			}
		}
	}
	return all
}

// yacs is a key of a configuration of yacs, as Detectron2 takes them at the end of its options.
var yacs = regexp.MustCompile(`^[A-Z][A-Z0-9_]*(\.[A-Z0-9_]+)+$`)

func isOption(w string) bool {
	_, n := numeric(w)
	return strings.HasPrefix(w, "-") && !n
}

// isListed is whether a word can be one of several values of an option: a number.
func isListed(w string) bool {
	_, n := numeric(w)
	return n
}

// arguments notes what the launch command passes to the script, and reads the configurations that it names.
func (x *extraction) arguments() {
	l := &x.launch
	args := split(l.args, x.options)
	configs := configured
	if l.rank < configs {
		configs = l.rank
	}
	x.hydraOptions(args)
	if x.hydra != nil {
		x.compose(x.hydra, args)
	}
	if l.precision != "" {
		x.add(setting{key: "mixed_precision", value: parse(l.precision), rank: l.rank, at: l.at})
	}
	for _, f := range l.configs {
		if x.tree.has[f] {
			x.load(f, configs)
		}
	}
	place := 0
	for _, a := range args {
		switch {
		case a.place:
			configured := x.named(a.value, configs) || strings.Contains(a.value, "/") && x.byStem("", a.value, configs)
			if place < len(x.places) {
				x.add(setting{key: x.places[place], value: parse(a.value), rank: l.rank, at: l.at})
			} else if !configured {
				x.add(setting{key: "place." + strconv.Itoa(place), value: parse(a.value), rank: l.rank, at: l.at})
			}
			place++
		case pairs.MatchString(a.value), binding.MatchString(a.value): // --hparams=batch_size=48,epochs=300, --gin_bindings="Config.data_dir = 'x'"
			all := []string{a.value}
			if pairs.MatchString(a.value) {
				all = strings.Split(a.value, ",")
			}
			for _, p := range all {
				key, v, _ := strings.Cut(p, "=")
				x.add(setting{key: strings.TrimSpace(key), value: parse(strings.Trim(v, ` '"`)), rank: l.rank, at: l.at})
			}
		default:
			if x.hydra == nil && !a.override {
				x.byStem(a.key, a.value, configs)
			}
			if !x.named(a.value, configs) || strings.HasPrefix(normal(a.key), "data") || a.key == "model" {
				x.add(setting{key: a.key, value: parse(strings.Trim(a.value, `"'`)), rank: l.rank, at: l.at})
			}
		}
	}
}

// pairs are names with values in one option, and a binding is one with spaces, as of gin.
var binding = regexp.MustCompile(`^[A-Za-z_][\w./]* = [^=]+$`)
var pairs = regexp.MustCompile(`^[A-Za-z_]\w*=[^,=]+(,[A-Za-z_]\w*=[^,=]+)*$`)

// hydraOptions notes where the command says that Hydra finds the configuration.
func (x *extraction) hydraOptions(args []argument) {
	dir, name := "", ""
	for _, a := range args {
		switch normal(a.key) {
		case "config_name", "cn":
			name = a.value
		case "config_path", "config_dir", "cp", "cd":
			dir = a.value
		}
	}
	if name == "" && (dir == "" || x.hydra == nil) {
		return
	}
	if x.hydra == nil {
		x.hydra = &hydraMain{dir: x.launch.dir}
	}
	for _, d := range []string{path.Join(path.Dir(x.launch.script), dir), path.Join(x.launch.dir, dir), path.Clean(dir)} {
		if dir != "" && x.tree.folders[d] {
			x.hydra.dir = d
			break
		}
	}
}
