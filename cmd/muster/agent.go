package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	rpc "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/internal/table"
)

// servingFlags say for what an agent is, and how it is reached.
type servingFlags struct {
	o       agent.Options
	listen  string
	files   agent.TLS
	clients []string
	images  storeFlags
	gpus    watchFlags
	metrics exposeFlags
}

func newAgent() *cobra.Command {
	var f servingFlags
	c := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent of a node, which pauses GPU processes on request and watches the GPUs",
		Long: `Agent waits for requests to pause and resume the GPU processes of this node, and to
store their memory as images and restore it, from muster pause, resume, checkpoint
and restore with --agent. It writes each operation to a file
before it begins, and goes on with it after a crash. Clients and agent know each
other by certificates (mutual TLS), which it reads again at each connection.

At each --gpu-interval it asks the driver for the GPUs, and reads what it wrote to the
kernel log: muster agent gpus shows them.

With --backend it pauses by something else than the library and the processes themselves,
as muster pause does: driver pauses any process that uses CUDA, which is named by its ID.`,
		Example: `  muster agent certificates --out certs --host node-1 --host 10.0.0.1
  muster agent --tls-cert certs/agent.crt --tls-key certs/agent.key --tls-ca certs/ca.crt
  muster agent --image-store /data/images --image-key image.key --tls-cert certs/agent.crt --tls-key certs/agent.key --tls-ca certs/ca.crt
  muster agent --backend driver --tls-cert certs/agent.crt --tls-key certs/agent.key --tls-ca certs/ca.crt
  muster agent --metrics-address :9441 --tls-cert certs/agent.crt --tls-key certs/agent.key --tls-ca certs/ca.crt
  muster pause --agent node-1:9440 --tls-cert certs/client.crt --tls-key certs/client.key --tls-ca certs/ca.crt`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.serve(c) },
	}
	c.Flags().StringVar(&f.listen, "listen", ":9440", "the address to listen on")
	c.Flags().StringVar(&f.o.Node, "node-name", "", "the node's name; the host's if empty")
	c.Flags().StringVar(&f.o.StateDir, "state-dir", "/var/lib/muster/agent", "the folder of the operations' records, kept between starts")
	c.Flags().StringSliceVar(&f.clients, "client", []string{"muster"}, "the names of the clients that may connect: the common name or a DNS name of their certificates")
	c.Flags().StringVar(&f.images.store, "image-store", "", "where checkpointed processes have their memory: a `FOLDER`, or s3://BUCKET/PREFIX; without it no checkpoints are made")
	c.Flags().StringVar(&f.images.key, "image-key", "", "the `FILE` of the key of encrypted images: 64 hexadecimal digits")
	c.Flags().StringVar(&f.o.Backend, "backend", "auto", "what pauses the processes of this node: shim, driver, hybrid, replay, framework or none, as of muster pause, or auto: shim or framework as each process has it")
	complete(c, "backend", func() []string { return checkpoint.Names })
	f.gpus.register(c)
	f.metrics.register(c)
	dirFlag(c, &f.o.GPUDir)
	tlsFlags(c, &f.files)
	c.AddCommand(newAgentCertificates(), newAgentGPUs(), newAgentClear())
	return c
}

