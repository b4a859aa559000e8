package extract

import (
	"context"
	"path"
	"strings"

	"github.com/muster-sched/muster/semantic/metadata"
	"github.com/muster-sched/muster/semantic/shell"
)

// Launched finds out what a job is from what starts it alone, where there is no folder to read: its command, and its environment, in which
// jobs of clusters often have their settings. What the command states counts more. The same launch gives the same result.
func Launched(l metadata.Launch) Result {
	t := &tree{ctx: context.Background(), has: map[string]bool{}, cache: map[string][]byte{}}
	x := newExtraction(t)
	var script strings.Builder
	for _, e := range l.Env {
		name, value, _ := strings.Cut(e, "=")
		script.WriteString(name + "='" + strings.ReplaceAll(value, "'", `'\''`) + "'\n")
	}
	// 1. The command, with the variables that a shell in it sees. Without one, nothing is launched that is known.
	if strings.TrimSpace(l.Command) != "" {
		script.WriteString(inner(l.Command))
		x.commands([]byte(script.String()), "command", commanded, ".", shell.Call{}, 0)
		x.readLaunched()
	}
	// 2. The environment.
	for _, e := range l.Env {
		name, value, _ := strings.Cut(e, "=")
		x.add(setting{key: name, value: parse(value), rank: declared, at: "launch"})
	}
	return x.resolve()
}

// inner returns what a command such as bash -c '…' has a shell do, else the command.
func inner(command string) string {
	all := shell.Split(command)
	if len(all) != 1 || len(all[0].Words) < 3 {
		return command
	}
	words := all[0].Words
	if name := path.Base(words[0]); (name == "bash" || name == "sh" || name == "zsh") && strings.HasPrefix(words[1], "-") && strings.HasSuffix(words[1], "c") {
		return words[2]
	}
	return command
}

func newExtraction(t *tree) *extraction {
	return &extraction{tree: t, byName: map[string][]*setting{}, lengths: map[string]string{}, nets: map[string]bool{}, variants: map[string]bool{}, words: map[string]mention{}, classes: map[string]string{}, models: map[string]*known{}, data: map[string]*known{}, parsed: map[string]bool{}, folders: map[string]bool{}, datasets: map[string]bool{}, runs: map[string]bool{}, options: map[string]option{}}
}
