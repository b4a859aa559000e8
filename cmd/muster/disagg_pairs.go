package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/disagg"
	"github.com/muster-sched/muster/disagg/plan"
)

func newDisaggPairs() *cobra.Command {
	var kernels string
	var gpus, links, memory, prices []string
	var alike, asJSON bool
	c := &cobra.Command{
		Use:   "pairs --kernels FILE --link LINK... [--gpus LIST] [--price LIST]",
		Short: "Compare all pairs of GPUs, by what they serve and cost, near and far apart",
		Long: `Pairs plans for each pair of GPU models, alike or not, and for each distance between
them, and prints how much the pair serves: 1 is two of the first model side by side. A
pair of which no split is worth the link runs as two replicas. The last line is what a
job lists so that the scheduler starts it on the pair that serves most for its price,
in the places that are free.

The first --link is between GPUs in one leaf group, the second one level of the
topology apart, and so on; the last one holds for all distances beyond it.`,
		Example: `  muster disagg pairs --kernels profile.json --link 400gbps --link 100gbps/20us --price A100=2.2,L40S=0.9
  muster disagg pairs --kernels profile.json --gpus A100,L40S --link 200gbps --json`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			if kernels == "" {
				return badUsage(c, "--kernels: expected the file of a profile; found none")
			}
			if len(links) == 0 {
				return badUsage(c, "--link: expected the link between two GPUs in one leaf group; found none")
			}
			distances, err := disagg.ParseDistances(links)
			if err != nil {
				return badUsage(c, "--link: %s", err)
			}
			profile, err := disagg.ReadProfile(kernels)
			if err != nil {
				return err
			}
			of, err := disagg.ParseMemory(profile.Spell(memory))
			if err != nil {
				return badUsage(c, "--memory: %s", err)
			}
			price, err := disagg.ParsePrices(profile.Spell(prices))
			if err != nil {
				return badUsage(c, "--price: %s", err)
			}
			if gpus = profile.Spell(gpus); gpus == nil {
				for _, g := range profile.GPUs {
					gpus = append(gpus, g.Name)
				}
			}
			if err := cmp.Or(named("gpus", profile.Known(gpus)), named("memory", profile.Known(slices.Sorted(maps.Keys(of)))), named("price", profile.Known(slices.Sorted(maps.Keys(price))))); err != nil {
				return badUsage(c, "%s", err)
			}
			pairs, err := profile.Pairs(gpus, distances, of, price, plan.Options{Alike: alike})
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), pairs)
			}
			return disagg.PairsText(c.OutOrStdout(), pairs)
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&kernels, "kernels", "", "the `FILE` with the kernels and their times (profile.json)")
	flags.StringSliceVar(&gpus, "gpus", nil, "the `LIST` of models of the profile to pair; by default all")
	flags.StringArrayVar(&links, "link", nil, "the `LINK` between two GPUs, such as 200gbps or 200gbps/10us; repeated, one for each further level of the topology between them")
	flags.StringSliceVar(&prices, "price", nil, "the `LIST` of prices by model, such as A100=2.2,L40S=0.9; the others cost 1")
	flags.StringSliceVar(&memory, "memory", nil, "the `LIST` of memories by model, such as A100=80gb, instead of the profile's")
	flags.BoolVar(&alike, "alike", false, "place the kernels of identical layers alike: coarser, and faster for large models")
	flags.BoolVar(&asJSON, "json", false, "print the pairs as JSON")
	return c
}

// named says of which flag an error is.
func named(flag string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("--%s: %w", flag, err)
}
