package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificateLife is how long certificates of WriteCertificates are valid.
const certificateLife = 365 * 24 * time.Hour

// WriteCertificates makes an authority and two certificates that it signs: one of an
// agent on the given hosts (names or addresses), and one of a client with the given
// name. It writes ca.crt, agent.crt, agent.key, client.crt and client.key to a folder,
// which must not have any of them. The authority's own key is not kept.
func WriteCertificates(dir string, hosts []string, client string) error {
	authority := &x509.Certificate{
		Subject: pkix.Name{CommonName: "muster agents"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	key, der, err := sign(authority, authority, nil)
	if err != nil {
		return err
	}
	agent := &x509.Certificate{Subject: pkix.Name{CommonName: "muster-agent"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			agent.IPAddresses = append(agent.IPAddresses, ip)
		} else {
			agent.DNSNames = append(agent.DNSNames, host)
		}
	}
	files := map[string][]byte{"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	for name, template := range map[string]*x509.Certificate{
		"agent":  agent,
		"client": {Subject: pkix.Name{CommonName: client}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
	} {
		own, der, err := sign(template, authority, key)
		if err != nil {
			return err
		}
		private, err := x509.MarshalPKCS8PrivateKey(own)
		if err != nil {
			return err
		}
		files[name+".crt"] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		files[name+".key"] = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name := range files {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("%s: the file exists, and is left as it is: name another folder", filepath.Join(dir, name))
		}
	}
	for name, text := range files {
		if err := writeSynced(filepath.Join(dir, name), text); err != nil {
			return err
		}
	}
	return nil
}

// sign makes a key and the certificate of it; by is the authority's key, or nil for the authority itself.
func sign(template, authority *x509.Certificate, by *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if by == nil {
		by = key
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(certificateLife) // clocks differ
	der, err := x509.CreateCertificate(rand.Reader, template, authority, &key.PublicKey, by)
	return key, der, err
}
