package supervise_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/checkpoint/offload"
	"github.com/muster-sched/muster/checkpoint/supervise"
	"github.com/muster-sched/muster/gpu"
	"github.com/muster-sched/muster/gpu/gputest"
)

func TestMain(m *testing.M) { gputest.Main(m) }

// text is what was printed.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *text) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(b)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// until waits until the text has a part.
func (t *text) until(tb testing.TB, part string) {
	tb.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(t.String(), part); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("expected %q; found %q", part, t)
		}
	}
}

// site is a place where jobs run.
type site struct {
	t      *testing.T
	n      *gputest.Node
	images *image.Images
	out    *text // of all runs
	said   *text
}

func newSite(t *testing.T) *site {
	t.Helper()
	images, err := image.Open(t.Context(), image.Dir(t.TempDir()), nil, true)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t, gputest.NewNode(t, 64), images, &text{}, &text{}}
	if err := s.whole().CRIU.Check(t.Context()); err != nil {
		t.Skip(err)
	}
	return s
}

func (s *site) whole() *offload.Whole {
	w := &offload.Whole{Dir: supervise.Folder(s.n.Dir, "train"), Lease: time.Minute, Scratch: s.t.TempDir(), Images: s.images, Step: func(string, int64) {}}
	program, driver, environment := s.n.Caller()
	w.Calls = &gpu.Calls{Program: program, Driver: driver, Dir: w.Dir, Environment: environment}
	s.t.Cleanup(w.Calls.Close)
	return w
}

// run runs a command as job "train"; the result gives its exit code when it has ended.
func (s *site) run(command ...string) (signals chan<- os.Signal, code func() int) {
	_, environment := s.n.Trainer()
	j := &supervise.Job{
		Name: "train", Command: command, Dir: s.n.Dir, Environment: environment, Whole: s.whole(), Pause: checkpoint.Options{Timeout: time.Minute},
		Within: time.Minute, Restore: time.Minute, Out: s.out, Err: s.out, Say: func(line string) { fmt.Fprintln(s.said, line) },
	}
	ask, ended := make(chan os.Signal, 1), make(chan int, 1)
	go func() {
		code, err := j.Run(s.t.Context(), ask)
		if err != nil {
			s.said.Write([]byte(err.Error() + "\n"))
		}
		ended <- code
	}()
	return ask, func() int {
		select {
		case code := <-ended:
			return code
		case <-time.After(time.Minute):
			s.t.Fatalf("it does not end; it said %s", s.said)
			return 0
		}
	}
}

// trainer is a command that does what is written to the file.
func (s *site) trainer() (command []string, commands *os.File) {
	trainer, _ := s.n.Trainer()
	in := filepath.Join(s.t.TempDir(), "in")
	if err := unix.Mkfifo(in, 0o600); err != nil {
		s.t.Fatal(err)
	}
	commands, err := os.OpenFile(in, os.O_RDWR, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { commands.Close() })
	return []string{"sh", "-c", "exec " + trainer + " <>" + in}, commands
}

// A job is told twice to leave, and is run again. It goes on each time where it was: what the three runs print is what one prints that is never
// told so, each line once.
func TestJobLeavesAndComesBack(t *testing.T) {
	s := newSite(t)
	command, commands := s.trainer()
	const work = "alloc 1048576\ntrain 0 1048576 600\n"
	undisturbed := s.n.Start(t)
	undisturbed.Send("%s", strings.TrimSpace(work))
	want := ""
	for line := ""; !strings.HasPrefix(line, "sum "); want += line + "\n" {
		line = undisturbed.Line()
	}
	undisturbed.Kill()

	fmt.Fprint(commands, work)
	signals, code := s.run(command...)
	s.out.until(t, "step 10\n")
	for range 2 {
		signals <- syscall.SIGTERM
		if got := code(); got != supervise.Moved {
			t.Fatalf("exit code %d; it said %s", got, s.said)
		}
		if left, _ := filepath.Glob(supervise.Folder(s.n.Dir, "train") + "/*.*[^k]"); len(left) > 0 { // but for locks
			t.Fatal(left)
		}
		s.said = &text{}
		signals, code = s.run(command...)
		s.said.until(t, "job train goes on from image")
	}
	s.out.until(t, want[strings.Index(want, "sum "):])
	signals <- syscall.SIGUSR1
	if got := code(); got != 128+int(syscall.SIGUSR1) {
		t.Errorf("exit code %d", got)
	}
	ready, got, _ := strings.Cut(s.out.String(), "\n")
	if !strings.HasPrefix(ready, "ready ") || got != want {
		t.Errorf("three runs print\n%sexpected\n%s", got, want)
	}
	if all, _ := s.images.List(t.Context()); len(all) > 0 {
		t.Error(all)
	}
}

