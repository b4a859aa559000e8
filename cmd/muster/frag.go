package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/frag"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/report"
	"github.com/muster-sched/muster/runlog"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/snapshot"
	"github.com/muster-sched/muster/workload"
)

// fragFlags are the flags of muster frag.
type fragFlags struct {
	simFlags
	snapshot      snapshotFlags
	api           apiFlags
	at            core.Time
	shapes, gangs []string
	query         report.FragmentationQuery
	asJSON        bool
}

func newFrag() *cobra.Command {
	var f fragFlags
	c := &cobra.Command{
		Use:   "frag [DIR | --snapshot FILE | --cluster C [--workload W]] [--at T] [--shape SHAPE]",
		Short: "Show which idle GPUs a request cannot use, why, and what would free them",
		Long: `Frag shows how many idle GPUs of a cluster pods of a shape can use, and why they cannot
use the others: the GPUs are fractional, stranded, lack CPU or another resource, or are
in the wrong place of the topology; or no pod can use them, because they are cordoned,
tainted or unhealthy. It also counts how many large jobs fit.

The cluster is one of:
  (no argument)              the Kubernetes cluster in the kubeconfig
  DIR                        a finished run, at its end or at time T: the folder that
                             muster sim wrote
  --snapshot FILE            a cluster described by a file (see muster decide)
  --cluster C --workload W   a workload, simulated until time T (see muster sim);
                             without W the empty cluster. For more options run
                             muster sim --out DIR first

A SHAPE is GPUs, cores, memory and other resources of a pod: 8g64c, 0.5g4c,
8g64c512Gi, 8g64c+rdma/hca=8. A JOB is GPUs x cores for each GPU, in pods of 8 GPUs
or of the number after a slash: 128x12c, 128x12c/1g. The default shapes and jobs are
those of the ASI paper, Fig. 13 and Fig. 14.`,
		Example: `  muster frag --shape 8g64c --nodes
  muster frag run --at 3d
  muster frag run --at 3d --shape 8g64c --nodes
  muster frag --workload asi --seed 1 --at 1d --gang 256x12c --within leaf
  muster frag --snapshot cluster.yaml --shape 4g32c --json`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return arguments("DIR")(c, args)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.register(c)
	return c
}

func (f *fragFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.SortFlags = false
	durationVar(flags, &f.at, "at", "answer for this time of the run; by default its end")
	flags.StringArrayVar(&f.shapes, "shape", nil, "the `SHAPE` of the pods; can be repeated")
	flags.StringArrayVar(&f.gangs, "gang", nil, "count how many of this `JOB` fit; can be repeated")
	flags.StringVar(&f.query.Within, "within", "", "a job must fit within one domain of this topology `LEVEL`; by default the narrowest level; with cluster, a job can be anywhere")
	flags.BoolVar(&f.query.Mixed, "mixed", false, "let the pods of a job be on several GPU models")
	flags.StringVar(&f.query.Model, "model", "", "count only nodes with this GPU `MODEL`")
	flags.BoolVar(&f.query.Places, "nodes", false, "list nodes and domains with GPUs that cannot be used, and what would free them")
	flags.BoolVar(&f.asJSON, "json", false, "print the answer as JSON")
	f.api.register(c)
	flags.StringVar(&f.snapshot.file, "snapshot", "", "`FILE` that describes the cluster, in YAML or JSON; - reads standard input")
	flags.StringVar(&f.cluster, "cluster", "", "the cluster `C`; optional for a built-in workload")
	flags.StringVar(&f.workload, "workload", "", "the workload `W`")
	flags.StringSliceVar(&f.policies, "policy", []string{"default"}, "the policy `P` of the simulation")
	flags.Uint64Var(&f.seed, "seed", 0, "generate built-in workloads from this `NUMBER`")
	flags.IntVar(&f.jobs.GPUs, "gpus", 0, "built-in clusters: the `NUMBER` of GPUs")
	f.models.register(pflag.NewFlagSet("", pflag.ContinueOnError)) // for what is true without flags
	completePolicy(c)
}

func (f *fragFlags) run(c *cobra.Command, args []string) error {
	if err := f.parse(c); err != nil {
		return err
	}
	nodes, levels, err := f.idle(c, args)
	if err != nil {
		return err
	}
	answer, err := report.NewFragmentation(nodes, levels, f.query)
	if err != nil {
		return badUsage(c, "%s", err)
	}
	if f.at > 0 {
		at := f.at.Seconds()
		answer.AtSeconds = &at
	}
	if f.asJSON {
		return writeJSON(c.OutOrStdout(), answer)
	}
	return answer.WriteText(c.OutOrStdout())
}

// parse reads the shapes and jobs; without any they are those of the paper.
func (f *fragFlags) parse(c *cobra.Command) error {
	for _, text := range f.shapes {
		sh, err := frag.ParseShape(text)
		if err != nil {
			return badUsage(c, "--shape: expected %s", err)
		}
		f.query.Shapes = append(f.query.Shapes, sh)
	}
	for _, text := range f.gangs {
		j, err := frag.ParseJob(text)
		if err != nil {
			return badUsage(c, "--gang: expected %s", err)
		}
		f.query.Jobs = append(f.query.Jobs, j)
	}
	if f.shapes == nil && f.gangs == nil {
		f.query.Shapes, f.query.Jobs = frag.PaperShapes(), frag.PaperJobs()
	}
	return nil
}

// always are the flags that mean something without a simulation.
var always = []string{"at", "shape", "gang", "within", "mixed", "model", "nodes", "json", "snapshot", "kubeconfig", "context"}

// idle returns the nodes of what is to be looked at, and the levels of the topology.
func (f *fragFlags) idle(c *cobra.Command, args []string) ([]frag.Node, []string, error) {
	simulated := f.cluster != "" || f.workload != ""
	var other string
	c.Flags().Visit(func(g *pflag.Flag) {
		if !slices.Contains(always, g.Name) {
			other = g.Name
		}
	})
	switch {
	case len(args) == 1 && (f.snapshot.file != "" || simulated):
		return nil, nil, badUsage(c, "expected no --snapshot, --cluster or --workload with the folder of a run; found %s", args[0])
	case f.snapshot.file != "" && simulated:
		return nil, nil, badUsage(c, "--snapshot: expected no --cluster or --workload with it; found %s", f.snapshot.file)
	case f.snapshot.file != "" && f.at > 0:
		return nil, nil, badUsage(c, "--at: expected no time with --snapshot, which is of one moment; found %s", v1alpha1.Duration(f.at))
	case !simulated && other != "":
		return nil, nil, badUsage(c, "--%s: expected --cluster or --workload with it; found neither", other)
	case len(args) == 1:
		at := f.at
		if at == 0 {
			at = core.Never
		}
		return runlog.ReadIdle(args[0], at)
	case f.snapshot.file != "":
		s, err := f.snapshot.open(c)
		if err != nil {
			return nil, nil, err
		}
		return snapshot.Idle(s), s.Levels, nil
	case f.workload != "":
		return f.simulate(c)
	case f.cluster != "" && f.at > 0:
		return nil, nil, badUsage(c, "--at: expected --workload with it; found %s", v1alpha1.Duration(f.at))
	case f.cluster != "":
		return f.empty(c)
	}
	if f.at > 0 {
		return nil, nil, badUsage(c, "--at: expected the folder of a run, or --workload, with it; found neither")
	}
	client, err := f.api.client(c)
	if err != nil {
		return nil, nil, err
	}
	ctx, stop := interruptible(c)
	defer stop()
	return client.Idle(ctx)
}

// empty returns the nodes of a cluster on which nothing runs.
func (f *fragFlags) empty(c *cobra.Command) ([]frag.Node, []string, error) {
	f.jobs.Seed = f.seed
	if err := f.inputFlags.check(c, f.cluster, ""); err != nil {
		return nil, nil, err
	}
	cluster, err := f.openCluster(f.cluster)
	if err != nil {
		return nil, nil, err
	}
	var nodes []frag.Node
	for i := range cluster.Nodes {
		nodes = append(nodes, frag.Empty(&cluster.Nodes[i]))
	}
	return nodes, cluster.Levels, nil
}

// simulate runs the workload until the time that is asked about.
func (f *fragFlags) simulate(c *cobra.Command) ([]frag.Node, []string, error) {
	if len(f.policies) > 1 {
		return nil, nil, badUsage(c, "--policy: expected one policy; found %d", len(f.policies))
	}
	f.until = f.at
	if err := f.complete(c); err != nil {
		return nil, nil, err
	}
	cluster, err := f.openInput()
	if err != nil {
		return nil, nil, err
	}
	policies, err := f.loadPolicies(c)
	if err == nil {
		err = f.models.checkSpeeds(c, &cluster)
	}
	if err != nil {
		return nil, nil, err
	}
	ctx, stop := interruptible(c)
	defer stop()
	m, err := f.replayTo(ctx, c, &cluster, policies[0])
	if err != nil {
		return nil, nil, err
	}
	return m.Idle(), cluster.Levels, nil
}

// replayTo makes the run.
func (f *fragFlags) replayTo(ctx context.Context, c *cobra.Command, cluster *workload.Cluster, policy core.Policy) (*metrics.Collector, error) {
	jobs, err := f.openJobs(cluster)
	if err != nil {
		return nil, err
	}
	p := newProgress(c.ErrOrStderr(), 1)
	defer p.finish()
	m := metrics.New(metrics.Options{Levels: len(cluster.Levels)})
	stats, err := sim.Run(ctx, sim.Config{
		Cluster: *cluster, Jobs: jobs, Policy: policy, Seed: f.seed, Until: f.until,
		Estimates: f.models.estimates, Models: f.models.Models, Progress: p.of(0),
	}, m)
	switch {
	case err != nil && !workload.IsBadInput(err):
		return nil, fmt.Errorf("policy %s: %w", policy.Name, err)
	case err == nil && stats.Interrupted:
		return nil, errors.New("interrupted")
	}
	return m, err
}