// serve is the agent, until it is asked to end.
func (f *servingFlags) serve(c *cobra.Command) error {
	if err := required(c, f.files); err != nil {
		return err
	}
	if err := f.files.Check(); err != nil {
		return badUsage(c, "%v", err)
	}
	if err := f.metrics.check(c); err != nil {
		return err
	}
	if f.o.Node == "" {
		f.o.Node, _ = os.Hostname()
	}
	f.o.Log = slog.New(slog.NewJSONHandler(c.ErrOrStderr(), nil))
	if err := checkBackend(c, f.o.Backend); err != nil {
		return err
	}
	f.o.Calls = gpuCalls
	if f.images.store == "" && f.images.key != "" {
		return badUsage(c, "--image-key: expected --image-store with it")
	}
	if f.images.store != "" {
		store := func(ctx context.Context) (*image.Images, error) { return f.images.openAs(ctx, "image-", true) }
		if _, err := store(c.Context()); err != nil {
			return err
		}
		f.o.Metrics = agent.NewMetrics()
		f.o.Images = agent.Store{Open: store, Metrics: f.o.Metrics, Calls: gpuCalls}
	}
	watch, err := f.gpus.open(c, &f.o)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return badUsage(c, "--listen: %v", err)
	}
	defer l.Close()
	a, err := agent.Open(f.o)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(c)
	defer stop()
	if err := f.gpus.expose(ctx, c, &f.metrics, a, f.o.Log); err != nil {
		return errors.Join(err, a.Close())
	}
	watched := watch(ctx)
	fmt.Fprintf(c.OutOrStdout(), "agent of node %s listens on %s\n", table.Printable(f.o.Node), l.Addr())
	err = a.Serve(ctx, l, f.files, f.clients)
	watched()
	return errors.Join(err, a.Close())
}

func newAgentCertificates() *cobra.Command {
	var (
		out, client string
		hosts       []string
	)
	c := &cobra.Command{
		Use:   "certificates --out DIR --host NAME...",
		Short: "Make certificates for agents and their client",
		Long: `Certificates makes an authority, a certificate for the agents on the given hosts, and
one for their client, valid for a year, to try agents without an authority of your
own. The authority's key is not kept: to add a host, make all of them again.`,
		Example: `  muster agent certificates --out certs --host node-1 --host 10.0.0.1`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if out == "" || len(hosts) == 0 {
				return badUsage(c, "expected --out and at least one --host")
			}
			if err := agent.WriteCertificates(out, hosts, client); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "wrote ca.crt, agent.crt, agent.key, client.crt and client.key to %s\n", table.Printable(out))
			return err
		},
	}
	c.Flags().StringVar(&out, "out", "", "the folder to write to")
	c.Flags().StringArrayVar(&hosts, "host", nil, "a name or an address of a host with an agent; may be repeated")
	c.Flags().StringVar(&client, "client", "muster", "the name of the client")
	return c
}

func tlsFlags(c *cobra.Command, t *agent.TLS) {
	c.Flags().StringVar(&t.Cert, "tls-cert", "", "the file of one's own certificate, in PEM")
	c.Flags().StringVar(&t.Key, "tls-key", "", "the file of its key")
	c.Flags().StringVar(&t.CA, "tls-ca", "", "the file of the authority that signed the other side's certificate")
}

func required(c *cobra.Command, t agent.TLS) error {
	for _, f := range []struct{ flag, file string }{{"--tls-cert", t.Cert}, {"--tls-key", t.Key}, {"--tls-ca", t.CA}} {
		if f.file == "" {
			return badUsage(c, "%s: expected a file: an agent and its clients know each other by certificates (muster agent certificates makes some)", f.flag)
		}
	}
	return nil
}

// remote says at which agents a command acts, if not on this machine.
type remote struct {
	addresses, pods      []string
	name, id, job, state string
	files                agent.TLS
	cluster              agentFlags
	nodes                map[string]string // by address, of the agents of the cluster's nodes
}

func (r *remote) used() bool { return len(r.addresses) > 0 }

// dial returns a client of the agent at an address, to be closed.
func (r *remote) dial(address string) (*agent.Client, error) {
	return agent.Dial(address, cmp.Or(r.name, r.nodes[address]), r.files)
}

func (r *remote) flags(c *cobra.Command) {
	c.Flags().StringArrayVar(&r.addresses, "agent", nil, "act through the agent of a node, HOST:PORT, instead of on this machine; repeated, all processes of all nodes are one job")
	c.Flags().StringVar(&r.name, "agent-name", "", "with --agent: the name in the agent's certificate; the host if empty")
	c.Flags().StringArrayVar(&r.pods, "pod", nil, "with --agent: the UID of a pod whose processes are meant; with several agents it may be repeated")
	c.Flags().StringVar(&r.id, "id", "", "with one --agent: the ID of the operation; the same ID again is the same operation")
	c.Flags().StringVar(&r.job, "job", "", "with several agents: the job's name, the same for each pause and resume of it")
	c.Flags().StringVar(&r.state, "state", "", "with several agents: the file of what was decided, kept between commands; JOB.pause.json in this folder if empty")
	tlsFlags(c, &r.files)
	r.cluster.register(c)
}

