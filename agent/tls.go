package agent

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/muster-sched/muster/agent/agentpb"
)

// TLS names files of PEM: one's own certificate and key, and the authority that signed
// those of the other side. They are read again at each handshake, so that they can be
// renewed.
type TLS struct {
	Cert, Key, CA string
}

func (t TLS) read() (*tls.Certificate, *x509.CertPool, error) {
	cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("%s, %s: %w", t.Cert, t.Key, err)
	}
	text, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, nil, fmt.Errorf("%s: expected certificates in PEM; found none", t.CA)
	}
	return &cert, pool, nil
}

func (t TLS) server() (*tls.Config, error) {
	if _, _, err := t.read(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cert, pool, err := t.read()
			if err != nil {
				return nil, err
			}
			return &tls.Config{
				MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
				Certificates: []tls.Certificate{*cert},
				ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: pool,
			}, nil
		},
	}, nil
}

// Client speaks to one agent. Close it.
type Client struct {
	agentpb.AgentClient
	connection *grpc.ClientConn
}

// Close ends the connection.
func (c *Client) Close() error { return c.connection.Close() }

// Dial returns a client of the agent at HOST:PORT. Its certificate has the host's name,
// or the one given as name if that is not empty. The connection is made at the first call.
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
