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
		Short: "Close a node of a cluster, and have its pods leave that Muster placed there",
		Long: `Drain closes a node to new pods and asks the scheduler to empty it of those that it
placed there. A pod of a Deployment leaves when another is available in its place; it
stays if none is in the time that --replace-timeout gives. Jobs are suspended until
their pods are gone, or their pods evicted, gangs whole. Disruption budgets and grace
periods count. Pods of other schedulers and of DaemonSets stay.

It ends when the others are gone. The node stays closed until it is opened with
--uncordon. When it is interrupted, the scheduler goes on.`,
		Example: `  muster drain gpu-017
  muster drain gpu-017 --replace-timeout 30m --timeout 2h
  muster drain gpu-017 --replace-timeout 0
  muster drain gpu-017 --uncordon`,
		Args: arguments("NODE"),
		RunE: func(c *cobra.Command, args []string) error {
			for _, other := range []string{"replace-timeout", "timeout"} {
				if uncordon && c.Flags().Changed(other) {
					return badUsage(c, "--uncordon: expected it or --%s; found both", other)
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
	durationVar(c.Flags(), &replace, "replace-timeout", "how long a pod of a Deployment may take to be replaced before it leaves; with 0 it leaves at once")
	durationVar(c.Flags(), &timeout, "timeout", "give up after so long; by default never")
	c.Flags().BoolVar(&uncordon, "uncordon", false, "open the node again, and end its drain")
	return c
}
