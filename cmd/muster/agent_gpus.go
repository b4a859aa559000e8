package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/agent/hardware"
	"github.com/muster-sched/muster/internal/table"
	"github.com/muster-sched/muster/kube/pause"
	"github.com/muster-sched/muster/kube/publish"
)

// nvmlTimeout bounds one question to the driver. A driver answers within seconds, the first time a GPU is asked too.
const nvmlTimeout = 20 * time.Second

// hardwareOptions say how the GPUs of this machine are observed.
func hardwareOptions(kernelLog, stateDir string, log *slog.Logger) hardware.Options {
	if kernelLog == "none" {
		kernelLog = ""
	}
	return hardware.Options{
		Program: gpuProgram("muster-gpu-nvml", "MUSTER_GPU_NVML"), Library: os.Getenv("MUSTER_NVML"),
		KernelLog: kernelLog, System: cmp.Or(os.Getenv("MUSTER_SYSTEM"), "/"), StateDir: stateDir, Timeout: nvmlTimeout, Log: log,
	}
}

func kernelLogFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "kernel-log", "/dev/kmsg", "the kernel log, in which the driver reports errors (Xid); none: it is not read")
}

// watchFlags say how an agent observes its GPUs, and where it writes what it finds.
type watchFlags struct {
	interval  time.Duration
	kernelLog string
	publish   bool
	api       apiFlags
	errors    *prometheus.CounterVec // of what is published
}

func (f *watchFlags) register(c *cobra.Command) {
	c.Flags().DurationVar(&f.interval, "gpu-interval", 15*time.Second, "how often the GPUs are looked at; if 0, they are not")
	kernelLogFlag(c, &f.kernelLog)
	c.Flags().BoolVar(&f.publish, "publish", false, "write what is found to the Kubernetes API: the condition GPUHealthy of the node, where its GPUs are, and taints of devices at fault")
	f.api.register(c)
}

// open lets the agent observe the GPUs. watch begins that, until the context ends; done ends it, and waits for the end.
func (f *watchFlags) open(c *cobra.Command, o *agent.Options) (watch func(context.Context) (done func()), err error) {
	if f.interval != 0 && f.interval < time.Second {
		return nil, badUsage(c, "--gpu-interval: expected at least 1s, or 0 for none; found %v", f.interval)
	}
	if f.interval == 0 {
		if f.publish {
			return nil, badUsage(c, "--publish: expected a --gpu-interval with it")
		}
		return func(context.Context) func() { return func() {} }, nil
	}
	var each func(context.Context, *agentpb.Hardware)
	if f.publish {
		config, err := f.api.config(c)
		if err != nil {
			return nil, err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		f.errors = publish.NewErrors()
		each = (&publish.Publisher{Client: client, Node: o.Node, Log: o.Log, Now: time.Now, Errors: f.errors}).Publish
	}
	w, err := hardware.Open(hardwareOptions(f.kernelLog, o.StateDir, o.Log))
	if err != nil {
		return nil, err
	}
	o.Hardware = w
	return func(ctx context.Context) func() {
		ctx, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.Run(ctx, f.interval, each)
		}()
		return func() {
			stop()
			<-ended
		}
	}, nil
}

// expose serves the metrics of an agent, if flags say where.
func (f *watchFlags) expose(ctx context.Context, c *cobra.Command, at *exposeFlags, a *agent.Agent, log *slog.Logger) error {
	var (
		api  *rest.Config
		more []prometheus.Collector
	)
	if at.secure {
		var err error
		if api, err = f.api.config(c); err != nil {
			return err
		}
	}
	if f.errors != nil {
		more = append(more, f.errors)
	}
	return at.serve(ctx, c, api, a.Handler(more...), log)
}

// gpuNodes says whose GPUs a command is about.
type gpuNodes struct {
	remote remote
	agents []gpuAgent
}

// gpuAgent is an agent that is asked about GPUs.
type gpuAgent struct {
	address string // HOST:PORT
	node    string // of the cluster; empty for an agent that was named by its address
	err     error  // why the address of the node's agent is not known
}

