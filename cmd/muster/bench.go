package main

import (
	"errors"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/bench"
)

func newBench() *cobra.Command {
	var (
		match string
		nodes []int
		api   kubeBench
		churn churnBench
		kube  bool
	)
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure the engine's speed by cluster size",
		Long: `Bench measures the engine on one core: it fills a cluster with 1-GPU jobs, places
gangs, refuses a gang that cannot be placed, replaces jobs on a nearly full
cluster, and reclaims quota. It prints one line per benchmark in the format of
Go's benchmarks, which benchstat reads.

With --kube it starts a real Kubernetes API on this machine and measures how fast
pending pods are bound: first by a loop that only creates bindings, which is the
upper limit, then by Muster, then by the stock kube-scheduler.

With --churn it watches Muster on such an API for a long time, while pods come and
go, and prints a line per minute: bindings per second, how long pods waited, and the
scheduler's memory and goroutines.`,
		Example: `  muster bench
  muster bench --run 'Fill|Gang' --nodes 1000,37707
  muster bench --kube --nodes 1000 --shapes 10000x1,20x500
  muster bench --churn 1h --nodes 1000 --rate 30
  muster bench --churn 5m --tenant pods=100000,labels=30000`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			re, err := regexp.Compile(match)
			if err != nil {
				return badUsage(c, "--run: expected a regular expression; found %q", match)
			}
			for _, n := range nodes {
				if n < 1 || n > 200_000 {
					return badUsage(c, "--nodes: expected numbers from 1 to 200000; found %d", n)
				}
			}
			if kube {
				api.nodes = nodes
				return api.run(c)
			}
			if c.Flags().Changed("churn") {
				for _, name := range []string{"kube", "run", "shapes", "schedulers", "patience", "arriving"} {
					if c.Flags().Changed(name) {
						return badUsage(c, "--%s: expected no --churn with it; found --churn", name)
					}
				}
				return churn.run(c, nodes, api.workers, api.asJSON)
			}
			for _, name := range churnFlags {
				if c.Flags().Changed(name) {
					return badUsage(c, "--%s: expected --churn with it; found no --churn", name)
				}
			}
			for _, name := range []string{"shapes", "schedulers", "workers", "patience", "arriving", "json"} {
				if c.Flags().Changed(name) {
					return badUsage(c, "--%s: expected --kube with it; found no --kube", name)
				}
			}
			err = bench.Run(c.Context(), c.OutOrStdout(), re, nodes)
			if errors.Is(err, bench.ErrNoMatch) {
				return badUsage(c, "--run, --nodes: expected at least one matching benchmark, such as BenchmarkFill/nodes=1000; found none")
			}
			return err
		},
	}
	c.Flags().StringVar(&match, "run", "", "run only the benchmarks whose names match `REGEX`")
	c.Flags().IntSliceVar(&nodes, "nodes", nil, "cluster sizes in nodes, as a `LIST` such as 1000,37707")
	c.Flags().BoolVar(&kube, "kube", false, "compare schedulers on a real Kubernetes API")
	api.register(c)
	churn.register(c)
	return c
}
