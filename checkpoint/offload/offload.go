// Package offload moves the saved memory of paused processes to images, and back
// (docs/images.md). An image is good for one pause of one process.
package offload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/gpu"
)

// errChanged is a process that went on while its memory was being saved.
var errChanged = errors.New("it went on, or was paused again, while its memory was being saved: no image was made")

// held is a paused process that no other command changes, and its memory.
type held struct {
	page *gpu.Page
	id   gpu.Identity
	file *os.File // nil if an image of the pause has the memory
}

// still says whether the process is in the pause in which it was found.
func (h held) still() error {
	if !h.page.Alive() {
		return gpu.ErrGone
	}
	if !h.page.IsSaved() || h.page.Identity() != h.id {
		return errChanged
	}
	return nil
}

// Job is what Save saves, and how.
type Job struct {
	Name string // of the image; "": it has an ID only
	PIDs []int
	Move bool                           // remove each PID.data when the image was verified
	Step func(step string, bytes int64) // called when a step begins that reads so many bytes
}

// Save saves the memory of paused processes as one image. It holds the processes until
// the shim is closed. Whenever it ends early, each PID.data is there, or the image is whole.
// If the image of that name is of the same pauses of the same processes, an earlier call
// stored it and ended early: this one does the rest.
func Save(ctx context.Context, shim *checkpoint.Shim, images *image.Images, job Job) (image.Saved, error) {
	var all []held
	defer func() {
		for _, h := range all {
			h.file.Close()
		}
	}()
	if saved, there, err := stored(ctx, shim, images, job); err != nil {
		return image.Saved{}, err
	} else if there != nil {
		return saved, moveAway(ctx, shim, images, saved, there, job)
	}
	var sources []image.Source
	total := int64(0)
	for _, pid := range job.PIDs {
		h, size, err := hold(ctx, shim, pid)
		if err != nil {
			return image.Saved{}, fmt.Errorf("process %d: %w", pid, err)
		}
		all = append(all, h)
		sources = append(sources, image.Source{Process: image.Process(h.id), File: h.file, Size: size, Check: h.still})
		total += size
	}
	job.Step("saving", total)
	saved, err := images.Save(ctx, job.Name, sources)
	if err != nil {
		return saved, err
	}
	return saved, moveAway(ctx, shim, images, saved, all, job)
}

// stored returns the image of the job's name, and its processes, if it is of their present
// pauses; no processes if it is not. Some of their memory may be removed already.
func stored(ctx context.Context, shim *checkpoint.Shim, images *image.Images, job Job) (image.Saved, []held, error) {
	if job.Name == "" {
		return image.Saved{}, nil, nil
	}
	e, err := images.Find(ctx, job.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return image.Saved{}, nil, nil
	} else if err != nil {
		return image.Saved{}, nil, err
	}
	m, err := images.Manifest(ctx, e)
	if err != nil || len(m.Ranks) != len(job.PIDs) {
		return image.Saved{}, nil, err
	}
	var all []held
	for i, pid := range job.PIDs {
		page, err := shim.HoldSaved(ctx, pid)
		if err != nil {
			return image.Saved{}, nil, fmt.Errorf("process %d: %w", pid, err)
		}
		if m.Ranks[i].Process != image.Process(page.Identity()) {
			return image.Saved{}, nil, nil
		}
		all = append(all, held{page: page, id: page.Identity()})
	}
	return image.Saved{Entry: e, Bytes: m.Bytes()}, all, nil
}

// moveAway removes the memory of the processes of an image from the host, if the job says so
// and the image is whole.
func moveAway(ctx context.Context, shim *checkpoint.Shim, images *image.Images, saved image.Saved, all []held, job Job) error {
	if !job.Move {
		return nil
	}
	job.Step("verifying", saved.Unread())
	if err := images.VerifySaved(ctx, saved); err != nil {
		return fmt.Errorf("the image is not used, and the memory stays where it is: %w", err)
	}
	for _, h := range all {
		if err := h.remove(shim); err != nil {
			return fmt.Errorf("process %d: the image %s is whole, and its memory stays where it is: %w", h.id.PID, saved.ID, err)
		}
	}
	return nil
}

func hold(ctx context.Context, shim *checkpoint.Shim, pid int) (held, int64, error) {
	page, err := shim.HoldSaved(ctx, pid)
	if err != nil {
		return held{}, 0, err
	}
	id := page.Identity()
	if id.Saves == 0 {
		return held{}, 0, errors.New("it runs with the libcuda.so.1 of an older version of Muster, which does not number its pauses: its memory cannot be bound to it")
	}
	file, err := page.OpenData()
	if err != nil {
		return held{}, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return held{}, 0, err
	}
	return held{page, id, file}, info.Size(), nil
}

