package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/checkpoint/offload"
	"github.com/muster-sched/muster/gpu"
)

// machine is a node with processes 1 to n, and a disk with records. It outlasts the
// agents on it. When left falls below 0, whoever acts on it is dead: no call has an effect.
type machine struct {
	mu     sync.Mutex
	path   []checkpoint.Phase
	phases map[int]checkpoint.Phase
	kept   map[int]bool
	disk   map[string]*agentpb.Record
	left   int
	stuck  int // the process whose calls in flight never return; 0: none
	full   bool
	// refuses is the operation that the disk does not take; empty for none.
	refuses string
	// images are those that are stored, by name, and moved the processes whose memory is in one and not on the host.
	images map[string][]int
	moved  map[int]bool
	broken bool          // a save fails when it has moved the first process
	fills  bool          // the disk is full when a return fails
	lost   chan struct{} // gets a record that the full disk does not take
}

func newMachine(n int, phase checkpoint.Phase, path ...checkpoint.Phase) *machine {
	if path == nil {
		path = (&checkpoint.Shim{}).Path()
	}
	m := &machine{path: path, phases: map[int]checkpoint.Phase{}, kept: map[int]bool{}, disk: map[string]*agentpb.Record{}, images: map[string][]int{}, moved: map[int]bool{}, left: 1 << 30, lost: make(chan struct{}, 1)}
	for pid := 1; pid <= n; pid++ {
		m.phases[pid], m.kept[pid] = phase, phase == checkpoint.End(m)
	}
	return m
}

var errDead = errors.New("the agent is dead")

// enter takes the lock, and says whether the caller still lives.
func (m *machine) enter() error {
	m.mu.Lock()
	if m.left--; m.left < 0 {
		return errDead
	}
	return nil
}

func (m *machine) Path() []checkpoint.Phase { return m.path }

func (m *machine) Phase(pid int) (checkpoint.Phase, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if phase, ok := m.phases[pid]; ok {
		return phase, nil
	}
	return "", gpu.ErrGone
}

func (m *machine) Status(pid int) (checkpoint.Status, error) {
	phase, err := m.Phase(pid)
	return checkpoint.Status{PID: pid, Phase: phase}, err
}

func (m *machine) Step(ctx context.Context, pid int, to checkpoint.Phase) error {
	err := m.enter()
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	if pid == m.stuck && to == checkpoint.Gated && m.phases[pid] == checkpoint.Running {
		m.mu.Unlock()
		<-ctx.Done()
		m.mu.Lock()
		return ctx.Err()
	}
	if _, ok := m.phases[pid]; !ok {
		return gpu.ErrGone
	}
	if m.moved[pid] {
		return gpu.ErrNoData
	}
	m.phases[pid], m.kept[pid] = to, false
	return nil
}

func (m *machine) Keep(pid int) error {
	err := m.enter()
	defer m.mu.Unlock()
	if err == nil {
		m.kept[pid] = true
	}
	return err
}

func (m *machine) Close() {}

func (m *machine) List() ([]int, error) { return nil, nil }

func (m *machine) SetLease(time.Duration) bool { return true }

// move takes the memory of a process off the host, or writes it back.
func (m *machine) move(pid int, away bool) error {
	err := m.enter()
	defer m.mu.Unlock()
	if err == nil && m.phases[pid] != checkpoint.End(m) {
		err = fmt.Errorf("process %d is %s", pid, m.phases[pid])
	}
	if err == nil {
		m.moved[pid] = away
	}
	return err
}

func (m *machine) Save(_ context.Context, _, name string, pids []int) error {
	err := m.enter()
	if err == nil {
		m.images[name] = pids
	}
	m.mu.Unlock()
	for _, pid := range pids {
		if err == nil {
			err = m.move(pid, true)
		}
		if err == nil && m.broken {
			err = errors.New("the disk is broken")
		}
	}
	return err
}

