package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/muster-sched/muster/gpu"
)

// Framework is the backend over processes that save their own state when they are asked to, as training frameworks can
// ([gpu.Self]): such a process is Gated when it stands still between two steps of its work, and Saved when its state is where
// it stores it and it has given back its GPU memory. It goes back the same way.
//
// A request that a step gave up waiting for is taken back: a process that looks later finds the last one only.
type Framework struct {
	Dir   string        // that the processes have as MUSTER_GPU_DIR
	Lease time.Duration // after which a process that is not kept goes on by itself; 0: never

	processes held[*gpu.Self]
}

// ErrNever is a process that says that it must not be paused.
var ErrNever = errors.New("the process says that it must not be paused")

const (
	// askPeriod is the time between two looks at what a process says.
	askPeriod = 5 * time.Millisecond
	// keepTime is how long a process that stands still may take to answer.
	keepTime = 10 * time.Second
)

// Path is that of [Shim].
func (f *Framework) Path() []Phase { return []Phase{Running, Gated, Saved} }

// Close lets other commands lead the processes.
func (f *Framework) Close() {
	f.processes.close()
}

// List returns the processes that save themselves.
func (f *Framework) List() ([]int, error) { return gpu.ListSelf(f.Dir) }

// SetLease is of the steps from now on.
func (f *Framework) SetLease(d time.Duration) bool {
	f.Lease = d
	return true
}

// Phase observes a process: gpu.ErrNoPage if it is none that saves itself.
func (f *Framework) Phase(pid int) (Phase, error) {
	s, led := f.processes.get(pid)
	if !led {
		found, err := gpu.OpenSelf(f.Dir, pid)
		if err != nil {
			return "", err
		}
		defer found.Close()
		s = found
	} else if !s.Alive() {
		return "", gpu.ErrGone
	}
	said, err := s.Says()
	if err != nil {
		return "", err
	}
	if phase := Phase(said.Phase); slices.Contains(f.Path(), phase) {
		return phase, nil
	}
	return "", fmt.Errorf("it says that it is %q: expected one of %v", said.Phase, f.Path())
}

// Status is the phase. What the process has on the GPU it does not say.
func (f *Framework) Status(pid int) (Status, error) {
	phase, err := f.Phase(pid)
	if err != nil {
		return Status{}, err
	}
	s, err := gpu.OpenSelf(f.Dir, pid)
	if err != nil {
		return Status{}, err
	}
	defer s.Close()
	return Status{PID: pid, Phase: phase, Durable: s.Durable, Within: s.Within}, nil
}

func (f *Framework) hold(pid int) (*gpu.Self, error) {
	return f.processes.lead(pid, func() (*gpu.Self, error) { return gpu.OpenSelf(f.Dir, pid) }, (*gpu.Self).Lead)
}

// Step asks a process to be in a phase, and waits until it says that it is.
func (f *Framework) Step(ctx context.Context, pid int, to Phase) error {
	s, err := f.hold(pid)
	if err != nil {
		return err
	}
	from, err := f.Phase(pid)
	if err != nil {
		return err
	}
	if err := oneStep(f.Path(), from, to); err != nil {
		return err
	}
	if s.Never && from == Running && to != Running {
		return ErrNever
	}
	err = f.ask(ctx, s, to, f.Lease)
	if err != nil && ctx.Err() != nil {
		// It may look only when no command waits any longer: it is to stay where it is, and not to wait there alone.
		lease := f.Lease
		if from == Running {
			lease = 0
		}
		_, withdrawn := s.Ask(string(from), lease)
		err = errors.Join(err, withdrawn)
	}
	return err
}

// ask asks a process, and waits for its answer: gpu.ErrCancelled if it went on by itself meanwhile.
func (f *Framework) ask(ctx context.Context, s *gpu.Self, to Phase, lease time.Duration) error {
	if to == Running {
		lease = 0
	}
	n, err := s.Ask(string(to), lease)
	if err != nil {
		return err
	}
	look := time.NewTicker(askPeriod)
	defer look.Stop()
	for {
		said, err := s.Says()
		switch {
		case err != nil:
			return err
		case said.Number >= n && Phase(said.Phase) == to:
			return nil
		case said.Number >= n && said.Problem != "":
			return errors.New(said.Problem)
		case said.Number >= n:
			return gpu.ErrCancelled
		case !s.Alive():
			return gpu.ErrGone
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the process has not answered: %w", ctx.Err())
		case <-look.C:
		}
	}
}

// Keep ends the lease of a saved process.
func (f *Framework) Keep(pid int) error {
	s, err := f.hold(pid)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), keepTime)
	defer cancel()
	return f.ask(ctx, s, Saved, 0)
}
