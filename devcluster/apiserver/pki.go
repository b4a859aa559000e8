package apiserver

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// validFor is the lifetime of credentials: longer than that of any data folder.
const validFor = 10 * 365 * 24 * time.Hour

// pki is the credentials of a cluster, as paths of files. They are created once for a
// data folder, so that a kubeconfig stays valid after restarts.
type pki struct {
	ca                    string // signed the server's certificate
	serverCert, serverKey string
	serviceAccounts       string // the key that signs their tokens
	// users has the token of the only user, devcluster-admin, in the group
	// system:masters. A client certificate would also do, but its verification costs the
	// server a twentieth of its time.
	users string
}

// openPKI returns the credentials in dir, and creates them if there are none.
func openPKI(dir string) (*pki, error) {
	p := &pki{
		ca:         filepath.Join(dir, "ca.crt"),
		serverCert: filepath.Join(dir, "server.crt"), serverKey: filepath.Join(dir, "server.key"),
		serviceAccounts: filepath.Join(dir, "service-accounts.key"),
		users:           filepath.Join(dir, "users.csv"),
	}
	// If the file that is written last exists, all files do.
	if _, err := os.Stat(p.users); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return p, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return p, p.create()
}

func (p *pki) create() error {
	// The key of the authority is not stored after it has signed.
	ca := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "muster-devcluster"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	caKey, err := issue(ca, nil, nil, p.ca, "")
	if err != nil {
		return err
	}
	server := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if _, err := issue(server, ca, caKey, p.serverCert, p.serverKey); err != nil {
		return err
	}
	accounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if err := writeKey(p.serviceAccounts, accounts); err != nil {
		return err
	}
	return os.WriteFile(p.users, fmt.Appendf(nil, "%s,devcluster-admin,devcluster-admin,system:masters\n", rand.Text()+rand.Text()), 0o600)
}

// adminToken returns the token of the admin.
func (p *pki) adminToken() (string, error) {
	line, err := os.ReadFile(p.users)
	if err != nil {
		return "", err
	}
	token, _, _ := strings.Cut(string(line), ",")
	return token, nil
}

// issue completes template with a new key, has it signed by the parent (nil: by
// itself) and writes both; keyFile may be empty. It returns the key.
func issue(template, parent *x509.Certificate, parentKey crypto.Signer, certFile, keyFile string) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	// Clocks of a laptop and its virtual machines differ a little.
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = template.NotBefore.Add(validFor)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", template.Subject.CommonName, err)
	}
	if keyFile != "" {
		if err := writeKey(keyFile, key); err != nil {
			return nil, err
		}
	}
	return key, writePEM(certFile, "CERTIFICATE", der)
}

func writeKey(file string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(file, "EC PRIVATE KEY", der)
}

func writePEM(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
