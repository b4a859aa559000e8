package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/client-go/rest"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/internal/table"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/local"
	"github.com/muster-sched/muster/kube/lost"
	"github.com/muster-sched/muster/workload"
)

// upFlags are what `muster up` is told.
type upFlags struct {
	nodes, perNode  int
	models, cluster string
	workload        string
	speed           float64
	policy, dir     string
	port            int
	dra             bool
	seed            uint64
	until           core.Time
	metrics         string
	record          recordFlags
	logs            logFlags
}

// gcPercent is GOGC while a cluster runs: at 155,000 pods it costs 0.8 GiB.
const gcPercent = 200

// fill is the workload that has a pod for every GPU.
const fill = "fill"

func newUp() *cobra.Command {
	var f upFlags
	c := &cobra.Command{
		Use:   "up",
		Short: "Start a Kubernetes API with simulated GPU nodes and schedule on it",
		Long: `Up starts a real Kubernetes API server on this machine with simulated GPU nodes, and
Muster as its scheduler. It prints the kubeconfig and commands to try, and runs until
it is interrupted. With --workload it submits jobs as their users would, faster than
real time. The workload ` + fill + ` has one pod per GPU.

Without --dir the cluster is discarded at the end. With --dir the next run finds it
again.`,
		Example: `  muster up
  muster up --nodes 64 --models H800:32,A10:32 --workload kant-training
  muster up --cluster asi --workload fill
  muster up --dir ~/my-cluster`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	fs := c.Flags()
	fs.IntVar(&f.nodes, "nodes", 64, "the `NUMBER` of nodes")
	fs.IntVar(&f.perNode, "gpus-per-node", 8, "the `NUMBER` of GPUs per node")
	fs.StringVar(&f.models, "models", "", "`LIST` of GPU models and the number of nodes of each, such as H800:32,A10:32")
	fs.StringVar(&f.cluster, "cluster", "", "the nodes: a `FILE`, a list such as 64x8:H800,32x4:A10, or a built-in cluster such as asi")
	fs.StringVar(&f.workload, "workload", "", "submit this `WORKLOAD`: "+fill+", a file, or one of"+generatorList())
	fs.Float64Var(&f.speed, "speed", 600, "`FACTOR` by which the workload's time passes faster than real time")
	fs.Uint64Var(&f.seed, "seed", 1, "generate a built-in workload from this `NUMBER`")
	durationVar(fs, &f.until, "until", "stop after this much of the workload's time; by default run until interrupted")
	fs.StringVar(&f.policy, "policy", "default", "scheduling `POLICY`, by default \"default\": a file, the name of a SchedulingPolicy, or one of"+policyList())
	fs.Lookup("policy").DefValue = "" // the text says it, before the list
	completePolicy(c)
	fs.StringVar(&f.dir, "dir", "", "keep the cluster in the folder `DIR`")
	fs.IntVar(&f.port, "port", 0, "the API server's `PORT` on 127.0.0.1; by default a free one")
	fs.BoolVar(&f.dra, "dra", false, "publish GPUs through DRA, in ResourceSlices")
	fs.StringVar(&f.metrics, "metrics-address", "", "serve /metrics, /healthz and /readyz at this `ADDRESS`")
	f.logs.register(c)
	f.record.register(c)
	return c
}

// mostGPUs is how many GPUs a node may have.
const mostGPUs = 64

// args checks the flags and returns those of the cluster's program.
func (f *upFlags) args(c *cobra.Command) ([]string, error) {
	changed := c.Flags().Changed
	switch {
	case !(f.speed > 0 && f.speed <= 1e9):
		return nil, badUsage(c, "--speed: expected a number above 0 and at most 1000000000; found %v", f.speed)
	case f.nodes < 1 || f.nodes > 200_000:
		return nil, badUsage(c, "--nodes: expected a number from 1 to 200000; found %d", f.nodes)
	case f.perNode < 1 || f.perNode > mostGPUs:
		return nil, badUsage(c, "--gpus-per-node: expected a number from 1 to %d; found %d", mostGPUs, f.perNode)
	case f.port < 0 || f.port > 65535:
		return nil, badUsage(c, "--port: expected a number from 0 to 65535; found %d", f.port)
	}
	args := []string{"--port", fmt.Sprint(f.port)}
	if f.dir == "" {
		args = append(args, "--ephemeral")
	} else {
		dir, err := filepath.Abs(f.dir)
		if err != nil {
			return nil, err
		}
		args = append(args, "--dir", dir)
	}
	if f.dra {
		args = append(args, "--dra")
	}
	switch {
	case f.cluster != "" && (changed("nodes") || changed("models") || changed("gpus-per-node")):
		return nil, badUsage(c, "--cluster: expected none of --nodes, --gpus-per-node and --models with it; found %q", f.cluster)
	case f.cluster != "":
		args = append(args, "--cluster", f.cluster)
	case f.dir == "" || changed("nodes") || changed("models") || changed("gpus-per-node"):
		args = append(args, "--nodes", fmt.Sprint(f.nodes), "--gpus-per-node", fmt.Sprint(f.perNode))
		if f.models != "" {
			args = append(args, "--models", f.models)
		}
	}
	return args, nil
}

func (f *upFlags) run(c *cobra.Command) error {
	args, err := f.args(c)
	if err != nil {
		return err
	}
	policy, policyName, err := clusterPolicy(c, f.policy)
	if err != nil {
		return err
	}
	if _, err := f.logs.to(c, io.Discard); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		// It shares the cores with all of the cluster: garbage was a fifth of its time.
		defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	}
	ctx, stop := interruptible(c)
	defer stop()
	out := c.ErrOrStderr()
	began := time.Now()
	say := func(format string, a ...any) {
		fmt.Fprintf(out, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, a...))
	}

	cluster, err := local.Start(ctx, func(line string) { say("%s", line) }, args...)
	if bad := (*local.BadInput)(nil); errors.As(err, &bad) {
		return badUsage(c, "%s", bad)
	}
	if err != nil {
		return unlessInterrupted(ctx, err)
	}
	defer cluster.Stop()
	config, err := cluster.Config()
	if err != nil {
		return err
	}
	config.WarningHandler = rest.NoWarnings{}
	if err := local.Install(ctx, config); err != nil {
		return unlessInterrupted(ctx, err)
	}
	if err := cluster.ShowTopology(ctx, config); err != nil {
		return unlessInterrupted(ctx, err)
	}
	s, log, done, err := f.scheduler(ctx, c, config, policy, policyName, filepath.Dir(cluster.Kubeconfig))
	if err != nil {
		return err
	}
	defer done()
	ended := make(chan error, 2)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running := make(chan struct{})
	go func() { ended <- s.Run(ctx); close(running) }()
	select {
	case <-s.Ready():
	case err := <-ended:
		return unlessInterrupted(ctx, err)
	}
	say("Muster schedules on %d nodes", cluster.Nodes)
	f.greet(c.OutOrStdout(), cluster, log)

	feed := &local.Fed{}
	if f.workload != "" {
		go func() {
			if err := f.feed(ctx, config, feed); err != nil {
				ended <- err
			}
		}()
	}
	err = f.wait(ctx, out, began, s, cluster, feed, ended)
	cancel()
	<-running
	return err
}

