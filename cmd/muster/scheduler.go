package main

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/lease"
	"github.com/muster-sched/muster/kube/lost"
	"github.com/muster-sched/muster/kube/pause"
	"github.com/muster-sched/muster/kube/trace"
)

// schedulerFlags are the flags of muster scheduler.
type schedulerFlags struct {
	api        apiFlags
	logs       logFlags
	policy     string
	topology   string
	workers    int
	statusRate float32
	passLimit  core.Time
	closed     bool
	diagnostic string
	lost       lost.Config
	elect      bool
	leases     struct{ duration, deadline, period core.Time }
	namespace  string
	shards     []string
	metrics    exposeFlags
	profiles   string
	record     recordFlags
	agents     pause.Network
}

func newScheduler() *cobra.Command {
	var f schedulerFlags
	c := &cobra.Command{
		Use:   "scheduler",
		Short: "Schedule the pods of a Kubernetes cluster",
		Long: `Scheduler watches a Kubernetes cluster and schedules the pods whose schedulerName is
muster. It runs until it is interrupted. With --leader-elect you can run several
instances: one schedules, the others stand by. With --shard the instances share the
cluster by pool: each shard belongs to one instance, and moves to another instance
when the first one stops.`,
		Example: `  muster scheduler --kubeconfig ~/.kube/config
  muster scheduler --policy StrictFIFO --metrics-address :8080 --leader-elect
  muster scheduler --leader-elect --shard H800,H20 --shard A100 --shard '*'`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.register(c)
	return c
}

func (f *schedulerFlags) register(c *cobra.Command) {
	f.lost, f.passLimit = lost.Default(), 300*core.Second
	f.leases.duration, f.leases.deadline, f.leases.period = 15*core.Second, 10*core.Second, 2*core.Second
	f.api.register(c)
	f.logs.register(c)
	f.record.register(c)
	flags := c.Flags()
	flags.StringVar(&f.policy, "policy", "default", "scheduling `POLICY`, by default \"default\": a file, the name of a SchedulingPolicy, or one of"+policyList())
	flags.Lookup("policy").DefValue = "" // the text says it, before the list
	completePolicy(c)
	flags.StringVar(&f.topology, "topology", "", "the `NAME` of the Topology to use; by default the oldest Topology, or the well-known labels of nodes if there is none")
	flags.IntVar(&f.workers, "workers", 64, "maximum `NUMBER` of pods bound concurrently")
	flags.Float32Var(&f.statusRate, "status-rate", 100, "maximum `NUMBER` of conditions written per second")
	durationVar(flags, &f.passLimit, "pass-limit", "end the process, so that another instance schedules, if one scheduling pass lasts longer; at least 10s")
	flags.BoolVar(&f.closed, "closed-queues", false, "a Queue without namespaceSelector is closed: no namespace can use it. Otherwise such a queue is open to all namespaces")
	durationVar(flags, (*core.Time)(&f.lost.After), "node-lost-after", "evict the pods of a node that has not been ready for this long; 0 disables these evictions")
	flags.Float64Var(&f.lost.Rate, "node-eviction-rate", f.lost.Rate, "maximum `NUMBER` of lost nodes per second whose pods are evicted, in each zone")
	flags.Float64Var(&f.lost.Secondary, "secondary-node-eviction-rate", f.lost.Secondary, "maximum `NUMBER` of such nodes per second while the zone is unhealthy; 0 in zones of at most --large-cluster-size-threshold nodes")
	flags.Float64Var(&f.lost.Unhealthy, "unhealthy-zone-threshold", f.lost.Unhealthy, "a zone is unhealthy if at least this `SHARE` of its nodes, and more than two, are not ready")
	flags.IntVar(&f.lost.Large, "large-cluster-size-threshold", f.lost.Large, "do not evict from lost nodes in an unhealthy zone of at most this `NUMBER` of nodes")
	flags.StringVar(&f.diagnostic, "diagnostic", "", "`NAMESPACE/NAME` of the ConfigMap with the template of the Job that tests a node, in its key job.yaml, for policies with recovery.tests")
	flags.BoolVar(&f.elect, "leader-elect", false, "schedule only while this instance holds the lease; stand by otherwise")
	flags.StringVar(&f.namespace, "leader-elect-namespace", "", "the `NAMESPACE` of the leases; by default the scheduler's own namespace, or muster-system outside a cluster")
	durationVar(flags, &f.leases.duration, "leader-elect-lease-duration", "how long other instances wait after the last renewal before they take over a lease, in whole seconds; must be the same for all instances")
	durationVar(flags, &f.leases.deadline, "leader-elect-renew-deadline", "how long an instance continues to schedule and write after its last renewal; at most nine tenths of the lease duration")
	durationVar(flags, &f.leases.period, "leader-elect-retry-period", "time between two renewals of the leases")
	flags.StringArrayVar(&f.shards, "shard", nil, "share the cluster with other instances: the `POOLS` of one shard, separated by commas; * stands for all pools that no other shard names. Repeat the flag for each shard; must be the same for all instances")
	f.metrics.register(c)
	flags.StringVar(&f.agents.TLS.Cert, "agent-tls-cert", "", "the `FILE` of the scheduler's certificate for the agents of nodes, in PEM. With it, under a policy with preemption.maxSuspended, pods are paused instead of evicted where their annotation muster.sh/pausable says that they can be")
	flags.StringVar(&f.agents.TLS.Key, "agent-tls-key", "", "the `FILE` of its key")
	flags.StringVar(&f.agents.TLS.CA, "agent-tls-ca", "", "the `FILE` of the authority that signed the agents' certificates")
	flags.IntVar(&f.agents.Port, "agent-port", 9440, "the `PORT` of the agents, at the internal addresses of their nodes; the annotation muster.sh/agent of a node, HOST:PORT, takes precedence")
	flags.StringVar(&f.agents.Name, "agent-name", "", "a `NAME` that the certificates of all agents have; by default each has the name of its node")
	flags.StringVar(&f.profiles, "pprof-address", "", "serve /debug/pprof at this `ADDRESS`, such as 127.0.0.1:6060")
}

// config checks the flags and returns what they say of the scheduler, without its traces
// and its recording.
func (f *schedulerFlags) config(c *cobra.Command) (kc kube.Config, err error) {
	if f.workers < 1 || f.workers > 10_000 {
		return kc, badUsage(c, "--workers: expected a number from 1 to 10000; found %d", f.workers)
	}
	if !(f.statusRate >= 1) {
		return kc, badUsage(c, "--status-rate: expected a number of at least 1; found %v", f.statusRate)
	}
	if err := f.lost.Check(); err != nil {
		return kc, badUsage(c, "--%v", err)
	}
	if f.passLimit < 10*core.Second {
		return kc, badUsage(c, "--pass-limit: expected at least 10s; found %s", v1alpha1.Duration(f.passLimit))
	}
	if err := f.metrics.check(c); err != nil {
		return kc, err
	}
	divided, err := lease.ParseShards(f.shards)
	if err != nil {
		return kc, badUsage(c, "--shard: %v", err)
	}
	if len(divided) > 1 && !f.elect {
		return kc, badUsage(c, "--shard: expected --leader-elect with it; instances use leases to agree on which shards each one holds")
	}
	times := lease.Leader{LeaseDuration: time.Duration(f.leases.duration), RenewDeadline: time.Duration(f.leases.deadline), RetryPeriod: time.Duration(f.leases.period)}
	if min(f.leases.duration, f.leases.deadline, f.leases.period) <= 0 {
		return kc, badUsage(c, "--leader-elect-lease-duration, -renew-deadline, -retry-period: expected more than 0s")
	}
	if err := times.Check(); err != nil {
		return kc, badUsage(c, "--leader-elect-%v", err)
	}
	kc = kube.Config{
		Builtins: builtin, Topology: f.topology, Workers: f.workers, StatusRate: f.statusRate, Lost: f.lost, Shards: divided,
		ClosedQueues: f.closed, PassLimit: time.Duration(f.passLimit),
	}
	if kc.Agents, err = f.agentsOf(c); err != nil {
		return kc, err
	}
	if f.diagnostic != "" {
		namespace, name, ok := strings.Cut(f.diagnostic, "/")
		if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
			return kc, badUsage(c, "--diagnostic: expected the NAMESPACE/NAME of a ConfigMap; found %q", f.diagnostic)
		}
		kc.Diagnostic = types.NamespacedName{Namespace: namespace, Name: name}
	}
	if kc.Log, err = f.logs.logger(c); err != nil {
		return kc, err
	}
	if kc.Policy, kc.PolicyName, err = clusterPolicy(c, f.policy); err != nil {
		return kc, err
	}
	if kc.API, err = f.api.config(c); err != nil {
		return kc, err
	}
	if f.elect {
		kc.Leader = times
		kc.Leader.Namespace, kc.Leader.Identity, err = leader(f.namespace)
	}
	return kc, err
}

