package ptx

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-sched/muster/disagg/ptx/corpus"
)

// modules returns the texts of testdata by file.
func modules(t testing.TB) map[string]string {
	t.Helper()
	all := map[string]string{}
	files, err := filepath.Glob("testdata/*.ptx")
	if err != nil || len(files) == 0 {
		t.Fatal("no testdata", err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(f)] = string(b)
	}
	return all
}

// check parses a text, prints it by its statements, and compares the fields of each instruction
// with its text.
func check(t *testing.T, name, text string) *Module {
	t.Helper()
	m, err := Parse(text)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return nil
	}
	if got := m.String(); got != text {
		t.Errorf("%s: printed text differs at byte %d", name, differAt(got, text))
	}
	at := 0
	Walk(m.Nodes, func(n *Node) {
		if n.From < at {
			t.Fatalf("%s:%d: a statement starts before the one before it ends", name, m.Line(n.Pos))
		}
		at = n.Pos
		if n.Kind != Instruct {
			return
		}
		written, printed := tokens(text[n.Pos:n.End]), tokens(n.Instr.String())
		if written != printed {
			t.Errorf("%s:%d: the fields say %q; the text is %q", name, m.Line(n.Pos), printed, written)
		}
	})
	return m
}

func differAt(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

var comment = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|\s+`)

// tokens is a text without what does not count. An offset that is subtracted is one that is added
// with a minus.
func tokens(s string) string {
	s = comment.ReplaceAllString(s, "")
	return strings.ReplaceAll(s, "+-", "-")
}

func TestPrintsTheSameBytes(t *testing.T) {
	for name, text := range modules(t) {
		if m := check(t, name, text); m != nil && len(m.Nodes) < 4 {
			t.Errorf("%s: %d statements", name, len(m.Nodes))
		}
	}
}

func TestPrintsRealModules(t *testing.T) {
	unknown := map[string]int{}
	instructions, bytes := 0, 0
	for name, text := range corpus.Modules(t) {
		bytes += len(text)
		m := check(t, name, text)
		if m == nil {
			continue
		}
		Walk(m.Nodes, func(n *Node) {
			if n.Kind == Instruct {
				instructions++
				if class, _ := Effects(n.Instr); class == Unknown {
					unknown[n.Instr.Op]++
				}
			}
		})
	}
	t.Logf("%d bytes, %d instructions", bytes, instructions)
	if instructions == 0 || len(unknown) > 0 {
		t.Errorf("%d instructions, unknown opcodes %v", instructions, unknown)
	}
}

func TestInsertions(t *testing.T) {
	m, err := Parse(".version 8.0\n.entry k()\n{\n\tadd.s32 a, b, c; // why\n\tret;\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	body := m.Nodes[1].Block
	got := m.Insert([]Insertion{{m.Nodes[1].Func.ParamsEnd, ".param .u64 x"}, {body.Nodes[1].Pos, "nop; "}, {body.Close, "// end\n"}})
	want := ".version 8.0\n.entry k(.param .u64 x)\n{\n\tadd.s32 a, b, c; // why\n\tnop; ret;\n// end\n}\n"
	if got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestOperands(t *testing.T) {
	for _, c := range []struct {
		text  string
		kinds []OperandKind
	}{
		{"ld.global.v4.f32 {%f1,%f2,%f3,%f4}, [%rd1+-16];", []OperandKind{Vector, Address}},
		{"setp.lt.and.f32 p|q, %f1, 0f3F800000, !r;", []OperandKind{Pair, Name, Number, Name}},
		{"@!%p1 bra $L;", []OperandKind{Name}},
		{"call.uni (r0), f, (a, b);", []OperandKind{List, Name, List}},
		{"mov.u32 %r1, %tid.x;", []OperandKind{Name, Name}},
		{"mov.f64 %fd1, -1.5e-3;", []OperandKind{Name, Number}},
		{"or.b64 d, d, 32<<16;", []OperandKind{Name, Name, Raw}},
		{"tex.2d.v4.f32.f32 {a,b,c,d}, [t, {x,y}];", []OperandKind{Vector, Address}},
		{"mov.u64 %rd1, table + 8;", []OperandKind{Name, Name}},
		{"shfl.sync.up.b32 %r1|%p1, %r2, 1, 0, -1;", []OperandKind{Pair, Name, Number, Number, Number}},
		{"mov.b32 %r1, {%h1, _};", []OperandKind{Name, Vector}},
		{"frob.weird::mode.x9 %a, \"text;, }\", [x];", []OperandKind{Name, Raw, Address}},
		{"ret;", nil},
	} {
		m := check(t, c.text, c.text)
		if m == nil {
			continue
		}
		var kinds []OperandKind
		for _, o := range m.Nodes[0].Instr.Operands {
			kinds = append(kinds, o.Kind)
		}
		if fmt.Sprint(kinds) != fmt.Sprint(c.kinds) {
			t.Errorf("%s: kinds %v, want %v", c.text, kinds, c.kinds)
		}
	}
}

func TestAccesses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"ld.global.nc.L1::no_allocate.v4.f32 {a,b,c,d}, [p];", "global r [1] 16"},
		{"ld.v2.u16 {a,b}, [p];", "generic r [1] 4"},
		{"ld.shared::cluster.u32 a, [p];", "inside r [1] 4"},
		{"ld.param.u64 a, [p];", "inside r [1] 8"},
		{"st.release.sys.global.b128 [p], a;", "global w [0] 16"},
		{"atom.global.cas.b64 a, [p], b, c;", "global rw atomic [1] 8"},
		{"red.global.add.noftz.v2.bf16x2 [p], {a,b};", "global rw atomic [0] 8"},
		{"red.add.f64 [p], a;", "generic rw atomic [0] 8"},
		{"cp.async.cg.shared.global [s], [p], 16;", "inside w async [0] op2; global r async [1] op2"},
		{"cp.async.ca.shared.global.L2::cache_hint [s], [p], 8, n, policy;", "inside w async [0] op2; global r async [1] op3"},
		{"cp.async.cg.shared.global.L2::cache_hint [s], [p], 16, policy;", "inside w async [0] op2; global r async [1] op2"},
		{"cp.async.bulk.global.shared::cta.bulk_group [p], [s], n;", "global w async [0] op2; inside r async [1] op2"},
		{"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [p], [s], n;", "global rw atomic async [0] op2; inside r async [1] op2"},
		{"cp.async.bulk.prefetch.L2.global [p], n;", ""},
		{"cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [m, {x,y}], [s];", "global w async opaque tensor map"},
		{"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [s], [m, {x,y}], [b];", "global r async opaque tensor map"},
		{"suld.b.2d.b32.trap a, [s, {x,y}];", "global r opaque texture or surface"},
		{"wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {a}, [p], n;", ""},
		{"wmma.store.d.sync.aligned.row.m16n16k16.f32 [p], {a}, n;", "generic w opaque matrix with a stride"},
		{"frob.global.u32 a, [p];", "global rw opaque unknown instruction frob"},
		{"frob.u32 a, [p];", "generic rw opaque unknown instruction frob"},
		{"frob.shared.u32 a, [p];", ""},
		{"frob.u32 a, b;", ""},
		{"prefetch.global.L2 [p];", ""},
	} {
		m, err := Parse(c.text)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		_, accesses := Effects(m.Nodes[0].Instr)
		for _, a := range accesses {
			all = append(all, describe(a))
		}
		if got := strings.Join(all, "; "); got != c.want {
			t.Errorf("%s: %q, want %q", c.text, got, c.want)
		}
	}
}

func describe(a Access) string {
	s := [...]string{"inside", "global", "generic"}[a.Space] + " "
	if a.Read {
		s += "r"
	}
	if a.Write {
		s += "w"
	}
	if a.Atomic {
		s += " atomic"
	}
	if a.Async {
		s += " async"
	}
	switch {
	case a.Opaque != "":
		return s + " opaque " + a.Opaque
	case a.Size >= 0:
		return fmt.Sprintf("%s [%d] op%d", s, a.Operand, a.Size)
	}
	return fmt.Sprintf("%s [%d] %d", s, a.Operand, a.Bytes)
}

func TestErrorsSayWhere(t *testing.T) {
	for text, want := range map[string]string{
		".version 8.0\n.entry k() {\n  ret;\n":    "line 4: expected } to end the block; found the end of the text",
		"\nadd.s32 a, b, c":                       `line 2: expected ';' after the operands; found the end of the text`,
		"/* never ends":                           "line 1: expected */ to end the comment; found the end of the text",
		".entry k(int x) { }":                     `line 1: expected a parameter; found "int x) { }"`,
		"{ ) }":                                   `line 1: expected a statement; found ") }"`,
		strings.Repeat("{", mostNested+5):         "line 1: expected at most 200 nested blocks; found more",
		"add a, " + strings.Repeat("[", 300):      "line 1: expected at most 200 nested operands; found more",
		".global .u32 x[3;":                       `line 1: expected ']'; found ";"`,
		".visible .entry k() ? { ret; }":          `line 1: expected { or ; after the header of function k; found "? { ret; }"`,
		"mov.u32 a, b\n}\n":                       `line 1: expected ';' after the operands; found the end of the text`,
		".section .debug {\n.b8 1\n":              `line 1: expected '}' to close '{'; found the end of the text`,
		"@ add.s32 a, b, c;":                      ``,
		"@, add.s32 a, b, c;":                     `line 1: expected a predicate after @; found ", add.s32 a, b, c;"`,
		".file 1 \"abc":                           `line 1: expected " to end the string; found the end of the text`,
		".func (.reg .u32 r) (.reg .u32 a) { }":   `line 1: expected the name of a function; found "(.reg .u32 a) { }"`,
		".reg .b32 %r<5;":                         `line 1: expected '>'; found ";"`,
		".global .u32 = 5;":                       `line 1: expected a name; found "= 5;"`,
		"add.s32 , b;":                            `line 1: expected an operand; found ", b;"`,
		".visible .entry k(.param .u32 a) ret; }": "",
	} {
		_, err := Parse(text)
		if want == "" {
			continue
		}
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// Texts with bytes that are missing, doubled or wrong are errors, or print as they are.
func TestMutations(t *testing.T) {
	parsed := 0
	for name, text := range modules(t) {
		r := rand.New(rand.NewPCG(5, uint64(len(text))))
		for n := range 300 {
			changed := corpus.Mutate(r, text)
			m, err := Parse(changed)
			if err != nil {
				continue
			}
			parsed++
			if got := m.String(); got != changed {
				t.Fatalf("%s, mutation %d: printed text differs at byte %d", name, n, differAt(got, changed))
			}
			Walk(m.Nodes, func(n *Node) {
				switch {
				case n.Kind == Instruct:
					Effects(n.Instr)
				case n.Kind == Define && n.Block != nil:
					Flow(n, true)
				}
			})
		}
	}
	if parsed < 100 {
		t.Errorf("%d mutations parsed", parsed)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range modules(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse(text)
		if err != nil {
			return
		}
		if got := m.String(); got != text {
			t.Fatalf("printed text differs at byte %d", differAt(got, text))
		}
		Walk(m.Nodes, func(n *Node) {
			switch {
			case n.Kind == Instruct:
				Effects(n.Instr)
			case n.Kind == Define && n.Block != nil:
				Flow(n, true)
			}
		})
	})
}

func BenchmarkParse(b *testing.B) {
	var all strings.Builder
	for all.Len() < 4<<20 {
		for _, text := range modules(b) {
			all.WriteString(text)
		}
	}
	text := all.String()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	before := cpuSeconds(b)
	for b.Loop() {
		if _, err := Parse(text); err != nil {
			b.Fatal(err)
		}
	}
	// Other processes take the cores away as they like; of the time that is left the collector of
	// garbage has its part.
	b.ReportMetric(float64(b.N*len(text))/1e6/(cpuSeconds(b)-before), "MB/cpu-s")
}

// cpuSeconds is the CPU time of this process.
func cpuSeconds(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
