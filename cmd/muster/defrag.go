package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/kube/console"
	"github.com/muster-sched/muster/report"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/snapshot"
	"github.com/muster-sched/muster/workload"
)

// defragFlags are the flags of muster defrag.
type defragFlags struct {
	simFlags
	snapshot snapshotFlags
	live     consoleFlags
	apply    bool
	at       core.Time
	bounds   core.Defrag
	gpuHours float64
	job      string
	plan     string
	asJSON   bool
	// wait is how long the policy assumes that a job waits for which no room is made.
	wait core.Time
}

func newDefrag() *cobra.Command {
	f := defragFlags{bounds: core.Defrag{MoveTime: core.DefaultMoveTime, Every: 3600 * core.Second}}
	c := &cobra.Command{
		Use:   "defrag [--snapshot FILE | --workload W [--cluster C] [--at T]] [--for JOB] [--apply]",
		Short: "Plan moves of running pods that make whole nodes free",
		Long: `Defrag prints the moves by which the engine would make whole nodes free: pods leave
these nodes for others that have GPUs in use. Only pods of jobs with mobility
replaceable move, by make before break: another instance starts before the first one
ends. Moves are made in waves. Each wave fits when the waves before it are over, while
every pod of the wave holds both places. If the policy has defragmentation.restarts, jobs
that save their progress restart elsewhere for nodes that moves do not make free.

With --for JOB the moves make room for one waiting job instead. Of the ways that are
found, the command prints the one that moves the fewest GPUs. With --snapshot, the
engine first starts what it can. If moves alone make no room, jobs that may be evicted
restart elsewhere, if the policy lets the engine do that; not on a Kubernetes cluster.
The benefit is the job's GPUs for the time that the policy assumes it would wait.

The command changes nothing, unless --apply asks the scheduler of a Kubernetes cluster to
make the moves: wave by wave, and no further after a move that failed. If you interrupt
it, the scheduler finishes the moves in progress. Under a policy with
defragmentation.every, the engine makes such plans itself and carries them out.

The cluster is one of:
  (no flag)                  the Kubernetes cluster in the kubeconfig
  --snapshot FILE            a cluster described by a file (see muster decide)
  --workload W --cluster C   a workload, simulated until time T (see muster sim)`,
		Example: `  muster defrag
  muster defrag --max-moves 50 --apply
  muster defrag -n team-a --for job/train
  muster defrag --snapshot cluster.yaml
  muster defrag --snapshot cluster.yaml --for train-7
  muster defrag --workload asi --seed 1 --at 1d --plan plan.json
  muster defrag --workload asi --seed 1 --at 1d --max-moves 500 --json`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.register(c)
	return c
}

func (f *defragFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.snapshot.file, "snapshot", "", "`FILE` that describes the cluster, in YAML or JSON; - reads standard input")
	flags.StringVar(&f.workload, "workload", "", "the workload `W`")
	flags.StringVar(&f.cluster, "cluster", "", "the cluster `C`; optional for a built-in workload")
	durationVar(flags, &f.at, "at", "plan at this time of the simulation; by default at its end")
	flags.StringSliceVar(&f.policies, "policy", []string{"default"}, "the policy `P` of the simulation")
	flags.Uint64Var(&f.seed, "seed", 0, "generate built-in workloads from this `NUMBER`")
	flags.StringVar(&f.job, "for", "", "make room for this waiting `JOB`")
	flags.IntVar(&f.bounds.MaxMoves, "max-moves", 0, "move at most this `NUMBER` of pods; 0 means no limit")
	flags.IntVar(&f.bounds.Partition, "partition", 500, "consolidate this `NUMBER` of nodes with each other")
	flags.IntVar(&f.bounds.Depth, "depth", 3, "move at most this `NUMBER` of pods one after the other to make room for one")
	flags.IntVar(&f.bounds.Rounds, "rounds", 5, "partition the nodes at most this `NUMBER` of times")
	flags.Float64Var(&f.gpuHours, "max-gpu-hours", 0, "hold GPUs twice for at most this `NUMBER` of GPU-hours; 0 means no limit")
	durationVar(flags, &f.bounds.MoveTime, "move-time", "the time that a move takes, for the cost of the plan")
	durationVar(flags, &f.bounds.Every, "every", "the time for which vacated nodes are of use, for the benefit of the plan")
	flags.StringVar(&f.plan, "plan", "", "write the plan to `FILE`, as JSON")
	flags.BoolVar(&f.asJSON, "json", false, "print the plan as JSON")
	flags.BoolVar(&f.apply, "apply", false, "have the scheduler of the Kubernetes cluster make the moves and restarts")
	f.live.register(c)
	f.inputFlags.register(flags)
	f.registerCluster(flags)
	f.models.register(flags)
	completePolicy(c)
}

