package e2e

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// cable is what is between a scheduler and the API server. It may be cut, and
// it may be bad: then requests fail before or after they took effect, are
// refused, answered late, or not at all, and watches break off.
type cable struct {
	cut atomic.Bool
	// bad is how many of a thousand requests something happens to.
	bad atomic.Int64

	mu     sync.Mutex
	rng    *rand.Rand
	counts map[string]int    // what happened how often
	note   func(what string) // is told what happens; may be nil
}

// wrap makes a transport go through the cable.
func (c *cable) wrap(to http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) { return c.carry(to, r) })
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var errCut = errors.New("the cable is cut")

// mishaps are what a bad cable does to a request.
var mishaps = []string{"lost", "answer lost", "500", "503", "429", "409", "late"}

func (c *cable) carry(to http.RoundTripper, r *http.Request) (*http.Response, error) {
	if c.cut.Load() {
		return nil, errCut
	}
	what, pause := c.roll(r)
	switch what {
	case "lost":
		return nil, errors.New("connection reset by peer")
	case "500":
		return refuse(r, http.StatusInternalServerError, "InternalError", ""), nil
	case "503":
		return refuse(r, http.StatusServiceUnavailable, "ServiceUnavailable", ""), nil
	case "429":
		return refuse(r, http.StatusTooManyRequests, "TooManyRequests", "1"), nil
	case "409":
		return refuse(r, http.StatusConflict, "Conflict", ""), nil
	case "late":
		select {
		case <-time.After(pause):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	answer, err := to.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	switch {
	case what == "answer lost":
		// What was asked for has been done.
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		return nil, errors.New("connection reset by peer")
	case isWatch(r):
		answer.Body = &watchBody{answer.Body, c}
	}
	return answer, nil
}

// roll says what happens to a request, and how long it takes.
func (c *cable) roll(r *http.Request) (what string, pause time.Duration) {
	bad := c.bad.Load()
	if bad == 0 {
		return "", 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rng.Int64N(1000) >= bad {
		return "", 0
	}
	what = mishaps[c.rng.IntN(len(mishaps))]
	if what == "answer lost" && isWatch(r) || what == "409" && r.Method == http.MethodGet {
		what = "lost"
	}
	c.happens(what)
	return what, time.Duration(c.rng.IntN(300)) * time.Millisecond
}

// happens counts what happens to a request; mu is held.
func (c *cable) happens(what string) {
	c.counts[what]++
	if c.note != nil {
		c.note(what)
	}
}

func isWatch(r *http.Request) bool { return r.URL.Query().Has("watch") }

// watchBody is a watch, which breaks off now and then when the cable is bad, and
// when it is cut.
type watchBody struct {
	io.ReadCloser
	cable *cable
}

func (b *watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.cable.cut.Load() {
		return 0, errCut
	}
	if bad := b.cable.bad.Load(); bad > 0 {
		b.cable.mu.Lock()
		breaks := b.cable.rng.Int64N(10_000) < bad
		if breaks {
			b.cable.happens("watch")
		}
		b.cable.mu.Unlock()
		if breaks {
			return 0, io.ErrUnexpectedEOF
		}
	}
	return n, err
}

// refuse is an answer of the API server that did nothing.
func refuse(r *http.Request, code int, reason, after string) *http.Response {
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"as a test wants it","code":%d}`, reason, code)
	h := http.Header{"Content-Type": {"application/json"}}
	if after != "" {
		h.Set("Retry-After", after)
	}
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r, ProtoMajor: 1, ProtoMinor: 1}
}

// leaps is a clock that jumps ahead and back.
type leaps struct {
	mu     sync.Mutex
	rng    *rand.Rand
	offset time.Duration
}

func (l *leaps) now() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rng.IntN(50) == 0 {
		l.offset = time.Duration(l.rng.Int64N(int64(2*time.Hour))) - time.Hour
	}
	return time.Now().Add(l.offset)
}

// bindings returns an error until so many tenths of the pods are bound.
func (c *cluster) bindings(tenths int) error {
	list, err := admin.CoreV1().Pods(c.namespace).List(ctx(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	n := 0
	for i := range list.Items {
		if list.Items[i].Spec.NodeName != "" {
			n++
		}
	}
	if n*10 < len(list.Items)*tenths {
		return errors.New("too few are")
	}
	return nil
}

// process is a scheduler in a process of its own, which can be killed as by the
// kernel.
type process struct {
	*cluster
	*exec.Cmd
	said  record
	ended chan struct{} // closed when it has, with err
	err   error
}

// process starts a scheduler with flags.
func (c *cluster) process(flags ...string) *process {
	c.Helper()
	file := filepath.Join(c.TempDir(), "kubeconfig")
	c.must(clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: identity.Host, CertificateAuthorityData: identity.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"scheduler": {Token: identity.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "scheduler"}},
		CurrentContext: "c",
	}, file))
	p := &process{cluster: c, Cmd: exec.Command("muster", append([]string{"scheduler", "--kubeconfig", file}, flags...)...), ended: make(chan struct{})}
	p.Stderr = &p.said
	c.must(p.Start())
	go func() {
		defer close(p.ended)
		p.err = p.Wait()
	}()
	c.Cleanup(func() {
		_ = p.Process.Kill() // when the test ended early
		if c.Failed() {
			c.Logf("a scheduler said:\n%s", &p.said)
		}
	})
	return p
}

// kill ends it at once.
func (p *process) kill() {
	p.Helper()
	p.must(p.Process.Kill())
	<-p.ended
}

// hasEnded reports whether it has ended, by itself or not.
func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// interrupt ends it as people do.
func (p *process) interrupt() {
	p.Helper()
	p.must(p.Process.Signal(os.Interrupt))
	if <-p.ended; p.err != nil {
		p.Errorf("an interrupted scheduler ended with %v", p.err)
	}
}
