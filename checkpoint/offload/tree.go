package offload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/criu"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/gpu"
)

// Whole moves whole processes to images and back, with their memory on the host and all that is the kernel's: the GPU's part by the library and
// the driver (checkpoint.Hybrid), the other by criu.
type Whole struct {
	Dir     string        // of the control pages; Restore finds it in the image
	Lease   time.Duration // of the library
	Calls   *gpu.Calls
	CRIU    criu.Program
	Scratch string // a folder with room for the processes' memory; "": that of the system
	Images  *image.Images
	Ghost   bool                           // Checkpoint lets a ghost copy the GPU's memory while criu reads the processes
	GPUs    map[string]string              // on which of the GPUs here what was on another one comes back, as gpu.Calls.Place has it
	Step    func(step string, bytes int64) // called when a step begins that reads or writes so many bytes
}

// ReadingProcesses is the step of a checkpoint from whose begin on the processes stand still, until it fails or they end.
const ReadingProcesses = "reading the processes"

// What an image of processes has beside the files of criu.
const (
	pageSuffix = ".page" // of a file with the control page of a process
	folderFile = "gpu-dir"
	gpusFile   = "gpus" // the IDs of the GPUs that the driver shows
)

// Hybrid is what pauses the processes.
func (w *Whole) Hybrid() *checkpoint.Hybrid {
	shim := &checkpoint.Shim{Dir: w.Dir, Lease: w.Lease}
	if w.Ghost {
		shim.Ghost = w.Calls
	}
	return &checkpoint.Hybrid{Shim: shim, Driver: &checkpoint.Driver{Calls: w.Calls}}
}

func (w *Whole) hybrid(do func(*checkpoint.Hybrid) error) error {
	b := w.Hybrid()
	defer b.Close()
	return do(b)
}

// members are the processes of a tree that use a GPU: one or more.
func (w *Whole) members(root int) (pids []int, err error) {
	pids, err = w.users(root)
	if err == nil && len(pids) == 0 {
		err = fmt.Errorf("no process of the tree of process %d uses a GPU by Muster's libcuda.so.1 with the folder %s", root, w.Dir)
	}
	return pids, err
}

