//go:build linux

package agent

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/gpu"
	"github.com/muster-sched/muster/gpu/gputest"
)

// TestMain is also the agent that the tests start, and kill, as a process.
func TestMain(m *testing.M) {
	if dir := os.Getenv("MUSTER_TEST_AGENT"); dir != "" {
		if err := serveIn(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	gputest.Main(m)
}

func certificates(dir string) (agent, client TLS) {
	at := func(name string) string { return filepath.Join(dir, "certs", name) }
	return TLS{at("agent.crt"), at("agent.key"), at("ca.crt")}, TLS{at("client.crt"), at("client.key"), at("ca.crt")}
}

func serveIn(dir string) error {
	metrics := NewMetrics()
	images := Store{Metrics: metrics, Open: func(ctx context.Context) (*image.Images, error) {
		return image.Open(ctx, image.Dir(filepath.Join(dir, "images")), nil, true)
	}}
	backend, program, driver := os.Getenv("MUSTER_TEST_BACKEND"), os.Getenv("MUSTER_TEST_CALL"), os.Getenv("MUSTER_TEST_DRIVER")
	calls := func(dir string) *gpu.Calls { return &gpu.Calls{Program: program, Driver: driver, Dir: dir} }
	a, err := Open(Options{Node: "n", Backend: backend, Calls: calls, Metrics: metrics, StateDir: filepath.Join(dir, "state"), GPUDir: filepath.Join(dir, "gpu"), Images: images, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	files, _ := certificates(dir)
	return a.Serve(context.Background(), l, files, []string{"muster"})
}

// started is an agent as a process, and a client of it.
type started struct {
	c *exec.Cmd
	*Client
}

func start(t *testing.T, dir string, environment ...string) started {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(append(os.Environ(), "MUSTER_TEST_AGENT="+dir), environment...)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	c.Stderr = &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		c.Wait()
		t.Fatalf("the agent ended: %s", log.String())
	}
	_, files := certificates(dir)
	client, err := Dial(lines.Text(), "", files)
	if err != nil {
		t.Fatal(err)
	}
	s := started{c, client}
	t.Cleanup(s.kill)
	return s
}

// kill is kill -9.
func (s started) kill() {
	s.c.Process.Kill()
	s.c.Wait()
	s.Close()
}

// An agent is killed at random instants while it pauses, resumes, checkpoints and restores two real programs.
// The next one ends what it began, for both programs, and no byte of their memory changes.
func TestKilledAgent(t *testing.T) {
	for _, backend := range []string{"auto", "hybrid", "replay", "driver"} {
		t.Run(backend, func(t *testing.T) { killAgents(t, backend) })
	}
}

// with is the environment of an agent with a backend on the GPU of a node.
func with(n *gputest.Node, backend string) []string {
	program, driver, environment := n.Caller()
	return append(environment, "MUSTER_TEST_BACKEND="+backend, "MUSTER_TEST_CALL="+program, "MUSTER_TEST_DRIVER="+driver)
}

func killAgents(t *testing.T, backend string) {
	dir := t.TempDir()
	if err := WriteCertificates(filepath.Join(dir, "certs"), []string{"127.0.0.1"}, "muster"); err != nil {
		t.Fatal(err)
	}
	n := gputest.NewNode(t, 64)
	pod := "pod-1"
	if backend == "driver" {
		pod = "" // processes without a control page are of no pod
	}
	n.Dir = filepath.Join(dir, "gpu", pod)
	if err := os.MkdirAll(n.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	const size = 6 << 20
	begin, actions, paused := n.Start, []agentpb.Action{actPause, actResume, actCheckpoint, actRestore}, agentpb.Phase_PHASE_SAVED
	data := map[agentpb.Action]int{actPause: 2} // files of it on the host, after an action
	switch backend {
	case "hybrid":
		paused = agentpb.Phase_PHASE_CHECKPOINTED
	case "replay":
		paused = agentpb.Phase_PHASE_RELEASED
	case "driver":
		begin, actions, paused, data = n.StartPlain, actions[:2], agentpb.Phase_PHASE_CHECKPOINTED, nil
	}
	programs := []*gputest.Program{begin(t), begin(t)}
	var (
		sums []string
		pids []int32
	)
	for _, p := range programs {
		pids = append(pids, int32(p.PID))
		p.Do("alloc %d", size)
		sums = append(sums, p.Do("sum 0 %d", size))
	}
	random := rand.New(rand.NewPCG(1, 2))
	rounds, second := 8, 0
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		for _, action := range actions {
			r := request(fmt.Sprintf("%s-%d", name(action), round), action)
			if r.Pod = pod; backend == "driver" {
				r.Pids = pids // which have no control page
			}
			first := start(t, dir, with(n, backend)...)
			go first.Run(context.Background(), r)
			time.Sleep(time.Duration(random.IntN(40+60*int(action/actCheckpoint))) * time.Millisecond) // any instant will do
			first.kill()
			next := start(t, dir, with(n, backend)...)
			op, err := next.Run(t.Context(), r)
			if err != nil || op.State != agentpb.State_STATE_SUCCEEDED || len(op.Pids) != 2 {
				t.Fatalf("%s: %v %v", r.Id, op, err)
			}
			if op.Attempts > 1 {
				second++
			}
			want := paused
			if action == actResume || action == actRestore {
				want = agentpb.Phase_PHASE_RUNNING
			}
			if files, err := filepath.Glob(filepath.Join(n.Dir, "*.data")); err != nil || len(files) != data[action] {
				t.Fatalf("after %s the host has %v, %v", r.Id, files, err)
			}
			s, err := next.Status(t.Context(), &agentpb.StatusRequest{})
			if err != nil || len(s.Processes) != 2 || s.Processes[0].Phase != want || s.Processes[1].Phase != want || s.Processes[0].Pod != pod || s.Node != "n" || s.Backend != backend {
				t.Fatalf("after %s: %v %v", r.Id, s, err)
			}
			next.kill()
		}
		for i, p := range programs {
			if got := p.Do("sum 0 %d", size); got != sums[i] {
				t.Fatalf("round %d: program %d has %s; before %s", round, i, got, sums[i])
			}
		}
	}
	t.Logf("%d of %d operations needed a second agent", second, len(actions)*rounds)
}

// Only clients with a certificate of the authority, and of a name that the agent obeys, are let in.
func TestClientsWithoutPermission(t *testing.T) {
	dir, other, stranger := t.TempDir(), t.TempDir(), t.TempDir()
	for at, client := range map[string]string{dir: "muster", other: "muster", stranger: "someone"} {
		if err := WriteCertificates(filepath.Join(at, "certs"), []string{"127.0.0.1"}, client); err != nil {
			t.Fatal(err)
		}
	}
	m := newMachine(1, "Running")
	a := m.agent(t)
	serve := func(files TLS) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Serve(ctx, l, files, []string{"muster"}) }()
		t.Cleanup(func() { cancel(); <-done })
		return l.Addr().String()
	}
	call := func(address string, files TLS) error {
		c, err := Dial(address, "", files)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.Status(t.Context(), &agentpb.StatusRequest{})
		return err
	}
	own, client := certificates(dir)
	address := serve(own)
	if err := call(address, client); err != nil {
		t.Errorf("the client: %v", err)
	}
	_, foreign := certificates(other)
	if err := call(address, TLS{foreign.Cert, foreign.Key, client.CA}); status.Code(err) != codes.Unavailable {
		t.Errorf("a client of another authority: %v", err)
	}
	if err := call(address, foreign); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an agent of another authority: %v", err)
	}
	if err := call(address, TLS{own.Cert, own.Key, own.CA}); status.Code(err) != codes.Unavailable {
		t.Errorf("the agent's own certificate, which is for servers: %v", err)
	}
	theirs, they := certificates(stranger)
	if err := call(serve(theirs), they); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "someone") {
		t.Errorf("a client with another name: %v", err)
	}
	if err := WriteCertificates(filepath.Join(dir, "certs"), []string{"x"}, "muster"); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("certificates over others: %v", err)
	}
}

