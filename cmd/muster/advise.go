package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/internal/table"
	"github.com/muster-sched/muster/semantic/extract"
	"github.com/muster-sched/muster/semantic/metadata"
)

// adviseTimeout bounds how long the reading of one folder may take, as on a file system that does not answer.
const adviseTimeout = 30 * time.Second

// adviseFlags are the flags of muster advise.
type adviseFlags struct {
	command string
	asJSON  bool
}

func newAdvise() *cobra.Command {
	var f adviseFlags
	c := &cobra.Command{
		Use:   "advise DIR...",
		Short: "Read from its code what a training job is: model, task, data, iterations",
		Long: `Advise reads the folder of a training job, and shows what it trains, on which data, for
how long and on what, with the line that says so. It reads the launch command, the
configurations that the command names (YAML, Hydra, JSON, TOML, Python), the script
with its defaults, and what the script imports. Nothing is run, and no model and no
network is used. What the code does not say has a dash: advise does not guess.

Without --command it looks for a launch command in shell scripts, Kubernetes manifests,
Makefiles, Dockerfiles and READMEs of the folder.`,
		Example: `  muster advise .
  muster advise nanogpt --command "torchrun --nproc_per_node 8 train.py config/train_gpt2.py"
  muster advise project --command "python -m train experiment=pile/gpt trainer.devices=8"
  muster advise --json jobs/*`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("expected DIR...; found no arguments")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("command") && strings.TrimSpace(f.command) == "" {
				return badUsage(c, "--command: expected a command; found an empty text")
			}
			for i, dir := range args {
				r, err := f.read(c, dir)
				if err != nil {
					return &usageError{err.Error()}
				}
				if f.asJSON {
					err = adviseJSON(c.OutOrStdout(), dir, &r)
				} else {
					err = adviseTable(c.OutOrStdout(), dir, &r, i > 0, len(args) > 1)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().SortFlags = false
	c.Flags().StringVar(&f.command, "command", "", "the `COMMAND` that launches the job, as in a shell, from within DIR")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON object a folder, each on a line")
	return c
}

func (f *adviseFlags) read(c *cobra.Command, dir string) (extract.Result, error) {
	ctx, cancel := context.WithTimeout(c.Context(), adviseTimeout)
	defer cancel()
	return extract.Dir(ctx, dir, extract.Options{Command: f.command})
}

func adviseJSON(w io.Writer, dir string, r *extract.Result) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(struct {
		Dir string `json:"dir"`
		metadata.Job
		Command string `json:"command,omitempty"`
	}{dir, r.Job, r.Command})
}

// adviseTable writes what was found as a table. Text has a blank line between folders and, of several folders, their names.
func adviseTable(w io.Writer, dir string, r *extract.Result, later, named bool) error {
	head := ""
	if later {
		head = "\n"
	}
	if named {
		head += "== " + dir + "\n"
	}
	if r.Command != "" && r.At != "command" {
		head += fmt.Sprintf("Launched by %s: %s\n", r.At, table.Shorten(r.Command, 200))
	}
	if _, err := io.WriteString(w, head); err != nil {
		return err
	}
	t := table.Table{Align: "lll"}
	t.Add("FIELD", "VALUE", "FOUND AT")
	missing := r.Missing()
	for _, name := range missing {
		t.Add(name, "-", "")
	}
	for _, field := range r.Fields() {
		name, value, _ := strings.Cut(field, "=")
		t.Add(name, table.Shorten(value, 60), r.Sources[name])
	}
	if err := t.Write(w, 0); err != nil {
		return err
	}
	if slices.Contains(missing, "model_name") && len(missing) > 3 {
		_, err := fmt.Fprintln(w, "This does not look like a training job. --command says how it is launched.")
		return err
	}
	return nil
}
