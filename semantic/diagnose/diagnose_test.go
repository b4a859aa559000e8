package diagnose

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"pgregory.net/rapid"

	"github.com/muster-sched/muster/semantic/logtext"
)

// example is a case of testdata/*.txt, or of testdata/heldout, where it has no action.
type example struct {
	name            string
	want            string // category, component, action; or "missed" in its place, of a log that is known to be judged wrong
	lines           []string
	root, signature int64 // -1: none
}

func examples(t testing.TB, pattern string) []example {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	var all []example
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range strings.Split(string(data), "\n=== ") {
			if i == 0 {
				continue // the head of the file
			}
			lines := strings.Split(strings.TrimRight(block, "\n"), "\n")
			want, says, ok := strings.Cut(lines[0], ": ")
			if !ok {
				t.Fatalf("%s: %q: expected CATEGORY COMPONENT ACTION: text", file, lines[0])
			}
			e := example{name: filepath.Base(file) + ": " + says, want: want, root: -1, signature: -1}
			for n, l := range lines[1:] {
				margin, text := l, ""
				if len(l) > 4 {
					margin, text = l[:4], l[4:]
				}
				if strings.Contains(margin, "R") {
					e.root = int64(n)
				}
				if strings.Contains(margin, "S") {
					e.signature = int64(n)
				}
				e.lines = append(e.lines, text)
			}
			all = append(all, e)
		}
	}
	return all
}

func (e *example) String() string { return strings.Join(e.lines, "\n") }

// check says what is wrong with a verdict on the example, shift lines further down.
func (e *example) check(v *Verdict, shift int64) string {
	at := func(p *int64) int64 {
		if p == nil {
			return -1
		}
		return *p - shift
	}
	if got := fmt.Sprintf("%s %s %s", v.Category, v.Component, v.Action); got != e.want || at(v.RootLine) != e.root && v.RootLine != nil || at(v.SignatureLine) != e.signature && v.SignatureLine != nil {
		return fmt.Sprintf("%s, lines %d to %d (%s), want %s, lines %d to %d", got, at(v.RootLine), at(v.SignatureLine), v.Signature, e.want, e.root, e.signature)
	}
	return ""
}

func TestExamples(t *testing.T) {
	for _, e := range examples(t, "testdata/*.txt") {
		v := diagnosed(t, e.String())
		if wrong := e.check(&v, 0); wrong != "" {
			t.Errorf("%s: %s\n%s", e.name, wrong, v.String())
		}
	}
}

// TestHeldout judges logs that were labelled before the rules were run on them; docs/diagnose.md has what was right then. It prints how many are right now.
func TestHeldout(t *testing.T) {
	all := map[string][]judged{}
	right := map[string]int{}
	for _, e := range examples(t, "testdata/heldout/*.txt") {
		part, _, _ := strings.Cut(e.name, ":")
		want := strings.Fields(e.want)
		v := diagnosed(t, e.String())
		r := &record{ID: e.name}
		r.Label.Category, r.Label.Component, r.Label.RootLine, r.Label.SignatureLine = Category(want[0]), want[1], e.root, e.signature
		all[part] = append(all[part], judged{r, v, 0})
		at := int64(-1)
		if v.SignatureLine != nil {
			at = *v.SignatureLine
		}
		category := v.Category == r.Label.Category
		located := at >= e.root && at <= e.signature
		if category {
			right[part]++
		}
		missed := len(want) == 3 && want[2] == "missed"
		if (category && located && (v.Category != Infrastructure || v.Component == want[1])) == missed {
			t.Errorf("%s: %s %s, line %d (%s); want %s, lines %d to %d", e.name, v.Category, v.Component, at, v.Signature, e.want, e.root, e.signature)
		}
	}
	for part, logs := range all {
		s := show(t, part, logs)
		t.Logf("%s: %d of %d categories; %d of %d roots; infrastructure: %d found, %d missed, %d wrongly", part, right[part], len(logs), s.within[0], s.failures, s.tp, s.fn, s.fp)
	}
}

