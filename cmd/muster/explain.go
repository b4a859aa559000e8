package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/kube/console"
	"github.com/muster-sched/muster/runlog"
	"github.com/muster-sched/muster/snapshot"
)

func newExplain() *cobra.Command {
	var (
		from    snapshotFlags
		cluster consoleFlags
		asJSON  bool
		output  string
	)
	c := &cobra.Command{
		Use:   "explain {JOB | DIR JOB | --snapshot FILE JOB}",
		Short: "Explain a job's state, why it waits, and what would change that",
		Long: `Explain reports the state of one job, why it waits, with numbers, and what would
have to change for it to start.

  JOB                  a job or pod of the Kubernetes cluster in the kubeconfig:
                       NAME, KIND/NAME or NAMESPACE/KIND/NAME
  DIR JOB              a job of a finished run: its history, and what kept it from
                       idle GPUs while it waited, from the folder that muster
                       sim wrote
  --snapshot FILE JOB  a job of a cluster described by a file (see muster decide)`,
		Example: `  muster explain train-7b
  muster explain -n team-a job/train-7b -o wide
  muster explain --snapshot cluster.yaml --json train-7b
  muster explain run job-00042`,
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case from.file != "":
				return arguments("JOB")(c, args)
			case len(args) == 0:
				return errors.New("expected JOB, or DIR JOB; found 0 arguments")
			case len(args) > 2:
				return arguments("DIR", "JOB")(c, args)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			list := listFlags{output: output, every: time.Second}
			if err := list.check(c); err != nil {
				return err
			}
			if asJSON {
				list.output = "json"
			}
			if from.file == "" && len(args) == 1 {
				return explainJob(c, &cluster, &list, args[0])
			}
			answer, err := from.explain(c, args)
			if err != nil {
				return err
			}
			return list.show(c, console.View{}, func(context.Context) (page, error) {
				return page{answer, func(w io.Writer, _ *console.View) error { return answer.WriteText(w) }}, nil
			})
		},
	}
	from.register(c)
	cluster.register(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print the answer as JSON")
	c.Flags().StringVarP(&output, "output", "o", "", "output `FORMAT`: wide (all pods and events), json or yaml")
	complete(c, "output", func() []string { return outputs })
	return c
}

// explainJob explains a job of a Kubernetes cluster.
func explainJob(c *cobra.Command, cluster *consoleFlags, list *listFlags, job string) error {
	client, namespace, err := cluster.open(c)
	if err != nil {
		return err
	}
	return list.show(c, console.View{}, func(ctx context.Context) (page, error) {
		x, err := client.Explain(ctx, namespace, job)
		if err != nil {
			return page{}, jobHint(err, job)
		}
		return page{x, x.Write}, nil
	})
}

// jobHint adds to the error that there is no such job what may have been meant.
func jobHint(err error, job string) error {
	unknown := (*console.NoJobError)(nil)
	if !errors.As(err, &unknown) {
		return err
	}
	hint := didYouMean(job, unknown.Known)
	if i := slices.IndexFunc(unknown.Known, func(known string) bool { return strings.Contains(known, job) }); i >= 0 {
		hint = fmt.Sprintf(" (did you mean %q?)", unknown.Known[i])
	}
	if hint == "" {
		hint = ": muster queue -A -t all lists all jobs"
	}
	return fmt.Errorf("%w%s", err, hint)
}

// answer is an explanation.
type answer interface{ WriteText(io.Writer) error }

func (f *snapshotFlags) explain(c *cobra.Command, args []string) (answer, error) {
	if f.file == "" {
		return explainRun(c, args[0], args[1])
	}
	s, err := f.open(c)
	if err != nil {
		return nil, err
	}
	job := args[0]
	if names := s.JobNames(); !slices.Contains(names, job) {
		return nil, badUsage(c, "expected a job of the snapshot; found %q%s", job, didYouMean(job, names))
	}
	return snapshot.Explain(s, job)
}

func explainRun(c *cobra.Command, dir, job string) (answer, error) {
	h, ok, err := runlog.ReadHistory(dir, job)
	if err == nil && !ok {
		err = badUsage(c, "expected a job of the run in %s; found %q", dir, job)
	}
	return h, err
}
