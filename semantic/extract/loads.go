package extract

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/muster-sched/muster/semantic/python"
)

// This file finds the configurations that code and the command name.

// loads reads the configurations that a statement names: yaml.safe_load(open("base.yaml")), load_config("base"), default="base.yaml".
func (x *extraction) loads(s *python.Statement, file string, r rank) {
	read := func(e *python.Expr, exts ...string) {
		if e != nil && e.Kind == python.Binary && e.Text == "/" { // folder / "base.yaml"
			e = &e.Args[1]
		}
		if e != nil && e.Kind == python.Call && strings.HasSuffix(e.Callee(), "path.join") { // join(dirname(__file__), "conf", "base.yaml")
			ev := evaluation{x: x, file: file, from: map[*setting]bool{}, budget: 200}
			text := ev.value(e).text
			if n := len(e.Args); n > 0 && e.Args[n-1].Kind == python.String && isConfig(e.Args[n-1].Text) && !x.tree.has[path.Clean(text)] { // in a folder that the command may name
				x.composed = append(x.composed, composedName{*e, file, r})
			}
			e = &python.Expr{Kind: python.String, Text: text}
		}
		if e != nil && e.Kind == python.Format && isConfig(e.Text) { // f"conf/{algo}.yaml"
			x.composed = append(x.composed, composedName{*e, file, r})
			return
		}
		if e == nil || e.Kind != python.String || e.Text == "" || strings.ContainsAny(e.Text, " \n") || noConfig.MatchString(strings.ToLower(path.Base(e.Text))) {
			return
		}
		for _, ext := range exts {
			if ext != "" || isConfig(e.Text) {
				if f, ok := x.tree.find(path.Dir(file), e.Text+ext); ok && len(x.parsed) <= maxImports {
					x.load(f, r)
					return
				}
			}
		}
		if len(exts) > 1 && isConfig(e.Text) { // in a folder that the call says, or which is known elsewhere
			if f, ok := x.tree.find(".", "$/"+path.Base(e.Text)); ok && len(x.parsed) <= maxImports {
				x.load(f, r)
			}
		}
	}
	if s.Kind == python.Assign {
		read(&s.Value, "")
	}
	for i := range s.Calls {
		c := &s.Calls[i]
		callee := c.Callee()
		name := strings.ToLower(callee[strings.LastIndexByte(callee, '.')+1:])
		switch {
		case name == "add_argument" || name == "option":
			read(c.Get("default"), "")
		case name == "print" || strings.Contains(name, "save") || strings.Contains(name, "dump") || strings.Contains(name, "write"):
		default:
			exts := []string{""}
			if strings.Contains(name, "config") || strings.Contains(name, "cfg") {
				exts = append(exts, ".yaml", ".yml")
			}
			for i := range c.Args {
				read(&c.Args[i], exts...)
			}
		}
	}
}

// composedName is the name of a configuration or a module that code puts together.
type composedName struct {
	expr python.Expr
	file string
	rank rank
}

// loadComposed reads the configurations whose names depend on the command.
func (x *extraction) loadComposed() {
	for _, c := range x.composed[:min(len(x.composed), 20)] {
		e := evaluation{x: x, file: c.file, from: map[*setting]bool{}, budget: 200}
		if name := e.value(&c.expr); name.kind == word && !noConfig.MatchString(strings.ToLower(path.Base(name.text))) {
			if f, ok := x.tree.find(path.Dir(c.file), name.text); ok {
				x.load(f, max(c.rank, configured))
			}
		}
	}
}

// importComposed reads the modules of the folder whose names depend on the command: import_module("models." + args.model).
func (x *extraction) importComposed() {
	for _, m := range x.modules[:min(len(x.modules), 20)] {
		e := evaluation{x: x, file: m.file, from: map[*setting]bool{}, budget: 200}
		name := e.value(&m.expr)
		if name.kind != word || strings.HasPrefix(name.text, ".") {
			continue
		}
		for _, f := range x.imported(&python.Statement{Kind: python.Import, Module: name.text}, m.file) {
			x.python(f, min(m.rank, imported))
		}
	}
}

