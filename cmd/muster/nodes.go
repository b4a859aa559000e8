package main

import (
	"context"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/kube/console"
)

func newNodes() *cobra.Command {
	var (
		api    apiFlags
		flags  listFlags
		each   bool
		states []string
		models []string
	)
	c := &cobra.Command{
		Use:     "nodes",
		Aliases: []string{"sinfo"},
		Short:   "List nodes and their GPUs, as sinfo does",
		Long: `Nodes counts nodes by GPU model and state, and their used, free and unhealthy GPUs.
With -N it lists one node per line.

States: alloc all GPUs used, mix some used, idle none used, drng cordoned with pods
still on it, drain cordoned and empty, down not ready.`,
		Example: `  muster nodes
  muster nodes -N
  muster nodes -N -t idle,mix --model H800`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := flags.check(c); err != nil {
				return err
			}
			wanted, err := console.ParseNodeStates(states)
			if err != nil {
				return badUsage(c, "--states: %s", err)
			}
			client, err := api.client(c)
			if err != nil {
				return err
			}
			return flags.show(c, console.View{}, func(ctx context.Context) (page, error) {
				nodes, err := client.Nodes(ctx)
				nodes = slices.DeleteFunc(nodes, func(n console.Node) bool {
					return len(wanted) > 0 && !slices.Contains(wanted, n.State) || len(models) > 0 && !slices.Contains(models, n.Model)
				})
				text := console.Pools
				if each {
					text = console.NodeLines
				}
				return page{map[string]any{"nodes": nodes}, func(w io.Writer, v *console.View) error { return text(w, v, nodes) }}, err
			})
		},
	}
	api.register(c)
	flags.register(c)
	c.Flags().BoolVarP(&each, "each", "N", false, "list one node per line")
	c.Flags().StringSliceVarP(&states, "states", "t", nil, "list only nodes in these `STATES`: "+console.NodeStates())
	c.Flags().StringSliceVar(&models, "model", nil, "list only nodes with these GPU `MODELS`")
	return c
}
