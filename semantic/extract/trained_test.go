package extract

import (
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// The model is what an optimizer, a wrapper or a trainer gets, and the dataset what a loader gets, whatever they are called. What nothing names is told by
// the words of the code.
func TestUses(t *testing.T) {
	const head = "import torch\nfrom torch.utils.data import DataLoader, Dataset\nfrom parts import CritiqueNet, HazeNet, Hints, Clips\n"
	const loop = "for epoch in range(3):\n    for x in feed:\n        loss(x).backward()\n"
	for name, c := range map[string]struct{ code, model, train, task string }{
		"parameters":      {"judge = CritiqueNet()\nhaze = HazeNet()\nopt = torch.optim.Adam(haze.parameters(), lr=1e-3)\n", "HazeNet", "", ""},
		"parts of it":     {"judge = CritiqueNet()\nhaze = HazeNet()\nopt = torch.optim.SGD([{'params': haze.head.parameters()}], lr=1e-3)\n", "HazeNet", "", ""},
		"of an object":    {"class Job:\n    def __init__(self):\n        self.haze = HazeNet()\n        self.optim = torch.optim.Adam(self.haze.parameters())\n", "HazeNet", "", ""},
		"prepared":        {"judge = CritiqueNet()\nhaze = HazeNet()\nhaze, feed = accelerator.prepare(haze, feed)\n", "HazeNet", "", ""},
		"by a function":   {"def assemble(a):\n    return HazeNet(a)\n\nhaze = assemble(3)\nopt = torch.optim.Adam(haze.parameters())\n", "HazeNet", "", ""},
		"by a variable":   {"import torchvision\nkind = torchvision.datasets.CIFAR10\nheap = kind(root='d')\nfeed = DataLoader(heap)\n", "", "CIFAR10", "CV"},
		"of a section":    {"cfg = {'clips': {'fps': 3, 'video_path': 'footage/harbour.mp4'}}\nheap = Clips(**cfg['clips'])\nfeed = DataLoader(heap, batch_size=2)\n", "", "harbour", ""},
		"of a validation": {"cfg = {'clips': {'video_path': 'footage/harbour.mp4'}}\nheap = Clips(**cfg['clips'])\nval_feed = DataLoader(heap)\n", "", "", ""},
		"by words":        {"# Messages go along the edges of a graph to its nodes.\nnode_count, edge_count = 3, 4\nadjacency = link(graph.nodes, graph.edges)\n", "", "", "Graph"},
		"by few words":    {"graph = 3\nedge = 4\n", "", "", ""},
		"by both":         {"graph, graphs, nodes, edges = 1, 2, 3, 4\nedge, node, graph = 1, 2, 3\nedges = 1\nimages, pixels, image = 1, 2, 3\nimg, camera, video = 1, 2, 3\n", "", "", ""},
	} {
		f := fixture{files: []txtar.File{{Name: "train.py", Data: []byte(head + c.code + loop)}}}
		r, err := Dir(t.Context(), f.write(t), Options{Command: "python train.py"})
		if err != nil {
			t.Fatal(err)
		}
		if r.Model.Name != c.model || r.Dataset.Train != c.train || string(r.Model.Task) != c.task {
			t.Errorf("%s: model %q, dataset %q, task %q, want %q, %q, %q", name, r.Model.Name, r.Dataset.Train, r.Model.Task, c.model, c.train, c.task)
		}
	}
}

// The commands beside the launch command name the dataset where that does not.
func TestCommandsBeside(t *testing.T) {
	f := fixture{files: []txtar.File{
		{Name: "run.sh", Data: []byte("ls LJSpeech-1.1/wavs/*.wav > list.txt\npython train.py --files list.txt\npython eval.py --on vctk\n")},
		{Name: "train.py", Data: []byte("import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--files')\n")},
		{Name: "eval.py", Data: []byte("import torch\n")},
	}}
	r, err := Dir(t.Context(), f.write(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Dataset.Train != "LJSpeech-1.1" {
		t.Errorf("dataset %q, want LJSpeech-1.1", r.Dataset.Train)
	}
}

// What a job does not state in its own words is read where it is passed, loaded, declared or imported.
func TestPassed(t *testing.T) {
	for name, c := range map[string]struct {
		run   string
		files map[string]string
		want  map[string]string
	}{
		"by position": {"python train.py -k harbour", map[string]string{"train.py": "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('-k')\na = p.parse_args()\n\ndef go(train_data, num_epochs):\n    pass\n\ngo(a.k, 9)\n"},
			map[string]string{"train": "harbour", "iters": "9", "iter_type": "epoch"}},
		"by its help": {"python train.py", map[string]string{"train.py": "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('-k', default='harbour', help='dataset name')\np.add_argument('-w', default='wavelet7', help='Model architecture (default: wavelet7)')\np.add_argument('-o', default='cache', help='model directory')\n"},
			map[string]string{"train": "harbour", "model_name": "wavelet7"}},
		"in a folder of another name": {"cd scripts\npython train.py", map[string]string{"scripts/train.py": "import torch\nfrom confy import YamlConfig\nconf = YamlConfig('./first.yaml', folder='../settings')\n", "settings/first.yaml": "opt:\n  n_epochs: 9\n"},
			map[string]string{"iters": "9"}},
		"beside the script": {"cd jobs\npython train.py", map[string]string{"jobs/train.py": "import torch\nfrom kit.deep.first import go\n", "jobs/kit/deep/first.py": "from kit.other import n\n", "jobs/kit/other.py": "num_epochs = 9\n"},
			map[string]string{"iters": "9"}},
		"behind what prepares": {"python preprocess.py -train_src a.txt\npython train.py --num_epochs 9", map[string]string{"preprocess.py": "import argparse\n", "train.py": "import torch\n"},
			map[string]string{"iters": "9"}},
		"by its trainer": {"python train.py", map[string]string{"train.py": "import torch\nfrom nets import HAZE\nfrom work import HAZETrainer\nt = HAZETrainer(parts(3))\n"},
			map[string]string{"model_name": "HAZE"}},
		"what is saved": {"python train.py --save_model trained", map[string]string{"train.py": "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--save_model')\na = p.parse_args()\nmodel_name = a.save_model + '.chkpt'\n"},
			map[string]string{"model_name": ""}},
		"a default of what loads": {"python train.py", map[string]string{"train.py": "import torch\nfrom kit import load_data\nx = load_data()\n", "kit.py": "def load_data(path='./data/cora/', kind='citations'):\n    return read(path)\n"},
			map[string]string{"train": "cora"}},
		"a configuration of Hydra as a file": {"python train.py env=harbour_night", map[string]string{"train.py": "import hydra\n@hydra.main(config_path='first.yaml', strict=True)\ndef main(cfg):\n    pass\n", "first.yaml": "env: harbour_day\nnum_train_steps: 9\nagent:\n  name: wavelet7\n  class: wave.Wavelet7Agent\n"},
			map[string]string{"train": "harbour_night", "iters": "9", "model_name": "wavelet7"}},
		"a folder of Hydra put together": {"python kit/train.py data=harbour", map[string]string{"kit/train.py": "import hydra\nfrom kit.at import ROOT\n@hydra.main(config_path=str(ROOT / 'conf'), config_name='first')\ndef main(cfg):\n    pass\n", "conf/first.yaml": "defaults:\n  - data: coast\n  - model: vae\n", "conf/data/harbour.yaml": "max_epochs: 9\n", "conf/data/coast.yaml": "max_epochs: 8\n",
			"conf/model/vae.yaml": "_target_: kit.HARBVAE\nencoder:\n  _target_: kit.gnn.DimeNetWrap\n"},
			map[string]string{"iters": "9", "model_name": "HARBVAE", "task_type": "Science"}},
		"JSON with comments": {"python train.py --opt first.json", map[string]string{"train.py": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--opt')\n", "first.json": "{\n  \"epochs\": 9 // \"all\" of them\n  , \"url\": \"tcp://a\" /* two\n lines */\n  , \"dataroot_H\": \"sets/harbour/\"\n}\n"},
			map[string]string{"iters": "9", "train": "harbour"}},
		"a generator that is trained": {"python train.py --model base", map[string]string{"train.py": "import argparse, torch\nimport kit\np = argparse.ArgumentParser()\np.add_argument('--model', help='Model name')\ngenerator = kit.HarbourGenerator(3)\noptimizer = kit.Adam(generator.parameters())\n"},
			map[string]string{"model_name": "HarbourGenerator"}},
		"a configuration of a part": {"python train.py --unet_model_config=part.json", map[string]string{"train.py": "import argparse, torch\nfrom kit import Harbour\np = argparse.ArgumentParser()\np.add_argument('--unet_model_config')\nmodel = Harbour(3)\n"},
			map[string]string{"model_name": "Harbour"}},
		"options in a file of their own": {"python train.py", map[string]string{"train.py": "import torch\nfrom options import parse\nfrom nets import CNNPolicy\na = parse()\npair = CNNPolicy()\nopt = torch.optim.Adam(pair.parameters())\n", "options.py": "import argparse\ndef parse():\n    p = argparse.ArgumentParser()\n    p.add_argument('--algo', default='a2c')\n    return p.parse_args()\n"},
			map[string]string{"model_name": "a2c"}},
		"a script that is installed": {"train_harbour.py --epochs 9", map[string]string{"kit/train_harbour.py": "import torch\nfrom transformers import BertModel\nmodel = BertModel()\n"},
			map[string]string{"iters": "9", "model_name": "Bert"}},
		"a class that is a module": {"python train.py", map[string]string{"train.py": "import tensorflow as tf\nfrom nets import GAT, Haze\nmodel = GAT\nloss = Haze\nlogits = model.inference(3)\n"},
			map[string]string{"model_name": "GAT"}},
		"a path of Windows": {"python train.py", map[string]string{"train.py": "import torch\ndataset_path = r'C:\\Users\\me\\datasets\\harbour'\n"},
			map[string]string{"train": "harbour"}},
		"a description of data": {"python train.py --data config/harbour.data", map[string]string{"train.py": "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--data')\n"},
			map[string]string{"train": "harbour"}},
		"the only script of its name": {"python train.py --epochs 9", map[string]string{"kit/train.py": "import torch\nfrom transformers import BertModel\nmodel = BertModel()\n"},
			map[string]string{"iters": "9", "model_name": "Bert"}},
		"a branch by what the parser became": {"python train.py --depth 18", map[string]string{"train.py": "import argparse, torch\nimport zoo\n\ndef main(args=None):\n    parser = argparse.ArgumentParser()\n    parser.add_argument('--depth', type=int, default=50)\n    parser = parser.parse_args(args)\n    if parser.depth == 50:\n        haze = zoo.resnet50(3)\n    elif parser.depth == 18:\n        haze = zoo.resnet18(3)\n    opt = torch.optim.Adam(haze.parameters())\n"},
			map[string]string{"model_name": "resnet18"}},
		"the kind of a class": {"python train.py", map[string]string{"train.py": "import argparse, torch\nimport zoo\np = argparse.ArgumentParser()\np.add_argument('--model', default='GRU')\na = p.parse_args()\nmodel = zoo.RNNModel(a.model, 3)\n"},
			map[string]string{"model_name": "GRU"}},
		"a file of numbers": {"python train.py", map[string]string{"train.py": "import torch\nimport numpy as np\nmean = np.load('stats/val_mean.npy')\nheap = np.load('../dataset/harbour.npz')\nout = np.load('results/first.npz')\n"},
			map[string]string{"train": "harbour"}},
		"a file of MATLAB": {"python train.py", map[string]string{"train.py": "import torch\nheap = MatReader('./data/burgers_v10.mat')\n"},
			map[string]string{"train": "burgers_v10", "task_type": "Science"}},
		"a folder with a slash at its end": {"python train.py --train harbour_data/", map[string]string{"train.py": "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--train')\na = p.parse_args()\n"},
			map[string]string{"train": "harbour_data"}},
		"a script without an extension": {"./train --epochs 9", map[string]string{"train": "#!/usr/bin/env python3\nimport torch\nfrom transformers import BertModel\nmodel = BertModel()\n"},
			map[string]string{"iters": "9", "model_name": "Bert"}},
		"frames of a clip": {"python train.py --max_frames 300", map[string]string{"train.py": "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--max_frames', default=300)\np.add_argument('--max_epoch', default=9)\n"},
			map[string]string{"iters": "9", "iter_type": "epoch"}},
		"a function that builds": {"python train.py", map[string]string{"train.py": "import torch\nfrom nets import build_ssd\nfrom sets import VOCDetection\nfrom torch.utils.data import DataLoader\nhaze = build_ssd('train', 3)\nnet = haze\nheap = VOCDetection(root='d')\nfeed = DataLoader(heap)\nopt = torch.optim.SGD(haze.parameters())\n"},
			map[string]string{"model_name": "ssd", "train": "VOC"}},
		"what is fetched": {"python train.py", map[string]string{"train.py": "import subprocess, torch\nsubprocess.check_output(['wget', 'https://example.com/data/tinyshakespeare/input.txt'])\n"},
			map[string]string{"train": "tinyshakespeare"}},
		"a loop to an epoch": {"python train.py", map[string]string{"train.py": "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--max_epoch', default=9)\na = p.parse_args()\nfor it in range(1, a.max_epoch + 1):\n    for x in feed:\n        loss(x).backward()\n        opt.step()\n"},
			map[string]string{"iters": "9", "iter_type": "epoch"}},
		"behind a script that is not there": {"python get_words.py < a.txt > words.txt\npython train.py --epochs 9", map[string]string{"train.py": "import torch\nfrom transformers import BertModel\nmodel = BertModel()\n"},
			map[string]string{"iters": "9", "model_name": "Bert"}},
		"a module by its name": {"python train.py --model wavelet7", map[string]string{"train.py": "import argparse, torch\nfrom importlib import import_module\np = argparse.ArgumentParser()\np.add_argument('--model')\na = p.parse_args()\nname = a.model\nx = import_module('nets.' + name)\n", "nets/wavelet7.py": "class Config:\n    def __init__(self):\n        self.num_epochs = 9\n", "nets/wavelet8.py": "num_epochs = 8\n"},
			map[string]string{"iters": "9"}},
		"a library that draws": {"python train.py", map[string]string{"train.py": "import torch\nimport torchvision.utils as draw\n"},
			map[string]string{"task_type": ""}},
		"a class that says more than its script": {"python vae_train.py", map[string]string{"vae_train.py": "import torch\nfrom kit import HazeVAE\nmodel = HazeVAE(3)\nopt = torch.optim.Adam(model.parameters())\n"},
			map[string]string{"model_name": "HazeVAE"}},
		"what a class trains": {"python train.py", map[string]string{"train.py": "import torch\nfrom nets import Haze\nclass Job(object):\n    def start(self):\n        self._own = gpu(Haze(3), True)\n        self._opt = torch.optim.Adam(self._own.parameters())\nmodel = Job()\nmodel.fit()\n"},
			map[string]string{"model_name": "Haze"}},
		"a graph of points": {"python train.py --model dgcnn --dataset modelnet40", map[string]string{"train.py": "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--model')\np.add_argument('--dataset')\n"},
			map[string]string{"task_type": "CV"}},
		"a folder to train on": {"python train.py", map[string]string{"train.py": "import torch\nheap = readImages(2, 'data/harbour/train', 'image')\nother = readImages(2, 'data/coast/test')\n"},
			map[string]string{"train": "harbour"}},
		"a folder that a loader gets": {"python train.py", map[string]string{"train.py": "import torch\nfrom torch.utils.data import DataLoader\nfrom kit import FromFolder\nheap = FromFolder('data/harbour', 3)\nother = FromFolder('data/coast', 3)\nfeed = DataLoader(dataset=heap)\nval_feed = DataLoader(dataset=other)\n"},
			map[string]string{"train": "harbour"}},
		"a part of a dataset": {"python train.py", map[string]string{"train.py": "import torch\nwith open('cora/cora.cites') as f:\n    read(f)\n"},
			map[string]string{"train": "cora"}},
		"options of an optimizer": {"python train.py", map[string]string{"train.py": "import tensorflow as tf\nopt = ScipyInterface(loss, method='L-BFGS-B', options={'maxiter': 900, 'maxcor': 50})\n"},
			map[string]string{"iters": "900", "iter_type": "step"}},
		"episodes": {"python train.py", map[string]string{"train.py": "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--num-episodes', default=900)\np.add_argument('--max-episode-len', default=25)\n"},
			map[string]string{"iters": "900"}},
		"a trainer of agents": {"python train.py", map[string]string{"train.py": "import torch\nfrom kit import MADDPGAgentTrainer\nmake = MADDPGAgentTrainer\nall = [make(i) for i in range(3)]\n"},
			map[string]string{"model_name": "MADDPG"}},
		"a variant of an agent": {"python train.py --architecture thrifty", map[string]string{"train.py": "import argparse, torch\nfrom agent import Agent\np = argparse.ArgumentParser()\np.add_argument('--architecture', default='plain', choices=['plain', 'thrifty'])\ndqn = Agent(3)\n"},
			map[string]string{"model_name": "dqn"}},
		"a variant of nothing else": {"python train.py --architecture thrifty", map[string]string{"train.py": "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--architecture', default='plain', choices=['plain', 'thrifty'])\n"},
			map[string]string{"model_name": "thrifty"}},
		"pictures of sound": {"python train.py --model vgg19_bn --train-dataset speech_commands", map[string]string{"train.py": "import argparse, torch\nimport torchvision\np = argparse.ArgumentParser()\np.add_argument('--model')\np.add_argument('--train-dataset')\n"},
			map[string]string{"task_type": "Speech"}},
		"behind what makes a vocabulary": {"kit-vocab -c a.txt\nkit -c a.txt", map[string]string{"setup.py": "setup(entry_points={'console_scripts': [\n    'kit = kit.__main__:train',\n    'kit-vocab = kit.vocab:build',\n]})\n", "kit/__main__.py": "import torch\nfor epoch in range(9):\n    loss.backward()\n"},
			map[string]string{"iters": "9"}},
		"a loop before a call": {"python train.py", map[string]string{"train.py": "import torch\nfor epoch in range(9):\n    go(num_epochs=3)\n    loss.backward()\n"},
			map[string]string{"iters": "9"}},
	} {
		saysOf(t, name, c.run, c.files, c.want)
	}
}

// saysOf checks fields of what is read of a folder with a launch command.
func saysOf(t *testing.T, name, run string, files, want map[string]string) {
	t.Helper()
	f := fixture{files: []txtar.File{{Name: "run.sh", Data: []byte(run)}}}
	for file, data := range files {
		f.files = append(f.files, txtar.File{Name: file, Data: []byte(data)})
	}
	r, err := Dir(t.Context(), f.write(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, field := range r.Fields() {
		key, v, _ := strings.Cut(field, "=")
		got[key] = v
	}
	for field, value := range want {
		if got[field] != value {
			t.Errorf("%s: %s is %q (%s), want %q", name, field, got[field], r.Sources[field], value)
		}
	}
}
