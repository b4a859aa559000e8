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
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube"
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
	counts map[string]int // what happened how often
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
	c.counts[what]++
	return what, time.Duration(c.rng.IntN(300)) * time.Millisecond
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
			b.cable.counts["watch"]++
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

// With a bad cable and a clock that jumps, under a load that comes and goes, and
// with restarts, everything is bound in the end, nothing twice.
func TestChaos(t *testing.T) {
	happened := map[string]int{}
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			c := begin(t)
			rng := rand.New(rand.NewPCG(seed, 0))
			bad := &cable{rng: rand.New(rand.NewPCG(seed, 1)), counts: map[string]int{}}
			bad.bad.Store(300)
			clock := &leaps{rng: rand.New(rand.NewPCG(seed, 2))}
			seen := c.watch()
			c.nodesNamed("n", c.load(rng, 1)+4)
			chaotic := func(k *kube.Config) {
				k.API = throughCable(k.API, bad)
				k.Now = clock.now
			}
			// A scheduler that ends, for it could not reach the API at the start or
			// has lost it, is started again as the kubelet does.
			runs := func(done func() error) func() error {
				c.start(chaotic)
				return func() error {
					select {
					case <-c.scheduler.ended:
						c.start(chaotic)
					default:
					}
					return done()
				}
			}
			for round := range 4 {
				c.until("some is done", runs(func() error { return c.bindings(round) }))
				c.churn(rng, round)
				c.scheduler.stop()
				c.auditNodes()
			}
			c.until("all pods are bound", runs(func() error { return c.bindings(10) }))
			seen.stayed(t)
			bad.mu.Lock()
			defer bad.mu.Unlock()
			for what, n := range bad.counts {
				happened[what] += n
			}
		})
	}
	t.Logf("what happened: %v", happened)
	for _, what := range append(mishaps, "watch") {
		if happened[what] == 0 {
			t.Errorf("%q never happened", what)
		}
	}
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

// churn deletes some single pods and makes as many others.
func (c *cluster) churn(rng *rand.Rand, round int) {
	c.Helper()
	for i, n := range rng.Perm(16)[:4] {
		if err := admin.CoreV1().Pods(c.namespace).Delete(ctx(), fmt.Sprintf("single0-%d", n), metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			c.must(err)
		}
		c.create(pod(fmt.Sprintf("round-%d-%d", round, i)),
			pod(fmt.Sprintf("round-%d-%d-part", round, i), asks(0), note(v1alpha1.GPUFractionAnnotation, "0.25")))
	}
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

// A scheduler that is killed over and over under load, as by the kernel, leaves
// nothing half done that the next one would not see.
func TestKilled(t *testing.T) {
	c := begin(t)
	rng := rand.New(rand.NewPCG(3, 3))
	seen := c.watch()
	c.nodesNamed("n", c.load(rng, 3)+8)
	for round := range 8 {
		p := c.process()
		before := seen.bindings()
		wanted := before + 1 + rng.IntN(20) // at any moment, which is after so many bindings
		c.until("some more is bound", func() error {
			if n := seen.bindings(); n < wanted && c.bindings(10) != nil {
				return fmt.Errorf("%d are, %d were", n, before)
			}
			return nil
		})
		p.kill()
		c.auditNodes()
		c.churn(rng, round)
	}
	p := c.process()
	defer p.interrupt()
	c.allBound()
	seen.stayed(t)
}
