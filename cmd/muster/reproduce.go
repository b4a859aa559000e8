package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-sched/muster/reproduce"
)

func newReproduce() *cobra.Command {
	var (
		list   bool
		asJSON bool
		o      reproduce.Options
		seeds  string
	)
	c := &cobra.Command{
		Use:   "reproduce NAME",
		Short: "Repeat a paper's experiment and compare its figures with ours",
		Long: "Reproduce repeats a paper's experiment:" + experimentList() + `

DIR receives report.html, a page with figures and plots, and figures.json, which
holds what --json prints. For kant-* it also receives a folder runs with the runs of
the first seed and a report.html that compares them.`,
		Example: `  muster reproduce --list
  muster reproduce philly-queueing --traces ~/traces
  muster reproduce openb-fgd --policies default,FGD --seeds 42-44 --json
  muster reproduce kant-training --out runs`,
		Args: func(c *cobra.Command, args []string) error {
			if list {
				return arguments()(c, args)
			}
			return arguments("NAME")(c, args)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return experimentNames(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			out := c.OutOrStdout()
			if list {
				if err := onlyFlags(c, "--list", "list"); err != nil {
					return err
				}
				_, err := fmt.Fprintln(out, experimentList())
				return err
			}
			for _, e := range reproduce.All {
				if e.Name == args[0] {
					if err := onlyFlags(c, e.Name, append([]string{"json", "out"}, e.Takes...)...); err != nil {
						return err
					}
					var err error
					if o.Seeds, err = parseSeeds(seeds); err != nil {
						return badUsage(c, "%v", err)
					}
					switch given := c.Flags().Changed("seeds"); {
					case given && o.Full:
						return badUsage(c, "--full: expected no --seeds with it; found both")
					case given && o.Seeds == nil:
						return badUsage(c, "--seeds: expected numbers or ranges such as 42-51; found %q", seeds)
					}
					if o.Out == "" && !asJSON {
						o.Out = filepath.Join("out", e.Name)
					}
					return reproduceOne(c, e, o, asJSON)
				}
			}
			return badUsage(c, "expected the name of an experiment; found %q%s", args[0], didYouMean(args[0], experimentNames()))
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print only the rows, as JSON, on stdout")
	c.Flags().BoolVar(&list, "list", false, "list the experiments")
	c.Flags().StringVar(&o.Traces, "traces", tracesFolder(), "the folder `DIR` with the public traces; by default $MUSTER_TRACES")
	c.Flags().StringVar(&o.Nodes, "nodes", "", "openb-fgd: the `FILE` with the cluster's nodes, instead of openb's")
	c.Flags().StringSliceVar(&o.Pods, "pods", nil, "openb-fgd: the `FILES` with pods, instead of openb's")
	c.Flags().StringSliceVar(&o.Policies, "policies", nil, "openb-fgd, astraea: the `LIST` of policies to compare")
	c.Flags().StringVar(&seeds, "seeds", "", "openb-fgd, kant-*, astraea, asi-fragmentation, asi-topology, asi-ipc: the `LIST` of seeds, such as 42-51 or 42,43, instead of the experiment's own")
	c.Flags().BoolVar(&o.Full, "full", false, "kant-*: run fifty seeds instead of ten; asi-ipc: 60 days instead of 4")
	c.Flags().StringVar(&o.Out, "out", "", "write the files to the folder `DIR`, which must be new, empty, or written by Muster before; by default out/NAME, and with --json no folder")
	return c
}

// onlyFlags refuses flags other than those that what takes.
func onlyFlags(c *cobra.Command, what string, takes ...string) error {
	var wrong error
	c.Flags().Visit(func(f *pflag.Flag) {
		if wrong == nil && !slices.Contains(takes, f.Name) {
			wrong = badUsage(c, "--%s: expected no such flag with %s; %[2]s does not use it", f.Name, what)
		}
	})
	return wrong
}

// parseSeeds reads numbers and ranges of them, separated by commas.
func parseSeeds(text string) ([]int64, error) {
	var seeds []int64
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		a, errA := strconv.ParseInt(first, 10, 64)
		b, errB := strconv.ParseInt(last, 10, 64)
		if errA != nil || errB != nil || a > b || b-a > 1000 {
			return nil, fmt.Errorf("--seeds: expected numbers or ranges such as 42-51; found %q", part)
		}
		for s := a; s <= b; s++ {
			seeds = append(seeds, s)
		}
	}
	return seeds, nil
}

// reproduceOne runs an experiment; a figure out of its band is a failure.
func reproduceOne(c *cobra.Command, e reproduce.Experiment, o reproduce.Options, asJSON bool) error {
	o.Progress = func(what string) { fmt.Fprintln(c.ErrOrStderr(), what) }
	t, err := e.Run(c.Context(), o)
	if err != nil {
		return err
	}
	write := t.Text
	if asJSON {
		write = t.JSON
	}
	if err := write(c.OutOrStdout()); err != nil {
		return err
	}
	if !asJSON {
		fmt.Fprintf(c.OutOrStdout(), "\nThe files are in %s; see %s.\n", o.Out, filepath.Join(o.Out, reproduce.Page))
	}
	if !t.Passed() {
		return fmt.Errorf("%s: a figure is out of its band", e.Name)
	}
	return nil
}

func tracesFolder() string {
	if dir := os.Getenv("MUSTER_TRACES"); dir != "" {
		return dir
	}
	return "../shared/traces"
}

func experimentNames() []string {
	var names []string
	for _, e := range reproduce.All {
		names = append(names, e.Name)
	}
	return names
}

func experimentList() string {
	text := ""
	for _, e := range reproduce.All {
		text += "\n  " + pad(e.Name, 20) + e.Title
	}
	return text
}
