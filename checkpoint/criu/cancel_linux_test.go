package criu_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Whenever a dump is interrupted, or criu is killed, also in the middle of ending the process: the dump has no error exactly if the process has
// ended. So an image is kept if and only if it is all there is.
func TestInterruptedDumpSaysWhatBecame(t *testing.T) {
	p := program(t)
	ended := 0
	const tries = 60
	for i := range tries {
		c := exec.Command("sleep", "1000")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		gone := make(chan struct{})
		go func() { c.Wait(); close(gone) }()
		ctx, cancel := context.WithCancel(t.Context())
		interrupt := cancel
		err := p.Dump(ctx, c.Process.Pid, t.TempDir(), func() error {
			if i%2 == 1 {
				pid := criuOf(t)
				interrupt = func() { syscall.Kill(pid, syscall.SIGKILL) }
			}
			time.AfterFunc(rand.N(3*time.Millisecond), interrupt)
			return nil
		})
		cancel()
		if err == nil {
			ended++
		}
		if runs := alive(c.Process.Pid); runs == (err == nil) {
			t.Errorf("it runs: %v, and the dump's error is %v", runs, err)
		}
		c.Process.Kill()
		<-gone
		if t.Failed() {
			return
		}
	}
	t.Logf("%d of %d ended", ended, tries)
}

// criuOf is the child of this process that is criu.
func criuOf(t *testing.T) int {
	t.Helper()
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for _, word := range strings.Fields(string(text)) {
			if name, _ := os.ReadFile(fmt.Sprintf("/proc/%s/comm", word)); string(name) == "criu\n" {
				pid, _ := strconv.Atoi(word)
				return pid
			}
		}
	}
	t.Error("criu does not run")
	return 0
}