// A request of an older decision is refused, by the next agent, too; an unusable one changes nothing.
func TestAdvance(t *testing.T) {
	m := newMachine(2, "Running")
	dir := t.TempDir()
	next := func() *Agent {
		a := m.agent(t)
		a.o.StateDir = dir
		return a
	}
	if err := forgetParts(filepath.Join(dir, "jobs")); err != nil {
		t.Fatal(err)
	}
	ask := func(epoch uint64, goal string) *agentpb.AdvanceRequest {
		return &agentpb.AdvanceRequest{Job: "j", Pod: "p", Pids: []int32{1, 2}, Epoch: epoch, Goal: goal, Lease: durationpb.New(time.Minute)}
	}
	a := next()
	for what, r := range map[string]*agentpb.AdvanceRequest{
		"job: ":   {Job: "a@b", Pids: []int32{1}, Epoch: 1, Goal: "Gate", Lease: durationpb.New(1)},
		"pod: ":   {Job: "j", Pod: "../x", Pids: []int32{1}, Epoch: 1, Goal: "Gate", Lease: durationpb.New(1)},
		"pids: ":  {Job: "j", Epoch: 1, Goal: "Gate", Lease: durationpb.New(1)},
		"epoch: ": {Job: "j", Pids: []int32{1}, Goal: "Gate", Lease: durationpb.New(1)},
		"goal: ":  {Job: "j", Pids: []int32{1}, Epoch: 1, Goal: "None", Lease: durationpb.New(1)},
		"lease: ": {Job: "j", Pids: []int32{1}, Epoch: 1, Goal: "Gate"},
	} {
		if _, err := a.Advance(t.Context(), r); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for epoch, goal := range []string{"", "Gate", "Save", "Keep"} {
		if epoch == 0 {
			continue
		}
		if reply, err := a.Advance(t.Context(), ask(uint64(epoch), goal)); err != nil || reply.Outcome != "Reached" || reply.Epoch != uint64(epoch) {
			t.Fatalf("%s: %v %v; processes %v", goal, reply, err, m.phases)
		}
	}
	if !m.is("Saved") {
		t.Errorf("processes %v, kept %v", m.phases, m.kept)
	}
	a.Close()
	a = next()
	if reply, err := a.Advance(t.Context(), ask(2, "Save")); err != nil || reply.Outcome != "Stale" || reply.Epoch != 3 || !m.is("Saved") {
		t.Errorf("an older decision: %v %v; processes %v", reply, err, m.phases)
	}
	if reply, err := a.Advance(t.Context(), ask(4, "Release")); err != nil || reply.Outcome != "Reached" || !m.is("Running") {
		t.Errorf("release: %v %v; processes %v", reply, err, m.phases)
	}
	if len(a.parts) != 0 {
		t.Errorf("%d parts are left", len(a.parts))
	}
	old := filepath.Join(dir, "jobs", "j@p.json")
	if err := os.Chtimes(old, time.Time{}, time.Now().Add(-2*partsKept)); err != nil {
		t.Fatal(err)
	}
	if err := forgetParts(filepath.Join(dir, "jobs")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("an old decision is still remembered: %v", err)
	}
}
