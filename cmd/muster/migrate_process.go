package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
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
	"github.com/muster-sched/muster/checkpoint/offload"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/gpu"
	"github.com/muster-sched/muster/internal/table"
)

// migrateProcess is a process of this machine on its way to another node.
type migrateProcess struct {
	pid          int
	to           string // the other node as it was named: HOST:PORT of its agent, or its name in the cluster
	name         string // of the image, the same each time: the store says how far it is
	dir, scratch string
	of           storeFlags
	at           remote
	gpus         map[string]string // UUIDs of GPUs here, and of those there on which their part goes on
	within       core.Time
	pause        checkpoint.Options
	whole        *offload.Whole
}

func newMigrateProcess() *cobra.Command {
	var (
		m       = migrateProcess{within: 5 * 60 * core.Second}
		timeout = 10 * core.Second
		retries = 3
	)
	c := &cobra.Command{
		Use:   "process PID --to {HOST:PORT | NODE} --store STORE",
		Short: "Move a process of this machine, with its GPU memory, to another node",
		Long: `Migrate process moves a process that uses a GPU, with all that descend from it, to an image,
as muster checkpoint --process does, and lets the agent of another node bring it back, where
it goes on with the next kernel. The agent has the same store (muster agent --image-store)
and folder (--gpu-dir), the same files, and an equal GPU. Both need criu and root.

The other node is HOST:PORT of its agent or, with --kubeconfig, --context or --agent-port,
its name in the Kubernetes cluster: the agent then has a certificate for that name.

--gpus says on which GPU there what is on a GPU here goes on, by their UUIDs (muster agent
gpus). Without it the first GPU of the driver there stands for the first one here, and so on.

The process ends here when the image is whole, and not before; the image is gone when the
process goes on there. If it cannot go on there, it goes on here. If the command is killed
or the agent does not answer, the same command again ends what was begun. The process never
runs twice, and is lost only with a node that fails in the moment when it begins there.`,
		Example: `  muster migrate process 4711 --to node-2:9440 --store /shared/images --tls-cert client.crt --tls-key client.key --tls-ca ca.crt
  muster migrate process 4711 --to gpu-017 --kubeconfig admin.conf --store /shared/images --tls-cert client.crt --tls-key client.key --tls-ca ca.crt
  muster migrate process 4711 --to node-2:9440 --gpus GPU-5d1f0c4e-8b1c-4f0e-9f55-0c6f2a7d3b11=GPU-77aa03de-52b9-4c06-8a4e-1f9d0b6c2e42 --store /shared/images --tls-cert client.crt --tls-key client.key --tls-ca ca.crt
  muster migrate process 4711 --to node-2:9440 --store s3://images/alice --key image.key --within 10m --tls-cert client.crt --tls-key client.key --tls-ca ca.crt`,
		Args: arguments("PID"),
		RunE: func(c *cobra.Command, args []string) error {
			pids, err := processes(c, args, false)
			if err != nil {
				return err
			}
			if err := m.named(c); err != nil {
				return err
			}
			switch {
			case timeout <= 0 || time.Duration(timeout) > pauseLease/2:
				return badUsage(c, "--timeout: expected more than 0 and at most %v; found %v", pauseLease/2, time.Duration(timeout))
			case m.within <= 0 || time.Duration(m.within) > agent.MaxDeadline:
				return badUsage(c, "--within: expected more than 0 and at most %v; found %v", agent.MaxDeadline, time.Duration(m.within))
			case retries < 0:
				return badUsage(c, "--retries: expected 0 or more; found %d", retries)
			}
			if err := m.checkGPUs(c); err != nil {
				return err
			}
			if m.of.store == "" {
				return badUsage(c, "--store: expected the folder, or s3://BUCKET/PREFIX, that the agent has, too; found none")
			}
			if err := required(c, m.at.files); err != nil {
				return err
			}
			if err := m.find(c); err != nil {
				return err
			}
			m.pid = pids[0]
			m.pause = checkpoint.Options{Timeout: time.Duration(timeout), Retries: retries, Backoff: time.Second}
			return m.run(c)
		},
	}
	c.Flags().StringVar(&m.to, "to", "", "the other node: the `HOST:PORT` of its agent or, with --kubeconfig, --context or --agent-port, its name in the cluster")
	c.Flags().StringVar(&m.at.name, "agent-name", "", "the name in the agent's certificate; the host, or the node, if empty")
	m.at.cluster.registerNode(c)
	c.Flags().StringToStringVar(&m.gpus, "gpus", nil, "on which GPU there a GPU's part goes on: `HERE=THERE` by their UUIDs; may be repeated, or a list; the others in the driver's order")
	tlsFlags(c, &m.at.files)
	m.of.place(c)
	dirFlag(c, &m.dir)
	scratchFlag(c, &m.scratch)
	durationVar(c.Flags(), &timeout, "timeout", "of one try of the pause: how long the GPU work in progress may take to end, and its memory to be copied")
	c.Flags().IntVar(&retries, "retries", retries, "how often to try the pause again")
	durationVar(c.Flags(), &m.within, "within", "how long the way to the image may take, and as long the way back")
	return c
}

