package extract

import (
	"testing"
)

// What a job is follows from how its files are put together: registries, modules by name, objects that have other objects, arithmetic with options,
// functions that start others.
func TestFollowed(t *testing.T) {
	for name, c := range map[string]struct {
		run   string
		files map[string]string
		want  map[string]string
	}{
		"a registry of functions": {"python train.py", map[string]string{
			"train.py": "import argparse, torch\nfrom nets import NETS\np = argparse.ArgumentParser()\np.add_argument('--net', default='wide')\na = p.parse_args()\nnet = NETS[a.net](3)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\nfor k in range(40):\n    for x in feed:\n        net(x).backward()\n        opt.step()\n",
			"nets.py":  "import torchvision\ndef thin(n):\n    return torchvision.models.resnet18(n)\ndef wide(n):\n    return torchvision.models.densenet121(n)\nNETS = {'thin': thin, 'wide': wide}\n"},
			map[string]string{"model_name": "densenet121", "iters": "40", "iter_type": "epoch"}},
		"a class that is registered": {"python train.py", map[string]string{
			"train.py":    "import torch\nimport kit.nets\nfrom kit.reg import build\nnet = build(dict(type='EdgeConvNeXt', depth=3))\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\nfor k in range(40):\n    net(next(feed)).backward()\n    opt.step()\n",
			"kit/reg.py":  "TABLE = {}\ndef register(cls):\n    TABLE[cls.__name__] = cls\n    return cls\ndef build(cfg):\n    cfg = dict(cfg)\n    kind = cfg.pop('type')\n    return TABLE[kind](**cfg)\n",
			"kit/nets.py": "import torch.nn as nn\nfrom .reg import register\n@register\nclass EdgeConvNeXt(nn.Module):\n    def __init__(self, depth):\n        super().__init__()\n@register\nclass OtherVGG(nn.Module):\n    pass\n"},
			map[string]string{"model_name": "EdgeConvNeXt", "iters": "40", "iter_type": "step"}},
		"an attribute of a module": {"python main.py --kind mnist", map[string]string{
			"main.py": "import argparse, torch, torchvision\nfrom torch.utils.data import DataLoader\np = argparse.ArgumentParser()\np.add_argument('--kind')\na = p.parse_args()\nmake = getattr(torchvision.datasets, a.kind.upper())\nfeed = DataLoader(make('~/d'), batch_size=4)\nnet = torch.nn.Linear(3, 4)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\nfor epoch in range(7):\n    for x in feed:\n        net(x).backward()\n"},
			map[string]string{"train": "MNIST", "task_type": "CV"}},
		"steps of each pass": {"python main.py --passes 5", map[string]string{
			"main.py": "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--passes', type=int, default=2)\np.add_argument('--per', type=int, default=300)\na = p.parse_args()\ntotal = a.passes * a.per\nnet = torch.nn.Linear(3, 4)\nopt = torch.optim.Adam(net.parameters())\nfor i in range(total):\n    net(draw()).backward()\n    opt.step()\n"},
			map[string]string{"iters": "1500", "iter_type": "step"}},
		"a trainer with a method that loops": {"python -m kit.main", map[string]string{
			"kit/main.py": "import torch\nfrom kit.work import Worker\nfrom kit.conf import Conf\n\ndef main():\n    c = Conf()\n    c.rounds_of = 30\n    w = Worker(c)\n    w.go()\n\nif __name__ == '__main__':\n    main()\n",
			"kit/conf.py": "class Conf:\n    rounds_of = 10\n    where = '/sets/harbour'\n",
			"kit/work.py": "import torch\nfrom torch.utils.data import DataLoader\nfrom kit.nets import HazeLSTM\nfrom kit.sets import Heap\nclass Worker:\n    def __init__(self, c):\n        self.c = c\n        self.inner = HazeLSTM(3)\n        self.opt = torch.optim.Adam(self.inner.parameters())\n        self.feed = DataLoader(Heap(c.where), shuffle=True)\n    def once(self):\n        for x in self.feed:\n            self.inner(x).backward()\n            self.opt.step()\n    def go(self):\n        for i in range(self.c.rounds_of):\n            self.once()\n",
			"kit/nets.py": "import torch.nn as nn\nclass HazeLSTM(nn.Module):\n    def __init__(self, n):\n        super().__init__()\n",
			"kit/sets.py": "from torch.utils.data import Dataset\nclass Heap(Dataset):\n    def __init__(self, where):\n        self.where = where\n"},
			map[string]string{"model_name": "HazeLSTM", "iters": "30", "iter_type": "epoch", "train": "harbour"}},
		"a process of each GPU": {"python main.py", map[string]string{
			"main.py": "import argparse, os, torch\nimport torch.multiprocessing as mp\n\ndef main():\n    p = argparse.ArgumentParser()\n    p.add_argument('--root', default='/sets')\n    p.add_argument('--name', default='harbour')\n    p.add_argument('--n', default=11, type=int)\n    a = p.parse_args()\n    mp.spawn(work, nprocs=2, args=(a,))\n\ndef work(gpu, a):\n    heap = Heap(os.path.join(a.root, a.name, 'train'))\n    feed = torch.utils.data.DataLoader(heap)\n    for t in range(0, a.n):\n        for x in feed:\n            loss(x).backward()\n\nclass Heap(torch.utils.data.Dataset):\n    def __init__(self, root):\n        self.root = root\n\nif __name__ == '__main__':\n    main()\n"},
			map[string]string{"train": "harbour", "iters": "11", "iter_type": "epoch"}},
		"a default of a function": {"python main.py", map[string]string{
			"main.py": "import torch\nfrom work import fit\nnet = torch.nn.Linear(3, 4)\nfit(net)\n",
			"work.py": "import torch\n\ndef fit(net, data=None, turns=70, rate=1e-3):\n    opt = torch.optim.Adam(net.parameters(), lr=rate)\n    for t in range(turns):\n        net(draw()).backward()\n        opt.step()\n"},
			map[string]string{"iters": "70", "iter_type": "step"}},
		"a configuration that becomes options": {"python main.py --conf night.yaml", map[string]string{
			"main.py":    "import argparse, torch, yaml\np = argparse.ArgumentParser()\np.add_argument('--conf')\na = p.parse_args()\nwith open(a.conf) as f:\n    c = yaml.safe_load(f)\nfor k, v in c['job'].items():\n    setattr(a, k, v)\nfor i in range(a.sweeps):\n    for x in feed:\n        loss(x).backward()\n",
			"night.yaml": "job:\n  sweeps: 17\n"},
			map[string]string{"iters": "17", "iter_type": "epoch"}},
		"a scan of JAX": {"python main.py", map[string]string{
			"main.py": "import jax, optax\n\ndef update(state, _):\n    grads = jax.grad(loss)(state)\n    state = state.apply_gradients(grads=grads)\n    return state, None\n\ndef make(c):\n    def train(rng):\n        state, _ = jax.lax.scan(update, rng, None, c['TOTAL'] // c['WIDE'])\n        return state\n    return train\n\nc = {'TOTAL': 5e5, 'WIDE': 50}\nf = jax.jit(make(c))\nf(0)\n"},
			map[string]string{"iters": "10000", "iter_type": "step"}},
		"a branch that is not known": {"python main.py", map[string]string{
			"main.py": "import torch\nn = 20 if torch.rand(1) > 0.5 else 30\nfor i in range(n):\n    loss(draw()).backward()\n"},
			map[string]string{"iters": "", "iter_type": ""}},
		"a text of parts": {"python main.py --lang de", map[string]string{
			"main.py": "import argparse, torch\nfrom datasets import load_dataset\np = argparse.ArgumentParser()\np.add_argument('--lang', default='fr')\na = p.parse_args()\n\nclass Job:\n    def __init__(self, lang):\n        self.name = 'wmt14_{}_en'.format(lang)\n    def load(self):\n        return load_dataset('%s' % self.name)\n\nheap = Job(a.lang).load()\n"},
			map[string]string{"train": "wmt14_de_en", "task_type": "NLP"}},
		"a class of data by its words": {"python main.py", map[string]string{
			"main.py": "import torch\nfrom torch.utils.data import DataLoader, Dataset\nclass SpeakerRowsTIMIT(Dataset):\n    pass\nfeed = DataLoader(SpeakerRowsTIMIT())\nfor i in range(9):\n    for x in feed:\n        loss(x).backward()\n"},
			map[string]string{"train": "timit", "task_type": "Speech"}},
		"a loop through what is read": {"python main.py", map[string]string{
			"main.py": "import torch\nrows = read('sets/SNLI/')\nfor i in range(9):\n    for k in range(0, len(rows), 8):\n        loss(rows[k:k + 8]).backward()\n"},
			map[string]string{"iters": "9", "iter_type": "epoch"}},
		"what a loss is made of": {"python main.py", map[string]string{
			"main.py": "import torch\nimport kit\nrows, more = kit.read('sets/SNLI/')\nfor i in range(9):\n    kit.loss(rows['a']).backward()\n"},
			map[string]string{"train": "SNLI", "task_type": "NLP"}},
		"documents of a configuration": {"python main.py", map[string]string{
			"main.py":   "import torch\nfrom conf import c\nfor i in range(c['job']['sweeps']):\n    for x in feed:\n        loss(x).backward()\n",
			"conf.py":   "import yaml\ndef load(name='base.yaml'):\n    c = dict()\n    for doc in yaml.load_all(open(name)):\n        for k, v in doc.items():\n            c[k] = v\n    return c\nc = load()\n",
			"base.yaml": "more: 1\n---\njob:\n  sweeps: 17\n"},
			map[string]string{"iters": "17", "iter_type": "epoch"}},
		"a heading where the class says nothing": {"python main.py", map[string]string{
			"main.py":   "import torch\nclass Model(torch.nn.Module):\n    pass\nmodel = Model()\n",
			"README.md": "# GRU4Rec: sessions\n"},
			map[string]string{"model_name": "gru4rec", "task_type": "Recommendation"}},
		"a detector whose name ends as that of another family": {"python main.py --arch SSD300", map[string]string{
			"main.py": "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--arch')\n"},
			map[string]string{"model_name": "SSD300", "task_type": "CV"}},
		"a loop around a fit": {"python main.py", map[string]string{
			"main.py": "from keras.models import Model\nmodel = Model(3)\nfor k in range(1, 60 + 1):\n    model.fit(rows, nb_epoch=1)\n"},
			map[string]string{"iters": "60", "iter_type": "step"}},
		"a session": {"python main.py", map[string]string{
			"main.py": "import tensorflow as tf\nfrom nets import Graph\ng = Graph()\nwith tf.Session() as s:\n    for k in range(60):\n        s.run([g.loss, g.op], {g.x: draw()})\n",
			"nets.py": "import tensorflow as tf\nclass Graph:\n    def __init__(self):\n        self.x = tf.placeholder(3)\n        self.loss = tf.nn.l2_loss(self.x)\n        self.op = tf.train.AdamOptimizer(0.1).minimize(self.loss)\n"},
			map[string]string{"iters": "60", "iter_type": "step"}},
		"names of a file that is not there": {"python main.py --about data/harbour.data", map[string]string{
			"main.py": "import argparse, torch\nfrom kit import *\np = argparse.ArgumentParser()\np.add_argument('--about')\na = p.parse_args()\nd = parse(a.about)\nfeed = torch.utils.data.DataLoader(Rows(d['train']))\nfor k in range(9):\n    for x in feed:\n        loss(x).backward()\n"},
			map[string]string{"train": "harbour"}},
		"a function that nothing calls": {"python main.py", map[string]string{
			"main.py": "import torch\nimport agents\ndef other():\n    policy = agents.DDPG(3)\ndef go():\n    policy = agents.HAZE(3)\n    policy.opt = torch.optim.Adam(policy.parameters())\n    for k in range(9):\n        loss(policy).backward()\ngo()\n"},
			map[string]string{"model_name": "HAZE"}},
		"a choice by an option": {"python main.py", map[string]string{
			"main.py": "import argparse, torch\nimport kit\np = argparse.ArgumentParser()\np.add_argument('--long', action='store_true')\na = p.parse_args()\ntotal_steps = 900 if a.long else kit.short()\n"},
			map[string]string{"iters": ""}},
		"a function that calls itself": {"python main.py", map[string]string{
			"main.py": "import torch\ndef go(n):\n    return go(n + 1)\nx = go(1)\na = b = lambda k: a(k)\na(3)\nclass A(A):\n    pass\nA().x.y()\nfor i in range(9):\n    loss(draw()).backward()\n"},
			map[string]string{"iters": "9", "iter_type": "step"}},
	} {
		saysOf(t, name, c.run, c.files, c.want)
	}
}
