package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func newRelease() *cobra.Command {
	var cluster consoleFlags
	c := &cobra.Command{
		Use:   "release JOB",
		Short: "Let a job start again that is held because it failed",
		Long: `Release asks the scheduler to let a job start again that it holds, because the job
failed and would fail again, or has restarted as often as it may. Remove the cause
first: muster explain shows it. The failures of the job are forgotten, so that its
restarts count from 0; what its failures say about nodes stays.

JOB is NAME, KIND/NAME or NAMESPACE/KIND/NAME, as muster queue prints it. You need the
permission to patch pods in the namespace of the job.`,
		Example: `  muster release train-7b
  muster release -n team-a job/train-7b`,
		Args: arguments("JOB"),
		RunE: func(c *cobra.Command, args []string) error {
			client, namespace, err := cluster.open(c)
			if err != nil {
				return err
			}
			if in, _, ok := strings.Cut(args[0], "/"); ok && strings.Count(args[0], "/") > 1 {
				namespace = in
			}
			job, err := client.Release(c.Context(), namespace, args[0])
			if err == nil {
				fmt.Fprintf(c.OutOrStdout(), "job %s is released\n", job)
			}
			return err
		},
	}
	cluster.register(c)
	return c
}
