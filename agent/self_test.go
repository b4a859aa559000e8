//go:build linux

package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/gpu/gputest"
)

// The agent finds processes that save themselves, and pauses them by its operations and as a member of a job on several nodes.
func TestProcessesThatSaveThemselves(t *testing.T) {
	dir := t.TempDir()
	pod := filepath.Join(dir, "gpu", "p")
	if err := os.MkdirAll(pod, 0o700); err != nil {
		t.Fatal(err)
	}
	gputest.SavesItself(t, pod, 7, "", nil)
	gputest.SavesItself(t, pod, 8, "", nil)
	if err := os.WriteFile(filepath.Join(pod, "8.self"), []byte("durable\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := Open(Options{Node: "n", StateDir: filepath.Join(dir, "state"), GPUDir: filepath.Join(dir, "gpu"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	are := func(want agentpb.Phase) {
		t.Helper()
		s, err := a.Status(t.Context(), &agentpb.StatusRequest{})
		if err != nil || len(s.Processes) != 2 || s.Processes[0].Pid != 7 || s.Processes[0].Phase != want || s.Processes[1].Phase != want || s.Processes[0].Durable || !s.Processes[1].Durable {
			t.Errorf("the node has %v, %v; expected %v", s, err, want)
		}
	}
	are(agentpb.Phase_PHASE_RUNNING)
	for _, x := range []struct {
		action agentpb.Action
		want   agentpb.Phase
	}{{actPause, agentpb.Phase_PHASE_SAVED}, {actResume, agentpb.Phase_PHASE_RUNNING}} {
		r := request(name(x.action), x.action)
		r.Pod = "p"
		if op, err := a.Run(t.Context(), r); err != nil || op.State != agentpb.State_STATE_SUCCEEDED || len(op.Pids) != 2 {
			t.Fatalf("%v, %v", op, err)
		}
		are(x.want)
	}
	for epoch, goal := range []string{"Gate", "Save", "Keep", "Release"} {
		reply, err := a.Advance(t.Context(), &agentpb.AdvanceRequest{Job: "j", Pod: "p", Pids: []int32{7, 8}, Epoch: uint64(epoch + 1), Goal: goal, Lease: durationpb.New(time.Hour)})
		if err != nil || reply.Outcome != "Reached" {
			t.Fatalf("%s: %v, %v", goal, reply, err)
		}
		if goal == "Keep" {
			are(agentpb.Phase_PHASE_SAVED)
			if ask, err := os.ReadFile(filepath.Join(pod, "7.ask")); err != nil || !strings.HasSuffix(string(ask), " Saved 0\n") {
				t.Errorf("when it is kept, it is asked %q, %v", ask, err)
			}
		}
	}
	are(agentpb.Phase_PHASE_RUNNING)
}

// An operation and a job on several nodes are never at work on a process at the same time.
func TestOperationsAndJobsKnowEachOther(t *testing.T) {
	m := newMachine(2, "Running")
	m.stuck = 1 // whoever pauses it waits
	a := m.agent(t)
	a.o.StateDir = t.TempDir()
	if err := forgetParts(filepath.Join(a.o.StateDir, "jobs")); err != nil {
		t.Fatal(err)
	}
	advance := func(ctx context.Context, pids ...int32) error {
		_, err := a.Advance(ctx, &agentpb.AdvanceRequest{Job: "j", Pids: pids, Epoch: 1, Goal: "Gate", Lease: durationpb.New(time.Hour)})
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- advance(ctx, 1) }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		a.mu.Lock()
		n := len(a.parts)
		a.mu.Unlock()
		if n == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the job does not begin")
		}
	}
	if _, err := a.Run(t.Context(), request("x", actPause, 1, 2)); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), `job "j" is pausing`) {
		t.Errorf("an operation on a process of the job: %v", err)
	}
	if op, err := a.Run(t.Context(), request("y", actPause, 2)); err != nil || op.State != agentpb.State_STATE_SUCCEEDED {
		t.Errorf("an operation on another process: %v, %v", op, err)
	}
	cancel()
	<-ended
	go a.Run(t.Context(), request("z", actPause, 1))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := a.Get(t.Context(), &agentpb.GetRequest{Id: "z"}); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the operation does not begin")
		}
	}
	if err := advance(t.Context(), 1, 2); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), `operation "z" (pause) is at work`) {
		t.Errorf("a job with a process of the operation: %v", err)
	}
}
