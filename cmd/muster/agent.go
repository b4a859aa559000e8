package main

import (
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
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	rpc "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/internal/table"
)

func newAgent() *cobra.Command {
	var (
		o       agent.Options
		listen  string
		files   agent.TLS
		clients []string
	)
	c := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent of a node, which pauses GPU processes on request",
		Long: `Agent waits for requests to pause and resume the GPU processes of this node, from
muster pause --agent and muster resume --agent. It writes each operation to a file
before it begins, and goes on with it after a crash. Clients and agent know each
other by certificates (mutual TLS), which it reads again at each connection.`,
		Example: `  muster agent certificates --out certs --host node-1 --host 10.0.0.1
  muster agent --tls-cert certs/agent.crt --tls-key certs/agent.key --tls-ca certs/ca.crt
  muster pause --agent node-1:9440 --tls-cert certs/client.crt --tls-key certs/client.key --tls-ca certs/ca.crt`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := required(c, files); err != nil {
				return err
			}
			if o.Node == "" {
				o.Node, _ = os.Hostname()
			}
			o.Log = slog.New(slog.NewJSONHandler(c.ErrOrStderr(), nil))
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return badUsage(c, "--listen: %v", err)
			}
			defer l.Close()
			a, err := agent.Open(o)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(c)
			defer stop()
			fmt.Fprintf(c.OutOrStdout(), "agent of node %s listens on %s\n", table.Printable(o.Node), l.Addr())
			return errors.Join(a.Serve(ctx, l, files, clients), a.Close())
		},
	}
	c.Flags().StringVar(&listen, "listen", ":9440", "the address to listen on")
	c.Flags().StringVar(&o.Node, "node-name", "", "the node's name; the host's if empty")
	c.Flags().StringVar(&o.StateDir, "state-dir", "/var/lib/muster/agent", "the folder of the operations' records, kept between starts")
	c.Flags().StringSliceVar(&clients, "client", []string{"muster"}, "the names of the clients that may connect: the common name or a DNS name of their certificates")
	dirFlag(c, &o.GPUDir)
	tlsFlags(c, &files)
	c.AddCommand(newAgentCertificates())
	return c
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

// remote says at which agent a command acts, if not on this machine.
type remote struct {
	address, name, pod, id string
	files                  agent.TLS
}

func (r *remote) flags(c *cobra.Command) {
	c.Flags().StringVar(&r.address, "agent", "", "act through the agent of a node, HOST:PORT, instead of on this machine")
	c.Flags().StringVar(&r.name, "agent-name", "", "with --agent: the name in the agent's certificate; the host if empty")
	c.Flags().StringVar(&r.pod, "pod", "", "with --agent: the UID of the pod whose processes are meant; all of them without PIDs")
	c.Flags().StringVar(&r.id, "id", "", "with --agent: the ID of the operation; the same ID again is the same operation")
	tlsFlags(c, &r.files)
}

// misused says that a flag for an agent was given without one, or the reverse.
func (r *remote) misused(c *cobra.Command) error {
	given, others := []string{"agent-name", "pod", "id", "tls-cert", "tls-key", "tls-ca"}, "an agent: expected --agent with it"
	if r.address != "" {
		given, others = []string{"gpu-dir", "retries", "backend"}, "this machine: the agent has its own"
	}
	for _, flag := range given {
		if c.Flags().Changed(flag) {
			return badUsage(c, "--%s: it is for %s", flag, others)
		}
	}
	if r.address == "" {
		return nil
	}
	return required(c, r.files)
}

// unreached is how long a client repeats a call that no agent answers.
const unreached = 10 * time.Second

// do runs an operation at the agent, and writes the processes as they are afterwards.
func (r *remote) do(c *cobra.Command, action agentpb.Action, pids []int, timeout time.Duration, asJSON bool) error {
	client, err := agent.Dial(r.address, r.name, r.files)
	if err != nil {
		return badUsage(c, "%v", err)
	}
	defer client.Close()
	ctx, stop := interruptible(c)
	defer stop()
	id := r.id
	if id == "" {
		id = agent.NewID()
	}
	began := time.Now()
	request := &agentpb.RunRequest{Id: id, Action: action, Pod: r.pod, Deadline: timestamppb.New(began.Add(timeout))}
	for _, pid := range pids {
		request.Pids = append(request.Pids, int32(pid))
	}
	limited, cancel := context.WithTimeout(ctx, timeout+unreached)
	defer cancel()
	op, err := client.Do(limited, request, unreached)
	if ctx.Err() != nil && action == agentpb.Action_ACTION_PAUSE {
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

// list writes what the node has.
func (r *remote) list(c *cobra.Command, asJSON bool) error {
	client, err := agent.Dial(r.address, r.name, r.files)
	if err != nil {
		return badUsage(c, "%v", err)
	}
	defer client.Close()
	ctx, stop := interruptible(c)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, unreached)
	defer cancel()
	s, err := client.Status(ctx, &agentpb.StatusRequest{})
	if err != nil {
		return r.failed(c, err, "")
	}
	if r.pod != "" {
		s.Processes = slices.DeleteFunc(s.Processes, func(p *agentpb.Process) bool { return p.Pod != r.pod })
	}
	if len(s.Processes) == 0 && !asJSON {
		_, err := fmt.Fprintf(c.OutOrStdout(), "No process on node %s can be paused.\n", table.Printable(s.Node))
		return err
	}
	return writeRemote(c.OutOrStdout(), s.Processes, 0, asJSON)
}

// failed says what the agent refused, in words of the command line, and what to do next.
func (r *remote) failed(c *cobra.Command, err error, id string) error {
	st := rpc.Convert(err)
	switch st.Code() {
	case codes.InvalidArgument:
		return badUsage(c, "%s", st.Message())
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		text := fmt.Sprintf("agent %s: %s", r.address, st.Message())
		if id != "" {
			text += fmt.Sprintf("; if it began operation %s, that goes on: the same command with --id %s waits for it", id, id)
		}
		return errors.New(text)
	}
	return fmt.Errorf("agent %s: %s", r.address, st.Message())
}

func writeRemote(w io.Writer, all []*agentpb.Process, took time.Duration, asJSON bool) error {
	t := table.Table{Align: "lrlrrr"}
	t.Add("POD", "PID", "PHASE", "RESERVED", "ACTIVE", "UNTRACKED")
	encoder := json.NewEncoder(w)
	for _, p := range all {
		st := checkpoint.Status{PID: int(p.Pid), Phase: agent.Phase(p.Phase), Reserved: p.ReservedBytes, Active: p.ActiveBytes, Untracked: int(p.Untracked)}
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
		if st.Phase == checkpoint.Saved {
			copied = mebibytes(st.Active)
		}
		t.Add(table.Printable(pod), strconv.Itoa(st.PID), string(st.Phase), mebibytes(st.Reserved), copied, strconv.Itoa(st.Untracked))
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
