package worker

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// TLS reads one's own certificate and key, and the authority that signed those of all others of a run: a worker is a server
// to some and a client to others, so its certificate must be valid for both. All files are PEM.
func TLS(cert, key, ca string) (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", cert, key, err)
	}
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: expected certificates in PEM; found none", ca)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}, nil
}
