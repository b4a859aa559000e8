package interpret

import (
	"path"
	"strings"
	"testing"
	"time"

	"github.com/muster-sched/muster/semantic/python"
)

// files is a folder and a command for tests.
type files struct {
	source  map[string][]python.Statement
	options map[string]string
}

func folder(all map[string]string, options map[string]string) files {
	f := files{map[string][]python.Statement{}, options}
	for name, source := range all {
		f.source[name] = python.Parse([]byte(source))
	}
	return f
}

func (f files) Source(file string) []python.Statement { return f.source[file] }

func (f files) Import(s *python.Statement, from string) []string {
	name := strings.ReplaceAll(strings.TrimLeft(s.Module, "."), ".", "/")
	for _, p := range []string{name + ".py", path.Join(name, "__init__.py")} {
		if f.source[p] != nil && p != from {
			return []string{p}
		}
	}
	return nil
}

func (f files) Option(name string) *Value {
	if v, ok := f.options[name]; ok {
		p := parsed(v)
		p.From = Source{At: "command", Key: name, Rank: Commanded}
		return p
	}
	return nil
}

func (f files) Known(string, string) *Value { return nil }

func (f files) Config(name, _ string) *Value {
	if name != "job.yaml" {
		return nil
	}
	return &Value{Kind: Dict, Keys: []string{"n"}, Fields: map[string]*Value{"n": {Kind: Number, Text: "12", From: Source{At: "job.yaml:1", Rank: Configured}}}}
}

func (f files) Environment(name string) *Value {
	if name == "N" {
		return parsed("13")
	}
	return nil
}

// show returns what show(x) is given, as the interpreter finds it: its text, or what makes it.
func show(t *testing.T, f files, script string) []string {
	t.Helper()
	tr := Run(f, script)
	var all []string
	for _, s := range f.source[script] {
		for i := range s.Calls {
			if c := &s.Calls[i]; c.Callee() == "show" {
				switch v := tr.Values[&c.Args[0]]; {
				case v == nil:
					all = append(all, "?")
				case v.Kind == Object:
					all = append(all, "<"+v.Maker()+">")
				case v.Kind == List:
					all = append(all, "list")
				case v.Kind == None:
					all = append(all, "None")
				default:
					all = append(all, v.Text)
				}
			}
		}
	}
	return all
}

