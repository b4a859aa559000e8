package plan

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// small draws a problem that a search over all plans can solve.
func small(t *rapid.T) *Problem {
	gpus := rapid.IntRange(2, 3).Draw(t, "gpus")
	kernels := rapid.IntRange(1, 8-gpus).Draw(t, "kernels")
	p := &Problem{Shared: rapid.Bool().Draw(t, "shared")}
	tenths := rapid.IntRange(0, 50)
	for g := range gpus {
		p.GPUs = append(p.GPUs, GPU{Name: fmt.Sprint("g", g), Memory: int64(rapid.IntRange(0, 12).Draw(t, "memory"))})
		var row []Link
		for range gpus {
			row = append(row, Link{BytesPerSecond: float64(rapid.IntRange(1, 40).Draw(t, "bw")), Latency: float64(tenths.Draw(t, "latency")) / 100})
		}
		p.Links = append(p.Links, row)
	}
	for range rapid.IntRange(0, 3).Draw(t, "buffers") {
		p.Buffers = append(p.Buffers, int64(rapid.IntRange(1, 8).Draw(t, "bytes")))
	}
	for k := range kernels {
		kernel := Kernel{Name: fmt.Sprint("k", k), Runs: float64(rapid.IntRange(1, 3).Draw(t, "runs"))}
		kernel.Phase = rapid.SampledFrom([]string{"prefill", "decode"}).Draw(t, "phase")
		kernel.Kind = rapid.SampledFrom([]string{"attention", "ffn", ""}).Draw(t, "kind")
		kernel.Alike = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "alike")
		for range gpus {
			kernel.Seconds = append(kernel.Seconds, float64(tenths.Draw(t, "time"))/10)
		}
		for b := range p.Buffers {
			if rapid.Bool().Draw(t, "reads") {
				kernel.Buffers = append(kernel.Buffers, b)
			}
		}
		p.Kernels = append(p.Kernels, kernel)
	}
	for range rapid.IntRange(0, 2*kernels).Draw(t, "edges") {
		k := rapid.IntRange(0, kernels-1)
		p.Edges = append(p.Edges, Edge{From: k.Draw(t, "from"), To: k.Draw(t, "to"), Bytes: float64(tenths.Draw(t, "size")), Runs: 1, Next: rapid.Bool().Draw(t, "next")})
	}
	return p
}

// slowSeconds is the objective of a plan straight from the formulas of §III-B.
func slowSeconds(p *Problem, o Objective, at []int) float64 {
	compute, transfer := make([]float64, len(p.GPUs)), make([]float64, len(p.GPUs))
	total := 0.0
	for k, g := range at {
		compute[g] += p.Kernels[k].Seconds[g] * p.Kernels[k].Runs
		total += p.Kernels[k].Seconds[g] * p.Kernels[k].Runs
	}
	for _, e := range p.Edges {
		u, g := at[e.From], at[e.To]
		if u == g {
			continue
		}
		c := e.Runs * (p.Links[u][g].Latency + e.Bytes/p.Links[u][g].BytesPerSecond)
		transfer[g] += c
		if p.Shared {
			transfer[u] += c
		}
		if !e.Next {
			total += c
		}
	}
	if o == Latency {
		return total
	}
	worst := 0.0
	for g := range compute {
		worst = max(worst, compute[g], transfer[g])
	}
	return worst
}

func slowFits(p *Problem, at []int) bool {
	for g, gpu := range p.GPUs {
		var held int64
		for b, bytes := range p.Buffers {
			for k := range at {
				if at[k] == g && has(p.Kernels[k].Buffers, b) {
					held += bytes
					break
				}
			}
		}
		if gpu.Memory > 0 && held > gpu.Memory {
			return false
		}
	}
	return true
}

func has(all []int, x int) bool {
	for _, y := range all {
		if y == x {
			return true
		}
	}
	return false
}

// every calls f with each plan.
func every(p *Problem, f func(at []int)) {
	at := make([]int, len(p.Kernels))
	for {
		f(at)
		k := 0
		for ; k < len(at); k++ {
			if at[k]++; at[k] < len(p.GPUs) {
				break
			}
			at[k] = 0
		}
		if k == len(at) {
			return
		}
	}
}

