package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/console"
)

func newDrain() *cobra.Command {
	var (
		api      apiFlags
		replace  = 10 * 60 * core.Second
		timeout  core.Time
		uncordon bool
	)
	c := &cobra.Command{
		Use:   "drain NODE",
		Short: "Cordon a node and move Muster's pods off it",
		Long: `Drain cordons a node and asks the scheduler to move the pods that it placed there.
A Deployment's pod leaves once its replacement is available; if none is available
within --replace-timeout, the pod stays. A job is suspended until its pods are gone,
or its pods are evicted; a gang leaves as a whole. Disruption budgets and grace
periods are respected. Pods of other schedulers and of DaemonSets stay.

The command ends when the pods have left. The node stays cordoned until you run
drain --uncordon. If you interrupt the command, the scheduler continues the drain.`,
		Example: `  muster drain gpu-017
  muster drain gpu-017 --replace-timeout 30m --timeout 2h
  muster drain gpu-017 --replace-timeout 0
  muster drain gpu-017 --uncordon`,
		Args: arguments("NODE"),
		RunE: func(c *cobra.Command, args []string) error {
			for _, other := range []string{"replace-timeout", "timeout"} {
				if uncordon && c.Flags().Changed(other) {
					return badUsage(c, "--uncordon: expected no --%s with it; found both", other)
				}
			}
			client, err := api.client(c)
			if err != nil {
				return err
			}
			tell := func(line string) { fmt.Fprintln(c.OutOrStdout(), line) }
			if uncordon {
				if err := client.Uncordon(c.Context(), args[0]); err != nil {
					return err
				}
				tell("node " + args[0] + " is open to new pods")
				return nil
			}
			ctx, stop := interruptible(c)
			defer stop()
			return client.Drain(ctx, console.Drain{
				Node: args[0], Replace: time.Duration(replace), Timeout: time.Duration(timeout), Pause: time.Second, Idle: 15 * time.Second, Tell: tell,
			})
		},
	}
	api.register(c)
	durationVar(c.Flags(), &replace, "replace-timeout", "how long to wait for the replacement of a Deployment's pod; with 0 the pod leaves at once")
	durationVar(c.Flags(), &timeout, "timeout", "stop waiting after this time; by default wait without limit")
	c.Flags().BoolVar(&uncordon, "uncordon", false, "uncordon the node and end its drain")
	return c
}
