package gputest

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Trainer is the program that Start starts, and the environment in which it has the shim.
func (n *Node) Trainer() (path string, environment []string) {
	return n.b.trainer(), append(n.withShim(), n.fake...)
}

// StartWithFiles starts a program, with the shim, that reads from a named pipe and writes into a file of a folder: it may end and be brought
// back, and Program then is the one that came back.
func (n *Node) StartWithFiles(tb testing.TB) *Program {
	tb.Helper()
	dir := tb.TempDir()
	fail := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	fail(unix.Mkfifo(filepath.Join(dir, "in"), 0o600))
	in, err := os.OpenFile(filepath.Join(dir, "in"), os.O_RDWR, 0)
	fail(err)
	out, err := os.Create(filepath.Join(dir, "out"))
	fail(err)
	defer out.Close()
	read, err := os.Open(out.Name())
	fail(err)
	p := &Program{tb: tb, c: n.command(n.withShim()), in: in}
	// The program does not inherit what this process was left with: a file or a lock from outside that criu would refuse.
	fail(unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC))
	// What runs the tests may have no session in their PID namespace: that of the program, criu would refuse.
	session, err := unix.Getsid(0)
	fail(err)
	p.c.SysProcAttr = &syscall.SysProcAttr{Setsid: session == 0}
	p.c.Stdin, p.c.Stdout, p.c.Stderr = in, out, out
	fail(p.c.Start())
	p.PID = p.c.Process.Pid
	tb.Cleanup(func() {
		syscall.Kill(p.PID, syscall.SIGKILL)
		p.Wait()
		in.Close()
		read.Close()
	})
	p.lines = bufio.NewScanner(follow{read, p.PID})
	if line := p.Line(); line != fmt.Sprintf("ready %d", p.PID) {
		tb.Fatalf("the program said %q", line)
	}
	return p
}

// follow reads what a process writes into a file, until that ends.
type follow struct {
	*os.File
	pid int
}

func (f follow) Read(b []byte) (int, error) {
	for {
		n, err := f.File.Read(b)
		if n > 0 || err != io.EOF {
			return n, err
		}
		if syscall.Kill(f.pid, 0) != nil {
			return 0, io.EOF
		}
		time.Sleep(time.Millisecond)
	}
}