func (w *Whole) users(root int) (pids []int, err error) {
	tree, err := criu.Tree(root)
	if err != nil {
		return nil, err
	}
	self, err := gpu.ListSelf(w.Dir)
	if err != nil {
		return nil, err
	}
	for _, pid := range self {
		if slices.Contains(tree, pid) {
			return nil, fmt.Errorf("process %d saves itself: it needs no image of it, and cannot be in one", pid)
		}
	}
	all, err := gpu.List(w.Dir)
	if err != nil {
		return nil, err
	}
	for _, pid := range all {
		p, err := gpu.OpenPage(w.Dir, pid)
		if errors.Is(err, gpu.ErrGone) || errors.Is(err, gpu.ErrNoPage) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
		here := p.Here()
		p.Close()
		switch {
		case !slices.Contains(tree, here):
		case here != pid:
			return nil, fmt.Errorf("process %d is process %d of a container: expected a command in that container, where it has its own ID", here, pid)
		default:
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Checkpoint pauses all processes of a tree that use a GPU, all or none, and moves the tree to one image: its processes end. After any error
// all go on, but for those that were paused before.
func (w *Whole) Checkpoint(ctx context.Context, root int, name string, o checkpoint.Options) (saved image.Saved, err error) {
	if err := w.CRIU.Check(ctx); err != nil {
		return saved, err
	}
	pids, err := w.members(root)
	if err != nil {
		return saved, err
	}
	var ran []int
	defer func() {
		if err == nil {
			w.forget(pids)
		}
	}()
	b := w.Hybrid() // until the processes have ended: it may have their memory
	defer b.Close()
	for _, pid := range pids {
		phase, err := b.Phase(pid)
		if err != nil {
			return saved, fmt.Errorf("process %d: %w", pid, err)
		}
		if phase != checkpoint.Checkpointed {
			ran = append(ran, pid)
		}
	}
	if err := checkpoint.Pause(ctx, b, pids, o); err != nil {
		return saved, err
	}
	if saved, err = w.dump(ctx, b, root, name, pids); err == nil {
		return saved, nil
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), wayBack)
	defer cancel()
	if undo := checkpoint.Resume(back, b, ran, wayBack); undo != nil {
		return saved, fmt.Errorf("%w; and not all processes go on: %w", err, undo)
	}
	return saved, fmt.Errorf("%w; all processes are as before", err)
}

// dump stores a tree whose processes are paused, and ends it once the image is whole.
func (w *Whole) dump(ctx context.Context, b *checkpoint.Hybrid, root int, name string, pids []int) (saved image.Saved, err error) {
	scratch, err := os.MkdirTemp(w.Scratch, "muster-")
	if err != nil {
		return saved, err
	}
	defer os.RemoveAll(scratch)
	var files []image.HostFile
	folder, err := gpu.Folder(w.Dir)
	if err != nil {
		return saved, err
	}
	gpus, err := w.Calls.GPUs(ctx)
	if err != nil {
		return saved, err
	}
	for name, text := range map[string]string{folderFile: folder, gpusFile: strings.Join(gpus, " ")} {
		files = append(files, image.HostFile{Name: name, File: strings.NewReader(text), Size: int64(len(text))})
	}
	w.Step(ReadingProcesses, 0)
	copied := make(chan error, 1)
	if w.Ghost {
		go func() { copied <- b.Shim.Copy(ctx, pids) }()
	} else {
		copied <- nil
	}
	err = w.CRIU.Dump(ctx, root, scratch, func() error {
		if err := <-copied; err != nil {
			return err
		}
		var ranks []image.Source
		for _, pid := range pids {
			h, size, err := hold(ctx, b.Shim, pid)
			if err != nil {
				return fmt.Errorf("process %d: %w", pid, err)
			}
			defer h.file.Close()
			ranks = append(ranks, image.Source{Process: image.Process(h.id), File: h.file, Size: size, Check: h.still})
			page := h.page.Content()
			files = append(files, image.HostFile{Name: strconv.Itoa(pid) + pageSuffix, File: bytes.NewReader(page), Size: int64(len(page))})
		}
		entries, err := os.ReadDir(scratch)
		if err != nil {
			return err
		}
		total := int64(0)
		for _, e := range entries {
			f, err := os.Open(filepath.Join(scratch, e.Name()))
			if err != nil {
				return err
			}
			defer f.Close()
			info, err := f.Stat()
			if err != nil {
				return err
			}
			files = append(files, image.HostFile{Name: e.Name(), File: f, Size: info.Size()})
			total += info.Size()
		}
		for _, r := range ranks {
			total += r.Size
		}
		w.Step("saving", total)
		if saved, err = w.Images.Save(ctx, name, ranks, files...); err != nil {
			return err
		}
		w.Step("verifying", saved.Unread())
		if err := w.Images.VerifySaved(ctx, saved); err != nil {
			return err
		}
		for _, pid := range pids { // they end now: the driver is not to bring them back
			if err := b.Driver.Keep(pid); err != nil {
				return fmt.Errorf("process %d: %w", pid, err)
			}
		}
		return nil
	})
	if err != nil && saved.ID != "" {
		if undo := w.Images.Delete(context.WithoutCancel(ctx), saved.Entry); undo != nil {
			err = fmt.Errorf("%w; and image %s, which is of no use, is not deleted: %w", err, saved.ID, undo)
		}
	}
	return saved, err
}

// Restore brings the processes of an image back, lets them go on, and deletes the image. It returns the one from which the others descend, and those that use a GPU. After an error they are
// not there and the image is, or they are there and stay paused: the error says so.
func (w *Whole) Restore(ctx context.Context, e image.Entry, timeout time.Duration) (root int, pids []int, err error) {
	root, pids, err = w.BringBack(ctx, e, timeout)
	if err == nil {
		if err = w.Release(ctx, root, timeout); err != nil {
			err = paused(e, err)
		}
	}
	if err != nil {
		return root, pids, err
	}
	if err := w.Images.Delete(ctx, e); err != nil {
		return root, pids, fmt.Errorf("%w: %w", ErrImageStays, err)
	}
	return root, pids, nil
}

// BringBack is Restore up to the last step: the processes have their GPU memory, their calls wait, until Release or the end of the lease, and the image is there still.
func (w *Whole) BringBack(ctx context.Context, e image.Entry, timeout time.Duration) (root int, pids []int, err error) {
	if err := w.CRIU.Check(ctx); err != nil {
		return 0, nil, err
	}
	m, err := w.Images.Manifest(ctx, e)
	if err != nil {
		return 0, nil, err
	}
	if !m.Whole() {
		return 0, nil, fmt.Errorf("image %s has the GPU memory of processes alone, which have to be there: muster image restore %s, muster resume", e, e.ID)
	}
	for i := range m.Ranks {
		pids = append(pids, m.Ranks[i].PID)
	}
	if root, err = w.bringBack(ctx, m); err != nil {
		return 0, nil, fmt.Errorf("image %s: %w", e.ID, err)
	}
	if err := w.hybrid(func(b *checkpoint.Hybrid) error { return checkpoint.Restore(ctx, b, pids, timeout) }); err != nil {
		return root, pids, paused(e, err)
	}
	return root, pids, nil
}

func paused(e image.Entry, err error) error {
	return fmt.Errorf("the processes are back and stay paused: muster resume continues them, and image %s is of no use now: %w", e.ID, err)
}

// ErrImageStays is an image that could not be deleted after its processes went on.
var ErrImageStays = errors.New("the processes go on, and their image cannot be deleted")

// End ends the processes that Restore brought back and left paused. Their image brings them back again.
func (w *Whole) End(root int) error {
	tree, err := criu.Tree(root)
	if err != nil {
		return err
	}
	pids, err := w.users(root)
	if err != nil {
		return err
	}
	for _, pid := range tree {
		if p, err := os.FindProcess(pid); err == nil {
			p.Kill()
		}
	}
	for deadline := time.Now().Add(10 * time.Second); slices.ContainsFunc(tree, gpu.Alive); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d and those that descend from it do not end", root)
		}
	}
	w.forget(pids)
	return nil
}

