package agent

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"time"
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

// Check says what is wrong with the files.
func (t TLS) Check() error {
	_, _, err := t.read()
	return err
}

// Expires returns when one's own certificate expires or, if that is earlier, the last of the authority's: from then on
// handshakes fail.
func (t TLS) Expires() (time.Time, error) {
	cert, _, err := t.read()
	if err != nil {
		return time.Time{}, err
	}
	text, err := os.ReadFile(t.CA)
	if err != nil {
		return time.Time{}, err
	}
	var authority time.Time
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && c.NotAfter.After(authority) {
			authority = c.NotAfter
		}
	}
	own := cert.Leaf.NotAfter
	if authority.Before(own) {
		return authority, nil
	}
	return own, nil
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
