package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/muster-sched/muster/gpu"
)

// Local is a backend for the processes of this node that a command opens and closes.
type Local interface {
	Backend
	Status(pid int) (Status, error)
	// List returns the processes that it finds by itself, in ascending order. Some may have ended, or be none of its own: Status says so.
	List() ([]int, error)
	// SetLease is after what time a process that is not kept goes on by itself, from the next step on; 0: never. It says whether that also holds
	// where the backend is closed: otherwise such a process goes on at Close, but where the time is 0.
	SetLease(time.Duration) (afterClose bool)
	Close()
}

// Names are the backends that Named and Choose know.
var Names = []string{"auto", "shim", "driver", "hybrid", "replay", "framework", "none"}

// Named returns the backend of the name for a folder, without a look at its processes; with auto it is Folder.
func Named(name, dir string, lease time.Duration, calls *gpu.Calls) Local {
	shim := &Shim{Dir: dir, Lease: lease}
	switch name {
	case "shim":
		return shim
	case "driver":
		return &Driver{Calls: calls, Dir: dir}
	case "hybrid":
		return &Hybrid{shim, &Driver{Calls: calls, Dir: dir}}
	case "replay":
		return &Replay{shim}
	case "framework":
		return &Framework{Dir: dir, Lease: lease}
	case "none":
		return &None{}
	}
	return NewFolder(dir, lease)
}

// Choose returns the backend of the name for the processes: with auto, Shim where all
// run with it, or Hybrid if the driver holds one of them already, or Replay if one has been released, Folder if some save themselves, else Driver. Hybrid
// is not the first choice until a GPU has shown that it works: a driver that fails at
// it loses the process. The calls name no program where there is none. An error says
// what is missing for each.
func Choose(name, dir string, lease time.Duration, calls *gpu.Calls, pids []int) (Local, error) {
	if name != "auto" {
		return Named(name, dir, lease, calls), nil
	}
	shim, driver, own := &Shim{Dir: dir, Lease: lease}, &Driver{Calls: calls, Dir: dir}, NewFolder(dir, lease)
	var held, released atomic.Bool
	withShim := each(pids, func(pid int) error {
		st, err := own.Status(pid)
		if st.Released {
			released.Store(true)
		}
		return err
	})
	if withShim == nil && released.Load() {
		driver.Close()
		return &Replay{shim}, nil
	}
	if withShim == nil && slices.ContainsFunc(pids, func(pid int) bool { return own.of(pid) != own.shim }) {
		driver.Close()
		return own, nil
	}
	if withShim != nil && !errors.Is(withShim, gpu.ErrNoPage) {
		return nil, withShim
	}
	withDriver := each(pids, func(pid int) error {
		phase, err := driver.Phase(pid)
		if phase == Locked || phase == Checkpointed {
			held.Store(true)
		}
		return err
	})
	switch {
	case errors.Is(withDriver, gpu.ErrFailed):
		driver.Close()
		return nil, withDriver
	case withShim == nil && held.Load():
		return &Hybrid{shim, driver}, nil
	case withShim == nil:
		driver.Close()
		return shim, nil
	case withDriver == nil:
		return driver, nil
	}
	driver.Close()
	return nil, fmt.Errorf("%w; and without it: %w", withShim, withDriver)
}

// Status is what the driver says. How much memory the process has it does not.
func (d *Driver) Status(pid int) (Status, error) {
	phase, err := d.Phase(pid)
	return Status{PID: pid, Phase: phase}, err
}
