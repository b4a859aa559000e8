package gpu

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Calls makes the calls of the CUDA driver by which one process locks and
// checkpoints another one. It starts a program, gpu/call/call.c, at the first call
// and again if that has ended.
type Calls struct {
	Program     string   // muster-gpu-call
	Driver      string   // the path of libcuda.so.1; empty: as the linker finds it
	Dir         string   // of the locks by which one command at a time changes a process
	Environment []string // beside this process's own
	// Patience is how long whoever changes a process waits for another program that does: that of a caller who died ends what is under way first.
	Patience time.Duration

	mu      sync.Mutex
	running *caller
}

// DriverError is a call of the driver that failed.
type DriverError struct {
	Call string
	Code int // CUresult
}

// Results of the driver that mean something to a caller.
const (
	cudaOutOfMemory  = 2
	cudaIllegalState = 401
	cudaNotReady     = 600
	cudaNotSupported = 801
	callBusy         = 10100
	cudaWithPairs    = 13000 // the version from which on a restore may be to other GPUs
)

func (e *DriverError) Error() string {
	text := fmt.Sprintf("the driver's %s returned error %d", e.Call, e.Code)
	switch e.Code {
	case cudaOutOfMemory:
		text += ": too little host memory for the process's GPU memory, or a MIG instance, which it cannot checkpoint"
	case 304:
		text += ": the operating system refused it; inside gVisor and some containers it does not work"
	case cudaIllegalState:
		text += ": the process is in another state than expected"
	}
	return text
}

var (
	// ErrNotSupported is a driver without these functions, or on which they do not work.
	ErrNotSupported = errors.New("the CUDA driver cannot checkpoint processes: it takes r570 (CUDA 12.8) or later, on x86-64")
	// ErrFailed is a process whose GPU state the driver has lost.
	ErrFailed = errors.New("the CUDA driver has lost the GPU state of the process: restart the job from its last checkpoint")
	// ErrOtherGPUs is a process that had other GPUs than there are here.
	ErrOtherGPUs = errors.New("the process comes from other GPUs")
	// ErrNoCaller is a program that cannot be started, or ended in the middle of a call.
	ErrNoCaller = errors.New("muster-gpu-call ended")
)

// caller is the running program.
type caller struct {
	in      io.WriteCloser
	kill    func() error
	CUDA    int      // version, 1000 for each major and 10 for each minor number
	gpus    []string // the IDs of the GPUs that the driver shows, in its order
	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan answer
	ended   chan struct{}
}

type answer struct{ result, value int } // of resultFile the value is errno

// start starts the program, and waits until it has opened the driver.
func (c *Calls) start(ctx context.Context) (*caller, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running != nil {
		select {
		case <-c.running.ended:
		default:
			return c.running, nil
		}
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	args := []string{c.Dir}
	if c.Driver != "" {
		args = append(args, c.Driver)
	}
	command := exec.Command(c.Program, args...)
	command.Env = append(os.Environ(), c.Environment...)
	command.Stderr = os.Stderr
	apart(command)
	in, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("%w: %w; make gpu builds it", ErrNotSupported, err)
	}
	r := &caller{in: in, kill: command.Process.Kill, waiting: map[uint64]chan answer{}, ended: make(chan struct{})}
	first := make(chan string, 1)
	go r.read(out, first, command)
	select {
	case line := <-first:
		functions := 0
		if n, _ := fmt.Sscanf(line, "ready %d %d", &r.CUDA, &functions); n == 2 && functions == 6 {
			r.gpus = strings.Fields(line)[3:]
			c.running = r
			return r, nil
		}
		in.Close()
		if why, ok := strings.CutPrefix(line, "no "); ok {
			return nil, fmt.Errorf("%w: %s", ErrNotSupported, why)
		}
		return nil, ErrNotSupported
	case <-ctx.Done():
		r.kill()
		return nil, fmt.Errorf("waiting for the CUDA driver to start: %w", ctx.Err())
	}
}

// read gives each answer to who waits for it.
func (r *caller) read(out io.Reader, first chan<- string, command *exec.Cmd) {
	lines := bufio.NewScanner(out)
	line := ""
	if lines.Scan() {
		line = lines.Text()
	}
	first <- line
	for lines.Scan() {
		var id uint64
		var a answer
		if n, _ := fmt.Sscanf(lines.Text(), "%d %d %d", &id, &a.result, &a.value); n != 3 {
			break
		}
		r.mu.Lock()
		to := r.waiting[id]
		delete(r.waiting, id)
		r.mu.Unlock()
		if to != nil {
			to <- a
		}
	}
	command.Wait()
	close(r.ended)
}

