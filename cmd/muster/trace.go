package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/workload"
)

func newTrace() *cobra.Command {
	c := &cobra.Command{
		Use:   "trace",
		Short: "Look into workloads",
	}
	c.AddCommand(newTraceInfo())
	return c
}

func newTraceInfo() *cobra.Command {
	var (
		f      inputFlags
		asJSON bool
	)
	c := &cobra.Command{
		Use:   "info W",
		Short: "Describe a workload: its jobs, sizes, durations and arrivals",
		Long: `Info reads a workload, a file or a built-in one, and says what is in it.

Formats, told by the file: ` + strings.Join(workload.Formats(), ", ") + `
Built-in workloads:` + generatorList(),
		Example: `  muster trace info kant-training
  muster trace info jobs.csv.gz --from 7d --to 14d
  muster trace info run/workload.csv.gz --json`,
		Args: arguments("W"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(c); err != nil {
				return err
			}
			jobs, err := f.openJobs(args[0], nil)
			if err != nil {
				return err
			}
			s, err := workload.Describe(jobs)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), s)
			}
			return printTrace(c.OutOrStdout(), args[0], s)
		},
	}
	c.Flags().SortFlags = false
	c.Flags().BoolVar(&asJSON, "json", false, "print the description as JSON")
	f.register(c.Flags())
	c.Flags().Uint64Var(&f.jobs.Seed, "seed", 0, "make up workloads from this `NUMBER`")
	return c
}
