package agent

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/gpu"
)

// slow is a machine whose driver says what process 1 is only when it is let: a second one who asks before that, later.
type slow struct {
	*machine
	asked               chan struct{}
	answer, answerAgain chan struct{}
}

func (s *slow) Phase(pid int) (checkpoint.Phase, error) {
	phase, err := s.machine.Phase(pid)
	if pid == 1 {
		select {
		case s.asked <- struct{}{}:
			<-s.answer
		case <-s.answer:
		default:
			<-s.answerAgain
		}
	}
	return phase, err
}

// newSlow is an agent on such a machine, which looks at process 1 for the operation a.
func newSlow(t *testing.T, deadline time.Duration) (*slow, *Agent, *agentpb.RunRequest, <-chan error) {
	s := &slow{newMachine(4, checkpoint.Running), make(chan struct{}, 1), make(chan struct{}), make(chan struct{})}
	a, err := open(Options{Node: "n", StateDir: t.TempDir(), GPUDir: "none", Log: slog.New(slog.DiscardHandler), Open: func(string) checkpoint.Local { return s }, Images: s.machine}, s.machine)
	if err != nil {
		t.Fatal(err)
	}
	if err := forgetParts(filepath.Join(a.o.StateDir, "jobs")); err != nil {
		t.Fatal(err)
	}
	r := request("a", actPause, 1)
	r.Deadline = timestamppb.New(time.Now().Add(deadline))
	ended := make(chan error, 1)
	go func() {
		op, err := a.Run(context.Background(), r)
		if err == nil && op.State != agentpb.State_STATE_SUCCEEDED {
			err = status.Error(codes.Unknown, op.Message)
		}
		ended <- err
	}()
	for len(s.asked) == 0 {
		time.Sleep(time.Millisecond)
	}
	return s, a, r, ended
}

// While the driver does not say what a process is, all else of the node goes on. What is about the same process, or the same operation, waits.
func TestSlowDriver(t *testing.T) {
	s, a, r, ended := newSlow(t, time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := a.Status(ctx, nil); err != nil {
		t.Errorf("status: %v", err)
	}
	if op, err := a.Run(ctx, request("b", actPause, 2)); err != nil || op.State != agentpb.State_STATE_SUCCEEDED {
		t.Fatalf("an operation on another process: %v %v", op, err)
	}
	if op, err := a.Get(ctx, &agentpb.GetRequest{Id: "b"}); err != nil || op.State != agentpb.State_STATE_SUCCEEDED {
		t.Errorf("%v %v", op, err)
	}
	step := func(pid int32) *agentpb.AdvanceRequest {
		return &agentpb.AdvanceRequest{Job: "j", Pids: []int32{pid}, Epoch: 1, Goal: "Release", Lease: durationpb.New(time.Minute)}
	}
	if reply, err := a.Advance(ctx, step(3)); err != nil || reply.Outcome != "Reached" {
		t.Errorf("a step of a job on another process: %v %v", reply, err)
	}
	soon, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	for what, do := range map[string]func() error{
		"an operation on it":     func() error { _, err := a.Run(soon, request("c", actPause, 4, 1)); return err },
		"one on all processes":   func() error { _, err := a.Run(soon, request("d", actPause)); return err },
		"a step of a job on it":  func() error { _, err := a.Advance(soon, step(1)); return err },
		"the same operation":     func() error { _, err := a.Run(soon, r); return err },
		"another one of that ID": func() error { _, err := a.Run(soon, request("a", actPause, 4)); return err },
	} {
		if err := do(); status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "context") {
			t.Errorf("%s: %v; expected that it waits", what, err)
		}
	}
	if len(s.disk) != 1 {
		t.Errorf("recorded before it is known what it is on: %v", s.disk)
	}
	again, other := make(chan *agentpb.Operation, 1), make(chan error, 1)
	go func() {
		op, _ := a.Run(ctx, r)
		again <- op
	}()
	go func() {
		_, err := a.Run(ctx, request("a", actPause, 4))
		other <- err
	}()
	close(s.answer)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if op := <-again; !proto.Equal(op, a.copy(a.operations["a"])) || op.Attempts != 1 {
		t.Errorf("the call again: %v", op)
	}
	if err := <-other; status.Code(err) != codes.AlreadyExists {
		t.Errorf("another operation of the ID: %v", err)
	}
	a.Close()
	if s.phases[1] != checkpoint.Saved || s.phases[4] != checkpoint.Running || len(a.claims) != 0 {
		t.Errorf("processes %v, claims %v", s.phases, a.claims)
	}
}

