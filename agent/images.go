package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/checkpoint/offload"
	"github.com/muster-sched/muster/gpu"
)

// Images keeps the memory of paused processes of a folder elsewhere. What an agent that died
// has begun, the same call again ends.
type Images interface {
	// Save stores the memory of paused processes as the image of a name, and removes it from the host.
	Save(ctx context.Context, dir, name string, pids []int) error
	// TakeBack writes the memory of processes back that the image of a name has, and deletes the
	// image. If there is none, it does nothing.
	TakeBack(ctx context.Context, dir, name string, pids []int) error
	// Restore writes the memory of paused processes back that is not on the host, and returns the
	// images that had it. Processes that an agent that died brought back already are passed over.
	Restore(ctx context.Context, dir string, pids []int) (images []string, err error)
	// Return brings the processes of an image back, which had the folder, and lets them go on, as offload.Whole.Return does.
	// On which GPU each of theirs comes back is as in offload.Whole.
	Return(ctx context.Context, dir, image string, gpus map[string]string, s *offload.Steps, timeout time.Duration) error
	// Drop deletes images, but those that a paused process needs.
	Drop(ctx context.Context, dir string, images []string) error
}

// Store is images in a folder or a bucket.
type Store struct {
	// Open opens it, and makes it if it is not there.
	Open    func(ctx context.Context) (*image.Images, error)
	Metrics *Metrics // counts its bytes
	// Calls makes the driver's calls for processes of a folder that are brought back.
	Calls func(dir string) *gpu.Calls
}

func (s Store) with(ctx context.Context, dir string, do func(*checkpoint.Shim, *image.Images) error) error {
	images, err := s.Open(ctx)
	if err != nil {
		return err
	}
	shim := &checkpoint.Shim{Dir: dir, Lease: lease}
	defer shim.Close()
	return do(shim, images)
}

// Save is that of [Images].
func (s Store) Save(ctx context.Context, dir, name string, pids []int) error {
	return s.with(ctx, dir, func(shim *checkpoint.Shim, images *image.Images) error {
		saved, err := offload.Save(ctx, shim, images, offload.Job{Name: name, PIDs: pids, Move: true, Step: func(string, int64) {}})
		if err == nil {
			s.Metrics.image("saved", saved.Bytes)
			s.Metrics.image("written", saved.Written)
		}
		return err
	})
}

// TakeBack is that of [Images].
func (s Store) TakeBack(ctx context.Context, dir, name string, pids []int) error {
	return s.with(ctx, dir, func(shim *checkpoint.Shim, images *image.Images) error {
		return offload.TakeBack(ctx, shim, images, name, pids)
	})
}

// Restore is that of [Images].
func (s Store) Restore(ctx context.Context, dir string, pids []int) (used []string, err error) {
	err = s.with(ctx, dir, func(shim *checkpoint.Shim, images *image.Images) error {
		bytes := int64(0)
		entries, err := offload.Back(ctx, shim, images, pids, func(_ string, n int64) { bytes += n })
		for _, e := range entries {
			used = append(used, e.ID)
		}
		if err == nil {
			s.Metrics.image("restored", bytes)
		}
		return err
	})
	return used, err
}

// Return is that of [Images].
func (s Store) Return(ctx context.Context, dir, id string, gpus map[string]string, steps *offload.Steps, timeout time.Duration) error {
	images, err := s.Open(ctx)
	if err != nil && len(steps.Making) > 0 { // what an agent that died made may be there
		return fmt.Errorf("%w: %w", offload.ErrUnfinished, err)
	} else if err != nil {
		return err
	}
	w := &offload.Whole{Dir: dir, Lease: lease, Calls: s.Calls(dir), Images: images, GPUs: gpus}
	w.CRIU.Tag = id
	defer w.Calls.Close()
	bytes := int64(0)
	w.Step = func(_ string, n int64) { bytes += n }
	if err = w.Return(ctx, id, steps, timeout); err == nil {
		s.Metrics.image("restored", bytes)
	}
	return err
}

// Drop is that of [Images].
func (s Store) Drop(ctx context.Context, dir string, ids []string) error {
	return s.with(ctx, dir, func(_ *checkpoint.Shim, images *image.Images) error {
		return offload.Drop(ctx, dir, images, ids)
	})
}
