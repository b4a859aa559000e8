package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/advisor"
	"github.com/muster-sched/muster/internal/table"
	"github.com/muster-sched/muster/runlog"
	"github.com/muster-sched/muster/semantic/estimate"
	"github.com/muster-sched/muster/semantic/history"
	"github.com/muster-sched/muster/sim"
)

// historyUsage says what a history may be that jobs are added to; knownHistory says it of one that is only asked.
const (
	knownHistory = "the history of finished `JOBS`: a file, or the URL of a PostgreSQL database or a Redis server"
	historyUsage = knownHistory + "; a file is created if there is none"
)

func newHistory() *cobra.Command {
	c := &cobra.Command{
		Use:   "history COMMAND",
		Short: "Keep finished jobs, to predict others by",
		Long: `History keeps what is known of finished jobs: who submitted them, what they trained,
on what, for how long. muster sim --advisor history predicts run times from them.

JOBS is the file of a SQLite database, a postgres:// URL, or a redis:// URL (rediss://
with TLS).`,
		Example: `  muster history import run --history jobs.db
  muster history list --history postgres://muster@db/jobs
  muster history list --history jobs.db`,
	}
	c.AddCommand(newHistoryImport(), newHistoryList())
	return c
}

func newHistoryImport() *cobra.Command {
	var where string
	var ask llmFlags
	c := &cobra.Command{
		Use:   "import DIR|FILE...",
		Short: "Add jobs that ended, of runs or of another cluster",
		Long: `Import adds the jobs that ended in folders that muster sim wrote, in the order of
the arguments. Time 0 of a run is when the last job that the history knows has ended.
A FILE has jobs as muster history list --json prints them, one JSON object each. A job
replaces the one with its id, and a run that the history has is not added again. If
one of the arguments cannot be read, nothing is added.

With --llm-config the vectors by which jobs are compared are those of the embedding
endpoint, for muster advise with the same file. Without it they need no model.`,
		Example: `  muster sim --workload kant-training --out run
  muster history import run --history jobs.db
  muster history import jobs.jsonl --history jobs.db`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("expected DIR or FILE; found 0 arguments")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			models, err := ask.open(c)
			if err != nil {
				return err
			}
			return withHistory(c, where, history.Options{Embedder: models.fingerprints()}, func(h *history.History) error {
				return importAll(c, where, h, args)
			})
		},
	}
	c.Flags().StringVar(&where, "history", "", historyUsage)
	ask.register(c)
	return c
}

// importAll adds the jobs of run folders and files to a history: all of them, or none.
func importAll(c *cobra.Command, where string, h *history.History, paths []string) error {
	known, err := h.Jobs(c.Context())
	if err != nil {
		return badHistory(c, where, err)
	}
	var all []history.Job
	var report strings.Builder
	for _, path := range paths {
		jobs, note, err := importable(path, known)
		if err != nil {
			return err
		}
		fmt.Fprintf(&report, "%s: %d jobs%s\n", table.Printable(path), len(jobs), note)
		all, known = append(all, jobs...), append(known, jobs...)
	}
	if err := h.Append(c.Context(), all...); err != nil {
		return err
	}
	_, err = io.WriteString(c.OutOrStdout(), report.String())
	return err
}

// importable returns the jobs of a run folder, or of a file of JSON objects, that are to be added to known ones, and a note on those that
// were there before.
func importable(path string, known []history.Job) (jobs []history.Job, note string, err error) {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		if jobs, err = readJobs(path); err != nil {
			return nil, "", err
		}
		ids := map[string]bool{}
		for i := range known {
			ids[known[i].ID] = true
		}
		n := 0
		for i := range jobs {
			if ids[jobs[i].ID] {
				n++
			}
		}
		if n > 0 {
			note = fmt.Sprintf(", %d of them in place of those with the same id", n)
		}
		return jobs, note, nil
	}
	run, err := runlog.ReadJobs(path)
	if err != nil {
		return nil, "", err
	}
	if jobs = advisor.OfRun(run, known); len(jobs) < len(run) {
		note = fmt.Sprintf("; the %d of this run are there already", len(run))
	}
	return jobs, note, nil
}

// readJobs reads finished jobs, as muster history list --json prints them.
func readJobs(path string) ([]history.Job, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer file.Close()
	in := json.NewDecoder(file)
	in.DisallowUnknownFields()
	var jobs []history.Job
	for {
		var j history.Job
		err := in.Decode(&j)
		if errors.Is(err, io.EOF) {
			return jobs, nil
		}
		if typed := (*json.UnmarshalTypeError)(nil); errors.As(err, &typed) {
			err = fmt.Errorf("%s: a %s, which cannot stand there", typed.Field, typed.Value)
		}
		if err == nil {
			err = j.Check()
		}
		if err != nil {
			return nil, &usageError{fmt.Sprintf("%s: job %d: expected a finished job as JSON; found: %v", path, len(jobs)+1, err)}
		}
		jobs = append(jobs, j)
	}
}

