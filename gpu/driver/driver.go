// Package driver makes the calls of the CUDA driver that run kernels, by a program of their own:
// gpu/worker/worker.c, which says what each call does. What it makes has numbers, from 0 on. Calls without an answer
// are written and not waited for; the first that fails ends the program, and is the error of all that follow.
package driver

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options say how to start the program.
type Options struct {
	Program     string   // muster-gpu-worker
	Driver      string   // the path of libcuda.so.1; empty: as the linker finds it
	Environment []string // beside this process's own
	Host        int      // bytes of memory that streams and this process share
}

// Error is a call of the driver that failed.
type Error struct {
	Call, Name string
	Code       int // CUresult, or cublasStatus_t of a call of cuBLAS
	Text       string
}

func (e *Error) Error() string {
	text := fmt.Sprintf("the driver's %s returned %s", e.Call, e.Name)
	if e.Name == "-" {
		text = fmt.Sprintf("the driver's %s failed", e.Call)
	}
	if strings.HasPrefix(e.Call, "cublas") {
		text = fmt.Sprintf("%s returned %s (%d)", e.Call, e.Name, e.Code)
	}
	if e.Text != "" {
		text += ": " + e.Text
	}
	return text
}

// Missing is cuBLAS, or a routine of it, that is not there.
type Missing struct{ Text string }

func (e *Missing) Error() string { return e.Text }

// ErrEnded is a program that ended without an error of the driver, such as one that was killed.
var ErrEnded = errors.New("muster-gpu-worker ended")

// Process is a running program. Its methods may be called by several goroutines; commands that belong together, such
// as those of one request, are in order if one goroutine makes them.
type Process struct {
	PID  int
	Host []byte // the shared memory

	command *exec.Cmd
	asking  sync.Mutex // one question at a time
	answers chan string

	mu   sync.Mutex // guards what follows; a write may wait for the program
	in   io.WriteCloser
	out  *bufio.Writer
	made map[string]int

	heard   sync.Mutex // guards what follows, of what the program says
	err     error
	notices map[uint64]func()
	next    uint64

	ended chan struct{}
}

// settings are what the driver reads from its environment. Streams that wait, for a transfer or a turn, must not keep others
// from going on: each has a hardware queue of its own, as far as there are queues, and kernels are loaded with their module,
// as their first launch would otherwise wait for all streams.
var settings = []string{"CUDA_MODULE_LOADING=EAGER", "CUDA_DEVICE_MAX_CONNECTIONS=32"}

// Start starts the program, and waits until it has opened the driver, which takes seconds on a GPU.
func Start(ctx context.Context, o Options) (*Process, error) {
	memory, err := share(o.Host)
	if err != nil {
		return nil, err
	}
	var args []string
	if o.Driver != "" {
		args = []string{o.Driver}
	}
	c := exec.Command(o.Program, args...)
	c.Env = append(append(os.Environ(), settings...), o.Environment...)
	c.Stderr = os.Stderr
	c.ExtraFiles = []*os.File{memory.file}
	p := &Process{command: c, Host: memory.bytes, answers: make(chan string, 1), notices: map[uint64]func(){}, made: map[string]int{}, ended: make(chan struct{})}
	if p.in, err = c.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		memory.close()
		return nil, fmt.Errorf("starting %s, which make gpu builds: %w", o.Program, err)
	}
	p.PID = c.Process.Pid
	p.out = bufio.NewWriterSize(p.in, 64<<10)
	runtime.AddCleanup(p, (*shared).close, memory) // who has Host has p
	go p.read(out)
	select {
	case <-p.answers:
		return p, nil
	case <-p.ended:
		return nil, p.Err()
	case <-ctx.Done():
		p.Close()
		return nil, fmt.Errorf("waiting for the CUDA driver to start: %w", ctx.Err())
	}
}

// read reads what the program answers, to its end.
func (p *Process) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "notify":
			token, _ := strconv.ParseUint(rest, 10, 64)
			p.heard.Lock()
			f := p.notices[token]
			delete(p.notices, token)
			p.heard.Unlock()
			if f != nil {
				f()
			}
		case "error":
			e := &Error{}
			fields := strings.SplitN(rest, " ", 4)
			if len(fields) == 4 {
				e.Call, e.Name, e.Text = fields[0], fields[2], strings.TrimSpace(fields[3])
				e.Code, _ = strconv.Atoi(fields[1])
			}
			p.fail(e)
		case "missing":
			p.fail(&Missing{rest})
		default:
			p.answers <- line
		}
	}
	p.fail(ErrEnded)
	p.command.Wait()
	close(p.ended)
}

func (p *Process) fail(err error) {
	p.heard.Lock()
	defer p.heard.Unlock()
	if p.err == nil {
		p.err = err
	}
}

// Err is why the program has ended; nil while it runs.
func (p *Process) Err() error {
	p.heard.Lock()
	defer p.heard.Unlock()
	return p.err
}

// Ended is closed when the program has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Close kills the program: the driver frees what it had. A driver that hangs in the kernel may keep it for longer; Close does
// not wait for that.
func (p *Process) Close() {
	p.command.Process.Kill()
	p.in.Close() // who writes to it goes on
	p.fail(ErrEnded)
}

// Do writes a command that has no answer, into a buffer: Flush sends it.
func (p *Process) Do(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format+"\n", args...)
}

// Flush sends what was written.
func (p *Process) Flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.Flush() // an error is that the program has ended, which is noticed by its output
}

// Notify calls f when the stream gets there. f must not wait for the program.
func (p *Process) Notify(stream int, f func()) {
	p.heard.Lock()
	p.next++
	token := p.next
	p.notices[token] = f
	p.heard.Unlock()
	p.Do("notify %d %d", stream, token)
}