func (m *machine) TakeBack(ctx context.Context, dir, name string, pids []int) error {
	m.mu.Lock()
	of := slices.DeleteFunc(slices.Clone(m.images[name]), func(pid int) bool { return !slices.Contains(pids, pid) || m.phases[pid] != checkpoint.End(m) })
	m.mu.Unlock()
	for _, pid := range of {
		if err := m.move(pid, false); err != nil {
			return err
		}
	}
	return m.Drop(ctx, dir, []string{name})
}

func (m *machine) Restore(_ context.Context, _ string, pids []int) (used []string, err error) {
	for _, pid := range pids {
		for name, of := range m.images {
			if slices.Contains(of, pid) && m.moved[pid] {
				if err := m.move(pid, false); err != nil {
					return used, err
				}
				used = append(used, name)
			}
		}
	}
	return used, nil
}

func (m *machine) Return(_ context.Context, _, image string, _ map[string]string, _ *offload.Steps, _ time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.full = m.full || m.fills
	return fmt.Errorf("image %s has no whole process", image)
}

func (m *machine) Drop(_ context.Context, _ string, names []string) error {
	err := m.enter()
	defer m.mu.Unlock()
	for _, name := range names {
		if err == nil && !slices.ContainsFunc(m.images[name], func(pid int) bool { return m.moved[pid] }) {
			delete(m.images, name)
		}
	}
	return err
}

func (m *machine) put(r *agentpb.Record) error {
	err := m.enter()
	defer m.mu.Unlock()
	if (m.full || m.refuses == r.Operation.Id) && err == nil {
		err = errors.New("no space left on device")
		select {
		case m.lost <- struct{}{}:
		default:
		}
	}
	if err == nil {
		m.disk[r.Operation.Id] = proto.CloneOf(r)
	}
	return err
}

func (m *machine) remove(id string) error { delete(m.disk, id); return nil }
func (m *machine) close() error           { return nil }

func (m *machine) all() ([]*agentpb.Record, error) {
	var found []*agentpb.Record
	for _, id := range slices.Sorted(maps.Keys(m.disk)) {
		found = append(found, proto.CloneOf(m.disk[id]))
	}
	return found, nil
}

// leasesEnd lets the processes go on that are neither running nor kept.
func (m *machine) leasesEnd() {
	for pid := range m.phases {
		if !m.kept[pid] {
			m.phases[pid] = checkpoint.Running
		}
	}
}

// agent starts an agent on the machine.
func (m *machine) agent(t *testing.T) *Agent {
	t.Helper()
	a, err := open(Options{Node: "n", GPUDir: "none", Log: slog.New(slog.DiscardHandler), Open: func(string) checkpoint.Local { return m }, Images: m}, m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func (m *machine) is(phase checkpoint.Phase) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for pid, p := range m.phases {
		if p != phase || m.kept[pid] != (phase == checkpoint.End(m)) {
			return false
		}
	}
	return true
}

// elsewhere is of how many processes the memory is not on the host.
func (m *machine) elsewhere() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, away := range m.moved {
		if away {
			n++
		}
	}
	return n
}

func request(id string, action agentpb.Action, pids ...int32) *agentpb.RunRequest {
	return &agentpb.RunRequest{Id: id, Action: action, Pids: pids, Deadline: timestamppb.New(time.Now().Add(time.Hour))}
}

const (
	actPause      = agentpb.Action_ACTION_PAUSE
	actResume     = agentpb.Action_ACTION_RESUME
	actCheckpoint = agentpb.Action_ACTION_CHECKPOINT
	actRestore    = agentpb.Action_ACTION_RESTORE
)