// gpuAnswer is what an agent says, or why it does not.
type gpuAnswer struct {
	status *agentpb.NodeStatus
	err    error
}

func (g *gpuNodes) register(c *cobra.Command) {
	r := &g.remote
	c.Flags().StringArrayVar(&r.addresses, "agent", nil, "ask the agent at HOST:PORT; may be repeated")
	c.Flags().StringVar(&r.name, "agent-name", "", "the name in the agent's certificate; the host, or the node, if empty")
	r.cluster.registerNode(c)
	tlsFlags(c, &r.files)
}

// find finds the agents of the nodes that are named.
func (g *gpuNodes) find(c *cobra.Command, nodes []string) error {
	r := &g.remote
	if len(nodes) == 0 && !r.used() {
		return nil
	}
	if err := required(c, r.files); err != nil {
		return err
	}
	if len(nodes) == 0 {
		for _, address := range r.addresses {
			g.agents = append(g.agents, gpuAgent{address: address})
		}
		return nil
	}
	if r.used() {
		return badUsage(c, "--agent: it does not go with a NODE of the cluster; found %s", nodes[0])
	}
	if err := r.cluster.check(c); err != nil {
		return err
	}
	client, err := r.cluster.api.client(c)
	if err != nil {
		return err
	}
	for _, name := range nodes {
		a := gpuAgent{node: name}
		node, err := client.Node(c.Context(), name)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if a.err = err; err == nil {
			a.address, a.err = pause.Address(node, r.cluster.port)
		}
		g.agents = append(g.agents, a)
	}
	return nil
}

// ask asks all agents at once, and returns their answers in the order of the command line.
func (g *gpuNodes) ask(c *cobra.Command, question func(ctx context.Context, client *agent.Client, node string) (*agentpb.NodeStatus, error)) ([]gpuAnswer, error) {
	ctx, stop := interruptible(c)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, unreached+2*nvmlTimeout) // a reading that is under way, and one more
	defer cancel()
	answers := make([]gpuAnswer, len(g.agents))
	var asked sync.WaitGroup
	defer asked.Wait()
	for i, a := range g.agents {
		if answers[i].err = a.err; a.err != nil {
			continue
		}
		client, err := agent.Dial(a.address, cmp.Or(g.remote.name, a.node), g.remote.files)
		if err != nil {
			return nil, badUsage(c, "%v", err)
		}
		asked.Go(func() {
			defer client.Close()
			s, err := question(ctx, client, a.node)
			if err != nil {
				err = (&remote{addresses: []string{a.address}}).failed(c, err, "")
				if a.node != "" {
					err = fmt.Errorf("node %s: %w", a.node, err)
				}
			}
			answers[i] = gpuAnswer{s, err}
		})
	}
	asked.Wait()
	return answers, nil
}

// answered returns the answers that there are. Why another agent does not answer is a line on stderr each; that of the last one is the error.
func answered(c *cobra.Command, answers []gpuAnswer) (there []*agentpb.NodeStatus, last error) {
	for _, a := range answers {
		if a.err == nil {
			there = append(there, a.status)
			continue
		}
		if last != nil {
			fmt.Fprintln(c.ErrOrStderr(), "muster: "+message(last))
		}
		last = a.err
	}
	return there, last
}

