package extract

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// fixture is a job in a text file: comments, its launch command if one is given, the fields that its code states, those of them that are not read right, and its files.
type fixture struct {
	name, command string
	want          map[string]string
	missed        map[string]bool // fields that are known not to be read right
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
		f := fixture{name: strings.TrimSuffix(filepath.Base(p), ".txt"), want: map[string]string{}, missed: map[string]bool{}, files: a.Files}
		for line := range strings.Lines(string(a.Comment)) {
			line = strings.TrimSpace(line)
			if command, ok := strings.CutPrefix(line, "command: "); ok {
				f.command = command
			} else if names, ok := strings.CutPrefix(line, "missed: "); ok {
				for _, name := range strings.Fields(names) {
					f.missed[name] = true
				}
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
					if same == f.missed[name] {
						t.Errorf("%s is %q (%s), want %q", name, got[name], r.Sources[name], want)
					}
				}
			})
		}
		t.Logf("%s: %d of %d mandatory fields", part, right, all)
	}
}

// A configuration of gin, whose macros and scopes are resolved, goes before the defaults of functions; a notebook is read where there is
// no script, without what is no Python in it.
func TestGinAndNotebooks(t *testing.T) {
	for name, f := range map[string]fixture{
		"gin": {
			command: "python fit.py --gin_file base.gin",
			want:    map[string]string{"model_name": "resnet50", "train": "imagenet", "iters": "90000", "iter_type": "step", "batch_size": "256", "lr": "0.4", "optimizer": "AdamW"},
			files: []txtar.File{
				{Name: "fit.py", Data: []byte("import gin, torch, torchvision\n\n@gin.configurable\ndef train(model='resnet18', dataset='cifar10', num_steps=1000, batch_size=32, learning_rate=0.1):\n    pass\n\ntrain()\n")},
				{Name: "base.gin", Data: []byte("# big\nBATCH = 256\ntrain.model = 'resnet50'  # not 101\ntrain.dataset = \"imagenet\"\nmain/train.num_steps = 90000\ntrain.batch_size = %BATCH\ntrain.learning_rate = 0.4\ntrain.optimizer = @AdamW()\n")},
			},
		},
		"notebook": {
			want: map[string]string{"model_name": "distilbert-base-uncased", "train": "imdb", "iters": "3", "iter_type": "epoch", "batch_size": "16", "lr": "2e-05"},
			files: []txtar.File{{Name: "sentiment.ipynb", Data: []byte(`{"cells": [
 {"cell_type": "markdown", "source": ["num_train_epochs=99"]},
 {"cell_type": "code", "source": "!pip install transformers(\n%matplotlib inline\nfrom datasets import load_dataset\nfrom transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments"},
 {"cell_type": "code", "source": ["%%bash\n", "echo num_train_epochs=98"]},
 {"cell_type": "code", "source": ["ds = load_dataset('imdb')\n", "model = AutoModelForSequenceClassification.from_pretrained('distilbert-base-uncased')\n", "args = TrainingArguments('out', num_train_epochs=3, per_device_train_batch_size=16, learning_rate=2e-5)\n", "trainer = Trainer(model=model, args=args, train_dataset=ds['train'])\n", "trainer.train()"]}
]}`)}},
		},
		"no notebook": {files: []txtar.File{{Name: "a.ipynb", Data: []byte(`{"cells": [{"cell_type": "code", "source": {"Trainer(": ".train("}}, 7]}`)}}},
	} {
		r, err := Dir(t.Context(), f.write(t), Options{Command: f.command})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, field := range r.Fields() {
			name, v, _ := strings.Cut(field, "=")
			got[name] = v
		}
		for field, want := range f.want {
			if got[field] != want {
				t.Errorf("%s: %s is %q, want %q", name, field, got[field], want)
			}
		}
	}
}