// A job that cannot move is asked to end; the exit code and what is printed are the command's. A second job of the name waits.
func TestJobThatStays(t *testing.T) {
	s := newSite(t)
	signals, code := s.run("sh", "-c", `trap 'echo bye >&2; exit 5' TERM; echo on; while :; do sleep 0.01; done`)
	s.out.until(t, "on\n")
	_, second := s.run("sh", "-c", "echo second; exit 3")
	s.said.until(t, "waiting until it has ended")
	if err := checkpoint.Pause(t.Context(), s.leader(time.Hour), []int{os.Getpid()}, checkpoint.Options{Timeout: time.Minute}); err == nil || !strings.Contains(err.Error(), "no process of the tree") {
		t.Error(err)
	}
	signals <- syscall.SIGTERM
	if got := code(); got != 5 || !strings.Contains(s.said.String(), "cannot move to an image, and is asked to end: no process of the tree") {
		t.Errorf("exit code %d; it said %s", got, s.said)
	}
	if got := second(); got != 3 || s.out.String() != "on\nbye\nsecond\n" {
		t.Errorf("exit code %d, %q", got, s.out)
	}
	if _, code := s.run("/dev/null"); code() != 126 {
		t.Error(s.said)
	}
	if _, code := s.run("/no/such/program"); code() != 127 || !strings.Contains(s.said.String(), "/no/such/program: no such file") {
		t.Error(s.said)
	}
	if left, _ := filepath.Glob(supervise.Folder(s.n.Dir, "train") + "/train.*"); len(left) > 0 {
		t.Error(left)
	}
}

// A job whose claim of its name was broken, as the store took no sign of life for too long, stores no image: another one may run under the name, and would
// go on from it.
func TestJobThatLostItsName(t *testing.T) {
	s := newSite(t)
	signals, code := s.run("sh", "-c", `trap 'exit 5' TERM; echo on; while :; do sleep 0.01; done`)
	s.out.until(t, "on\n")
	leases, err := s.images.Store.List(t.Context(), "leases/")
	if err != nil || len(leases) == 0 {
		t.Fatal(leases, err)
	}
	for _, o := range leases {
		if err := s.images.Store.Delete(t.Context(), o.Name); err != nil {
			t.Fatal(err)
		}
	}
	signals <- syscall.SIGTERM
	if got := code(); got != 5 || !strings.Contains(s.said.String(), "cannot move to an image, and is asked to end: the store took no sign of life") {
		t.Errorf("exit code %d; it said %s", got, s.said)
	}
}

// A job has ended when its first process has: what that left behind, and has its output open still, does not keep it, and all that was printed is there.
func TestJobLeavesAProcessBehind(t *testing.T) {
	s := newSite(t)
	_, code := s.run("sh", "-c", `sleep 1000 & echo left $!; seq 100000; exit 4`)
	got := code()
	left, rest, _ := strings.Cut(strings.TrimPrefix(s.out.String(), "left "), "\n")
	pid, err := strconv.Atoi(left)
	if err != nil {
		t.Fatal(err)
	}
	if !gpu.Alive(pid) {
		t.Error("the process that was left behind has ended")
	}
	syscall.Kill(pid, syscall.SIGKILL)
	if got != 4 || strings.Count(rest, "\n") != 100000 || !strings.HasSuffix(rest, "\n100000\n") {
		t.Errorf("exit code %d, %d bytes", got, len(rest))
	}
}

