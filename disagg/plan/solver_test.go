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
	"strings"
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

// solver is an external solver of integer programs: the command that solves a file within a time, up to a gap, and what it prints.
type solver struct {
	name         string
	missing      string // why it is not there; empty if it is
	command      func(dir, file string, limit time.Duration, gap float64) *exec.Cmd
	value, bound *regexp.Regexp
}

// solvers are CBC, if it is installed, and HiGHS, if the variable HIGHS has the command that runs it. No package of Debian 12 has HiGHS;
// testdata/highs.cjs runs that of npm.
func solvers() []solver {
	cbc := solver{
		name: "CBC",
		command: func(_, file string, limit time.Duration, gap float64) *exec.Cmd {
			return exec.Command("cbc", file, "-ratio", fmt.Sprint(gap), "-sec", fmt.Sprint(limit.Seconds()), "-solve")
		},
		value: regexp.MustCompile(`(?m)^Objective value: +(\S+)`),
		bound: regexp.MustCompile(`(?m)^Lower bound: +(\S+)`),
	}
	if _, err := exec.LookPath("cbc"); err != nil {
		cbc.missing = "cbc is not installed (Debian: coinor-cbc): no such solver to compare with"
	}
	words := strings.Fields(os.Getenv("HIGHS"))
	highs := solver{
		name: "HiGHS",
		command: func(dir, file string, limit time.Duration, gap float64) *exec.Cmd {
			options := filepath.Join(dir, "options")
			text := fmt.Sprintf("time_limit = %g\nmip_rel_gap = %g\n", limit.Seconds(), gap)
			if err := os.WriteFile(options, []byte(text), 0o600); err != nil {
				panic(err)
			}
			return exec.Command(words[0], append(words[1:], "--options_file", options, file)...)
		},
		value: regexp.MustCompile(`(?m)^ *Primal bound +(\S+)`),
		bound: regexp.MustCompile(`(?m)^ *Dual bound +(\S+)`),
	}
	if len(words) == 0 {
		highs.missing = "HIGHS is not set (such as to highs, or node testdata/highs.cjs): no such solver to compare with"
	}
	return []solver{cbc, highs}
}

// solve solves the integer program of an instance, and skips the test where the solver is missing.
// Loads are in units of seconds; it stops after a time, and at a gap.
func (s *solver) solve(t testing.TB, in *instance, unit float64, limit time.Duration, gap float64) solved {
	t.Helper()
	if s.missing != "" {
		t.Skip(s.missing)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "plan.lp")
	if err := os.WriteFile(file, writeLP(in, unit), 0o600); err != nil {
		t.Fatal(err)
	}
	c := s.command(dir, file, limit, gap)
	text, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", s.name, err, text)
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
	if s.value.Find(text) == nil {
		t.Fatalf("%s says no value:\n%s", s.name, text)
	}
	found := solved{number(s.value), number(s.bound), c.ProcessState.UserTime() + c.ProcessState.SystemTime()}
	if math.IsNaN(found.bound) { // CBC writes a bound only if that is not the value
		found.bound = found.value
	}
	return found
}

// eachSolver runs a test with each solver.
func eachSolver(t *testing.T, test func(t *testing.T, s *solver)) {
	for _, s := range solvers() {
		t.Run(s.name, func(t *testing.T) { test(t, &s) })
	}
}

// A solver's optimum of the paper's integer program is what all plans say, so that the program is the one
// that the paper states, also with memory.
func TestProgramIsThePapers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts each solver 60 times")
	}
	eachSolver(t, programIsThePapers)
}

func programIsThePapers(t *testing.T, s *solver) {
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
		got := s.solve(t, compile(p, o, identity(len(p.Kernels)), len(p.Kernels)), 1, time.Minute, 0)
		if math.Abs(got.value-least) > 1e-6*(1+least) {
			t.Errorf("problem %d, %s: %s %g, all plans %g", seed, o, s.name, got.value, least)
		}
	}
}

// On graphs of more kernels than all plans can be tried of, our bound is at most the solver's optimum, our plan is at
// least its bound, and no more than 1 % worse than its plan.
func TestAgainstSolver(t *testing.T) {
	if testing.Short() {
		t.Skip("runs each solver for up to half a minute in all")
	}
	eachSolver(t, againstSolver)
}

func againstSolver(t *testing.T, s *solver) {
	for _, c := range []struct {
		kernels, gpus int
		objective     Objective
	}{{60, 2, Throughput}, {200, 2, Latency}, {40, 3, Throughput}, {200, 3, Latency}, {200, 4, Latency}} {
		p := layers(c.kernels, c.gpus, 1, 256)
		got, err := Best(p, c.objective, Options{})
		if err != nil {
			t.Fatal(err)
		}
		theirs := s.solve(t, compile(p, c.objective, identity(c.kernels), c.kernels), got.Seconds/1000, 5*time.Second, 1e-6)
		if got.Bound > theirs.value*(1+1e-5) || got.Seconds < theirs.bound*(1-1e-5) {
			t.Errorf("%d kernels, %d GPUs, %s: bound %g and plan %g, %s's bound %g and plan %g", c.kernels, c.gpus, c.objective, got.Bound, got.Seconds, s.name, theirs.bound, theirs.value)
		}
		if got.Seconds > theirs.value*1.01 {
			t.Errorf("%d kernels, %d GPUs, %s: plan %g, %s finds %g", c.kernels, c.gpus, c.objective, got.Seconds, s.name, theirs.value)
		}
	}
}

var solverSeconds = flag.Int("solver-seconds", 0, "print the table of docs/disagg.md, for which each solver gets this many seconds a problem")

// TestSolverTable prints how the planner compares with the solvers: of each its CPU time, its gap, and how much longer our plan takes than its best.
func TestSolverTable(t *testing.T) {
	if *solverSeconds == 0 {
		t.Skip("prints a table with -solver-seconds")
	}
	var all []solver
	head, line := "| kernels, GPUs | objective | our plan | time | certified gap |", "|---|---|---|---|---|"
	for _, s := range solvers() {
		if s.missing != "" {
			t.Log(s.missing)
			continue
		}
		all = append(all, s)
		head, line = head+fmt.Sprintf(" %s's time | its gap | our plan to its |", s.name), line+"---|---|---|"
	}
	fmt.Printf("%s\n%s\n", head, line)
	for _, c := range []struct {
		kernels, gpus int
		objective     Objective
	}{{500, 2, Latency}, {500, 4, Latency}, {200, 2, Throughput}, {500, 2, Throughput}, {1000, 2, Throughput}, {500, 3, Throughput}, {500, 4, Throughput}} {
		p := layers(c.kernels, c.gpus, 1, 256)
		var got *Plan
		took := least(func() (err error) { got, err = Best(p, c.objective, Options{}); return err })
		fmt.Printf("| %d, %d | %s | %.2f us | %.1f ms | %.3f %% |", c.kernels, c.gpus, c.objective, got.Seconds*1e6, float64(took)/1e6, 100*got.Gap())
		for _, s := range all {
			theirs := s.solve(t, compile(p, c.objective, identity(c.kernels), c.kernels), 1e-6, time.Duration(*solverSeconds)*time.Second, 1e-4)
			fmt.Printf(" %.1f s | %.2f %% | %+.2f %% |", theirs.took.Seconds(), 100*(theirs.value/theirs.bound-1), 100*(got.Seconds/theirs.value-1))
		}
		fmt.Println()
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
