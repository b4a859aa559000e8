package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/reproduce"
)

func newReproduce() *cobra.Command {
	var (
		list   bool
		asJSON bool
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
			for _, e := range reproduce.All {
				if e.Name == args[0] {
					return reproduceOne(c, e, reproduce.Options{Traces: traces}, asJSON)
				}
			}
			return badUsage(c, "expected the name of an experiment; found %q%s", args[0], didYouMean(args[0], experimentNames()))
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the rows as JSON, alone, on stdout")
	c.Flags().BoolVar(&list, "list", false, "list the experiments")
	c.Flags().StringVar(&traces, "traces", tracesFolder(), "the folder `DIR` of the public traces; by default $MUSTER_TRACES")
	return c
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