// find finds the agents of a job of the cluster if the arguments name one, and returns the arguments that name processes.
func (r *remote) find(c *cobra.Command, list bool, args []string) ([]string, error) {
	if isJob(args) {
		return nil, r.ofJob(c, args[0])
	}
	return args, cmp.Or(r.misused(c, list, args), r.cluster.misused(c))
}

// misused says which flags do not go together.
func (r *remote) misused(c *cobra.Command, list bool, args []string) error {
	others, whose := []string{"agent-name", "pod", "id", "job", "state", "tls-cert", "tls-key", "tls-ca"}, "an agent: expected --agent with it"
	switch {
	case list && r.used():
		others, whose = []string{"gpu-dir", "retries", "backend", "id", "job", "state"}, "another command than --list --agent"
	case len(r.addresses) == 1:
		others, whose = []string{"gpu-dir", "retries", "backend", "job", "state"}, "this machine, or for several agents: one agent has its own"
	case r.used():
		others, whose = []string{"gpu-dir", "backend", "id"}, "this machine, or for one agent"
	}
	for _, flag := range others {
		if c.Flags().Changed(flag) {
			return badUsage(c, "--%s: it is for %s", flag, whose)
		}
	}
	switch {
	case !r.used():
		return nil
	case len(r.addresses) == 1 && len(r.pods) > 1 && !list:
		return badUsage(c, "--pod: expected one pod with one agent; found %d", len(r.pods))
	case len(r.addresses) > 1 && !list && r.job == "":
		return badUsage(c, "--job: expected the job's name with several agents")
	case len(r.addresses) > 1 && len(args) > 0:
		return badUsage(c, "expected no PID with several agents; found %s", args[0])
	}
	return required(c, r.files)
}

// unreached is how long a client repeats a call that no agent answers.
const unreached = 10 * time.Second

// do pauses or resumes, and writes the processes as they are afterwards.
func (r *remote) do(c *cobra.Command, action agentpb.Action, pids []int, timeout time.Duration, retries int, asJSON bool) error {
	if len(r.addresses) > 1 || len(r.pods) > 1 {
		return r.together(c, action, checkpoint.Options{Timeout: timeout, Retries: retries, Backoff: time.Second}, asJSON)
	}
	client, err := r.dial(r.addresses[0])
	if err != nil {
		return badUsage(c, "%v", err)
	}
	defer client.Close()
	ctx, stop := interruptible(c)
	defer stop()
	id, pod := r.id, ""
	if id == "" {
		id = agent.NewID()
	}
	if len(r.pods) > 0 {
		pod = r.pods[0]
	}
	began := time.Now()
	request := &agentpb.RunRequest{Id: id, Action: action, Node: r.nodes[r.addresses[0]], Pod: pod, Deadline: timestamppb.New(began.Add(timeout))}
	for _, pid := range pids {
		request.Pids = append(request.Pids, int32(pid))
	}
	limited, cancel := context.WithTimeout(ctx, timeout+unreached)
	defer cancel()
	op, err := client.Do(limited, request, unreached)
	if ctx.Err() != nil && (action == agentpb.Action_ACTION_PAUSE || action == agentpb.Action_ACTION_CHECKPOINT) {
		op, err = r.giveUp(ctx, client, id)
	}
	if err != nil {
		return r.failed(c, err, id)
	}
	if op.State == agentpb.State_STATE_FAILED {
		return fmt.Errorf("operation %s: %s", op.Id, op.Message)
	}
	s, err := client.Status(context.WithoutCancel(ctx), &agentpb.StatusRequest{})
	if err != nil {
		return r.failed(c, err, id)
	}
	s.Processes = slices.DeleteFunc(s.Processes, func(p *agentpb.Process) bool { return p.Pod != op.Pod || !slices.Contains(op.Pids, p.Pid) })
	return writeRemote(c.OutOrStdout(), s.Processes, op.Ended.AsTime().Sub(op.Began.AsTime()), asJSON)
}

