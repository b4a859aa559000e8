package extract

import (
	"path"
	"regexp"
	"strings"

	"github.com/muster-sched/muster/semantic/python"
)

// This file finds the configurations that code names.

// loads reads the configurations that a statement names: yaml.safe_load(open("base.yaml")), load_config("base"), default="base.yaml".
func (x *extraction) loads(s *python.Statement, file string, r rank) {
	read := func(e *python.Expr, exts ...string) {
		if e != nil && e.Kind == python.Binary && e.Text == "/" { // folder / "base.yaml"
			e = &e.Args[1]
		}
		if e != nil && e.Kind == python.Call && strings.HasSuffix(e.Callee(), "path.join") { // join(dirname(__file__), "conf", "base.yaml")
			ev := evaluation{x: x, file: file, from: map[*setting]bool{}, budget: 200}
			e = &python.Expr{Kind: python.String, Text: ev.value(e).text}
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

// composedName is the name of a configuration that code puts together.
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
