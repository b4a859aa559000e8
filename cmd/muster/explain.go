package main

import (
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/snapshot"
)

func newExplain() *cobra.Command {
	var (
		from   snapshotFlags
		asJSON bool
	)
	c := &cobra.Command{
		Use:   "explain {--snapshot FILE | DIR} JOB",
		Short: "Say where a job stands, why, and what would have to change",
		Long: `Explain answers for one job: of a cluster described by a file (see muster decide),
where it stands, why it waits, with the numbers, and what would have to change;
of a finished run, from the folder that muster sim wrote, what became of it.`,
		Example: `  muster explain --snapshot cluster.yaml train-7b
  muster explain --snapshot cluster.yaml --json train-7b
  muster explain run job-00042`,
		Args: func(c *cobra.Command, args []string) error {
			if from.file != "" {
				return arguments("JOB")(c, args)
			}
			return arguments("DIR", "JOB")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			answer, err := from.explain(c, args)
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(c.OutOrStdout(), answer)
			}
			return answer.WriteText(c.OutOrStdout())
		},
	}
	from.register(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print the answer as JSON")
	return c
}

// answer is what explain has to say.
type answer interface{ WriteText(io.Writer) error }

func (f *snapshotFlags) explain(c *cobra.Command, args []string) (answer, error) {
	if f.file == "" {
		return explainRun(c, args[0], args[1])
	}
	s, err := f.open(c)
	if err != nil {
		return nil, err
	}
	job := args[0]
	if names := s.JobNames(); !slices.Contains(names, job) {
		return nil, badUsage(c, "expected a job of the snapshot; found %q%s", job, didYouMean(job, names))
	}
	return snapshot.Explain(s, job)
}

func explainRun(c *cobra.Command, dir, job string) (answer, error) {
	h, ok, err := readHistory(dir, job)
	if err == nil && !ok {
		err = badUsage(c, "expected a job of the run in %s; found %q", dir, job)
	}
	return h, err
}
