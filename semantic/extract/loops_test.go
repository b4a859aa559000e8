package extract

import (
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// The loops of a script say for how long it trains: by their variables or, where these say nothing, by what the loops do.
func TestLoops(t *testing.T) {
	for name, c := range map[string]struct{ code, iters, unit string }{
		"passes over a loader":  {"for p in range(cfg['n']):\n    for x, y in loader:\n        loss = f(x)\n        loss.backward()\n", "30", "epoch"},
		"updates":               {"for k in range(cfg['n']):\n    loss = f(next(data))\n    loss.backward()\n", "30", "step"},
		"until a step":          {"step = 0\nwhile step < cfg['n']:\n    f(next(data))\n    step += 1\n", "30", "step"},
		"one that trains none":  {"for k in range(cfg['n']):\n    for x in loader:\n        show(x)\n", "", ""},
		"around named epochs":   {"for k in range(3):\n    for epoch in range(cfg['n']):\n        loss.backward()\n", "30", "epoch"},
		"of folds":              {"for fold in range(cfg['n']):\n    for x in loader:\n        loss.backward()\n", "", ""},
		"inside of another":     {"for x in loader:\n    for k in range(cfg['n']):\n        loss.backward()\n", "", ""},
		"epochs of an update":   {"for data in collector:\n    for epoch in range(cfg['n']):\n        loss.backward()\n", "", ""},
		"by a function":         {"def go(net):\n    for x in loader:\n        loss.backward()\n\nfor p in range(cfg['n']):\n    go(net)\n", "30", "epoch"},
		"so many batches":       {"from itertools import cycle, islice\nfor k, x in enumerate(islice(cycle(loader), cfg['n'])):\n    loss.backward()\n", "30", "step"},
		"of an option by help":  {"import argparse\np = argparse.ArgumentParser()\np.add_argument('-n', default=30, help='number of epochs, each over the whole graph')\n", "30", "epoch"},
		"an option of another":  {"import argparse\np = argparse.ArgumentParser()\np.add_argument('-n', default=30, help='number of steps between two lines of the log')\n", "", ""},
		"a counter of batches":  {"seen = 0\nwhile seen < cfg['n']:\n    for x in loader:\n        loss.backward()\n        seen += 1\n", "30", "step"},
		"a counter of passes":   {"seen = 0\nwhile seen < cfg['n']:\n    for x in loader:\n        loss.backward()\n    seen += 1\n", "30", "epoch"},
		"until a limit":         {"step = 0\nfor x in loader:\n    loss.backward()\n    step += 1\n    if step >= cfg['n']:\n        break\n", "30", "step"},
		"a limit of each pass":  {"for epoch in range(cfg['n']):\n    for step, x in enumerate(loader):\n        if step >= 7:\n            break\n        loss.backward()\n", "30", "epoch"},
		"a limit of no updates": {"step = 0\nfor x in loader:\n    show(x)\n    step += 1\n    if step >= cfg['n']:\n        break\n", "", ""},
		"steps of each epoch":   {"def run(net, opt):\n    total_iters = 7\n    for k in range(total_iters):\n        loss.backward()\n\nfor epoch in range(cfg['n']):\n    run(net, opt)\n", "30", "epoch"},
		"a method of another":   {"class Job:\n    def fit_once(self):\n        for x in self.data:\n            loss.backward()\n    def go(self):\n        for p in range(cfg['n']):\n            self.fit_once()\n", "30", "epoch"},
		"a model's mode":        {"class Job:\n    def train(self):\n        loss.backward()\n\nfor p in range(cfg['n']):\n    net.train()\n    show(net)\n", "", ""},
		"far behind":            {"for k in range(cfg['n']):\n" + strings.Repeat("    show(k)\n", 3000) + "    loss.backward()\n", "30", "step"},
		"from one on":           {"for epoch in range(1, 1 + cfg['n']):\n    for x in loader:\n        loss.backward()\n", "30", "epoch"},
		"by the model itself":   {"for p in range(cfg['n']):\n    for x in loader:\n        net.optimize_parameters(x)\n", "30", "epoch"},
		"of diffusion":          {"def noise(*, steps=1000):\n    pass\n\nnoise(steps=cfg.diffusion_steps)\ncfg.diffusion_steps = 30\n", "", ""},
		"after one over data":   {"for p in range(cfg['n']):\n    for x in loader:\n        show(x)\n    loss.backward()\n", "30", "step"},
	} {
		f := fixture{files: []txtar.File{{Name: "train.py", Data: []byte("import torch\ncfg = {'n': 30}\n" + c.code)}}}
		r, err := Dir(t.Context(), f.write(t), Options{Command: "python train.py"})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, field := range r.Fields() {
			key, v, _ := strings.Cut(field, "=")
			got[key] = v
		}
		if got["iters"] != c.iters || got["iter_type"] != c.unit {
			t.Errorf("%s: %q %q, want %q %q", name, got["iters"], got["iter_type"], c.iters, c.unit)
		}
	}
}