// The bound is below every plan that fits and below the replicas; the plan fits, is as good as it
// says, and no coarser shape is better. With two GPUs and memory enough, latency is exact.
func TestAgainstAllPlans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := small(t)
		o := rapid.SampledFrom([]Objective{Throughput, Latency}).Draw(t, "objective")
		least, free := math.Inf(1), math.Inf(1)
		every(p, func(at []int) {
			seconds := slowSeconds(p, o, at)
			free = min(free, seconds)
			if slowFits(p, at) {
				least = min(least, seconds)
			}
		})
		got, err := Best(p, o, Options{})
		if err != nil {
			if _, ok := err.(*NoRoom); !ok {
				t.Fatal(err)
			}
			if !math.IsInf(least, 1) && len(p.GPUs) == 2 && free == least {
				t.Fatalf("no plan, but the optimum without a memory limit fits: %v", err)
			}
			return
		}
		if got.Bound > least*(1+1e-9) || got.Bound > got.Seconds*(1+1e-9) {
			t.Fatalf("bound %g, optimum %g, plan %g", got.Bound, least, got.Seconds)
		}
		for _, c := range got.Others {
			if got.Seconds > c.Seconds*(1+1e-9) {
				t.Fatalf("%s takes %g, less than the best, %s, %g", c.Shape, c.Seconds, got.Shape, got.Seconds)
			}
			if c.At == nil {
				continue
			}
			if !slowFits(p, c.At) || math.Abs(slowSeconds(p, o, c.At)-c.Seconds) > 1e-9*(1+c.Seconds) {
				t.Fatalf("%s: plan %v is said to take %g, takes %g, fits %t", c.Shape, c.At, c.Seconds, slowSeconds(p, o, c.At), slowFits(p, c.At))
			}
		}
		if o == Latency && len(p.GPUs) == 2 && free == least && math.Abs(got.Seconds-least) > 1e-9*(1+least) {
			t.Fatalf("latency %g, optimum %g", got.Seconds, least)
		}
	})
}

// Of fixed small problems nearly all get the optimum, and a plan is found wherever one fits.
func TestSmallPlansAreOptimal(t *testing.T) {
	problems := rapid.Custom(small)
	feasible, optimal, tight := 0, 0, 0
	for seed := range 400 {
		p := problems.Example(seed)
		least, free := math.Inf(1), math.Inf(1)
		every(p, func(at []int) {
			seconds := slowSeconds(p, Throughput, at)
			free = min(free, seconds)
			if slowFits(p, at) {
				least = min(least, seconds)
			}
		})
		if math.IsInf(least, 1) {
			continue
		}
		feasible++
		if least > free {
			tight++
		}
		got, err := Best(p, Throughput, Options{})
		if err != nil {
			t.Errorf("problem %d: %v; a plan of %g fits", seed, err, least)
			continue
		}
		if slices.ContainsFunc(got.Others, func(c Candidate) bool { return c.At != nil && c.Seconds <= least*(1+1e-9) }) {
			optimal++
		}
	}
	if tight < 30 {
		t.Fatalf("in %d problems memory decides, want 30", tight)
	}
	if feasible-optimal > feasible/100 {
		t.Errorf("%d of %d plans are optimal, want 99 %%", optimal, feasible)
	}
}

// The bound that two GPUs get from cuts is what messages and the same master approach: the messages
// never exceed it, as both are below the optimum, and on a chain they are exact.
func TestMessagesAreExactOnChains(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := small(t)
		p.Edges = nil
		for k := 1; k < len(p.Kernels); k++ {
			p.Edges = append(p.Edges, Edge{From: k - 1, To: k, Bytes: float64(k), Runs: 1})
		}
		in := compile(p, Latency, identity(len(p.Kernels)), len(p.Kernels))
		in.limited = false
		r := newRelaxation(in)
		r.solve = newMessenger(in).solve
		at, bound := r.least([]float64{1}, 1)
		least := math.Inf(1)
		every(p, func(at []int) { least = min(least, slowSeconds(p, Latency, at)) })
		if math.Abs(bound-least) > 1e-6*(1+least) || math.Abs(slowSeconds(p, Latency, at)-least) > 1e-6*(1+least) {
			t.Fatalf("bound %g, plan %g, optimum %g", bound, slowSeconds(p, Latency, at), least)
		}
	})
}

