//go:build linux

package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/gpu"
	"github.com/muster-sched/muster/gpu/gputest"
)

// haunted is a program whose memory goes to a ghost.
type haunted struct {
	*gputest.Program
	n     *gputest.Node
	b     *checkpoint.Shim
	calls *gpu.Calls
	sum   string
}

const hauntedBytes = 40 << 20

// Calls of the fake driver that Fault lets end otherwise, and a result that kills who makes one.
const (
	mapping   = 5
	importing = 6
	exporting = 7
	killed    = 9999
)

func haunt(t *testing.T) *haunted {
	n := gputest.NewNode(t, 64)
	h := &haunted{n: n}
	h.open(t)
	h.Program = n.Start(t)
	h.Do("alloc %d", hauntedBytes-4096)
	h.Do("alloc 4096")
	h.Send("train 0 %d 10", hauntedBytes-4096)
	h.sum = h.Until("sum ")
	return h
}

// open makes the backend of a command.
func (h *haunted) open(t testing.TB) {
	program, libcuda, environment := h.n.Caller()
	h.calls = &gpu.Calls{Program: program, Driver: libcuda, Dir: h.n.Dir, Environment: environment}
	h.b = &checkpoint.Shim{Dir: h.n.Dir, Lease: time.Minute, Ghost: h.calls}
	t.Cleanup(h.calls.Close)
	t.Cleanup(h.b.Close)
}

func (h *haunted) pause() error {
	return checkpoint.Pause(context.Background(), h.b, []int{h.PID}, checkpoint.Options{Timeout: time.Minute})
}

// goesOn is that the program has its memory, and that nothing holds it but the program.
func (h *haunted) goesOn(t *testing.T, when string) {
	t.Helper()
	if err := checkpoint.Resume(context.Background(), h.b, []int{h.PID}, time.Minute); err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	if got := strings.TrimPrefix(h.Do("sum 0 %d", hauntedBytes-4096), "sum "); got != h.sum {
		t.Fatalf("%s: the memory is %s; before %s", when, got, h.sum)
	}
}

func (h *haunted) left(t *testing.T) (bytes int) {
	other := h.n.StartPlain(t)
	defer other.Kill()
	if _, err := fmt.Sscanf(other.Do("left"), "left %d", &bytes); err != nil {
		t.Fatal(err)
	}
	return bytes
}

// programs are the IDs of the ghost and of its keeper; 0: it does not run.
func (h *haunted) programs(t *testing.T) (ghost, keeper int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		text, _ := os.ReadFile(path)
		words := strings.Split(string(text), "\x00")
		pid := 0
		fmt.Sscanf(path, "/proc/%d/", &pid)
		switch {
		case len(words) > 3 && words[1] == "--keep" && words[2] == h.n.Dir && gpu.Alive(pid):
			keeper = pid
		case len(words) > 1 && words[1] == h.n.Dir && gpu.Alive(pid):
			ghost = pid
		}
	}
	return ghost, keeper
}

func end(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, func() bool {
		for _, pid := range pids {
			if gpu.Alive(pid) {
				return false
			}
		}
		return true
	})
}

func wait(t *testing.T, until func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !until(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within a minute")
		}
	}
}

