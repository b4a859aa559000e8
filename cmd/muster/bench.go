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
		kube  bool
	)
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast the engine decides, by the size of the cluster",
		Long: `Bench measures the engine on one core: filling a cluster with 1-GPU jobs, placing
gangs, refusing one that cannot be placed, replacing jobs on a nearly full
cluster, and reclaiming quota. It prints a line for each in the form of Go's
benchmarks, which benchstat reads.

With --kube it measures schedulers on a real Kubernetes API that it starts on
this machine: pods wait, and a loop that only creates bindings (the limit),
Muster and the stock kube-scheduler bind them in turn.`,
		Example: `  muster bench
  muster bench --run 'Fill|Gang' --nodes 1000,37707
  muster bench --kube --nodes 1000 --shapes 10000x1,20x500`,
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
			for _, name := range []string{"shapes", "schedulers", "workers", "patience", "arriving", "json"} {
				if c.Flags().Changed(name) {
					return badUsage(c, "--%s: expected --kube with it; found none", name)
				}
			}
			err = bench.Run(c.Context(), c.OutOrStdout(), re, nodes)
			if errors.Is(err, bench.ErrNoMatch) {
				return badUsage(c, "--run, --nodes: expected some benchmark to match, such as BenchmarkFill/nodes=1000; found none")
			}
			return err
		},
	}
	c.Flags().StringVar(&match, "run", "", "only the benchmarks whose names match REGEX")
	c.Flags().IntSliceVar(&nodes, "nodes", nil, "the cluster sizes, in nodes, such as 1000,37707")
	c.Flags().BoolVar(&kube, "kube", false, "measure on a Kubernetes API, against other schedulers")
	api.register(c)
	return c
}
