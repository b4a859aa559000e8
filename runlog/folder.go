package runlog

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/gofrs/flock"

	"github.com/muster-sched/muster/internal/durable"
	"github.com/muster-sched/muster/workload"
)

// Names of the files of a run folder. Queues exists if the cluster has queues, Nodes if
// any node was ever not fully usable, Forecast if HP demand was forecast.
const (
	Summary    = "summary.json"
	Cluster    = "cluster.csv"
	Workload   = "workload.csv.gz"
	Log        = "decisions.jsonl.gz"
	Timeseries = "timeseries.csv"
	Jobs       = "jobs.csv"
	Nodes      = "nodes.csv"
	Queues     = "queues.json"
	Frames     = "frames.json.gz"
	Waits      = "waits.csv"
	Forecast   = "forecast.csv"
	Fair       = "fairness.csv"
	Page       = "report.html"
)

var allFiles = []string{Summary, Cluster, Workload, Log, Timeseries, Jobs, Nodes, Queues, Frames, Waits, Fair, Forecast, Page}

// What a folder that Muster writes contains apart from its files.
const (
	// marker is a folder with what Muster needs to write the outer folder again: lock,
	// which the writing process has locked, and written, the list of Muster's files, one
	// per line.
	marker  = ".muster-run"
	lock    = "lock"
	written = "files"
	// unfinished is the folder of the files that are being written.
	unfinished = ".unfinished"
)

// A Folder is a folder that is written as a whole: its files are written aside and put in
// place together. A run that fails or is killed thus leaves the old contents, and a run
// may read its inputs from the folder that it writes.
//
//  1. Only one process writes at a time. A lock excludes others, and is released when the
//     process ends for any reason.
//  2. The new files replace everything that Muster wrote there before, and nothing else.
//     Muster deletes and overwrites only files that it has listed.
//  3. Files are put in place in the order in which they were created, and old files are
//     removed in the reverse order. So the file that is created last, the summary of a
//     run, exists only if all the others do.
//
// Create, Claim and Open may be called by several goroutines at once.
type Folder struct {
	dir  string
	lock *flock.Flock
	old  []string // what Muster wrote before, in the order of creation

	mu    sync.Mutex
	names []string // what it writes now
	files []*os.File
}

// OpenFolder begins to write dir. Exactly one of Commit and Discard must be
// called. The error is bad input (see [workload.IsBadInput]) unless dir is new,
// empty or written by Muster, and no other process is writing it.
func OpenFolder(dir string) (*Folder, error) {
	f := &Folder{dir: dir, lock: flock.New(filepath.Join(dir, marker, lock))}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, &workload.Error{File: dir, Want: "a writable folder: " + cause(err)}
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	if err := f.acquire(); err != nil {
		return nil, err
	}
	if err := f.begin(); err != nil {
		f.lock.Close()
		return nil, err
	}
	return f, nil
}

// check refuses a folder that Muster has not written and that is not empty.
func (f *Folder) check() error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return &workload.Error{File: f.dir, Want: "a readable folder: " + cause(err)}
	}
	if _, err := os.Stat(f.own(written)); err == nil {
		return nil
	}
	for _, e := range entries {
		if e.Name() != marker {
			return &workload.Error{File: f.dir, Want: "an empty folder or one that Muster wrote (with " + marker + "), found " + e.Name()}
		}
	}
	return nil
}

// acquire takes the lock. If the folder was discarded meanwhile, it has locked a deleted
// file; it then takes the new lock.
func (f *Folder) acquire() error {
	for {
		if err := os.MkdirAll(f.own(""), 0o777); err != nil {
			return &workload.Error{File: f.dir, Want: "a writable folder: " + cause(err)}
		}
		switch got, err := f.lock.TryLock(); {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return &workload.Error{File: f.dir, Want: "a folder that can be locked: " + cause(err)}
		case !got:
			return &workload.Error{File: f.dir, Want: "a folder that no other command is writing to, found one in use"}
		}
		locked, err := f.lock.Stat()
		if err != nil {
			return errors.Join(err, f.lock.Close())
		}
		if there, err := os.Stat(f.lock.Path()); err == nil && os.SameFile(there, locked) {
			return nil
		}
		if err := f.lock.Close(); err != nil {
			return err
		}
	}
}

