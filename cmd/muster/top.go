package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/kube/console"
)

func newTop() *cobra.Command {
	var (
		api   apiFlags
		flags listFlags
		once  bool
	)
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch a cluster's GPUs and queues",
		Long: `Top shows, for each GPU model, how many GPUs are used and free and how many nodes
are fragmented (some GPUs used, some free), and for each queue what it owns, uses,
borrows and waits for. On a terminal it goes on until interrupted; elsewhere it
prints once, unless --watch is given.`,
		Example: `  muster top
  muster top --once -o json`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := flags.check(c); err != nil {
				return err
			}
			client, err := api.client(c)
			if err != nil {
				return err
			}
			if w, _ := terminal(c.OutOrStdout()); w > 0 && (flags.output == "" || flags.output == "wide") {
				flags.watch = true
			}
			flags.watch = flags.watch && !once
			return flags.show(c, console.View{}, func(ctx context.Context) (page, error) {
				t, err := client.Top(ctx)
				if err != nil {
					return page{}, err
				}
				return page{t, t.Write}, nil
			})
		},
	}
	api.register(c)
	flags.register(c)
	c.Flags().BoolVar(&once, "once", false, "print once, on a terminal too")
	return c
}
