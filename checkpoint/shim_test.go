//go:build linux

package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
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

func TestMain(m *testing.M) { gputest.Main(m) }

const mib = 1 << 20

var (
	ctx     = context.Background()
	patient = checkpoint.Options{Timeout: time.Minute, Retries: 3, Backoff: time.Millisecond}
)

func backend(t testing.TB, n *gputest.Node) *checkpoint.Shim {
	b := &checkpoint.Shim{Dir: n.Dir, Lease: time.Minute}
	t.Cleanup(b.Close)
	return b
}

func pause(t testing.TB, b checkpoint.Backend, pids ...int) {
	t.Helper()
	if err := checkpoint.Pause(ctx, b, pids, patient); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if p, err := b.Phase(pid); p != checkpoint.Saved || err != nil {
			t.Fatalf("process %d is %s after a pause, %v", pid, p, err)
		}
	}
}

func resume(t testing.TB, b checkpoint.Backend, pids ...int) {
	t.Helper()
	if err := checkpoint.Resume(ctx, b, pids, time.Minute); err != nil {
		t.Fatal(err)
	}
}

// A program that is paused in the middle of its work ends with the same bits as one that is not.
func TestPausedProgramEndsTheSame(t *testing.T) {
	n := gputest.NewNode(t, 64)
	work := fmt.Sprintf("train 0 %d 600", mib)
	undisturbed := n.StartPlain(t)
	undisturbed.Do("alloc %d", mib)
	undisturbed.Send("%s", work)
	want := undisturbed.Until("sum ")
	undisturbed.Kill()

	p, other := n.Start(t), n.StartPlain(t)
	empty := other.Do("left")
	p.Do("alloc %d", mib)
	p.Send("%s", work)
	for _, step := range []string{"100", "200", "500"} {
		p.Until("step " + step)
		b := backend(t, n)
		pause(t, b, p.PID)
		if got := other.Do("left"); got != empty {
			t.Errorf("paused at step %s: %s; of an idle GPU: %s", step, got, empty)
		}
		resume(t, b, p.PID)
		b.Close()
	}
	if got := p.Until("sum "); got != want {
		t.Errorf("the program ended with %s after three pauses, and with %s without", got, want)
	}
}

// While one program is paused another one uses its memory; resume waits for room.
func TestMemoryOfPausedProgramIsFree(t *testing.T) {
	n := gputest.NewNode(t, 64)
	b := backend(t, n)
	first, second := n.Start(t), n.Start(t)
	first.Do("alloc %d", 48*mib)
	sum := first.Do("sum 0 %d", 48*mib)
	if got := second.Do("alloc %d", 48*mib); got != "error 2" {
		t.Fatalf("two times 48 of 64 MiB: %s", got)
	}
	pause(t, b, first.PID)
	second.Do("alloc %d", 48*mib)
	err := checkpoint.Resume(ctx, b, []int{first.PID}, time.Minute)
	if !errors.Is(err, gpu.ErrNoMemory) {
		t.Errorf("resume on a GPU in use: %v", err)
	}
	if p, _ := b.Phase(first.PID); p != checkpoint.Saved {
		t.Errorf("the process is %s", p)
	}
	second.Do("free 0")
	resume(t, b, first.PID)
	if got := first.Do("sum 0 %d", 48*mib); got != sum {
		t.Errorf("%s before, %s after", sum, got)
	}
}

// A resume of several is one of all or of none.
func TestResumeOfSeveralFailsForAll(t *testing.T) {
	n := gputest.NewNode(t, 64)
	b := backend(t, n)
	small, large, guest := n.Start(t), n.Start(t), n.Start(t)
	small.Do("alloc %d", 4*mib)
	large.Do("alloc %d", 40*mib)
	pause(t, b, small.PID, large.PID)
	guest.Do("alloc %d", 32*mib)
	if err := checkpoint.Resume(ctx, b, []int{small.PID, large.PID}, time.Minute); !errors.Is(err, gpu.ErrNoMemory) {
		t.Fatal(err)
	}
	for _, p := range []*gputest.Program{small, large} {
		if phase, _ := b.Phase(p.PID); phase != checkpoint.Saved {
			t.Errorf("process %d is %s", p.PID, phase)
		}
	}
	guest.Kill()
	resume(t, b, small.PID, large.PID)
	small.Do("sum 0 %d", 4*mib)
}

