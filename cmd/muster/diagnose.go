package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/semantic/diagnose"
)

func newDiagnose() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "diagnose LOG...",
		Short: "Find the root of a failure in the log of a job, and say what to do",
		Long: `Diagnose reads the logs of jobs, of any length, and says for each what failed: the
infrastructure (a GPU, NVLink, the network, a node, storage, host memory), a
framework, or the user's script; which lines say so; and what to do next. A job
that was successful, or that a user or the scheduler ended, has no failure.

It uses rules only: no model, no network. The same log gives the same answer. A LOG
may be compressed with gzip; - reads standard input. Lines are numbered from 0.`,
		Example: `  muster diagnose slurm-881.out
  muster diagnose --json logs/*.log
  kubectl logs train-0 | muster diagnose -
  dmesg | muster diagnose -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("expected LOG...; found no arguments")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			for i, file := range args {
				v, err := diagnoseFile(c, file)
				if err != nil {
					return err
				}
				if err := writeVerdict(c.OutOrStdout(), file, v, asJSON, i > 0, len(args) > 1); err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a log, each on a line")
	return c
}

func diagnoseFile(c *cobra.Command, file string) (diagnose.Verdict, error) {
	in, err := openLog(file, c.InOrStdin())
	if err != nil {
		return diagnose.Verdict{}, err
	}
	defer in.Close()
	v, err := diagnose.Log(in)
	if err != nil {
		err = unreadable(file, err)
	}
	return v, err
}

// writeVerdict writes what was found in a file. Text has a blank line between files and, of several files, their names.
func writeVerdict(w io.Writer, file string, v diagnose.Verdict, asJSON, later, named bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		return e.Encode(struct {
			File string `json:"file"`
			diagnose.Verdict
		}{file, v})
	}
	head := ""
	if later {
		head = "\n"
	}
	if named {
		head += "== " + file + "\n"
	}
	_, err := fmt.Fprintln(w, head+v.String())
	return err
}