// scheduler makes the cluster's scheduler, which logs to a file in dir. done closes what it
// writes to.
func (f *upFlags) scheduler(ctx context.Context, c *cobra.Command, config *rest.Config, policy core.Policy, policyName, dir string) (s *kube.Scheduler, file string, done func(), err error) {
	logFile, err := os.Create(filepath.Join(dir, "scheduler.log"))
	if err != nil {
		return nil, "", nil, err
	}
	log, err := f.logs.to(c, logFile)
	if err != nil {
		return nil, "", nil, errors.Join(err, logFile.Close())
	}
	kc := kube.Config{API: config, Policy: policy, PolicyName: policyName, Builtins: builtin, Lost: lost.Default(), Log: log}
	s, ended, err := newScheduling(ctx, c, kc, &f.record, &exposeFlags{address: f.metrics})
	if err != nil {
		return nil, "", nil, errors.Join(err, logFile.Close())
	}
	return s, logFile.Name(), func() { ended(); logFile.Close() }, nil
}

// unlessInterrupted drops the error of what an interrupt cut short.
func unlessInterrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (f *upFlags) greet(out io.Writer, cluster *local.Cluster, log string) {
	fmt.Fprintf(out, `
The cluster is at %s. In another terminal:

  export KUBECONFIG=%s
  muster queue                  # jobs that run or wait, and why
  muster nodes                  # used and free GPUs
  muster submit --gpus 8 --image demo --annotation devcluster.muster.sh/duration=1m -- train
  kubectl get pods,podgroups

The scheduler's log is %s. Ctrl-C stops everything.

`, cluster.Server, cluster.Kubeconfig, log)
}

// feed submits the workload.
func (f *upFlags) feed(ctx context.Context, config *rest.Config, told *local.Fed) error {
	feeder, err := local.NewFeeder(config, f.speed)
	if err != nil {
		return err
	}
	var jobs workload.Jobs
	if f.workload == fill {
		jobs, err = feeder.Fill(ctx)
	} else {
		var c workload.Cluster
		if c, err = feeder.Cluster(ctx); err == nil {
			if err = feeder.Queues(ctx, c.Queues); err == nil {
				jobs, _, err = workload.OpenJobs(f.workload, workload.Options{Cluster: &c, Seed: f.seed})
			}
		}
	}
	if err != nil {
		return err
	}
	err = feeder.Feed(ctx, jobs, func(j *workload.Job) {
		told.Jobs.Add(1)
		told.Pods.Add(int64(j.Pods()))
	})
	told.Done.Store(err == nil)
	return err
}

// wait says every now and then how things stand, until it is over.
func (f *upFlags) wait(ctx context.Context, out io.Writer, began time.Time, s *kube.Scheduler, cluster *local.Cluster, feed *local.Fed, ended <-chan error) error {
	terminal := false
	if file, ok := table.Raw(out).(*os.File); ok {
		terminal = term.IsTerminal(int(file.Fd()))
	}
	every := 5 * time.Second
	if terminal {
		every = time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var stop <-chan time.Time
	if f.until > 0 {
		stop = time.After(time.Duration(float64(f.until) / f.speed))
	}
	last, full := "", false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-stop:
			return nil
		case err := <-ended:
			return unlessInterrupted(ctx, err)
		case <-cluster.Ended():
			return unlessInterrupted(ctx, errors.Join(errors.New("the cluster stopped unexpectedly"), cluster.Err()))
		case <-tick.C:
		}
		st, err := s.Stats(ctx)
		if err != nil {
			return nil
		}
		line := local.Summary(&st, feed)
		switch {
		case terminal:
			fmt.Fprintf(table.Raw(out), "\r\x1b[K%6.1fs  %s", time.Since(began).Seconds(), line)
		case line != last:
			fmt.Fprintf(out, "%6.1fs  %s\n", time.Since(began).Seconds(), line)
		}
		last = line
		if f.workload == fill && feed.Done.Load() && !full && st.Waiting == 0 && int64(st.Running) == feed.Pods.Load() {
			full = true
			fmt.Fprintf(out, "%6.1fs  every GPU is in use: %d pods run\n", time.Since(began).Seconds(), st.Running)
		}
	}
}
