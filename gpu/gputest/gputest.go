// Package gputest runs programs on GPUs that are the CPU's memory, for tests: it
// builds the shim, the driver of gpu/fake and the program gpu/fake/trainer.c.
package gputest

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

type built struct{ dir string }

func (b built) shim() string    { return filepath.Join(b.dir, "shim") }
func (b built) fake() string    { return filepath.Join(b.dir, "fake") }
func (b built) trainer() string { return filepath.Join(b.dir, "trainer") }
func (b built) call() string    { return filepath.Join(b.dir, "muster-gpu-call") }
func (b built) worker() string  { return filepath.Join(b.dir, "muster-gpu-worker") }

// source is the folder gpu of the checkout in which a test runs: not of that in which it was compiled, which is elsewhere if a
// machine without Go runs it.
func source() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		gpu := filepath.Join(dir, "gpu")
		if _, err := os.Stat(filepath.Join(gpu, "shim")); err == nil {
			return gpu, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("gpu/shim: expected in a folder above that in which the test runs; found none")
		}
		dir = filepath.Dir(dir)
	}
}

// build builds in a folder.
func build(dir string) (built, error) {
	b := built{dir}
	source, err := source()
	if err != nil {
		return b, err
	}
	library := func(dir, name string, sources ...string) []string {
		flags := []string{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden",
			"-Wl,-soname," + name, "-Wl,-Bsymbolic", "-Wl,-z,defs", "-o", filepath.Join(dir, name)}
		return append(append(flags, sources...), "-ldl", "-lpthread", "-lm")
	}
	for _, command := range [][]string{
		library(b.shim(), "libcuda.so.1", "shim/shim.c", "shim/memory.c", "shim/data.c", "shim/hand.c", "shim/objects.c", "shim/ptx.c", "shim/replay.c"),
		library(b.fake(), "libcuda.so.1", "fake/fake.c"),
		library(b.fake(), "libcublas.so.12", "fake/cublas.c"),
		{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", b.trainer(), "fake/trainer.c", "-ldl", "-lpthread"},
		{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", b.call(), "call/call.c", "call/ghost.c", "shim/data.c", "shim/hand.c", "-ldl", "-lpthread"},
		{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", b.worker(), "worker/worker.c", "-ldl", "-lpthread"},
	} {
		for _, folder := range []string{b.shim(), b.fake()} {
			if err := os.MkdirAll(folder, 0o700); err != nil {
				return b, err
			}
		}
		c := exec.Command("cc", command...)
		c.Dir = source
		if out, err := c.CombinedOutput(); err != nil {
			return b, fmt.Errorf("%v: %w\n%s", c.Args, err, out)
		}
	}
	return b, nil
}

// shared is where Main lets all tests of a package build, once; without it each builds its own.
var (
	shared string
	once   = sync.OnceValues(func() (built, error) { return build(shared) })
)

// Main runs the tests of a package, which build the libraries once.
func Main(m *testing.M) {
	dir, err := os.MkdirTemp("", "gputest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	shared = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// Node is a machine with one GPU.
type Node struct {
	Dir    string // of the control pages
	b      built
	driver string // the folder of libcuda.so.1
	fake   []string
	attr   *syscall.SysProcAttr // of the programs
	// program is what is started in place of the trainer, with the environment of this process.
	program []string
}

// With returns the node with another program, which takes those of the trainer's commands that it is given, and answers as the trainer does.
func (n *Node) With(program ...string) *Node {
	other := *n
	other.program = program
	return &other
}

// command is the program that Start starts, with an environment.
func (n *Node) command(environment []string) *exec.Cmd {
	if n.program == nil {
		c := exec.Command(n.b.trainer())
		c.Env = append(environment, n.fake...)
		return c
	}
	c := exec.Command(n.program[0], n.program[1:]...)
	c.Env = append(os.Environ(), append(environment, n.fake...)...)
	for i, v := range c.Env { // its own libraries, behind ours
		if own := os.Getenv("LD_LIBRARY_PATH"); own != "" && strings.HasPrefix(v, "LD_LIBRARY_PATH=") {
			c.Env[i] += ":" + own
		}
	}
	return c
}

// NewNode returns a node whose GPU has so many MiB. The test is skipped without a C compiler.
func NewNode(tb testing.TB, mib int) *Node {
	tb.Helper()
	n := newNode(tb)
	n.driver = n.b.fake()
	n.fake = []string{"MUSTER_FAKE_GPU=" + filepath.Join(tb.TempDir(), "gpu"), fmt.Sprintf("MUSTER_FAKE_GPU_MIB=%d", mib)}
	return n
}

func newNode(tb testing.TB) *Node {
	tb.Helper()
	if _, err := exec.LookPath("cc"); err != nil || runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		tb.Skip("this test needs Linux on x86-64, and a C compiler to build the shim")
	}
	get := once
	if shared == "" {
		get = func() (built, error) { return build(tb.TempDir()) }
	}
	b, err := get()
	if err != nil {
		tb.Fatal(err)
	}
	return &Node{Dir: tb.TempDir(), b: b}
}

// Set gives the programs that are started from now on, and what Caller starts, a
// variable of the environment, as fake.c has them.
func (n *Node) Set(name, value string) { n.fake = append(n.fake, name+"="+value) }

// Caller is the program that makes the driver's calls, and the driver's path, as
// gpu.Calls takes them, with their environment.
func (n *Node) Caller() (program, driver string, environment []string) {
	return n.b.call(), filepath.Join(n.driver, "libcuda.so.1"), n.fake
}

// Library is the path of cuBLAS; with a real GPU what MUSTER_CUBLAS says, or the name by which the loader finds it.
func (n *Node) Library() string {
	if len(n.fake) > 0 {
		return filepath.Join(n.driver, "libcublas.so.12")
	}
	return cmp.Or(os.Getenv("MUSTER_CUBLAS"), "libcublas.so.12")
}

// Worker is the program that makes the driver's calls that run kernels, and the driver's path, as driver.Options takes
// them, with their environment. On the fake driver, kernels in PTX run on an interpreter, and calls of
// cuBLAS on the CPU, on so many GPUs.
func (n *Node) Worker(tb testing.TB, gpus int) (program, driver string, environment []string) {
	tb.Helper()
	if len(n.fake) > 0 {
		interpreter, err := interpreter(n.b.dir)
		if err != nil {
			tb.Fatal(err)
		}
		n.Set("MUSTER_FAKE_GPU_INTERPRETER", interpreter)
		n.Set("MUSTER_FAKE_GPU_COUNT", fmt.Sprint(gpus))
		n.Set("MUSTER_CUBLAS", filepath.Join(n.driver, "libcublas.so.12"))
	}
	return n.b.worker(), filepath.Join(n.driver, "libcuda.so.1"), n.fake
}

// interpreter builds the program that runs kernels for the fake driver, once in a folder.
func interpreter(dir string) (string, error) {
	building.Lock()
	defer building.Unlock()
	path := filepath.Join(dir, "interpreter")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	source, err := source()
	if err != nil {
		return "", err
	}
	c := exec.Command("go", "build", "-o", path, ".")
	c.Dir = filepath.Join(source, "fake", "interpreter")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", c.Args, err, out)
	}
	return path, nil
}

var building sync.Mutex

// Fault lets the next call of the fake driver with this number (1 lock, 2 checkpoint,
// 3 restore, 4 unlock) for the process end otherwise, or of its own (5 map, 6 import, 7 export): gpu/fake/checkpoint.inc.
func (n *Node) Fault(tb testing.TB, pid, call, result, state int) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(n.FaultPath(pid)), 0o700); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(n.FaultPath(pid), fmt.Appendf(nil, "%d %d %d\n", call, result, state), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// FaultPath is the file of a Fault. It is gone when the call is made.
func (n *Node) FaultPath(pid int) string {
	file, _ := strings.CutPrefix(n.fake[0], "MUSTER_FAKE_GPU=")
	return filepath.Join(file+".processes", fmt.Sprintf("%d.fault", pid))
}

// Program is a trainer that runs on a node.
type Program struct {
	PID   int
	tb    testing.TB
	c     *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
	ended sync.Once
}

// Start starts a program, with the shim, and ends it with the test.
func (n *Node) Start(tb testing.TB) *Program {
	tb.Helper()
	return n.start(tb, n.withShim()...)
}

func (n *Node) withShim() []string {
	return []string{"LD_LIBRARY_PATH=" + n.b.shim(), "MUSTER_GPU_DIR=" + n.Dir, "MUSTER_GPU_DRIVER=" + filepath.Join(n.driver, "libcuda.so.1")}
}

// StartPlain starts a program as it runs without Muster.
func (n *Node) StartPlain(tb testing.TB) *Program {
	tb.Helper()
	return n.start(tb, "LD_LIBRARY_PATH="+n.driver)
}

func (n *Node) start(tb testing.TB, environment ...string) *Program {
	tb.Helper()
	p := &Program{tb: tb, c: n.command(environment)}
	p.c.SysProcAttr = n.attr
	p.c.Stderr = os.Stderr
	var err error
	if p.in, err = p.c.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	out, err := p.c.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	if err := p.c.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Kill)
	line := p.Line()
	if _, err := fmt.Sscanf(line, "ready %d", &p.PID); err != nil { // its own ID, as in the name of its control page
		tb.Fatalf("the program said %q", line)
	}
	return p
}

// Kill ends the program as kill -9 does.
func (p *Program) Kill() {
	p.c.Process.Kill()
	p.Wait()
}

// Send gives the program a command, of those in trainer.c.
func (p *Program) Send(format string, a ...any) {
	p.tb.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", a...); err != nil {
		p.tb.Fatal(err)
	}
}

// Line is the next line that the program prints.
func (p *Program) Line() string {
	p.tb.Helper()
	if !p.lines.Scan() {
		p.tb.Fatal("the program ended")
	}
	return p.lines.Text()
}

// Do gives the program a command and returns its next line.
func (p *Program) Do(format string, a ...any) string {
	p.tb.Helper()
	p.Send(format, a...)
	return p.Line()
}

// Until reads lines up to one with the prefix, and returns the rest of it.
func (p *Program) Until(prefix string) string {
	p.tb.Helper()
	for {
		if rest, ok := strings.CutPrefix(p.Line(), prefix); ok {
			return rest
		}
	}
}

// Wait waits for the program to end.
func (p *Program) Wait() { p.ended.Do(func() { p.c.Wait() }) }
