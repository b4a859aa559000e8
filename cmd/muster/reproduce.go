package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// experiment is a paper's experiment that can be run again.
type experiment struct {
	name, title string
	// run prints the paper's figure beside ours. traces is the folder of the
	// public traces.
	run func(ctx context.Context, traces string, out io.Writer) error
}

// experiments lists them in the order in which help shows them.
var experiments []experiment

func newReproduce() *cobra.Command {
	var (
		list   bool
		traces string
	)
	c := &cobra.Command{
		Use:   "reproduce NAME",
		Short: "Run a paper's experiment again, and print its figure beside ours",
		Long:  "Reproduce runs a paper's experiment again:" + experimentList(),
		Example: `  muster reproduce --list
  muster reproduce philly-queueing --traces ~/traces`,
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
				_, err := fmt.Fprintln(out, experimentList())
				return err
			}
			for _, e := range experiments {
				if e.name == args[0] {
					return e.run(c.Context(), traces, out)
				}
			}
			return badUsage(c, "expected the name of an experiment; found %q%s", args[0], didYouMean(args[0], experimentNames()))
		},
	}
	c.Flags().BoolVar(&list, "list", false, "list the experiments")
	c.Flags().StringVar(&traces, "traces", tracesFolder(), "the folder `DIR` of the public traces; by default $MUSTER_TRACES")
	return c
}

func tracesFolder() string {
	if dir := os.Getenv("MUSTER_TRACES"); dir != "" {
		return dir
	}
	return "../shared/traces"
}

func experimentNames() []string {
	var names []string
	for _, e := range experiments {
		names = append(names, e.name)
	}
	return names
}

func experimentList() string {
	text := ""
	for _, e := range experiments {
		text += "\n  " + pad(e.name, 20) + e.title
	}
	return text
}
