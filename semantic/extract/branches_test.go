package extract

import (
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// What stands in a branch whose condition asks for another value than the job has does not count.
func TestBranches(t *testing.T) {
	const options = "import argparse, torch\nfrom nets import AlexNet, ResNet18, VGG\np = argparse.ArgumentParser()\np.add_argument('--kind', default='res')\np.add_argument('--size', type=int, default=2)\np.add_argument('--big', action='store_true')\nargs = p.parse_args()\n"
	for name, c := range map[string]struct{ command, code, want string }{
		"by default":        {"python train.py", "if args.kind == 'vgg':\n    net = VGG()\nelif args.kind == 'res':\n    net = ResNet18()\nelse:\n    net = AlexNet()\n", "ResNet18"},
		"by the command":    {"python train.py --kind vgg", "if args.kind == 'alex':\n    net = AlexNet()\nelif args.kind == 'vgg':\n    net = VGG()\nelse:\n    net = ResNet18()\n", "VGG"},
		"else":              {"python train.py --kind res", "if args.kind == 'alex':\n    net = AlexNet()\nelif args.kind in ('vgg', 'vgg16'):\n    net = VGG()\nelse:\n    net = ResNet18()\n", "ResNet18"},
		"a flag":            {"python train.py --big", "if not args.big:\n    net = AlexNet()\nelse:\n    net = VGG()\n", "VGG"},
		"without the flag":  {"python train.py", "if args.big:\n    net = AlexNet()\nelse:\n    net = VGG()\n", "VGG"},
		"a number":          {"python train.py --size 2", "if args.size != 2.0 or args.kind == 'x':\n    net = AlexNet()\nelse:\n    net = VGG()\n", "VGG"},
		"in a branch":       {"python train.py", "if args.kind == 'res':\n    if args.size == 3:\n        net = AlexNet()\n    if args.size == 2 and not args.big:\n        net = VGG()\n", "VGG"},
		"else of a loop":    {"python train.py", "for i in x:\n    y(i)\nelse:\n    net = VGG()\n", "VGG"},
		"what is not known": {"python train.py", "if mystery.kind == 'x':\n    net = VGG()\n", "VGG"},
		"asks for itself":   {"python train.py", "if w == 1:\n    w = 1\n    net = VGG()\n", "VGG"},
	} {
		f := fixture{files: []txtar.File{{Name: "train.py", Data: []byte(options + c.code)}}}
		r, err := Dir(t.Context(), f.write(t), Options{Command: c.command})
		if err != nil {
			t.Fatal(err)
		}
		if r.Model.Name != c.want {
			t.Errorf("%s: model %q, want %q", name, r.Model.Name, c.want)
		}
	}
}
