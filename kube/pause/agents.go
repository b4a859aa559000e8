package pause

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/api/v1alpha1"
)

// Agents reaches the agents of nodes.
type Agents interface {
	// Run runs an operation of the agent of a node, whose name is in the request, and returns when it has ended. An operation that
	// failed is no error: its state says so. An error does not say whether the operation goes on; the same request is the same operation.
	Run(ctx context.Context, r *agentpb.RunRequest) (*agentpb.Operation, error)
	// Cancel gives up an operation of the agent of a node, if it is known there and at work, and returns when it has ended.
	Cancel(ctx context.Context, node, id string) error
	// Member returns the processes of a pod at the agent of its node, nil for none. Its client is to be closed.
	Member(ctx context.Context, node string, pod types.UID) (*agent.Member, error)
}

// Network reaches agents at the addresses of their nodes.
type Network struct {
	Client kubernetes.Interface
	Port   int // of agents whose node does not say another address
	// Name is a name in the certificates of all agents; empty: each has the name of its node.
	Name string
	TLS  agent.TLS // the scheduler's own certificate, and the authority of the agents
}

// unreachable is how long an agent that does not answer is called again.
const unreachable = 10 * time.Second

// Run is that of [Agents].
func (n *Network) Run(ctx context.Context, r *agentpb.RunRequest) (*agentpb.Operation, error) {
	client, err := n.dial(ctx, r.Node)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.Do(ctx, r, unreachable)
}

// Cancel is that of [Agents].
func (n *Network) Cancel(ctx context.Context, node, id string) error {
	client, err := n.dial(ctx, node)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err = client.Cancel(ctx, &agentpb.CancelRequest{Id: id}); status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

// Member is that of [Agents].
func (n *Network) Member(ctx context.Context, node string, pod types.UID) (*agent.Member, error) {
	client, err := n.dial(ctx, node)
	if err != nil {
		return nil, err
	}
	calling, cancel := context.WithTimeout(ctx, unreachable)
	defer cancel()
	there, err := client.Status(calling, &agentpb.StatusRequest{Node: node}, grpc.WaitForReady(true))
	if err != nil {
		client.Close()
		return nil, err
	}
	m := &agent.Member{Client: client, Node: node, Pod: string(pod), Durable: true}
	for _, p := range there.Processes {
		if p.Pod == m.Pod {
			m.PIDs = append(m.PIDs, p.Pid)
			m.Durable = m.Durable && p.Durable
		}
	}
	if len(m.PIDs) == 0 {
		client.Close()
		return nil, nil
	}
	return m, nil
}

// dial returns a client of the agent of a node, to be closed.
func (n *Network) dial(ctx context.Context, name string) (*agent.Client, error) {
	node, err := n.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	address, err := Address(node, n.Port)
	if err != nil {
		return nil, err
	}
	return agent.Dial(address, cmp.Or(n.Name, name), n.TLS)
}

// Address is where the agent of a node listens, HOST:PORT: what the node's annotation [v1alpha1.AgentAnnotation] says, or else the port at its
// internal address.
func Address(node *v1.Node, port int) (string, error) {
	if at := node.Annotations[v1alpha1.AgentAnnotation]; at != "" {
		if _, _, err := net.SplitHostPort(at); err != nil {
			return "", fmt.Errorf("node %s: %s: expected HOST:PORT; found %q", node.Name, v1alpha1.AgentAnnotation, at)
		}
		return at, nil
	}
	for _, a := range node.Status.Addresses {
		if a.Type == v1.NodeInternalIP {
			return net.JoinHostPort(a.Address, strconv.Itoa(port)), nil
		}
	}
	return "", fmt.Errorf("node %s has no internal address, and no annotation %s", node.Name, v1alpha1.AgentAnnotation)
}
