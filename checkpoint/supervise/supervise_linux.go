package supervise

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/gpu"
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
//
// For agents the job is a process that saves itself ([gpu.Self]): asked to, it moves to the image and back while this one waits.
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
	self, err := gpu.Announce(j.Dir, "durable", fmt.Sprintf("within=%.0f", max(1, j.Within.Seconds())))
	if err != nil {
		return 1, err
	}
	defer self.Close()
	r := &running{Job: j, claim: name, self: self, pipes: w.Dir, phase: checkpoint.Running, ended: make(chan int, 1), done: make(chan outcome, 1)}
	if err := r.begin(ctx); err != nil {
		switch {
		case !errors.Is(err, errStart):
			return 1, err
		case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
			return 127, err // as shells have it
		}
		return 126, err
	}
	defer r.closePipes()
	return r.watch(ctx, signals)
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

// begin brings the processes back, or starts the command.
func (r *running) begin(ctx context.Context) error {
	e, err := r.Whole.Images.Find(ctx, r.Name)
	switch {
	case err == nil:
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, r.Restore)
		defer cancel()
		r.image = &e
		if err = r.comeBack(limited); err != nil {
			return fmt.Errorf("image %s does not go on here, and stays: %w", e.ID, err)
		}
		if err = r.release(limited); err != nil {
			// The image may be gone: the processes are the job.
			r.Say(fmt.Sprintf("job %s is back from image %s and waits, to be tried again: %v", r.Name, e.ID, err))
			r.until = time.Now().Add(tryAgain)
			r.says(checkpoint.Gated, err)
			return nil
		}
		r.Say(fmt.Sprintf("job %s goes on from image %s, after %v", r.Name, e.ID, time.Since(began).Round(time.Millisecond)))
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err = r.openPipes(); err == nil {
		if err = r.start(); err != nil {
			r.closePipes()
		}
	}
	return err
}

// start starts the command.
func (r *running) start() error {
	if os.Getpid() == 1 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(firstID-1)), 0); err != nil {
			r.Say(fmt.Sprintf("the processes of job %s have IDs that may not be free where it goes on: %v", r.Name, err))
		}
	}
	// What this process has open by its own parent, such as a file outside the container, would keep the command here.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close_range: %w", err)
	}
	c := exec.Command(r.Command[0], r.Command[1:]...)
	c.Env = append(append(os.Environ(), r.Environment...), "MUSTER_GPU_DIR="+r.Whole.Dir)
	c.Stdout, c.Stderr = r.out[0].write, r.out[1].write
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // its session comes back with it
	if err := c.Start(); err != nil {
		return fmt.Errorf("%w: %w", errStart, err)
	}
	r.supervise(c.Process)
	return nil
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
