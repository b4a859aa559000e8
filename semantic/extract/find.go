package extract

import (
	"bytes"
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/muster-sched/muster/semantic/shell"
)

// launchFiles returns the files that may have the launch command, the likeliest first.
func (x *extraction) launchFiles() []string {
	scores := map[string]int{}
	var all []string
	for _, f := range x.tree.files {
		if s := launchScore(f); s > 0 {
			scores[f] = s
			all = append(all, f)
		}
	}
	for _, f := range all {
		if ext := path.Ext(f); ext == ".sh" || ext == ".bash" { // it waits for the arguments that another script has
			if data, ok := x.tree.open(f); ok && (bytes.Contains(data, []byte(`"$@"`)) || bytes.Contains(data, []byte("${@"))) {
				scores[f] = max(1, scores[f]-30)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b string) int {
		return cmp.Or(-cmp.Compare(scores[a], scores[b]), cmp.Compare(a, b))
	})
	return all[:min(len(all), 40)]
}

func launchScore(f string) int {
	base := strings.ToLower(path.Base(f))
	ext := path.Ext(base)
	score := 0
	switch {
	case ext == ".sh" || ext == ".sbatch" || ext == ".slurm" || ext == ".bash":
		score = 60
		name := strings.TrimSuffix(base, ext)
		switch {
		case name == "train" || name == "run" || name == "launch" || name == "run_train" || name == "pretrain":
			score = 90
		case strings.Contains(name, "train") || strings.Contains(name, "finetune") || strings.Contains(name, "sft"):
			score = 80
		case strings.HasPrefix(name, "run") || strings.HasPrefix(name, "launch") || strings.HasPrefix(name, "submit"):
			score = 75
		}
		for _, w := range []string{"eval", "test", "download", "install", "setup", "prepare", "preprocess", "infer", "sample", "generate", "convert", "lint", "build"} {
			if strings.Contains(name, w) {
				score -= 45
			}
		}
	case base == "dockerfile" || base == "makefile" || base == "justfile":
		score = 40
	case strings.HasPrefix(base, "readme") && (ext == ".md" || ext == ".rst" || ext == ".txt"):
		score = 20
	case (ext == ".yaml" || ext == ".yml") && (strings.Contains(base, "job") || strings.Contains(f, "k8s") || strings.Contains(f, "kubernetes") || strings.Contains(base, "pod") || strings.Contains(base, "deploy")):
		score = 70
	case base == "dvc.yaml" || base == "mlproject":
		score = 55
	case (ext == ".yaml" || ext == ".yml") && !strings.Contains(f, "/"):
		score = 15
	}
	if score > 0 {
		score = max(1, score-6*strings.Count(f, "/"))
	}
	return score
}

// launchFile takes the launch command from a file, if it has one.
func (x *extraction) launchFile(f string) bool {
	data, ok := x.tree.open(f)
	if !ok {
		return false
	}
	base := strings.ToLower(path.Base(f))
	switch ext := path.Ext(base); {
	case ext == ".yaml" || ext == ".yml" || base == "mlproject":
		return x.manifest(f) || x.staged(f)
	case strings.HasPrefix(base, "readme"):
		return x.readme(f, data)
	case base == "dockerfile":
		return x.dockerfile(f, data)
	case base == "makefile" || base == "justfile":
		return x.makefile(f, data)
	}
	return x.script(f, data, commanded)
}

// script takes the command from a script. Scripts are launched in their own folder, or in the job's.
func (x *extraction) script(f string, data []byte, r rank) bool {
	return x.commands(data, f, r, ".", shell.Call{}, 0) && (x.launch.script != "" || path.Dir(f) == "." || x.launch.module == "" && !strings.HasSuffix(x.launch.tool, ".py")) ||
		path.Dir(f) != "." && x.commands(data, f, r, path.Dir(f), shell.Call{}, 0)
}

// readme takes the first command of a README's code that launches a script of the folder. Where it shows several ways to
// launch that, they are examples, and count only where the script leaves something open.
func (x *extraction) readme(f string, data []byte) bool {
	var best *launch
	score, depth := 0, 0
	ways := map[string]map[string]bool{} // the commands by script
	code, lines := strings.Builder{}, strings.Split(string(data), "\n")
	start := 0
	try := func() {
		if x.commands([]byte(code.String()), f, mentioned, ".", shell.Call{}, 0) && x.launch.script != "" {
			l := x.launch
			l.at = where(f, start+1+lineOf(l.at))
			if ways[l.script] == nil {
				ways[l.script] = map[string]bool{}
			}
			ways[l.script][strings.Join(l.args, " ")] = true
			s := l.score()*100 + entryScore(l.script)
			if s > score {
				best, score = &l, s
			}
		}
		x.launch = launch{}
		code.Reset()
	}
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && depth == 0:
			depth, start = 1, i
		case fence:
			depth = 0
			try()
		case depth == 1 || strings.HasPrefix(line, "    "):
			if depth == 0 && code.Len() == 0 {
				start = i - 1
			}
			code.WriteString(strings.TrimPrefix(strings.TrimSpace(line), "$ ") + "\n")
		case code.Len() > 0 && depth == 0:
			try()
		}
	}
	if best == nil {
		return false
	}
	if len(ways[best.script]) == 1 {
		best.rank = commanded
	}
	x.launch = *best
	return true
}