// chatter is what healthy jobs print.
var chatter = rapid.SampledFrom([]string{
	"step %d loss 2.25 lr 1e-4", " iteration %8d/ 1000 | consumed samples: 4096 | elapsed time per iteration (ms): 812.5 | lm loss: 2.1E+00 |",
	"epoch 3:  12%%|#         | %d/9000 [00:10<01:20, 9.81it/s, loss=2.1]", "[INFO] saved checkpoint %d", "loading shard %d", "",
	"{'loss': 1.5, 'grad_norm': 0.25, 'epoch': 0.%d}", "n1:77:78 [%d] NCCL INFO Channel 00/02 :    0   1", "epoch %d: val accuracy 0.75 error 0.25",
})

// An example inside healthy lines is judged as it is alone.
func TestBuried(t *testing.T) {
	all := examples(t, "testdata/*.txt")
	rapid.Check(t, func(t *rapid.T) {
		e := rapid.SampledFrom(all).Draw(t, "example")
		healthy := func(name string, first int) string {
			var b strings.Builder
			line := chatter.Draw(t, name)
			for i := range rapid.IntRange(0, 300).Draw(t, name+" lines") {
				if i%20 == 19 {
					line = chatter.Draw(t, name)
				}
				if strings.Contains(line, "%") {
					fmt.Fprintf(&b, line, first+i)
				} else {
					b.WriteString(line)
				}
				b.WriteString("\n")
			}
			return b.String()
		}
		// The steps behind are of another run: the job of the example does not go on.
		before, after := "step 4999 loss 9\n"+healthy("before", 5000), healthy("after", 100_000)
		if strings.Contains(e.name, "can do without") || strings.Contains(e.name, "at the start") {
			before = "" // before the first step a program tries what it can do without
		}
		v, err := Log(strings.NewReader(before + e.String() + "\n" + after))
		if err != nil {
			t.Fatal(err)
		}
		if wrong := e.check(&v, int64(strings.Count(before, "\n"))); wrong != "" {
			t.Fatalf("%s: %s\n%s", e.name, wrong, v.String())
		}
	})
}

// Whatever the log, the verdict points into it.
func FuzzLog(f *testing.F) {
	for _, e := range examples(f, "testdata/*.txt") {
		f.Add(e.String())
	}
	f.Add("No such file \"x")
	f.Add("TRACEBACK (MOST RECENT CALL LAST)\n x\nValueError")
	f.Fuzz(func(t *testing.T, text string) {
		v, err := Log(strings.NewReader(text))
		if errors.Is(err, logtext.ErrNotText) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if (v.Category == None) != (v.SignatureLine == nil) || (v.SignatureLine == nil) != (v.RootLine == nil) {
			t.Fatalf("%+v", v)
		}
		if v.SignatureLine != nil && !(0 <= *v.RootLine && *v.RootLine <= *v.SignatureLine && *v.SignatureLine < v.Lines) {
			t.Fatalf("lines %d to %d of %d", *v.RootLine, *v.SignatureLine, v.Lines)
		}
		if v.Confidence < 0 || v.Confidence > 1 || v.Recovery().Name != v.Action {
			t.Fatalf("%+v", v)
		}
	})
}

func TestCompressed(t *testing.T) {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write([]byte("step 1\nNVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"))
	w.Close()
	v, err := Log(bytes.NewReader(z.Bytes()))
	if err != nil || v.Component != "gpu" || *v.SignatureLine != 1 || v.Lines != 2 {
		t.Fatalf("%+v, %v", v, err)
	}
	for _, cut := range []int{3, 12, z.Len() - 5} {
		if v, err := Log(bytes.NewReader(z.Bytes()[:cut])); err == nil {
			t.Errorf("%d bytes: %+v", cut, v)
		}
	}
}

