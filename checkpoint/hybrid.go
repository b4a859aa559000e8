package checkpoint

import (
	"context"
	"time"

	"github.com/muster-sched/muster/gpu"
)

// Hybrid is the backend over both others: the shim copies the memory in use, and the
// driver then checkpoints what is left, contexts and handles. So little is copied, and
// nothing stays on the GPU. (GCR, FAST'26, §4: data by copies of one's own, control
// state by the driver.)
//
// The order is fixed: behind the driver's lock the shim's calls would wait, too.
type Hybrid struct {
	Shim   *Shim
	Driver *Driver
}

// Path is that of the shim, and then the driver's.
func (h *Hybrid) Path() []Phase { return []Phase{Running, Gated, Saved, Locked, Checkpointed} }

// Close lets other commands change the processes.
func (h *Hybrid) Close() {
	h.Driver.Close()
	h.Shim.Close()
}

// List is that of the shim.
func (h *Hybrid) List() ([]int, error) { return h.Shim.List() }

// SetLease is that of both.
func (h *Hybrid) SetLease(d time.Duration) bool {
	h.Shim.SetLease(d)
	return h.Driver.SetLease(d)
}

// here is the ID of a process as the driver's calls have it: one in a container has another ID there, which names its control page. A page that another
// process made names none.
func (h *Hybrid) here(pid int) (int, error) {
	p, done, err := h.Shim.observe(pid)
	if err != nil {
		return 0, err
	}
	defer done()
	if !p.IsOwn() {
		return 0, gpu.ErrNoPage
	}
	return p.Here(), nil
}

// Phase observes a process: what the driver says, unless that is Running.
func (h *Hybrid) Phase(pid int) (Phase, error) {
	here, err := h.here(pid)
	if err != nil {
		return "", err
	}
	phase, err := h.Driver.Phase(here)
	if err != nil || phase != Running {
		return phase, err
	}
	return h.Shim.Phase(pid)
}

// Status is what the shim knows, in the phase of both.
func (h *Hybrid) Status(pid int) (Status, error) {
	st, err := h.Shim.Status(pid)
	if err != nil {
		return st, err
	}
	st.Phase, err = h.Phase(pid)
	return st, err
}

// Step moves a process to the phase, its own or a neighbour.
func (h *Hybrid) Step(ctx context.Context, pid int, to Phase) error {
	// Both backends hold the process: the shim's page is locked before the driver's lock is taken.
	if _, err := h.Shim.hold(pid); err != nil {
		return err
	}
	from, err := h.Phase(pid)
	if err != nil {
		return err
	}
	if err := oneStep(h.Path(), from, to); err != nil {
		return err
	}
	here, err := h.here(pid)
	if err != nil {
		return err
	}
	switch {
	case to == Saved && from == Locked:
		return h.Driver.Step(ctx, here, Running)
	case to == Locked || to == Checkpointed:
		return h.Driver.Step(ctx, here, to)
	}
	return h.Shim.Step(ctx, pid, to)
}

// Keep ends the shim's lease and then the driver's. A caller that dies between the
// two leaves a process that is saved for any time. What a ghost holds is kept for no
// longer than the program runs that is the ghost: the process then goes on.
func (h *Hybrid) Keep(pid int) error {
	if err := h.Shim.Keep(pid); err != nil || h.Shim.Ghost != nil {
		return err
	}
	here, err := h.here(pid)
	if err != nil {
		return err
	}
	return h.Driver.Keep(here)
}