// noConfig is in the names of configurations that are not about the training.
var noConfig = regexp.MustCompile(`eval|test|infer|deploy|serv|logg|token|vocab|docker|compose|accelerate|label|class|index|sweep|ci\b`)

// isConfig reports whether a file is a configuration, by its name.
func isConfig(name string) bool {
	switch path.Ext(name) {
	case ".yaml", ".yml", ".toml":
		return true
	case ".json", ".ini", ".cfg":
		return strings.Contains(name, "conf") || strings.Contains(name, "param") || strings.Contains(name, "train") || strings.Contains(name, "settings")
	}
	return false
}

// named reads the configurations of the folder that an argument names, and returns whether it names any.
func (x *extraction) named(text string, r rank) bool {
	found := false
	for _, v := range strings.Split(text, ",") {
		v = strings.TrimSpace(v)
		if before, _, ok := strings.Cut(v, ".py:"); ok { // of ml_collections, with arguments: vit.py:res=224
			v = before + ".py"
		}
		switch path.Ext(v) {
		case ".yaml", ".yml", ".json", ".toml", ".py", ".cfg", ".ini", ".conf", ".gin", ".jsonnet", ".libsonnet", ".txt", ".config", ".pbtxt", ".prototxt":
			if f, ok := x.locate(v); ok {
				x.load(f, r)
				x.configs = append(x.configs, f)
				found = true
			}
		}
	}
	return found
}

// stems has the extensions of configurations.
var stems = []string{".yaml", ".yml", ".json", ".toml", ".py"}

// byStem reads the configuration that an option or an argument without a name means by its name without the extension, and returns whether there is one: by its path, or, for an option that
// says that it names one, the only one of that name. Of several, the one whose folder the option names: --env-config=gym is config/envs/gym.yaml.
func (x *extraction) byStem(key, name string, r rank) bool {
	if name == "" || len(x.launch.args) > mostSpoken || strings.ContainsAny(name, " ,$*:") || slices.Contains(append(stems, ".sh"), path.Ext(name)) {
		return false
	}
	var found []string
	if dir := path.Join(x.launch.dir, name); saysConfig(key) && x.tree.folders[dir] {
		return x.folder(dir, r)
	}
	if strings.Contains(name, "/") {
		for _, ext := range stems {
			for _, dir := range []string{x.launch.dir, path.Dir(x.launch.script)} {
				if f, ok := x.tree.find(dir, name+ext); ok && !slices.Contains(found, f) && (key == "" || saysConfig(key)) {
					found = append(found, f)
				}
			}
		}
	} else if saysConfig(key) {
		for _, f := range x.tree.files {
			if ext := path.Ext(f); slices.Contains(stems, ext) && path.Base(f) == name+ext && (ext != ".py" || strings.Contains(f, "conf")) {
				found = append(found, f)
			}
		}
	}
	if len(found) > 1 {
		of, _, _ := strings.Cut(normal(key), "_")
		found = slices.DeleteFunc(found, func(f string) bool { return !strings.Contains(path.Base(path.Dir(f)), of) })
	}
	if len(found) != 1 {
		return false
	}
	x.load(found[0], r)
	x.configs = append(x.configs, found[0])
	return true
}

// saysConfig reports whether an option names a configuration.
func saysConfig(key string) bool {
	for w := range strings.SplitSeq(normal(key), "_") {
		switch w {
		case "config", "configs", "cfg", "conf", "recipe", "preset", "experiment", "exp":
			return true
		}
	}
	return false
}

// locate returns the file of the folder that an argument names: relative to where the job is launched or to its script, or
// the only one of that name.
func (x *extraction) locate(name string) (string, bool) {
	for _, dir := range []string{x.launch.dir, path.Dir(x.launch.script)} {
		if f, ok := x.tree.find(dir, name); ok {
			return f, true
		}
	}
	if path.Ext(name) == ".py" {
		return "", false
	}
	if !strings.Contains(name, "/") {
		return x.tree.find(".", "$/"+name)
	}
	found := "" // of a package: configs/a.yaml is pkg/configs/a.yaml
	for _, f := range x.tree.files {
		if strings.HasSuffix(f, "/"+path.Clean(name)) {
			if found != "" {
				return "", false
			}
			found = f
		}
	}
	return found, found != ""
}