// giveUp cancels the operation of a command that is interrupted.
func (r *remote) giveUp(ctx context.Context, client *agent.Client, id string) (*agentpb.Operation, error) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), unreached)
	defer cancel()
	return client.Cancel(limited, &agentpb.CancelRequest{Id: id})
}

// list writes what the nodes have. Why an agent does not say it is a line on stderr each; that of the last one is the error.
func (r *remote) list(c *cobra.Command, asJSON bool) error {
	ctx, stop := interruptible(c)
	defer stop()
	var (
		all     []*agentpb.Process
		missing error
	)
	for _, address := range r.addresses {
		client, err := r.dial(address)
		if err != nil {
			return badUsage(c, "%v", err)
		}
		limited, cancel := context.WithTimeout(ctx, unreached)
		s, err := client.Status(limited, &agentpb.StatusRequest{})
		cancel()
		client.Close()
		if err != nil {
			if missing != nil {
				fmt.Fprintln(c.ErrOrStderr(), "muster: "+message(missing))
			}
			missing = (&remote{addresses: []string{address}}).failed(c, err, "")
			continue
		}
		s.Processes = slices.DeleteFunc(s.Processes, func(p *agentpb.Process) bool { return len(r.pods) > 0 && !slices.Contains(r.pods, p.Pod) })
		if len(s.Processes) == 0 && !asJSON {
			fmt.Fprintf(c.OutOrStdout(), "No process on node %s can be paused%s.\n", table.Printable(s.Node), byBackend(s.Backend))
		}
		all = append(all, s.Processes...)
	}
	if len(all) == 0 {
		return missing
	}
	return cmp.Or(writeRemote(c.OutOrStdout(), all, 0, asJSON), missing)
}

// byBackend says with which backend an agent finds no process, where that is a choice.
func byBackend(name string) string {
	if name == "" || name == "auto" { // an agent before it could be chosen does not say
		return ""
	}
	return fmt.Sprintf(" (its agent has --backend %s)", table.Printable(name))
}

// failed says what the agent refused, in words of the command line, and what to do next.
func (r *remote) failed(c *cobra.Command, err error, id string) error {
	st := rpc.Convert(err)
	switch st.Code() {
	case codes.InvalidArgument:
		return badUsage(c, "%s", st.Message())
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		text := fmt.Sprintf("agent %s: %s", strings.Join(r.addresses, ", "), st.Message())
		if id != "" {
			text += fmt.Sprintf("; if it began operation %s, that goes on: the same command with --id %s waits for it", id, id)
		}
		return errors.New(text)
	}
	return fmt.Errorf("agent %s: %s", strings.Join(r.addresses, ", "), st.Message())
}

func writeRemote(w io.Writer, all []*agentpb.Process, took time.Duration, asJSON bool) error {
	t := table.Table{Align: "lrlrrr"}
	t.Add("POD", "PID", "PHASE", "RESERVED", "ACTIVE", "UNTRACKED")
	encoder := json.NewEncoder(w)
	for _, p := range all {
		st := checkpoint.Status{PID: int(p.Pid), Phase: agent.Phase(p.Phase), Reserved: p.ReservedBytes, Active: p.ActiveBytes, Untracked: int(p.Untracked), Durable: p.Durable}
		if asJSON {
			if err := encoder.Encode(struct {
				Pod string `json:"pod"`
				checkpoint.Status
			}{p.Pod, st}); err != nil {
				return err
			}
			continue
		}
		pod, copied := p.Pod, "-"
		if pod == "" {
			pod = "-"
		}
		if isSaved(st.Phase) {
			copied = mebibytes(st.Active)
		}
		t.Add(table.Printable(pod), strconv.Itoa(st.PID), cmp.Or(string(st.Phase), "-"), mebibytes(st.Reserved), copied, strconv.Itoa(st.Untracked))
	}
	if asJSON {
		return nil
	}
	if err := t.Write(w, 0); err != nil || took == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "in %v\n", took.Round(time.Millisecond))
	return err
}