func lineOf(at string) int { return count(at) - 1 }

func (x *extraction) dockerfile(f string, data []byte) bool {
	var env []string
	for i, line := range strings.Split(string(data), "\n") {
		if set, ok := strings.CutPrefix(line, "ENV "); ok {
			if name, v, ok := strings.Cut(set, " "); ok && !strings.Contains(name, "=") {
				env = append(env, name+"="+strings.TrimSpace(v))
			} else {
				for _, c := range shell.Split(set + " run") {
					env = append(env, c.Env...)
				}
			}
		}
		rest, ok := strings.CutPrefix(line, "CMD ")
		if !ok {
			rest, ok = strings.CutPrefix(line, "ENTRYPOINT ")
		}
		if !ok {
			continue
		}
		if strings.HasPrefix(strings.TrimSpace(rest), "[") {
			rest = strings.NewReplacer("[", "", "]", "", ",", " ").Replace(rest)
		}
		if x.commands([]byte(rest), f, commanded, ".", shell.Call{Env: env}, 0) && (x.launch.script != "" || x.launch.tool != "") {
			x.launch.at = where(f, i+1)
			return true
		}
	}
	return false
}

// makefile takes the command of the first rule that launches something.
func (x *extraction) makefile(f string, data []byte) bool {
	return x.commands(recipes(data, nil), f, commanded, ".", shell.Call{}, 0) && (x.launch.script != "" || x.launch.tool != "")
}

// recipes returns the variables and the recipes of a Makefile as a script of a shell, line by line. words are those of the command make: of the targets among them
// the recipes, or all; and what they say of variables instead.
func recipes(data []byte, words []string) []byte {
	given, targets := map[string]string{}, map[string]bool{}
	for _, w := range words {
		if name, v, ok := strings.Cut(w, "="); ok {
			given[name] = v
		} else if !strings.HasPrefix(w, "-") {
			targets[w] = true
		}
	}
	var b strings.Builder
	target := ""
	for _, line := range strings.Split(string(data), "\n") {
		rest, recipe := strings.CutPrefix(line, "\t")
		name, v, assigns := strings.Cut(line, "=")
		head, _, rule := strings.Cut(line, ":")
		switch {
		case recipe && (len(targets) == 0 || targets[target]):
			rest = strings.TrimLeft(rest, "@-")
			b.WriteString(strings.NewReplacer("$(", "${", ")", "}").Replace(rest))
		case recipe:
		case assigns && (!rule || len(head) == len(strings.TrimRight(name, "?:+ "))):
			name = strings.Trim(name, " ?:+")
			if over, ok := given[name]; ok {
				v = over
			}
			b.WriteString(name + "=\"" + strings.TrimSpace(v) + "\"")
		case rule:
			target = strings.TrimSpace(head)
		}
		b.WriteByte('\n')
	}
	return []byte(b.String())
}

// manifest takes the command of a Kubernetes manifest, and its GPUs.
func (x *extraction) manifest(f string) bool {
	n := x.config(f)
	if n == nil || n.get("kind") == nil {
		return false
	}
	return x.container(n, f, 1, 0)
}

func (x *extraction) container(n *node, f string, replicas, depth int) bool {
	if depth > 16 {
		return false
	}
	for _, key := range []string{"replicas", "parallelism"} {
		if r := n.get(key); r != nil && count(r.scalar) > 0 {
			replicas = count(r.scalar)
		}
	}
	var words []string
	for _, key := range []string{"command", "args"} {
		if c := n.get(key); c != nil {
			for _, i := range c.items {
				words = append(words, i.scalar)
			}
		}
	}
	if len(words) > 0 {
		l := launch{text: strings.Join(words, " "), at: n.at, rank: commanded, dir: "."}
		if c := n.get("command"); c != nil {
			l.at = c.at
		}
		if env := n.get("env"); env != nil {
			for _, i := range env.items {
				if i.fields["value"] != nil {
					l.env = append(l.env, i.text("name")+"="+i.text("value"))
				}
			}
		}
		if x.follow(&l, words, 0) {
			if limits := n.get("resources.limits"); limits != nil && limits.fields["nvidia.com/gpu"] != nil {
				l.perNode = count(limits.fields["nvidia.com/gpu"].scalar)
				l.nodes = replicas
			}
			x.launch = l
			return true
		}
	}
	for _, k := range n.keys {
		v := n.fields[k]
		for _, i := range append(slices.Clone(v.items), v) {
			if i.fields != nil && x.container(i, f, replicas, depth+1) {
				return true
			}
		}
	}
	return false
}

// looseConfigs reads the configurations of a folder without Python, such as one with a file for a tool.
func (x *extraction) looseConfigs() {
	var all []string
	for _, f := range x.tree.files {
		switch path.Ext(f) {
		case ".py":
			return
		case ".yaml", ".yml", ".toml", ".json":
			all = append(all, f)
		}
	}
	if len(all) > 3 {
		return
	}
	for _, f := range all {
		x.load(f, elsewhere)
	}
}
