package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/console"
)

func newMigratePod() *cobra.Command {
	var (
		f    consoleFlags
		node string
		wait = 5 * 60 * core.Second
	)
	c := &cobra.Command{
		Use:   "pod POD",
		Short: "Move a running pod of the cluster to another node",
		Long: `Migrate pod asks the scheduler to move a running pod to the node --to or, without it,
to the other node where it fits best, and waits until it has left and another pod runs
in its place. Which way it goes depends on the pod:

- muster.sh/mobility: replaceable, of a Deployment: the other pod is ready first;
- muster.sh/checkpoint-within: its processes save their progress when the agent of the
  node asks them to, and the other pod goes on from there. Those of a gang save as one;
- muster.sh/checkpoint-interval alone: it stops, and the other pod goes on from its last
  checkpoint.

A pod that may not be moved, or has no place there, stays; the command says why, and
the exit code is 1. POD is also the name of a job of one pod.`,
		Example: `  muster migrate pod train-7b-0-x2xlp --to gpu-017
  muster migrate pod train-7b -n team-a`,
		Args: arguments("POD"),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("to") && node == "" {
				return badUsage(c, "--to: expected the name of a node; found none")
			}
			if wait <= 0 {
				return badUsage(c, "--timeout: expected more than 0; found %v", time.Duration(wait))
			}
			client, namespace, err := f.open(c)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(c)
			defer stop()
			return jobHint(client.Migrate(ctx, &console.Migrate{
				Namespace: namespace, Name: args[0], Node: node, Wait: time.Duration(wait), Pause: time.Second, Idle: 15 * time.Second,
				Tell: func(line string) { fmt.Fprintln(c.OutOrStdout(), line) },
			}), args[0])
		},
	}
	f.register(c)
	c.Flags().StringVar(&node, "to", "", "the `NODE` to which it goes; by default the one where it fits best")
	durationVar(c.Flags(), &wait, "timeout", "how long the pod in its place may take to run after it has left")
	return c
}
