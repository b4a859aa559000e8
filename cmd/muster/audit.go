package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/coretest/audit"
)

func newAudit() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "audit DIR",
		Short: "Check the invariants of a run",
		Long: `Audit reads the folder that muster sim wrote and checks, without any of the
engine's own accounting, that what was decided could be carried out: no GPU, CPU
or memory given twice, gangs whole, quotas kept, no job lost, figures right.
A violation ends it with exit code 1.`,
		Example: `  muster sim --workload kant-training --seed 1 --out run
  muster audit run`,
		Args: arguments("DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			report, err := audit.Audit(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(c.OutOrStdout(), report)
			} else {
				err = printAudit(c.OutOrStdout(), report)
			}
			if err == nil && !report.OK() {
				err = fmt.Errorf("%s breaks its invariants %d times", args[0], report.Count)
			}
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	return c
}

func printAudit(w io.Writer, r audit.Report) error {
	for _, v := range r.Violations {
		if _, err := fmt.Fprintln(w, v); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "checked %d decisions, %d jobs, %d nodes: %d violations\n", r.Lines, r.Jobs, r.Nodes, r.Count)
	return err
}
