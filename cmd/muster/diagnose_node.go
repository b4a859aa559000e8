package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/semantic/diagnose"
	"github.com/muster-sched/muster/semantic/strikes"
)

// nodeFlags say on which node a job failed, and where what happened there before is kept.
type nodeFlags struct {
	node, file, at string
	when           time.Time
	history        *strikes.History // of file, nil without one
}

func (f *nodeFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.file, "node-history", "", "what happened on which node before: `FILE` has a line for each failure, and gets one more")
	c.Flags().StringVar(&f.node, "node", "", "the `NODE` where the job ran, for --node-history")
	c.Flags().StringVar(&f.at, "at", "", "the `TIME` of the failure, for --node-history, such as 2026-03-01T12:00:00Z; now if not set")
}

// read checks the flags and reads the file, which may not be there yet.
func (f *nodeFlags) read(c *cobra.Command, logs []jobLog) error {
	switch {
	case f.file == "" && f.node == "" && f.at == "":
		return nil
	case f.file == "" || f.node == "":
		return badUsage(c, "--node-history: expected it together with --node; found one of them or --at alone")
	case len(logs) != 1:
		return badUsage(c, "--node: expected one log, as a node is that of one job; found %d", len(logs))
	}
	f.when = time.Now().UTC().Truncate(time.Second)
	if f.at != "" {
		var err error
		if f.when, err = time.Parse(time.RFC3339, f.at); err != nil {
			return badUsage(c, "--at: expected a time such as 2026-03-01T12:00:00Z; found %q", f.at)
		}
	}
	in, err := os.Open(f.file)
	if errors.Is(err, fs.ErrNotExist) {
		f.history = &strikes.History{}
		return nil
	}
	if err != nil {
		return unreadable(f.file, err)
	}
	defer in.Close()
	if f.history, err = strikes.Read(in); err != nil {
		return &usageError{f.file + ": " + err.Error()}
	}
	return nil
}

// reconsider returns a verdict after what happened on the node before.
func (f *nodeFlags) reconsider(v diagnose.Verdict, job string) diagnose.Verdict {
	if f.history != nil {
		v, _ = f.history.Reconsider(v, f.node, job, f.when)
	}
	return v
}

// keep adds a verdict to the file, in one write: a line is there as a whole or not at all.
func (f *nodeFlags) keep(v *diagnose.Verdict, job string) error {
	if f.history == nil {
		return nil
	}
	i, ok := strikes.Of(v, f.node, job, f.when)
	if !ok {
		return nil
	}
	line, err := json.Marshal(i)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(f.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = out.Write(append(line, '\n'))
		err = errors.Join(err, out.Close())
	}
	if err != nil {
		return fmt.Errorf("--node-history: the failure above is not in the file: %w", err)
	}
	return nil
}
