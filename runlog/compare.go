package runlog

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/muster-sched/muster/report"
)

// Compare writes a page into dir that compares the runs in some folders below
// it. A run is named by its folder.
func Compare(dir string, folders []string) error {
	var runs []report.Run
	for _, f := range folders {
		r, err := Read(filepath.Join(dir, f))
		if err != nil {
			return err
		}
		r.Name = f
		runs = append(runs, r)
	}
	page, err := os.Create(filepath.Join(dir, Page))
	if err != nil {
		return err
	}
	return errors.Join(report.HTML(page, runs), page.Close())
}