// forget removes the files of processes that have ended.
func (w *Whole) forget(pids []int) {
	for _, pid := range pids {
		if p, err := gpu.OpenPage(w.Dir, pid); err == nil {
			p.Close()
		}
	}
}

// bringBack restores the processes of an image, paused.
func (w *Whole) bringBack(ctx context.Context, m *image.Manifest) (root int, err error) {
	scratch, err := os.MkdirTemp(w.Scratch, "muster-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(scratch)
	w.Step("restoring", m.Bytes())
	// 1. The files of criu.
	for i, f := range m.Files {
		if err := create(filepath.Join(scratch, f.Name), func(to *os.File) error { return w.Images.RestoreFile(ctx, m, i, to) }); err != nil {
			return 0, err
		}
	}
	// 2. The control pages, locked, and beside them the memory of the GPU.
	folder, err := os.ReadFile(filepath.Join(scratch, folderFile))
	if err != nil {
		return 0, err
	}
	if w.Dir, err = gpu.MakeFolder(string(folder)); err != nil {
		return 0, err
	}
	w.Calls.Dir = w.Dir
	text, err := os.ReadFile(filepath.Join(scratch, gpusFile))
	if err != nil {
		return 0, err
	}
	gpus, err := w.Calls.Place(ctx, strings.Fields(string(text)), w.GPUs)
	if err != nil {
		return 0, err
	}
	if err := w.Calls.Fits(ctx, gpus); err != nil {
		return 0, err
	}
	var pages []*gpu.Page
	defer func() {
		for _, p := range pages {
			if err != nil {
				p.Discard()
			}
			p.Close()
		}
	}()
	for i := range m.Ranks {
		pid := m.Ranks[i].PID
		content, err := os.ReadFile(filepath.Join(scratch, strconv.Itoa(pid)+pageSuffix))
		if err != nil {
			return 0, err
		}
		p, err := gpu.Revive(w.Dir, pid, content)
		if err != nil {
			return 0, err
		}
		pages = append(pages, p)
		if err := w.Calls.HadGPUs(pid, gpus); err != nil {
			return 0, err
		}
		if err := create(p.DataPath(), func(to *os.File) error { return w.Images.Restore(ctx, m, i, to) }); err != nil {
			return 0, err
		}
	}
	// 3. The processes, which find their pages by their paths.
	err = w.CRIU.Restore(ctx, scratch, func(pid int) error {
		root = pid
		for _, p := range pages {
			if err := p.Adopt(); err != nil {
				return fmt.Errorf("process %d: %w", p.PID, err)
			}
		}
		return nil
	})
	return root, err
}

// create makes a file and lets it be written.
func create(path string, write func(*os.File) error) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err = write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
