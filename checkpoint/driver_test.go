//go:build linux

package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	protocol "github.com/muster-sched/muster/checkpoint/pause"
	"github.com/muster-sched/muster/gpu"
	"github.com/muster-sched/muster/gpu/gputest"
)

// both are the backends that use the driver's checkpoints.
var both = []string{"driver", "hybrid"}

type closer interface {
	checkpoint.Backend
	Close()
}

func backendOf(t testing.TB, n *gputest.Node, name string) closer {
	program, libcuda, environment := n.Caller()
	d := &checkpoint.Driver{Calls: &gpu.Calls{Program: program, Driver: libcuda, Dir: n.Dir, Environment: environment}}
	var b closer = d
	if name == "hybrid" {
		b = &checkpoint.Hybrid{Shim: &checkpoint.Shim{Dir: n.Dir, Lease: time.Minute}, Driver: d}
	}
	t.Cleanup(b.Close)
	return b
}

func startFor(t testing.TB, n *gputest.Node, name string) *gputest.Program {
	if name == "driver" {
		return n.StartPlain(t)
	}
	return n.Start(t)
}

func phaseIs(t testing.TB, b checkpoint.Backend, want checkpoint.Phase, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if phase, err := b.Phase(pid); phase != want || err != nil {
			t.Errorf("process %d is %s, %v; expected %s", pid, phase, err, want)
		}
	}
}

// dying is a backend whose caller before ends after the first look at a process.
type dying struct {
	checkpoint.Backend
	end func()
}

func (d *dying) Phase(pid int) (checkpoint.Phase, error) {
	phase, err := d.Backend.Phase(pid)
	d.end()
	return phase, err
}

// What a caller that dies had paused, and not kept, goes on at its end. Whoever pauses it, and saw it before that, pauses it again.
func TestDriverPauseAfterACallerThatDied(t *testing.T) {
	for _, name := range both {
		t.Run(name, func(t *testing.T) {
			n := gputest.NewNode(t, 64)
			p := startFor(t, n, name)
			p.Do("alloc %d", mib)
			before, b := backendOf(t, n, name), backendOf(t, n, name)
			for _, to := range before.Path() {
				if err := before.Step(ctx, p.PID, to); err != nil {
					t.Fatal(err)
				}
			}
			if err := checkpoint.Pause(ctx, &dying{Backend: b, end: sync.OnceFunc(before.Close)}, []int{p.PID}, patient); err != nil {
				t.Fatal(err)
			}
			b.Close()
			phaseIs(t, b, checkpoint.Checkpointed, p.PID)
			if err := checkpoint.Resume(ctx, b, []int{p.PID}, time.Minute); err != nil {
				t.Fatal(err)
			}
			for _, to := range b.Path() {
				if err := b.Step(ctx, p.PID, to); err != nil {
					t.Fatal(err)
				}
			}
			after := backendOf(t, n, name)
			l := &protocol.Local{Backend: &dying{Backend: after, end: sync.OnceFunc(b.Close)}, SetLease: func(time.Duration) {}, Processes: []int{p.PID}, File: filepath.Join(t.TempDir(), "job")}
			if r, err := l.Advance(ctx, protocol.Request{Job: "j", Epoch: 1, Goal: protocol.Gate, Lease: time.Minute}); err != nil || r.Outcome != protocol.Reached {
				t.Fatal(r, err)
			}
			phaseIs(t, after, map[string]checkpoint.Phase{"driver": checkpoint.Locked, "hybrid": checkpoint.Saved}[name], p.PID) // the shim has a lease
		})
	}
}

