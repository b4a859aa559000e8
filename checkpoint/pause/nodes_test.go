//go:build linux

package pause

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/gpu"
	"github.com/muster-sched/muster/gpu/gputest"
)

func TestMain(m *testing.M) { gputest.Main(m) }

const mib = 1 << 20

// agents gives a participant for each program, each behind a faulty network. A killed
// agent leaves its processes as they are, and the next one observes them.
func agents(t *testing.T, n *gputest.Node, programs []*gputest.Program, seed uint64) ([]Participant, []*network) {
	var members []Participant
	var networks []*network
	for i, p := range programs {
		file := filepath.Join(t.TempDir(), "member")
		var shim *checkpoint.Shim
		net := newNetwork(seed+uint64(i), func() Participant {
			if shim != nil {
				shim.Close() // as the kernel does when a process is killed
			}
			shim = &checkpoint.Shim{Dir: n.Dir}
			held := shim
			return &Local{Backend: held, SetLease: func(d time.Duration) { held.Lease = d }, Processes: []int{p.PID}, File: file}
		})
		t.Cleanup(func() { shim.Close() })
		members, networks = append(members, net), append(networks, net)
	}
	return members, networks
}

// expectPhase compares what the processes are with what was reported.
func expectPhase(t *testing.T, n *gputest.Node, programs []*gputest.Program, want checkpoint.Phase) {
	t.Helper()
	b := &checkpoint.Shim{Dir: n.Dir}
	defer b.Close()
	for _, p := range programs {
		if got, err := b.Phase(p.PID); got != want || err != nil {
			t.Fatalf("process %d is %s, %v; expected %s", p.PID, got, err, want)
		}
	}
}

