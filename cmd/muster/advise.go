package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/internal/table"
	"github.com/muster-sched/muster/semantic/agent"
	"github.com/muster-sched/muster/semantic/estimate"
	"github.com/muster-sched/muster/semantic/extract"
	"github.com/muster-sched/muster/semantic/history"
	"github.com/muster-sched/muster/semantic/llm"
	"github.com/muster-sched/muster/semantic/metadata"
)

// adviseTimeout bounds how long the reading of one folder may take, as on a file system that does not answer.
const adviseTimeout = 30 * time.Second

// adviseFlags are the flags of muster advise.
type adviseFlags struct {
	command string
	asJSON  bool
	ask     llmFlags
	models  *models // nil without any
	job     string  // of the cluster
	cluster consoleFlags

	history           string // empty: nothing is predicted
	name, user, queue string
	gpus              float64
}

// advice is what was found about a folder, and what it rests on. Without models there is one stage, which goes without saying.
type advice struct {
	extract.Result
	stage   llm.Stage
	dropped []string // fields in which a model said what stands nowhere
}

func newAdvise() *cobra.Command {
	var f adviseFlags
	c := &cobra.Command{
		Use:   "advise {DIR... | --job JOB}",
		Short: "Read from its code what a training job is: model, task, data, iterations",
		Long: `Advise reads the folder of a training job, and shows what it trains, on which data, for
how long and on what, with the line that says so. It reads the launch command, the
configurations that the command names (YAML, Hydra, JSON, TOML, Python), the script
with its defaults, and what the script imports. Nothing is run, and no model and no
network is used. What the code does not say has a dash: advise does not guess.

With --llm-config a language model looks around in the folder. Its values count where
they stand in what it read; keys, addresses and names of hosts are not sent to it.

Without --command it looks for a launch command in shell scripts, Kubernetes manifests,
Makefiles, Dockerfiles and READMEs of the folder.

With --history it also predicts how long the job takes and what it uses, and says
because of which finished jobs. --name, --user, --queue and --gpus say what else is
known of the job.

With --job it reads what the objects of a job of the Kubernetes cluster in the kubeconfig
say: the command of its pods, their environment, and the GPUs that they ask for.`,
		Example: `  muster advise .
  muster advise nanogpt --command "torchrun --nproc_per_node 8 train.py config/train_gpt2.py"
  muster advise project --command "python -m train experiment=pile/gpt trainer.devices=8"
  muster advise --json jobs/*
  muster advise . --history jobs.db --user ana --name bert-17
  muster advise --job train-7b -n team-a --history jobs.db
  muster advise --llm-config semantic.yaml project`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case f.job == "" && len(args) == 0:
				return errors.New("expected DIR..., or --job; found neither")
			case f.job != "" && len(args) > 0:
				return errors.New("expected DIR..., or --job; found both")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("command") && strings.TrimSpace(f.command) == "" {
				return badUsage(c, "--command: expected a command; found an empty text")
			}
			if f.job != "" {
				return f.adviseJob(c)
			}
			var err error
			if f.models, err = f.ask.open(c); err != nil {
				return err
			}
			return f.advise(c, args)
		},
	}
	c.Flags().SortFlags = false
	c.Flags().StringVar(&f.command, "command", "", "the `COMMAND` that launches the job, as in a shell, from within DIR")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON object a folder, each on a line")
	f.ask.register(c)
	c.Flags().StringVar(&f.job, "job", "", "read the objects of this `JOB` of the cluster: NAME, KIND/NAME or NAMESPACE/KIND/NAME, or of one pod")
	f.cluster.register(c)
	c.Flags().StringVar(&f.history, "history", "", knownHistory+"; the job's run time is predicted from it")
	c.Flags().StringVar(&f.name, "name", "", "with --history: the job's `NAME`")
	c.Flags().StringVar(&f.user, "user", "", "with --history: the job's `USER`")
	c.Flags().StringVar(&f.queue, "queue", "", "with --history: the job's `QUEUE`, of which other jobs are looked at; by default of all queues")
	c.Flags().Float64Var(&f.gpus, "gpus", 0, "with --history: the `NUMBER` of GPUs of the job, if the code does not say")
	return c
}