func newAgentGPUs() *cobra.Command {
	var (
		g         gpuNodes
		kernelLog string
		asJSON    bool
	)
	c := &cobra.Command{
		Use:   "gpus [NODE...]",
		Short: "Show the GPUs of nodes, their health, use and place, and the driver's errors",
		Long: `Gpus shows what the agents of nodes know of their GPUs; without a NODE and --agent, it
looks at this machine itself. HEALTH is ok, or what is wrong; lines below the table
say more, and list the last errors that the driver wrote to the kernel log. An agent
that does not answer is a line on stderr, and the exit code is 1; the others are shown.`,
		Example: `  muster agent gpus
  muster agent gpus node-1 node-2 --tls-cert certs/client.crt --tls-key certs/client.key --tls-ca certs/ca.crt
  muster agent gpus --agent node-1:9440 --tls-cert certs/client.crt --tls-key certs/client.key --tls-ca certs/ca.crt`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := g.find(c, args); err != nil {
				return err
			}
			var (
				all     []*agentpb.NodeStatus
				missing error
			)
			if len(g.agents) > 0 {
				if c.Flags().Changed("kernel-log") {
					return badUsage(c, "--kernel-log: it is for this machine: an agent has its own")
				}
				answers, err := g.ask(c, func(ctx context.Context, client *agent.Client, node string) (*agentpb.NodeStatus, error) {
					return client.Status(ctx, &agentpb.StatusRequest{Node: node})
				})
				if err != nil {
					return err
				}
				all, missing = answered(c, answers)
			} else {
				w, err := hardware.Open(hardwareOptions(kernelLog, "", slog.New(slog.DiscardHandler)))
				if err != nil {
					return err
				}
				host, _ := os.Hostname()
				all = append(all, &agentpb.NodeStatus{Node: host, Hardware: w.Read(c.Context())})
			}
			write := writeGPUs
			if asJSON {
				write = writeGPUsJSON
			}
			return cmp.Or(write(c.OutOrStdout(), all), missing)
		},
	}
	g.register(c)
	kernelLogFlag(c, &kernelLog)
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON object for each node")
	return c
}

func newAgentClear() *cobra.Command {
	var (
		g   gpuNodes
		gpu string
		all bool
	)
	c := &cobra.Command{
		Use:   "clear (--gpu UUID | --all) (NODE | --agent HOST:PORT)",
		Short: "Forget errors of GPUs that were reset or repaired",
		Long: `Clear makes the agent forget the errors of the kernel log for which a GPU takes no new
pods, and that the GPU was there, so that it may be gone. The agent forgets by itself when the machine starts again,
when the driver is loaded, and where the driver says that a GPU has recovered
(Xid 154). What the driver itself says is wrong stays.`,
		Example: `  muster agent clear --gpu GPU-6a1f0c52 node-1 --tls-cert certs/client.crt --tls-key certs/client.key --tls-ca certs/ca.crt
  muster agent clear --all --agent node-1:9440 --tls-cert certs/client.crt --tls-key certs/client.key --tls-ca certs/ca.crt`,
		RunE: func(c *cobra.Command, args []string) error {
			if all == (gpu != "") {
				return badUsage(c, "expected --gpu or --all")
			}
			if len(args)+len(g.remote.addresses) != 1 {
				return badUsage(c, "expected one NODE or --agent; found %d", len(args)+len(g.remote.addresses))
			}
			if err := g.find(c, args); err != nil {
				return err
			}
			answers, err := g.ask(c, func(ctx context.Context, client *agent.Client, node string) (*agentpb.NodeStatus, error) {
				h, err := client.Clear(ctx, &agentpb.ClearRequest{Gpu: gpu, Node: node})
				return &agentpb.NodeStatus{Node: node, Hardware: h}, err
			})
			if err != nil {
				return err
			}
			after, refused := answered(c, answers)
			return cmp.Or(refused, writeGPUs(c.OutOrStdout(), after))
		},
	}
	g.register(c)
	c.Flags().StringVar(&gpu, "gpu", "", "the `UUID` of the GPU")
	c.Flags().BoolVar(&all, "all", false, "all GPUs of the node, and its NVSwitches")
	return c
}

func writeGPUsJSON(w io.Writer, all []*agentpb.NodeStatus) error {
	for _, s := range all {
		text, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(&agentpb.NodeStatus{Node: s.Node, Hardware: s.Hardware})
		if err != nil {
			return err
		}
		var line struct {
			Node     string          `json:"node"`
			Hardware json.RawMessage `json:"hardware"`
		}
		if err := json.Unmarshal(text, &line); err != nil {
			return err
		}
		if err := json.NewEncoder(w).Encode(line); err != nil {
			return err
		}
	}
	return nil
}

// shownXids is how many of the driver's errors are listed.
const shownXids = 10