// defragLines is how many moves the command prints as text.
const defragLines = 20

func (f *defragFlags) run(c *cobra.Command) error {
	if err := f.check(c); err != nil {
		return err
	}
	if f.isLive() {
		return f.runLive(c)
	}
	moves, err := f.ask(c)
	if err != nil {
		return err
	}
	return f.show(c, moves, nil)
}

// isLive reports whether the plan is for the Kubernetes cluster.
func (f *defragFlags) isLive() bool {
	return f.snapshot.file == "" && f.workload == "" && f.cluster == ""
}

// runLive plans for the Kubernetes cluster, and has the plan carried out if that is asked for.
func (f *defragFlags) runLive(c *cobra.Command) error {
	client, namespace, err := f.live.open(c)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(c)
	defer stop()
	doc, _ := policy.ByName("default")
	survey, err := client.Survey(ctx, doc.Policy, builtin)
	if err != nil {
		return err
	}
	f.wait = survey.Policy().Room.AssumedWait
	var plan console.Plan
	if f.job == "" {
		plan = survey.Consolidation(f.bounds)
	} else if plan, err = survey.RoomFor(namespace, f.job, f.bounds); err != nil {
		return err
	}
	if err := f.show(c, plan.Migrations, &plan); err != nil || !f.apply || len(plan.Moves)+len(plan.Restarts) == 0 {
		return err
	}
	moves, err := plan.Requests()
	if err != nil {
		return err
	}
	return client.Apply(ctx, &console.Apply{
		Moves: moves, Pause: time.Second, Idle: 15 * time.Second, Tell: func(line string) { fmt.Fprintln(c.ErrOrStderr(), line) },
	})
}

// show prints the plan; live has the names of its pods, nil if they have none.
func (f *defragFlags) show(c *cobra.Command, moves core.Migrations, live *console.Plan) error {
	plan := report.NewMigrations(moves, &f.bounds, f.wait)
	if live != nil {
		for i := range live.Moves {
			plan.Moves[i].Name = live.Moves[i].Name
		}
		for i := range live.Restarts {
			plan.Restarts[i].Name = live.Restarts[i].Name
		}
	}
	plan.For = f.job
	if f.plan != "" {
		if err := writeJSONFile(f.plan, plan); err != nil {
			return err
		}
	}
	if f.asJSON {
		return writeJSON(c.OutOrStdout(), plan)
	}
	return plan.WriteText(c.OutOrStdout(), defragLines)
}

func (f *defragFlags) check(c *cobra.Command) error {
	for _, b := range []struct {
		flag        string
		value       int
		least, most int
	}{
		{"max-moves", f.bounds.MaxMoves, 0, core.MaxPods}, {"partition", f.bounds.Partition, 2, core.MaxPods},
		{"depth", f.bounds.Depth, 1, 5}, {"rounds", f.bounds.Rounds, 1, 20},
	} {
		if b.value < b.least || b.value > b.most {
			return badUsage(c, "--%s: expected a number from %d to %d; found %d", b.flag, b.least, b.most, b.value)
		}
	}
	if !(f.gpuHours >= 0 && f.gpuHours <= 1e6) {
		return badUsage(c, "--max-gpu-hours: expected a number from 0 to 1000000; found %g", f.gpuHours)
	}
	f.bounds.MaxGPUTime = int64(f.gpuHours * 3600 * float64(core.WholeGPU))
	simulated := f.workload != "" || f.cluster != ""
	switch {
	case f.snapshot.file != "" && simulated:
		return badUsage(c, "--snapshot: expected no --cluster or --workload with it; found %s", f.snapshot.file)
	case f.snapshot.file != "" && f.at > 0:
		return badUsage(c, "--at: expected no time with --snapshot, which is of one moment")
	case f.cluster != "" && f.workload == "":
		return badUsage(c, "--cluster: expected --workload with it; found %s", f.cluster)
	case f.apply && !f.isLive():
		return badUsage(c, "--apply: expected the Kubernetes cluster in the kubeconfig, without --snapshot and --workload")
	}
	if f.isLive() {
		if err := f.onlyLive(c); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Dir(f.plan)); f.plan != "" && err != nil {
		return unwritable(f.plan, err) // before a simulation, which may take minutes
	}
	return nil
}