// GPUs are the IDs of the GPUs that the driver shows here, in its order, in hexadecimal.
func (c *Calls) GPUs(ctx context.Context) ([]string, error) {
	r, err := c.start(ctx)
	if err != nil {
		return nil, err
	}
	return r.gpus, nil
}

// hadGPUs is the file that says which GPUs a process had that comes from another machine: GPUs of there.
func (c *Calls) hadGPUs(pid int) string { return filepath.Join(c.Dir, strconv.Itoa(pid)+".gpus") }

// ID is a GPU's UUID, such as GPU-5d1f…, as GPUs has it; "" if it is none.
func ID(uuid string) string {
	id := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(uuid, "GPU-"), "-", ""))
	if _, err := hex.DecodeString(id); err != nil || len(id) != 32 || len(uuid) != len("GPU-")+36 {
		return ""
	}
	return id
}

// HadGPUs lets the next restore of a process bring what it has on GPUs to those of this machine, one by one in the driver's order.
func (c *Calls) HadGPUs(pid int, ids []string) error {
	path := c.hadGPUs(pid)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|noFollow, 0o600) // the folder is the user's to write
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(ids, " "))
	return errors.Join(err, f.Close())
}

// had are the GPUs that HadGPUs named; os.ErrNotExist if it did not.
func (c *Calls) had(pid int) ([]string, error) {
	f, err := os.OpenFile(c.hadGPUs(pid), os.O_RDONLY|noFollow, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: expected a file; found %s", f.Name(), info.Mode().Type())
	}
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(f, 64<<10))
	}
	if err != nil {
		return nil, err
	}
	ids := strings.Fields(string(text))
	for _, id := range ids {
		if _, err := hex.DecodeString(id); err != nil || len(id) != 32 {
			return nil, fmt.Errorf("%s: expected IDs of GPUs; found something else", f.Name())
		}
	}
	return ids, nil
}

