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
		{2, "pause --job j" + at, "--job: it is for this machine, or for several agents"},
		{2, "pause --agent x:1" + at, "--job: expected the job's name with several agents"},
		{2, "pause 7 --job j --agent x:1" + at, "expected no PID with several agents; found 7"},
		{2, "pause --pod a --pod b" + at, "--pod: expected one pod with one agent; found 2"},
		{1, "resume --job j --pod uid-1 --agent " + l.Addr().String() + at, "no process of the job is there"},
		{2, "agent", "--tls-cert: expected a file"},
		{2, "agent --tls-cert " + file("client.crt") + " --tls-key " + file("agent.key") + " --tls-ca " + file("ca.crt"), "private key does not match"},
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

// Ranks at the agents of two nodes are paused as one: while one waits for the other in
// a collective neither is, and both go on.
func TestPauseAtSeveralAgents(t *testing.T) {
	n := gputest.NewNode(t, 64)
	dir := t.TempDir()
	muster := func(code int, line string) string {
		t.Helper()
		var out, problem strings.Builder
		if got := run(strings.Fields(line), strings.NewReader(""), &out, &problem); got != code {
			t.Fatalf("muster %s: exit code %d; expected %d\n%s%s", line, got, code, out.String(), problem.String())
		}
		return out.String() + problem.String()
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	certs := func(name string) string { return filepath.Join(dir, "certs", name) }
	muster(0, "agent certificates --out "+file("certs")+" --host 127.0.0.1")
	at := " --job j --pod rank-0 --pod rank-1 --tls-cert " + certs("client.crt") + " --tls-key " + certs("client.key") + " --tls-ca " + certs("ca.crt") + " --state " + file("j.json")
	var programs []*gputest.Program
	var sums []string
	for _, rank := range []string{"rank-0", "rank-1"} {
		root := file("node-of-" + rank)
		n.Dir = filepath.Join(root, rank)
		if err := os.MkdirAll(n.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		p := n.Start(t)
		p.Do("alloc %d", 4<<20)
		programs, sums = append(programs, p), append(sums, p.Do("sum 0 %d", 4<<20))
		a, err := agent.Open(agent.Options{Node: rank, StateDir: file("state-" + rank), GPUDir: root, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() {
			done <- a.Serve(ctx, l, agent.TLS{Cert: certs("agent.crt"), Key: certs("agent.key"), CA: certs("ca.crt")}, []string{"muster"})
		}()
		t.Cleanup(func() { cancel(); <-done; a.Close() })
		at += " --agent " + l.Addr().String()
	}
	for range 2 {
		if got := muster(0, "pause --timeout 1m"+at); strings.Count(got, "  Saved  ") != 2 {
			t.Error(got)
		}
	}
	if got := muster(0, "resume"+at); strings.Count(got, "  Running  ") != 2 {
		t.Error(got)
	}
	counter := file("counter")
	if err := os.WriteFile(counter, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	programs[0].Send("meet %s 2 1", counter)
	for arrived := false; !arrived; {
		text, _ := os.ReadFile(counter)
		arrived = text[0] == 1
	}
	if got := muster(1, "pause --retries 0 --timeout 1s"+at); !strings.Contains(got, "cannot be paused (1 tries; all processes go on)") {
		t.Error(got)
	}
	programs[1].Send("meet %s 2 1", counter)
	programs[0].Line()
	programs[1].Line()
	for i, p := range programs {
		if got := p.Do("sum 0 %d", 4<<20); got != sums[i] {
			t.Errorf("rank %d: %s before, %s after", i, sums[i], got)
		}
	}
}
