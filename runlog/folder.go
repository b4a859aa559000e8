package runlog

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/muster-sched/muster/workload"
)

// Names of the files of a run folder. Queues is there when the cluster has
// queues, Nodes when a node was ever less than wholly usable.
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
	Page       = "report.html"
)

var allFiles = []string{Summary, Cluster, Workload, Log, Timeseries, Jobs, Nodes, Queues, Frames, Waits, Page}

// unfinished is the folder, inside a run folder, of the run being written.
const unfinished = ".unfinished"

// A folder is a run folder in the making. All files are written aside and moved
// in place at the end, the summary last: a run that fails leaves what was there
// before, and a run may read its inputs from the folder it writes.
type folder struct {
	dir   string
	files []*os.File
}

// createFolder makes dir ready for a run. It refuses, as bad input, a dir that
// holds anything but an earlier run.
func createFolder(dir string) (*folder, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, &workload.Error{File: dir, Want: "a folder that can be written: " + cause(err)}
	}
	if err := mayWrite(dir); err != nil {
		return nil, err
	}
	aside := filepath.Join(dir, unfinished)
	if err := os.RemoveAll(aside); err != nil {
		return nil, err
	}
	if err := os.Mkdir(aside, 0o777); err != nil {
		return nil, &workload.Error{File: dir, Want: "a folder that can be written: " + cause(err)}
	}
	return &folder{dir: dir}, nil
}

// mayWrite checks that dir is empty or holds a run.
func mayWrite(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return &workload.Error{File: dir, Want: "a folder that can be read: " + cause(err)}
	}
	foreign := ""
	for _, e := range entries {
		switch e.Name() {
		case Summary:
			return nil
		case unfinished:
		default:
			foreign = e.Name()
		}
	}
	if foreign != "" {
		return &workload.Error{File: dir, Want: "an empty folder or one of an earlier run (with " + Summary + "), found " + foreign}
	}
	return nil
}

// cause is err without the path, which the message names already.
func cause(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// create opens a file of the run for writing. finish closes it.
func (f *folder) create(name string) (io.Writer, error) {
	file, err := os.Create(filepath.Join(f.dir, unfinished, name))
	if err != nil {
		return nil, err
	}
	f.files = append(f.files, file)
	return file, nil
}

// write makes a file of the run from what fill writes.
func (f *folder) write(name string, fill func(io.Writer) error) error {
	w, err := f.create(name)
	if err != nil {
		return err
	}
	return fill(w)
}

// finish closes the files and moves them in place. An earlier run's summary
// goes first and the new one comes last, so that a folder with a summary is
// whole.
func (f *folder) finish() error {
	if err := f.close(); err != nil {
		return err
	}
	for _, name := range allFiles {
		if err := os.Remove(filepath.Join(f.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	for i := len(allFiles) - 1; i >= 0; i-- {
		name := allFiles[i]
		err := os.Rename(filepath.Join(f.dir, unfinished, name), filepath.Join(f.dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return os.Remove(filepath.Join(f.dir, unfinished))
}

// discard removes what was written.
func (f *folder) discard() error {
	return errors.Join(f.close(), os.RemoveAll(filepath.Join(f.dir, unfinished)))
}

func (f *folder) close() error {
	var errs []error
	for _, file := range f.files {
		errs = append(errs, file.Close())
	}
	f.files = nil
	return errors.Join(errs...)
}