// agentsOf checks the flags of the agents, and returns how they are reached; nil if they are not.
func (f *schedulerFlags) agentsOf(c *cobra.Command) (*pause.Network, error) {
	t := f.agents.TLS
	if t == (agent.TLS{}) {
		for _, name := range []string{"agent-port", "agent-name"} {
			if c.Flags().Changed(name) {
				return nil, badUsage(c, "--%s: expected --agent-tls-cert, --agent-tls-key and --agent-tls-ca with it", name)
			}
		}
		return nil, nil
	}
	for _, x := range []struct{ flag, file string }{{"cert", t.Cert}, {"key", t.Key}, {"ca", t.CA}} {
		if x.file == "" {
			return nil, badUsage(c, "--agent-tls-%s: expected a file, with the other two of --agent-tls-cert, --agent-tls-key and --agent-tls-ca", x.flag)
		}
	}
	if f.agents.Port < 1 || f.agents.Port > 65535 {
		return nil, badUsage(c, "--agent-port: expected a number from 1 to 65535; found %d", f.agents.Port)
	}
	if err := t.Check(); err != nil {
		return nil, badUsage(c, "--agent-tls-cert, --agent-tls-key, --agent-tls-ca: %v", err)
	}
	return &f.agents, nil
}

func (f *schedulerFlags) run(c *cobra.Command) error {
	kc, err := f.config(c)
	if err != nil {
		return err
	}
	log := kc.Log
	ctx, stop := interruptible(c)
	defer stop()
	tracer, err := trace.FromEnvironment(ctx)
	if err != nil {
		return err
	}
	if tracer != nil {
		kc.Traced = tracer.Journey
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if err := tracer.Close(ctx); err != nil {
				log.Warn("cannot export the last traces", "error", err)
			}
		}()
	}
	s, done, err := newScheduling(ctx, c, kc, &f.record, &f.metrics)
	if err != nil {
		return err
	}
	defer done()
	if f.profiles != "" {
		if err := kube.Serve(ctx, f.profiles, kube.Profiles(), nil); err != nil {
			return badUsage(c, "--pprof-address: expected an address that is free; found %v", err)
		}
	}
	context.AfterFunc(ctx, func() { log.Info("stopping") })
	go func() {
		select {
		case <-s.Ready():
			log.Info("scheduling", "server", kc.API.Host, "policy", f.policy)
		case <-ctx.Done():
		}
	}()
	return s.Run(ctx)
}

