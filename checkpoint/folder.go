package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/muster-sched/muster/gpu"
)

// Folder is the backend over all processes of a folder: those that save themselves by [Framework], the others by [Shim].
type Folder struct {
	shim      *Shim
	framework *Framework
}

// NewFolder returns the backend of a folder.
func NewFolder(dir string, lease time.Duration) *Folder {
	return &Folder{&Shim{Dir: dir, Lease: lease}, &Framework{Dir: dir, Lease: lease}}
}

// SetLease is that of both.
func (f *Folder) SetLease(d time.Duration) bool {
	f.shim.Lease, f.framework.Lease = d, d
	return true
}

// List returns the processes of the folder.
func (f *Folder) List() ([]int, error) { return List(f.shim.Dir) }

// Path is that of both.
func (f *Folder) Path() []Phase { return f.shim.Path() }

// Close lets other commands change the processes.
func (f *Folder) Close() {
	f.shim.Close()
	f.framework.Close()
}

func (f *Folder) of(pid int) Local {
	if _, err := f.framework.Phase(pid); errors.Is(err, gpu.ErrNoPage) {
		return f.shim
	}
	return f.framework
}

// Phase observes a process.
func (f *Folder) Phase(pid int) (Phase, error) { return f.of(pid).Phase(pid) }

// Status observes a process.
func (f *Folder) Status(pid int) (Status, error) { return f.of(pid).Status(pid) }

// Step moves a process to the phase, its own or a neighbour.
func (f *Folder) Step(ctx context.Context, pid int, to Phase) error {
	return f.of(pid).Step(ctx, pid, to)
}

// Keep lets a saved process stay so.
func (f *Folder) Keep(pid int) error { return f.of(pid).Keep(pid) }

// Longest is the time of a step, or more if one of the processes says that it may take longer.
func Longest(b Local, pids []int, step time.Duration) time.Duration {
	for _, pid := range pids {
		if st, err := b.Status(pid); err == nil {
			step = max(step, st.Within)
		}
	}
	return step
}

// List returns the processes of a folder, in ascending order; some may have ended.
func List(dir string) ([]int, error) {
	shim, err := gpu.List(dir)
	self, err2 := gpu.ListSelf(dir)
	all := append(shim, self...)
	slices.Sort(all)
	return slices.Compact(all), cmp.Or(err, err2)
}

// None is the backend of processes that cannot be paused, or must not be.
type None struct{}

// ErrNone is why it pauses none.
var ErrNone = errors.New("nothing pauses it: with backend none a process runs until it ends or is evicted")

// Path is one that no process goes.
func (n *None) Path() []Phase { return []Phase{Running, Saved} }

// Close does nothing.
func (n *None) Close() {}

// List returns none.
func (n *None) List() ([]int, error) { return nil, nil }

// SetLease does nothing.
func (n *None) SetLease(time.Duration) bool { return true }

// Phase observes a process.
func (n *None) Phase(pid int) (Phase, error) {
	if !gpu.Alive(pid) {
		return "", gpu.ErrGone
	}
	return Running, nil
}

// Status observes a process.
func (n *None) Status(pid int) (Status, error) {
	phase, err := n.Phase(pid)
	return Status{PID: pid, Phase: phase}, err
}

// Step fails.
func (n *None) Step(_ context.Context, _ int, to Phase) error {
	if to == Running {
		return nil
	}
	return ErrNone
}

// Keep fails.
func (n *None) Keep(int) error { return ErrNone }
