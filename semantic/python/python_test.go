package python

import (
	"fmt"
	"strings"
	"testing"
)

func format(e *Expr) string {
	list := func(es []Expr) string {
		var all []string
		for i := range es {
			all = append(all, format(&es[i]))
		}
		return strings.Join(all, ", ")
	}
	switch e.Kind {
	case String, Format:
		return fmt.Sprintf("%q", e.Text)
	case Number, Bool, Name:
		return e.Text
	case None:
		return "None"
	case Call:
		args := list(e.Args)
		for i, k := range e.Keys {
			if args != "" {
				args += ", "
			}
			args += k + "=" + format(&e.Named[i])
		}
		return format(e.Of) + "(" + args + ")"
	case List:
		return "[" + list(e.Args) + "]"
	case Dict:
		var all []string
		for i, k := range e.Keys {
			all = append(all, k+": "+format(&e.Named[i]))
		}
		return "{" + strings.Join(all, ", ") + "}"
	case Binary:
		return "(" + format(&e.Args[0]) + " " + e.Text + " " + format(&e.Args[1]) + ")"
	case Negate:
		return "-" + format(&e.Args[0])
	case Not:
		return "not " + format(&e.Args[0])
	case Choice:
		return "(" + format(&e.Args[0]) + " if " + format(&e.Args[1]) + " else " + format(&e.Args[2]) + ")"
	case Index:
		return format(e.Of) + "[" + list(e.Args) + "]"
	case Member:
		return format(e.Of) + "." + e.Text
	}
	return "?"
}

func describe(s *Statement) string {
	where := ""
	if s.Class != "" {
		where = "in class " + s.Class + " "
	}
	if s.Function != "" {
		where += "in " + s.Function + " "
	}
	switch s.Kind {
	case Import:
		return fmt.Sprintf("%simport %s %v", where, s.Module, s.Names)
	case Assign:
		return fmt.Sprintf("%s%s = %s", where, s.Target, format(&s.Value))
	case Class:
		bases := format(&Expr{Kind: List, Args: s.Args})
		return fmt.Sprintf("%sclass %s %s %s", where, s.Target, bases, format(&Expr{Kind: List, Args: s.Decorators}))
	case Def:
		line := where + "def " + s.Target + " " + format(&Expr{Kind: List, Args: s.Decorators})
		for _, p := range s.Params {
			line += " " + p.Name + "=" + format(&p.Default)
		}
		return line
	case For:
		return fmt.Sprintf("%sfor %s in %s", where, s.Target, format(&s.Value))
	case If:
		if s.Else {
			where += "else "
		}
		return where + "if " + format(&s.Value)
	case Augment:
		return where + s.Target + " op= " + format(&s.Value)
	case While:
		return where + "while " + format(&s.Value)
	}
	return where + format(&s.Value)
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"import torch.nn as nn, os\nfrom ..models import GPT as Model, (Net)\nfrom . import x", "1 import torch.nn []\n1 import os []\n2 import ..models [GPT Net]\n3 import . [x]"},
		{"a = 5 * 8 # forty\nb: int = -1\nc = 'x' \"y\"\nd = e = 3\n", "1 a = (5 * 8)\n2 b = -1\n3 c = \"xy\"\n4 d = 3"},
		{"p.add_argument('-b', '--batch-size', type=int, default=64,\n   help='a (long) one')\nx = 1", "1 p.add_argument(\"-b\", \"--batch-size\", type=int, default=64, help=\"a (long) one\")\n3 x = 1"},
		{"@dataclass\nclass Args(Base):\n    lr: float = field(default=3e-4)\n    def f(self, n: int = 2, *, m=None) -> int:\n        k = n\ny = 0",
			"2 class Args [Base] [dataclass]\n3 in class Args lr = field(default=3e-4)\n4 in class Args def f [] self=? n=2 m=None\n5 in class Args in f k = n\n6 y = 0"},
		{"for i in range(1, args.epochs + 1): train(i)\nif x and not y: pass\nwhile step < 10: step()", "1 for i in range(1, (args.epochs + 1))\n1 train(i)\n2 if (x and not y)\n2 ?\n3 while (step < 10)\n3 step()"},
		{"if a == 'b':\n  n += 1\nelif c: d['k'] //= 2\nelse:\n  e", "1 if (a == \"b\")\n2 n op= 1\n3 else if c\n3 d.k op= 2\n4 else if ?\n5 e"},
		{"YOLO('a.pt').train(data=d['k'], **kw)\nz = [i for i in x if i]\nw = {'a': 1, **b, 'c': {'d': [1, 2]}}", "1 YOLO(\"a.pt\").train(data=d[\"k\"], **=kw)\n2 z = ?\n3 w = {a: 1, **: b, c: {d: [1, 2]}}"},
		{"f = lambda a, b=2: a\ng = x if y else z\nh = a[1:2, ::3]\nconfig['lr'] = 1", "1 f = lambda(a)\n2 g = (x if y else z)\n3 h = a[[1, 2, 3]]\n4 config.lr = 1"},
		{"s = f'{a}/b'\nt = r'a\\b'\nu = '''two\nlines'''\nv = 1_000", "1 s = \"{a}/b\"\n2 t = \"a\\\\b\"\n3 u = \"two\\nlines\"\n5 v = 1000"},
		{"broken = f(1, [2\ndef g(): return 3\nok = 4", "1 broken = f(1, [2])\n2 def g []\n2 in g 3\n3 ok = 4"},
		{"a, b = 1, 2; c = 3", "1  = [1, 2]\n1 c = 3"},
		{"with open('x') as f:\n  y = 1\n\\\nz = 2", "1 f = open(\"x\")\n2 y = 1\n4 z = 2"},
	} {
		var got []string
		for _, s := range Parse([]byte(c.source)) {
			got = append(got, fmt.Sprintf("%d %s", s.Line, describe(&s)))
		}
		if got := strings.Join(got, "\n"); got != c.want {
			t.Errorf("%s\ngives\n%s\nwant\n%s", c.source, got, c.want)
		}
	}
}

