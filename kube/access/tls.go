package access

import (
	"crypto/tls"
	"fmt"

	"k8s.io/client-go/util/cert"
)

// Certificate returns a configuration of TLS with the certificate and key in files of PEM, which
// are read again at each handshake, so that they can be renewed; or with a certificate for
// host that is made now and signed by itself, if no files are given. HTTP/2 is off.
func Certificate(certFile, keyFile, host string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if certFile == "" {
		own, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(own, key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
		return c, nil
	}
	read := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", certFile, keyFile, err)
		}
		return &pair, nil
	}
	if _, err := read(nil); err != nil {
		return nil, err
	}
	c.GetCertificate = read
	return c, nil
}
