//go:build linux

package checkpoint_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/gpu"
	"github.com/muster-sched/muster/gpu/gputest"
)

// trainer is a program that saves itself, with the class that docs/pause.md shows. It reads a command, steps: how many steps to do. Its
// state, on the GPU as it were, is a number; give writes it to a file and forgets it. The file "broken" makes that fail, "full" the way back.
const trainer = `
import sys, signal
state, where = 1, os.environ["MUSTER_GPU_DIR"] + "/%d.state" % os.getpid()
def give():
    global state
    if os.path.exists(os.environ["MUSTER_GPU_DIR"] + "/broken"):
        raise OSError("no space left on device")
    with open(where, "w") as f:
        f.write(str(state))
    state = None
def take():
    global state
    if os.path.exists(os.environ["MUSTER_GPU_DIR"] + "/full"):
        raise MemoryError("CUDA out of memory")
    state = int(open(where).read())
    os.remove(where)
def signalled(*_):
    global signals
    signals += 1
signals = 0
signal.signal(signal.SIGUSR1, signalled)
p = Pausable(give, take)
if "SIGNAL" in os.environ:
    p.lock.write("signal=%d started=%s" % (signal.SIGUSR1, open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19]))
if "DURABLE" in os.environ:
    print(" durable", file=p.lock, flush=True)
if "NEVER" in os.environ:
    p.lock.write("never")
p.lock.flush()
print("ready", os.getpid(), flush=True)
for line in sys.stdin:
    for i in range(int(line)):
        p.step()
        state = (state * 6364136223846793005 + i) % 2**64
        if i % 100 == 99:
            time.sleep(0.001)
    print("sum", state, signals, flush=True)
`

// program is a trainer that runs.
type program struct {
	pid   int
	in    io.WriteCloser
	lines *bufio.Scanner
	c     *exec.Cmd
}

// startTrainer starts one in a folder.
func startTrainer(t *testing.T, dir string, env ...string) *program {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	page, err := os.ReadFile("../docs/pause.md")
	if err != nil {
		t.Fatal(err)
	}
	_, class, _ := strings.Cut(string(page), "```python\n")
	class, _, ok := strings.Cut(class, "```")
	if !ok {
		t.Fatal("docs/pause.md shows no program")
	}
	c := exec.Command(python, "-c", class+trainer)
	c.Env = append(append(os.Environ(), "MUSTER_GPU_DIR="+dir), env...)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p := &program{c: c, in: in, lines: bufio.NewScanner(out)}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	fmt.Sscanf(p.line(t), "ready %d", &p.pid)
	return p
}

func (p *program) line(t *testing.T) string {
	t.Helper()
	defer time.AfterFunc(time.Minute, func() { p.c.Process.Kill() }).Stop() // it stands still
	if !p.lines.Scan() {
		t.Fatal("the program ended")
	}
	return p.lines.Text()
}

func (p *program) train(steps int) { fmt.Fprintln(p.in, steps) }

// expect is what a trainer prints after so many steps without a pause.
func expect(steps int) string {
	state := uint64(1)
	for i := range steps {
		state = state*6364136223846793005 + uint64(i)
	}
	return "sum " + strconv.FormatUint(state, 10) + " "
}

func is(t *testing.T, b checkpoint.Backend, phase checkpoint.Phase, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if got, err := b.Phase(pid); err != nil || got != phase {
			t.Errorf("process %d is %s, %v; expected %s", pid, got, err, phase)
		}
	}
}

