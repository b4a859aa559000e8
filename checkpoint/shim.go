package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/muster-sched/muster/gpu"
)

// Shim is the backend over gpu/shim: it pauses processes that run with Muster's libcuda.so.1.
type Shim struct {
	Dir   string        // of the control pages
	Lease time.Duration // after which a process goes on by itself, unless it is kept
	Ghost *gpu.Calls    // if not nil, a process hands its memory over to a ghost there, in place of copying it to a file: Copy does that

	pages held[*gpu.Page]
}

// Close lets other commands change the processes.
func (s *Shim) Close() {
	s.pages.close()
}

// List returns the processes with a control page.
func (s *Shim) List() ([]int, error) { return gpu.List(s.Dir) }

// SetLease is of the steps from now on.
func (s *Shim) SetLease(d time.Duration) bool {
	s.Lease = d
	return true
}

// Status is what is known about a process.
type Status struct {
	PID       int   `json:"pid"`
	Phase     Phase `json:"phase"`
	Reserved  int64 `json:"reservedBytes"`         // of GPU memory; while it is paused, what it takes to resume
	Active    int64 `json:"activeBytes"`           // copied at the last pause
	Untracked int   `json:"untrackedCount"`        // allocations that stay on the GPU
	Objects   int   `json:"objectCount,omitempty"` // streams, events, modules and kernels, which a replay makes again
	// Released says that nothing else of it is on the GPU either. A resume by any backend makes all of it again.
	Released bool `json:"released,omitempty"`
	// Durable says that what it saves outlives it: a process that is started in its place goes on from there, also on another node.
	Durable bool `json:"durable,omitempty"`
	// Within is how long a step may take, as the process itself says; 0: it does not.
	Within time.Duration `json:"-"`
}

// Status observes a process.
func (s *Shim) Status(pid int) (Status, error) {
	p, done, err := s.observe(pid)
	if err != nil {
		return Status{}, err
	}
	defer done()
	return Status{PID: pid, Phase: phaseOf(p), Reserved: p.Reserved(), Active: p.Active(), Untracked: p.Untracked(), Objects: p.Objects(), Released: p.IsReleased()}, nil
}

// Phase observes a process.
func (s *Shim) Phase(pid int) (Phase, error) {
	st, err := s.Status(pid)
	return st.Phase, err
}

func phaseOf(p *gpu.Page) Phase {
	switch {
	case p.HasNone():
		return Saved
	case p.Gate() == gpu.Open:
		return Running
	}
	return Gated
}

// observe gives the page that the backend holds, or opens one without a lock.
func (s *Shim) observe(pid int) (*gpu.Page, func(), error) {
	if p, ok := s.pages.get(pid); ok {
		if !p.Alive() {
			return nil, nil, gpu.ErrGone
		}
		return p, func() {}, nil
	}
	p, err := gpu.OpenPage(s.Dir, pid)
	if err != nil {
		return nil, nil, err
	}
	return p, p.Close, nil
}

// hold gives the page, locked until Close.
func (s *Shim) hold(pid int) (*gpu.Page, error) {
	return s.pages.lead(pid, func() (*gpu.Page, error) { return gpu.OpenPage(s.Dir, pid) }, (*gpu.Page).Lock)
}

// Path is that of processes with a gate.
func (s *Shim) Path() []Phase { return []Phase{Running, Gated, Saved} }

// oneStep is an error unless to is from or a neighbour on the path; ErrMoved where both are on it.
func oneStep(path []Phase, from, to Phase) error {
	at, goal := slices.Index(path, from), slices.Index(path, to)
	if at < 0 || goal < 0 || goal-at > 1 || at-goal > 1 {
		err := fmt.Errorf("from phase %s: expected one step on %v; found %s", from, path, to)
		if at >= 0 && goal >= 0 {
			err = fmt.Errorf("%w: %w", ErrMoved, err)
		}
		return err
	}
	return nil
}

// Step moves a process to the phase, its own or a neighbour.
func (s *Shim) Step(ctx context.Context, pid int, to Phase) error {
	p, err := s.hold(pid)
	if err != nil {
		return err
	}
	// What an earlier command began ends first, unless opening the gate is what ends it.
	if to != Running {
		if err := until(ctx, p, "the command before to end", p.Idle); err != nil {
			return err
		}
	}
	from := phaseOf(p)
	if err := oneStep(s.Path(), from, to); err != nil {
		return err
	}
	switch {
	case to == Running:
		return open(ctx, p)
	case from == Running && to == Gated:
		p.SetLease(s.Lease)
		p.CloseGate()
		return drained(ctx, p)
	case from == Gated && to == Gated:
		return drained(ctx, p)
	case from == Gated && to == Saved && s.Ghost != nil:
		p.SetLease(s.Lease)
		return s.hand(ctx, p)
	case from == Gated && to == Saved:
		p.SetLease(s.Lease)
		return command(ctx, p, gpu.Save)
	case from == Saved && to == Gated:
		p.SetLease(s.Lease)
		err := command(ctx, p, gpu.Restore)
		if errors.Is(err, gpu.ErrNoMemory) || errors.Is(err, gpu.ErrDamaged) || errors.Is(err, gpu.ErrNoData) {
			p.SetLease(0) // it was paused for any time, and still is
		}
		return err
	}
	return nil
}

