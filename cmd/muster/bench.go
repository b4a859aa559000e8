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
	)
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast the engine decides, by the size of the cluster",
		Long: `Bench measures the engine on one core: filling a cluster with 1-GPU jobs, placing
gangs, refusing one that cannot be placed, replacing jobs on a nearly full
cluster, and reclaiming quota. It prints a line for each in the form of Go's
benchmarks, which benchstat reads.`,
		Example: `  muster bench
  muster bench --run 'Fill|Gang' --nodes 1000,37707`,
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
			err = bench.Run(c.Context(), c.OutOrStdout(), re, nodes)
			if errors.Is(err, bench.ErrNoMatch) {
				return badUsage(c, "--run, --nodes: expected some benchmark to match, such as BenchmarkFill/nodes=1000; found none")
			}
			return err
		},
	}
	c.Flags().StringVar(&match, "run", "", "only the benchmarks whose names match REGEX")
	c.Flags().IntSliceVar(&nodes, "nodes", nil, "the cluster sizes, in nodes, such as 1000,37707")
	return c
}
