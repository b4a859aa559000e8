package checkpoint

import (
	"context"
	"errors"
	"time"

	"github.com/muster-sched/muster/gpu"
)

// Replay is the backend that leaves nothing on the GPU without a driver that can checkpoint
// processes: after the shim has saved the memory of a process, it destroys its contexts with all that
// is in them, and on the way back makes them again from the list of what is live (FlowGPU, §4; docs/adr/0066).
// A process of which the list would miss something is refused, and has all that it had.
type Replay struct{ Shim *Shim }

// Path is that of the shim, and then one phase more.
func (r *Replay) Path() []Phase { return []Phase{Running, Gated, Saved, Released} }

// Close lets other commands change the processes.
func (r *Replay) Close() { r.Shim.Close() }

// List is that of the shim.
func (r *Replay) List() ([]int, error) { return r.Shim.List() }

// SetLease is that of the shim.
func (r *Replay) SetLease(d time.Duration) bool { return r.Shim.SetLease(d) }

// Phase observes a process.
func (r *Replay) Phase(pid int) (Phase, error) {
	st, err := r.Status(pid)
	return st.Phase, err
}

// Status observes a process.
func (r *Replay) Status(pid int) (Status, error) {
	st, err := r.Shim.Status(pid)
	if st.Released {
		st.Phase = Released
	}
	return st, err
}

// Keep ends the lease of a released process.
func (r *Replay) Keep(pid int) error { return r.Shim.Keep(pid) }

// Step moves a process to the phase, its own or a neighbour. gpu.ErrRefused: it cannot be replayed. That is asked
// before its memory is copied, and again, for certain, before anything is destroyed.
func (r *Replay) Step(ctx context.Context, pid int, to Phase) error {
	p, err := r.Shim.hold(pid)
	if err != nil {
		return err
	}
	from, err := r.Phase(pid)
	if err != nil {
		return err
	}
	if from != Released && to != Released {
		if err := r.Shim.Step(ctx, pid, to); err != nil || from != Running || to != Gated {
			return err
		}
		return command(ctx, p, gpu.Examine)
	}
	if err := until(ctx, p, "the command before to end", p.Idle); err != nil {
		return err
	}
	if from, err = r.Phase(pid); err != nil { // which that command may have changed
		return err
	}
	if err := oneStep(r.Path(), from, to); err != nil {
		return err
	}
	switch {
	case from == Saved && to == Released:
		p.SetLease(r.Shim.Lease)
		return command(ctx, p, gpu.Release)
	case from == Released && to == Saved:
		p.SetLease(r.Shim.Lease)
		err := command(ctx, p, gpu.Replay)
		if errors.Is(err, gpu.ErrNoMemory) {
			p.SetLease(0) // it was paused for any time, and still is
		}
		return err
	}
	return nil
}
