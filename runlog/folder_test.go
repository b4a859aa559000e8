package runlog

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/workload"
)

// tree returns the files in dir, but those that take to write it.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var names []string
	ok(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Name() == marker || d.Name() == unfinished:
			return fs.SkipDir
		case !d.IsDir():
			text, err := os.ReadFile(path)
			name, _ := filepath.Rel(dir, path)
			names = append(names, filepath.ToSlash(name)+"="+string(text))
			return err
		}
		return nil
	}))
	slices.Sort(names)
	return strings.Join(names, " ")
}

// put writes files, each with the same text, and puts them in place.
func put(t *testing.T, dir, text string, names ...string) {
	t.Helper()
	f := begin(t, dir, text, names...)
	ok(t, f.Commit())
}

func begin(t *testing.T, dir, text string, names ...string) *Folder {
	t.Helper()
	f, err := OpenFolder(dir)
	ok(t, err)
	for _, name := range names {
		ok(t, f.Write(name, func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return err
		}))
	}
	return f
}

func refused(t *testing.T, err error, want string) {
	t.Helper()
	if !workload.IsBadInput(err) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want bad input with %q", err, want)
	}
}

// A folder holds what was written last, whatever was written before, and what is
// not Muster's stays.
func TestFolderHoldsTheLastAlone(t *testing.T) {
	dir := t.TempDir()
	want := func(want string) {
		t.Helper()
		if got := tree(t, dir); got != want {
			t.Errorf("the folder holds %s, want %s", got, want)
		}
	}
	put(t, dir, "1", "a/jobs.csv", "a/summary.json", "b/summary.json", "report.html")
	want("a/jobs.csv=1 a/summary.json=1 b/summary.json=1 report.html=1")
	ok(t, os.WriteFile(filepath.Join(dir, "b", "notes.txt"), []byte("mine"), 0o666))
	put(t, dir, "2", "jobs.csv", "summary.json")
	want("b/notes.txt=mine jobs.csv=2 summary.json=2")
	if _, err := os.Stat(filepath.Join(dir, "a")); err == nil {
		t.Error("an empty folder of the first is left")
	}
	ok(t, begin(t, dir, "3", "summary.json").Discard())
	want("b/notes.txt=mine jobs.csv=2 summary.json=2")

	ok(t, os.WriteFile(filepath.Join(dir, "report.html"), []byte("mine"), 0o666))
	f := begin(t, dir, "4", "summary.json")
	refused(t, f.Claim("report.html"), "a folder without a report.html that Muster did not write, found one")
	_, err := f.Create("report.html")
	refused(t, err, "report.html")
	ok(t, f.Commit())
	want("b/notes.txt=mine report.html=mine summary.json=4")
}

// A list of files is no way out of the folder.
func TestFolderRemovesNothingElsewhere(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "run")
	put(t, dir, "1", "summary.json")
	ok(t, os.WriteFile(filepath.Join(top, "thesis.tex"), nil, 0o666))
	ok(t, os.WriteFile(filepath.Join(dir, marker, written), []byte("../thesis.tex\nsummary.json\n"), 0o666))
	put(t, dir, "2", "summary.json")
	if got := tree(t, top); got != "run/summary.json=2 thesis.tex=" {
		t.Errorf("there is %s", got)
	}
}

// One writes at a time, and whoever is refused changes nothing.
func TestFolderIsLocked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	f := begin(t, dir, "1", "summary.json")
	_, err := Create(dir, small(), metrics.Options{})
	refused(t, err, "a folder that no other command is writing to, found one in use")
	ok(t, f.Commit())
	if got := tree(t, dir); got != "summary.json=1" {
		t.Errorf("there is %s", got)
	}
	ok(t, begin(t, dir, "2", "summary.json").Discard())

	// What failed before anything was written leaves no trace.
	ok(t, begin(t, dir+"2", "1", "a/summary.json").Discard())
	if _, err := os.Stat(dir + "2"); err == nil {
		t.Error("an empty folder is left")
	}
}

// Killed at any step, the folder has the first files of the old ones or of the
// new ones: those that were created last only with all others. The next run finds
// nothing foreign.
func TestKilledFolder(t *testing.T) {
	names := []string{"jobs.csv", "a/jobs.csv", "a/summary.json", "report.html"}
	for killed, last := 0, false; !last; killed++ {
		dir := t.TempDir()
		put(t, dir, "1", names...)
		f := begin(t, dir, "2", names...)
		steps := f.swap()
		for _, step := range steps[:killed] {
			ok(t, step())
		}
		last = killed == len(steps)
		ok(t, f.lock.Close()) // as when the process is killed

		got := strings.Fields(tree(t, dir))
		slices.SortFunc(got, func(a, b string) int { return place(names, a) - place(names, b) })
		for i, file := range got {
			if name, text, _ := strings.Cut(file, "="); name != names[i] || !strings.HasSuffix(got[0], text) {
				t.Fatalf("killed after %d steps there is %v", killed, got)
			}
		}
		put(t, dir, "3", "summary.json")
		if got := tree(t, dir); got != "summary.json=3" {
			t.Fatalf("killed after %d steps, and after another run, there is %s", killed, got)
		}
	}
}

func place(names []string, file string) int {
	name, _, _ := strings.Cut(file, "=")
	return slices.Index(names, name)
}