// Under any weights of loads and bytes the relaxation of two GPUs is the least weighted sum over all plans, each of which holds a
// buffer once on each GPU that uses it. With three GPUs it is at most that.
func TestRelaxationHoldsBuffers(t *testing.T) {
	limited := 0
	rapid.Check(t, func(t *rapid.T) {
		p := small(t)
		in := compile(p, Throughput, identity(len(p.Kernels)), len(p.Kernels))
		r := newRelaxation(in)
		if !in.limited {
			return
		}
		limited++
		weights := make([]float64, in.resources()+in.gpus)
		for i := range weights {
			weights[i] = float64(rapid.IntRange(0, 10).Draw(t, "weight")) / 10 / float64(in.resources())
		}
		least := math.Inf(1)
		sum := func(at []int) (sum float64) {
			for i, x := range r.row(at, 1) {
				sum += weights[i] * x
			}
			return sum
		}
		every(p, func(at []int) { least = min(least, sum(at)) })
		at, bound := r.least(weights, 1)
		if bound > least+1e-9*(1+math.Abs(least)) || in.gpus == 2 && (bound < least-1e-6 || sum(at) > least+1e-6) {
			t.Fatalf("%d GPUs: bound %g, plan %g, all plans %g", in.gpus, bound, sum(at), least)
		}
	})
	if limited == 0 {
		t.Error("no problem had a limit")
	}
}

// Kernels that are alike are placed alike, if that is requested and the shape is kernels.
func TestAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := small(t)
		got, err := Best(p, Throughput, Options{Alike: true})
		if err != nil {
			return
		}
		for _, c := range got.Others {
			if c.Shape != PerPart {
				continue
			}
			gpu := map[string]int{}
			for k, g := range c.At {
				name := p.Kernels[k].Alike
				if was, ok := gpu[name]; ok && name != "" && was != g {
					t.Fatalf("kernels alike %q are on %d and %d", name, was, g)
				}
				gpu[name] = g
			}
		}
	})
}