// Programs that save themselves are paused as one with each other and with one that runs with the library, and end as if they had never
// been paused.
func TestProgramsThatSaveThemselves(t *testing.T) {
	n := gputest.NewNode(t, 64)
	shim := n.Start(t)
	shim.Do("alloc %d", 1<<20)
	sum := shim.Do("sum 0 %d", 1<<20)
	const steps = 20_000
	a, b := startTrainer(t, n.Dir), startTrainer(t, n.Dir, "SIGNAL=1", "DURABLE=1")
	pids := []int{a.pid, b.pid, shim.PID}
	if found, err := checkpoint.List(n.Dir); err != nil || len(found) != 3 {
		t.Errorf("the folder has %v, %v", found, err)
	}
	folder := checkpoint.NewFolder(n.Dir, time.Minute)
	for pid, durable := range map[int]bool{a.pid: false, b.pid: true, shim.PID: false} {
		if st, err := folder.Status(pid); err != nil || st.Durable != durable {
			t.Errorf("process %d: %+v, %v; expected durable: %t", pid, st, err, durable)
		}
	}
	folder.Close()
	a.train(steps)
	b.train(steps)
	for range 3 {
		own, err := checkpoint.Choose("auto", n.Dir, time.Minute, &gpu.Calls{}, pids)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkpoint.Pause(ctx, own, pids, checkpoint.Options{Timeout: time.Minute}); err != nil {
			t.Fatal(err)
		}
		is(t, own, checkpoint.Saved, pids...)
		if states, err := filepath.Glob(filepath.Join(n.Dir, "*.state")); err != nil || len(states) != 2 {
			t.Errorf("the programs saved %v, %v", states, err)
		}
		other := checkpoint.NewFolder(n.Dir, time.Minute)
		if err := other.Keep(a.pid); !errors.Is(err, gpu.ErrBusy) {
			t.Errorf("a second command leads it, too: %v", err)
		}
		other.Close()
		own.Close()
		own = checkpoint.NewFolder(n.Dir, time.Minute)
		if err := checkpoint.Resume(ctx, own, pids, time.Minute); err != nil {
			t.Fatal(err)
		}
		is(t, own, checkpoint.Running, pids...)
		own.Close()
	}
	if got := a.line(t); got != expect(steps)+"0" {
		t.Errorf("%s; expected %s0", got, expect(steps))
	}
	if got := b.line(t); !strings.HasPrefix(got, expect(steps)) || strings.HasSuffix(got, " 0") {
		t.Errorf("%s; expected %s and signals", got, expect(steps))
	}
	if got := shim.Do("sum 0 %d", 1<<20); got != sum {
		t.Errorf("%s before, %s after", sum, got)
	}
}