// What began while the driver was slow sees what was done before: it takes nothing back that others did.
func TestSlowDriverKeepsTheOrder(t *testing.T) {
	s, a, _, ended := newSlow(t, time.Hour)
	defer a.Close()
	second := make(chan *agentpb.Operation, 1)
	go func() {
		for { // while the first one is at work it is refused
			op, err := a.Run(context.Background(), request("b", actCheckpoint, 1, 4))
			if status.Code(err) != codes.FailedPrecondition {
				second <- op
				return
			}
		}
	}()
	s.mu.Lock()
	s.stuck = 4
	s.mu.Unlock()
	time.Sleep(50 * time.Millisecond) // the second one would look now, if it could
	close(s.answer)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	close(s.answerAgain)
	for {
		if op, err := a.Get(t.Context(), &agentpb.GetRequest{Id: "b"}); err == nil && op.State == agentpb.State_STATE_ACTING {
			break
		}
	}
	if _, err := a.Cancel(t.Context(), &agentpb.CancelRequest{Id: "b"}); err != nil {
		t.Fatal(err)
	}
	if op := <-second; op.GetState() != agentpb.State_STATE_FAILED || s.phases[1] != checkpoint.Saved || !s.kept[1] {
		t.Errorf("%v: processes %v, kept %v", op, s.phases, s.kept)
	}
}

// A deadline that passes, and an agent that stops, while the driver is slow: nothing was begun.
func TestNothingBeginsTooLate(t *testing.T) {
	s, a, r, ended := newSlow(t, 50*time.Millisecond)
	time.Sleep(time.Until(r.Deadline.AsTime()))
	close(s.answer)
	if err := <-ended; status.Code(err) != codes.DeadlineExceeded || len(s.disk) != 0 {
		t.Errorf("%v, recorded %v", err, s.disk)
	}
	a.Close()

	s, a, _, ended = newSlow(t, time.Hour)
	a.stop(errStopped)
	closed := make(chan struct{})
	go func() {
		a.Close()
		close(closed)
	}()
	select {
	case <-closed:
		t.Error("the agent was closed while an operation could begin")
	case <-time.After(50 * time.Millisecond):
	}
	close(s.answer)
	if err := <-ended; status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	if <-closed; len(s.disk) != 0 || s.phases[1] != checkpoint.Running {
		t.Errorf("recorded %v, processes %v", s.disk, s.phases)
	}
}