// Two GPUs whose times have the same ratio for each kernel gain nothing from a split: replicas win,
// and the bound says that nothing can be better (a dominated pair).
func TestReplicasWinWhereRatiosAreEqual(t *testing.T) {
	p := layers(40, 2, 1, 256)
	for k := range p.Kernels {
		p.Kernels[k].Seconds[1] = 2 * p.Kernels[k].Seconds[0]
	}
	got, err := Best(p, Throughput, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Shape != Replicas || got.Gap() > 1e-4 {
		t.Errorf("the best is %s with a gap of %g, want replicas with none", got.Shape, got.Gap())
	}
}

// The bounds on graphs of the size of models are narrow.
func TestGaps(t *testing.T) {
	for _, c := range []struct {
		kernels, gpus int
		most          float64
	}{{200, 2, 0.003}, {500, 2, 0.002}, {1000, 2, 0.002}, {300, 3, 0.007}, {300, 4, 0.01}} {
		for seed := range uint64(2) {
			got, err := Best(layers(c.kernels, c.gpus, seed, 256), Throughput, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Gap() > c.most {
				t.Errorf("%d kernels, %d GPUs, seed %d: gap %.3f %%, want at most %.1f %%", c.kernels, c.gpus, seed, 100*got.Gap(), 100*c.most)
			}
		}
	}
}

// Two phases use the same weights, and all GPUs together hold them once and a fifth more. One phase is faster on the first GPU, the
// other on the second, so that the plans without a limit do not fit. A layer takes 3.5 s on the
// first, and 4 s on the others: 187 s for two and 128 s for three if each has layers in a row. What fits twice serves to take less.
func TestScarceMemory(t *testing.T) {
	const n = 100
	for _, c := range []struct {
		gpus  int
		first int64 // how many of the weights the first GPU holds; the others share 1.2 n less these
		most  float64
	}{{2, 60, 176}, {3, 40, 127}, {2, 50, 200}} {
		p := &Problem{}
		for g := range c.gpus {
			memory := 1000 * c.first
			if g > 0 {
				memory = 1000 * (n*6/5 - c.first) / int64(c.gpus-1)
			}
			p.GPUs = append(p.GPUs, GPU{Name: fmt.Sprint(g), Memory: memory})
			p.Links = append(p.Links, slices.Repeat([]Link{{BytesPerSecond: 1e9}}, c.gpus))
		}
		for k := range 2 * n {
			kernel := Kernel{Name: fmt.Sprint(k), Phase: fmt.Sprint(k / n), Runs: 1, Buffers: []int{k % n}, Seconds: []float64{1, 3, 2}[:c.gpus]}
			if k < n {
				kernel.Seconds = []float64{2.5, 1, 2}[:c.gpus]
				p.Buffers = append(p.Buffers, 1000)
			}
			p.Kernels = append(p.Kernels, kernel)
			if k%n > 0 {
				p.Edges = append(p.Edges, Edge{From: k - 1, To: k, Bytes: 1e6, Runs: 1})
			}
		}
		got, err := Best(p, Throughput, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got.Seconds > c.most {
			t.Errorf("%d GPUs: %s takes %.1f s; want at most %.1f", c.gpus, got.Shape, got.Seconds, c.most)
		}
	}
}

// Of ten kernels in a row, of a second each on a, the sixth is faster on b: by less than a
// thousandth of the whole, which two transfers are not worth, or by more.
func TestQuieter(t *testing.T) {
	for saved, want := range map[float64]int{0.009: 0, 0.011: 2} {
		p := &Problem{GPUs: []GPU{{Name: "a"}, {Name: "b"}}, Links: [][]Link{{{}, {BytesPerSecond: 1}}, {{BytesPerSecond: 1}, {}}}}
		for k := range 10 {
			seconds := []float64{1, 2}
			if k == 5 {
				seconds[1] = 1 - saved
			}
			p.Kernels = append(p.Kernels, Kernel{Runs: 1, Seconds: seconds})
			if k > 0 {
				p.Edges = append(p.Edges, Edge{From: k - 1, To: k, Runs: 1})
			}
		}
		in := compile(p, Latency, identity(10), 10)
		if got := in.transfers(in.quieter([]int{0, 0, 0, 0, 0, 1, 0, 0, 0, 0})); got != want {
			t.Errorf("%g s of 10 s saved: expected %d transfers; found %d", saved, want, got)
		}
	}
}

// layers generates a graph like a transformer's: times of rooflines with lognormal noise, edges to
// the next kernel and, every other, across three; activations of this many tokens.
func layers(kernels, gpus int, seed uint64, tokens float64) *Problem {
	r := rand.New(rand.NewPCG(seed, 7))
	p := &Problem{}
	flops := []float64{312e12, 366e12, 989e12, 500e12}
	bandwidth := []float64{1935e9, 864e9, 3350e9, 1597e9}
	for u := range gpus {
		p.GPUs = append(p.GPUs, GPU{Name: fmt.Sprint("g", u)})
		row := make([]Link, gpus)
		for v := range row {
			row[v] = Link{BytesPerSecond: 25e9, Latency: 10e-6}
		}
		p.Links = append(p.Links, row)
	}
	for k := range kernels {
		bytes, work := 2*4096*4096.0, 2*tokens*4096*4096
		if k%4 == 1 {
			bytes, work = tokens*4096*6, tokens*4096*10
		}
		kernel := Kernel{Name: fmt.Sprint("k", k), Runs: 1}
		for g := range gpus {
			kernel.Seconds = append(kernel.Seconds, (2e-6+max(work/flops[g]/0.6, bytes/bandwidth[g]/0.8))*math.Exp(0.3*r.NormFloat64()))
		}
		p.Kernels = append(p.Kernels, kernel)
		if k > 0 {
			p.Edges = append(p.Edges, Edge{From: k - 1, To: k, Bytes: tokens * 4096 * 2, Runs: 1})
		}
		if k%2 == 1 && k > 3 {
			p.Edges = append(p.Edges, Edge{From: k - 3, To: k, Bytes: tokens * 4096 * 2, Runs: 1})
		}
	}
	return p
}

func BenchmarkBest(b *testing.B) {
	for _, c := range []struct {
		kernels, gpus int
		objective     Objective
	}{{500, 2, Latency}, {500, 2, Throughput}, {1000, 2, Throughput}, {500, 3, Latency}, {500, 4, Latency}, {500, 3, Throughput}, {500, 4, Throughput}, {1000, 4, Throughput}} {
		b.Run(fmt.Sprintf("kernels=%d/gpus=%d/%s", c.kernels, c.gpus, c.objective), func(b *testing.B) {
			p := layers(c.kernels, c.gpus, 1, 256)
			gap, quickest := 0.0, time.Duration(math.MaxInt64)
			for b.Loop() {
				begin := time.Now()
				got, err := Best(p, c.objective, Options{})
				if err != nil {
					b.Fatal(err)
				}
				gap, quickest = got.Gap(), min(quickest, time.Since(begin))
			}
			b.ReportMetric(100*gap, "gap-%")
			b.ReportMetric(float64(quickest)/1e6, "least-ms") // beside other work the mean says little
		})
	}
}