// Ranks in a collective with each other are paused together or go on together, through
// a network with faults, and end with the collectives done.
func TestRanksOfSeveralNodes(t *testing.T) {
	n := gputest.NewNode(t, 64)
	counter := filepath.Join(t.TempDir(), "counter")
	if err := os.WriteFile(counter, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	programs := []*gputest.Program{n.Start(t), n.Start(t)}
	var sums []string
	for _, p := range programs {
		p.Do("alloc %d", mib)
		sums = append(sums, p.Do("sum 0 %d", mib))
	}
	members, networks := agents(t, n, programs, 7)
	o := Options{Job: "job", Options: checkpoint.Options{Timeout: 100 * time.Millisecond, Retries: 1, Backoff: time.Millisecond}, Lease: time.Minute}

	// One rank has entered a collective that the other one has not: both go on.
	programs[0].Send("meet %s 2 1", counter)
	for arrived := false; !arrived; {
		text, _ := os.ReadFile(counter)
		arrived = text[0] == 1
	}
	store := File(filepath.Join(t.TempDir(), "coordinator"))
	err := Pause(context.Background(), members, store, o)
	var given *checkpoint.UnpausableError
	unfinished := &UnfinishedError{}
	if !errors.As(err, &given) && !errors.As(err, &unfinished) {
		t.Fatalf("%v", err)
	}
	for _, net := range networks {
		net.heal()
	}
	for errors.As(err, &unfinished) {
		_, err = Recover(context.Background(), members, store, o)
	}
	expectPhase(t, n, programs, checkpoint.Running)
	programs[1].Do("meet %s 2 1", counter)
	if got := programs[0].Line(); got != "met" {
		t.Error(got)
	}

	// Between collectives, or when they have ended, they are paused.
	o.Retries = 10000
	for _, p := range programs {
		p.Send("meet %s 2 200", counter)
	}
	for err = unfinished; errors.As(err, &unfinished); { // on a slow machine not even the way back is gone in this time
		err = Pause(context.Background(), members, store, o)
	}
	if err != nil {
		t.Fatal(err)
	}
	expectPhase(t, n, programs, checkpoint.Saved)
	o.Timeout, o.Lease = 10*time.Second, time.Minute
	if err := Resume(context.Background(), members, store, o); err != nil {
		t.Fatal(err)
	}
	for i, p := range programs {
		if got := p.Line(); got != "met" {
			t.Error(got)
		}
		if got := p.Do("sum 0 %d", mib); got != sums[i] {
			t.Errorf("%s before, %s after", sums[i], got)
		}
	}
}

// Agents are killed at any moment, messages get lost, and the coordinator dies at each of
// its decisions: the job ends running or paused as a whole, with its memory.
func TestFaultsOnProcesses(t *testing.T) {
	n := gputest.NewNode(t, 64)
	programs := []*gputest.Program{n.Start(t), n.Start(t), n.Start(t)}
	var sums []string
	for _, p := range programs {
		p.Do("alloc %d", 2*mib)
		sums = append(sums, p.Do("sum 0 %d", 2*mib))
	}
	o := quick(3)
	for seed := range 16 {
		members, networks := agents(t, n, programs, uint64(100*seed))
		file := File(filepath.Join(t.TempDir(), "coordinator"))
		store := &dying{Store: file, left: seed % 8, after: seed >= 8}
		if err := Pause(context.Background(), members, store, o); err == nil {
			expectPhase(t, n, programs, checkpoint.Saved)
		}
		for _, net := range networks {
			net.heal()
		}
		s, err := Recover(context.Background(), members, file, o)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		want := checkpoint.Running
		if s.Paused() {
			want = checkpoint.Saved
		}
		expectPhase(t, n, programs, want)
		if err := Resume(context.Background(), members, file, o); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i, p := range programs {
			if got := p.Do("sum 0 %d", 2*mib); got != sums[i] {
				t.Fatalf("seed %d: %s before, %s after", seed, sums[i], got)
			}
		}
		for _, m := range members {
			m.(*network).agent.(*Local).Backend.(*checkpoint.Shim).Close()
		}
	}
}

// A resume for which one node has no room leaves all paused; then all leases are gone.
func TestResumeWithoutRoomOnOneNode(t *testing.T) {
	n := gputest.NewNode(t, 64)
	small, large, guest := n.Start(t), n.Start(t), n.Start(t)
	small.Do("alloc %d", 4*mib)
	large.Do("alloc %d", 40*mib)
	programs := []*gputest.Program{small, large}
	members, networks := agents(t, n, programs, 1)
	for _, net := range networks {
		net.heal()
	}
	store := File(filepath.Join(t.TempDir(), "coordinator"))
	o := quick(0)
	if err := Pause(context.Background(), members, store, o); err != nil {
		t.Fatal(err)
	}
	guest.Do("alloc %d", 32*mib)
	err := Resume(context.Background(), members, store, o)
	if err == nil || fmt.Sprint(err) == "" {
		t.Fatal("resumed without room")
	}
	t.Log(err)
	expectPhase(t, n, programs, checkpoint.Saved)
	guest.Kill()
	if err := Resume(context.Background(), members, store, o); err != nil {
		t.Fatal(err)
	}
	small.Do("sum 0 %d", 4*mib)
}

// A pause that is interrupted while memory is being copied says that all go on when they
// do: the copy is no longer stopped then, and has to be taken back.
func TestInterruptedCopy(t *testing.T) {
	n := gputest.NewNode(t, 128)
	p := n.Start(t)
	p.Do("alloc %d", 96*mib)
	sum := p.Do("sum 0 %d", 96*mib)
	shim := &checkpoint.Shim{Dir: n.Dir}
	defer shim.Close()
	member := &Local{Backend: shim, SetLease: func(d time.Duration) { shim.Lease = d }, Processes: []int{p.PID}, File: filepath.Join(t.TempDir(), "member")}
	store := File(filepath.Join(t.TempDir(), "coordinator"))
	o := Options{Job: "job", Options: checkpoint.Options{Timeout: 20 * time.Second}, Lease: time.Minute}
	page, err := gpu.OpenPage(n.Dir, p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	for range 3 {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- Pause(ctx, []Participant{member}, store, o) }()
		for page.Gate() != gpu.Sealed && !page.IsSaved() {
		}
		cancel()
		if err := <-ended; err == nil {
			if err := Resume(context.Background(), []Participant{member}, store, o); err != nil { // it was faster
				t.Fatal(err)
			}
		} else if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		expectPhase(t, n, []*gputest.Program{p}, checkpoint.Running)
	}
	if got := p.Do("sum 0 %d", 96*mib); got != sum {
		t.Errorf("%s before, %s after", sum, got)
	}
}