// A driver that hangs at one process, as the real program and backend see it. A process of which it says nothing is not left out.
func TestDriverHangs(t *testing.T) {
	dir := t.TempDir()
	hung := exec.Command("sleep", "600")
	other := exec.Command("sleep", "600")
	for _, c := range []*exec.Cmd{hung, other} {
		if err := c.Start(); err != nil {
			t.Skipf("no process can be started: %v", err)
		}
		t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	}
	// It says of each process that it runs, and of one nothing until a file is gone.
	program, hangs := filepath.Join(dir, "call"), filepath.Join(dir, "hangs")
	script := `#!/bin/sh
echo ready 13000 6
while read -r id op pid rest; do
	(while [ "$op" = state ] && [ -e "$HANGS.$pid" ]; do touch "$HANGS.asked"; sleep 0.02; done; echo "$id" 0 0) &
done
`
	for name, text := range map[string]string{program: script, hangs + "." + strconv.Itoa(hung.Process.Pid): ""} {
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	gpus := filepath.Join(dir, "gpu")
	if err := os.MkdirAll(gpus, 0o700); err != nil {
		t.Fatal(err)
	}
	a, err := Open(Options{Node: "n", StateDir: filepath.Join(dir, "state"), GPUDir: gpus, Log: slog.New(slog.DiscardHandler), Backend: "driver", Calls: func(dir string) *gpu.Calls {
		return &gpu.Calls{Program: program, Dir: dir, Environment: []string{"HANGS=" + hangs}}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := a.Run(context.Background(), request("hung", actResume, int32(hung.Process.Pid)))
		ended <- err
	}()
	for {
		if _, err := os.Stat(hangs + ".asked"); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	began := time.Now()
	if _, err := a.Status(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if op, err := a.Run(t.Context(), request("other", actResume, int32(other.Process.Pid))); err != nil || op.State != agentpb.State_STATE_SUCCEEDED {
		t.Errorf("%v %v", op, err)
	}
	select {
	case err := <-ended:
		t.Errorf("the driver did not hang (%v), or all waited %v for it", err, time.Since(began))
	default:
	}
	if err := os.Remove(hangs + "." + strconv.Itoa(hung.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// found is a machine that finds processes 1 and 2, and says something else about the first.
type found struct {
	*machine
	err error
}

func (f *found) List() ([]int, error) { return []int{1, 2}, nil }

func (f *found) Phase(pid int) (checkpoint.Phase, error) {
	if pid == 1 {
		return "", f.err
	}
	return f.machine.Phase(pid)
}

func (f *found) Status(pid int) (checkpoint.Status, error) {
	phase, err := f.Phase(pid)
	return checkpoint.Status{PID: pid, Phase: phase}, err
}

// A pod is paused without its processes that have nothing on a GPU, and not without one of which that is not known.
func TestNoProcessIsLeftOut(t *testing.T) {
	for _, c := range []struct {
		err  error
		left bool
	}{
		{gpu.ErrGone, true}, {gpu.ErrNoPage, true}, {gpu.ErrFailed, true}, {&gpu.DriverError{Call: "state", Code: 1}, true},
		{context.DeadlineExceeded, false}, {gpu.ErrElsewhere, false}, {gpu.ErrNoCaller, false},
	} {
		f := &found{newMachine(2, checkpoint.Running), c.err}
		a, err := open(Options{Node: "n", GPUDir: "none", Log: slog.New(slog.DiscardHandler), Open: func(string) checkpoint.Local { return f }}, f.machine)
		if err != nil {
			t.Fatal(err)
		}
		op, err := a.Run(t.Context(), request("a", actPause))
		a.Close()
		if c.left && (err != nil || op.State != agentpb.State_STATE_SUCCEEDED || len(op.Pids) != 1 || f.phases[2] != checkpoint.Saved) {
			t.Errorf("%v: %v %v", c.err, op, err)
		}
		if !c.left && (status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "process 1") || f.phases[2] != checkpoint.Running) {
			t.Errorf("%v: %v %v", c.err, op, err)
		}
	}
}

// The disk does not take that a pause has ended: nothing that the next agent would undo begins before it does.
func TestEndThatIsNotRecorded(t *testing.T) {
	m := newMachine(2, checkpoint.Running)
	full := func(is bool) {
		m.mu.Lock()
		m.full = is
		m.mu.Unlock()
	}
	m.stuck = 2
	a := m.agent(t)
	ended := make(chan *agentpb.Operation, 1)
	go func() {
		op, _ := a.Run(context.Background(), request("a", actPause, 1, 2))
		ended <- op
	}()
	for {
		if op, err := a.Get(t.Context(), &agentpb.GetRequest{Id: "a"}); err == nil && op.State == agentpb.State_STATE_ACTING {
			break
		}
	}
	full(true)
	if _, err := a.Cancel(t.Context(), &agentpb.CancelRequest{Id: "a"}); err != nil {
		t.Fatal(err)
	}
	if op := <-ended; op.GetState() != agentpb.State_STATE_FAILED || m.disk["a"].Operation.State != agentpb.State_STATE_ACTING {
		t.Fatalf("%v; on disk %v", op, m.disk["a"])
	}
	m.mu.Lock()
	m.stuck, m.refuses = 0, "a"
	m.mu.Unlock()
	full(false)
	for _, r := range []*agentpb.RunRequest{request("b", actPause, 1)} {
		if op, err := a.Run(t.Context(), r); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), `operation "a" (pause) on these processes has ended, and the disk`) {
			t.Errorf("%v %v", op, err)
		}
	}
	step := &agentpb.AdvanceRequest{Job: "j", Pids: []int32{2}, Epoch: 1, Goal: "Gate", Lease: durationpb.New(time.Minute)}
	if reply, err := a.Advance(t.Context(), step); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("%v %v", reply, err)
	}
	m.mu.Lock()
	m.refuses = ""
	m.mu.Unlock()
	for {
		op, err := a.Run(t.Context(), request("b", actPause, 1))
		if err == nil && op.State == agentpb.State_STATE_SUCCEEDED {
			break
		}
		if status.Code(err) != codes.FailedPrecondition {
			t.Fatalf("%v %v", op, err)
		}
	}
	a.Close()
	m.agent(t).Close()
	if m.disk["a"].Operation.State != agentpb.State_STATE_FAILED || m.phases[1] != checkpoint.Saved || m.phases[2] != checkpoint.Running {
		t.Errorf("on disk %v; processes %v", m.disk["a"], m.phases)
	}
}

// A process of which the driver says nothing is shown: who pauses the processes of a pod that are shown must not leave it out.
func TestProcessOfUnknownPhase(t *testing.T) {
	f := &found{newMachine(2, checkpoint.Running), context.DeadlineExceeded}
	a, err := open(Options{Node: "n", GPUDir: "none", Log: slog.New(slog.DiscardHandler), Open: func(string) checkpoint.Local { return f }}, f.machine)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	s, err := a.Status(t.Context(), nil)
	if err != nil || len(s.Processes) != 2 || s.Processes[0].Phase != agentpb.Phase_PHASE_UNSPECIFIED || s.Processes[1].Phase != agentpb.Phase_PHASE_RUNNING {
		t.Errorf("%v %v", s, err)
	}
	if f.err = gpu.ErrGone; len(a.processes(pod{})) != 1 {
		t.Errorf("one that has ended is shown: %v", a.processes(pod{}))
	}
	if many := each(make([]int, 1<<16), func(int) int { return 1 }); len(many) != 1<<16 || many[1<<16-1] != 1 {
		t.Error("some of many are missing")
	}
}

// The lock of an agent that was killed is that of a program, too, which it was starting.
func TestLockIsHandedOver(t *testing.T) {
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	first, err := openFiles(dir, log)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { first.close() })
	second, err := openFiles(dir, log)
	if err != nil {
		t.Fatalf("after the end of the first: %v", err)
	}
	defer second.close()
	if _, err := openFiles(dir, log); err == nil || !strings.Contains(err.Error(), "another agent runs with this folder") {
		t.Errorf("beside another one: %v", err)
	}
}
