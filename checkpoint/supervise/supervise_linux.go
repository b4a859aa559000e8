package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/checkpoint/offload"
)

// firstID is from which ID on a job's processes are numbered in a container, where this process is the first one: there they find their IDs free
// again, as neither this process nor what it starts has them.
const firstID = 1000

// Signals are those that a job gets, by Run.
var Signals = []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// errStart is a command that cannot be run.
var errStart = errors.New("the command does not start")

// Run runs the job until it ends, and returns its exit code. If the store has its image, it goes on from that; else the command is started. At
// SIGTERM the processes move to the image, and the code is Moved; if that fails they get the signal, as they get all others. One job of the name runs at a time.
func (j *Job) Run(ctx context.Context, signals <-chan os.Signal) (code int, err error) {
	w := j.Whole
	if err := w.CRIU.Check(ctx); err != nil {
		return 1, err
	}
	name, ended, err := j.claim(ctx, signals)
	if name == nil {
		return ended, err
	}
	defer name.Release()
	// Processes that come back are no children of this one. With this they are, as soon as what brought them back has ended.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1, fmt.Errorf("PR_SET_CHILD_SUBREAPER: %w", err)
	}
	if err := os.MkdirAll(w.Dir, 0o700); err != nil {
		return 1, err
	}
	var pipes [2]*output
	for i, of := range []struct {
		suffix string
		to     io.Writer
	}{{".stdout", j.Out}, {".stderr", j.Err}} {
		if pipes[i], err = open(filepath.Join(w.Dir, j.Name+of.suffix), of.to); err != nil {
			return 1, err
		}
	}
	root, err := j.start(ctx, pipes)
	if err != nil {
		pipes[0].close()
		pipes[1].close()
		switch {
		case !errors.Is(err, errStart):
			return 1, err
		case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
			return 127, err // as shells have it
		}
		return 126, err
	}
	return j.watch(ctx, name, root, pipes, signals)
}

// claim waits until no other job of the name runs. If a signal ends it first, there is no claim, and the exit code is of that.
func (j *Job) claim(ctx context.Context, signals <-chan os.Signal) (name *image.Claim, code int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		name, err = j.Whole.Images.Claim(ctx, j.Name, func(owner string) { j.Say(fmt.Sprintf("job %s runs (%s): waiting until it has ended", j.Name, owner)) })
	}()
	for {
		select {
		case <-done:
			return name, 1, err
		case s := <-signals:
			if s != syscall.SIGTERM && s != syscall.SIGINT {
				continue
			}
			cancel()
			<-done
			if name != nil {
				name.Release()
			}
			j.Say(fmt.Sprintf("job %s was not started: it ends by %v", j.Name, s))
			return nil, 128 + int(s.(syscall.Signal)), nil
		}
	}
}

// start brings the processes back, or starts the command.
func (j *Job) start(ctx context.Context, pipes [2]*output) (root *os.Process, err error) {
	w := j.Whole
	e, err := w.Images.Find(ctx, j.Name)
	if err == nil {
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, j.Restore)
		defer cancel()
		pid, pids, err := w.Restore(limited, e, j.Restore)
		switch {
		case errors.Is(err, offload.ErrImageStays):
			j.Say(fmt.Sprintf("job %s: %v", j.Name, err))
			j.stale = &e
		case err != nil && pid != 0: // they stay paused; the image is what goes on later
			if undo := w.End(pid, pids); undo != nil {
				return nil, errors.Join(err, undo)
			}
			if ended, err := os.FindProcess(pid); err == nil {
				ended.Wait() // until all of its threads have ended
			}
			bury(pid)
			return nil, fmt.Errorf("image %s does not go on here, and stays: %w", e.ID, errors.Unwrap(err))
		case err != nil:
			return nil, err
		}
		j.Say(fmt.Sprintf("job %s goes on from image %s, after %v", j.Name, e.ID, time.Since(began).Round(time.Millisecond)))
		return os.FindProcess(pid)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if os.Getpid() == 1 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(firstID-1)), 0); err != nil {
			j.Say(fmt.Sprintf("the processes of job %s have IDs that may not be free where it goes on: %v", j.Name, err))
		}
	}
	// What this process has open by its own parent, such as a file outside the container, would keep the command here.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fmt.Errorf("close_range: %w", err)
	}
	c := exec.Command(j.Command[0], j.Command[1:]...)
	c.Env = append(append(os.Environ(), j.Environment...), "MUSTER_GPU_DIR="+w.Dir)
	c.Stdout, c.Stderr = pipes[0].write, pipes[1].write
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // its session comes back with it
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("%w: %w", errStart, err)
	}
	return c.Process, nil
}

// watch waits for the end of the job, and passes signals on.
func (j *Job) watch(ctx context.Context, name *image.Claim, root *os.Process, pipes [2]*output, signals <-chan os.Signal) (int, error) {
	ended := make(chan int, 1)
	go func() {
		state, err := root.Wait()
		code := 1
		if err == nil {
			code = state.ExitCode()
			if s := state.Sys().(syscall.WaitStatus); s.Signaled() {
				code = 128 + int(s.Signal())
			}
		}
		ended <- code
	}()
	orphans := time.NewTicker(time.Second)
	defer orphans.Stop()
	defer pipes[1].close()
	defer pipes[0].close()
	asked := false // to end
	for {
		select {
		case code := <-ended:
			return code, nil
		case <-orphans.C:
			bury(root.Pid)
		case s := <-signals:
			if s == syscall.SIGTERM && !asked {
				saved, err := j.move(ctx, name, root.Pid, pipes)
				if err == nil {
					j.Say(fmt.Sprintf("job %s is image %s: the same command, here or elsewhere, goes on from it", j.Name, saved))
					<-ended
					bury(root.Pid)
					return Moved, nil
				}
				j.Say(fmt.Sprintf("job %s cannot move to an image, and is asked to end: %v", j.Name, err))
				asked = true
			}
			if err := root.Signal(s); err != nil {
				j.Say(fmt.Sprintf("signal %v of job %s is not passed on: %v", s, j.Name, err))
			}
		}
	}
}

// move moves the processes to an image.
func (j *Job) move(ctx context.Context, name *image.Claim, root int, pipes [2]*output) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, j.Within)
	defer cancel()
	if err := name.Held(ctx); err != nil {
		return "", err
	}
	if j.stale != nil {
		if err := j.Whole.Images.Delete(ctx, *j.stale); err != nil {
			return "", err
		}
		j.stale = nil
	}
	var release []func(gone bool)
	w, step := *j.Whole, j.Whole.Step
	w.Step = func(name string, bytes int64) {
		if name == offload.ReadingProcesses {
			release = append(release, pipes[0].hold(), pipes[1].hold())
		}
		step(name, bytes)
	}
	saved, err := w.Checkpoint(ctx, root, j.Name, j.Pause)
	for _, r := range release {
		r(err == nil)
	}
	return saved.ID, err
}

// bury takes note of the ends of processes whose parents ended before them, and which are this one's therefore. The job's first process has a
// waiter of its own.
func bury(root int) {
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for _, word := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil && pid != root {
				var status syscall.WaitStatus
				syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
			}
		}
	}
}
