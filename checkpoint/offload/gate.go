package offload

import (
	"context"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/gpu"
)

// gates is the backend whose way ends at the closed gate.
type gates struct{ *checkpoint.Shim }

// Path ends where calls wait.
func (gates) Path() []checkpoint.Phase {
	return []checkpoint.Phase{checkpoint.Running, checkpoint.Gated}
}

// Keep does nothing: a lease opens the gate.
func (gates) Keep(int) error { return nil }

// Gate lets the calls of all processes of a tree that use a GPU wait, or those of none, until Release or the end of the lease.
func (w *Whole) Gate(ctx context.Context, root int, o checkpoint.Options) error {
	pids, err := w.members(root)
	if err != nil {
		return err
	}
	b := gates{&checkpoint.Shim{Dir: w.Dir, Lease: w.Lease}}
	defer b.Close()
	return checkpoint.Pause(ctx, b, pids, o)
}

// Renew lets the lease of processes whose calls wait begin again.
func (w *Whole) Renew(root int) error {
	pids, err := w.users(root)
	for _, pid := range pids {
		if p, err := gpu.OpenPage(w.Dir, pid); err == nil {
			if p.Gate() != gpu.Open {
				p.SetLease(w.Lease)
			}
			p.Close()
		}
	}
	return err
}

// Release lets all processes of a tree go on.
func (w *Whole) Release(ctx context.Context, root int, timeout time.Duration) error {
	pids, err := w.users(root)
	if err != nil || len(pids) == 0 {
		return err
	}
	return w.hybrid(func(b *checkpoint.Hybrid) error { return checkpoint.Resume(ctx, b, pids, timeout) })
}
