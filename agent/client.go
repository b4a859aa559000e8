package agent

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/muster-sched/muster/agent/agentpb"
)

// Client speaks to one agent. Close it.
type Client struct {
	agentpb.AgentClient
	connection *grpc.ClientConn
}

// Close ends the connection.
func (c *Client) Close() error { return c.connection.Close() }

// Dial returns a client of the agent at HOST:PORT. The agent's certificate has the host
// as a name, or the given name if that is not empty. The connection is made at the first call.
func Dial(address, name string, t TLS) (*Client, error) {
	_, pool, err := t.read()
	if err != nil {
		return nil, err
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: name, RootCAs: pool,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, _, err := t.read()
			return cert, err
		},
	}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		return nil, err
	}
	return &Client{agentpb.NewAgentClient(connection), connection}, nil
}

// NewID returns an ID for an operation.
func NewID() string { return rand.Text() }

// Do runs an operation and waits for its end. While the agent cannot be reached it
// repeats the call, which is the same operation by its ID, until the context ends or
// grace has passed without an answer.
func (c *Client) Do(ctx context.Context, r *agentpb.RunRequest, grace time.Duration) (*agentpb.Operation, error) {
	pause := 100 * time.Millisecond
	lost := time.Now()
	for {
		began := time.Now()
		op, err := c.Run(ctx, r)
		if status.Code(err) != codes.Unavailable {
			return op, err
		}
		if time.Since(began) > time.Second {
			lost, pause = time.Now(), 100*time.Millisecond // it was reached, and went away
		}
		if time.Since(lost) > grace {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Second)
	}
}
