//go:build linux

package agent

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/gpu"
	"github.com/muster-sched/muster/gpu/gputest"
)

const (
	running      = agentpb.Phase_PHASE_RUNNING
	locked       = agentpb.Phase_PHASE_LOCKED
	checkpointed = agentpb.Phase_PHASE_CHECKPOINTED
)

// unaware is a node with two programs that know nothing about Muster.
type unaware struct {
	t        *testing.T
	n        *gputest.Node
	dir      string
	programs []*gputest.Program
	sums     []string
	epoch    uint64
}

func newUnaware(t *testing.T) *unaware {
	x := &unaware{t: t, n: gputest.NewNode(t, 64), dir: t.TempDir()}
	x.n.Dir = filepath.Join(x.dir, "gpu")
	if err := os.MkdirAll(x.n.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p := x.n.StartPlain(t)
		p.Do("alloc %d", 1<<20)
		x.programs, x.sums = append(x.programs, p), append(x.sums, p.Do("sum 0 %d", 1<<20))
	}
	return x
}

func (x *unaware) pids() []int32 { return []int32{int32(x.programs[0].PID), int32(x.programs[1].PID)} }

func (x *unaware) agent(backend string) *Agent {
	x.t.Helper()
	program, driver, environment := x.n.Caller()
	a, err := Open(Options{
		Node: "n", StateDir: filepath.Join(x.dir, "state"), GPUDir: filepath.Join(x.dir, "gpu"), Log: slog.New(slog.DiscardHandler), Backend: backend, Images: newMachine(0, "Running"),
		Calls: func(dir string) *gpu.Calls {
			return &gpu.Calls{Program: program, Driver: driver, Dir: dir, Environment: environment}
		},
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return a
}

// next is the coordinator's next decision.
func (x *unaware) next(goal string, lease time.Duration) *agentpb.AdvanceRequest {
	x.epoch++
	return &agentpb.AdvanceRequest{Job: "j", Pids: x.pids(), Epoch: x.epoch, Goal: goal, Lease: durationpb.New(lease)}
}

func (x *unaware) advance(a *Agent, goal string, lease time.Duration, want string) {
	x.t.Helper()
	if reply, err := a.Advance(x.t.Context(), x.next(goal, lease)); err != nil || reply.Outcome != want {
		x.t.Fatalf("%s: %v, %v; expected %s", goal, reply, err, want)
	}
}

func (x *unaware) are(a *Agent, want agentpb.Phase) {
	x.t.Helper()
	s, err := a.Status(x.t.Context(), &agentpb.StatusRequest{})
	if err != nil || len(s.Processes) != 2 || s.Processes[0].Phase != want || s.Processes[1].Phase != want {
		x.t.Fatalf("the node has %v, %v; expected %v", s, err, want)
	}
}

// goOn waits until both run, and compares their memory.
func (x *unaware) goOn() {
	x.t.Helper()
	for i, p := range x.programs {
		if got := p.Do("sum 0 %d", 1<<20); got != x.sums[i] {
			x.t.Errorf("program %d has %s; before %s", i, got, x.sums[i])
		}
	}
}

// The machine was restarted while an agent with the backend driver paused processes, and others have their IDs: they are left alone.
func TestOtherProcessOfTheID(t *testing.T) {
	x := newUnaware(t)
	pause := request("p", actPause, x.pids()...)
	f, err := openFiles(filepath.Join(x.dir, "state", "operations"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.put(&agentpb.Record{Request: pause, Started: []uint64{1, 1}, Operation: &agentpb.Operation{
		Id: "p", Action: actPause, Pids: x.pids(), Deadline: pause.Deadline, State: agentpb.State_STATE_ACTING, Attempts: 1,
	}}); err != nil {
		t.Fatal(err)
	}
	f.close()
	a := x.agent("driver")
	defer a.Close()
	if op, err := a.Run(t.Context(), pause); err != nil || op.State != agentpb.State_STATE_FAILED || !strings.Contains(op.Message, "have ended") {
		t.Fatalf("%v, %v", op, err)
	}
	x.goOn()
	if op, err := a.Run(t.Context(), request("q", actPause, x.pids()...)); err != nil || op.State != agentpb.State_STATE_SUCCEEDED {
		t.Fatal(op, err)
	}
	x.are(a, checkpointed)
	if op, err := a.Run(t.Context(), request("r", actResume, x.pids()...)); err != nil || op.State != agentpb.State_STATE_SUCCEEDED {
		t.Fatal(op, err)
	}
	x.goOn()
}

// The driver has no lease. The agent has it: between two requests of the coordinator the processes stay locked, and they go on when the lease has ended
// or the agent is killed. On the way of a resume that may still fail they stay as they are, whoever dies.
func TestLeaseOfTheDriver(t *testing.T) {
	x := newUnaware(t)
	a := x.agent("driver")
	x.advance(a, "Gate", time.Hour, "Reached")
	x.are(a, locked)
	if _, err := a.Run(t.Context(), request("x", actResume, x.pids()...)); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), `job "j" is pausing`) {
		t.Errorf("an operation meanwhile: %v", err)
	}
	other := x.next("Gate", time.Hour)
	other.Job = "other"
	if _, err := a.Advance(t.Context(), other); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), `job "j" is pausing`) {
		t.Errorf("another job meanwhile: %v", err)
	}
	if n := a.partsAtWork(); n != 0 {
		t.Errorf("%d requests are said to be at work", n)
	}
	x.advance(a, "Save", time.Hour, "Reached")
	x.advance(a, "Keep", time.Hour, "Reached")
	x.are(a, checkpointed)
	if len(a.parts) != 0 {
		t.Error("kept processes have a lease")
	}
	x.advance(a, "Restore", time.Hour, "Reached")
	a.Close()
	a = x.agent("driver")
	x.are(a, locked)
	x.advance(a, "Release", time.Hour, "Reached")
	x.are(a, running)
	x.goOn()

	x.advance(a, "Gate", 10*time.Millisecond, "Reached")
	x.goOn()
	x.advance(a, "Save", time.Hour, "Open")
	x.advance(a, "Gate", time.Hour, "Reached")
	a.Close()
	x.goOn()

	if err := WriteCertificates(filepath.Join(x.dir, "certs"), []string{"127.0.0.1"}, "muster"); err != nil {
		t.Fatal(err)
	}
	killed := start(t, x.dir, with(x.n, "driver")...)
	if reply, err := killed.Advance(t.Context(), x.next("Gate", time.Hour)); err != nil || reply.Outcome != "Reached" {
		t.Fatal(reply, err)
	}
	killed.kill()
	x.goOn()
}

