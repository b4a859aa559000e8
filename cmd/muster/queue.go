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
	c.Flags().BoolVarP(&f.all, "all-namespaces", "A", false, "list the jobs of all namespaces")
	c.Flags().StringSliceVarP(&f.queues, "queue", "q", nil, "list only jobs of these `QUEUES`")
	c.Flags().StringSliceVarP(&f.states, "states", "t", nil, "list only jobs in these `STATES`: "+console.StateLetters()+", or all; by default all unfinished jobs")
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
		return badUsage(c, "--all-namespaces: expected no --namespace with it; found both")
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

// shares lists what queues are owed.
func (f *jobFlags) shares(c *cobra.Command) error {
	if err := f.check(c); err != nil {
		return err
	}
	client, _, err := f.open(c)
	if err != nil {
		return err
	}
	return f.listFlags.show(c, console.View{}, func(ctx context.Context) (page, error) {
		shares, err := client.Shares(ctx, f.queues)
		return page{map[string]any{"shares": shares}, func(w io.Writer, v *console.View) error { return console.Shares(w, v, shares) }}, err
	})
}

func newQueue() *cobra.Command {
	var (
		flags  jobFlags
		start  bool
		shares bool
	)
	c := &cobra.Command{
		Use:     "queue",
		Aliases: []string{"squeue"},
		Short:   "List running and waiting jobs, and why they wait, as squeue does",
		Long: `Queue lists the jobs that Muster schedules. The last column shows the nodes of a
running job, or in brackets why a job waits: the closest reason code of Slurm, then
Muster's own reason.

States: PD pending, RQ requeued, R running, S suspended, CG completing,
PR preempted, CD completed, F failed, TO timeout, NF node failed, CA cancelled.`,
		Example: `  muster queue
  muster queue -A -t PD
  muster queue -q training -o wide
  muster queue --start
  muster queue --shares
  muster queue -A --watch`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case shares && (start || flags.all || len(flags.states) > 0 || flags.namespace != ""):
				return badUsage(c, "--shares: expected none of --start, --states, --namespace and --all-namespaces with it: it lists queues, not jobs")
			case shares:
				return flags.shares(c)
			case start:
				return flags.show(c, console.Starts)
			}
			return flags.show(c, console.Queue)
		},
	}
	flags.register(c)
	c.Flags().BoolVar(&start, "start", false, "list waiting jobs with their expected start, if known")
	c.Flags().BoolVar(&shares, "shares", false, "list what queues own, request, are owed and use of each GPU model, and of CPU, memory and other resources of which they have quota, in place of jobs")
	return c
}

func newJobs() *cobra.Command {
	var flags jobFlags
	c := &cobra.Command{
		Use:   "jobs",
		Short: "List jobs with their tasks and gangs",
		Long: `Jobs lists the jobs that Muster schedules, one per line: for each task the pods that
run and the pods that must run together, and how long the job has run or waited.`,
		Example: `  muster jobs
  muster jobs -A -o wide
  muster jobs -t R -o json`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error { return flags.show(c, console.List) },
	}
	flags.register(c)
	return c
}
