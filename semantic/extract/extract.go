// Package extract finds out what a training job is from its code, configurations and launch command, without a language model
// and without running anything (SchedMate, §3.1). What the code does not state stays unknown.
//
// The job's folder is read in this order, and what is read first counts most: the launch command; the configurations that it
// names; the script that it launches, with the values that it passes and its defaults; what the script imports of the folder.
// Where no command is given, launch scripts, manifests and READMEs are searched for one.
package extract

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/muster-sched/muster/semantic/interpret"
	"github.com/muster-sched/muster/semantic/metadata"
	"github.com/muster-sched/muster/semantic/python"
)

// Options are what is known of a job besides its folder.
type Options struct {
	// Command launches the job, as in a shell. Where it is empty the folder is searched for one.
	Command string
	// Limits are how much is read. Zero values are the defaults.
	Limits Limits
}

// Result is what was found.
type Result struct {
	metadata.Job
	Command string // which launches the job, as far as it is known
	At      string // where Command was found: "command", or file:line
	family  string // of models, to which the job's belongs
}

// Dir reads the folder of a job. The error is that of a folder that cannot be read, or of ctx; a file in it that cannot be
// read, or makes no sense, counts as absent. The same folder gives the same result.
func Dir(ctx context.Context, dir string, o Options) (Result, error) {
	t, err := openTree(ctx, dir, o.Limits)
	if err != nil {
		return Result{}, err
	}
	defer t.close()
	x := newExtraction(t)
	x.command(o.Command)
	x.readLaunched()
	x.followScript()
	x.lengthsFollowed()
	x.loops()
	x.used()
	x.settled = true
	r := x.resolve()
	if err := ctx.Err(); err != nil {
		return Result{}, fmt.Errorf("%s: reading it took too long: %w", dir, err)
	}
	return r, nil
}

// extraction is what is known of one job so far.
type extraction struct {
	tree     *tree
	byName   map[string][]*setting // by the last part of the key
	calls    []call
	words    map[string]mention // libraries, tools and calls that are used
	parsed   map[string]bool    // files that are read
	folders  map[string]bool    // of configurations that are read, and whether they have any
	launch   launch
	programs map[string]string // that the folder installs, and their modules; nil: not read yet
	models   map[string]*known // what find gave for names of calls
	data     map[string]*known // the same, of datasets
	datasets map[string]bool   // options whose help says that they name a dataset
	nets     map[string]bool   // options whose help says that they name a model
	variants map[string]bool   // options that have choices of which none is a model that is known
	lengths  map[string]string // options whose help says that they are a number of epochs or steps, and the unit
	runs     map[string]bool   // options whose help says that they name a run, or where it is saved
	options  map[string]option // that scripts declare, by every spelling without its hyphens
	places   []string          // the positional arguments that scripts declare, in their order
	hydra    *hydraMain
	configs  []string          // that the command names
	classes  map[string]string // of the folder, and the last part of the name of what the first is based on
	next     int               // the order of settings
	composed []composedName    // configurations
	modules  []composedName    // that code imports by names that it puts together
	sources  []parsed          // the Python files that were read
	when     *branch           // in which what is read now stands
	settled  bool              // all is read
	declares bool              // the script itself declares options
	given    given             // what training uses
	trace    *interpret.Trace  // what happens as the script is followed; nil: it was not
	others   []string          // words of the commands that stand beside the launch command
	scripts  int               // how many were searched for commands
	bases    int               // how many configurations were read for others that are based on them
	inBase   bool              // what is read now is one of them
}

// These bound what files that name each other, or themselves, make of a folder.
const (
	maxScripts = 500
	maxBases   = 200
	maxCalls   = 50_000
)

// mention is where a word is used.
type mention struct {
	at  string
	top bool // in the command or at the top of a file, not only in a function
}

// parsed is a Python file that was read.
type parsed struct {
	file       string
	statements []python.Statement
	when       []*branch // in which each statement stands
	rank       rank
}

// readLaunched reads what the launch command names and the script it launches. Where nothing is launched, the script that
// looks most like a job is taken, and if several do, a little of each.
func (x *extraction) readLaunched() {
	l := &x.launch
	if l.script == "" && l.tool == "" {
		entries := x.entries()
		if len(entries) == 1 {
			l.script = entries[0]
		} else {
			for _, p := range entries {
				x.python(p, elsewhere)
			}
			x.looseConfigs()
		}
	}
	if l.script != "" {
		x.python(l.script, declared)
	}
	x.arguments()
	x.loadComposed()
	x.importComposed()
}

// entries returns the Python files that look like the script of a job: by their names or, where none does, by what they do. Where none
// does either, it returns notebooks.
func (x *extraction) entries() []string {
	best, top := []string(nil), 0
	add := func(p string, score int) {
		if score > top {
			best, top = []string{p}, score
		} else if score == top && score > 0 {
			best = append(best, p)
		}
	}
	for _, p := range x.tree.files {
		if path.Ext(p) == ".py" {
			add(p, entryScore(p))
		}
	}
	byContent := func(ext string) {
		tried := 0
		for _, p := range x.tree.files {
			if top > 0 && len(best) == 1 || path.Ext(p) != ext || tried == 200 {
				continue
			}
			if top > 0 && !slices.Contains(best, p) {
				continue
			}
			tried++
			source, _ := x.tree.open(p)
			score := 0
			for _, does := range []string{"__main__", ".backward(", ".fit(", "Trainer(", ".train(", "Optimizer", "optim", "ArgumentParser", ".learn("} {
				if bytes.Contains(source, []byte(does)) {
					score++
				}
			}
			if score >= 2 {
				add(p, 100+10*score-3*strings.Count(p, "/"))
			}
		}
	}
	if byContent(".py"); top == 0 {
		byContent(".ipynb")
	}
	if top == 0 { // the only Python file that there is
		for _, p := range x.tree.files {
			if path.Ext(p) == ".py" {
				best = append(best, p)
			}
		}
		if len(best) != 1 {
			return nil
		}
	}
	return best[:min(len(best), 3)]
}

// entryScore is how much the name of a file looks like the script of a training job; 0: not at all.
func entryScore(p string) int {
	base := strings.ToLower(strings.TrimSuffix(path.Base(p), ".py"))
	score := 0
	switch {
	case base == "train" || base == "main" || base == "run" || base == "pretrain":
		score = 90
	case strings.HasPrefix(base, "train_") || strings.HasPrefix(base, "main_") || strings.HasPrefix(base, "pretrain") || strings.HasPrefix(base, "finetune") ||
		strings.HasPrefix(base, "run_") || strings.HasPrefix(base, "fine_tune") || strings.HasSuffix(base, "_train") || strings.HasPrefix(base, "sft"):
		score = 70
	case strings.Contains(base, "train") || strings.Contains(base, "finetune"):
		score = 50
	}
	if score > 0 {
		score -= 8 * strings.Count(p, "/")
		for _, part := range strings.Split(strings.ToLower(p), "/") {
			if strings.HasPrefix(part, "test") || part == "docs" || part == "scripts" || strings.HasPrefix(part, "eval") {
				score -= 30
			}
		}
	}
	return score
}