// A program that is paused ends with the same bits, and leaves nothing on the GPU, its context neither.
func TestDriverPausedProgramEndsTheSame(t *testing.T) {
	for _, name := range both {
		t.Run(name, func(t *testing.T) {
			n := gputest.NewNode(t, 64)
			other := n.StartPlain(t)
			empty := other.Do("left")
			n.Set("MUSTER_FAKE_GPU_CONTEXT_MIB", "8")
			work := fmt.Sprintf("train 0 %d 600", mib)
			undisturbed := n.StartPlain(t)
			undisturbed.Do("alloc %d", mib)
			undisturbed.Send("%s", work)
			want := undisturbed.Until("sum ")
			undisturbed.Kill()
			p := startFor(t, n, name)
			p.Do("alloc %d", mib)
			p.Send("%s", work)
			for _, step := range []string{"100", "200", "500"} {
				p.Until("step " + step)
				b := backendOf(t, n, name)
				if err := checkpoint.Pause(ctx, b, []int{p.PID}, patient); err != nil {
					t.Fatal(err)
				}
				b.Close() // it is kept
				b = backendOf(t, n, name)
				phaseIs(t, b, checkpoint.Checkpointed, p.PID)
				if got := other.Do("left"); got != empty {
					t.Errorf("paused at step %s: %s; of an idle GPU: %s", step, got, empty)
				}
				resume(t, b, p.PID)
				b.Close()
			}
			if got := p.Until("sum "); got != want {
				t.Errorf("the program ended with %s after three pauses, and with %s without", got, want)
			}
		})
	}
}

// Whichever call fails, of whichever rank and however: all that live are paused, or all go on.
func TestDriverFaults(t *testing.T) {
	const killed = 9999
	for _, name := range both {
		for call := 1; call <= 2; call++ {
			for _, result := range []int{2, 304, 401, 600, 801, killed} {
				t.Run(fmt.Sprintf("%s/%d/%d", name, call, result), func(t *testing.T) {
					n := gputest.NewNode(t, 64)
					b := backendOf(t, n, name)
					p, q := startFor(t, n, name), startFor(t, n, name)
					q.Do("alloc %d", mib)
					sum := q.Do("sum 0 %d", mib)
					n.Fault(t, p.PID, call, result, -1)
					if result == killed {
						go func() { p.Wait() }()
					}
					err := checkpoint.Pause(ctx, b, []int{p.PID, q.PID}, checkpoint.Options{Timeout: time.Minute})
					if err == nil {
						t.Fatal("the pause did not fail")
					}
					phaseIs(t, b, checkpoint.Running, q.PID)
					if result != killed {
						phaseIs(t, b, checkpoint.Running, p.PID)
					}
					if got := q.Do("sum 0 %d", mib); got != sum {
						t.Errorf("%s before, %s after", sum, got)
					}
				})
			}
		}
	}
}

// A process whose state the driver lost is reported; the other ranks go on.
func TestDriverFailedState(t *testing.T) {
	for _, name := range both {
		n := gputest.NewNode(t, 64)
		b := backendOf(t, n, name)
		p, q := startFor(t, n, name), startFor(t, n, name)
		n.Fault(t, p.PID, 2, 999, 3)
		if err := checkpoint.Pause(ctx, b, []int{p.PID, q.PID}, patient); !errors.Is(err, gpu.ErrFailed) {
			t.Errorf("%v", err)
		}
		phaseIs(t, b, checkpoint.Running, q.PID)
	}
}

// A resume of several on a GPU without room for one leaves all paused.
func TestDriverResumeWithoutRoom(t *testing.T) {
	for _, name := range both {
		n := gputest.NewNode(t, 64)
		b := backendOf(t, n, name)
		small, large, guest := startFor(t, n, name), startFor(t, n, name), n.StartPlain(t)
		small.Do("alloc %d", 4*mib)
		large.Do("alloc %d", 40*mib)
		sum := large.Do("sum 0 %d", 40*mib)
		if err := checkpoint.Pause(ctx, b, []int{small.PID, large.PID}, patient); err != nil {
			t.Fatal(err)
		}
		guest.Do("alloc %d", 32*mib)
		if err := checkpoint.Resume(ctx, b, []int{small.PID, large.PID}, time.Minute); !errors.Is(err, gpu.ErrNoMemory) {
			t.Fatal(err)
		}
		phaseIs(t, b, checkpoint.Checkpointed, small.PID, large.PID)
		guest.Kill()
		resume(t, b, small.PID, large.PID)
		if got := large.Do("sum 0 %d", 40*mib); got != sum {
			t.Errorf("%s before, %s after", sum, got)
		}
	}
}

