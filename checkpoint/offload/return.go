package offload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/criu"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/gpu"
)

// Steps are how far a Return has come. Who keeps them can end one whose caller died.
type Steps struct {
	Making []int                // the processes that it makes: none of them ran before
	Back   []int                // those that are back: the image may be gone
	Keep   func(s *Steps) error // called before what follows from a change
}

// Settle waits for a criu that works for a caller with the tag of w who died: it ends the processes, or lets them go on.
func (w *Whole) Settle(ctx context.Context) error {
	for w.CRIU.Running() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// ErrUnfinished is a Return that leaves processes which wait: the same call again, with the same steps, ends it. Until then they go on when
// their lease ends, so nothing else may be made of their image.
var ErrUnfinished = errors.New("the processes are back and wait")

// Return brings the processes of an image back, and lets them go on, once, whoever dies at it: the image is deleted before a process goes on.
// After an error none of the processes is there, unless it is ErrUnfinished. The processes must have had the folder Dir. The image is named by its ID.
func (w *Whole) Return(ctx context.Context, id string, s *Steps, timeout time.Duration) error {
	err := w.tryReturn(ctx, id, s, timeout)
	if err != nil && len(s.Making) > 0 && (w.CRIU.Running() || len(w.there(s.Making)) > 0) {
		return fmt.Errorf("%w: %w", ErrUnfinished, err)
	}
	return err
}

func (w *Whole) tryReturn(ctx context.Context, id string, s *Steps, timeout time.Duration) error {
	if err := w.Settle(ctx); err != nil {
		return err
	}
	e, err := w.Images.Find(ctx, id)
	if len(s.Back) > 0 && errors.Is(err, fs.ErrNotExist) {
		return w.open(ctx, s.Back, timeout)
	} else if err != nil {
		return err
	}
	m, err := w.Images.Manifest(ctx, e)
	if err != nil {
		return err
	}
	root, err := w.returnable(ctx, m)
	if err != nil {
		return fmt.Errorf("image %s: %w", e.ID, err)
	}
	// 1. What a caller who died has made ends: it has not gone on, and the image has it.
	if len(s.Making) > 0 && len(w.there(s.Making)) > 0 {
		if err := w.End(root); err != nil {
			return err
		}
	}
	// 2. The processes, whose calls wait.
	s.Making, s.Back = nil, nil
	var making []int
	for i := range m.Ranks {
		making = append(making, m.Ranks[i].PID)
	}
	if there := w.there(making); len(there) > 0 {
		return fmt.Errorf("image %s: process %d: %w", e.ID, there[0], criu.ErrRuns)
	}
	s.Making = making
	if err := s.Keep(s); err != nil {
		return err
	}
	root, pids, err := w.BringBack(ctx, e, timeout)
	// 3. They go on where their image is gone.
	if err == nil {
		s.Back = pids
		if err = s.Keep(s); err == nil {
			if err = w.Images.Delete(ctx, e); err != nil {
				_, found := w.Images.Find(context.WithoutCancel(ctx), id)
				if errors.Is(found, fs.ErrNotExist) {
					err = nil
				} else if found != nil { // it may be gone
					return err
				}
			}
		}
	}
	if err != nil {
		if root != 0 {
			if undo := w.End(root); undo != nil {
				return errors.Join(err, undo)
			}
		}
		s.Back = nil
		return err
	}
	return w.open(context.WithoutCancel(ctx), pids, timeout)
}

// open lets processes go on that are back. Those that went on before, and ended, are passed over.
func (w *Whole) open(ctx context.Context, pids []int, timeout time.Duration) error {
	there := w.there(pids)
	if len(there) == 0 {
		return nil
	}
	return w.hybrid(func(b *checkpoint.Hybrid) error { return checkpoint.Resume(ctx, b, there, timeout) })
}

// there are those of the processes that have a control page and live.
func (w *Whole) there(pids []int) []int {
	return slices.DeleteFunc(slices.Clone(pids), func(pid int) bool {
		p, err := gpu.OpenPage(w.Dir, pid)
		if err == nil {
			p.Close()
		}
		return err != nil
	})
}

// returnable reads from an image which process the others descend from, and compares the folder.
func (w *Whole) returnable(ctx context.Context, m *image.Manifest) (root int, err error) {
	if !m.Whole() {
		return 0, errors.New("it has the GPU memory of processes alone, which have to be there")
	}
	text := map[string][]byte{}
	for i, f := range m.Files {
		if f.Name == criu.SavedFile || f.Name == folderFile {
			if text[f.Name], err = w.content(ctx, m, i); err != nil {
				return 0, err
			}
		}
	}
	own, err := filepath.Abs(w.Dir)
	if err != nil {
		return 0, err
	}
	if real, err := filepath.EvalSymlinks(own); err == nil {
		own = real
	}
	if parts := strings.SplitN(string(text[folderFile]), " ", 4); parts[len(parts)-1] != own { // an owner, a group, a mode and the path
		return 0, fmt.Errorf("its processes have the folder %q as MUSTER_GPU_DIR, and here it is %s: expected the same", parts[len(parts)-1], own)
	}
	return criu.Root(text[criu.SavedFile])
}

// content is a small file of an image.
func (w *Whole) content(ctx context.Context, m *image.Manifest, i int) ([]byte, error) {
	f, err := os.CreateTemp(w.Scratch, "muster-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := w.Images.RestoreFile(ctx, m, i, f); err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// IsOf says whether an image is of processes that run here: they did not end when it was made.
func (w *Whole) IsOf(ctx context.Context, e image.Entry) (bool, error) {
	m, err := w.Images.Manifest(ctx, e)
	if err != nil {
		return false, err
	}
	for i := range m.Ranks {
		p, err := gpu.OpenPage(w.Dir, m.Ranks[i].PID)
		if err != nil {
			return false, nil
		}
		id := p.Identity()
		p.Close()
		if id.Started != m.Ranks[i].Started || id.Namespace != m.Ranks[i].Namespace {
			return false, nil
		}
	}
	return true, nil
}
