package plan

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// writeLP writes the integer program of §III-B in CPLEX's LP format, which CBC and HiGHS read. x_k_g is 1
// if item k is on GPU g. An arc between GPUs u and v is y_a_u_v, in the transport form: its sums over v
// and over u are the x of its two ends. Loads are in units of seconds.
func writeLP(in *instance, unit float64) []byte {
	var b bytes.Buffer
	n := in.gpus
	fmt.Fprintln(&b, "Minimize\n obj: w\nSubject To")
	terms := make([][]string, in.resources())
	add := func(loads []float64, name string) {
		for r, x := range loads {
			if x != 0 {
				terms[r] = append(terms[r], fmt.Sprintf("%+.17g %s", x/unit, name))
			}
		}
	}
	one := make([]float64, in.resources())
	for i := range in.items {
		for g := range n {
			clear(one)
			in.addTime(one, i, g, 1)
			add(one, fmt.Sprintf("x_%d_%d", i, g))
		}
	}
	for a := range in.arcs {
		for u := range n {
			for v := range n {
				clear(one)
				in.addArc(one, &in.arcs[a], u, v, 1)
				add(one, fmt.Sprintf("y_%d_%d_%d", a, u, v))
			}
		}
	}
	for r, t := range terms {
		fmt.Fprintf(&b, " load%d: w", r)
		for _, x := range t {
			sign := "-"
			if x[0] == '-' {
				sign = "+"
			}
			fmt.Fprintf(&b, " %s %s\n", sign, x[1:])
		}
		fmt.Fprintln(&b, " >= 0")
	}
	for i := range in.items {
		for g := range n {
			fmt.Fprintf(&b, " + x_%d_%d", i, g)
		}
		fmt.Fprintln(&b, " = 1")
	}
	for a := range in.arcs {
		for u := range n {
			for v := range n {
				fmt.Fprintf(&b, " + y_%d_%d_%d", a, u, v)
			}
			fmt.Fprintf(&b, " - x_%d_%d = 0\n", in.arcs[a].from, u)
			for v := range n {
				fmt.Fprintf(&b, " + y_%d_%d_%d", a, v, u)
			}
			fmt.Fprintf(&b, " - x_%d_%d = 0\n", in.arcs[a].to, u)
		}
	}
	for g, gpu := range in.p.GPUs {
		if !in.limited || gpu.Memory == 0 {
			continue
		}
		for i := range in.items {
			for _, buffer := range in.buffers[i] {
				fmt.Fprintf(&b, " h_%d_%d - x_%d_%d >= 0\n", buffer, g, i, g)
			}
		}
		for buffer, size := range in.p.Buffers {
			fmt.Fprintf(&b, " + %d h_%d_%d", size, buffer, g)
		}
		fmt.Fprintf(&b, " <= %d\n", gpu.Memory)
	}
	fmt.Fprintln(&b, "Binaries")
	for i := range in.items {
		for g := range n {
			fmt.Fprintf(&b, " x_%d_%d", i, g)
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprintln(&b, "End")
	return b.Bytes()
}

// solved is what an external solver says: its best objective, and a bound.
type solved struct {
	value, bound float64
	took         time.Duration // of the process' CPU
}

var (
	cbcValue = regexp.MustCompile(`(?m)^Objective value: +(\S+)`)
	cbcBound = regexp.MustCompile(`(?m)^Lower bound: +(\S+)`)
)

// cbc solves the integer program of an instance by CBC, and skips the test where CBC is not installed.
// Loads are in units of seconds; it stops after a time, and at a gap.
func cbc(t testing.TB, in *instance, unit float64, limit time.Duration, gap float64) solved {
	t.Helper()
	path, err := exec.LookPath("cbc")
	if err != nil {
		t.Skip("cbc is not installed (Debian: coinor-cbc): no other solver to compare with")
	}
	file := filepath.Join(t.TempDir(), "plan.lp")
	if err := os.WriteFile(file, writeLP(in, unit), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(path, file, "-ratio", fmt.Sprint(gap), "-sec", fmt.Sprint(limit.Seconds()), "-solve")
	text, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("cbc: %v\n%s", err, text)
	}
	number := func(of *regexp.Regexp) float64 {
		m := of.FindSubmatch(text)
		if m == nil {
			return math.NaN()
		}
		x, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		return x * unit
	}
	s := solved{number(cbcValue), number(cbcBound), c.ProcessState.UserTime() + c.ProcessState.SystemTime()}
	if math.IsNaN(s.bound) { // it writes a bound only if that is not the value
		s.bound = s.value
	}
	return s
}

// CBC's optimum of the paper's integer program is what all plans say, so that the program is the one
// that the paper states, also with memory.
func TestProgramIsThePapers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a solver 60 times")
	}
	problems := rapid.Custom(small)
	for seed := range 60 {
		p := problems.Example(seed)
		o := []Objective{Throughput, Latency}[seed%2]
		least := math.Inf(1)
		every(p, func(at []int) {
			if slowFits(p, at) {
				least = min(least, slowSeconds(p, o, at))
			}
		})
		if math.IsInf(least, 1) {
			continue
		}
		got := cbc(t, compile(p, o, identity(len(p.Kernels)), len(p.Kernels)), 1, time.Minute, 0)
		if math.Abs(got.value-least) > 1e-6*(1+least) {
			t.Errorf("problem %d, %s: cbc %g, all plans %g", seed, o, got.value, least)
		}
	}
}

