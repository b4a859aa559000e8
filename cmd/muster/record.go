package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/advisor"
	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/eventlog"
)

// recordFlags say where to record what the engine is told and decides.
type recordFlags struct {
	dir         string
	mebi, files int
	age         core.Time
	history     string
	advisor     string
	recording   func() bool // of what recorders opened; nil for nothing
}

func (f *recordFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.dir, "record", "", "record all events and decisions in the folder `DIR`, for muster sim --events")
	flags.IntVar(&f.mebi, "record-size", 64, "start a new file at this `SIZE`, in MiB")
	f.age = 24 * 3600 * core.Second
	durationVar(flags, &f.age, "record-age", "start a new file after this time")
	flags.IntVar(&f.files, "record-files", 100, "keep at most this `NUMBER` of files, the newest")
	flags.StringVar(&f.history, "history", "", historyUsage+"; jobs that end well are added to it")
	flags.StringVar(&f.advisor, "advisor", "", "`WHAT` predicts the run times of jobs whose users do not say them, for policies that use them: history, which needs --history")
	complete(c, "advisor", func() []string { return []string{"history"} })
}

// openHistory bounds how long the scheduler waits for its history when it starts.
const openHistory = 5 * time.Second

// recorders returns what receives all that happens in the engine and what knows about jobs, nil for nothing, and what to call after the scheduler.
func (f *recordFlags) recorders(ctx context.Context, c *cobra.Command, log *slog.Logger) (r advisor.Next, jobs *advisor.Live, done func(), err error) {
	switch {
	case f.advisor != "" && f.advisor != "history":
		return nil, nil, nil, badUsage(c, "--advisor: expected history; found %q", f.advisor)
	case f.advisor != "" && f.history == "":
		return nil, nil, nil, badUsage(c, "--advisor: expected --history with it")
	}
	done = func() {}
	events, err := f.open(c, log)
	if err != nil {
		return nil, nil, nil, err
	}
	if events != nil {
		r, done = events, func() { events.Close() } // it has logged what is wrong
		f.recording = events.Recording
	}
	if f.history == "" {
		return r, nil, done, nil
	}
	ctx, cancel := context.WithTimeout(ctx, openHistory)
	defer cancel()
	kept, unanswered, err := advisor.Open(ctx, f.history)
	if err != nil {
		done()
		return nil, nil, nil, badHistory(c, f.history, err)
	}
	if unanswered != nil {
		log.Warn("the history does not answer: it is tried again when jobs are submitted and end", "error", unanswered)
	}
	jobs = advisor.NewLive(kept, f.advisor != "")
	recorder, before := advisor.NewRecorder(kept, jobs, log, r), done
	return recorder, jobs, func() {
		recorder.Close()
		if err := kept.Close(); err != nil {
			log.Warn("cannot close the history", "error", err)
		}
		before()
	}, nil
}

// open returns a recorder, nil when nothing is to be recorded.
func (f *recordFlags) open(c *cobra.Command, log *slog.Logger) (*eventlog.Writer, error) {
	switch {
	case f.mebi < 1 || f.mebi > 1<<20:
		return nil, badUsage(c, "--record-size: expected a number of MiB from 1 to %d; found %d", 1<<20, f.mebi)
	case f.age < 60*core.Second:
		return nil, badUsage(c, "--record-age: expected at least 1m; found %s", v1alpha1.Duration(f.age))
	case f.files < 2:
		return nil, badUsage(c, "--record-files: expected a number of at least 2; found %d", f.files)
	case f.dir == "":
		return nil, nil
	}
	w, err := eventlog.NewWriter(eventlog.Config{
		Dir: f.dir, MaxBytes: int64(f.mebi) << 20, MaxAge: time.Duration(f.age), MaxFiles: f.files, Log: log,
	})
	if err != nil {
		return nil, badUsage(c, "--record: expected a writable folder; found: %v", err)
	}
	return w, nil
}
