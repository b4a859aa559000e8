//go:build linux

package worker

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-sched/muster/gpu/driver"
)

// certificates writes an authority and a certificate for 127.0.0.1 that it signed, and returns what TLS makes of them.
func certificates(t *testing.T) *tls.Config {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	own := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: authority.NotBefore, NotAfter: authority.NotAfter, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	ca, err := x509.CreateCertificate(rand.Reader, authority, authority, &key.PublicKey, key)
	must(err)
	cert, err := x509.CreateCertificate(rand.Reader, own, authority, &key.PublicKey, key)
	must(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	dir := t.TempDir()
	for name, block := range map[string]pem.Block{"ca": {Type: "CERTIFICATE", Bytes: ca}, "cert": {Type: "CERTIFICATE", Bytes: cert}, "key": {Type: "PRIVATE KEY", Bytes: private}} {
		must(os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&block), 0o600))
	}
	config, err := TLS(filepath.Join(dir, "cert"), filepath.Join(dir, "key"), filepath.Join(dir, "ca"))
	must(err)
	return config
}

// serve lets a server take connections, and returns its address.
func serve(t *testing.T, v *Server, files *tls.Config) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if files != nil {
		l = tls.NewListener(l, files)
	}
	t.Cleanup(func() { l.Close(); v.Close() })
	go v.Serve(l)
	return l.Addr().String()
}

// apart puts the second GPU of a rig behind a server of its own, and returns that.
func apart(t *testing.T, r *rig, files *tls.Config) *Server {
	other := &Server{Driver: r.o.Server.Driver, Dial: Dialer(files), Log: func(string, ...any) {}}
	r.o.Server.Dial = other.Dial
	r.o.GPUs = []Where{{Device: 0}, {Address: serve(t, other, files), Device: 1}}
	r.o.Me = serve(t, r.o.Server, files)
	return other
}

// Over the network requests write the same, with certificates and without; the driver copies nothing between GPUs.
func TestNetwork(t *testing.T) {
	for name, files := range map[string]*tls.Config{"plain": nil, "certificates": certificates(t)} {
		t.Run(name, func(t *testing.T) {
			r := layer(t, 2)
			apart(t, r, files)
			r.o.Requests = 6
			ran, kept, err := r.run(t, t.Context(), r.on(split))
			if err != nil {
				t.Fatal(err)
			}
			for i := range kept {
				if !bytes.Equal(kept[i], r.alone(t, i)) {
					t.Errorf("request %d wrote other bytes", i)
				}
				if ran[i].Transfers != 6 || ran[i].Transferred != 6*4096 {
					t.Errorf("request %d: %+v", i, ran[i])
				}
			}
			for _, line := range r.logged(t, "peer") {
				if f := strings.Fields(line); f[0] != f[1] {
					t.Errorf("the driver copied %s", line)
				}
			}
		})
	}
}

// Who has no certificate cannot run kernels.
func TestStranger(t *testing.T) {
	r := layer(t, 2)
	apart(t, r, certificates(t))
	r.o.Deadline = 10 * time.Second
	for name, files := range map[string]*tls.Config{"plain": nil, "another authority": certificates(t), "none": {InsecureSkipVerify: true}} {
		r.o.Server.Dial = Dialer(files)
		if _, _, err := r.run(t, t.Context(), r.on(split)); err == nil {
			t.Errorf("%s: a run was served", name)
		}
	}
}

// A site whose process is killed, one that goes away, and one whose connection breaks end the run, soon.
func TestSiteIsLost(t *testing.T) {
	for name, lose := range map[string]func(other *Server){
		"killed": func(other *Server) {
			other.mu.Lock()
			defer other.mu.Unlock()
			for _, x := range other.sites {
				x.process.Close()
			}
		},
		"closed": func(other *Server) { other.Close() },
		"connection": func(other *Server) {
			other.mu.Lock()
			defer other.mu.Unlock()
			for _, x := range other.sites {
				for _, l := range x.links {
					l.close()
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := layer(t, 2)
			other := apart(t, r, nil)
			r.o.Requests, r.o.Deadline = 500, 30*time.Second
			input, once := r.o.Input, sync.Once{}
			r.o.Input = func(request, step int) ([]byte, error) {
				if request == 3 {
					once.Do(func() { lose(other) })
				}
				return input(request, step)
			}
			began := time.Now()
			_, _, err := r.run(t, t.Context(), r.on(split))
			if err == nil || time.Since(began) > 25*time.Second {
				t.Errorf("after %s: %v", time.Since(began), err)
			}
			t.Log(err)
		})
	}
}

// A run that gives up leaves nothing behind on another machine that has all GPUs, where a kernel never ends.
func TestRunLeaves(t *testing.T) {
	r := layer(t, 2)
	other := apart(t, r, nil)
	r.o.GPUs[0].Address = r.o.GPUs[1].Address
	r.o.Deadline = 2 * time.Second
	r.o.Modules[0] = strings.Replace(r.o.Modules[0], "bar.sync 0;", "FOREVER: bra FOREVER;", 1)
	var left *driver.Process
	input := r.o.Input
	r.o.Input = func(request, step int) ([]byte, error) {
		other.mu.Lock()
		defer other.mu.Unlock()
		for _, x := range other.sites {
			left = x.process
		}
		return input(request, step)
	}
	r.o.Requests = 1
	if _, _, err := r.run(t, t.Context(), r.on(map[string]int{"up": 1})); err == nil || !strings.Contains(err.Error(), "within 2s") {
		t.Errorf("error %v", err)
	}
	select {
	case <-left.Ended():
	case <-time.After(30 * time.Second):
		t.Error("the other machine still runs the kernel")
	}
}

// refusing is a listener that fails at first.
type refusing struct {
	net.Listener
	once sync.Once
}

func (l *refusing) Accept() (conn net.Conn, err error) {
	l.once.Do(func() { err = syscall.EMFILE })
	if err != nil {
		return nil, err
	}
	return l.Listener.Accept()
}

// A connection that cannot be accepted is not the last.
func TestAcceptAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	v := &Server{Log: func(string, ...any) {}}
	go v.Serve(&refusing{Listener: l})
	conn, err := Dialer(nil)(l.Addr().String(), "nothing that it knows")
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadAll(conn); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("nobody answered: %v", err)
	}
}

// The server of a run, which others reach for transfers, runs nothing for them.
func TestOwn(t *testing.T) {
	r := layer(t, 2)
	other := apart(t, r, nil)
	other.Own = true
	if _, _, err := r.run(t, t.Context(), r.on(split)); err == nil || len(other.sites) > 0 {
		t.Errorf("a run was served: %v", err)
	}
}

// What a stranger sends on a connection ends that connection, and nothing else.
func TestGarbage(t *testing.T) {
	v := &Server{Log: func(string, ...any) {}}
	address := serve(t, v, nil)
	for _, text := range []string{"\n", "muster-disagg data none 0 1\n", "muster-disagg data\n", "GET / HTTP/1.1\r\n\r\n", strings.Repeat("x", 5000), "muster-disagg control\n\xff\xff\xff\xffgarbage"} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		io.WriteString(conn, text)
		conn.(*net.TCPConn).CloseWrite()
		if _, err := io.ReadAll(conn); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%q: %v", text, err)
		}
		conn.Close()
	}
}