func writeGPUs(w io.Writer, all []*agentpb.NodeStatus) error {
	t := table.Table{Align: "lrlllrrrrrrlrrl"}
	t.Add("NODE", "GPU", "UUID", "MODEL", "PCI", "BUSY", "USED", "MEMORY", "TEMP", "POWER", "NUMA", "NIC", "NVLINKS", "ECC", "HEALTH")
	rows := 0
	var below []string
	for _, s := range all {
		h := s.Hardware
		for _, g := range h.GetGpus() {
			rows++
			t.Add(gpuRow(s.Node, h, g)...)
		}
		below = append(below, remarks(s.Node, h)...)
	}
	if rows > 0 {
		if err := t.Write(w, 0); err != nil {
			return err
		}
	}
	for _, line := range below {
		if _, err := fmt.Fprintln(w, table.Printable(line)); err != nil {
			return err
		}
	}
	return nil
}

func gpuRow(node string, h *agentpb.Hardware, g *agentpb.GPU) []string {
	number := strconv.Itoa(int(g.Index))
	if g.Index < 0 {
		number = "-"
	}
	nic := "-"
	if g.Nic != nil && int(*g.Nic) < len(h.Nics) {
		nic = h.Nics[*g.Nic].Name
	}
	links, up := "-", 0
	for _, l := range g.Links {
		if l.Active {
			up++
		}
	}
	if len(g.Links) > 0 {
		links = fmt.Sprintf("%d/%d", up, len(g.Links))
	}
	health := "ok"
	if h.Unread != "" {
		health = "unknown"
	}
	var reasons []string
	for _, f := range g.Faults {
		reasons = append(reasons, f.Reason)
	}
	if len(reasons) > 0 {
		health = strings.Join(reasons, ",")
	}
	return []string{
		cmp.Or(node, "-"), number, g.Uuid, cmp.Or(g.Name, "-"), g.Pci,
		shown(g.BusyPercent, "%d%%"), inGiB(g.MemoryUsedBytes), inGiB(g.MemoryBytes), shown(g.Celsius, "%d C"),
		watts(g.Milliwatts), shown(g.Numa, "%d"), nic, links, shown(g.UncorrectedErrors, "%d"), health,
	}
}

func shown[N int32 | int64](n *N, format string) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprintf(format, *n)
}

func inGiB(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f GiB", float64(*n)/(1<<30))
}

func watts(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprintf("%d W", (*n+500)/1000)
}

// remarks says what the table cannot: what is wrong, and what is not known.
func remarks(node string, h *agentpb.Hardware) []string {
	if h == nil {
		return []string{node + ": the agent does not look at GPUs, or has not yet (muster agent --gpu-interval)"}
	}
	var out []string
	add := func(format string, a ...any) { out = append(out, cmp.Or(node, "node")+": "+fmt.Sprintf(format, a...)) }
	if h.Unread != "" {
		add("the driver says nothing of the GPUs: %s", h.Unread)
	}
	if h.LogUnread != "" {
		add("errors in the kernel log are not seen: %s", h.LogUnread)
	}
	fault := func(what string, f *agentpb.Fault) {
		add("%s: %s since %s: %s", what, f.Reason, f.Since.AsTime().Format(time.RFC3339), f.Message)
	}
	for _, f := range h.Faults {
		fault("all GPUs", f)
	}
	for _, g := range h.Gpus {
		who := "GPU " + cmp.Or(g.Uuid, strconv.Itoa(int(g.Index)))
		for _, f := range g.Faults {
			fault(who, f)
		}
		if g.GetRowsPending() {
			add("%s: rows of its memory wait for a reset to be remapped", who)
		}
	}
	from := max(0, len(h.Xids)-shownXids)
	if from > 0 {
		add("the last %d of %d errors of the driver:", shownXids, len(h.Xids))
	}
	for _, x := range h.Xids[from:] {
		add("%s %s: %s (%s)", x.At.AsTime().Format(time.RFC3339), x.Pci, x.Reason, x.Action)
	}
	return out
}