// What an expression is found to be as a script is followed. A ? is not known.
func TestValues(t *testing.T) {
	for name, c := range map[string]struct {
		source string
		want   string
	}{
		"arithmetic":                    {"a = 3\nb = a * 4 // 5\nshow(b - 1)", "1"},
		"an option":                     {"import argparse\np = argparse.ArgumentParser()\np.add_argument('--n', default=3)\np.add_argument('--m', default=4)\na = p.parse_args()\nshow(a.n)\nshow(a.m)", "7 4"},
		"options in a group":            {"import argparse\np = argparse.ArgumentParser()\ng = p.add_argument_group('x')\ng.add_argument('--long-name', type=int, default=4)\na, _ = p.parse_known_args()\nshow(a.long_name)", "4"},
		"an option that is changed":     {"import argparse\np = argparse.ArgumentParser()\np.add_argument('--m', default=4)\np.set_defaults(m=5)\na = p.parse_args()\nshow(a.m)\na.m = 6\nshow(a.m)", "5 6"},
		"a table of functions":          {"def f():\n    return 'ef'\ndef g():\n    return 'ge'\nT = {'f': f, 'g': g}\nshow(T['g']())", "ge"},
		"texts":                         {"n = 'a'\nshow(f'{n}/b_{2}')\nshow('%s-%d' % (n, 3))\nshow('{}.{}'.format(n, 'c'))\nshow('-'.join([n, 'd']))\nshow(n.upper() + 'e')", "a/b_2 a-3 a.c a-d Ae"},
		"a part that is not known":      {"import os\nshow(os.path.join(where(), 'sets', 'a'))\nshow(where() + '/b')", "$/sets/a $/b"},
		"attributes":                    {"class A:\n    n = 5\n    def __init__(self, m):\n        self.m = m\n    @property\n    def both(self):\n        return self.n + self.m\na = A(2)\nshow(a.both)", "7"},
		"what a class is based on":      {"class A:\n    def __init__(self, m):\n        self.m = m\nclass B(A):\n    def __init__(self):\n        super().__init__(9)\nshow(B().m)", "9"},
		"fields with defaults":          {"from dataclasses import dataclass, field\n@dataclass\nclass A:\n    n: int = 5\n    m: int = field(default=6)\na = A(n=4)\nshow(a.n)\nshow(a.m)", "4 6"},
		"branches":                      {"n = 3\nif n > 2:\n    k = 'a'\nelse:\n    k = 'b'\nshow(k)", "a"},
		"a branch that is not known":    {"if maybe():\n    k = 'a'\nelse:\n    k = 'b'\nshow(k)", "?"},
		"branches that agree":           {"if maybe():\n    k = 'a'\nelse:\n    k = 'a'\nshow(k)", "a"},
		"a branch over a default":       {"k = 'a'\nif maybe():\n    k = 'b'\nshow(k)", "a"},
		"returns that are not known":    {"def f():\n    if maybe():\n        return 1\n    return 2\nshow(f())", "?"},
		"returns of a choice":           {"def f(n):\n    if n == 'a':\n        return 1\n    elif n == 'b':\n        return 2\n    raise ValueError(n)\nshow(f('b'))", "2"},
		"a loop over a list":            {"t = {}\nfor k, v in [('a', 1), ('b', 2)]:\n    t[k] = v\nshow(t['b'])", "2"},
		"a counter":                     {"n = 0\nfor x in feed:\n    n += 1\nshow(n)", "?"},
		"a configuration":               {"import yaml\nc = yaml.safe_load(open('job.yaml'))\nshow(c['n'])", "12"},
		"the environment":               {"import os\nshow(os.environ.get('N', '3'))\nshow(os.environ.get('M', '4'))\nshow(os.environ['N'])", "13 4 13"},
		"a call outside":                {"import torch\nm = torch.nn.Linear(3, 4)\nshow(m)\nshow(m.weight)", "<torch.nn.Linear> <.weight>"},
		"arguments by name":             {"def f(a, b=2, *rest, c=3, **more):\n    return more['d']\nshow(f(1, c=4, d=5))", "5"},
		"a dict that is passed on":      {"def f(a, b):\n    return b\nk = dict(b=8)\nshow(f(1, **k))", "8"},
		"a function of a function":      {"def f(n):\n    def g(m):\n        return n + m\n    return g\nshow(f(2)(3))", "5"},
		"a comprehension":               {"a = [n * 2 for n in [1, 2]]\nshow(a[1])", "4"},
		"a module by its path":          {"import importlib.util as u\ns = u.spec_from_file_location('a', 'kit.py')\nm = u.module_from_spec(s)\nclass A:\n    pass\na = A()\nfor k, v in m.__dict__.items():\n    a.__setattr__(k, v)\nshow(a.n)", "21"},
		"a module that replaces itself": {"import other\nshow(other.n)", "22"},
		"a module":                      {"import kit\nshow(kit.n)\nfrom kit import n as m\nshow(m)", "21 21"},
		"an attribute by its name":      {"import kit\nshow(getattr(kit, 'n'))\nshow(getattr(kit, 'z', 4))", "21 4"},
		"what is on the command":        {"class A:\n    n: int = 1\nimport tyro\na = tyro.cli(A)\nshow(a.n)", "7"},
		"operators that change":         {"a = 6\na *= 3\na //= 2\nshow(a)\na -= 1\nshow(a)\na **= 2\nshow(a)", "9 8 64"},
		"a remainder":                   {"show(-1 % 4)\nshow(7 % -4)\nshow(7 % 4)", "3 -1 3"},
		"a list that is repeated":       {"a = [1] * 3\nshow(len(a))\nshow(len([1, 2] * n()))\nshow(len([1] * 100000))", "3 ? ?"},
		"lists apart":                   {"a = [3, 1]\nb = list(a)\nb.append(5)\nshow(len(a))\nshow(sorted(a)[0])\nshow(len(set([1, 1])))", "2 1 1"},
		"whole numbers":                 {"show(int(-2.5))\nshow(int(2.0 ** 70))", "-2 1180591620717411300000"},
		"dicts that are compared":       {"a = {'x': 1}\nb = {'x': 1}\nshow(a == b)\nshow(a is None)", "? false"},
		"an item that is taken out":     {"a = [1, 2]\na.pop()\nshow(len(a))", "?"},
		"a list of unknown length":      {"a = []\nfor i in range(12):\n    a.append(i)\nshow(len(a))\nb = [1]\nif maybe():\n    b.append(2)\nshow(len(b))\nc = []\nfor i in [4, 5]:\n    c.append(i)\nshow(len(c))", "? ? 2"},
		"the last of several returns":   {"def f():\n    return None\nshow(f())", "None"},
	} {
		f := folder(map[string]string{"job.py": c.source, "kit.py": "n = 21\n", "other.py": "import sys\nclass A:\n    n = 22\nsys.modules[__name__] = A()\n"}, map[string]string{"n": "7"})
		if got := strings.Join(show(t, f, "job.py"), " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The loops around what updates a model are known across functions and files.
func TestUpdates(t *testing.T) {
	f := folder(map[string]string{
		"job.py":  "from work import Job\nif __name__ == '__main__':\n    Job(40).go()\n",
		"work.py": "class Job:\n    def __init__(self, n):\n        self.n = n\n    def once(self, feed):\n        for x in feed:\n            loss(x).backward()\n    def go(self):\n        for k in range(1, self.n + 1):\n            self.once(make())\n",
	}, nil)
	tr := Run(f, "job.py")
	if len(tr.Updates) != 1 || len(tr.Updates[0].Loops) != 2 {
		t.Fatalf("%d updates, want one in two loops: %+v", len(tr.Updates), tr.Updates)
	}
	outer, inner := tr.Updates[0].Loops[0], tr.Updates[0].Loops[1]
	if n, _ := outer.Bound.Float(); n != 40 || outer.Var != "k" || outer.Data || !inner.Data || inner.Bound != nil {
		t.Errorf("loops %+v and %+v, want k up to 40 around one over data", outer, inner)
	}
}

// Code that has no end, or grows without one, is left soon.
func TestBounds(t *testing.T) {
	for name, source := range map[string]string{
		"itself":              "def f(n):\n    return f(n) + f(n)\nf(1)\n",
		"each other":          "def f(n):\n    return g(n)(g(n))\ndef g(n):\n    return f(n)(f(n))\nf(1)\n",
		"doubling lists":      "a = [1, 2]\n" + strings.Repeat("a = a + a\na += a\na.extend(a)\n", 60),
		"doubling texts":      "a = 'ab'\n" + strings.Repeat("a = a + a\na = a.replace('a', a)\na = f'{a}{a}'\na = a.join([a, a])\n", 60),
		"functions":           "def f0():\n    pass\n" + many(200, "def f%d():\n    f%[2]d()\n    f%[2]d()\n") + "f200()\n",
		"classes":             "class A(B):\n    pass\nclass B(A):\n    pass\nA().x\nclass A(A):\n    pass\nA().y\n",
		"a dict of itself":    "a = {}\na['a'] = a\nfor k, v in a.items():\n    a.update(a)\n",
		"copies of a table":   "a = {" + many(20_000, "'k%d': 1, ") + "}\n" + strings.Repeat("b = {**a}\na.items()\n", 20_000),
		"a long replacement":  "a = '" + strings.Repeat("a", 900) + "'\nb = '" + strings.Repeat("b", 500_000) + "'\n" + strings.Repeat("a.replace('a', b)\n", 10),
		"a long text":         "a = '" + strings.Repeat("a,", 200_000) + "'\n" + loops + "      a.split(',')\n",
		"a long text joined":  "a = '" + strings.Repeat(",", 400_000) + "'\n''.join(a.split(','))\n",
		"copies by functions": "a = {" + many(5_000, "'k%d': 1, ") + "}\n" + loops + "      dict(a)\n      list(a)\n      a.to_dict()\n",
		"many fields":         "class A:\n" + many(20_000, "    f%d = 1\n") + "class B(A):\n    pass\n" + strings.Repeat("B()\n", 300),
		"many bases":          "class A(" + strings.Repeat("object, ", 20_000) + "object):\n    pass\na = A()\n" + loops + "      a.x\n      a.y\n",
		"lists in lists":      "a = [" + strings.Repeat("1,", 16) + "]\n" + strings.Repeat("a = ["+strings.Repeat("a,", 16)+"]\n", 5) + strings.Repeat("s.run(a)\n", 300),
		"conditions":          conditions(700) + strings.Repeat(" ", 700) + "for i in l:\n" + strings.Repeat(" ", 701) + "for j in l:\n" + strings.Repeat(" ", 702) + "i + j + nowhere\n",
		"nested loops":        "l = list(range(3)) + [1] * 99\n" + nested(12),
	} {
		done := make(chan bool)
		go func() {
			Run(folder(map[string]string{"job.py": source}, nil), "job.py")
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Errorf("%s: no end after 20 seconds", name)
		}
	}
}

// loops runs what follows 65,536 times.
const loops = "l = ['x'] + list('a b c'.split())\nl.extend(l)\nl.extend(l)\nl.extend(l)\nl.extend(l)\nl.extend(l)\nl.extend(l)\nfor i in l:\n   for j in l:\n"

// conditions returns conditions in each other that are not known.
func conditions(n int) string {
	s := "l = ['x', 'y']\n" + strings.Repeat("l.extend(l)\n", 7)
	var b strings.Builder
	b.WriteString(s)
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "if maybe:\n")
	}
	return b.String()
}

func many(n int, line string) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		r := strings.NewReplacer("%d", num(i), "%[2]d", num(i-1))
		b.WriteString(r.Replace(line))
	}
	return b.String()
}