// A job that waits for another one of its name ends at SIGTERM, as one that runs does. One that was asked to end is not moved later.
func TestSignalsOfJobs(t *testing.T) {
	s := newSite(t)
	signals, code := s.run("sh", "-c", `trap 'n=$((n+1)); echo asked $n' TERM; echo on; while [ "$n" != 2 ]; do sleep 0.01; done`)
	s.out.until(t, "on\n")
	second, ended := s.run("echo", "second")
	s.said.until(t, "waiting until it has ended")
	second <- syscall.SIGTERM
	if got := ended(); got != 128+int(syscall.SIGTERM) {
		t.Errorf("exit code %d", got)
	}
	for _, n := range []string{"1", "2"} {
		signals <- syscall.SIGTERM
		s.out.until(t, "asked "+n)
	}
	if got := code(); got != 0 || strings.Count(s.said.String(), "cannot move") != 1 {
		t.Errorf("exit code %d; it said %s", got, s.said)
	}
}

// keeps is a store that deletes no image.
type keeps struct{ image.Store }

func (k keeps) Delete(ctx context.Context, object string) error {
	if strings.HasPrefix(object, "images/") {
		return errors.New("not now")
	}
	return k.Store.Delete(ctx, object)
}

// A job that does not go on, as the GPU is full, leaves no process, and goes on later. One whose image cannot be deleted waits until it can:
// else a run after a crash would make steps again that were made.
func TestJobGoesOnLater(t *testing.T) {
	s := newSite(t)
	command, commands := s.trainer()
	signals, code := s.run(command...)
	fmt.Fprintf(commands, "alloc %d\n", 16<<20)
	s.out.until(t, "alloc 0")
	pid := 0
	fmt.Sscanf(s.out.String(), "ready %d", &pid)
	leave := func() {
		t.Helper()
		signals <- syscall.SIGTERM
		if got := code(); got != supervise.Moved {
			t.Fatalf("exit code %d; it said %s", got, s.said)
		}
		s.said = &text{}
	}
	leave()

	hog := s.n.Start(t)
	hog.Do("alloc %d", 60<<20)
	if _, code := s.run(command...); code() != 1 || gpu.Alive(pid) || pid == 0 {
		t.Fatalf("process %d runs: %v; it said %s", pid, gpu.Alive(pid), s.said)
	}
	if left, _ := filepath.Glob(filepath.Join(supervise.Folder(s.n.Dir, "train"), fmt.Sprint(pid, ".[pdg]*"))); len(left) > 0 {
		t.Error(left)
	}
	hog.Kill()

	good := s.images.Store
	s.images.Store = keeps{good}
	signals, code = s.run(command...)
	s.said.until(t, "job train is back from image")
	b := s.leader(time.Hour)
	fmt.Fprintf(commands, "alloc 4096\n")
	if err := checkpoint.Resume(t.Context(), b, []int{os.Getpid()}, time.Minute); err == nil || !strings.Contains(err.Error(), "not now") {
		t.Error(err)
	}
	s.said.until(t, "job train stays Gated: not now")
	s.imagesAre(1)
	if strings.Contains(s.out.String(), "alloc 1") {
		t.Error("it goes on, and its image is there")
	}
	s.images.Store = good
	if err := checkpoint.Resume(t.Context(), b, []int{os.Getpid()}, time.Minute); err != nil {
		t.Error(err)
	}
	s.imagesAre(0)
	s.out.until(t, "alloc 1")
	leave()
	signals, code = s.run(command...)
	s.said.until(t, "job train goes on from image")
	fmt.Fprintf(commands, "alloc 4096\n")
	s.out.until(t, "alloc 2")
	signals <- syscall.SIGUSR1
	if got := code(); got != 128+int(syscall.SIGUSR1) {
		t.Errorf("exit code %d", got)
	}
}