func newHistoryList() *cobra.Command {
	var (
		where  string
		asJSON bool
		last   int
	)
	c := &cobra.Command{
		Use:     "list",
		Short:   "Show the jobs that a history has",
		Long:    "List shows the jobs of a history, the last that ended first.",
		Example: "  muster history list --history jobs.db\n  muster history list --history jobs.db --last 1000 --json",
		Args:    arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			if last < 1 {
				return badUsage(c, "--last: expected a number of at least 1; found %d", last)
			}
			return withHistory(c, where, history.Options{Existing: true}, func(h *history.History) error {
				jobs, err := h.Jobs(c.Context())
				if err != nil {
					return badHistory(c, where, err)
				}
				slices.Reverse(jobs)
				shown := jobs[:min(last, len(jobs))]
				if asJSON {
					e := json.NewEncoder(c.OutOrStdout())
					for i := range shown {
						if err := e.Encode(&shown[i]); err != nil {
							return err
						}
					}
					return nil
				}
				return writeHistory(c, shown, len(jobs))
			})
		},
	}
	c.Flags().StringVar(&where, "history", "", knownHistory)
	c.Flags().IntVar(&last, "last", 20, "show the last `N` jobs")
	c.Flags().BoolVar(&asJSON, "json", false, "print all that is known of a job, one JSON object each, on a line")
	return c
}

// writeHistory writes a table of jobs.
func writeHistory(c *cobra.Command, jobs []history.Job, known int) error {
	t := table.Table{Align: "lllrrll"}
	t.Add("JOB", "USER", "TENANT", "GPUS", "RAN", "OUTCOME", "ENDED")
	for i := range jobs {
		j := &jobs[i]
		t.Add(j.ID, j.User, j.Tenant, strconv.FormatFloat(j.GPUs, 'g', -1, 64), j.Ran.Round(time.Second).String(), string(j.Outcome), j.End.Format(time.DateTime))
	}
	if err := t.Write(c.OutOrStdout(), 0); err != nil {
		return err
	}
	if known > len(jobs) {
		fmt.Fprintf(c.OutOrStdout(), "%d of %d jobs\n", len(jobs), known)
	}
	return nil
}

// withHistory opens a history for what do does with it.
func withHistory(c *cobra.Command, where string, o history.Options, do func(*history.History) error) error {
	if where == "" {
		return badUsage(c, "--history: expected a file or a URL; found nothing")
	}
	h, err := history.Open(c.Context(), where, o)
	if err != nil {
		return badHistory(c, where, err)
	}
	return errors.Join(do(h), h.Close())
}

// badHistory says what is wrong with the history of a command line.
func badHistory(c *cobra.Command, where string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return badUsage(c, "--history: expected a history; the file %s does not exist or is empty; muster history import and muster sim --history create one", where)
	}
	return badUsage(c, "--history: %v", err)
}

// adviceFlags say what predicts run times in a simulation.
type adviceFlags struct{ advisor, history string }

func (f *adviceFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.advisor, "advisor", "", "`WHAT` predicts run times, for policies that use them: "+strings.Join(advisor.Names, ", "))
	flags.StringVar(&f.history, "history", "", historyUsage+"; the jobs that end are added to it")
}

// check refuses what has no meaning together.
func (f *adviceFlags) check(c *cobra.Command, m *modelFlags, policies int) error {
	switch {
	case f.advisor != "" && !slices.Contains(advisor.Names, f.advisor):
		return badUsage(c, "--advisor: expected one of %s; found %q%s", strings.Join(advisor.Names, ", "), f.advisor, didYouMean(f.advisor, advisor.Names))
	case f.advisor != "" && m.estimates:
		return badUsage(c, "--advisor: expected no --estimates with it, which knows the run times")
	case f.history != "" && policies > 1:
		return badUsage(c, "--history: expected one policy with it; found %d", policies)
	case f.history != "" && f.advisor != "" && f.advisor != "history":
		return badUsage(c, "--history: expected --advisor history, or none; found %q", f.advisor)
	}
	return nil
}

// open returns what predicts, nil if nothing does, and what to call after the run: it adds the jobs of one that was right to the history.
func (f *adviceFlags) open(c *cobra.Command) (sim.Advisor, func(right bool) error, error) {
	nothing := func(bool) error { return nil }
	switch {
	case f.advisor == "rolling":
		return &advisor.Rolling{}, nothing, nil
	case f.advisor == "user-mean":
		return &advisor.UserMean{}, nothing, nil
	case f.advisor == "" && f.history == "":
		return nil, nothing, nil
	}
	ctx := c.Context() // an interrupted run is kept up to then
	var kept *history.History
	if f.history != "" {
		var err error
		if kept, err = history.Open(ctx, f.history, history.Options{}); err != nil {
			return nil, nil, badHistory(c, f.history, err)
		}
	}
	a, err := advisor.NewHistory(ctx, kept, estimate.Default, f.advisor != "")
	done := func(right bool) error {
		var err error
		if a != nil {
			if right {
				err = a.Keep(ctx)
			}
			err = errors.Join(err, a.Close())
		}
		if kept != nil {
			err = errors.Join(err, kept.Close())
		}
		return err
	}
	if err != nil {
		return nil, nil, badHistory(c, f.history, errors.Join(err, done(false)))
	}
	return a, done, nil
}
