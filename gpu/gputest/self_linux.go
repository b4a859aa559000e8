package gputest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Ask is what a process that saves itself is asked for: docs/pause.md describes the files.
type Ask struct {
	ID, Phase string
	// Lease is for how many seconds, as written; From is the phase in which the process is.
	Lease, From string
}

// SavesItself has the test be the process of a folder with a number, which saves itself, until the test ends. says is what it says of itself. It looks
// for requests every millisecond, so one that is replaced at once may be missed. answer says why it cannot do what it is asked for; nil if it always can.
func SavesItself(t testing.TB, dir string, pid int, says string, answer func(Ask) (problem string)) {
	t.Helper()
	path := func(name string) string { return filepath.Join(dir, fmt.Sprintf("%d.%s", pid, name)) }
	f, err := os.Create(path("self"))
	if err == nil {
		_, err = f.WriteString(says)
	}
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		last, phase := "", "Running"
		for {
			if text, err := os.ReadFile(path("ask")); err == nil && string(text) != last {
				last = string(text)
				words := strings.Fields(last + " - - -")
				problem := ""
				if answer != nil {
					problem = answer(Ask{ID: words[0], Phase: words[1], Lease: words[2], From: phase})
				}
				if problem == "" {
					phase = words[1]
				}
				err := os.WriteFile(path("says.new"), []byte(words[0]+" "+phase+" "+problem+"\n"), 0o600)
				if err == nil {
					err = os.Rename(path("says.new"), path("says"))
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-ended; f.Close() })
}
