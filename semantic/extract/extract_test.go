package extract

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// fixture is a job in a text file: comments, its launch command if one is given, the fields that its code states, and its files.
type fixture struct {
	name, command string
	want          map[string]string
	files         []txtar.File
}

func fixtures(t *testing.T, dir string) []fixture {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: no fixtures (%v)", dir, err)
	}
	var all []fixture
	for _, p := range paths {
		a, err := txtar.ParseFile(p)
		if err != nil {
			t.Fatal(err)
		}
		f := fixture{name: strings.TrimSuffix(filepath.Base(p), ".txt"), want: map[string]string{}, files: a.Files}
		for line := range strings.Lines(string(a.Comment)) {
			line = strings.TrimSpace(line)
			if command, ok := strings.CutPrefix(line, "command: "); ok {
				f.command = command
			} else if line != "" && line[0] != '#' {
				for _, field := range strings.Fields(line) {
					name, v, ok := strings.Cut(field, "=")
					if !ok {
						t.Fatalf("%s: %q is no field=value", p, field)
					}
					f.want[name] = v
				}
			}
		}
		all = append(all, f)
	}
	return all
}

// write writes the files of a fixture into a folder, and returns it.
func (f *fixture) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range f.files {
		path := filepath.Join(dir, filepath.FromSlash(file.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, file.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var mandatory = map[string]bool{"model_name": true, "task_type": true, "train": true, "iters": true, "iter_type": true}

// TestJobs reads jobs that are laid out as public ones are. Those in heldout were written before the extractor was run on them;
// docs/advise.md has what it got right then. Names are compared without case and punctuation. A field that a fixture says is not known has a hyphen.
func TestJobs(t *testing.T) {
	for _, part := range []string{"tuning", "heldout"} {
		right, all := 0, 0
		for _, f := range fixtures(t, filepath.Join("testdata", part)) {
			t.Run(f.name, func(t *testing.T) {
				r, err := Dir(context.Background(), f.write(t), Options{Command: f.command})
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Check(); err != nil {
					t.Error(err)
				}
				got := map[string]string{}
				for _, field := range r.Fields() {
					name, v, _ := strings.Cut(field, "=")
					got[name] = strings.ReplaceAll(v, " ", "_")
					if r.Sources[name] == "" {
						t.Errorf("%s has no source", name)
					}
				}
				for name, want := range f.want {
					if want == "-" {
						want = ""
					}
					same := got[name] == want || (name == "model_name" || name == "train") && plain(got[name]) == plain(want)
					if mandatory[name] {
						all++
						if same {
							right++
						}
					}
					if !same {
						t.Errorf("%s is %q (%s), want %q", name, got[name], r.Sources[name], want)
					}
				}
			})
		}
		t.Logf("%s: %d of %d mandatory fields", part, right, all)
	}
}