// An agent that dies before any of its acts, on the processes or on its records, is
// followed by one that ends the operation. Whoever repeats the call sees how it ended.
func TestDeathAtAnyInstant(t *testing.T) {
	shim, driver, hybrid := (&checkpoint.Shim{}).Path(), (&checkpoint.Driver{}).Path(), (&checkpoint.Hybrid{}).Path()
	all := []agentpb.Action{actPause, actResume, actCheckpoint, actRestore}
	t.Run("shim", func(t *testing.T) { dieAtAnyInstant(t, shim, false, all...) })
	// What the driver has locked, and was not kept, goes on when the agent is dead.
	t.Run("driver", func(t *testing.T) { dieAtAnyInstant(t, driver, true, actPause, actResume) })
	t.Run("hybrid", func(t *testing.T) { dieAtAnyInstant(t, hybrid, true, all...) })
}

func dieAtAnyInstant(t *testing.T, path []checkpoint.Phase, goOn bool, actions ...agentpb.Action) {
	for _, action := range actions {
		from, to := checkpoint.Running, path[len(path)-1]
		if action == actResume || action == actRestore {
			from, to = to, from
		}
		of := map[agentpb.Action]int{actCheckpoint: 1} // images that a process has afterwards
		begun := 0
		for calls := 0; ; calls++ {
			m := newMachine(3, from, path...)
			if action == actRestore {
				m.images["before"], m.moved = []int{1, 2, 3}, map[int]bool{1: true, 2: true, 3: true}
			}
			m.left = calls
			first := m.agent(t)
			r := request("a", action, 1, 2, 3)
			_, err := first.Run(t.Context(), r)
			lived := m.left >= 0
			first.Close()
			m.left = 1 << 30
			if goOn {
				m.leasesEnd()
			}
			again, err2 := m.agent(t).Run(t.Context(), r)
			if err2 != nil || again.State != agentpb.State_STATE_SUCCEEDED || !m.is(to) || m.elsewhere() != 3*of[action] {
				t.Errorf("%s: death after %d calls (%v): the call again: %v %v; processes %v, kept %v", name(action), calls, err, again, err2, m.phases, m.kept)
			}
			if again.GetAttempts() == 2 {
				begun++
			}
			if lived {
				break
			}
		}
		if begun < 5 {
			t.Errorf("%s: %d deaths while the operation was at work: the test does not reach what it is for", name(action), begun)
		}
	}
}

