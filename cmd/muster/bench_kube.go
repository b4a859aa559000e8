package main

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/muster-sched/muster/kube"
	kubebench "github.com/muster-sched/muster/kube/bench"
	"github.com/muster-sched/muster/kube/local"
)

// What can bind pods in a measurement.
const (
	rawLoop = "raw"
	stock   = "kube-scheduler"
	ours    = "muster"
)

// kubeBench measures schedulers on a Kubernetes API on this machine.
type kubeBench struct {
	nodes      []int
	shapes     []string
	schedulers []string
	workers    int
	patience   time.Duration
	arriving   bool
	asJSON     bool
}

func (b *kubeBench) register(c *cobra.Command) {
	f := c.Flags()
	f.StringSliceVar(&b.shapes, "shapes", []string{"10000x1", "500x20", "20x500", "1x10000"}, "with --kube: the pending pods, as `GROUPSxPODS`; groups of 1 are single pods. Each pod requests one GPU, or one core if there are more pods than GPUs")
	f.StringSliceVar(&b.schedulers, "schedulers", []string{rawLoop, ours, stock}, "with --kube: the `LIST` of schedulers to measure: raw (a loop that only creates bindings), muster, kube-scheduler")
	f.IntVar(&b.workers, "workers", 64, "with --kube: the `NUMBER` of concurrent requests of raw and muster")
	f.DurationVar(&b.patience, "patience", 2*time.Minute, "with --kube: abandon a measurement after this `DURATION`")
	f.BoolVar(&b.arriving, "arriving", false, "with --kube: start the scheduler before the pods are created, and measure from the first creation")
	f.BoolVar(&b.asJSON, "json", false, "with --kube: print the results as JSON")
}

// parse reads the shapes.
func (b *kubeBench) parse(c *cobra.Command) ([]kubebench.Shape, error) {
	if b.workers < 1 || b.workers > 10_000 {
		return nil, badUsage(c, "--workers: expected a number from 1 to 10000; found %d", b.workers)
	}
	if b.patience <= 0 {
		return nil, badUsage(c, "--patience: expected a duration above 0; found %v", b.patience)
	}
	var shapes []kubebench.Shape
	for _, s := range b.shapes {
		shape, ok := kubebench.ParseShape(s)
		if !ok {
			return nil, badUsage(c, "--shapes: expected GROUPSxPODS such as 500x20, of at most %d pods; found %q", kubebench.MaxPods, s)
		}
		shapes = append(shapes, shape)
	}
	for _, s := range b.schedulers {
		if s == rawLoop && b.arriving {
			return nil, badUsage(c, "--arriving: expected schedulers that wait for pods; found raw")
		}
		if !slices.Contains([]string{rawLoop, ours, stock}, s) {
			return nil, badUsage(c, "--schedulers: expected raw, muster or kube-scheduler; found %q", s)
		}
	}
	return shapes, nil
}

func (b *kubeBench) run(c *cobra.Command) error {
	shapes, err := b.parse(c)
	if err != nil {
		return err
	}
	if b.nodes == nil {
		b.nodes = []int{100, 1000, 5000}
	}
	ctx, stop := interruptible(c)
	defer stop()
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // requests that the end of a measurement cuts short
	var all []kubebench.Result
	if !b.asJSON {
		kubebench.WriteHeader(c.OutOrStdout())
	}
	for _, n := range b.nodes {
		for _, s := range shapes {
			for _, who := range b.schedulers {
				if s.Pods() > 120*n {
					continue // more than the cluster holds
				}
				r, err := b.measure(ctx, who, n, s)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					return fmt.Errorf("%s, %d nodes, %s: %w", who, n, s, err)
				}
				all = append(all, r)
				if !b.asJSON {
					r.WriteRow(c.OutOrStdout())
				}
			}
		}
	}
	if b.asJSON {
		return writeJSON(c.OutOrStdout(), all)
	}
	return nil
}

// measure has one scheduler bind one shape on a new cluster: nodes and pods are
// there before it starts.
func (b *kubeBench) measure(ctx context.Context, who string, nodes int, shape kubebench.Shape) (kubebench.Result, error) {
	var none kubebench.Result
	c, err := local.Start(ctx, func(string) {}, "--ephemeral", "--nodes", "0", "--controllers", "podgroup-protection-controller")
	if err != nil {
		return none, err
	}
	defer c.Stop()
	config, err := c.Config()
	if err != nil {
		return none, err
	}
	config.WarningHandler = rest.NoWarnings{}
	cluster, err := kubebench.NewCluster(config, b.workers)
	if err != nil {
		return none, err
	}
	if err := local.Install(ctx, config); err != nil {
		return none, err
	}
	if err := cluster.CreateNodes(ctx, nodes); err != nil {
		return none, err
	}
	schedule, name := b.scheduler(cluster, config, c.Kubeconfig, who, nodes, shape)
	ctx, cancel := context.WithTimeout(ctx, b.patience)
	defer cancel()
	if !b.arriving {
		if err := cluster.CreatePods(ctx, shape, nodes, name); err != nil {
			return none, err
		}
		r, err := cluster.Watch(ctx, shape, schedule)
		r.Scheduler, r.Nodes = who, nodes
		return r, err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	go func() {
		if err := schedule(ctx); err != nil {
			fail(err)
		}
	}()
	if err := cluster.WarmUp(ctx, name); err != nil {
		return none, context.Cause(ctx)
	}
	r, err := cluster.Watch(ctx, shape, func(ctx context.Context) error { return cluster.CreatePods(ctx, shape, nodes, name) })
	r.Scheduler, r.Nodes = who, nodes
	return r, err
}

// scheduler returns what binds the pods of a shape, and the name by which the
// pods ask for it.
func (b *kubeBench) scheduler(cluster *kubebench.Cluster, config *rest.Config, kubeconfig, who string, nodes int, shape kubebench.Shape) (run func(context.Context) error, name string) {
	switch who {
	case rawLoop:
		return func(ctx context.Context) error { return cluster.Raw(ctx, shape, nodes) }, "nobody"
	case stock:
		return func(ctx context.Context) error { return runStock(ctx, kubeconfig) }, "default-scheduler"
	}
	return func(ctx context.Context) error {
		policy, _ := builtin("default")
		s, err := kube.New(kube.Config{API: config, Policy: policy, Workers: b.workers})
		if err != nil {
			return err
		}
		return s.Run(ctx)
	}, ours
}

// runStock runs the scheduler of Kubernetes until ctx ends.
func runStock(ctx context.Context, kubeconfig string) error {
	path, err := local.Find()
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, path, "kube-scheduler", "--kubeconfig", kubeconfig, "--kube-api-qps", "5000", "--kube-api-burst", "5000")
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	out, err := c.CombinedOutput()
	if ctx.Err() != nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return fmt.Errorf("kube-scheduler ended: %s (%w)", lines[len(lines)-1], err)
}
