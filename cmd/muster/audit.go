package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/coretest/audit"
)

func newAudit() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "audit DIR",
		Short: "Check the invariants of a run",
		Long: `Audit reads the folder that muster sim wrote and checks that every decision could
be carried out: no GPU, CPU or memory is allocated twice, gangs run whole, quotas
hold, no job is lost, and the summary's figures are right. It shares no accounting
with the engine. If it finds a violation, it exits with code 1.`,
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
				err = report.WriteText(c.OutOrStdout())
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
