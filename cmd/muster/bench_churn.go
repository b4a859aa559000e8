package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube"
	kubebench "github.com/muster-sched/muster/kube/bench"
	"github.com/muster-sched/muster/kube/local"
)

// churnBench measures the scheduler over time, under pods that come and go.
type churnBench struct {
	length, every, mean core.Time
	rate                float64
	tenant              []string
	profiles            string
	burdens             []kubebench.Burden
}

// churnFlags are the flags that need --churn.
var churnFlags = []string{"rate", "mean", "every", "tenant", "pprof-address"}

func (b *churnBench) register(c *cobra.Command) {
	b.every, b.mean = 60*core.Second, 60*core.Second
	f := c.Flags()
	durationVar(f, &b.length, "churn", "watch the scheduler for a `DURATION` while pods are created, run and are deleted on a real Kubernetes API with simulated nodes (--nodes; default 1000)")
	f.Float64Var(&b.rate, "rate", 30, "with --churn: the `NUMBER` of pods created per second")
	durationVar(f, &b.mean, "mean", "with --churn: how long a pod runs on average")
	durationVar(f, &b.every, "every", "with --churn: the time that a line of the table is about")
	f.StringVar(&b.profiles, "pprof-address", "", "with --churn: the scheduler serves /debug/pprof at this `ADDRESS`, such as 127.0.0.1:6060")
	f.StringSliceVar(&b.tenant, "tenant", nil, "with --churn: what one tenant does meanwhile, one after the other, as a `LIST` such as pods=100000,labels=30000,terms=10000,churned=1000000; the churn of the others is watched for the DURATION before, during and after each")
}

// parse checks the flags.
func (b *churnBench) parse(c *cobra.Command) error {
	if !(b.rate > 0 && b.rate <= 10_000) {
		return badUsage(c, "--rate: expected a number above 0, at most 10000; found %v", b.rate)
	}
	for _, text := range b.tenant {
		what, number, _ := strings.Cut(text, "=")
		n, err := strconv.Atoi(number)
		if !slices.Contains(kubebench.BurdenKinds(), kubebench.BurdenKind(what)) || err != nil || n < 1 {
			return badUsage(c, "--tenant: expected pods=N, unscheduled=N, labels=N, terms=N or churned=N; found %q", text)
		}
		b.burdens = append(b.burdens, kubebench.Burden{What: kubebench.BurdenKind(what), N: n})
	}
	return nil
}

// restFor is how long the scheduler is watched without pods at most: Go collects garbage
// every two minutes at least.
const restFor = 5 * time.Minute

// run measures on a cluster of its own.
func (b *churnBench) run(c *cobra.Command, nodes []int, workers int, asJSON bool) error {
	if err := b.parse(c); err != nil {
		return err
	}
	switch len(nodes) {
	case 0:
		nodes = []int{1000}
	case 1:
	default:
		return badUsage(c, "--nodes: expected one number with --churn; found %v", nodes)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, stop := interruptible(c)
	defer stop()
	there, err := local.Start(ctx, func(string) {}, "--ephemeral", "--nodes", strconv.Itoa(nodes[0]))
	if err != nil {
		return err
	}
	defer there.Stop()
	config, err := there.Config()
	if err != nil {
		return err
	}
	config.WarningHandler = rest.NoWarnings{}
	cluster, err := kubebench.NewCluster(config, workers)
	if err != nil {
		return err
	}
	s := &kubebench.Soak{
		Cluster: cluster, Program: program, Kubeconfig: there.Kubeconfig, For: time.Duration(b.length), Every: time.Duration(b.every),
		Churn:   kubebench.Churn{Rate: b.rate, Mean: time.Duration(b.mean), Namespace: "others"},
		Burdens: b.burdens, Tenant: "tenant", Rest: min(restFor, time.Duration(b.length)),
	}
	if b.profiles != "" {
		s.Flags = []string{"--pprof-address", b.profiles}
	}
	if err := b.prepare(ctx, s, config, nodes[0]); err != nil {
		return err
	}
	out := c.OutOrStdout()
	var rows []*kubebench.Row
	if !asJSON {
		kubebench.WriteRowHeader(out)
	}
	s.Told = func(r *kubebench.Row) {
		rows = append(rows, r)
		if !asJSON {
			r.Write(out)
		}
	}
	if err := s.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if asJSON {
		return writeJSON(out, rows)
	}
	return ctx.Err()
}

// prepare makes the namespaces, and with a tenant the queues: the tenant's has a node.
func (b *churnBench) prepare(ctx context.Context, s *kubebench.Soak, config *rest.Config, nodes int) error {
	if err := local.Install(ctx, config); err != nil {
		return err
	}
	for _, name := range []string{s.Churn.Namespace, s.Tenant} {
		if err := s.Cluster.CreateNamespace(ctx, name); err != nil {
			return err
		}
	}
	if len(b.burdens) == 0 {
		return nil
	}
	s.Churn.Queue = s.Churn.Namespace
	muster, err := kube.NewClient(config)
	if err != nil {
		return err
	}
	for name, gpus := range map[string]int{s.Churn.Queue: 8 * (nodes - 1), s.Tenant: 8} {
		if err := muster.Post().Resource("queues").Body(kubebench.Isolated(name, gpus)).Do(ctx).Error(); err != nil {
			return err
		}
	}
	return nil
}