// byNode are the flags with which --to is the name of a node of the cluster.
var byNode = []string{"kubeconfig", "context", "agent-port"}

// isAddress says that the other node is named by the address of its agent. No node's name has a colon.
func (m *migrateProcess) isAddress() bool { return strings.Contains(m.to, ":") }

// named refuses what names no node.
func (m *migrateProcess) named(c *cobra.Command) error {
	in := slices.IndexFunc(byNode, c.Flags().Changed)
	host, port, err := net.SplitHostPort(m.to)
	switch {
	case m.to == "":
		return badUsage(c, "--to: expected the other node: HOST:PORT of its agent or, with --kubeconfig, its name in the cluster; found none")
	case !m.isAddress() && in < 0:
		return badUsage(c, "--to: expected HOST:PORT of an agent, such as %s:9440, or with --kubeconfig, --context or --agent-port the name of a node of the cluster; found %q", m.to, m.to)
	case m.isAddress() && (err != nil || host == "" || port == ""):
		return badUsage(c, "--to: expected HOST:PORT of an agent; found %q", m.to)
	case m.isAddress() && in >= 0:
		return badUsage(c, "--%s: expected the name of a node in --to with it; found the address %s", byNode[in], m.to)
	}
	return m.at.cluster.check(c)
}

// find finds the address of the agent, at which the node is to be that of the name.
func (m *migrateProcess) find(c *cobra.Command) error {
	if m.isAddress() {
		m.at.addresses = []string{m.to}
		return nil
	}
	client, err := m.at.cluster.api.client(c)
	if err != nil {
		return err
	}
	address, err := m.at.cluster.address(c.Context(), client, m.to)
	if err != nil {
		return err
	}
	m.at.addresses, m.at.nodes = []string{address}, map[string]string{address: m.to}
	return nil
}

