package offload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/gpu"
)

// wayBack is how long it may take to let processes go on that could not be checkpointed.
const wayBack = 5 * time.Minute

// Checkpoint pauses processes of a folder, all or none, and moves the memory of all to one image, which has a name. After an error
// that does not say otherwise, all are as before.
func Checkpoint(ctx context.Context, dir string, lease time.Duration, images *image.Images, job Job, o checkpoint.Options) (image.Saved, error) {
	var ran []int
	err := with(dir, lease, func(shim *checkpoint.Shim) error {
		for _, pid := range job.PIDs {
			phase, err := shim.Phase(pid)
			if err != nil {
				return fmt.Errorf("process %d: %w", pid, err)
			}
			if phase != checkpoint.Saved {
				ran = append(ran, pid)
			}
		}
		return checkpoint.Pause(ctx, shim, job.PIDs, o)
	})
	if err != nil {
		return image.Saved{}, err
	}
	var saved image.Saved
	err = with(dir, lease, func(shim *checkpoint.Shim) (err error) {
		job.Move = true
		saved, err = Save(ctx, shim, images, job)
		return err
	})
	if err == nil {
		return saved, nil
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), wayBack)
	defer cancel()
	undo := with(dir, lease, func(shim *checkpoint.Shim) error { return TakeBack(back, shim, images, job.Name, job.PIDs) })
	if undo == nil {
		undo = with(dir, lease, func(shim *checkpoint.Shim) error { return checkpoint.Resume(back, shim, ran, wayBack) })
	}
	if undo != nil {
		return saved, fmt.Errorf("%w; and not all are as before: %w", err, undo)
	}
	return saved, fmt.Errorf("%w; all processes are as before", err)
}

func with(dir string, lease time.Duration, do func(*checkpoint.Shim) error) error {
	shim := &checkpoint.Shim{Dir: dir, Lease: lease}
	defer shim.Close()
	return do(shim)
}

// Resume writes the memory of paused processes back where it is in images, lets all go on, or none, and deletes these images.
func Resume(ctx context.Context, dir string, lease time.Duration, images *image.Images, pids []int, timeout time.Duration, step func(string, int64)) error {
	var used []image.Entry
	err := with(dir, lease, func(shim *checkpoint.Shim) (err error) {
		used, err = Back(ctx, shim, images, pids, step)
		return err
	})
	if err != nil {
		return err
	}
	if err := with(dir, lease, func(shim *checkpoint.Shim) error { return checkpoint.Resume(ctx, shim, pids, timeout) }); err != nil {
		return err
	}
	var ids []string
	for _, e := range used {
		ids = append(ids, e.ID)
	}
	if err := Drop(ctx, dir, images, ids); err != nil {
		return fmt.Errorf("the processes go on, and their images cannot be deleted: %w", err)
	}
	return nil
}

// Back writes the memory of paused processes back that is not on the host, each from the
// image of its pause, and returns these images, each once. A command that died may have brought some
// of the processes back to their GPUs: those are passed over, and paused again if Back fails. So are processes that
// save their memory themselves.
func Back(ctx context.Context, shim *checkpoint.Shim, images *image.Images, pids []int, step func(string, int64)) (used []image.Entry, err error) {
	var ahead []int
	defer func() {
		if err == nil {
			return
		}
		if undo := pauseAgain(ctx, shim, ahead); undo != nil {
			err = fmt.Errorf("%w; and not all are paused again: %w", err, undo)
		}
	}()
	for _, pid := range pids {
		page, err := shim.HoldSaved(ctx, pid)
		if errors.Is(err, checkpoint.ErrNotPaused) || errors.Is(err, gpu.ErrNoPage) {
			ahead = append(ahead, pid)
			continue
		}
		if err != nil {
			return used, fmt.Errorf("process %d: %w", pid, err)
		}
		file, err := page.OpenData()
		if err == nil {
			file.Close()
			continue
		}
		if !errors.Is(err, gpu.ErrNoData) {
			return used, fmt.Errorf("process %d: %w", pid, err)
		}
		e, err := Find(ctx, images, shim, pid)
		if err != nil {
			return used, fmt.Errorf("process %d: its memory is not on the host, and %w", pid, err)
		}
		if _, err := Restore(ctx, shim, images, e, []int{pid}, step); err != nil {
			return used, err
		}
		if !slices.Contains(used, e) {
			used = append(used, e)
		}
	}
	return used, nil
}

// pauseAgain pauses those of some processes whose gates are closed; the others go on already.
func pauseAgain(ctx context.Context, shim *checkpoint.Shim, pids []int) error {
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), wayBack)
	defer cancel()
	for _, pid := range pids {
		phase, err := shim.Phase(pid)
		if err != nil || phase != checkpoint.Gated {
			continue
		}
		if err = shim.Step(back, pid, checkpoint.Saved); err == nil {
			err = shim.Keep(pid)
		}
		if err != nil && !errors.Is(err, gpu.ErrGone) {
			return fmt.Errorf("process %d: %w", pid, err)
		}
	}
	return nil
}

// TakeBack writes the memory of processes back that the image of a name has taken off the host, and deletes the image, unless other
// processes need it. Without such an image it does nothing; processes in another pause, or none, are passed over.
func TakeBack(ctx context.Context, shim *checkpoint.Shim, images *image.Images, name string, pids []int) error {
	e, err := images.Find(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	m, err := images.Manifest(ctx, e)
	if err != nil {
		return err
	}
	var missing []int
	for _, pid := range pids {
		page, err := shim.HoldSaved(ctx, pid)
		if errors.Is(err, checkpoint.ErrNotPaused) || errors.Is(err, gpu.ErrGone) || errors.Is(err, gpu.ErrNoPage) {
			continue
		} else if err != nil {
			return fmt.Errorf("process %d: %w", pid, err)
		}
		if rankOf(m, image.Process(page.Identity())) >= 0 {
			missing = append(missing, pid)
		}
	}
	if len(missing) == 0 {
		return nil // it is another's
	}
	if _, err := Restore(ctx, shim, images, e, missing, func(string, int64) {}); err != nil {
		return err
	}
	return Drop(ctx, shim.Dir, images, []string{e.ID})
}

// Drop deletes images, but those that a paused process of a folder needs to go on.
func Drop(ctx context.Context, dir string, images *image.Images, ids []string) error {
	for _, id := range ids {
		e, err := images.Find(ctx, id)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		m, err := images.Manifest(ctx, e)
		if err != nil {
			return err
		}
		if Needed(dir, m) != 0 {
			continue
		}
		if err := images.Delete(ctx, e); err != nil {
			return err
		}
	}
	return nil
}