// advise reads folders and shows what was found in each.
func (f *adviseFlags) advise(c *cobra.Command, dirs []string) error {
	for _, name := range []string{"name", "user", "queue", "gpus"} {
		if f.history == "" && c.Flags().Changed(name) {
			return badUsage(c, "--%s: expected --history too", name)
		}
	}
	if c.Flags().Changed("gpus") && !(f.gpus > 0 && f.gpus <= 1e6) {
		return badUsage(c, "--gpus: expected a number above 0, at most 1000000; found %v", f.gpus)
	}
	show := func(h *history.History) error {
		for i, dir := range dirs {
			r, err := f.read(c, dir)
			if err != nil {
				return &usageError{err.Error()}
			}
			e, err := f.predict(c, h, &r)
			if err != nil {
				return err
			}
			if f.asJSON {
				err = adviseJSON(c.OutOrStdout(), dir, "", &r, e)
			} else {
				err = adviseTable(c.OutOrStdout(), dir, &r, i > 0, len(dirs) > 1)
				if err == nil && e != nil {
					_, err = fmt.Fprintf(c.OutOrStdout(), "\n%s\n", table.Printable(e.String()))
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if f.history == "" {
		return show(nil)
	}
	return withHistory(c, f.history, history.Options{Embedder: f.models.fingerprints(), Existing: true}, show)
}

// predict returns what a history predicts of a job that is submitted now; nil without a history. If the embedding endpoint has no answer, jobs are
// compared without it.
func (f *adviseFlags) predict(c *cobra.Command, h *history.History, r *advice) (*estimate.Estimate, error) {
	if h == nil {
		return nil, nil
	}
	o := estimate.Default
	if f.models.fingerprints() == nil {
		e, err := f.estimate(c.Context(), h, r, o)
		if err != nil {
			return nil, badHistory(c, f.history, err)
		}
		return e, nil
	}
	o.Threshold = f.models.file.Advise.Threshold
	e, err := f.estimate(c.Context(), h, r, o)
	if err == nil {
		if r.stage == llm.Embedded {
			r.stage = llm.Embedding
		}
		return e, nil
	}
	f.models.fellBack(embeddingEndpoint, err)
	err = withHistory(c, f.history, history.Options{Existing: true}, func(h *history.History) (err error) {
		e, err = f.estimate(c.Context(), h, r, estimate.Default)
		return err
	})
	return e, err
}

func (f *adviseFlags) estimate(ctx context.Context, h *history.History, r *advice, o estimate.Options) (*estimate.Estimate, error) {
	o.Shared = f.queue == ""
	gpus := f.gpus
	if gpus == 0 {
		gpus = float64(r.Training.GPUs)
	}
	e, err := (&estimate.Advisor{History: h, Options: o}).Estimate(ctx, history.Job{
		Name: f.name, User: f.user, Tenant: f.queue, Command: r.Command, GPUs: gpus, Metadata: r.Job, Submit: time.Now(),
	})
	return &e, err
}

func (f *adviseFlags) read(c *cobra.Command, dir string) (advice, error) {
	ctx, cancel := context.WithTimeout(c.Context(), adviseTimeout)
	defer cancel()
	r, err := extract.Dir(ctx, dir, extract.Options{Command: f.command})
	if err != nil || f.models == nil {
		return advice{Result: r}, err
	}
	if f.models.llm == nil {
		return advice{Result: r, stage: llm.Embedded}, nil
	}
	found, err := f.models.read(c.Context(), dir, &r)
	if err != nil {
		f.models.fellBack(languageModel, err)
		return advice{Result: r, stage: llm.Embedded}, nil
	}
	r.Job = found.Job
	return advice{r, llm.Model, found.Dropped}, nil
}

// read has the language model read a folder, in which r was found without it.
func (m *models) read(ctx context.Context, dir string, r *extract.Result) (agent.Result, error) {
	folder, err := os.OpenRoot(dir)
	if err != nil {
		return agent.Result{}, err
	}
	defer folder.Close()
	found, err := agent.Extract(ctx, m.llm, agent.Input{Folder: folder, Command: r.Command, Redact: m.redact, Limits: m.agent, Embedded: r.Job})
	for name, at := range found.Job.Sources {
		if at == "command" && r.At != "" {
			found.Job.Sources[name] = r.At
		}
	}
	return found, err
}

func adviseJSON(w io.Writer, dir, job string, r *advice, estimated *estimate.Estimate) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(struct {
		Dir  string `json:"dir,omitempty"`
		Live string `json:"job,omitempty"` // of the cluster
		metadata.Job
		Command  string             `json:"command,omitempty"`
		Stage    llm.Stage          `json:"stage,omitempty"`
		Estimate *estimate.Estimate `json:"estimate,omitempty"`
	}{dir, job, r.Job, r.Command, r.stage, estimated})
}

// adviseTable writes what was found as a table. Text has a blank line between folders and, of several folders, their names.
func adviseTable(w io.Writer, dir string, r *advice, later, named bool) error {
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
	if _, err := io.WriteString(w, table.Printable(head)); err != nil {
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
	if r.stage == llm.Model {
		fmt.Fprintln(w, "A language model read the folder.")
	}
	if len(r.dropped) > 0 {
		fmt.Fprintf(w, "Of its answer was left out, as nothing that it read has it: %s.\n", strings.Join(r.dropped, ", "))
	}
	if slices.Contains(missing, "model_name") && len(missing) > 3 {
		_, err := fmt.Fprintln(w, "This does not look like a training job. --command says how it is launched.")
		return err
	}
	return nil
}
