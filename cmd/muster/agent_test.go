//go:build linux

package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/gpu/gputest"
)

// A user makes certificates, and lists, pauses and resumes a pod's processes at an agent.
func TestPauseAtAgent(t *testing.T) {
	n := gputest.NewNode(t, 64)
	root, certs := t.TempDir(), filepath.Join(t.TempDir(), "certs")
	n.Dir = filepath.Join(root, "uid-1")
	if err := os.Mkdir(n.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	muster := func(code int, line string) string {
		t.Helper()
		var out, problem strings.Builder
		if got := run(strings.Fields(line), strings.NewReader(""), &out, &problem); got != code {
			t.Fatalf("muster %s: exit code %d; expected %d\n%s%s", line, got, code, out.String(), problem.String())
		}
		return out.String() + problem.String()
	}
	muster(0, "agent certificates --out "+certs+" --host 127.0.0.1")
	a, err := agent.Open(agent.Options{Node: "n1", StateDir: t.TempDir(), GPUDir: root, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	file := func(name string) string { return filepath.Join(certs, name) }
	go func() {
		done <- a.Serve(ctx, l, agent.TLS{Cert: file("agent.crt"), Key: file("agent.key"), CA: file("ca.crt")}, []string{"muster"})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		a.Close()
	}()
	at := " --agent " + l.Addr().String() + " --tls-cert " + file("client.crt") + " --tls-key " + file("client.key") + " --tls-ca " + file("ca.crt")
	for _, c := range []struct {
		code       int
		line, want string
	}{
		{0, "pause --list" + at, "No process on node n1 can be paused."},
		{1, "pause --pod uid-1" + at, "has no process with a GPU that can be paused"},
		{2, "pause --pod a/b" + at, "pod: expected the UID of a pod"},
		{2, "pause 7 --retries 2" + at, "--retries: it is for this machine"},
		{2, "pause --pod uid-1", "--pod: it is for an agent: expected --agent with it"},
		{2, "pause --agent localhost:1", "--tls-cert: expected a file"},
		{2, "resume --agent localhost:1 --tls-cert none --tls-key none --tls-ca none", "none, none: open none"},
		{2, "agent", "--tls-cert: expected a file"},
		{2, "agent certificates", "expected --out and at least one --host"},
	} {
		if got := muster(c.code, c.line); !strings.Contains(got, c.want) || strings.Count(got, "\n") != 1 {
			t.Errorf("muster %s: %s; expected %q", c.line, got, c.want)
		}
	}
	p := n.Start(t)
	p.Do("alloc %d", 8<<20)
	sum := p.Do("sum 0 %d", 8<<20)
	row := "uid-1  " + strconv.Itoa(p.PID) + "  "
	if got := muster(0, "pause --pod uid-1 --id one"+at+" --timeout 1m"); !strings.Contains(got, row+"Saved     8 MiB   8 MiB          0\n") {
		t.Error(got)
	}
	if got := muster(1, "resume --pod uid-1 --id one"+at); !strings.Contains(got, `"one" is that of another operation: pause of pod "uid-1"`) {
		t.Error(got)
	}
	if got := muster(0, "pause --list --json"+at); !strings.Contains(got, `{"pod":"uid-1","pid":`+strconv.Itoa(p.PID)+`,"phase":"Saved",`) {
		t.Error(got)
	}
	if got := muster(0, "resume --pod uid-1"+at); !strings.Contains(got, row+"Running") {
		t.Error(got)
	}
	if got := p.Do("sum 0 %d", 8<<20); got != sum {
		t.Errorf("%s before, %s after", sum, got)
	}
}