func (m *migrateProcess) run(c *cobra.Command) error {
	at := m.at.addresses[0]
	client, err := m.at.dial(at)
	if err != nil {
		return badUsage(c, "%v", err)
	}
	defer client.Close()
	ctx, stop := interruptible(c)
	defer stop()
	// 1. The other node is there before anything is done.
	limited, cancel := context.WithTimeout(ctx, unreached)
	there, err := client.Status(limited, &agentpb.StatusRequest{Node: m.at.nodes[at]})
	cancel()
	if err != nil {
		return m.at.failed(c, err, "")
	}
	if err := m.onGPUs(there); err != nil {
		return err
	}
	images, err := m.of.open(c, true)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	m.name = nameOnTheWay(host, m.to, m.pid)
	m.whole = whole(m.dir, m.scratch, images, newMeter(c, images))
	m.whole.Step, m.whole.CRIU.Tag = func(string, int64) {}, m.name
	defer func() { m.whole.Calls.Close() }()
	if len(m.gpus) > 0 {
		here, err := m.whole.Calls.GPUs(ctx)
		if err != nil {
			return err
		}
		for _, from := range slices.Sorted(maps.Keys(m.gpus)) {
			if !slices.Contains(here, gpu.ID(from)) {
				return fmt.Errorf("--gpus: this machine has no GPU %s; muster agent gpus shows those that it has", from)
			}
		}
	}
	// 2. The image, if an earlier command has not made it.
	e, err := m.image(ctx, client)
	if err != nil {
		return pauseError(m.dir, interrupted(ctx, err))
	}
	// 3. The process goes on there.
	began := time.Now()
	op, err := m.ask(ctx, client, e.ID)
	if err == nil && op.State == agentpb.State_STATE_SUCCEEDED {
		_, err := fmt.Fprintf(c.OutOrStdout(), "process %d goes on on node %s\nin %v after its image was whole\n", m.pid, table.Printable(there.Node), time.Since(began).Round(time.Millisecond))
		return err
	}
	switch {
	case err == nil:
		err = fmt.Errorf("node %s: %s", there.Node, op.Message)
	case refused(err):
		err = m.at.failed(c, err, "")
	default:
		return fmt.Errorf("%w; process %d is in image %s, or goes on there: the same command again ends what was begun", m.at.failed(c, err, ""), m.pid, e.ID)
	}
	// 4. It did not begin there, or has been taken back: it goes on here.
	switch undo := m.back(context.WithoutCancel(ctx), returning{Image: e.ID}); {
	case errors.Is(undo, offload.ErrUnfinished):
		return fmt.Errorf("%w; and process %d: %w; the same command again ends what was begun", err, m.pid, undo)
	case undo != nil:
		return fmt.Errorf("%w; and it does not go on here: %w; it is in image %s: muster restore --image %s brings it back", err, undo, e.ID, e.ID)
	}
	return fmt.Errorf("%w; process %d goes on here", err, m.pid)
}

// checkGPUs refuses what names no GPUs.
func (m *migrateProcess) checkGPUs(c *cobra.Command) error {
	named, taken := map[string]bool{}, map[string]bool{} // by IDs: a UUID may be written in two ways
	for _, from := range slices.Sorted(maps.Keys(m.gpus)) {
		id, to := gpu.ID(from), gpu.ID(m.gpus[from])
		if id == "" || to == "" {
			return badUsage(c, "--gpus: expected UUIDs of GPUs, GPU-…=GPU-…; found %s=%s", from, m.gpus[from])
		}
		if named[id] {
			return badUsage(c, "--gpus: expected each GPU here once; found %s twice", from)
		}
		if taken[to] {
			return badUsage(c, "--gpus: expected each GPU there once; found %s twice", m.gpus[from])
		}
		named[id], taken[to] = true, true
	}
	return nil
}

// onGPUs says which of the GPUs that are named are not there, as far as the agent looks at them.
func (m *migrateProcess) onGPUs(there *agentpb.NodeStatus) error {
	if there.Hardware == nil || there.Hardware.Read == nil {
		return nil
	}
	for _, from := range slices.Sorted(maps.Keys(m.gpus)) {
		to := m.gpus[from]
		if !slices.ContainsFunc(there.Hardware.Gpus, func(g *agentpb.GPU) bool { return g.Index >= 0 && gpu.ID(g.Uuid) == gpu.ID(to) }) {
			return fmt.Errorf("--gpus: node %s has no GPU %s; muster agent gpus --agent %s shows those that it has", table.Printable(there.Node), to, m.at.addresses[0])
		}
	}
	return nil
}

// returning is how far a process has come on its way back here. It is in a file beside the processes' pages, which outlasts a command that is killed.
type returning struct {
	Image        string // its ID
	Making, Back []int  // as in [offload.Steps]
}

func (m *migrateProcess) returningFile() string { return filepath.Join(m.dir, m.name+".back") }

