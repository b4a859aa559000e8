//go:build linux

package pause

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/gpu/gputest"
	"github.com/muster-sched/muster/kube/act"
)

// asks is what processes were asked for, in order: "a Gated".
type asks struct {
	mu   sync.Mutex
	list []string
	late chan struct{} // pod b does not stand still before pod a is asked to go on; nil: it is not late
}

func (a *asks) add(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, fmt.Sprintf(format, args...))
}

// of returns how often the process of a pod was asked for a phase.
func (a *asks) of(pod, phase string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, x := range a.list {
		if x == pod+" "+phase {
			n++
		}
	}
	return n
}

// process has this test be the process of a pod that saves itself; fails says why it cannot be in a phase: "Saved: disk full". It notes what
// it is asked for, and that it never stands still for good.
func process(t *testing.T, dir, pod, says, fails string, asked *asks) {
	t.Helper()
	folder := filepath.Join(dir, pod)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	gputest.SavesItself(t, folder, 7, says, func(ask gputest.Ask) string {
		asked.add("%s %s", pod, ask.Phase)
		switch {
		case asked.late == nil:
		case pod == "b" && ask.Phase == "Gated":
			select {
			case <-asked.late:
			case <-t.Context().Done():
			}
		case pod == "a" && ask.Phase == "Running":
			close(asked.late)
		}
		least := 120
		if ask.Phase == "Gated" && ask.From != "Running" { // on the way back, perhaps before this process has seen that it was to save
			least = 1
		}
		if lease, err := strconv.Atoi(ask.Lease); ask.Phase != "Running" && (err != nil || lease < least || lease > 600) {
			t.Errorf("pod %s is asked for %+v: for good, or for less than both steps may take", pod, ask)
		}
		if of, why, _ := strings.Cut(fails, ": "); of == ask.Phase {
			return why
		}
		return ""
	})
}

// The processes of two pods save themselves as one, through a real agent: one that cannot lets the other go on, and none is ever asked to
// stand still for good.
func TestSave(t *testing.T) {
	for _, x := range []struct {
		name, says, fails string
		err               string // empty: all have saved themselves
		saved             string // whether pod a was asked to save itself: yes, no, or empty for either
		back              bool   // whether it was asked to go on
		inAll             time.Duration
	}{
		{name: "all save themselves", says: "durable", saved: "yes"},
		{name: "one does not outlive its process", says: "", saved: "no", err: "does not say that what it saves outlives it"},
		{name: "one does not stand still", says: "durable", fails: "Gated: inside a step", err: "asked to stand still: the agent of node n: process 7: inside a step", saved: "no", back: true},
		{name: "one cannot save itself", says: "durable", fails: "Saved: no space left on device", err: "asked to save their progress: the agent of node n: process 7: no space left", back: true},
		{name: "one is late", says: "durable", inAll: 2 * time.Second, err: "that is not done after 2s: asked to stand still", saved: "no", back: true},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir := t.TempDir()
			in := func(name string) string { return filepath.Join(dir, "certs", name) }
			if err := agent.WriteCertificates(filepath.Join(dir, "certs"), []string{"n"}, "muster"); err != nil {
				t.Fatal(err)
			}
			asked := &asks{}
			if x.inAll > 0 {
				asked.late = make(chan struct{})
			}
			process(t, filepath.Join(dir, "gpu"), "a", "durable", "", asked)
			process(t, filepath.Join(dir, "gpu"), "b", x.says, x.fails, asked)
			a, err := agent.Open(agent.Options{Node: "n", StateDir: filepath.Join(dir, "state"), GPUDir: filepath.Join(dir, "gpu"), Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(context.Background())
			served := make(chan error)
			go func() {
				served <- a.Serve(ctx, l, agent.TLS{Cert: in("agent.crt"), Key: in("agent.key"), CA: in("ca.crt")}, []string{"muster"})
			}()
			defer func() { stop(); <-served }()
			node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{v1alpha1.AgentAnnotation: l.Addr().String()}}}
			s := NewSaver(&Network{Client: fake.NewClientset(node), TLS: agent.TLS{Cert: in("client.crt"), Key: in("client.key"), CA: in("ca.crt")}},
				NewMetrics(), slog.New(slog.DiscardHandler), time.Now)

			var pods []act.Saving
			for _, name := range []string{"a", "b"} {
				pods = append(pods, act.Saving{Pod: act.Pod{Namespace: "x", Name: name, UID: types.UID(name)}, Node: "n", Within: time.Minute})
			}
			err = s.Save(ctx, pods, x.inAll)
			if (err == nil) != (x.err == "") || err != nil && !strings.Contains(err.Error(), x.err) {
				t.Errorf("it says %v; expected %q", err, x.err)
			}
			if saved := asked.of("a", "Saved") > 0; x.saved != "" && saved != (x.saved == "yes") {
				t.Errorf("pod a was asked to save itself: %t; asked: %q", saved, asked.list)
			}
			said := httptest.NewRecorder()
			a.Handler().ServeHTTP(said, httptest.NewRequest("GET", "/metrics", nil))
			if both := strings.Contains(said.Body.String(), `muster_agent_advance_seconds_count{goal="Save",outcome="Reached"} 2`); both != (x.err == "") {
				t.Errorf("whether the agent counts that both saved themselves: %t\n%s", both, said.Body)
			}
			if back := asked.of("a", "Running") > 0; back != x.back {
				t.Errorf("whether pod a went on: %t; asked: %q", back, asked.list)
			}
		})
	}
}
