package instrument

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-sched/muster/disagg/ptx"
	"github.com/muster-sched/muster/disagg/ptx/corpus"
	"github.com/muster-sched/muster/disagg/ptx/interp"
	"github.com/muster-sched/muster/disagg/ptx/ptxtest"
)

const (
	probeAt  = 0x50_0000_0000
	readsAt  = 0x51_0000_0000
	writesAt = 0x52_0000_0000
	windowAt = 0x10_0000_0000 // of the cases' buffers
)

// observed is what the interpreter itself observes: intervals by instruction, and bytes.
type observed struct {
	of            map[*ptx.Instruction]Interval
	reads, writes map[uint64]bool
}

func observe(t *testing.T, c *ptxtest.Case) (*ptx.Module, *interp.Memory, *observed) {
	t.Helper()
	m, err := c.Module("../ptx/testdata")
	if err != nil {
		t.Fatal(err)
	}
	memory, err := c.Memory()
	if err != nil {
		t.Fatal(err)
	}
	p, err := interp.Load(m, memory)
	if err != nil {
		t.Fatal(err)
	}
	o := &observed{map[*ptx.Instruction]Interval{}, map[uint64]bool{}, map[uint64]bool{}}
	_, err = p.Run(c.Launch, func(i *ptx.Instruction, address uint64, n int, read, write bool) {
		v, ok := o.of[i]
		if !ok {
			v.From = address
		}
		o.of[i] = Interval{min(v.From, address), max(v.To, address+uint64(n))}
		for k := range uint64(n) {
			if read {
				o.reads[address+k] = true
			}
			if write {
				o.writes[address+k] = true
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return m, memory, o
}

// The instrumented kernels leave the memory that the original ones leave, and record the intervals
// and the bytes that the interpreter observes in the original ones.
func TestInstrumentedKernels(t *testing.T) {
	if exact := checkCases(t, ptxtest.Cases()); exact < 12 {
		t.Errorf("%d kernels compared, want at least 12", exact)
	}
}

// The same with what a compiler makes of C++: -O0 keeps variables in local memory and calls, and
// -O2 unrolls loops.
func TestCompiledKernels(t *testing.T) {
	clang := ""
	for _, name := range []string{"clang++-19", "clang++-20", "clang++"} {
		if path, err := exec.LookPath(name); err == nil && clang == "" {
			clang = path
		}
	}
	if clang == "" {
		t.Skip("no clang++ on this machine: install clang-19 to compile testdata/kernels.cu")
	}
	for _, level := range []string{"-O0", "-O2"} {
		out := filepath.Join(t.TempDir(), "kernels.ptx")
		c := exec.Command(clang, "-x", "cuda", "-nocudainc", "-nocudalib", "--cuda-device-only", "-S", level, "--cuda-gpu-arch=sm_80", "-ffp-contract=off", "testdata/kernels.cu", "-o", out)
		if message, err := c.CombinedOutput(); err != nil {
			t.Skipf("clang++ cannot compile CUDA here: %v\n%s", err, message)
		}
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if n := checkCases(t, ptxtest.Compiled(string(text))); n != 5 {
			t.Errorf("%s: %d kernels compared", level, n)
		}
	}
}

// checkCases returns how many kernels were compared to the byte.
func checkCases(t *testing.T, cases []ptxtest.Case) (exact int) {
	t.Helper()
	for _, c := range cases {
		for _, granule := range []int{0, 1, 4, 512} {
			m, original, want := observe(t, &c)
			r, err := Rewrite(m, Options{Granule: granule})
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			rewritten, err := ptx.Parse(r.Text)
			if err != nil {
				t.Fatalf("%s: %v\n%s", c.Name, err, r.Text)
			}
			memory, err := c.Memory()
			if err != nil {
				t.Fatal(err)
			}
			const window = 1 << 20
			probe := &interp.Buffer{Name: "probe", Address: probeAt, Data: r.Probe(windowAt, window, readsAt, writesAt)}
			size := 4
			if granule > 0 {
				size = window / granule / 8
			}
			reads := &interp.Buffer{Name: "reads", Address: readsAt, Data: make([]byte, size)}
			writes := &interp.Buffer{Name: "writes", Address: writesAt, Data: make([]byte, size)}
			for _, b := range []*interp.Buffer{probe, reads, writes} {
				if err := memory.Add(b); err != nil {
					t.Fatal(err)
				}
			}
			p, err := interp.Load(rewritten, memory)
			if err != nil {
				t.Fatal(err)
			}
			l := c.Launch
			l.Args = append(append([][]byte(nil), l.Args...), ptxtest.Args(probe)...)
			if _, err := p.Run(l, nil); err != nil {
				t.Fatalf("%s: %v\n%s", c.Name, err, r.Text)
			}
			if err := c.Check(memory); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
			for _, b := range original.Buffers {
				if got := memory.Find(b.Address); got == nil || !bytes.Equal(got.Data, b.Data) {
					t.Errorf("%s, granule %d: buffer %s differs from the original's", c.Name, granule, b.Name)
				}
			}
			if c.Untraced {
				continue
			}
			compare(t, c.Name, r, probe.Data, want)
			if granule > 0 {
				compareBits(t, c.Name, granule, reads.Data, want.reads)
				compareBits(t, c.Name, granule, writes.Data, want.writes)
			}
			if granule == 1 {
				exact++
			}
		}
	}
	return exact
}

func compare(t *testing.T, name string, r *Result, probe []byte, want *observed) {
	t.Helper()
	intervals, err := r.Intervals(probe)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[*ptx.Instruction]bool{}
	for k, s := range r.Sites {
		if intervals[k] != want.of[s.Instruction] {
			t.Errorf("%s: line %d, %s: recorded %#x, observed %#x", name, s.Line, s.Op, intervals[k], want.of[s.Instruction])
		}
		seen[s.Instruction] = true
	}
	for i := range want.of {
		if !seen[i] {
			t.Errorf("%s: no site for %s", name, i)
		}
	}
}

func compareBits(t *testing.T, name string, granule int, bitmap []byte, want map[uint64]bool) {
	t.Helper()
	set := map[uint64]bool{}
	for a := range want {
		if a >= windowAt { // the variables of modules are below
			set[(a-windowAt)/uint64(granule)] = true
		}
	}
	for g := range uint64(len(bitmap) * 8) {
		if got := bitmap[g/8]>>(g%8)&1 == 1; got != set[g] {
			t.Errorf("%s, granule %d: bit %d is %v, want %v", name, granule, g, got, set[g])
			return
		}
	}
}

// Modules that compilers wrote can be instrumented, and what comes out be read and loaded.
func TestRealModules(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than ten seconds")
	}
	sites, limits := 0, 0
	for name, text := range corpus.Modules(t) {
		m, err := ptx.Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r, err := Rewrite(m, Options{Granule: 4})
		if err != nil {
			if strings.Contains(text, ".address_size 64") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		sites, limits = sites+len(r.Sites), limits+len(r.Limits)
		if m, err = ptx.Parse(r.Text); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if _, err := interp.Load(m, &interp.Memory{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Logf("%d sites, %d limits", sites, limits)
	if sites == 0 {
		t.Error("no sites")
	}
}

// NVIDIA's assembler, where it is installed (Debian's package nvidia-cuda-toolkit 12.4 has it), accepts the modules of the tests, and
// what comes out.
func TestAssembles(t *testing.T) {
	ptxas, err := exec.LookPath("ptxas")
	if err != nil {
		t.Skip("there is no ptxas")
	}
	files, err := filepath.Glob("../ptx/testdata/*.ptx")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	file := filepath.Join(t.TempDir(), "module.ptx")
	assemble := func(name, text string) {
		_, target, _ := strings.Cut(text, ".target ")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(ptxas, "-arch="+strings.Fields(target)[0], "-o", os.DevNull, file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, []byte(".address_size 64")) {
			continue
		}
		assemble(name, string(text))
		for _, granule := range []int{0, 1, 512} {
			m, err := ptx.Parse(string(text))
			if err != nil {
				t.Fatal(err)
			}
			r, err := Rewrite(m, Options{Granule: granule})
			if err != nil {
				t.Fatal(err)
			}
			assemble(name+", instrumented", r.Text)
		}
	}
}

// Modules that are not quite right are refused, by a fault of the kernel or before, or run. What is
// instrumented is read again.
func TestMutations(t *testing.T) {
	ran, rewritten := 0, 0
	for _, c := range ptxtest.Cases() {
		text, err := os.ReadFile("../ptx/testdata/" + c.File)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(7, uint64(len(text))))
		for range 40 {
			m, err := ptx.Parse(corpus.Mutate(r, string(text)))
			if err != nil {
				continue
			}
			if out, err := Rewrite(m, Options{Granule: 4}); err == nil {
				rewritten++
				if _, err := ptx.Parse(out.Text); err != nil {
					t.Fatalf("%s: %v in\n%s", c.Name, err, out.Text)
				}
			}
			memory, err := c.Memory()
			if err != nil {
				t.Fatal(err)
			}
			p, err := interp.Load(m, memory)
			if err != nil {
				continue
			}
			l := c.Launch
			l.Steps = 1e6
			if _, err := p.Run(l, nil); err == nil {
				ran++
			}
		}
	}
	if ran < 50 || rewritten < 50 {
		t.Errorf("%d ran, %d were rewritten", ran, rewritten)
	}
}

func TestLimits(t *testing.T) {
	text, err := os.ReadFile("../ptx/testdata/hopper.ptx")
	if err != nil {
		t.Fatal(err)
	}
	m, err := ptx.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Rewrite(m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Limits) != 1 || !strings.HasSuffix(r.Limits[0].Why, ": tensor map") || r.Limits[0].Function != "tiles" {
		t.Errorf("limits %+v", r.Limits)
	}
	for text, want := range map[string]string{
		".version 1.4\n.target sm_10\n": "a module with .address_size 64",
	} {
		m, err := ptx.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Rewrite(m, Options{}); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if _, err := Rewrite(m, Options{Granule: 3}); err == nil {
		t.Error("a granule of 3 bytes")
	}
}

// New names do not clash with those of the module.
func TestNames(t *testing.T) {
	m, err := ptx.Parse(".version 8.0\n.target sm_80\n.address_size 64\n.entry muster_k\n{\n.reg .b64 %muster1_a;\nst.global.u32 [%muster1_a], 1;\nret;\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Rewrite(m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.Text, ".entry muster_k(.param .u64 muster2_probe)") {
		t.Error(r.Text)
	}
}