// ask writes a command and returns the rest of its answer after the first word, and how many such answers there were
// before: the number of what it made.
func (p *Process) ask(format string, args ...any) (string, int, error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	p.Do(format, args...)
	p.Flush()
	select {
	case line := <-p.answers:
		word, rest, _ := strings.Cut(line, " ")
		p.mu.Lock()
		defer p.mu.Unlock()
		p.made[word]++
		return rest, p.made[word] - 1, nil
	case <-p.ended:
		return "", 0, p.Err()
	}
}

// make writes a command that makes something and has no answer.
func (p *Process) make(kind string, args ...any) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.out, append([]any{kind}, args...)...)
	p.made[kind]++
	return p.made[kind] - 1
}

// GPU is a device that is used, with its range of priorities: the first is the most urgent.
type GPU struct {
	Number             int
	Urgent, Background int
	Name               string
}

// Use makes a context on a device; a device can be used several times.
func (p *Process) Use(device int) (GPU, error) {
	answer, n, err := p.ask("gpu %d", device)
	if err != nil {
		return GPU{}, err
	}
	g := GPU{Number: n}
	_, err = fmt.Sscan(answer, &g.Background, &g.Urgent)
	if fields := strings.SplitN(answer, " ", 3); len(fields) == 3 {
		g.Name = fields[2]
	}
	return g, err
}

// Split makes two GPUs of parts of a device, the first with so many of its multiprocessors or a few more. It takes CUDA 12.4.
func (p *Process) Split(device, multiprocessors int) (parts [2]GPU, has [2]int, err error) {
	answer, _, err := p.ask("split %d %d", device, multiprocessors)
	if err != nil {
		return parts, has, err
	}
	g := GPU{}
	_, err = fmt.Sscan(answer, &g.Background, &g.Urgent, &has[0], &has[1])
	if fields := strings.SplitN(answer, " ", 5); len(fields) == 5 {
		g.Name = fields[4]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range parts {
		parts[i] = g
		parts[i].Number = p.made["gpu"]
		p.made["gpu"]++
	}
	return parts, has, err
}

// ShareHost makes the shared memory known to all GPUs that are used.
func (p *Process) ShareHost() error {
	if len(p.Host) == 0 {
		return nil
	}
	_, _, err := p.ask("host %d", len(p.Host))
	return err
}

// Alloc allocates memory of a GPU, and returns its address.
func (p *Process) Alloc(gpu int, bytes uint64) (uint64, error) {
	answer, _, err := p.ask("alloc %d %d", gpu, bytes)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(answer, 10, 64)
}

// Stream makes a stream.
func (p *Process) Stream(gpu, priority int) int {
	return p.make("stream", gpu, priority)
}

// Event makes an event; only one with a time can be asked about it.
func (p *Process) Event(gpu int, timed bool) int {
	flags := 2
	if timed {
		flags = 0
	}
	return p.make("event", gpu, flags)
}

// Load loads a module in PTX.
func (p *Process) Load(gpu int, text string) (int, error) {
	_, n, err := p.ask("module %d %d\n%s", gpu, len(text), text)
	return n, err
}

// Function returns a kernel of a module.
func (p *Process) Function(module int, name string) (int, error) {
	_, n, err := p.ask("function %d %s", module, name)
	return n, err
}

// Routine returns a function of cuBLAS for a GPU. An error may be *Missing.
func (p *Process) Routine(gpu int, name string) (int, error) {
	_, n, err := p.ask("routine %d %s", gpu, name)
	return n, err
}

// Call is the command that calls a routine on a stream, with memory for it to work in, and with the arguments after the
// handle: numbers and, of a value of which the routine takes the address, @ and its eight bytes in hexadecimal digits.
func Call(routine, stream int, workspace, bytes uint64, arguments []string) string {
	return fmt.Sprintf("call %d %d %d %d %s", routine, stream, workspace, bytes, strings.Join(arguments, " "))
}

// Launch is the command that runs a kernel on a stream, with packed arguments.
func Launch(function, stream int, grid, block [3]int, shared int, arguments []byte) string {
	digits := hex.EncodeToString(arguments)
	if digits == "" {
		digits = "-"
	}
	return fmt.Sprintf("launch %d %d %d %d %d %d %d %d %d %s", function, stream, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared, digits)
}

// Launch runs a kernel on a stream, with packed arguments.
func (p *Process) Launch(function, stream int, grid, block [3]int, shared int, arguments []byte) {
	p.Do("%s", Launch(function, stream, grid, block, shared, arguments))
}

// Graph makes a graph of commands that submit to one stream, without running them: Replay submits all of them at once. Other
// goroutines may submit to other streams meanwhile.
func (p *Process) Graph(stream int, commands []string) int {
	p.Do("capture %d\n%s", stream, strings.Join(commands, "\n"))
	return p.make("graph", stream)
}

// Replay launches a graph on a stream of its GPU, at the priority of that stream.
func (p *Process) Replay(graph, stream int) { p.Do("replay %d %d", graph, stream) }

// Spent is the CPU time of the program's commands until now.
func (p *Process) Spent() (time.Duration, error) {
	answer, _, err := p.ask("spent")
	if err != nil {
		return 0, err
	}
	us, err := strconv.ParseFloat(answer, 64)
	return time.Duration(us * 1e3), err
}

// Elapsed is the microseconds between two events with a time that streams have passed.
func (p *Process) Elapsed(from, to int) (float64, error) {
	answer, _, err := p.ask("elapsed %d %d", from, to)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(answer, 64)
}

// Sync waits until all streams are empty.
func (p *Process) Sync() error {
	_, _, err := p.ask("sync")
	return err
}