// Every signature is found by a text of its own literals, or else an earlier one hides it: the files are read, and each entry is used.
func TestKnowledge(t *testing.T) {
	k, err := load(files)
	if err != nil {
		t.Fatal(err)
	}
	if len(k.signatures) < 150 || len(k.xids) < 109 {
		t.Fatalf("%d signatures, %d Xids", len(k.signatures), len(k.xids))
	}
	for _, s := range k.signatures {
		if len(s.Find) == 0 || s.Says == "" && s.Parse == "" || s.Confidence <= 0 || s.Confidence > 1 {
			t.Errorf("%s: incomplete", s.Name)
		}
		for _, l := range s.Find {
			var m matched
			k.look([]byte("-"+strings.ToUpper(l)+"-"), &m)
			found := false
			for _, n := range m.signatures {
				found = found || k.signatures[n] == s
			}
			if !found {
				t.Errorf("%s: %q is not found", s.Name, l)
			}
		}
	}
}

func BenchmarkHealthy(b *testing.B) {
	var text strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&text, " iteration %8d/ 20000 | consumed samples: %12d | elapsed time per iteration (ms): 812.5 | learning rate: 1.000E-04 | lm loss: 2.1E+00 | grad norm: 0.25 |\n", i, i*512)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		if v, err := Log(strings.NewReader(text.String())); err != nil || v.Category != None {
			b.Fatal(v, err)
		}
	}
}

// A log that has errors in most lines is the slowest.
func BenchmarkErrors(b *testing.B) {
	var text strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&text, "psnr %d.%d fps 41.%d\n2026-04-20 10:00:%02d [job] request %d to storage: Connection reset by peer\nOSError: [Errno 28] No space left on device: '/scratch/%d'\n", i%40, i%7, i%9, i%60, i, i)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		if v, err := Log(strings.NewReader(text.String())); err != nil || v.Category == None {
			b.Fatal(v, err)
		}
	}
}

// Words in what is no text are there by chance: a program has the messages of all that may fail.
func TestGarbledLine(t *testing.T) {
	healthy := strings.Repeat("step 1/100 loss 0.5\n", 5_000)
	for text, want := range map[string]Category{
		"NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.\n":                                             Infrastructure,
		strings.Repeat("\xf3\xa1\x9c", 20) + " GPU has fallen off the bus " + strings.Repeat("\xfe\x97", 20) + "\n": None,
	} {
		v, err := Log(strings.NewReader(healthy + text))
		if err != nil || v.Category != want {
			t.Errorf("%q: %s, %v, want %s", text, v.Category, err, want)
		}
	}
}

func TestNotALog(t *testing.T) {
	_, err := Log(bytes.NewReader(bytes.Repeat([]byte{0x93, 'E', 'C', 'C', 0xf1, 0x02}, 30_000)))
	if !errors.Is(err, logtext.ErrNotText) {
		t.Errorf("error %v, want %v", err, logtext.ErrNotText)
	}
}

// Of the logs of one job on several nodes, one is about the root; the others are of processes that waited.
func TestRoot(t *testing.T) {
	const step, waited = "step 10 loss 2.0\n", "[rank8]:[E ProcessGroupNCCL.cpp:621] [Rank 8] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
	const ended = "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, remote process exited or there was a network error, NCCL version 2.20.5\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
	for _, c := range []struct {
		name string
		logs []string
		want int
	}{
		{"a GPU of the third node", []string{waited, waited + ended, "NVRM: Xid (PCI:0000:5e:00): 79, pid=7, name=python, GPU has fallen off the bus.\n", ended}, 2},
		{"an error of the program in one rank", []string{waited, "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    f()\nValueError: bad sample\n", waited}, 1},
		{"a disk that is full", []string{ended, waited, ended, "OSError: [Errno 28] No space left on device: '/scratch/ckpt'\n"}, 3},
		{"GPU memory on the first, and others time out", []string{"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n", waited, waited}, 0},
		{"a network card", []string{waited, "n2:12:99 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<4791> with status=12 opcode=0 len=0 vendor err 129\n", waited}, 1},
		{"a node that is silent", []string{waited, waited, ended}, -1},
		{"all are well", []string{"", "Training completed.\n"}, -1},
	} {
		var all []Verdict
		for _, l := range c.logs {
			v, err := Log(strings.NewReader(step + l))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, v)
		}
		if got := Root(all); got != c.want {
			t.Errorf("%s: the root is in log %d, want %d", c.name, got, c.want)
		}
	}
}
