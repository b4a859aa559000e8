package shell

import (
	"fmt"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"python train.py --lr 1e-3 # fast\n", "1 python|train.py|--lr|1e-3"},
		{"A=1\nexport B=\"x y\"\npython t.py $A \"$B\" $B ${C:-7} $D", "3 python|t.py|1|x y|x|y|7|$D"},
		{"ARGS=(\n  --a 1 # one\n  --b \"two words\"\n)\nARGS+=(--c)\ntorchrun \"${ARGS[@]}\" x.py", "6 torchrun|--a|1|--b|two words|--c|x.py"},
		{"OPTS=\"\n --a 1 \\\n --b 2\n\"\nrun $OPTS", "5 run|--a|1|--b|2"},
		{"N=2; G=8\nW=$(($N*$G))\nrun $W $((G + N - 1)) $(hostname) `date`", "3 run|16|9|$()|$()"},
		{"CUDA_VISIBLE_DEVICES=0,1 python t.py \\\n  --x 'a b' 2>&1 | tee log.txt &", "1 [CUDA_VISIBLE_DEVICES=0,1]python|t.py|--x|a b\n2 tee|log.txt"},
		{"if [ -z \"$1\" ]; then\n S=small\nelse\n S=big\nfi\nrun $S > out.log && done_it", "1 [|-z|$1|]\n6 run|small\n6 done_it"},
		{"cat <<EOF > ds.json\n{\"a\": 1}\npython no.py\nEOF\npython yes.py", "1 cat\n5 python|yes.py"},
		{"N=4\nread -r -d '' ARGS <<EOF\nt.py --n $N \\\n  --name \"x y\"\nEOF\nif a; then\n  python $ARGS\nfi", "2 read|-r|-d||ARGS\n6 a\n7 python|t.py|--n|4|--name|\"x|y\""},
		{"for s in 1 2 3; do\n  python t.py seed=$s\ndone", "2 python|t.py|seed=1"},
		{"D=$(cd \"$(dirname \"${BASH_SOURCE[0]}\")\" && pwd)\nrun $(dirname \"$0\")/a.py $D/b.py `dirname $0`", "2 run|scripts/a.py|scripts/b.py|scripts"},
		{"run $@ $1", "1 run|p|q|p"},
		{"A=${@:2}\nB=\"$@\"\nrun ${@:2} x$A $B ${@:7}", "3 run|q|xq|p|q"},
		{"P=$(( ((RANDOM<<15)|RANDOM) % 9 + 1 ))\nrun $((2*(3)))", "2 run|6"},
		{"A=$1\nshift\nrun \"$@\" $A", "3 run|q|p"},
		{"X=a; X+=b; run $X --k=\"v w\"z", "1 run|ab|--k=v wz"},
		{"run \"/données/pile\" \"\\é\" 'ü' ö", "1 run|/données/pile|\\é|ü|ö"},
	} {
		var got []string
		for _, cmd := range Parse([]byte(c.source), "scripts", params(c.source)...).Commands {
			line := fmt.Sprintf("%d ", cmd.Line)
			if len(cmd.Env) > 0 {
				line += fmt.Sprint(cmd.Env)
			}
			got = append(got, line+strings.Join(cmd.Words, "|"))
		}
		if got := strings.Join(got, "\n"); got != c.want {
			t.Errorf("%s\ngives\n%s\nwant\n%s", c.source, got, c.want)
		}
	}
}

func params(source string) []string {
	if strings.Contains(source, "$@") || strings.Contains(source, "${@") {
		return []string{"p", "q"}
	}
	return nil
}

func TestComments(t *testing.T) {
	s := Parse([]byte("#!/bin/bash\n#SBATCH --nodes=4\necho hi # no\n"), ".")
	if len(s.Comments) != 2 || s.Comments[1] != (Comment{"#SBATCH --nodes=4", 2}) {
		t.Errorf("comments %v", s.Comments)
	}
}

