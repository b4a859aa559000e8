// Package checkpoint pauses and resumes processes that use a GPU, several as
// one: all are paused, or all go on (FlowGPU, §4; docs/adr/0022).
package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/muster-sched/muster/gpu"
)

// Phase is how far a process is on the way to being paused.
type Phase string

// The phases, in the order in which a process passes them. A backend has some of
// them: its path.
const (
	Running      Phase = "Running"
	Gated        Phase = "Gated"        // its calls of the driver wait at the shim's gate; its memory is on the GPU
	Saved        Phase = "Saved"        // the memory that it uses is in a file, and the GPU's is released; or a ghost holds it
	Released     Phase = "Released"     // and so is all else that it had on the GPU, which is made again on the way back
	Locked       Phase = "Locked"       // the driver lets its calls wait, and its work on the GPU has ended
	Checkpointed Phase = "Checkpointed" // the driver holds all its GPU state in the process's host memory, and nothing on the GPU
)

// Backend moves processes of this node between phases.
type Backend interface {
	// Path is the phases through which Step moves a process, in order: from
	// Running to the one in which it is paused. It has two or more, always the same.
	Path() []Phase
	// Phase observes the process; gpu.ErrGone if it has ended.
	Phase(pid int) (Phase, error)
	// Step moves the process to the phase, which is its own, and then nothing
	// happens, or a neighbour on the path. The context bounds it: a step that did
	// not end leaves the process in the phase that it was in, or in one that Phase
	// gives and the next step waits for. Without an error the process may still be
	// elsewhere, where a step before that had not ended led it: Phase says where. Until
	// Keep, the process goes on by itself if nothing is done for the time of the lease.
	Step(ctx context.Context, pid int, to Phase) error
	// Keep lets a process at the end of the path stay so for any time.
	Keep(pid int) error
}

// End is the phase in which a process is paused.
func End(b Backend) Phase {
	path := b.Path()
	return path[len(path)-1]
}

// wayBack is what giving up may take at least: a process that stays behind, stopped,
// is worse than a caller that waits, and a busy machine may need longer than for a try.
const wayBack = time.Minute

// Options say how long, and how often, Pause tries.
type Options struct {
	Timeout time.Duration // of one try
	Retries int           // tries after the first
	Backoff time.Duration // before the first retry; each further one waits twice as long, at most 10 s
}

// UnpausableError is a pause that was given up. All processes go on.
type UnpausableError struct {
	Tries int
	Cause error // of the last try
}

func (e *UnpausableError) Error() string {
	return fmt.Sprintf("cannot be paused (%d tries; all processes go on): %v", e.Tries, e.Cause)
}

func (e *UnpausableError) Unwrap() error { return e.Cause }

// ErrMoved is a process that is elsewhere on its path than a caller of Step saw it: a caller before, who died, or its lease, moved it meanwhile.
var ErrMoved = errors.New("the process has moved meanwhile")

// Pause pauses all processes, or lets all go on. Ranks of one job are paused
// together: a rank that waits for another one in a collective does not come to
// rest while the other one is paused. It is then tried again, at another moment
// of the job. A process that is paused already stays so; one that a caller paused who
// died before it was kept is kept now.
//
// All reach a phase of the path before one moves to the next: first the calls of
// all wait, then all give their memory back. At the end all are kept. A caller
// that dies before leaves leases, which run out.
func Pause(ctx context.Context, b Backend, pids []int, o Options) error {
	phases, err := observe(b, pids)
	if err != nil {
		return err
	}
	running := slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { return phases[pid] == End(b) })
	wait := o.Backoff
	for try := 1; ; try++ {
		err := pauseOnce(ctx, b, running, pids, o.Timeout)
		if err == nil {
			return nil
		}
		// An interrupted caller leaves no process behind: the way back has a context of its own.
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(o.Timeout, wayBack))
		undo := each(running, func(pid int) error { return ifAlive(walk(back, b, pid, Running)) })
		cancel()
		if undo != nil {
			return fmt.Errorf("cannot be paused: %w; and not all go on: %w", err, undo)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted (%w); all processes go on: %w", context.Cause(ctx), err)
		}
		if try > o.Retries || !mayHelp(err) {
			return &UnpausableError{try, err}
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		for _, pid := range pids { // one that was paused may have gone on, at the end of a caller who died
			if phase, err := b.Phase(pid); err == nil && phase != End(b) && !slices.Contains(running, pid) {
				running = append(running, pid)
			}
		}
		wait = min(2*wait, 10*time.Second)
	}
}

