package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/devcluster/apiserver"
	"github.com/muster-sched/muster/devcluster/controllers"
	"github.com/muster-sched/muster/devcluster/fleet"
	"github.com/muster-sched/muster/workload"
)

// usual is the cluster of a new folder if no flag describes another one.
const usual = "64x8:H800"

// upFlags are the flags of up.
type upFlags struct {
	server         apiserver.Config
	cluster        string
	nodes, perNode int
	models         string
	dra            bool
	controllers    []string
	withParent     bool
	agents         string
}

// ready is the line on stdout that reports that the cluster can be used.
type ready struct {
	// Kubeconfig is the path of the admin's kubeconfig, Server the address in it.
	Kubeconfig string `json:"kubeconfig"`
	Server     string `json:"server"`
	Nodes      int    `json:"nodes"`
	// Topology has the node label of each topology level, widest first.
	Topology []level `json:"topology"`
	// Seconds is the time from the start until the cluster was ready.
	Seconds float64 `json:"ready_seconds"`
}

// level is a topology level with the label that nodes have for it.
type level struct {
	Alias     string `json:"alias"`
	NodeLabel string `json:"nodeLabel"`
}

func newUp() *cobra.Command {
	var f upFlags
	c := &cobra.Command{
		Use:   "up",
		Short: "Run a cluster until it is interrupted",
		Long: `Runs a cluster in the foreground. When the cluster is ready, it prints one line of
JSON on stdout: {"kubeconfig": FILE, "server": URL, "nodes": N, "topology":
[{"alias", "nodeLabel"}...], "ready_seconds": S}. Progress goes to stderr; the
components write to the file log in the cluster's folder.

The nodes come from --cluster (which takes what muster sim takes: a file, a list
such as 64x8:H800,32x4:A10, or a built-in cluster such as asi), or from --nodes,
--gpus-per-node and --models. Without these flags, an existing cluster keeps its
nodes, and a new one gets ` + usual + `.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return up(c, &f) },
	}
	flags := c.Flags()
	flags.StringVar(&f.server.Dir, "dir", "", "keep the cluster in the folder `DIR` (default ~/.muster/devcluster)")
	flags.BoolVar(&f.server.Ephemeral, "ephemeral", false, "discard the cluster at the end; faster")
	flags.IntVar(&f.server.Port, "port", 0, "listen on this `PORT` of 127.0.0.1; 0 means the port of the last run, or a free one")
	flags.StringVar(&f.cluster, "cluster", "", "the nodes: a `FILE`, a list or a built-in cluster")
	flags.IntVar(&f.nodes, "nodes", 0, "the `NUMBER` of nodes")
	flags.IntVar(&f.perNode, "gpus-per-node", 8, "the `NUMBER` of GPUs per node")
	flags.StringVar(&f.models, "models", "", "`LIST` of GPU models and the number of nodes of each, such as H800:32,A10:32; without numbers, each gets the same share")
	flags.BoolVar(&f.dra, "dra", false, "publish GPUs through DRA, in ResourceSlices, instead of as the resource "+string(fleet.GPUResource))
	flags.StringSliceVar(&f.controllers, "controllers", []string{"*"}, "the controllers to run, among "+strings.Join(controllers.Names(), ", ")+"; * means all, -NAME omits one")
	flags.StringVar(&f.agents, "agents", "", "let the nodes have agents that pause pods, and write what a client of theirs needs to the `FOLDER`: certificates, and their address in the file address")
	flags.BoolVar(&f.withParent, "exit-with-parent", false, "stop when stdin is closed")
	return c
}

// check completes the flags and refuses those that contradict each other.
func (f *upFlags) check(c *cobra.Command) (cluster *workload.Cluster, err error) {
	if f.controllers, err = controllers.Select(f.controllers); err != nil {
		return nil, badUsage(c, "--controllers: %s", err)
	}
	switch {
	case f.server.Ephemeral && f.server.Dir != "":
		return nil, badUsage(c, "--ephemeral: expected no --dir with it; found %q", f.server.Dir)
	case f.server.Port < 0 || f.server.Port > 65535:
		return nil, badUsage(c, "--port: expected 0..65535; found %d", f.server.Port)
	case !f.server.Ephemeral && f.server.Dir == "":
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, badUsage(c, "--dir: expected a folder, because the user has no home folder")
		}
		f.server.Dir = filepath.Join(home, ".muster", "devcluster")
	}
	changed := func(name string) bool { return c.Flags().Changed(name) }
	listed := changed("nodes") || changed("gpus-per-node") || changed("models")
	switch {
	case f.cluster != "" && listed:
		return nil, badUsage(c, "--cluster: expected none of --nodes, --gpus-per-node and --models with it; found %q", f.cluster)
	case f.cluster == "" && !listed:
		return nil, nil
	case f.cluster == "":
		if f.cluster, err = f.list(c, changed("nodes")); err != nil {
			return nil, err
		}
	}
	if f.cluster == "" {
		return new(workload.Cluster), nil
	}
	list, err := workload.OpenCluster(f.cluster, workload.Options{})
	if err == nil {
		err = fleet.Check(&list)
	}
	return &list, err
}

// list returns the cluster that --nodes, --gpus-per-node and --models describe,
// as a list; it is empty for no nodes.
func (f *upFlags) list(c *cobra.Command, counted bool) (string, error) {
	switch {
	case f.nodes < 0:
		return "", badUsage(c, "--nodes: expected a number, at least 0; found %d", f.nodes)
	case f.perNode < 0:
		return "", badUsage(c, "--gpus-per-node: expected a number, at least 0; found %d", f.perNode)
	case !counted && f.models == "":
		return fmt.Sprintf("64x%d:H800", f.perNode), nil
	case counted && f.nodes == 0:
		return "", nil
	case f.perNode == 0 && f.models == "":
		return fmt.Sprintf("%dx0", f.nodes), nil
	case f.models == "":
		return fmt.Sprintf("%dx%d:H800", f.nodes, f.perNode), nil
	}
	models := strings.Split(f.models, ",")
	var parts []string
	sum := 0
	for i, entry := range models {
		model, number, numbered := strings.Cut(entry, ":")
		n, err := strconv.Atoi(number)
		if !numbered {
			// As even as possible: the first models get one node more.
			n, err = (f.nodes+len(models)-1-i)/len(models), nil
			if !counted {
				return "", badUsage(c, "--models: expected MODEL:NODES,… or --nodes with it; found %q", f.models)
			}
		}
		if err != nil || n < 0 || model == "" {
			return "", badUsage(c, "--models: expected MODEL:NODES,…; found %q", entry)
		}
		sum += n
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%dx%d:%s", n, f.perNode, model))
		}
	}
	if counted && sum != f.nodes {
		return "", badUsage(c, "--models: expected %d nodes in total, the value of --nodes; found %d", f.nodes, sum)
	}
	return strings.Join(parts, ","), nil
}

// up runs the cluster.
func up(c *cobra.Command, f *upFlags) (err error) {
	began := time.Now()
	cluster, err := f.check(c)
	if err != nil {
		return err
	}
	interrupted, release := interruptible()
	defer release()
	ctx, stop := context.WithCancel(interrupted)
	defer stop()
	if f.withParent {
		stopAtEnd(c.InOrStdin(), stop)
	}
	report := func(format string, args ...any) { fmt.Fprintf(c.ErrOrStderr(), format+"\n", args...) }

	report("starting etcd and kube-apiserver")
	server, err := apiserver.Start(ctx, f.server)
	if err != nil {
		return unlessAsked(ctx, err)
	}
	var running sync.WaitGroup
	defer func() {
		stop()
		running.Wait()
		err = errors.Join(err, server.Stop())
	}()
	client, err := kubernetes.NewForConfig(server.RESTConfig())
	if err != nil {
		return err
	}
	if cluster == nil {
		if cluster, err = firstCluster(ctx, client); err != nil {
			return unlessAsked(ctx, err)
		}
	}
	agents, err := openAgents(f.agents)
	if err != nil {
		return err
	}
	nodes, err := fleet.Start(ctx, server.RESTConfig(), fleet.Config{Cluster: cluster, DRA: f.dra, Kubelets: server, Agents: agents, Progress: every(2*time.Second, func(done, total int) {
		report("nodes: %d of %d", done, total)
	})})
	if err != nil {
		return unlessAsked(ctx, err)
	}
	running.Go(nodes.Wait)
	wait, err := controllers.Run(ctx, server.RESTConfig(), f.controllers)
	if err != nil {
		return unlessAsked(ctx, err)
	}
	running.Go(wait)
	line := ready{Kubeconfig: server.Kubeconfig(), Server: server.URL(), Nodes: nodes.Nodes()}
	if line.Topology, err = levels(ctx, client); err != nil {
		return unlessAsked(ctx, err)
	}
	line.Seconds = time.Since(began).Round(time.Millisecond).Seconds()
	if err := json.NewEncoder(c.OutOrStdout()).Encode(line); err != nil {
		return err
	}
	report("ready: %d nodes; kubectl --kubeconfig %s", line.Nodes, line.Kubeconfig)
	select {
	case <-ctx.Done():
		report("stopping")
		return nil
	case <-server.Ended():
		return fmt.Errorf("the API server stopped unexpectedly; its log is %s", server.Log())
	}
}

// openAgents listens for the agents of the nodes, and writes what clients need to a folder; nil without a folder.
func openAgents(dir string) (*fleet.Agents, error) {
	if dir == "" {
		return nil, nil
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	if _, err := os.Stat(in("ca.crt")); errors.Is(err, os.ErrNotExist) {
		if err := agent.WriteCertificates(dir, []string{agentName, "127.0.0.1"}, "muster"); err != nil {
			return nil, fmt.Errorf("--agents: %w", err)
		}
	}
	a := &fleet.Agents{TLS: agent.TLS{Cert: in("agent.crt"), Key: in("agent.key"), CA: in("ca.crt")}, Clients: []string{"muster"}}
	if err := a.TLS.Check(); err != nil {
		return nil, fmt.Errorf("--agents: %w", err)
	}
	var err error
	if a.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	return a, os.WriteFile(in("address"), []byte(a.Listener.Addr().String()), 0o600)
}

// agentName is a name in the certificates of all simulated agents.
const agentName = "muster-agent"

// firstCluster returns the nodes to create in a cluster without nodes, or nil if it has
// some.
func firstCluster(ctx context.Context, client kubernetes.Interface) (*workload.Cluster, error) {
	there, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil || len(there.Items) > 0 {
		return nil, err
	}
	c, err := workload.OpenCluster(usual, workload.Options{})
	return &c, err
}

// levels returns the topology levels that nodes are labelled with.
func levels(ctx context.Context, client kubernetes.Interface) ([]level, error) {
	list := []level{}
	there, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil || len(there.Items) == 0 {
		return list, err
	}
	for _, name := range []string{"superspine", "spine", "leaf"} {
		if label := fleet.LevelLabel(name); there.Items[0].Labels[label] != "" {
			list = append(list, level{name, label})
		}
	}
	return list, nil
}

// interruptible returns a context that ends with the first SIGINT or SIGTERM, and a
// function that stops listening for them. From one second after the first signal, another
// one kills the process. Within that second it does not, because a signal that is sent
// both to a process and to its group arrives twice.
func interruptible() (context.Context, context.CancelFunc) {
	ctx, release := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, release) })
	return ctx, release
}

// stopAtEnd calls stop when in ends. The process that started this one may be gone then,
// but the cluster still has to be cleaned up.
func stopAtEnd(in io.Reader, stop func()) {
	signal.Ignore(syscall.SIGPIPE)
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()
}

// unlessAsked returns err, or nil if the cause is that the user interrupted the command.
func unlessAsked(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// every returns a function that calls f, the first time and then at most once per period.
func every(period time.Duration, f func(done, total int)) func(done, total int) {
	var mu sync.Mutex
	var next time.Time
	return func(done, total int) {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); done == total || now.After(next) {
			next = now.Add(period)
			f(done, total)
		}
	}
}
