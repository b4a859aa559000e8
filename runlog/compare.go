package runlog

import (
	"io"
	"path"

	"github.com/muster-sched/muster/report"
)

// Compare writes a page that compares the runs in some folders below the folder name of
// f, or below f itself if name is empty. These runs must be closed. The name of a run is
// that of its folder.
func (f *Folder) Compare(name string, folders []string) error {
	var runs []report.Run
	for _, folder := range folders {
		r, err := Read(f.aside(path.Join(name, folder)))
		if err != nil {
			return err
		}
		r.Name = folder
		runs = append(runs, r)
	}
	return f.Write(path.Join(name, Page), func(w io.Writer) error { return report.HTML(w, runs) })
}