// A checkpoint that fails, or whose deadline passes while no agent runs, leaves all as before: with their memory, and those running that ran.
func TestCheckpointTakenBack(t *testing.T) {
	for calls := 1; ; calls++ {
		m := newMachine(3, checkpoint.Running)
		m.phases[3], m.kept[3] = checkpoint.Saved, true
		m.left = calls
		first := m.agent(t)
		first.Run(t.Context(), request("a", actCheckpoint, 1, 2, 3))
		first.Close()
		lived := m.left >= 0
		m.left = 1 << 30
		record := m.disk["a"]
		if lived || record.Operation.State != agentpb.State_STATE_ACTING {
			break
		}
		record.Operation.Deadline = timestamppb.New(time.Now().Add(-time.Second))
		second := m.agent(t)
		op, err := second.wait(t.Context(), second.operations["a"])
		if err != nil || op.State != agentpb.State_STATE_FAILED || m.elsewhere() != 0 || len(m.images) != 0 ||
			m.phases[1] != checkpoint.Running || m.phases[2] != checkpoint.Running || m.phases[3] != checkpoint.Saved || !m.kept[3] {
			t.Errorf("death after %d calls: %v %v: %v, kept %v, moved %v, images %v", calls, op, err, m.phases, m.kept, m.moved, m.images)
		}
	}
	m := newMachine(2, checkpoint.Running)
	m.broken = true
	op, err := m.agent(t).Run(t.Context(), request("a", actCheckpoint))
	if status.Code(err) != codes.NotFound { // the folder has no pages: the processes are named
		t.Errorf("%v %v", op, err)
	}
	op, err = m.agent(t).Run(t.Context(), request("b", actCheckpoint, 1, 2))
	if err != nil || op.State != agentpb.State_STATE_FAILED || op.Message != "the disk is broken; all others go on" || !m.is(checkpoint.Running) || m.elsewhere() != 0 || len(m.images) != 0 {
		t.Errorf("%v %v: %v, moved %v, images %v", op, err, m.phases, m.moved, m.images)
	}
	for id, a := range map[string]*Agent{"0123456789abcdef": m.agent(t), "b": {o: Options{Node: "n"}}} {
		if _, err := a.Run(t.Context(), request(id, actCheckpoint, 1)); err == nil || !strings.Contains(err.Error(), map[string]string{"b": "no store of images"}[id]) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// The same where a rank dies with the agent: the others go on.
func TestDeathOfRankAndAgent(t *testing.T) {
	for calls := range 12 {
		m := newMachine(3, checkpoint.Running)
		m.left = calls
		first := m.agent(t)
		r := request("a", actPause, 1, 2, 3)
		first.Run(t.Context(), r)
		ended := m.disk["a"].GetOperation().GetState() == agentpb.State_STATE_SUCCEEDED
		first.Close()
		m.left = 1 << 30
		if m.disk["a"] == nil || ended {
			continue // not begun, or all paused before
		}
		delete(m.phases, 2)
		op, err := m.agent(t).Run(t.Context(), r)
		if err != nil || op.State != agentpb.State_STATE_FAILED || !m.is(checkpoint.Running) {
			t.Errorf("death after %d calls: %v %v: %v", calls, op, err, m.phases)
		}
	}
}

// An agent that comes back after the deadline of a pause lets all go on that it had begun
// to pause, and none that was paused before.
func TestDeadlinePassesWithoutAgent(t *testing.T) {
	for _, path := range [][]checkpoint.Phase{(&checkpoint.Shim{}).Path(), (&checkpoint.Driver{}).Path(), (&checkpoint.Hybrid{}).Path()} {
		deadlinePasses(t, path)
	}
}

func deadlinePasses(t *testing.T, path []checkpoint.Phase) {
	for calls := 1; calls < 12; calls++ {
		m := newMachine(3, checkpoint.Running, path...)
		end := checkpoint.End(m)
		m.phases[3], m.kept[3] = end, true
		m.left = calls
		first := m.agent(t)
		first.Run(t.Context(), request("a", actPause, 1, 2, 3))
		first.Close()
		m.left = 1 << 30
		record := m.disk["a"]
		if record.Operation.State != agentpb.State_STATE_ACTING {
			break
		}
		record.Operation.Deadline = timestamppb.New(time.Now().Add(-time.Second))
		second := m.agent(t)
		op, err := second.wait(t.Context(), second.operations["a"])
		if err != nil || op.State != agentpb.State_STATE_FAILED || m.phases[1] != checkpoint.Running || m.phases[2] != checkpoint.Running || m.phases[3] != end || !m.kept[3] {
			t.Errorf("death after %d calls: %v %v: %v, kept %v", calls, op, err, m.phases, m.kept)
		}
	}
}

// Without an agent that comes back, the leases end what is not whole.
func TestLeasesEndWhatNoAgentEnds(t *testing.T) {
	for calls := range 12 {
		m := newMachine(3, checkpoint.Running)
		m.left = calls
		a := m.agent(t)
		op, _ := a.Run(t.Context(), request("a", actPause, 1, 2, 3))
		a.Close()
		m.leasesEnd()
		if op.GetState() == agentpb.State_STATE_SUCCEEDED && !m.is(checkpoint.Saved) {
			t.Errorf("death after %d calls: it said that all are paused, and then %v", calls, m.phases)
		}
	}
}

func TestSameIDIsSameOperation(t *testing.T) {
	m := newMachine(2, checkpoint.Running)
	a := m.agent(t)
	r := request("a", actPause, 1, 2)
	first, err := a.Run(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Run(t.Context(), request("b", actResume, 1, 2)); err != nil {
		t.Fatal(err)
	}
	again, err := a.Run(t.Context(), r)
	if err != nil || !proto.Equal(first, again) || !m.is(checkpoint.Running) {
		t.Errorf("the call again: %v %v, first %v; processes %v", again, err, first, m.phases)
	}
	for what, other := range map[string]*agentpb.RunRequest{
		"action": {Id: "a", Action: actResume, Pids: r.Pids, Deadline: r.Deadline},
		"pids":   {Id: "a", Action: actPause, Pids: []int32{1}, Deadline: r.Deadline},
		"pod":    {Id: "a", Action: actPause, Pids: r.Pids, Pod: "p", Deadline: r.Deadline},
	} {
		if _, err := a.Run(t.Context(), other); status.Code(err) != codes.AlreadyExists {
			t.Errorf("another %s with the same ID: %v", what, err)
		}
	}
}

func TestRefusedRequests(t *testing.T) {
	m := newMachine(1, checkpoint.Running)
	a := m.agent(t)
	soon := timestamppb.New(time.Now().Add(time.Minute))
	for _, c := range []struct {
		r    *agentpb.RunRequest
		code codes.Code
		text string
	}{
		{&agentpb.RunRequest{Id: "../a", Action: actPause, Deadline: soon}, codes.InvalidArgument, "id: expected"},
		{&agentpb.RunRequest{Action: actPause, Deadline: soon}, codes.InvalidArgument, "id: expected"},
		{&agentpb.RunRequest{Id: "a", Deadline: soon}, codes.InvalidArgument, "action: expected"},
		{&agentpb.RunRequest{Id: "a", Action: actPause}, codes.InvalidArgument, "deadline: expected"},
		{&agentpb.RunRequest{Id: "a", Action: actPause, Pod: "..", Deadline: soon}, codes.InvalidArgument, "pod: expected"},
		{&agentpb.RunRequest{Id: "a", Action: actPause, Pod: "a/b", Deadline: soon}, codes.InvalidArgument, "pod: expected"},
		{&agentpb.RunRequest{Id: "a", Action: actPause, Pids: []int32{1, 1}, Deadline: soon}, codes.InvalidArgument, "pids: expected"},
		{&agentpb.RunRequest{Id: "a", Action: actPause, Pids: []int32{-1}, Deadline: soon}, codes.InvalidArgument, "pids: expected"},
		{&agentpb.RunRequest{Id: "a", Action: actPause, Pids: []int32{7}, Deadline: soon}, codes.NotFound, "process 7"},
		{&agentpb.RunRequest{Id: "a", Action: actPause, Deadline: soon}, codes.NotFound, "no process"},
		{&agentpb.RunRequest{Id: "a", Action: actPause, Pids: []int32{1}, Deadline: timestamppb.New(time.Now().Add(-time.Second))}, codes.DeadlineExceeded, "has passed"},
		{&agentpb.RunRequest{Id: "a", Action: actPause, Pids: []int32{1}, Deadline: timestamppb.New(time.Now().Add(25 * time.Hour))}, codes.InvalidArgument, "at most 24h"},
	} {
		if _, err := a.Run(t.Context(), c.r); status.Code(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v: %v; expected %v with %q", c.r, err, c.code, c.text)
		}
	}
	if len(m.disk) != 0 || !m.is(checkpoint.Running) {
		t.Errorf("refused requests left %v, processes %v", m.disk, m.phases)
	}
	m.full = true
	if _, err := a.Run(t.Context(), request("a", actPause, 1)); status.Code(err) != codes.Internal || !m.is(checkpoint.Running) {
		t.Errorf("with a full disk: %v, processes %v", err, m.phases)
	}
}

// A pause that cannot end is in the way of others until it is cancelled; then all go on.
func TestCancel(t *testing.T) {
	m := newMachine(3, checkpoint.Running)
	m.stuck = 2
	a := m.agent(t)
	answers := make(chan *agentpb.Operation)
	go func() {
		op, _ := a.Run(context.Background(), request("a", actPause, 1, 2))
		answers <- op
	}()
	for {
		if op, err := a.Get(t.Context(), &agentpb.GetRequest{Id: "a"}); err == nil && op.State == agentpb.State_STATE_ACTING {
			break
		}
	}
	if _, err := a.Run(t.Context(), request("b", actResume, 2, 3)); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), `"a" (pause)`) {
		t.Errorf("a second operation on process 2: %v", err)
	}
	if op, err := a.Run(t.Context(), request("c", actPause, 3)); err != nil || op.State != agentpb.State_STATE_SUCCEEDED {
		t.Errorf("an operation on process 3: %v %v", op, err)
	}
	if s, err := a.Status(t.Context(), nil); err != nil || len(s.Operations) != 1 || s.Operations[0].Id != "a" {
		t.Errorf("status: %v %v", s, err)
	}
	op, err := a.Cancel(t.Context(), &agentpb.CancelRequest{Id: "a"})
	if err != nil || op.State != agentpb.State_STATE_FAILED || !strings.Contains(op.Message, "cancelled") {
		t.Errorf("cancelled: %v %v", op, err)
	}
	if waited := <-answers; !proto.Equal(waited, op) {
		t.Errorf("who waited got %v; cancel %v", waited, op)
	}
	if m.phases[1] != checkpoint.Running || m.phases[2] != checkpoint.Running {
		t.Errorf("after the cancel: %v", m.phases)
	}
	if _, err := a.Cancel(t.Context(), &agentpb.CancelRequest{Id: "z"}); status.Code(err) != codes.NotFound {
		t.Errorf("cancel of an unknown operation: %v", err)
	}
}

// What stops the agent gives up what is at work, and the next agent begins it again.
func TestStopAndStart(t *testing.T) {
	m := newMachine(2, checkpoint.Running)
	m.stuck = 1
	a := m.agent(t)
	failed := make(chan error)
	r := request("a", actPause, 1, 2)
	go func() {
		_, err := a.Run(context.Background(), r)
		failed <- err
	}()
	for {
		if _, err := a.Get(t.Context(), &agentpb.GetRequest{Id: "a"}); err == nil {
			break
		}
	}
	a.Close()
	if err := <-failed; status.Code(err) != codes.Unavailable || !m.is(checkpoint.Running) {
		t.Errorf("who waited got %v; processes %v", err, m.phases)
	}
	m.stuck = 0
	if op, err := m.agent(t).Run(t.Context(), r); err != nil || op.State != agentpb.State_STATE_SUCCEEDED || op.Attempts != 2 || !m.is(checkpoint.Saved) {
		t.Errorf("the next agent: %v %v; processes %v", op, err, m.phases)
	}
}

// Operations are forgotten an hour after their end, and never before their deadline: a
// repeated call would begin them again.
func TestOldOperationsAreForgotten(t *testing.T) {
	m := newMachine(1, checkpoint.Running)
	a := m.agent(t)
	for _, id := range []string{"ended-and-late", "ended", "late"} {
		if _, err := a.Run(t.Context(), request(id, actPause, 1)); err != nil {
			t.Fatal(err)
		}
		op := a.operations[id].record.Operation
		if id != "late" {
			op.Ended = timestamppb.New(time.Now().Add(-2 * remembered))
		}
		if id != "ended" {
			op.Deadline = timestamppb.New(time.Now().Add(-time.Second))
		}
	}
	if _, err := a.Run(t.Context(), request("new", actPause, 1)); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(m.disk)); !slices.Equal(got, []string{"ended", "late", "new"}) {
		t.Errorf("on disk: %v", got)
	}
}