// A process hands its memory over without a copy, and takes it back; or the ghost copies it to the file, from which the process takes it.
func TestGhostTakesMemoryOver(t *testing.T) {
	h := haunt(t)
	all := h.left(t)
	for range 2 {
		if err := h.pause(); err != nil {
			t.Fatal(err)
		}
		phaseIs(t, h.b, checkpoint.Saved, h.PID)
		if _, err := os.Stat(data(h.n, h.Program)); !errors.Is(err, os.ErrNotExist) {
			t.Error("the memory was copied:", err)
		}
		if left := h.left(t); left != all {
			t.Errorf("%d bytes of the GPU are free; expected %d, as the ghost holds the memory once", left, all)
		}
		h.goesOn(t, "from the ghost")
	}
	if err := h.pause(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.b.HoldSaved(context.Background(), h.PID); !errors.Is(err, checkpoint.ErrNotPaused) {
		t.Error("an image may be made of what is not in the file:", err)
	}
	for range 2 { // the second finds it done
		if err := h.b.Copy(context.Background(), []int{h.PID}); err != nil {
			t.Fatal(err)
		}
	}
	if left := h.left(t); left < all+hauntedBytes-4096 {
		t.Errorf("%d bytes of the GPU are free after the copy; expected %d", left, all+hauntedBytes-4096)
	}
	h.goesOn(t, "from the file that the ghost wrote")
	h.Do("free 1")
	h.Do("free 0")
	if left := h.left(t); left != 64<<20 {
		t.Errorf("%d bytes of the GPU are free when the program has freed all; expected %d", left, 64<<20)
	}
	h.b.Close()
	h.calls.Close()
	wait(t, func() bool { ghost, keeper := h.programs(t); return ghost+keeper == 0 })
	if left, _ := filepath.Glob(filepath.Join(h.n.Dir, "*.ghost")); len(left) > 0 {
		t.Error(left)
	}
}

// A file that a ghost wrote is not restored if it is damaged, or that of an earlier pause.
func TestGhostsFileIsChecked(t *testing.T) {
	h := haunt(t)
	copied := func() []byte {
		if err := h.pause(); err != nil {
			t.Fatal(err)
		}
		if err := h.b.Copy(context.Background(), []int{h.PID}); err != nil {
			t.Fatal(err)
		}
		file, err := os.ReadFile(data(h.n, h.Program))
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	earlier := copied()
	h.goesOn(t, "after the first pause")
	h.Send("train 0 %d 10", hauntedBytes-4096)
	h.sum = h.Until("sum ")
	this := copied()
	if err := os.WriteFile(data(h.n, h.Program), earlier, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkpoint.Resume(context.Background(), h.b, []int{h.PID}, time.Minute); !errors.Is(err, gpu.ErrDamaged) {
		t.Fatalf("with the file of an earlier pause: %v", err)
	}
	if err := os.WriteFile(data(h.n, h.Program), this, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{24 + 24, 8192} { // the sum of the first range; a byte of it
		file, err := os.OpenFile(data(h.n, h.Program), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		was := make([]byte, 1)
		if _, err := file.ReadAt(was, at); err != nil {
			t.Fatal(err)
		}
		file.WriteAt([]byte{was[0] ^ 1}, at)
		if err := checkpoint.Resume(context.Background(), h.b, []int{h.PID}, time.Minute); !errors.Is(err, gpu.ErrDamaged) {
			t.Fatalf("with another byte at %d: %v", at, err)
		}
		file.WriteAt(was, at)
	}
	h.goesOn(t, "when it is whole again")
}

// Whatever fails on the way to the ghost, the process has its memory; what fails on the way back can be tried again.
func TestGhostFaults(t *testing.T) {
	h := haunt(t)
	fails := func(name string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Fatalf("%s: %v; expected %v", name, err, want)
		}
	}
	h.n.Fault(t, h.PID, exporting, 2, -1)
	fails("the process cannot hand over", h.pause(), gpu.ErrNoMemory)
	h.goesOn(t, "after it could not hand over")
	ghost, keeper := h.programs(t)
	h.n.Fault(t, ghost, importing, 2, -1)
	fails("the ghost cannot take over", h.pause(), gpu.ErrNoMemory)
	h.goesOn(t, "after the ghost could not take over")
	end(t, keeper)
	if err := h.pause(); err != nil { // there is another one
		t.Fatal(err)
	}
	h.n.Fault(t, ghost, mapping, 2, -1)
	fails("the ghost cannot map what it copies", h.b.Copy(context.Background(), []int{h.PID}), gpu.ErrNoMemory)
	for name, call := range map[string]int{"the process cannot import": importing, "its addresses are taken": mapping} {
		h.n.Fault(t, h.PID, call, 2, -1)
		fails(name, checkpoint.Resume(context.Background(), h.b, []int{h.PID}, time.Minute), gpu.ErrNoMemory)
		phaseIs(t, h.b, checkpoint.Saved, h.PID)
	}
	if err := os.Mkdir(data(h.n, h.Program)+".tmp", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := h.b.Copy(context.Background(), []int{h.PID}); err == nil || !strings.Contains(err.Error(), "writing its memory to the host") {
		t.Fatal("the file cannot be written:", err)
	}
	if err := os.Remove(data(h.n, h.Program) + ".tmp"); err != nil {
		t.Fatal(err)
	}
	copied := h.slowCopy(t)
	h.goesOn(t, "in the middle of the copy")
	fails("it takes its memory back in the middle of the copy", <-copied, gpu.ErrCancelled)
}

// slowCopy is a copy that has begun, and takes 200 ms more.
func (h *haunted) slowCopy(t *testing.T) <-chan error {
	t.Helper()
	ghost, _ := h.programs(t)
	h.n.Fault(t, ghost, mapping, 10000+200, -1)
	copied := make(chan error, 1)
	go func() { copied <- h.b.Copy(context.Background(), []int{h.PID}) }()
	fault := h.n.FaultPath(ghost)
	wait(t, func() bool { _, err := os.Stat(fault); return err != nil })
	return copied
}

// Any process may be killed at any step: the program goes on, or says that its memory is lost, where both that held it were killed.
func TestGhostKills(t *testing.T) {
	t.Run("ghost while it takes over", func(t *testing.T) {
		h := haunt(t)
		if err := h.pause(); err != nil {
			t.Fatal(err)
		}
		h.goesOn(t, "at first")
		ghost, _ := h.programs(t)
		h.n.Fault(t, ghost, importing, killed, -1)
		if err := h.pause(); !errors.Is(err, gpu.ErrNoGhost) {
			t.Fatal(err)
		}
		h.goesOn(t, "after the ghost was killed")
	})
	t.Run("ghost", func(t *testing.T) {
		h := haunt(t)
		if err := h.pause(); err != nil {
			t.Fatal(err)
		}
		ghost, _ := h.programs(t)
		end(t, ghost)
		h.goesOn(t, "from the keeper")
		wait(t, func() bool { _, keeper := h.programs(t); return keeper == 0 })
		if err := h.pause(); err != nil { // by another ghost
			t.Fatal(err)
		}
		h.goesOn(t, "from the next ghost")
	})
	t.Run("ghost while it copies", func(t *testing.T) {
		h := haunt(t)
		if err := h.pause(); err != nil {
			t.Fatal(err)
		}
		ghost, _ := h.programs(t)
		h.n.Fault(t, ghost, mapping, killed, -1)
		if err := h.b.Copy(context.Background(), []int{h.PID}); !errors.Is(err, gpu.ErrNoCaller) {
			t.Fatal(err)
		}
		h.goesOn(t, "from the keeper")
	})
	t.Run("keeper", func(t *testing.T) {
		h := haunt(t)
		if err := h.pause(); err != nil {
			t.Fatal(err)
		}
		_, keeper := h.programs(t)
		end(t, keeper)
		h.goesOn(t, "from the ghost")
	})
	t.Run("ghost and keeper", func(t *testing.T) {
		h := haunt(t)
		if err := h.pause(); err != nil {
			t.Fatal(err)
		}
		ghost, keeper := h.programs(t)
		end(t, ghost, keeper)
		if err := checkpoint.Resume(context.Background(), h.b, []int{h.PID}, time.Minute); !errors.Is(err, gpu.ErrLost) {
			t.Fatal(err)
		}
	})
	t.Run("command", func(t *testing.T) { // its input ends
		h := haunt(t)
		if err := h.pause(); err != nil {
			t.Fatal(err)
		}
		h.b.Close()
		h.calls.Close()
		wait(t, func() bool { // they end by themselves
			ghost, keeper := h.programs(t)
			return ghost+keeper == 0
		})
		h.open(t)
		phaseIs(t, h.b, checkpoint.Running, h.PID)
		h.goesOn(t, "by itself")
	})
	t.Run("command while the ghost copies", func(t *testing.T) {
		h := haunt(t)
		if err := h.pause(); err != nil {
			t.Fatal(err)
		}
		copied := h.slowCopy(t)
		h.calls.Close()
		if err := <-copied; !errors.Is(err, gpu.ErrCancelled) {
			t.Error(err)
		}
		h.b.Close()
		h.open(t)
		h.goesOn(t, "after its copy was ended")
	})
	for step, call := range map[string]int{"handing over": exporting, "importing": importing, "mapping": mapping} {
		t.Run("process while it is "+step, func(t *testing.T) {
			h := haunt(t)
			if call != exporting {
				if err := h.pause(); err != nil {
					t.Fatal(err)
				}
			}
			h.n.Fault(t, h.PID, call, killed, -1)
			err := h.pause()
			if call != exporting {
				err = checkpoint.Resume(context.Background(), h.b, []int{h.PID}, time.Minute)
			}
			if !errors.Is(err, gpu.ErrGone) {
				t.Fatal(err)
			}
			h.Wait()
			wait(t, func() bool { return h.left(t) == 64<<20 })
		})
	}
}