// remove removes PID.data, if it still is the file that was saved.
func (h held) remove(shim *checkpoint.Shim) error {
	if err := h.still(); err != nil {
		return err
	}
	if err := shim.Keep(h.id.PID); err != nil { // a lease that ran out at the first Keep may have been set again
		return err
	}
	found, err := os.Lstat(h.page.DataPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if h.file != nil {
		mine, err := h.file.Stat()
		if err != nil {
			return err
		}
		if !os.SameFile(mine, found) {
			return errChanged
		}
	}
	return os.Remove(h.page.DataPath())
}

// Find returns the image of the present pause of a process: fs.ErrNotExist if the store has none.
// Images that cannot be read are passed over, and named in the error if no other is found.
func Find(ctx context.Context, images *image.Images, shim *checkpoint.Shim, pid int) (image.Entry, error) {
	page, err := shim.HoldSaved(ctx, pid)
	if err != nil {
		return image.Entry{}, err
	}
	all, err := images.List(ctx)
	if err != nil {
		return image.Entry{}, err
	}
	var unread error
	for _, e := range all {
		m, err := images.Manifest(ctx, e)
		if err != nil {
			unread = errors.Join(unread, err)
			continue
		}
		if rankOf(m, image.Process(page.Identity())) >= 0 {
			return e, nil
		}
	}
	if unread != nil {
		return image.Entry{}, fmt.Errorf("the store has no image of this pause among those that can be read: %w", unread)
	}
	return image.Entry{}, fmt.Errorf("the store has no image of this pause: %w", fs.ErrNotExist)
}

func rankOf(m *image.Manifest, p image.Process) int {
	for i := range m.Ranks {
		if m.Ranks[i].Process == p {
			return i
		}
	}
	return -1
}

// Restored is a process whose memory is beside its page again.
type Restored struct {
	PID   int   `json:"pid"`
	Bytes int64 `json:"bytes"`
	Was   bool  `json:"wasThere"` // it was there already, and is the same
}

// Restore writes the memory of processes of an image back, all or none: of those named, or
// without names of all. Each must be in the pause of which the image is. A whole
// PID.data that differs is not replaced; what is no whole one is.
func Restore(ctx context.Context, shim *checkpoint.Shim, images *image.Images, e image.Entry, pids []int, step func(string, int64)) (done []Restored, err error) {
	m, err := images.Manifest(ctx, e)
	if err != nil {
		return nil, err
	}
	if len(pids) == 0 {
		for i := range m.Ranks {
			pids = append(pids, m.Ranks[i].PID)
		}
	}
	if m.Whole() {
		return nil, fmt.Errorf("image %s has the processes themselves, which have ended: muster restore --image %s brings them back", e, e.ID)
	}
	var todo []target
	defer func() {
		for _, t := range todo {
			t.file.Close()
			os.Remove(t.file.Name()) // after the rename it has another name
		}
	}()
	total := int64(0)
	for _, pid := range pids {
		t, there, err := prepare(ctx, shim, m, e, pid)
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
		bytes := m.Ranks[t.rank].FileBytes
		done = append(done, Restored{pid, bytes, there})
		if !there {
			todo = append(todo, t)
			total += bytes
		}
	}
	step("restoring", total)
	for _, t := range todo {
		if err := images.Restore(ctx, m, t.rank, t.file); err != nil {
			return nil, fmt.Errorf("image %s: %w", e.ID, err)
		}
	}
	for _, t := range todo {
		if err := os.Rename(t.file.Name(), t.page.DataPath()); err != nil {
			return nil, err
		}
	}
	return done, nil
}

// target is where the memory of a rank goes.
type target struct {
	rank int
	page *gpu.Page
	file *os.File // under another name
}

func prepare(ctx context.Context, shim *checkpoint.Shim, m *image.Manifest, e image.Entry, pid int) (t target, there bool, err error) {
	page, err := shim.HoldSaved(ctx, pid)
	if err != nil {
		return t, false, err
	}
	id := image.Process(page.Identity())
	if t = (target{rank: rankOf(m, id), page: page}); t.rank < 0 {
		return t, false, fmt.Errorf("image %s is not of this process and this pause (started at tick %d, save %d)%s", e.ID, id.Started, id.Saves, whose(m, pid))
	}
	switch file, err := page.OpenData(); {
	case errors.Is(err, gpu.ErrNoData):
	case err != nil:
		return t, false, err
	default:
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return t, false, err
		}
		if found, err := image.Whole(file, info.Size()); err == nil {
			if !m.Ranks[t.rank].SameMemory(found, info.Size()) {
				return t, false, fmt.Errorf("%s has other memory, which is whole: it is not replaced", page.DataPath())
			}
			return t, true, nil
		}
	}
	t.file, err = page.CreateData()
	return t, false, err
}

// whose says of which pause of a process of this ID an image is.
func whose(m *image.Manifest, pid int) string {
	for i := range m.Ranks {
		if r := &m.Ranks[i]; r.PID == pid {
			return fmt.Sprintf(": it is of the one started at tick %d, save %d", r.Started, r.Saves)
		}
	}
	return ""
}

// Needed is a process on this node that can only go on with the image: 0 if there is none.
func Needed(dir string, m *image.Manifest) int {
	for i := range m.Ranks {
		page, err := gpu.OpenPage(dir, m.Ranks[i].PID)
		if err != nil {
			continue
		}
		waits := false
		if page.IsSaved() && image.Process(page.Identity()) == m.Ranks[i].Process {
			file, err := page.OpenData()
			if err == nil {
				file.Close()
			}
			waits = err != nil
		}
		page.Close()
		if waits {
			return m.Ranks[i].PID
		}
	}
	return 0
}
