package criu_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-sched/muster/checkpoint/criu"
)

// program is criu, or the test is skipped.
func program(t *testing.T) criu.Program {
	t.Helper()
	p := criu.Program{Path: os.Getenv("MUSTER_CRIU")}
	if err := p.Check(t.Context()); err != nil {
		t.Skip(err)
	}
	return p
}

// start starts a shell script, and returns the process when it has written its first line to the file out of the folder.
func start(t *testing.T, dir, script string) *exec.Cmd {
	t.Helper()
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := exec.Command("sh", "-c", script)
	c.Dir, c.Stdout, c.Stderr = dir, out, out
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	for said(t, dir) == "" {
		if c.Process.Signal(syscall.Signal(0)) != nil {
			t.Fatal("it has ended")
		}
		time.Sleep(time.Millisecond)
	}
	return c
}

func said(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

// Two processes that wait for each other are saved, ended and brought back, and go on where they were. While the files are not taken as whole,
// and while the restored ones are not taken as there, all is as before.
func TestDumpAndRestore(t *testing.T) {
	p := program(t)
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "to"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := start(t, dir, `exec 3<>to; n=0; (echo child; read x <&3; echo "child got $x") & echo parent; wait; echo done`)
	root := c.Process.Pid
	for !strings.Contains(said(t, dir), "child\n") || !strings.Contains(said(t, dir), "parent\n") {
		time.Sleep(time.Millisecond)
	}
	tree, err := criu.Tree(root)
	if err != nil || len(tree) != 2 || !slices.Contains(tree, root) {
		t.Fatal(tree, err)
	}
	no := errors.New("no")
	if err := p.Dump(t.Context(), root, t.TempDir(), func() error { return no }); !errors.Is(err, no) {
		t.Fatal(err)
	}
	if !alive(tree[0]) || !alive(tree[1]) {
		t.Fatal("a dump that was not wanted has ended the processes")
	}
	files := t.TempDir()
	if err := p.Dump(t.Context(), root, files, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	c.Wait()
	if alive(tree[0]) || alive(tree[1]) {
		t.Fatal("the processes still run")
	}
	if err := p.Restore(t.Context(), files, func(int) error { return no }); !errors.Is(err, no) {
		t.Fatal(err)
	}
	if alive(tree[0]) || alive(tree[1]) {
		t.Fatal("a restore that was not wanted has left processes")
	}
	if err := p.Restore(t.Context(), files, func(pid int) error {
		if pid != root {
			t.Errorf("process %d is the first; expected %d", pid, root)
		}
		if !alive(tree[0]) || !alive(tree[1]) {
			t.Error("the processes are not there")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := p.Restore(t.Context(), files, nil); !errors.Is(err, criu.ErrRuns) {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "to"), []byte("word\n"), 0); err != nil {
		t.Fatal(err)
	}
	for !strings.HasSuffix(said(t, dir), "child got word\ndone\n") {
		if !alive(root) && !strings.HasSuffix(said(t, dir), "done\n") {
			t.Fatal(said(t, dir))
		}
		time.Sleep(time.Millisecond)
	}
}

// What a process could not have again is refused before anything is done to it, and says what it is.
func TestWhatCannotBeSaved(t *testing.T) {
	p := program(t)
	if err := p.Dump(t.Context(), 1<<30, t.TempDir(), nil); err == nil || err.Error() != "there is no process 1073741824" {
		t.Error(err)
	}
	if err := p.Dump(t.Context(), os.Getppid(), t.TempDir(), nil); err == nil || !strings.HasPrefix(err.Error(), "expected a process from which this command does not descend") {
		t.Fatal(err)
	}
	c := exec.Command("cat")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	err = p.Dump(t.Context(), c.Process.Pid, t.TempDir(), nil)
	if err == nil || !strings.Contains(err.Error(), "is a pipe of process "+strconv.Itoa(os.Getpid())+", which is not of its tree") {
		t.Error(err)
	}
	locked, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err == nil {
		defer locked.Close()
		err = syscall.Flock(int(locked.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	sleeper := exec.Command("sleep", "1000")
	sleeper.ExtraFiles = []*os.File{locked}
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { sleeper.Process.Kill(); sleeper.Wait() }()
	err = p.Dump(t.Context(), sleeper.Process.Pid, t.TempDir(), nil)
	if err == nil || !strings.Contains(err.Error(), "has the lock of a file together with process "+strconv.Itoa(os.Getpid())) {
		t.Error(err)
	}
	in.Close()
	if err := c.Wait(); err != nil {
		t.Errorf("it does not go on: %v", err)
	}
}

// A command that is interrupted leaves the processes as they were.
func TestInterrupted(t *testing.T) {
	p := program(t)
	dir := t.TempDir()
	c := start(t, dir, "echo on; exec sleep 1000")
	ctx, cancel := context.WithCancel(t.Context())
	err := p.Dump(ctx, c.Process.Pid, t.TempDir(), func() error { cancel(); return ctx.Err() })
	if !errors.Is(err, context.Canceled) || !alive(c.Process.Pid) {
		t.Fatal(err, alive(c.Process.Pid))
	}
	if err := p.Dump(ctx, c.Process.Pid, t.TempDir(), nil); !errors.Is(err, context.Canceled) || !alive(c.Process.Pid) {
		t.Fatal(err, alive(c.Process.Pid))
	}
}

// A restore that waits for the lock of a file, which another process took meanwhile, ends when it is interrupted, and leaves nothing.
func TestRestoreThatWaits(t *testing.T) {
	p := program(t)
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip(err)
	}
	dir, files := t.TempDir(), t.TempDir()
	c := start(t, dir, "exec 7>lock; flock 7; echo on; exec sleep 1000")
	if err := p.Dump(t.Context(), c.Process.Pid, files, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	c.Wait()
	other, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_WRONLY, 0)
	if err == nil {
		defer other.Close()
		err = syscall.Flock(int(other.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := p.Restore(ctx, files, func(int) error { return nil }); !errors.Is(err, context.DeadlineExceeded) || alive(c.Process.Pid) {
		t.Fatal(err, alive(c.Process.Pid))
	}
	syscall.Flock(int(other.Fd()), syscall.LOCK_UN)
	if err := p.Restore(t.Context(), files, func(int) error { return nil }); err != nil || !alive(c.Process.Pid) {
		t.Fatal(err)
	}
	syscall.Kill(c.Process.Pid, syscall.SIGKILL)
}

// A process in a container whose session began outside it, as one that another runtime's exec started: that is said before any process stands still.
func TestSessionFromOutside(t *testing.T) {
	if os.Getenv("MUSTER_TEST_CONTAINED") == "" {
		program(t)
		c := exec.Command("unshare", "--pid", "--fork", "--mount-proc", os.Args[0], "-test.run", "^TestSessionFromOutside$", "-test.v")
		c.Env = append(os.Environ(), "MUSTER_TEST_CONTAINED=1")
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	err := criu.Program{Path: os.Getenv("MUSTER_CRIU")}.Dump(t.Context(), c.Process.Pid, t.TempDir(), func() error { return errors.New("it was saved") })
	if err == nil || !strings.Contains(err.Error(), "has no session here") {
		t.Fatal(err)
	}
}