// Only what a framework says is in use is copied, and the rest need not be.
func TestOnlyActiveMemoryIsCopied(t *testing.T) {
	n := gputest.NewNode(t, 64)
	b := backend(t, n)
	p := n.Start(t)
	p.Do("alloc %d", 32*mib)
	p.Do("use 0 %d %d", 8*mib, 2*mib)
	p.Do("use 0 %d %d", 20*mib, mib)
	pause(t, b, p.PID)
	st, err := b.Status(p.PID)
	if err != nil || st.Active != 3*mib || st.Reserved != 32*mib || st.Untracked != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	info, err := os.Stat(data(n, p))
	if err != nil || info.Size() > 3*mib+3*4096 || info.Mode().Perm() != 0o600 {
		t.Errorf("%d bytes, %v, %v", info.Size(), info.Mode(), err)
	}
	resume(t, b, p.PID)
	if _, err := os.Stat(data(n, p)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}

func data(n *gputest.Node, p *gputest.Program) string {
	return filepath.Join(n.Dir, strconv.Itoa(p.PID)+".data")
}

// No byte of a damaged file reaches the GPU; the undamaged one still can.
func TestDamagedMemoryIsNotRestored(t *testing.T) {
	n := gputest.NewNode(t, 64)
	b := backend(t, n)
	p := n.Start(t)
	p.Do("alloc %d", 4*mib)
	sum := p.Do("sum 0 %d", 4*mib)
	pause(t, b, p.PID)
	good, err := os.ReadFile(data(n, p))
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, content []byte) {
		t.Helper()
		if err := os.WriteFile(data(n, p), content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := checkpoint.Resume(ctx, b, []int{p.PID}, time.Minute); !errors.Is(err, gpu.ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, at := range []int{0, 9, 17, 24, 33, 41, 50, 4096, 4096 + mib, len(good) - 1} {
		bad := append([]byte(nil), good...)
		bad[at] ^= 4
		refused(fmt.Sprintf("bit 2 of byte %d", at), bad)
	}
	for _, size := range []int{0, 10, 24, 60, 4096, len(good) - 1} {
		refused(fmt.Sprintf("%d bytes of %d", size, len(good)), good[:size])
	}
	refused("a byte more", append(append([]byte(nil), good...), 0))
	if err := os.WriteFile(data(n, p), good, 0o600); err != nil {
		t.Fatal(err)
	}
	resume(t, b, p.PID)
	if got := p.Do("sum 0 %d", 4*mib); got != sum {
		t.Errorf("%s before, %s after", sum, got)
	}
}

// A pause that cannot write lets the process go on, with its memory.
func TestFileThatCannotBeWritten(t *testing.T) {
	n := gputest.NewNode(t, 64)
	full := syscall.Mount("tmpfs", n.Dir, "tmpfs", 0, "size=1m") == nil
	if full {
		t.Cleanup(func() { syscall.Unmount(n.Dir, 0) })
	} else {
		t.Log("a disk that is full needs the right to mount one; a folder is in the way instead")
	}
	b := backend(t, n)
	p := n.Start(t)
	if !full {
		os.Mkdir(data(n, p)+".tmp", 0o700)
	}
	p.Do("alloc %d", 8*mib)
	sum := p.Do("sum 0 %d", 8*mib)
	err := checkpoint.Pause(ctx, b, []int{p.PID}, patient)
	var given *checkpoint.UnpausableError
	if !errors.As(err, &given) || given.Tries != 1 {
		t.Errorf("%v", err)
	}
	if got := p.Do("sum 0 %d", 8*mib); got != sum {
		t.Errorf("%s before, %s after", sum, got)
	}
}

// A process goes on by itself if who paused it is gone.
func TestLeaseRunsOut(t *testing.T) {
	n := gputest.NewNode(t, 64)
	for _, to := range []checkpoint.Phase{checkpoint.Gated, checkpoint.Saved} {
		b := &checkpoint.Shim{Dir: n.Dir, Lease: time.Millisecond}
		p := n.Start(t)
		p.Do("alloc %d", mib)
		sum := p.Do("sum 0 %d", mib)
		err := b.Step(ctx, p.PID, checkpoint.Gated)
		if err == nil && to == checkpoint.Saved {
			err = b.Step(ctx, p.PID, to)
		}
		if err != nil && !errors.Is(err, gpu.ErrCancelled) {
			t.Fatal(err)
		}
		b.Close()
		if got := p.Do("sum 0 %d", mib); got != sum { // it waits at the gate until the lease runs out
			t.Errorf("%s: %s before, %s after", to, sum, got)
		}
		p.Kill()
	}
}

// A rank that waits in a collective for one that is paused cannot be paused: both
// go on, and the collective ends.
func TestRanksInCollective(t *testing.T) {
	n := gputest.NewNode(t, 64)
	b := backend(t, n)
	counter := filepath.Join(t.TempDir(), "counter")
	if err := os.WriteFile(counter, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	a, z := n.Start(t), n.Start(t)
	a.Do("alloc %d", mib)
	z.Do("alloc %d", mib)
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
	for _, p := range []*gputest.Program{a, z} {
		if phase, err := b.Phase(p.PID); phase != checkpoint.Running || err != nil {
			t.Errorf("process %d is %s, %v", p.PID, phase, err)
		}
	}
	// An interrupted command lets all go on, too.
	interrupted, cancel := context.WithCancel(ctx)
	time.AfterFunc(time.Millisecond, cancel)
	if err := checkpoint.Pause(interrupted, b, []int{a.PID, z.PID}, patient); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if phase, _ := b.Phase(a.PID); phase != checkpoint.Running {
		t.Errorf("process %d is %s", a.PID, phase)
	}
	z.Do("meet %s 2 1", counter)
	if got := a.Line(); got != "met" {
		t.Error(got)
	}
	// Between collectives they can be paused, at the latest when they have all ended.
	a.Send("meet %s 2 300", counter)
	z.Send("meet %s 2 300", counter)
	if err := checkpoint.Pause(ctx, b, []int{a.PID, z.PID}, checkpoint.Options{Timeout: 100 * time.Millisecond, Retries: 10000, Backoff: time.Microsecond}); err != nil {
		t.Fatal(err)
	}
	resume(t, b, a.PID, z.PID)
	if a.Line() != "met" || z.Line() != "met" {
		t.Error("the collectives did not end")
	}
}

// Threads that allocate, compute and free all the time find what they left, however often they are paused.
func TestPausedAtAnyMoment(t *testing.T) {
	n := gputest.NewNode(t, 256)
	p := n.Start(t)
	empty := p.Do("left")
	p.Send("stress 4 80")
	ended := make(chan string)
	go func() { ended <- p.Line() }()
	pauses, copied := 0, int64(0)
	for end := ""; end == ""; {
		b := &checkpoint.Shim{Dir: n.Dir, Lease: time.Minute}
		err := checkpoint.Pause(ctx, b, []int{p.PID}, patient)
		if err == nil {
			st, _ := b.Status(p.PID)
			copied += st.Active
			err = checkpoint.Resume(ctx, b, []int{p.PID}, time.Minute)
		}
		b.Close()
		if err != nil {
			t.Fatal(err)
		}
		pauses++
		select {
		case end = <-ended:
			if end != "stressed" {
				t.Error(end)
			}
		default:
		}
	}
	if got := p.Do("left"); got != empty {
		t.Errorf("%s at the end, %s at the start", got, empty)
	}
	if pauses < 5 || copied == 0 {
		t.Errorf("%d pauses, %d bytes copied: does this test still test something?", pauses, copied)
	}
	t.Logf("%d pauses, %d MiB copied", pauses, copied/mib)
}

// A process that dies while it is paused leaves nothing, and one beside it goes on.
func TestProcessThatDies(t *testing.T) {
	n := gputest.NewNode(t, 64)
	b := backend(t, n)
	p, q := n.Start(t), n.Start(t)
	p.Do("alloc %d", mib)
	pause(t, b, p.PID)
	p.Kill()
	b.Close()
	if _, err := b.Phase(p.PID); !errors.Is(err, gpu.ErrGone) {
		t.Errorf("%v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(n.Dir, strconv.Itoa(p.PID)+".*")); len(left) != 0 {
		t.Errorf("files are left: %v", left)
	}
	if err := checkpoint.Pause(ctx, b, []int{q.PID, p.PID}, patient); !errors.Is(err, gpu.ErrGone) {
		t.Errorf("%v", err)
	}
	if phase, err := b.Phase(q.PID); phase != checkpoint.Running || err != nil {
		t.Errorf("%s, %v", phase, err)
	}
}

// Two commands do not change one process at the same time.
func TestOneCommandAtATime(t *testing.T) {
	n := gputest.NewNode(t, 64)
	b, other := backend(t, n), backend(t, n)
	p := n.Start(t)
	pause(t, b, p.PID)
	if err := checkpoint.Resume(ctx, other, []int{p.PID}, time.Minute); !errors.Is(err, gpu.ErrBusy) {
		t.Errorf("%v", err)
	}
	b.Close()
	resume(t, other, p.PID)
}

// What stands in a folder of pages is not trusted.
func TestPagesThatAreNone(t *testing.T) {
	n := gputest.NewNode(t, 64)
	path := filepath.Join(n.Dir, strconv.Itoa(os.Getpid())+".page")
	for _, c := range []struct {
		content []byte
		want    string
	}{
		{nil, "expected a file of 4096 bytes; found 0"},
		{make([]byte, 4096), "expected the control page of process"},
		{make([]byte, 8192), "found 8192"},
	} {
		if err := os.WriteFile(path, c.content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := gpu.OpenPage(n.Dir, os.Getpid()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d bytes: %v", len(c.content), err)
		}
	}
	os.Remove(path)
	if _, err := gpu.OpenPage(n.Dir, os.Getpid()); !errors.Is(err, gpu.ErrNoPage) {
		t.Errorf("%v", err)
	}
}

// BenchmarkPause is a pause, by what is active of 256 MiB, and beside it a copy of as much to a file.
func BenchmarkPause(b *testing.B) {
	n := gputest.NewNode(b, 1024)
	for _, active := range []int{16, 32, 64, 128, 256} {
		b.Run(fmt.Sprintf("active=%dMiB", active), func(b *testing.B) {
			p := n.Start(b)
			p.Do("alloc %d", 256*mib)
			p.Do("use 0 0 %d", active*mib)
			shim := backend(b, n)
			b.SetBytes(int64(active) * mib)
			for b.Loop() {
				pause(b, shim, p.PID)
				b.StopTimer()
				resume(b, shim, p.PID)
				b.StartTimer()
			}
			p.Kill()
		})
		b.Run(fmt.Sprintf("copy=%dMiB", active), func(b *testing.B) {
			from := make([]byte, active*mib)
			for i := range from {
				from[i] = byte(i)
			}
			b.SetBytes(int64(len(from)))
			for b.Loop() {
				if err := os.WriteFile(filepath.Join(n.Dir, "copy"), from, 0o600); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				os.Remove(filepath.Join(n.Dir, "copy"))
				b.StartTimer()
			}
		})
	}
}

// BenchmarkGate is what a call of the driver takes, with the shim, after a replay, and without.
func BenchmarkGate(b *testing.B) {
	n := gputest.NewNode(b, 64)
	replayed := n.Start(b)
	r := replay(b, n)
	release(b, r, replayed.PID)
	resume(b, r, replayed.PID)
	for name, p := range map[string]*gputest.Program{"shim": n.Start(b), "replayed": replayed, "plain": n.StartPlain(b)} {
		ns, err := strconv.ParseFloat(strings.TrimPrefix(p.Do("calls 20000000"), "ns "), 64)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(ns, name+"-ns/call")
	}
}

// Programs in containers have the same ID there. Each is found by its page from outside,
// and its files are removed when it has ended, not before.
func TestProgramsInContainers(t *testing.T) {
	n := gputest.NewNode(t, 64)
	first, second := n.Dir, t.TempDir()
	a := n.StartContained(t)
	n.Dir = second
	b := n.StartContained(t)
	if a.PID != 1 || b.PID != 1 {
		t.Fatalf("the programs have the IDs %d and %d in their namespaces", a.PID, b.PID)
	}
	for _, p := range []*gputest.Program{a, b} {
		p.Do("alloc %d", mib)
	}
	sums := []string{a.Do("sum 0 %d", mib), b.Do("sum 0 %d", mib)}
	shims := []*checkpoint.Shim{{Dir: first, Lease: time.Minute}, {Dir: second, Lease: time.Minute}}
	defer shims[0].Close()
	defer shims[1].Close()
	pause(t, shims[0], 1)
	if phase, err := shims[1].Phase(1); phase != checkpoint.Running || err != nil {
		t.Errorf("the other one is %s, %v", phase, err)
	}
	// Seen from a third container nothing is known about them, and nothing is removed.
	if unshare, err := exec.LookPath("unshare"); err == nil {
		c := exec.Command(unshare, "--pid", "--fork", "--mount-proc", os.Args[0], "-test.run=^TestFromAnotherContainer$", "-test.v")
		c.Env = append(os.Environ(), "MUSTER_TEST_PAGES="+first)
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("from another container: %v\n%s", err, out)
		}
	}
	resume(t, shims[0], 1)
	for i, p := range []*gputest.Program{a, b} {
		if got := p.Do("sum 0 %d", mib); got != sums[i] {
			t.Errorf("program %d: %s before, %s after", i, sums[i], got)
		}
	}
	a.Kill()
	if _, err := shims[0].Phase(1); !errors.Is(err, gpu.ErrGone) {
		t.Errorf("after its end: %v", err)
	}
	shims[0].Close()
	if _, err := shims[0].Phase(1); err == nil {
		t.Error("after its end it has a phase")
	}
	all, _ := os.Readlink("/proc/self/ns/pid") // from the machine's first namespace all processes are seen; from another one, the program could be elsewhere
	if left, _ := os.ReadDir(first); len(left) != 0 && all == "pid:[4026531836]" {
		t.Errorf("after its end %v are left", left)
	}
}

// TestFromAnotherContainer is what TestProgramsInContainers runs there.
func TestFromAnotherContainer(t *testing.T) {
	dir := os.Getenv("MUSTER_TEST_PAGES")
	if dir == "" {
		t.Skip("it is a part of TestProgramsInContainers")
	}
	if _, err := gpu.OpenPage(dir, 1); !errors.Is(err, gpu.ErrElsewhere) {
		t.Errorf("a process of another container: %v", err)
	}
	if pids, err := gpu.List(dir); len(pids) != 1 || err != nil {
		t.Errorf("its pages are %v, %v", pids, err)
	}
}