func TestCallsInCalls(t *testing.T) {
	s := Parse([]byte("t = Trainer(model=build(GPT('a')), args=TrainingArguments(max_steps=5))"))
	var got []string
	for _, c := range s[0].Calls {
		got = append(got, c.Callee())
	}
	if want := "GPT build TrainingArguments Trainer"; strings.Join(got, " ") != want {
		t.Errorf("calls %v, want %s", got, want)
	}
}

// Hostile source is read to its end, in time in proportion to its length.
func TestHostile(t *testing.T) {
	const n = 200_000
	for _, source := range []string{
		strings.Repeat("(", n), strings.Repeat("f(", n), strings.Repeat("[{", n), strings.Repeat("-", n), strings.Repeat("not ", n), strings.Repeat("a.", n),
		strings.Repeat("a[", n), strings.Repeat("lambda:", n), strings.Repeat("x if y else ", n), "x = '" + strings.Repeat("a", n), strings.Repeat("@", n), strings.Repeat("class ", n),
		"'''" + strings.Repeat("\n", n), strings.Repeat("a**", n), strings.Repeat("\\", n), strings.Repeat("a:=", n), strings.Repeat("x[0]", n), strings.Repeat("f()", n), strings.Repeat("\xff", n),
		strings.Repeat("def f(", n), strings.Repeat("if x:", n), strings.Repeat("1+", n),
	} {
		Parse([]byte(source + "\nlast = 1\n"))
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a = f(x=1, *y)", "class A(B):\n\tx: int = 1\n", "def f(a, /, *, b=1): pass", "x = {1: 2, **y}", "from . import (a, b)", "'''", "f'{x'", "0x_f", "1e", "é = 1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		last := 0
		for _, s := range Parse(source) {
			if s.Line < last {
				t.Fatalf("line %d after line %d", s.Line, last)
			}
			last = s.Line
			if len(s.Value.Keys) != len(s.Value.Named) {
				t.Fatalf("%d keys, %d values", len(s.Value.Keys), len(s.Value.Named))
			}
		}
	})
}

// What an interpreter needs beside what a reader shows: the targets of assignments, names of imports, words, stars and comprehensions.
func TestDetails(t *testing.T) {
	all := Parse([]byte("from a import b as c, d\nimport e.f as g\nx, y[0] = z = h()\nfor i, (j, k) in m:\n    return 1, 2\ndef n(o, *p, q=1, **r): pass\ns = [t for u in v]\nw(*x)\ny = a[:2]\nz = b is not None\nf = lambda c, d: c\n"))
	check := func(what string, ok bool) {
		t.Helper()
		if !ok {
			t.Errorf("%s is not read", what)
		}
	}
	check("the names of an import", len(all[0].As) == 2 && all[0].As[0] == "c" && all[0].As[1] == "d" && all[1].As[0] == "g" && all[1].Module == "e.f")
	check("a chain of targets", len(all[2].To) == 2 && all[2].To[0].Kind == List && all[2].To[0].Args[1].Kind == Index && all[2].To[1].Text == "z")
	check("the variables of a loop", all[3].To[0].Kind == List && all[3].To[0].Args[0].Text == "i" && len(all[3].To[0].Args[1].Args) == 2)
	check("a return of several", all[4].Word == "return" && all[4].Value.Kind == List && len(all[4].Value.Args) == 2)
	p := all[5].Params
	check("stars of parameters", len(p) == 4 && p[0].Stars == 0 && p[1].Stars == 1 && p[2].Stars == 0 && p[3].Stars == 2)
	var rest []Statement
	for _, s := range all {
		if s.Indent == 0 && s.Line > 6 {
			rest = append(rest, s)
		}
	}
	check("a comprehension", rest[0].Value.Kind == Each && rest[0].Value.Args[0].Text == "t" && rest[0].Value.Args[1].Text == "u" && rest[0].Value.Args[2].Text == "v")
	check("a star of an argument", rest[1].Value.Args[0].Text == "*" && rest[1].Value.Args[0].Args[0].Text == "x")
	check("a slice", rest[2].Value.Args[0].Kind == List)
	check("is not", rest[3].Value.Text == "is not")
	check("the parameters of a lambda", rest[4].Value.Text == "c d" && rest[4].Value.Args[0].Text == "c")
}