func nested(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "for i" + num(i) + " in [1, 2, 3, 4, 5, 6, 7, 8]:\n")
	}
	b.WriteString(strings.Repeat(" ", n) + "f(1)\n")
	return b.String()
}

func num(i int) string { return format(float64(i)) }

func FuzzRun(f *testing.F) {
	f.Add("import argparse\np = argparse.ArgumentParser()\np.add_argument('--n', default=3)\na = p.parse_args()\nfor i in range(a.n):\n    x.backward()\n")
	f.Add("class A(B):\n    def __init__(self, *a, **k):\n        self.x = [y for y, z in a]\n        super().__init__()\nA(1, *b, **c).x[0](lambda q: q)\n")
	f.Add("while n < 3:\n    n += 1\n    if n >= 2:\n        break\nelse:\n    f'{a!r:>{n}}' % (1, *b)\n")
	f.Fuzz(func(t *testing.T, source string) {
		Run(folder(map[string]string{"job.py": source, "kit.py": source}, map[string]string{"n": "3"}), "job.py")
	})
}

// A range counts its steps.
func TestRange(t *testing.T) {
	for source, want := range map[string]string{"range(0, 100, 10)": "10", "range(10, 0, -1)": "10", "range(1, 10, 4)": "3", "range(5)": "5", "range(2, 5)": "3", "range(5, 2)": "0"} {
		tr := Run(folder(map[string]string{"job.py": "for i in " + source + ":\n    loss.backward()\n"}, nil), "job.py")
		if len(tr.Updates) != 1 || len(tr.Updates[0].Loops) != 1 || tr.Updates[0].Loops[0].Bound == nil || tr.Updates[0].Loops[0].Bound.Text != want {
			t.Errorf("%s: %+v, want a loop of %s", source, tr.Updates, want)
		}
	}
}
