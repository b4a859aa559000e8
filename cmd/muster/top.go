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
		Long: `Top shows, for each GPU model, the used and free GPUs and the fragmented nodes (some
GPUs used, some free), and for each queue its quota, use, borrowing and waiting jobs.
On a terminal it refreshes until interrupted. Otherwise it prints once, unless
--watch is set.`,
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
	c.Flags().BoolVar(&once, "once", false, "print once, even on a terminal")
	return c
}