// Keep ends the lease of a saved process.
func (s *Shim) Keep(pid int) error {
	p, err := s.hold(pid)
	if err != nil {
		return err
	}
	p.SetLease(0)
	if !p.HasNone() {
		return gpu.ErrCancelled // its lease had run out
	}
	return nil
}

// ErrNotPaused is a process whose memory is not saved.
var ErrNotPaused = errors.New("expected a paused process")

// HoldSaved gives the page of a process that is saved, keeps it so, and lets no other command
// change it until Close: ErrNotPaused if it is not. A process whose lease ran out at
// this moment may go on all the same: ask the page again at the end.
func (s *Shim) HoldSaved(ctx context.Context, pid int) (*gpu.Page, error) {
	// It is not locked before it was seen: a pause that another command is making goes on undisturbed.
	phase, err := s.Phase(pid)
	if err == nil && phase != Saved {
		err = fmt.Errorf("%w; found %s", ErrNotPaused, phase)
	}
	if err != nil {
		return nil, err
	}
	p, err := s.hold(pid)
	if err != nil {
		return nil, err
	}
	// A command that died may have begun to restore it. To end the lease then would leave it at a closed gate.
	err = until(ctx, p, "the command before to end", p.Idle)
	if phase := phaseOf(p); err == nil && phase != Saved {
		err = fmt.Errorf("%w; found %s", ErrNotPaused, phase)
	} else if err == nil && !p.IsSaved() {
		err = fmt.Errorf("%w; found one whose memory a ghost holds (muster checkpoint --ghost, which was killed): muster resume continues it", ErrNotPaused)
	}
	if err != nil {
		s.pages.release(pid)
		return nil, err
	}
	return p, s.Keep(pid)
}

// open opens the gate. While the memory is being copied that is not possible;
// the process is then saved, and its next phase is the caller's to see.
func open(ctx context.Context, p *gpu.Page) error {
	for p.Gate() != gpu.Open {
		if p.OpenGate() {
			return nil
		}
		if err := until(ctx, p, "its memory to be copied", func() bool { return p.Gate() != gpu.Sealed || p.Idle() }); err != nil {
			return err
		}
		if p.HasNone() {
			return nil
		}
	}
	return nil
}

// hand moves the memory of a process to a ghost. It takes no copy.
func (s *Shim) hand(ctx context.Context, p *gpu.Page) error {
	call, err := s.Ghost.Begin(ctx, "ghost", p.Here(), 0)
	if err == nil {
		_, err = call.Wait(ctx)
	}
	if err != nil {
		return err
	}
	return command(ctx, p, gpu.Hand)
}

// Copy writes the memory that processes handed over to their files, as if they had been saved there. The processes need not run meanwhile.
func (s *Shim) Copy(ctx context.Context, pids []int) error {
	return each(pids, func(pid int) error {
		p, err := s.hold(pid)
		if err != nil || p.IsSaved() {
			return err
		}
		call, err := s.Ghost.Begin(ctx, "copy", p.Here(), 0)
		if err == nil {
			_, err = call.Wait(ctx)
		}
		return err
	})
}

func drained(ctx context.Context, p *gpu.Page) error {
	if err := until(ctx, p, "its calls in flight to return", func() bool { return p.Gate() == gpu.Open || p.InFlight() == 0 }); err != nil {
		return err
	}
	if p.Gate() == gpu.Open {
		return gpu.ErrCancelled
	}
	return nil
}

func command(ctx context.Context, p *gpu.Page, c gpu.Command) error {
	p.Start(c)
	what := "its GPU work to end and its memory to be copied"
	if c == gpu.Restore {
		what = "its memory to be restored"
	}
	if err := until(ctx, p, what, p.Idle); err != nil {
		return err
	}
	return p.Result()
}

// until waits for a state of the page.
func until(ctx context.Context, p *gpu.Page, what string, done func() bool) error {
	pause := 20 * time.Microsecond
	for !done() {
		if !p.Alive() {
			return gpu.ErrGone
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		case <-time.After(pause):
		}
		pause = min(2*pause, 5*time.Millisecond)
	}
	return nil
}