// On graphs of more kernels than all plans can be tried of, our bound is at most CBC's optimum, our plan is at
// least CBC's bound, and no more than 1 % worse than its plan.
func TestAgainstSolver(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a solver for up to half a minute in all")
	}
	for _, c := range []struct {
		kernels, gpus int
		objective     Objective
	}{{60, 2, Throughput}, {200, 2, Latency}, {40, 3, Throughput}, {200, 3, Latency}, {200, 4, Latency}} {
		p := layers(c.kernels, c.gpus, 1, 256)
		got, err := Best(p, c.objective, Options{})
		if err != nil {
			t.Fatal(err)
		}
		theirs := cbc(t, compile(p, c.objective, identity(c.kernels), c.kernels), got.Seconds/1000, 5*time.Second, 1e-6)
		if got.Bound > theirs.value*(1+1e-5) || got.Seconds < theirs.bound*(1-1e-5) {
			t.Errorf("%d kernels, %d GPUs, %s: bound %g and plan %g, cbc's bound %g and plan %g", c.kernels, c.gpus, c.objective, got.Bound, got.Seconds, theirs.bound, theirs.value)
		}
		if got.Seconds > theirs.value*1.01 {
			t.Errorf("%d kernels, %d GPUs, %s: plan %g, cbc finds %g", c.kernels, c.gpus, c.objective, got.Seconds, theirs.value)
		}
	}
}

var solverSeconds = flag.Int("solver-seconds", 0, "print the table of docs/disagg.md, for which CBC gets this many seconds a problem")

// TestSolverTable prints how the planner compares with CBC.
func TestSolverTable(t *testing.T) {
	if *solverSeconds == 0 {
		t.Skip("prints a table with -solver-seconds")
	}
	fmt.Println("| kernels, GPUs | objective | Muster | time | certified gap | CBC | time | its own gap | Muster over CBC |\n|---|---|---|---|---|---|---|---|---|")
	for _, c := range []struct {
		kernels, gpus int
		objective     Objective
	}{{500, 2, Latency}, {500, 4, Latency}, {200, 2, Throughput}, {500, 2, Throughput}, {1000, 2, Throughput}, {500, 3, Throughput}, {500, 4, Throughput}} {
		p := layers(c.kernels, c.gpus, 1, 256)
		var got *Plan
		took := least(func() (err error) { got, err = Best(p, c.objective, Options{}); return err })
		theirs := cbc(t, compile(p, c.objective, identity(c.kernels), c.kernels), 1e-6, time.Duration(*solverSeconds)*time.Second, 1e-4)
		fmt.Printf("| %d, %d | %s | %.2f us | %.1f ms | %.3f %% | %.2f us | %.1f s | %.2f %% | %+.2f %% |\n", c.kernels, c.gpus, c.objective, got.Seconds*1e6, float64(took)/1e6, 100*got.Gap(), theirs.value*1e6, theirs.took.Seconds(), 100*(theirs.value/theirs.bound-1), 100*(got.Seconds/theirs.value-1))
	}
}

// least is the CPU time of the fastest of five runs.
func least(f func() error) time.Duration {
	best := time.Duration(math.MaxInt64)
	for range 5 {
		begin := processCPU()
		if err := f(); err != nil {
			panic(err)
		}
		best = min(best, processCPU()-begin)
	}
	return best
}

// processCPU is the CPU time that this process has used, which other processes do not change.
func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