// The time limit of a lock and that of the try end together: that the lock was answered is not forgotten, or the process could not be let go on.
func TestDriverLockThatEndsInTime(t *testing.T) {
	n := gputest.NewNode(t, 64)
	p := n.StartPlain(t)
	counter := filepath.Join(t.TempDir(), "counter")
	if err := os.WriteFile(counter, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Send("meet %s 2 1", counter)
	for arrived := false; !arrived; {
		text, _ := os.ReadFile(counter)
		arrived = text[0] == 1
	}
	b := backendOf(t, n, "driver").(*checkpoint.Driver)
	call, err := b.Calls.Begin(ctx, "lock", p.PID, 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		if _, err := call.Wait(limited); !errors.Is(err, context.DeadlineExceeded) || limited.Err() != nil {
			t.Fatal(err)
		}
		cancel()
	}
}

// A rank that waits in a collective for a paused one: the lock's time limit passes, and both go on.
func TestDriverRanksInCollective(t *testing.T) {
	for _, name := range both {
		n := gputest.NewNode(t, 64)
		b := backendOf(t, n, name)
		counter := filepath.Join(t.TempDir(), "counter")
		if err := os.WriteFile(counter, make([]byte, 4096), 0o600); err != nil {
			t.Fatal(err)
		}
		a, z := startFor(t, n, name), startFor(t, n, name)
		a.Send("meet %s 2 1", counter)
		for arrived := false; !arrived; { // the kernel of a has begun
			text, _ := os.ReadFile(counter)
			arrived = text[0] == 1
		}
		err := checkpoint.Pause(ctx, b, []int{a.PID, z.PID}, checkpoint.Options{Timeout: 300 * time.Millisecond, Retries: 1, Backoff: time.Millisecond})
		var given *checkpoint.UnpausableError
		if !errors.As(err, &given) || given.Tries != 2 || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v", err)
		}
		phaseIs(t, b, checkpoint.Running, a.PID, z.PID)
		z.Do("meet %s 2 1", counter)
		if got := a.Line(); got != "met" {
			t.Error(got)
		}
	}
}

// A caller that dies in any phase leaves a process that goes on; so does a call that was under way.
func TestDriverCallerDies(t *testing.T) {
	for _, name := range both {
		path := backendOf(t, gputest.NewNode(t, 64), name).Path()
		for last := 1; last < len(path); last++ {
			n := gputest.NewNode(t, 64)
			b := backendOf(t, n, name)
			p := startFor(t, n, name)
			p.Do("alloc %d", mib)
			sum := p.Do("sum 0 %d", mib)
			for _, to := range path[1 : last+1] {
				if err := b.Step(ctx, p.PID, to); err != nil {
					t.Fatal(err)
				}
			}
			b.Close() // as its end does: the pipe to the program that makes the calls closes
			b = backendOf(t, n, name)
			if name == "driver" {
				phaseIs(t, b, checkpoint.Running, p.PID)
			}
			resume(t, b, p.PID)
			if got := p.Do("sum 0 %d", mib); got != sum {
				t.Errorf("%s: %s before, %s after", path[last], sum, got)
			}
		}
	}
}

// A checkpoint that takes longer than the step waits for ends, and is then undone.
func TestDriverSlowCheckpoint(t *testing.T) {
	for _, name := range both {
		n := gputest.NewNode(t, 64)
		b := backendOf(t, n, name)
		p := startFor(t, n, name)
		n.Fault(t, p.PID, 2, 10000+1500, -1)
		err := checkpoint.Pause(ctx, b, []int{p.PID}, checkpoint.Options{Timeout: time.Second})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		phaseIs(t, b, checkpoint.Running, p.PID)
		p.Do("alloc %d", mib)
	}
}