// mayHelp says whether another try may end otherwise.
func mayHelp(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, gpu.ErrCancelled) || errors.Is(err, ErrMoved)
}

func pauseOnce(ctx context.Context, b Backend, running, all []int, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, to := range b.Path()[1:] {
		if err := each(running, func(pid int) error { return forward(ctx, b, pid, to) }); err != nil {
			return err
		}
	}
	return each(all, b.Keep)
}

// observe gives the phases of all.
func observe(b Backend, pids []int) (map[int]Phase, error) {
	phases := map[int]Phase{}
	for _, pid := range pids {
		phase, err := b.Phase(pid)
		if err != nil {
			return nil, of(pid, err)
		}
		phases[pid] = phase
	}
	return phases, nil
}

// forward moves a process to the phase, unless an earlier command, which died,
// left it further on the way.
func forward(ctx context.Context, b Backend, pid int, to Phase) error {
	phase, err := b.Phase(pid)
	if err != nil {
		return err
	}
	path := b.Path()
	if slices.Index(path, phase) > slices.Index(path, to) {
		return nil
	}
	return b.Step(ctx, pid, to)
}

// Resume lets all processes go on, or none: where one cannot, as the GPU has too
// little memory, those that could are paused again, before any of their calls goes on.
// One between the ends of the path was being paused or resumed by a caller that died, and is
// treated as a paused one.
func Resume(ctx context.Context, b Backend, pids []int, timeout time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := restore(ctx, limited, b, pids, timeout); err != nil {
		return err
	}
	// One that goes on may end at once.
	return each(pids, func(pid int) error { return ifAlive(walk(limited, b, pid, Running)) })
}

// Restore is Resume up to the last step: all have their GPU memory, and their calls wait.
func Restore(ctx context.Context, b Backend, pids []int, timeout time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return restore(ctx, limited, b, pids, timeout)
}

func restore(ctx, limited context.Context, b Backend, pids []int, timeout time.Duration) error {
	phases, err := observe(b, pids)
	if err != nil {
		return err
	}
	paused := slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { return phases[pid] == Running })
	err = each(paused, func(pid int) error { return walk(limited, b, pid, b.Path()[1]) })
	if err == nil {
		return nil
	}
	back, cancelBack := context.WithTimeout(context.WithoutCancel(ctx), max(timeout, wayBack))
	defer cancelBack()
	undo := each(paused, func(pid int) error {
		if err := walk(back, b, pid, End(b)); err != nil {
			return ifAlive(err)
		}
		return ifAlive(b.Keep(pid))
	})
	if undo != nil {
		return fmt.Errorf("%w; and not all are paused again: %w", err, undo)
	}
	return err
}

// walk moves a process to the phase, step by step.
func walk(ctx context.Context, b Backend, pid int, to Phase) error {
	path := b.Path()
	for {
		phase, err := b.Phase(pid)
		if err != nil || phase == to {
			return err
		}
		at, goal := slices.Index(path, phase), slices.Index(path, to)
		if at < 0 {
			return fmt.Errorf("the process is %s: expected one of %v", phase, path)
		}
		next := at + 1
		if goal < at {
			next = at - 1
		}
		if err := b.Step(ctx, pid, path[next]); err != nil && (!errors.Is(err, ErrMoved) || ctx.Err() != nil) {
			return err
		}
	}
}

// ifAlive forgets that a process has ended: it holds nothing, and there is nothing to undo.
func ifAlive(err error) error {
	if errors.Is(err, gpu.ErrGone) {
		return nil
	}
	return err
}

// each calls f for all processes at the same time, and returns the errors in the order of the processes.
func each(pids []int, f func(int) error) error {
	errs := make([]error, len(pids))
	var all sync.WaitGroup
	for i, pid := range pids {
		all.Go(func() { errs[i] = of(pid, f(pid)) })
	}
	all.Wait()
	var found []error
	for _, err := range errs {
		if err != nil {
			found = append(found, err)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return &rankErrors{found}
}

// rankErrors is what went wrong on several ranks, on one line.
type rankErrors struct{ errs []error }

func (e *rankErrors) Error() string {
	const shown = 3
	text := ""
	for i, err := range e.errs {
		if i == shown {
			return fmt.Sprintf("%s; and %d more", text, len(e.errs)-shown)
		}
		if i > 0 {
			text += "; "
		}
		text += err.Error()
	}
	return text
}

func (e *rankErrors) Unwrap() []error { return e.errs }

func of(pid int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("process %d: %w", pid, err)
}