// newScheduling makes a scheduler that records what happens, and answers for its
// metrics, as flags say. done ends the recording, after the scheduler.
func newScheduling(ctx context.Context, c *cobra.Command, kc kube.Config, record *recordFlags, metrics *exposeFlags) (s *kube.Scheduler, done func(), err error) {
	recorder, jobs, done, err := record.recorders(ctx, c, kc.Log)
	if err != nil {
		return nil, nil, err
	}
	if jobs != nil {
		kc.Advisor = jobs
	}
	if recorder != nil {
		kc.Record, kc.Recording = recorder, record.recording
	}
	if s, err = kube.New(kc); err != nil {
		done()
		return nil, nil, err
	}
	if err := metrics.serve(ctx, c, kc.API, s.Handler(), kc.Log); err != nil {
		done()
		return nil, nil, err
	}
	return s, done, nil
}

// leader names the leases' namespace and this instance.
func leader(namespace string) (ns, identity string, err error) {
	if namespace == "" {
		namespace = "muster-system"
		if data, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace"); err == nil {
			namespace = string(data)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		return "", "", err
	}
	// In a container each process has the same host and number as the one before.
	return namespace, host + "-" + strings.ToLower(rand.Text()[:10]), nil
}

// apiFlags say which API server to talk to.
type apiFlags struct{ kubeconfig, context string }