// planned are the flags that mean something for the Kubernetes cluster.
var planned = []string{"for", "max-moves", "partition", "depth", "rounds", "max-gpu-hours", "move-time", "every", "plan", "json", "apply", "kubeconfig", "context", "namespace"}

// onlyLive refuses flags of a simulation without one.
func (f *defragFlags) onlyLive(c *cobra.Command) (err error) {
	c.Flags().Visit(func(g *pflag.Flag) {
		if err == nil && !slices.Contains(planned, g.Name) {
			err = badUsage(c, "--%s: expected --workload with it; found neither --workload nor --snapshot", g.Name)
		}
	})
	return err
}

// ask has the engine plan.
func (f *defragFlags) ask(c *cobra.Command) (core.Migrations, error) {
	if f.snapshot.file == "" {
		return f.simulate(c)
	}
	s, err := f.snapshot.open(c)
	if err != nil {
		return core.Migrations{}, err
	}
	if f.job == "" {
		return snapshot.Consolidation(s, f.bounds)
	}
	f.wait = s.Policy.Room.AssumedWait
	plan, _, err := snapshot.RoomFor(s, f.job, f.bounds)
	return plan, asInput(err)
}

// asInput makes an error about the job bad input.
func asInput(err error) error {
	if err == nil || workload.IsBadInput(err) {
		return err
	}
	return &workload.Error{File: "--for", Want: "a job of which pods wait; found: " + err.Error()}
}

// simulate runs the workload until the time of the plan.
func (f *defragFlags) simulate(c *cobra.Command) (moves core.Migrations, err error) {
	if len(f.policies) > 1 {
		return moves, badUsage(c, "--policy: expected one policy; found %d", len(f.policies))
	}
	f.until = f.at
	if err := f.complete(c); err != nil {
		return moves, err
	}
	cluster, err := f.openInput()
	if err != nil {
		return moves, err
	}
	policies, err := f.loadPolicies(c)
	if err == nil {
		err = f.models.checkSpeeds(c, &cluster)
	}
	if err != nil {
		return moves, err
	}
	jobs, err := f.openJobs(&cluster)
	if err != nil {
		return moves, err
	}
	f.wait = policies[0].Room.AssumedWait
	ctx, stop := interruptible(c)
	defer stop()
	p := newProgress(c.ErrOrStderr(), 1)
	defer p.finish()
	var asked error
	stats, err := sim.Run(ctx, sim.Config{
		Cluster: cluster, Jobs: jobs, Policy: policies[0], Seed: f.seed, Until: f.until,
		Estimates: f.models.estimates, Models: f.models.Models, Progress: p.of(0),
		Ended: func(e *core.Engine) {
			if f.job == "" {
				moves = e.Consolidation(f.bounds)
			} else {
				moves, _, asked = e.RoomFor(f.job, f.bounds, policies[0].Room.Restarts)
			}
		},
	})
	switch {
	case err != nil && !workload.IsBadInput(err):
		return moves, fmt.Errorf("policy %s: %w", policies[0].Name, err)
	case err == nil && stats.Interrupted:
		return moves, errors.New("interrupted")
	case err == nil:
		err = asInput(asked)
	}
	return moves, err
}

func unwritable(path string, err error) error {
	return &workload.Error{File: path, Want: "a file that can be written; found: " + err.Error()}
}

// writeJSONFile writes a value to a file, whole or not at all.
func writeJSONFile(path string, v any) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return unwritable(path, err)
	}
	defer os.Remove(file.Name()) // fails once it is renamed
	if err := errors.Join(writeJSON(file, v), file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