// A script whose variables double does not take memory without end.
func TestGrowth(t *testing.T) {
	source := "a=xxxxxxxx\n" + strings.Repeat("a=$a$a\n", 60) + "b=(x x)\n" + strings.Repeat("b+=(${b[@]})\n", 60) + "run $a"
	s := Parse([]byte(source), ".")
	for name, v := range s.Vars {
		if len(v.Value) > maxValue {
			t.Errorf("%s has %d bytes", name, len(v.Value))
		}
	}
	long := "a=\"" + strings.Repeat("x ", 30_000) + "\"\nb=($a)\n"
	for _, c := range []string{"run" + strings.Repeat(" $a", 50_000), strings.Repeat("run $a\n", 50_000), "run \"" + strings.Repeat("${b[@]}", 50_000) + "\"", "c=(" + strings.Repeat("$a ", 50_000) + ")",
		strings.Repeat("a+=x ", 50_000) + "run", strings.Repeat("b+=(x)\n", 50_000), strings.Repeat("d+=x\n", 50_000)} {
		size := 0
		for _, cmd := range Parse([]byte(long+c), ".").Commands {
			for _, w := range append(cmd.Words, cmd.Env...) {
				size += 1 + len(w)
			}
		}
		if size > 2*maxSize {
			t.Errorf("%.20s: %d bytes of words", c, size)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a=(b $((1+2)) ${c:-d}", "x <<E\ny\nE\n", "'", "\"$", "`", "${", "$((", "a=${a:=$b}", "#\n\\\n", "while getopts a: o; do case $o in a) b=$OPTARG;; esac; done", "while [ $# -gt 0 ]; do case $1 in --a) b=$2; shift;; esac; done"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		for _, c := range Parse(source, ".", "p").Commands {
			if len(c.Words) == 0 {
				t.Fatal("a command without words")
			}
		}
	})
}

// Loops that take options apart set what the parameters say, and what they do not say keeps its default.
func TestOptions(t *testing.T) {
	for _, c := range []struct {
		source string
		params []string
		want   string
	}{
		{"M=a\nE=1\nwhile [[ $# -gt 0 ]]; do\n  case $1 in\n    --model|-m)\n      M=\"$2\"\n      shift 2\n      ;;\n    --epochs) E=$2; shift; shift ;;\n    --fp16) F=1; shift ;;\n    *) echo \"no $1\"; exit 1 ;;\n  esac\ndone\nrun $M $E $F",
			[]string{"--fp16", "--model", "b"}, "run|b|1|1"},
		{"while [ \"$#\" -gt 0 ]\ndo\nkey=\"$1\"\ncase $key in\n  --lr) LR=$2; shift ;;\nesac\nshift\ndone\nrun $LR", []string{"--x", "--lr", "0.1"}, "run|0.1"},
		{"while [[ \"$1\" != \"\" ]]; do\n case $1 in\n  -m | --model )\n   shift\n   M=$1\n   ;;\n esac\n shift\ndone\nrun $M", []string{"-m", "b", "-x"}, "run|b"},
		{"for i in \"$@\"; do\n case $i in\n  --size=*) S=\"${i#*=}\" ;;\n esac\ndone\nrun $S $1", []string{"--size=7b", "q"}, "run|7b|--size=7b"},
		{"D=x\nwhile getopts \"m:d:v\" opt; do\n case $opt in\n  m) M=$OPTARG ;;\n  d) D=${OPTARG} ;;\n  v) V=1 ;;\n  \\?) exit 1 ;;\n esac\ndone\nrun $M $D $V", []string{"-v", "-m", "b"}, "run|b|x|1"},
		{"for s in 1 2; do\n run $s\ndone", nil, "run|1"},
		{"while [ $# -gt 0 ]; do\n case $1 in\n --a) A=$2; shift 2 ;;", []string{"--a", "1"}, ""}, // no end
	} {
		got := ""
		for _, cmd := range Parse([]byte(c.source), ".", c.params...).Commands {
			if cmd.Words[0] == "run" {
				got = strings.Join(cmd.Words, "|")
			}
		}
		if got != c.want {
			t.Errorf("%s\ngives %q, want %q", c.source, got, c.want)
		}
	}
}
