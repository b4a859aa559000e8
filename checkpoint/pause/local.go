package pause

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/gpu"
)

// Local is a participant on this machine: some processes of the job.
type Local struct {
	Backend   checkpoint.Backend
	SetLease  func(time.Duration) // of the steps that begin from now on; 0 is none
	Processes []int
	File      string // of what it must not forget

	mu     sync.Mutex
	member *Member
	work   sync.Mutex         // held by the attempt whose steps are under way
	cancel context.CancelFunc // of that attempt
}

// Advance leads the processes to the goal of the request, and gives up an attempt
// at an earlier one. An error says that the request was not obeyed, or not to its end.
func (l *Local) Advance(ctx context.Context, r Request) (Reply, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if reply, err := l.receive(r, nil); err != nil || reply.Outcome == Stale {
		return reply, err
	}
	l.work.Lock() // an attempt before ends its steps first
	defer l.work.Unlock()
	if reply, err := l.receive(r, cancel); err != nil || reply.Outcome == Stale {
		return reply, err
	}
	detail := error(nil)
	for {
		phases, err := l.observe()
		if err != nil {
			return Reply{r.Epoch, Failed, err.Error()}, nil
		}
		l.mu.Lock()
		if l.member.Epoch != r.Epoch {
			defer l.mu.Unlock()
			return Reply{l.member.Epoch, Stale, ""}, nil
		}
		steps, end := l.member.Next(phases)
		l.mu.Unlock()
		if end != Busy {
			return Reply{r.Epoch, end, text(end, detail)}, nil
		}
		if err := l.do(ctx, steps); err != nil {
			detail = err
		}
	}
}

// receive lets the member obey the request, and stores that it does. An attempt at
// an earlier one ends; cancel ends this one, if its steps begin now.
func (l *Local) receive(r Request, cancel context.CancelFunc) (Reply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.member == nil {
		var s MemberState
		if err := load(l.File, &s); err != nil {
			return Reply{}, err
		}
		l.member = NewMember(s, l.Backend.Path(), len(l.Processes))
	}
	before := l.member.MemberState
	if !l.member.Receive(r) {
		return Reply{l.member.Epoch, Stale, ""}, nil
	}
	if l.member.MemberState != before {
		if err := save(l.File, l.member.MemberState); err != nil {
			l.member.MemberState = before
			return Reply{}, err
		}
		if l.cancel != nil {
			l.cancel()
		}
	}
	if cancel != nil {
		l.cancel = cancel
	}
	return Reply{}, nil
}

func (l *Local) observe() ([]checkpoint.Phase, error) {
	phases := make([]checkpoint.Phase, len(l.Processes))
	for i, pid := range l.Processes {
		phase, err := l.Backend.Phase(pid)
		if err != nil && !errors.Is(err, gpu.ErrGone) {
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
		phases[i] = phase
		if err != nil {
			phases[i] = gone
		}
	}
	return phases, nil
}

// do takes steps at the same time, and returns the first error in the order of the processes.
func (l *Local) do(ctx context.Context, steps []Step) error {
	l.SetLease(steps[0].Lease) // steps to one goal have one lease
	errs, outcomes := make([]error, len(steps)), make([]Outcome, len(steps))
	var all sync.WaitGroup
	for i, s := range steps {
		pid := l.Processes[s.Process]
		all.Go(func() {
			outcomes[i], errs[i] = l.take(ctx, s, pid)
		})
	}
	all.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	var first error
	for i, s := range steps {
		if errs[i] != nil && first == nil {
			first = fmt.Errorf("process %d: %w", l.Processes[s.Process], errs[i])
		}
		l.member.Ended(s, outcomes[i])
	}
	return first
}

// take takes a step. A save that was given up while memory was being copied ends all the
// same: the step that should open the gate then finds the process saved, without an
// error, and it is not where the step leads.
func (l *Local) take(ctx context.Context, s Step, pid int) (Outcome, error) {
	if s.Keep {
		err := l.Backend.Keep(pid)
		return outcomeOf(err), err
	}
	if err := l.Backend.Step(ctx, pid, s.To); err != nil {
		return outcomeOf(err), err
	}
	phase, err := l.Backend.Phase(pid)
	if err == nil && phase != s.To {
		return Busy, nil
	}
	return outcomeOf(err), err
}

func outcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Reached
	case errors.Is(err, checkpoint.ErrMoved):
		return Busy // it is observed again
	case errors.Is(err, gpu.ErrGone):
		return Gone
	case errors.Is(err, gpu.ErrCancelled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Late
	}
	return Failed
}

func text(o Outcome, err error) string {
	switch {
	case o == Reached:
		return ""
	case err != nil:
		return err.Error()
	case o == Open:
		return "the lease of a process ran out, and it went on"
	}
	return "a process has ended"
}
