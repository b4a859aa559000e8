package extract

import (
	"path"
	"regexp"
	"strings"

	"github.com/muster-sched/muster/semantic/shell"
)

// This file finds the launch command in the files of tools that run commands: the stages of DVC, the entry points of an MLproject of MLflow, jobs of Ray, SkyPilot,
// Azure ML and Docker Compose.

// staged takes the command of a file of stages that trains most likely, if one does.
func (x *extraction) staged(f string) bool {
	data, ok := x.tree.open(f)
	if !ok || len(data) > 1<<18 {
		return false
	}
	n := readYAML(f, data)
	if n == nil || n.fields == nil {
		return false
	}
	var best *launch
	score := 1
	env := variables(n)
	for _, c := range stages(n, 0) {
		if x.commands([]byte(c.scalar), f, commanded, ".", shell.Call{Env: env}, 0) && (x.launch.script != "" || x.launch.tool != "") && x.launch.score() > score {
			l := x.launch
			l.at = c.at
			best, score = &l, l.score()
		}
		x.launch = launch{}
	}
	if best == nil {
		return false
	}
	if path.Base(f) == "dvc.yaml" { // whose commands read it
		best.configs = append(best.configs, path.Join(path.Dir(f), "params.yaml"))
	}
	x.launch = *best
	return true
}

// variables returns the variables of the environment that a file sets for all that it runs, NAME=value.
func variables(n *node) []string {
	var all []string
	for _, section := range []string{"envs", "env", "environment", "environment_variables"} {
		if v := n.fields[section]; v != nil {
			for _, k := range v.keys {
				if s := v.fields[k]; s.fields == nil && !s.list {
					all = append(all, k+"="+s.scalar)
				}
			}
		}
	}
	return all
}

// stages returns the commands that a section and those in it have, with the defaults of their parameters filled in.
func stages(n *node, depth int) []*node {
	var all []*node
	if depth > 6 || len(n.keys) > 200 {
		return nil
	}
	for _, k := range n.keys {
		v := n.fields[k]
		switch strings.ToLower(k) {
		case "cmd", "command", "run", "entrypoint", "entry_point":
			if strings.Contains(v.scalar, " ") {
				all = append(all, &node{scalar: withParameters(v.scalar, n), at: v.at})
				continue
			}
		}
		for _, i := range append(v.items, v) {
			if i.fields != nil {
				all = append(all, stages(i, depth+1)...)
			}
		}
	}
	return all[:min(len(all), 50)]
}

// parameter is where a command takes a parameter: {epochs} of MLflow, ${{inputs.epochs}} of Azure ML.
var parameter = regexp.MustCompile(`\$\{\{\s*inputs\.(\w+)\s*\}\}|\{(\w+)\}`)

func withParameters(command string, n *node) string {
	return parameter.ReplaceAllStringFunc(command, func(w string) string {
		name := strings.TrimPrefix(strings.Trim(w, "${} "), "inputs.")
		for _, section := range []string{"parameters", "inputs"} {
			p := n.get(section + "." + name)
			if p == nil {
				continue
			}
			if p.fields != nil {
				p = p.get("default")
			}
			if p != nil && p.scalar != "" {
				return p.scalar
			}
		}
		return w
	})
}