// What a program cannot do leaves all as they were: running if it cannot save itself, paused if it cannot go back.
func TestProgramsThatCannotSaveThemselves(t *testing.T) {
	dir := t.TempDir()
	a, b := startTrainer(t, dir), startTrainer(t, dir)
	pids := []int{a.pid, b.pid}
	own := checkpoint.NewFolder(dir, time.Hour)
	defer own.Close()
	broken, full := filepath.Join(dir, "broken"), filepath.Join(dir, "full")
	touch := func(path string) {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// One works and one reads its input, where it does not look: the pause is given up.
	a.train(1_000_000)
	err := checkpoint.Pause(ctx, own, pids, checkpoint.Options{Timeout: 200 * time.Millisecond})
	if unpausable := (*checkpoint.UnpausableError)(nil); !errors.As(err, &unpausable) {
		t.Errorf("a program that does not look: %v", err)
	}
	b.train(100)
	if got := b.line(t); got != expect(100)+"0" { // it does not stand still for a request that was taken back
		t.Errorf("%s; expected %s0", got, expect(100))
	}
	b.train(1_000_000)

	touch(broken)
	err = checkpoint.Pause(ctx, own, pids, checkpoint.Options{Timeout: time.Minute})
	if unpausable := (*checkpoint.UnpausableError)(nil); !errors.As(err, &unpausable) || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("a full disk: %v", err)
	}
	is(t, own, checkpoint.Running, pids...)

	os.Remove(broken)
	if err := checkpoint.Pause(ctx, own, pids, checkpoint.Options{Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	touch(full)
	if err := checkpoint.Resume(ctx, own, pids, time.Minute); err == nil || !strings.Contains(err.Error(), "CUDA out of memory") {
		t.Errorf("a full GPU: %v", err)
	}
	is(t, own, checkpoint.Saved, pids...)

	// One that dies is gone, and its files with it; the other one goes on.
	os.Remove(full)
	b.c.Process.Kill()
	b.c.Wait()
	if _, err := own.Phase(b.pid); !errors.Is(err, gpu.ErrGone) {
		t.Errorf("it has ended: %v", err)
	}
	if err := checkpoint.Resume(ctx, own, []int{a.pid}, time.Minute); err != nil {
		t.Error(err)
	}
}

// A program whose pause nobody ends goes on by itself; one that must not be paused is not.
func TestProgramGoesOnByItself(t *testing.T) {
	dir := t.TempDir()
	a, never := startTrainer(t, dir), startTrainer(t, dir, "NEVER=1")
	a.train(1_000_000)
	never.train(1_000_000)
	dead := checkpoint.NewFolder(dir, time.Second)
	for _, to := range []checkpoint.Phase{checkpoint.Gated, checkpoint.Saved} {
		if err := dead.Step(ctx, a.pid, to); err != nil {
			t.Fatal(err)
		}
	}
	dead.Close()
	next := checkpoint.NewFolder(dir, time.Minute)
	defer next.Close()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if phase, err := next.Phase(a.pid); err != nil || time.Now().After(deadline) {
			t.Fatalf("it is %s, %v", phase, err)
		} else if phase == checkpoint.Running {
			break
		}
	}
	if err := next.Keep(a.pid); !errors.Is(err, gpu.ErrCancelled) {
		t.Errorf("it is kept although it runs: %v", err)
	}
	err := checkpoint.Pause(ctx, next, []int{never.pid, a.pid}, checkpoint.Options{Timeout: time.Minute})
	if !errors.Is(err, checkpoint.ErrNever) {
		t.Errorf("a program that must not be paused: %v", err)
	}
	is(t, next, checkpoint.Running, a.pid, never.pid)
	none, err := checkpoint.Choose("none", dir, time.Minute, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkpoint.Pause(ctx, none, []int{a.pid}, checkpoint.Options{Timeout: time.Minute}); !errors.Is(err, checkpoint.ErrNone) {
		t.Errorf("backend none: %v", err)
	}
}

// Files that another user, or another program, could have put there are refused: as root, Muster would signal for them.
func TestFilesOfOthers(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, text := range []string{"signal=9", "signal=0 started=1", "signal=99 started=1", "kill", "started=x", "within=0", "within=86401", strings.Repeat("never ", 1000)} {
		f := put("7.self", text)
		if _, err := gpu.OpenSelf(dir, 7); err == nil || errors.Is(err, gpu.ErrGone) {
			t.Errorf("%.20s: %v", text, err)
		}
		f.Close()
	}
	if err := os.Symlink(filepath.Join(dir, "7.self"), filepath.Join(dir, "8.self")); err != nil {
		t.Fatal(err)
	}
	if _, err := gpu.OpenSelf(dir, 8); err == nil || errors.Is(err, gpu.ErrNoPage) {
		t.Errorf("a link: %v", err)
	}
	// Who says how long it takes is waited for.
	put("6.self", "within=30").Close()
	if got := checkpoint.Longest(checkpoint.NewFolder(dir, time.Minute), []int{5, 6}, 10*time.Second); got != 10*time.Second {
		t.Errorf("processes that have ended take %v", got)
	}
	long := put("6.self", "within=30")
	defer long.Close()
	if got := checkpoint.Longest(checkpoint.NewFolder(dir, time.Minute), []int{5, 6}, 10*time.Second); got != 30*time.Second {
		t.Errorf("it takes %v", got)
	}
	// A process of another start time is not signalled.
	f := put("9.self", fmt.Sprintf("signal=9 started=1 namespace=%d", 0))
	defer f.Close()
	s, err := gpu.OpenSelf(dir, 9)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Ask("Gated", time.Second); !errors.Is(err, gpu.ErrGone) {
		t.Errorf("a process that is another: %v", err)
	}
	// Nor is one that a pod's file names, and that knows nothing about it.
	victim := exec.Command("sleep", "600")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { victim.Process.Kill(); victim.Wait() }()
	started, err := gpu.StartTime(victim.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	forged := put(fmt.Sprintf("%d.self", victim.Process.Pid), fmt.Sprintf("signal=9 started=%d", started))
	defer forged.Close()
	of, err := gpu.OpenSelf(dir, victim.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer of.Close()
	if _, err := of.Ask("Gated", time.Second); err == nil || !strings.Contains(err.Error(), "expected the process that has the file open") {
		t.Errorf("a process that is not the file's: %v", err)
	}
	if !gpu.Alive(victim.Process.Pid) {
		t.Error("it was killed")
	}
	put("9.says", "x Gated").Close()
	if _, err := s.Says(); err == nil {
		t.Error("what it says cannot be read")
	}
}