// What an agent's backend cannot do is refused, and says which backend it is.
func TestBackendsThatDoLess(t *testing.T) {
	x := newUnaware(t)
	ask := func(a *Agent, id string, action agentpb.Action, pids ...int32) (*agentpb.Operation, error) {
		return a.Run(t.Context(), request(id, action, pids...))
	}
	other := *x.n
	other.Dir = filepath.Join(x.n.Dir, "p")
	if err := os.MkdirAll(other.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ofPod := int32(other.Start(t).PID) // with a control page
	listed := func(a *Agent, want int) {
		t.Helper()
		if s, err := a.Status(t.Context(), &agentpb.StatusRequest{}); err != nil || len(s.Processes) != want {
			t.Errorf("with --backend %s the node has %v, %v; expected %d processes", a.o.Backend, s, err, want)
		}
	}
	// What a pod's folder has is the pod's to write: it makes no other process the pod's.
	thief := filepath.Join(x.n.Dir, "thief")
	page := fmt.Sprintf("%d.page", ofPod)
	text, err := os.ReadFile(filepath.Join(other.Dir, page))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(thief, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{page: text, fmt.Sprintf("%d.lock", x.pids()[0]): nil} {
		if err := os.WriteFile(filepath.Join(thief, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Nor does it hide those of others.
	flood := filepath.Join(x.n.Dir, "flood")
	if err := os.MkdirAll(flood, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 1<<14 + 1 {
		if err := os.WriteFile(filepath.Join(flood, fmt.Sprintf("%d.page", i+1)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	steal := request("steal", actPause)
	steal.Pod, steal.Deadline = "thief", timestamppb.New(time.Now().Add(5*time.Second))
	h := x.agent("hybrid")
	listed(h, 1)
	if op, err := h.Run(t.Context(), steal); status.Code(err) != codes.NotFound {
		t.Errorf("hybrid: processes of others: %v, %v", op, err)
	}
	h.Close()
	a := x.agent("driver")
	listed(a, 1)
	if op, err := a.Run(t.Context(), steal); status.Code(err) != codes.NotFound {
		t.Errorf("processes of others: %v, %v", op, err)
	}
	if _, err := ask(a, "1", actCheckpoint, x.pids()...); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "with --backend driver the agent of node \"n\" leaves the memory in the processes") {
		t.Errorf("an image of what the driver holds: %v", err)
	}
	if _, err := ask(a, "of-a-pod", actPause, ofPod); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), `is of pod "p"; the request is for pod ""`) {
		t.Errorf("a process of a pod, asked for without it: %v", err)
	}
	for _, pod := range []string{"p", "without-a-folder"} {
		foreign := request("of-no-pod", actPause, x.pids()...)
		foreign.Pod = pod
		if _, err := a.Run(t.Context(), foreign); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "is of no pod; the request is for pod \""+pod+"\"") {
			t.Errorf("processes of no pod, asked for as those of one: %v", err)
		}
		r := x.next("Release", time.Minute)
		r.Pod = pod
		if _, err := a.Advance(t.Context(), r); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "is of no pod; the request is for pod \""+pod+"\"") {
			t.Errorf("and of a job over several nodes: %v", err)
		}
	}
	if op, err := ask(a, "2", actPause, x.pids()...); err != nil || op.State != agentpb.State_STATE_SUCCEEDED {
		t.Errorf("processes that know nothing about Muster: %v, %v", op, err)
	}
	listed(a, 3)
	if op, err := ask(a, "3", actResume, x.pids()...); err != nil || op.State != agentpb.State_STATE_SUCCEEDED {
		t.Errorf("%v, %v", op, err)
	}
	x.goOn()
	a.Close()
	if err := os.RemoveAll(thief); err != nil { // with the shim a page is all that is written to
		t.Fatal(err)
	}
	for backend, want := range map[string]int{"framework": 0, "none": 0, "shim": 1} {
		a := x.agent(backend)
		listed(a, want)
		if _, err := ask(a, backend, actPause); want == 0 && (status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "(--backend "+backend+")")) {
			t.Errorf("%s: %v", backend, err)
		}
		op, err := ask(a, backend+"-by-name", actPause, x.pids()...)
		if backend == "none" {
			if err != nil || op.State != agentpb.State_STATE_FAILED || !strings.Contains(op.Message, "nothing pauses it") {
				t.Errorf("%s: %v, %v", backend, op, err)
			}
		} else if status.Code(err) != codes.NotFound {
			t.Errorf("%s: %v, %v", backend, op, err)
		}
		a.Close()
	}
}

// group puts processes into the cgroup of a pod, and returns the pod's UID. The test is skipped where that is not permitted.
func group(t *testing.T, pids ...int) string {
	t.Helper()
	uid := fmt.Sprintf("5d1f0c4e-0000-4000-8000-%012x", os.Getpid())
	// With systemd, and without; below it is the container's.
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"} {
		pod := filepath.Join(dir, "muster-test-pod"+strings.ReplaceAll(uid, "-", "_")+".slice")
		container := filepath.Join(pod, "cri-1.scope")
		if os.MkdirAll(container, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { os.Remove(container); os.Remove(pod) })
		in := 0
		for _, pid := range pids {
			if f, err := os.OpenFile(filepath.Join(container, "cgroup.procs"), os.O_WRONLY, 0); err == nil {
				if _, err := fmt.Fprint(f, pid); err == nil {
					in++
				}
				f.Close()
			}
		}
		if in == len(pids) {
			return uid
		}
	}
	t.Skip("no cgroup can be made here, or no process can be put into it")
	return ""
}

// Programs of a pod that know nothing about Muster are found by the pod's cgroup, and paused as one. They are of that pod alone.
func TestProcessesOfAPodsCgroup(t *testing.T) {
	x := newUnaware(t)
	sleeps := exec.Command("sleep", "600") // it is of the pod, and of no driver
	if err := sleeps.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { sleeps.Process.Kill(); sleeps.Wait() }()
	alone := x.n.StartPlain(t)
	uid := group(t, sleeps.Process.Pid, x.programs[0].PID, x.programs[1].PID)
	defer func() { // the cgroup is removed when it is empty
		for _, p := range x.programs {
			p.Kill()
		}
		sleeps.Process.Kill()
		sleeps.Wait()
	}()
	a := x.agent("driver")
	defer a.Close()
	x.are(a, running)
	ask := func(id, pod string, action agentpb.Action, pids ...int32) (*agentpb.Operation, error) {
		r := request(id, action, pids...)
		r.Pod = pod
		return a.Run(t.Context(), r)
	}
	for id, c := range map[string]struct {
		pod  string
		pids []int32
		says string
	}{
		"no-pod":  {"", x.pids(), "is of pod \"" + uid + "\"; the request is for pod \"\""},
		"other":   {"other", x.pids(), "is of pod \"" + uid + "\"; the request is for pod \"other\""},
		"foreign": {uid, []int32{int32(alone.PID)}, "is of no pod; the request is for pod \"" + uid + "\""},
		"all":     {"", nil, "has no process with a GPU"},
	} {
		if op, err := ask(id, c.pod, actPause, c.pids...); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v", id, op, err)
		}
	}
	if op, err := ask("pause", uid, actPause); err != nil || op.State != agentpb.State_STATE_SUCCEEDED || len(op.Pids) != 2 {
		t.Fatalf("%v, %v", op, err)
	}
	x.are(a, checkpointed)
	if s, err := a.Status(t.Context(), nil); err != nil || s.Processes[0].Pod != uid || s.Processes[1].Pod != uid {
		t.Errorf("%v, %v", s, err)
	}
	if op, err := ask("all-again", "", actResume); status.Code(err) != codes.NotFound {
		t.Errorf("what was paused is of the pod still: %v, %v", op, err)
	}
	if _, err := os.Stat(filepath.Join(x.dir, "gpu", uid)); !os.IsNotExist(err) {
		t.Errorf("a folder for the pod is left: %v", err)
	}
	if op, err := ask("resume", uid, actResume); err != nil || op.State != agentpb.State_STATE_SUCCEEDED || len(op.Pids) != 2 {
		t.Fatalf("%v, %v", op, err)
	}
	x.goOn()
	for _, goal := range []string{"Gate", "Release"} {
		r := x.next(goal, time.Hour)
		r.Pod = uid
		if reply, err := a.Advance(t.Context(), r); err != nil || reply.Outcome != "Reached" {
			t.Errorf("%s: %v, %v", goal, reply, err)
		}
	}
	x.goOn()
}