// begin reads the list of what Muster wrote, and removes unfinished files.
func (f *Folder) begin() error {
	if err := f.check(); err != nil { // again: it may be another's since
		return err
	}
	list, err := os.ReadFile(f.own(written))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = f.list(nil)
	case err == nil:
		f.old = strings.Split(strings.TrimSpace(string(list)), "\n")
		f.old = slices.DeleteFunc(f.old, func(name string) bool { return !filepath.IsLocal(filepath.FromSlash(name)) })
	}
	if err != nil {
		return err
	}
	if err := os.RemoveAll(f.aside("")); err != nil {
		return err
	}
	if err := os.Mkdir(f.aside(""), 0o777); err != nil {
		return &workload.Error{File: f.dir, Want: "a writable folder: " + cause(err)}
	}
	return nil
}

// own returns the path of a file in the marker folder.
func (f *Folder) own(name string) string { return filepath.Join(f.dir, marker, name) }

// aside returns the path of a file until Commit, place its path afterwards. Names have
// slashes.
func (f *Folder) aside(name string) string { return f.place(path.Join(unfinished, name)) }
func (f *Folder) place(name string) string { return filepath.Join(f.dir, filepath.FromSlash(name)) }

// list writes the list of Muster's files, atomically.
func (f *Folder) list(names []string) error {
	file, err := os.Create(f.own(written + ".new"))
	if err != nil {
		return err
	}
	_, err = file.WriteString(strings.Join(names, "\n") + "\n")
	if err := errors.Join(err, durable.File(file)); err != nil {
		return err
	}
	return errors.Join(os.Rename(file.Name(), f.own(written)), durable.Folder(f.own("")))
}

// Claim refuses, as bad input, existing files that Muster did not write, so that a run
// fails at its start and not at its end.
func (f *Folder) Claim(names ...string) error {
	for _, name := range names {
		_, err := os.Lstat(f.place(name))
		if !errors.Is(err, fs.ErrNotExist) && !slices.Contains(f.old, name) {
			return &workload.Error{File: f.dir, Want: "a folder without a " + name + " that Muster did not write, found one"}
		}
	}
	return nil
}

// Create opens a file for writing. Commit closes it.
func (f *Folder) Create(name string) (io.Writer, error) {
	if err := f.Claim(name); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(f.aside(name)), 0o777); err != nil {
		return nil, err
	}
	file, err := os.Create(f.aside(name))
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.names = append(f.names, name)
	f.files = append(f.files, file)
	return file, nil
}

// Write creates a file with what fill writes.
func (f *Folder) Write(name string, fill func(io.Writer) error) error {
	w, err := f.Create(name)
	if err != nil {
		return err
	}
	return fill(w)
}

// Commit puts the files in place.
func (f *Folder) Commit() error {
	if err := f.close(); err != nil {
		return errors.Join(err, f.Discard())
	}
	var err error
	for _, step := range f.swap() {
		if err = step(); err != nil {
			break
		}
	}
	return errors.Join(err, os.RemoveAll(f.aside("")), f.lock.Close())
}

// swap returns the steps that put the files in place. The process may be killed before
// any of them: Muster's files are then listed, and the files in place are the first
// created ones of the old or of the new files.
func (f *Folder) swap() []func() error {
	steps := []func() error{func() error { return f.list(slices.Concat(f.old, f.names)) }}
	for _, name := range slices.Backward(f.old) {
		steps = append(steps, func() error { return f.remove(name) })
	}
	for _, name := range f.names {
		steps = append(steps, func() error {
			err := os.MkdirAll(filepath.Dir(f.place(name)), 0o777)
			return errors.Join(err, os.Rename(f.aside(name), f.place(name)), durable.Folder(filepath.Dir(f.place(name))))
		})
	}
	return append(steps, func() error { return f.list(f.names) })
}

// remove removes a file, and the folders in f that become empty.
func (f *Folder) remove(name string) error {
	if err := os.Remove(f.place(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for dir := path.Dir(name); dir != "." && os.Remove(f.place(dir)) == nil; dir = path.Dir(dir) {
	}
	return nil
}

// Discard removes what was written. A folder in which Muster had written nothing before
// is then unchanged; an empty folder is removed.
func (f *Folder) Discard() error {
	err := errors.Join(f.close(), os.RemoveAll(f.aside("")))
	if len(f.old) > 0 {
		return errors.Join(err, f.lock.Close())
	}
	// Windows removes no open file: there the lock has to go first.
	if os.Remove(f.lock.Path()) == nil {
		err = errors.Join(err, os.RemoveAll(f.own("")), f.lock.Close())
	} else {
		err = errors.Join(err, f.lock.Close(), os.RemoveAll(f.own("")))
	}
	os.Remove(f.dir) // unless something is in it
	return err
}

func (f *Folder) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, file := range f.files {
		errs = append(errs, durable.File(file))
	}
	f.files = nil
	return errors.Join(errs...)
}

// cause is err without the path, which the message already contains.
func cause(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