// Files: what was put is there; what a crash left half is not; what is damaged is left aside.
func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "operations")
	var logged strings.Builder
	log := slog.New(slog.NewTextHandler(&logged, nil))
	f, err := openFiles(dir, log)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openFiles(dir, log); err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Errorf("a second agent: %v", err)
	}
	var want []*agentpb.Record
	for i := range 3 {
		id := fmt.Sprintf("op-%d", i)
		r := &agentpb.Record{Request: request(id, actPause, 1), Operation: &agentpb.Operation{Id: id, State: agentpb.State_STATE_ACTING}, Paused: []int32{int32(i)}}
		if err := f.put(r); err != nil {
			t.Fatal(err)
		}
		want = append(want, r)
	}
	whole, err := os.ReadFile(f.path("op-0"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"half.json.new": whole[:len(whole)/2], "cut.json": whole[:len(whole)/2], "empty.json": nil,
		"other.json": whole, "notes.txt": []byte("of a person"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.close()
	f, err = openFiles(dir, log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	got, err := f.all()
	if err != nil || !slices.EqualFunc(got, want, func(a, b *agentpb.Record) bool { return proto.Equal(a, b) }) {
		t.Errorf("read %v %v; put %v", got, err, want)
	}
	entries, _ := filepath.Glob(filepath.Join(dir, "*"))
	var names []string
	for _, e := range entries {
		names = append(names, filepath.Base(e))
	}
	if want := []string{"cut.json.damaged", "empty.json.damaged", "lock", "notes.txt", "op-0.json", "op-1.json", "op-2.json", "other.json.damaged"}; !slices.Equal(names, want) {
		t.Errorf("the folder has %v; expected %v", names, want)
	}
	if strings.Count(logged.String(), "damaged") != 3 {
		t.Errorf("the log has:\n%s", logged.String())
	}
}

// An agent refuses what is meant for another node: the address may have been given away.
func TestOtherNode(t *testing.T) {
	a := newMachine(1, checkpoint.Running).agent(t)
	for name, ask := range map[string]func(node string) error{
		"Run": func(node string) error {
			_, err := a.Run(t.Context(), &agentpb.RunRequest{Id: "x", Action: agentpb.Action_ACTION_PAUSE, Node: node, Deadline: timestamppb.New(time.Now().Add(time.Minute))})
			return err
		},
		"Status": func(node string) error {
			_, err := a.Status(t.Context(), &agentpb.StatusRequest{Node: node})
			return err
		},
		"Advance": func(node string) error {
			_, err := a.Advance(t.Context(), &agentpb.AdvanceRequest{Job: "j", Pids: []int32{1}, Epoch: 1, Goal: "Gate", Lease: durationpb.New(time.Minute), Node: node})
			return err
		},
	} {
		if err := ask("m"); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), `the request is for node "m"`) {
			t.Errorf("%s for another node: %v", name, err)
		}
		if err := ask("n"); err != nil && strings.Contains(err.Error(), "the request is for node") {
			t.Errorf("%s for this node: %v", name, err)
		}
	}
}

// Whoever learns that the processes of an image were not brought back lets them go on elsewhere. So that is on disk first: an agent that
// starts again would bring them back otherwise.
func TestGivesUpOnDiskFirst(t *testing.T) {
	m := newMachine(0, checkpoint.Running)
	m.fills = true
	a := m.agent(t)
	r := request("back", actRestore)
	r.Image = "process-7"
	ended := make(chan *agentpb.Operation, 1)
	go func() {
		op, _ := a.Run(t.Context(), r)
		ended <- op
	}()
	<-m.lost
	if op, err := a.Get(t.Context(), &agentpb.GetRequest{Id: "back"}); err != nil || op.State != agentpb.State_STATE_ACTING {
		t.Fatalf("before it is on disk: %v, %v", op, err)
	}
	m.mu.Lock()
	m.full, m.fills = false, false
	m.mu.Unlock()
	if op := <-ended; op.GetState() != agentpb.State_STATE_FAILED || m.disk["back"].Operation.State != agentpb.State_STATE_FAILED {
		t.Errorf("%v; on disk %v", op, m.disk["back"])
	}
}

// returns is a machine whose store brings processes back as do says.
type returns struct {
	*machine
	do func(ctx context.Context, s *offload.Steps) error
}

func (r returns) Return(ctx context.Context, _, _ string, _ map[string]string, s *offload.Steps, _ time.Duration) error {
	return r.do(ctx, s)
}

// Processes that are made and wait would go on by their lease, so an operation that has made some does not fail before they have ended: neither by its
// deadline nor by a cancel nor where the agent stops.
func TestWhatIsMadeIsEnded(t *testing.T) {
	for _, by := range []string{"deadline", "cancel", "cancel and stop"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			m, began, tries := newMachine(0, checkpoint.Running), make(chan struct{}), 0
			a := m.agent(t)
			a.o.Images = returns{m, func(ctx context.Context, s *offload.Steps) error {
				if tries++; tries == 1 {
					close(began)
					<-ctx.Done()
					return offload.ErrUnfinished
				}
				if op, err := a.Get(t.Context(), &agentpb.GetRequest{Id: "back"}); err != nil || op.State != agentpb.State_STATE_ACTING {
					t.Errorf("while processes wait: %v, %v", op, err)
				}
				return ctx.Err()
			}}
			r := request("back", actRestore)
			r.Image = "process-7"
			if by == "deadline" {
				r.Deadline = timestamppb.New(time.Now().Add(100 * time.Millisecond))
			}
			ended := make(chan *agentpb.Operation, 1)
			go func() {
				limited, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				op, _ := a.Run(limited, r)
				ended <- op
			}()
			<-began
			if by != "deadline" {
				op, err := a.find("back")
				if err != nil {
					t.Fatal(err)
				}
				op.cancel(errCancelled)
			}
			if by == "cancel and stop" {
				a.Close()
				if state := m.disk["back"].Operation.State; state != agentpb.State_STATE_ACTING {
					t.Errorf("on disk: %v", state)
				}
				return
			}
			if op := <-ended; op.GetState() != agentpb.State_STATE_SUCCEEDED {
				t.Errorf("%v", op)
			}
		})
	}
}

