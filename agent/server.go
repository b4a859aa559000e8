package agent

import (
	"context"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/muster-sched/muster/agent/agentpb"
)

// service is the agent behind the interface of agentpb.
type service struct {
	agentpb.UnimplementedAgentServer
	*Agent
}

// The methods of the agent, chosen over the unimplemented ones.
func (s service) Run(ctx context.Context, r *agentpb.RunRequest) (*agentpb.Operation, error) {
	return s.Agent.Run(ctx, r)
}

func (s service) Get(ctx context.Context, r *agentpb.GetRequest) (*agentpb.Operation, error) {
	return s.Agent.Get(ctx, r)
}

func (s service) Cancel(ctx context.Context, r *agentpb.CancelRequest) (*agentpb.Operation, error) {
	return s.Agent.Cancel(ctx, r)
}

func (s service) Advance(ctx context.Context, r *agentpb.AdvanceRequest) (*agentpb.AdvanceReply, error) {
	return s.Agent.Advance(ctx, r)
}

func (s service) Status(ctx context.Context, r *agentpb.StatusRequest) (*agentpb.NodeStatus, error) {
	return s.Agent.Status(ctx, r)
}

func (s service) Clear(ctx context.Context, r *agentpb.ClearRequest) (*agentpb.Hardware, error) {
	return s.Agent.Clear(ctx, r)
}

// Serve answers clients until the context ends; calls that wait then are answered
// first. Only clients whose certificate is of the authority, and has one of the names
// as its common name or as a DNS name, are let in.
func (a *Agent) Serve(ctx context.Context, l net.Listener, t TLS, clients []string) error {
	return Serve(ctx, l, t, clients, service{Agent: a}, func() { a.stop(errStopped) }) // what waits for an operation returns
}

// Serve answers clients by s, as [Agent.Serve] does. stop is called when the context ends;
// nil for nothing.
func Serve(ctx context.Context, l net.Listener, t TLS, clients []string, s agentpb.AgentServer, stop func()) error {
	config, err := t.server()
	if err != nil {
		return err
	}
	check := func(ctx context.Context) error {
		p, _ := peer.FromContext(ctx)
		info, ok := p.AuthInfo.(credentials.TLSInfo)
		if !ok || len(info.State.VerifiedChains) == 0 {
			return status.Error(codes.Unauthenticated, "expected a client certificate; found none")
		}
		leaf := info.State.VerifiedChains[0][0]
		for _, name := range append(leaf.DNSNames, leaf.Subject.CommonName) {
			if slices.Contains(clients, name) {
				return nil
			}
		}
		return status.Errorf(codes.PermissionDenied, "the certificate of %q is of no client that this agent obeys", leaf.Subject.CommonName)
	}
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(config)),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := check(ctx); err != nil {
				return nil, err
			}
			return handle(ctx, request)
		}))
	agentpb.RegisterAgentServer(server, s)
	ended := context.AfterFunc(ctx, func() {
		if stop != nil {
			stop()
		}
		server.GracefulStop()
	})
	defer ended()
	return server.Serve(l)
}