// back lets the process go on here, from where an earlier command left it.
func (m *migrateProcess) back(ctx context.Context, r returning) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(m.within))
	defer cancel()
	steps := &offload.Steps{Making: r.Making, Back: r.Back, Keep: func(s *offload.Steps) error {
		text, err := json.Marshal(returning{r.Image, s.Making, s.Back})
		if err != nil {
			return err
		}
		next := m.returningFile() + ".new"
		if err := os.WriteFile(next, text, 0o600); err != nil {
			return err
		}
		return os.Rename(next, m.returningFile())
	}}
	err := m.whole.Return(ctx, r.Image, steps, time.Duration(m.within))
	if errors.Is(err, offload.ErrUnfinished) {
		return err
	}
	if gone := os.Remove(m.returningFile()); err == nil && !errors.Is(gone, fs.ErrNotExist) {
		return gone
	}
	return err
}

// nameOnTheWay is the name of the image of a process on its way from a host to a node, which is named as in the command: the same command
// finds it where the agent has another address by now.
func nameOnTheWay(host, to string, pid int) string {
	sum := sha256.Sum256([]byte(host + " " + to))
	return fmt.Sprintf("process-%d-%x", pid, sum[:8])
}

// image is the image that has the process, once what an earlier command began has ended. Then the process is not here.
func (m *migrateProcess) image(ctx context.Context, client *agent.Client) (image.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(m.within))
	defer cancel()
	if err := m.whole.Settle(ctx); err != nil { // of a command that was killed
		return image.Entry{}, err
	}
	if text, err := os.ReadFile(m.returningFile()); err == nil {
		var r returning
		if err := json.Unmarshal(text, &r); err != nil {
			return image.Entry{}, fmt.Errorf("%s: expected how far process %d is on its way back, as JSON; %w", m.returningFile(), m.pid, err)
		}
		if err := m.back(ctx, r); err != nil {
			return image.Entry{}, err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return image.Entry{}, err
	}
	here := gpu.Alive(m.pid) // before the agent says what it does: it may be one of this machine
	e, err := m.whole.Images.Find(ctx, m.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return e, err
	}
	if !here {
		if err != nil {
			return e, fmt.Errorf("there is no process %d here, and no image of it that is on its way to %s", m.pid, m.to)
		}
		return e, nil
	}
	if err == nil {
		if _, err := client.Get(ctx, &agentpb.GetRequest{Id: e.ID}); rpc.Code(err) != codes.NotFound {
			return e, err
		}
		// The process has not ended since: it is right, and the image of no use.
		same, err := m.whole.IsOf(ctx, e)
		if err != nil {
			return e, err
		}
		if !same {
			return e, fmt.Errorf("image %s is of a process that has ended, and its ID %d is that of another one here: muster restore --image %s brings it back where the ID is free", e.ID, m.pid, e.ID)
		}
		if err := m.whole.Images.Delete(ctx, e); err != nil {
			return e, err
		}
	}
	saved, err := m.whole.Checkpoint(ctx, m.pid, m.name, m.pause)
	return saved.Entry, err
}

// ask lets the agent bring the process back, and waits for the end. The ID of the image is that of the operation: it is one,
// however often it is asked for.
func (m *migrateProcess) ask(ctx context.Context, client *agent.Client, id string) (*agentpb.Operation, error) {
	limited, cancel := context.WithTimeout(ctx, time.Duration(m.within)+unreached)
	defer cancel()
	for {
		op, err := client.Get(limited, &agentpb.GetRequest{Id: id})
		if rpc.Code(err) == codes.NotFound {
			op, err = client.Do(limited, &agentpb.RunRequest{Id: id, Action: agentpb.Action_ACTION_RESTORE, Image: id, Node: m.at.nodes[m.at.addresses[0]], Gpus: m.gpus, Deadline: timestamppb.New(time.Now().Add(time.Duration(m.within)))}, unreached)
			if rpc.Code(err) != codes.AlreadyExists {
				return op, err
			}
		} else if err != nil || op.State != agentpb.State_STATE_ACTING {
			return op, err
		}
		select { // a command that was killed, or works beside this one, has asked
		case <-limited.Done():
			return nil, rpc.FromContextError(limited.Err()).Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// refused says whether an agent has answered that it began nothing.
func refused(err error) bool {
	switch rpc.Code(err) {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.Unimplemented:
		return true
	}
	return false
}