func (f *apiFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "the kubeconfig `FILE`; by default $KUBECONFIG, ~/.kube/config, or the service account inside a cluster")
	c.Flags().StringVar(&f.context, "context", "", "the `CONTEXT` of the kubeconfig to use")
}

// clientConfig reads the kubeconfig as kubectl does.
func (f *apiFlags) clientConfig() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context})
}

func (f *apiFlags) config(c *cobra.Command) (*rest.Config, error) {
	config, err := f.clientConfig().ClientConfig()
	if err != nil {
		return nil, badUsage(c, "--kubeconfig: expected a valid kubeconfig; found: %v", err)
	}
	return config, nil
}

// logFlags say how to log.
type logFlags struct{ level, format string }

var (
	logLevels  = []string{"debug", "info", "warn", "error"}
	logFormats = []string{"text", "json"}
)

func (f *logFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.level, "log-level", "info", "minimum log `LEVEL`: debug, info, warn, error")
	c.Flags().StringVar(&f.format, "log-format", "text", "log `FORMAT`: text or json")
	complete(c, "log-level", func() []string { return logLevels })
	complete(c, "log-format", func() []string { return logFormats })
}

// logger logs to stderr.
func (f *logFlags) logger(c *cobra.Command) (*slog.Logger, error) {
	return f.to(c, c.ErrOrStderr())
}

func (f *logFlags) to(c *cobra.Command, w io.Writer) (*slog.Logger, error) {
	o := slog.HandlerOptions{ReplaceAttr: bounded}
	if level := slog.Level(0); !slices.Contains(logLevels, f.level) || level.UnmarshalText([]byte(f.level)) != nil {
		return nil, badUsage(c, "--log-level: expected one of debug, info, warn, error; found %q", f.level)
	} else {
		o.Level = level
	}
	var log *slog.Logger
	switch f.format {
	case "text":
		log = slog.New(slog.NewTextHandler(w, &o))
	case "json":
		log = slog.New(slog.NewJSONHandler(w, &o))
	}
	if log != nil {
		klog.SetSlogLogger(log) // what Kubernetes' libraries have to say
		return log, nil
	}
	return nil, badUsage(c, "--log-format: expected text or json; found %q", f.format)
}

// mostLogged is how much of a value a log line has, in bytes: it may quote what a tenant wrote, which can be
// a quarter of a megabyte. Stacks are whole.
const mostLogged = 4096

// bounded cuts the value of an attribute of a log line.
func bounded(_ []string, a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	var text string
	switch x := v.Any().(type) {
	case string:
		text = x
	case error:
		text = x.Error()
	default:
		return a
	}
	if len(text) <= mostLogged || a.Key == "stack" || a.Key == "stacks" {
		return a
	}
	return slog.String(a.Key, strings.ToValidUTF8(text[:mostLogged], "")+"…")
}