// A restore that takes longer than a resume waits for ends, and the process is then paused again.
func TestDriverSlowRestore(t *testing.T) {
	for _, name := range both {
		n := gputest.NewNode(t, 64)
		b := backendOf(t, n, name)
		p := startFor(t, n, name)
		if err := checkpoint.Pause(ctx, b, []int{p.PID}, patient); err != nil {
			t.Fatal(err)
		}
		n.Fault(t, p.PID, 3, 10000+1500, -1)
		if err := checkpoint.Resume(ctx, b, []int{p.PID}, time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		b.Close()
		b = backendOf(t, n, name)
		phaseIs(t, b, checkpoint.Checkpointed, p.PID)
		resume(t, b, p.PID)
		p.Do("alloc %d", mib)
	}
}

// Two commands do not change one process, and a driver before r570 is named.
func TestDriverRefuses(t *testing.T) {
	n := gputest.NewNode(t, 64)
	b, other := backendOf(t, n, "driver"), backendOf(t, n, "driver")
	p := n.StartPlain(t)
	if err := checkpoint.Pause(ctx, b, []int{p.PID}, patient); err != nil {
		t.Fatal(err)
	}
	if err := checkpoint.Resume(ctx, other, []int{p.PID}, time.Second); !errors.Is(err, gpu.ErrBusy) {
		t.Errorf("%v", err)
	}
	b.Close()
	resume(t, other, p.PID)
	p.Kill()
	if _, err := other.Phase(p.PID); !errors.Is(err, gpu.ErrGone) {
		t.Errorf("%v", err)
	}
	n.Set("MUSTER_FAKE_GPU_DRIVER", "550")
	old := n.StartPlain(t)
	if err := checkpoint.Pause(ctx, backendOf(t, n, "driver"), []int{old.PID}, patient); !errors.Is(err, gpu.ErrNotSupported) {
		t.Errorf("%v", err)
	}
}

// A process that another program has is busy, or waited for: what that has done is seen then.
func TestDriverPatience(t *testing.T) {
	n := gputest.NewNode(t, 64)
	p := n.StartPlain(t)
	lock, err := os.OpenFile(filepath.Join(n.Dir, fmt.Sprintf("%d.lock", p.PID)), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	b := backendOf(t, n, "driver").(*checkpoint.Driver)
	if err := b.Step(ctx, p.PID, checkpoint.Locked); !errors.Is(err, gpu.ErrBusy) {
		t.Errorf("it is locked by another: %v", err)
	}
	b.Calls.Patience = time.Minute
	time.AfterFunc(50*time.Millisecond, func() { lock.Close() })
	if err := b.Step(ctx, p.PID, checkpoint.Locked); err != nil {
		t.Error(err)
	}
	phaseIs(t, b, checkpoint.Locked, p.PID)
}

// With a lease a locked process goes on when the backend is closed; without, it stays as it is, also in the middle of the path.
func TestDriverLease(t *testing.T) {
	n := gputest.NewNode(t, 64)
	p := n.StartPlain(t)
	for _, c := range []struct {
		lease time.Duration
		want  checkpoint.Phase
	}{{0, checkpoint.Locked}, {time.Minute, checkpoint.Running}} {
		b := backendOf(t, n, "driver").(*checkpoint.Driver)
		if b.SetLease(c.lease) {
			t.Error("the driver has no lease of its own")
		}
		if err := b.Step(ctx, p.PID, checkpoint.Locked); err != nil {
			t.Fatal(err)
		}
		b.Close()
		phaseIs(t, backendOf(t, n, "driver"), c.want, p.PID)
	}
}

// A program that only looks at processes, as an agent's does for weeks, has no end of them.
func TestDriverLooksAtAnyNumber(t *testing.T) {
	n := gputest.NewNode(t, 64)
	program, libcuda, environment := n.Caller()
	calls := &gpu.Calls{Program: program, Driver: libcuda, Dir: n.Dir, Environment: environment}
	defer calls.Close()
	p := n.StartPlain(t)
	for other := range 4200 {
		call, err := calls.Begin(ctx, "state", 1<<22+other, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := call.Wait(ctx); err == nil {
			t.Fatal("there is no such process")
		}
	}
	phaseIs(t, &checkpoint.Driver{Calls: calls, Dir: n.Dir}, checkpoint.Running, p.PID)
}

// The processes that the driver was asked to change are found again, and no others that have their IDs since.
func TestDriverFindsWhatItChanged(t *testing.T) {
	n := gputest.NewNode(t, 64)
	p := n.StartPlain(t)
	time.Sleep(30 * time.Millisecond) // start times are in ticks of 10 ms
	other := n.StartPlain(t)
	lock := func(pid int) string { return filepath.Join(n.Dir, fmt.Sprintf("%d.lock", pid)) }
	b := backendOf(t, n, "driver").(*checkpoint.Driver)
	b.Dir = n.Dir
	found := func(want ...int) {
		t.Helper()
		if got, err := b.List(); err != nil || !slices.Equal(got, want) {
			t.Errorf("found %v, %v; expected %v", got, err, want)
		}
	}
	if err := b.Step(ctx, p.PID, checkpoint.Locked); err != nil {
		t.Fatal(err)
	}
	found(p.PID)
	b.Close()
	// It is as if the other one had got the ID of the first, which has ended.
	if err := os.Rename(lock(p.PID), lock(other.PID)); err != nil {
		t.Fatal(err)
	}
	found()
	if err := b.Step(ctx, other.PID, checkpoint.Locked); err != nil {
		t.Fatal(err)
	}
	found(other.PID)
	b.Close()
	// What the folder's owner links there is not written to.
	if err := os.WriteFile(lock(p.PID), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(lock(p.PID), filepath.Join(n.Dir, "mine")); err != nil {
		t.Fatal(err)
	}
	if err := b.Step(ctx, p.PID, checkpoint.Locked); err == nil || !strings.Contains(err.Error(), "which process it is: invalid argument") {
		t.Errorf("a lock that is another file, too: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(n.Dir, "mine")); err != nil || string(text) != "mine" {
		t.Errorf("the file is %q now, %v", text, err)
	}
	phaseIs(t, b, checkpoint.Running, p.PID)
	other.Kill()
	held, err := os.Open(lock(other.PID))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	found()
	if _, err := os.Stat(lock(other.PID)); err != nil {
		t.Errorf("a lock that is held is removed: %v", err)
	}
	held.Close()
	found()
	if _, err := os.Stat(lock(other.PID)); !os.IsNotExist(err) {
		t.Errorf("the lock of a process that has ended is left: %v", err)
	}
	// A folder with any number of files, which a pod could make, holds nothing up.
	for i := range 1<<14 + 1 {
		if err := os.WriteFile(filepath.Join(n.Dir, fmt.Sprintf("%d.page", i+1)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if pids, err := checkpoint.List(n.Dir); err == nil || !strings.Contains(err.Error(), "expected at most 16384 files") {
		t.Errorf("found %d, %v", len(pids), err)
	}
}

// Programs in containers have the ID 1 there, and others for the driver. Each is paused by its own, and the other one runs on.
func TestDriverOfContainers(t *testing.T) {
	n := gputest.NewNode(t, 64)
	var (
		backends []*checkpoint.Hybrid
		programs []*gputest.Program
		sums     []string
	)
	for range 2 {
		n.Dir = t.TempDir()
		p := n.StartContained(t)
		p.Do("alloc %d", mib)
		programs, sums = append(programs, p), append(sums, p.Do("sum 0 %d", mib))
		backends = append(backends, backendOf(t, n, "hybrid").(*checkpoint.Hybrid))
	}
	first, other := backends[0], backends[1]
	driver := first.Driver
	driver.Dir, driver.Announced = first.Shim.Dir, true
	here, err := driver.List()
	if err != nil || len(here) != 1 || here[0] == 1 || programs[0].PID != 1 || programs[1].PID != 1 {
		t.Fatalf("the driver finds %v, %v; the programs have the IDs %d and %d in their containers", here, err, programs[0].PID, programs[1].PID)
	}
	phaseIs(t, driver, checkpoint.Running, here[0])
	if err := checkpoint.Pause(ctx, first, []int{1}, checkpoint.Options{Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	phaseIs(t, driver, checkpoint.Checkpointed, here[0])
	phaseIs(t, first, checkpoint.Checkpointed, 1)
	phaseIs(t, other, checkpoint.Running, 1)
	if got := programs[1].Do("sum 0 %d", mib); got != sums[1] {
		t.Errorf("the other program has %s; before %s", got, sums[1])
	}
	if _, err := os.Stat(filepath.Join(first.Shim.Dir, fmt.Sprintf("%d.lock", here[0]))); err != nil {
		t.Errorf("its lock has not its ID here: %v", err)
	}
	if err := checkpoint.Resume(ctx, first, []int{1}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := programs[0].Do("sum 0 %d", mib); got != sums[0] {
		t.Errorf("the program has %s; before %s", got, sums[0])
	}
}
