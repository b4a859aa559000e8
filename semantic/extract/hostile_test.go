package extract

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What a folder may have that is no job: each file is read or left out, and the job beside it is found.
func TestHostile(t *testing.T) {
	big := strings.Repeat("x = 1; ", 10<<20/7)
	laughs := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for i := 'b'; i < 'k'; i++ {
		laughs += fmt.Sprintf("%c: &%c [*%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c]\n", i, i, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1)
	}
	references := ""
	for i := range 12 {
		references += fmt.Sprintf("k%d: '%s'\n", i, strings.Repeat(fmt.Sprintf("${k%d}", i+1), 20))
	}
	nested := func(open, shut string) string {
		return strings.Repeat(open, 50_000) + "1" + strings.Repeat(shut, 50_000)
	}
	for name, hostile := range map[string]map[string]string{
		"line of 10 MB":          {"a_train.py": big, "model.py": big},
		"nested Python":          {"model.py": nested("(", ")"), "utils.py": nested("f(a=", ")")},
		"nested configurations":  {"c.json": nested("[", "]"), "c.yaml": nested("[", "]"), "c.toml": "a = " + nested("[", "]"), "d.yaml": nested("a: {", "}")},
		"billion laughs":         {"c.yaml": laughs, "c.json": "{", "c.toml": "[", "d.yaml": "\t\t: ["},
		"indented without end":   {"c.yaml": deepYAML(), "d.yaml": strings.Repeat("- ", 50_000)},
		"scripts that call each": {"c.yaml": "x: 1", "loop.sh": "bash loop.sh\nbash loop.sh", "run2.sh": "a=(1)\n" + strings.Repeat("a+=(${a[@]} ${a[@]})\n", 40) + "./run2.sh"},
		"modules in a circle":    {"model.py": "from utils import x\nlr = lr2\nlr2 = lr\n", "utils.py": "from model import x\nimport train\n"},
		"interpolation":          {"c.yaml": "a: ${b}\nb: ${a}\nc: ${c}\nd: ${${${a}}}\n"},
		"references to nothing":  {"c.yaml": references + "k12: ''\n"},
		"one name everywhere":    {"model.py": strings.Repeat("lr = lr\n", 100_000), "c.yaml": strings.Repeat("- lr: 1\n", 20_000)},
		"calls and strings":      {"model.py": strings.Repeat("A();", 200_000), "utils.py": "x = (" + strings.Repeat("'a' ", 200_000) + ")\n"},
		"scripts without end":    {"run.sh": "python train.py --batch-size 4\n" + strings.Repeat("bash run.sh\n", 1000)},
		"words without end":      {"run.sh": "a=\"" + strings.Repeat("x ", 32_000) + "\"\npython train.py --batch-size 4 " + strings.Repeat("$a ", 20_000)},
		"options without end":    {"run.sh": "python train.py --batch-size 4 --x a.b=1" + strings.Repeat(" --config e --b.c=1 --y n=1,m=2 --lr_config x/y", 20_000), "e.yaml": "b: {c: 2}\n"},
		"a folder without end":   folderWithoutEnd(),
		"stages without end":     {"dvc.yaml": "stages:\n" + strings.Repeat("- cmd: python {x} train.py {y}\n  parameters: {x: {default: '{y}'}}\n", 5000), "MLproject": laughs + "command: \"*k {a} train\"\n"},
		"bases in a circle":      {"c.yaml": "base: [" + strings.Repeat("d.yaml, ", 100) + "]", "d.yaml": "base: [" + strings.Repeat("c.yaml, ", 100) + "]"},
		"bases in Python":        {"run.sh": "python train.py --config a.py --batch-size 4", "a.py": "_base_ = [" + strings.Repeat("'b.py', ", 100) + "]\n", "b.py": "_base_ = [" + strings.Repeat("'a.py', ", 100) + "]\n"},
		"defaults in a circle":   {"run.sh": "python train.py --config-path . --config-name c --batch-size 4", "c.yaml": "defaults:\n" + strings.Repeat("- c\n", 100)},
		"no text":                {"c.yaml": "\x00\x01\xff", "model.py": "\x7fELF\x00", "c.toml": "\xff\xfe"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "train.py", "import torch\nfrom model import *\nfrom utils import *\nepochs = 7\nlr = 0.1\n")
			write(t, dir, "run.sh", "python train.py --config c.yaml d.yaml c.json c.toml --batch-size 4")
			for n, text := range hostile {
				write(t, dir, n, text)
			}
			r, err := Dir(context.Background(), dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if r.Training.BatchSize != 4 || r.Training.Iterations != 7 {
				t.Errorf("batch size %d, iterations %d; want 4 and 7", r.Training.BatchSize, r.Training.Iterations)
			}
		})
	}
}