// A store that cannot be opened says nothing of what an agent that died has made.
func TestReturnWithoutItsStore(t *testing.T) {
	closed := errors.New("no such folder")
	s := Store{Open: func(context.Context) (*image.Images, error) { return nil, closed }}
	if err := s.Return(t.Context(), "none", "id", nil, &offload.Steps{}, time.Second); !errors.Is(err, closed) || errors.Is(err, offload.ErrUnfinished) {
		t.Error(err)
	}
	if err := s.Return(t.Context(), "none", "id", nil, &offload.Steps{Making: []int{7}}, time.Second); !errors.Is(err, offload.ErrUnfinished) {
		t.Error(err)
	}
}

// GPUs are named of an image alone, and by UUIDs.
func TestRequestNamesGPUs(t *testing.T) {
	const one, other = "GPU-5d1f0c4e-8b1c-4f0e-9f55-0c6f2a7d3b11", "GPU-77aa03de-52b9-4c06-8a4e-1f9d0b6c2e42"
	for _, c := range []struct {
		image string
		gpus  map[string]string
		want  string
	}{
		{"i", map[string]string{one: other}, ""},
		{"", map[string]string{one: other}, "gpus: expected an image"},
		{"i", map[string]string{one: "1"}, "gpus: expected UUIDs"},
		{"i", map[string]string{"GPU-5d1f0c4e": other}, "gpus: expected UUIDs"},
		{"i", map[string]string{one: other, "GPU-5D" + one[6:]: one}, "each once"},
		{"i", map[string]string{one: other, other: other}, "each once"},
	} {
		r := request("a", actRestore)
		r.Image, r.Gpus = c.image, c.gpus
		if err := valid(r); c.want == "" && err != nil || c.want != "" && (status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q %v: %v; expected %q", c.image, c.gpus, err, c.want)
		}
	}
}