// Place returns the IDs of GPUs that processes had in the order in which each comes back to the GPU at its place here: to that which the map gives it, by IDs of
// there and here; the others to those that are left, in the driver's order. ErrOtherGPUs: the map names one that is not there, or not here, or one here twice.
func (c *Calls) Place(ctx context.Context, ids []string, on map[string]string) ([]string, error) {
	if len(on) == 0 {
		return ids, nil
	}
	r, err := c.start(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.asMany(ids); err != nil {
		return nil, err
	}
	placed := make([]string, len(r.gpus))
	for _, from := range slices.Sorted(maps.Keys(on)) {
		at := slices.Index(r.gpus, on[from])
		switch {
		case !slices.Contains(ids, from):
			return nil, fmt.Errorf("%w: it had none with the ID %s", ErrOtherGPUs, from)
		case at < 0:
			return nil, fmt.Errorf("%w: there is none with the ID %s here", ErrOtherGPUs, on[from])
		case placed[at] != "":
			return nil, fmt.Errorf("%w: two of them cannot be on the one with the ID %s", ErrOtherGPUs, on[from])
		}
		placed[at] = from
	}
	for _, id := range ids {
		if _, named := on[id]; named {
			continue
		}
		placed[slices.Index(placed, "")] = id
	}
	return placed, nil
}

// Fits is ErrOtherGPUs if a process that had the GPUs cannot come back on those of this machine.
func (c *Calls) Fits(ctx context.Context, ids []string) error {
	r, err := c.start(ctx)
	if err == nil {
		_, err = r.pairs(ids)
	}
	return err
}

func (r *caller) asMany(ids []string) error {
	if len(ids) != len(r.gpus) {
		return fmt.Errorf("%w: it had %d and there are %d here", ErrOtherGPUs, len(ids), len(r.gpus))
	}
	return nil
}

// pairs are the IDs of GPUs, each before that of the one here on which a process comes back; none where they are the same.
func (r *caller) pairs(ids []string) (text string, err error) {
	if err := r.asMany(ids); err != nil {
		return "", err
	}
	switch {
	case slices.Equal(ids, r.gpus):
		return "", nil
	case r.CUDA < cudaWithPairs:
		return "", fmt.Errorf("%w: the driver (CUDA %d.%d) brings a process back to the same GPU alone; from r580 (CUDA 13.0) on to an equal one", ErrOtherGPUs, r.CUDA/1000, r.CUDA%1000/10)
	}
	for i, id := range ids {
		text += " " + id + " " + r.gpus[i]
	}
	return text, nil
}

// Call is one call of the driver, which may be under way still.
type Call struct {
	op     string
	had    string // the file to remove after a restore
	answer chan answer
	ended  <-chan struct{}
}

// ListChanged returns the processes that Calls of a folder have changed, in ascending order, by the locks that are left there. A lock has the start time of
// its process: those that have ended are left out, whoever has their IDs now, and their locks are removed.
func ListChanged(dir string) ([]int, error) {
	pids, err := numbered(dir, ".lock")
	return slices.DeleteFunc(pids, func(pid int) bool { return !isOf(filepath.Join(dir, strconv.Itoa(pid)+".lock"), pid) }), err
}

// isOf says whether a lock is that of the process that has the ID now.
func isOf(lock string, pid int) bool {
	f, err := openOwn(lock)
	if err != nil {
		return false
	}
	defer f.Close()
	text, err := short(f)
	locked, err2 := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	if err != nil || err2 != nil {
		return false // who takes it has not written yet
	}
	if started, err := StartTime(pid); err == nil && started == locked {
		return true
	}
	if lockFile(f) == nil { // who has opened it meanwhile finds that it is no longer there
		os.Remove(lock)
	}
	return false
}

// Begin makes a call for a process: state, thread, lock, checkpoint, restore, unlock,
// or keep, which lets it stay locked at the end of Calls; stay, which lets it stay as it is
// then whatever calls follow, and leave, which ends that; or ghost, before the process
// hands its memory over, and copy, which then writes that to PID.data. The limit, of lock, is
// rounded up to milliseconds and is at least one.
func (c *Calls) Begin(ctx context.Context, op string, pid int, limit time.Duration) (*Call, error) {
	r, err := c.start(ctx)
	if err != nil {
		return nil, err
	}
	pairs := ""
	if op == "restore" {
		had, err := c.had(pid)
		if err == nil {
			pairs, err = r.pairs(had)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	call := &Call{op, c.hadGPUs(pid), make(chan answer, 1), r.ended}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	r.waiting[r.next] = call.answer
	ms := max(1, (limit+time.Millisecond-1)/time.Millisecond)
	if _, err := fmt.Fprintf(r.in, "%d %s %d %d%s\n", r.next, op, pid, ms, pairs); err != nil {
		delete(r.waiting, r.next)
		return nil, fmt.Errorf("%w: %w", ErrNoCaller, err)
	}
	return call, nil
}

// Wait returns the value of state and thread. If the context ends first the call
// goes on: the driver's calls cannot be interrupted.
func (c *Call) Wait(ctx context.Context) (int, error) {
	select {
	case a := <-c.answer:
		return c.end(a)
	case <-ctx.Done():
		return 0, fmt.Errorf("waiting for the driver's %s: %w", c.op, ctx.Err())
	case <-c.ended:
		select {
		case a := <-c.answer:
			return c.end(a)
		default:
			return 0, ErrNoCaller
		}
	}
}

// end returns the answer, which the next Wait finds again: who could not tell a lock's time limit from the end of the context waits once more.
func (c *Call) end(a answer) (int, error) {
	c.answer <- a
	return a.value, c.result(a)
}

// result is what a CUresult means.
func (c *Call) result(a answer) error {
	switch code := a.result; {
	case code == 0:
		if c.op == "restore" {
			os.Remove(c.had) // it has those of this machine now
		}
		return nil
	case code == callBusy:
		return ErrBusy
	case code == cudaNotSupported:
		return ErrNotSupported
	case code == cudaNotReady && c.op == "lock":
		return fmt.Errorf("waiting for its GPU work to end: %w", context.DeadlineExceeded)
	case code == cudaOutOfMemory && (c.op == "restore" || c.op == "copy"):
		return ErrNoMemory
	case code == resultFile && c.op != "copy" && c.op != "ghost":
		return fmt.Errorf("the lock that says which process it is: %s", errnoText(uint32(a.value)))
	case code == resultFile:
		return fmt.Errorf("writing its memory to the host: %s", errnoText(uint32(a.value)))
	case code == resultCancelled:
		return ErrCancelled
	}
	return &DriverError{c.op, a.result}
}

// Close ends the program. It ends the calls under way, lets the processes go on that
// are locked and not kept, and gives the locks back: Close waits for that, 10 s at most.
func (c *Calls) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		return
	}
	c.running.in.Close()
	select {
	case <-c.running.ended:
	case <-time.After(10 * time.Second):
	}
	c.running = nil
}

// Alive says whether a process runs.
func Alive(pid int) bool {
	_, err := StartTime(pid)
	return err == nil
}