// folderWithoutEnd is a command that names a folder of configurations again and again.
func folderWithoutEnd() map[string]string {
	files := map[string]string{"run.sh": "python train.py --batch-size 4" + strings.Repeat(" --config conf", 480)}
	for i := range 20 {
		files[fmt.Sprintf("conf/c%d.yaml", i)] = strings.Repeat("a: 1\n", 10_000)
	}
	return files
}

func deepYAML() string {
	var b strings.Builder
	for i := range 500 {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Links out of the folder, links in a circle, FIFOs: nothing outside is read, and nothing blocks.
func TestConfined(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	write(t, outside, "train.py", "epochs = 5\nmodel_name = 'resnet50'\n")
	for _, link := range []struct{ to, name string }{
		{filepath.Join(outside, "train.py"), "train.py"}, {outside, "out"}, {"../" + filepath.Base(outside) + "/train.py", "main.py"},
		{".", "self"}, {"circle", "circle"}, {"/etc/passwd", "config.yaml"},
	} {
		if err := os.Symlink(link.to, filepath.Join(dir, link.name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.py"), 0o644); err != nil {
		t.Skip(err)
	}
	if err := os.Symlink("pipe.py", filepath.Join(dir, "run.py")); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"", "python train.py", "python out/train.py --config config.yaml", "python pipe.py", "python run.py", "python ../" + filepath.Base(outside) + "/train.py"} {
		r, err := Dir(context.Background(), dir, Options{Command: command})
		if err != nil {
			t.Fatal(err)
		}
		if r.Training.Iterations != 0 || r.Model.Name != "" {
			t.Errorf("%q: %v of what is outside", command, r.Fields())
		}
	}
	// A link within the folder is followed.
	write(t, dir, "real.txt", "epochs = 5\n")
	if err := os.Symlink("real.txt", filepath.Join(dir, "link.py")); err != nil {
		t.Fatal(err)
	}
	r, err := Dir(context.Background(), dir, Options{Command: "python link.py"})
	if err != nil || r.Training.Iterations != 5 {
		t.Errorf("%d iterations (%v) by a link within the folder, want 5", r.Training.Iterations, err)
	}
}

// A file that may not be read counts as absent.
func TestUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read every file")
	}
	dir := t.TempDir()
	write(t, dir, "train.py", "epochs = 5\n")
	if err := os.Chmod(filepath.Join(dir, "train.py"), 0); err != nil {
		t.Fatal(err)
	}
	if r, err := Dir(context.Background(), dir, Options{}); err != nil || r.Training.Iterations != 0 {
		t.Errorf("%d iterations (%v), want none and no error", r.Training.Iterations, err)
	}
}

// Within its limits only a part of a large folder is read.
func TestLimits(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "train.py", "epochs = 5\n"+strings.Repeat("# comment\n", 1000))
	for _, c := range []struct {
		limits Limits
		want   int64
	}{
		{Limits{}, 5}, {Limits{File: 1000}, 0}, {Limits{Total: 1000}, 0}, {Limits{File: 20_000}, 5},
	} {
		r, err := Dir(context.Background(), dir, Options{Command: "python train.py", Limits: c.limits})
		if err != nil || r.Training.Iterations != c.want {
			t.Errorf("%+v: %d iterations (%v), want %d", c.limits, r.Training.Iterations, err, c.want)
		}
	}
	for i := range 30 {
		write(t, dir, fmt.Sprintf("a%02d.py", i), "x = 1")
	}
	r, err := Dir(context.Background(), dir, Options{Command: "python train.py", Limits: Limits{Files: 10}})
	if err != nil || r.Training.Iterations != 0 {
		t.Errorf("of 31 files 10: %d iterations (%v)", r.Training.Iterations, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Dir(ctx, dir, Options{}); err == nil {
		t.Error("no error after the time is over")
	}
}

func FuzzDir(f *testing.F) {
	f.Add("python train.py --epochs 3", "epochs = 4", "a: 1", "x = 1")
	f.Add("torchrun --nproc_per_node 8 train.py +a=b ~c SOLVER.LR 1", "@hydra.main(config_path='.', config_name='c')\ndef f(): pass", "defaults:\n- a: b\n- _self_\n- override /x: y\n", "[a]\nb = [1, {c = 2}]")
	f.Fuzz(func(t *testing.T, command, source, yaml, toml string) {
		dir := t.TempDir()
		write(t, dir, "train.py", source)
		write(t, dir, "c.yaml", yaml)
		write(t, dir, "c.toml", toml)
		write(t, dir, "run.sh", command)
		r, err := Dir(context.Background(), dir, Options{Command: command + " c.yaml c.toml"})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Check(); err != nil {
			t.Error(err)
		}
	})
}
