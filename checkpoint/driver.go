package checkpoint

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/muster-sched/muster/gpu"
)

// Driver is the backend over the CUDA driver's own checkpoints, r570 and later: it
// pauses any process that uses CUDA, with all that it has on the GPU, in the
// process's host memory.
//
// A call of the driver cannot be interrupted. Locking has a time limit of its own.
// A checkpoint or restore that is not done at the end of a step's context goes on;
// until it has ended, Phase gives the phase to which it leads, so that whoever wants
// another one takes a step, which waits for the end.
type Driver struct {
	Calls *gpu.Calls
	Dir   string // of control pages and of the locks of Calls, for List
	// Announced lets List give those alone that have opened a control page in Dir: others than the caller may write to it.
	Announced bool

	mu      sync.Mutex
	flights map[int]*flight
	stay    bool // at Close processes stay as they are, kept or not
}

// flight is a call whose step gave up waiting.
type flight struct {
	call *gpu.Call
	to   Phase
}

// observing is how long the driver may take to say in which state a process is.
const observing = 10 * time.Second

// Path is that of the driver's states.
func (d *Driver) Path() []Phase { return []Phase{Running, Locked, Checkpointed} }

// List returns the processes that have a control page, by their IDs here, and those that were once changed: whether the driver can checkpoint them, Phase says.
func (d *Driver) List() ([]int, error) {
	pages, err := gpu.List(d.Dir)
	if err != nil {
		return nil, err
	}
	var all []int
	if !d.Announced {
		if all, err = gpu.ListChanged(d.Dir); err != nil {
			return nil, err
		}
	}
	for _, pid := range pages {
		if p, err := gpu.OpenPage(d.Dir, pid); err == nil {
			if p.IsOwn() {
				all = append(all, p.Here())
			}
			p.Close()
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// SetLease lets processes go on at Close that are not kept, or stay as they are where it is 0: the driver has no lease.
func (d *Driver) SetLease(lease time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stay = lease == 0
	return false
}

// Close lets processes that are not kept go on, and lets other commands change all.
func (d *Driver) Close() { d.Calls.Close() }

// Phase observes a process. gpu.ErrFailed: the driver has lost its state, for good.
func (d *Driver) Phase(pid int) (Phase, error) {
	d.mu.Lock()
	f := d.flights[pid]
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), observing)
	defer cancel()
	if f != nil {
		now, stop := context.WithCancel(ctx)
		stop()
		if err := d.land(now, pid, f); errors.Is(err, context.Canceled) {
			return f.to, nil
		}
	}
	return d.state(ctx, pid)
}

func (d *Driver) state(ctx context.Context, pid int) (Phase, error) {
	if !gpu.Alive(pid) {
		return "", gpu.ErrGone
	}
	state, err := d.do(ctx, "state", pid)
	if err != nil {
		return "", err
	}
	// Later drivers have states for a checkpoint and a restore that are under way.
	switch state {
	case 0:
		return Running, nil
	case 1, 4:
		return Locked, nil
	case 2, 5:
		return Checkpointed, nil
	}
	return "", gpu.ErrFailed
}

// do makes a call and waits for its end.
func (d *Driver) do(ctx context.Context, op string, pid int) (int, error) {
	limit := time.Duration(0)
	if deadline, ok := ctx.Deadline(); ok {
		limit = time.Until(deadline)
	}
	call, err := d.Calls.Begin(ctx, op, pid, limit)
	if err != nil {
		return 0, err
	}
	value, err := call.Wait(ctx)
	if err != nil && !gpu.Alive(pid) {
		return 0, gpu.ErrGone
	}
	return value, err
}

// land waits for the end of a call that a step before has left.
func (d *Driver) land(ctx context.Context, pid int, f *flight) error {
	_, err := f.call.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	d.mu.Lock()
	delete(d.flights, pid)
	d.mu.Unlock()
	return err
}

// lead takes the lock of a process, before its state is read: who had it may have changed that.
func (d *Driver) lead(ctx context.Context, pid int) error {
	d.mu.Lock()
	op := "leave"
	if d.stay {
		op = "stay"
	}
	d.mu.Unlock()
	for until := time.Now().Add(d.Calls.Patience); ; {
		_, err := d.do(ctx, op, pid)
		if !errors.Is(err, gpu.ErrBusy) || !time.Now().Before(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Step moves a process to the phase, its own or a neighbour. Where a call of a step
// before has moved it elsewhere, nothing happens: its phase is the caller's to see.
func (d *Driver) Step(ctx context.Context, pid int, to Phase) error {
	d.mu.Lock()
	f := d.flights[pid]
	d.mu.Unlock()
	if f != nil {
		if err := d.land(ctx, pid, f); ctx.Err() != nil {
			return err
		}
	}
	if err := d.lead(ctx, pid); err != nil {
		return err
	}
	from, err := d.state(ctx, pid)
	if err != nil {
		return err
	}
	if err := oneStep(d.Path(), from, to); err != nil {
		if f != nil {
			return nil
		}
		return err
	}
	op := ""
	switch {
	case from == Running && to == Locked:
		op = "lock"
	case from == Locked && to == Checkpointed:
		op = "checkpoint"
	case from == Checkpointed && to == Locked:
		op = "restore"
	case from == Locked && to == Running:
		op = "unlock"
	default:
		return nil
	}
	return d.call(ctx, op, pid, to)
}

// call makes a call that changes the process.
func (d *Driver) call(ctx context.Context, op string, pid int, to Phase) error {
	limit := time.Hour
	if deadline, ok := ctx.Deadline(); ok {
		limit = time.Until(deadline)
	}
	call, err := d.Calls.Begin(ctx, op, pid, limit)
	if err != nil {
		return err
	}
	_, err = call.Wait(ctx)
	switch {
	case err == nil:
		return nil
	case !gpu.Alive(pid):
		return gpu.ErrGone
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		d.mu.Lock()
		if d.flights == nil {
			d.flights = map[int]*flight{}
		}
		d.flights[pid] = &flight{call, to}
		d.mu.Unlock()
		return err
	}
	if _, failed := d.state(context.WithoutCancel(ctx), pid); errors.Is(failed, gpu.ErrFailed) {
		return failed
	}
	return err
}

// Keep lets a checkpointed process stay so after Close.
func (d *Driver) Keep(pid int) error {
	ctx, cancel := context.WithTimeout(context.Background(), observing)
	defer cancel()
	if err := d.Step(ctx, pid, Checkpointed); err != nil { // which it is already, or will be
		return err
	}
	_, err := d.do(ctx, "keep", pid)
	return err
}
