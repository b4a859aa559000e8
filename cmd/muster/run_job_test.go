//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-sched/muster/checkpoint/criu"
	"github.com/muster-sched/muster/gpu/gputest"
)

// A job runs in two containers, one after the other: in each muster run is the first process. Told to leave, it leaves the first one, and goes on in
// the second, with the same memory and process ID. Its exit code is then its own.
func TestRunInContainers(t *testing.T) {
	if err := (criu.Program{}).Check(t.Context()); err != nil {
		t.Skip(err)
	}
	if out, err := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "true").CombinedOutput(); err != nil {
		t.Skipf("unshare: %v: %s", err, out)
	}
	n := gputest.NewNode(t, 64)
	trainer, environment := n.Trainer()
	program, driver, _ := n.Caller()
	dir := t.TempDir()
	if err := os.Symlink(os.Args[0], filepath.Join(dir, "muster")); err != nil { // which is muster under this name
		t.Fatal(err)
	}
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := syscall.Mkfifo(in, 0o600); err != nil {
		t.Fatal(err)
	}
	commands, err := os.OpenFile(in, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer commands.Close()
	printed, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer printed.Close()
	until := func(part string) string {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			text, err := os.ReadFile(out)
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("expected %q; found %q, %v", part, text, err)
			}
			if _, rest, ok := bytes.Cut(text, []byte(part)); ok && bytes.IndexByte(rest, '\n') >= 0 {
				line, _, _ := bytes.Cut(rest, []byte("\n"))
				return string(line)
			}
		}
	}
	start := func() *exec.Cmd {
		c := exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", filepath.Join(dir, "muster"), "run", "--name", "train", "--store", filepath.Join(dir, "images"),
			"--gpu-dir", n.Dir, "--", "sh", "-c", "exec "+trainer+" <>"+in)
		c.Env = append(append(os.Environ(), environment...), "MUSTER_GPU_CALL="+program, "MUSTER_GPU_DRIVER="+driver)
		c.Stdout, c.Stderr = printed, printed
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Kill(); c.Wait() })
		return c
	}
	// inside is muster, the first process of the container.
	inside := func(c *exec.Cmd) int {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", c.Process.Pid, c.Process.Pid))
			if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
				return pid
			}
		}
		t.Fatal("muster does not start")
		return 0
	}
	code := func(c *exec.Cmd) int {
		c.Wait()
		return c.ProcessState.ExitCode()
	}

	first := start()
	id := until("ready ")
	if n, err := strconv.Atoi(id); err != nil || n < 1000 {
		t.Errorf("the process has the ID %s; expected one from 1000 on", id)
	}
	fmt.Fprintf(commands, "alloc %d\nsum 0 %d\n", 1<<20, 1<<20)
	sum := until("sum ")
	if err := syscall.Kill(inside(first), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := code(first); got != 143 {
		text, _ := os.ReadFile(out)
		t.Fatalf("exit code %d\n%s", got, text)
	}
	until("job train is image ")

	second := start()
	until("job train goes on from image ")
	fmt.Fprintf(commands, "sum 0 %d\nalloc 4096\n", 1<<20)
	until("alloc 1 ")
	if err := syscall.Kill(inside(second), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if got := code(second); got != 128+int(syscall.SIGUSR1) {
		t.Errorf("exit code %d", got)
	}
	text, _ := os.ReadFile(out)
	if strings.Count(string(text), "ready ") != 1 || strings.Count(string(text), "sum "+sum+"\n") != 2 {
		t.Errorf("%s", text)
	}
}

// Who reads the output of a job has ended: so does the job, as without muster run, and its name is free.
func TestRunWithoutReader(t *testing.T) {
	if err := (criu.Program{}).Check(t.Context()); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	muster := filepath.Join(dir, "muster")
	if err := os.Symlink(os.Args[0], muster); err != nil {
		t.Fatal(err)
	}
	run := func(command string) *exec.Cmd {
		c := exec.Command(muster, "run", "--name", "train", "--store", filepath.Join(dir, "images"), "--gpu-dir", filepath.Join(dir, "gpu"), "--", "sh", "-c", command)
		t.Cleanup(func() {
			if c.Process != nil {
				c.Process.Kill()
			}
		})
		return c
	}
	first := run("while :; do echo line; done")
	out, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if first.Wait(); first.ProcessState.ExitCode() != 128+int(syscall.SIGPIPE) {
		t.Error(first.ProcessState)
	}
	text, err := run("echo second").CombinedOutput()
	if err != nil || string(text) != "second\n" {
		t.Errorf("%s, %v", text, err)
	}
}
