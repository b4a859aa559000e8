package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/kube/console"
)

// jobFlags say which jobs of a cluster to list.
type jobFlags struct {
	consoleFlags
	listFlags
	all    bool
	queues []string
	states []string
}

func (f *jobFlags) register(c *cobra.Command) {
	f.consoleFlags.register(c)
	f.listFlags.register(c)
	c.Flags().BoolVarP(&f.all, "all-namespaces", "A", false, "look in all namespaces")
	c.Flags().StringSliceVarP(&f.queues, "queue", "q", nil, "list jobs of these `QUEUES` only")
	c.Flags().StringSliceVarP(&f.states, "states", "t", nil, "list jobs in these `STATES`, or all: "+console.StateLetters()+"; by default those that are not over")
}

// show lists the jobs.
func (f *jobFlags) show(c *cobra.Command, text func(io.Writer, *console.View, []console.Job) error) error {
	if err := f.check(c); err != nil {
		return err
	}
	states, err := console.ParseStates(f.states)
	if err != nil {
		return badUsage(c, "--states: %s", err)
	}
	if f.all && f.namespace != "" {
		return badUsage(c, "--all-namespaces: expected it or --namespace; found both")
	}
	client, namespace, err := f.open(c)
	if err != nil {
		return err
	}
	if f.all {
		namespace = ""
	}
	filter := console.Filter{Namespace: namespace, Queues: f.queues, States: states}
	return f.listFlags.show(c, console.View{AllNamespaces: f.all}, func(ctx context.Context) (page, error) {
		jobs, err := client.Jobs(ctx, filter)
		return page{map[string]any{"jobs": jobs}, func(w io.Writer, v *console.View) error { return text(w, v, jobs) }}, err
	})
}

func newQueue() *cobra.Command {
	var (
		flags jobFlags
		start bool
	)
	c := &cobra.Command{
		Use:     "queue",
		Aliases: []string{"squeue"},
		Short:   "List the jobs of a cluster that run and wait, and why, as squeue does",
		Long: `Queue lists the jobs that Muster schedules: where they run or, in brackets, why
they wait: the reason code of Slurm that comes nearest, and Muster's own reason.

States: PD pending, RQ requeued, R running, S suspended, CG completing,
PR preempted, CD completed, F failed, TO timeout, NF node failed, CA cancelled.`,
		Example: `  muster queue
  muster queue -A -t PD
  muster queue -q training -o wide
  muster queue --start
  muster queue -A --watch`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			if start {
				return flags.show(c, console.Starts)
			}
			return flags.show(c, console.Queue)
		},
	}
	flags.register(c)
	c.Flags().BoolVar(&start, "start", false, "list the jobs that wait, with their expected start where it is known")
	return c
}

func newJobs() *cobra.Command {
	var flags jobFlags
	c := &cobra.Command{
		Use:   "jobs",
		Short: "List the jobs of a cluster with their tasks and gangs",
		Long: `Jobs lists the jobs that Muster schedules, a line each: how many pods of each task
run, of how many that must run together, and how long the job has run or waited.`,
		Example: `  muster jobs
  muster jobs -A -o wide
  muster jobs -t R -o json`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error { return flags.show(c, console.List) },
	}
	flags.register(c)
	return c
}
