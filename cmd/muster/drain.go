package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/kube/console"
)

func newDrain() *cobra.Command {
	var (
		api      apiFlags
		timeout  time.Duration
		uncordon bool
	)
	c := &cobra.Command{
		Use:   "drain NODE",
		Short: "Close a node of a cluster and evict the pods that Muster placed there",
		Long: `Drain closes a node to new pods and evicts the pods that Muster placed there,
through the Eviction API: disruption budgets and grace periods count. Pods of
other schedulers stay. It ends when Muster's are gone; the node stays closed until
it is opened with --uncordon.`,
		Example: `  muster drain gpu-017
  muster drain gpu-017 --timeout 10m
  muster drain gpu-017 --uncordon`,
		Args: arguments("NODE"),
		RunE: func(c *cobra.Command, args []string) error {
			if timeout < 0 {
				return badUsage(c, "--timeout: expected a time, at least 0; found %s", timeout)
			}
			config, err := api.config(c)
			if err != nil {
				return err
			}
			client, err := console.New(config)
			if err != nil {
				return err
			}
			tell := func(line string) { fmt.Fprintln(c.OutOrStdout(), line) }
			if uncordon {
				if err := client.Cordon(c.Context(), args[0], false); err != nil {
					return err
				}
				tell("node " + args[0] + " is open to new pods")
				return nil
			}
			ctx, stop := interruptible(c)
			defer stop()
			return client.Drain(ctx, console.Drain{Node: args[0], Timeout: timeout, Pause: time.Second, Tell: tell})
		},
	}
	api.register(c)
	c.Flags().DurationVar(&timeout, "timeout", 0, "give up after so long, such as 10m; 0 never does")
	c.Flags().BoolVar(&uncordon, "uncordon", false, "open the node again")
	return c
}
