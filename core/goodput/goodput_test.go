package goodput

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// brute tries all choices, in the order in which ties are decided.
func brute(free []int, jobs [][]Config) []int {
	var best []int
	most := int64(-1)
	choice := make([]int, len(jobs))
	left := slices.Clone(free)
	var try func(i int, sum int64)
	try = func(i int, sum int64) {
		if i == len(jobs) {
			if sum > most {
				best, most = slices.Clone(choice), sum
			}
			return
		}
		for c, o := range jobs[i] {
			if o.Value > 0 && o.GPUs <= left[o.Model] {
				left[o.Model] -= o.GPUs
				choice[i] = c
				try(i+1, sum+o.Value)
				left[o.Model] += o.GPUs
			}
		}
		choice[i] = None
		try(i+1, sum)
	}
	try(0, 0)
	return best
}

// random returns a small cluster and jobs. Few values, so that there are ties; some are worth nothing, and some do not fit.
func random(rng *rand.Rand) (free []int, jobs [][]Config) {
	for range 1 + rng.IntN(3) {
		free = append(free, rng.IntN(9))
	}
	for range rng.IntN(6) {
		var j []Config
		for range rng.IntN(6) {
			j = append(j, Config{rng.IntN(len(free)), 1 + rng.IntN(9), int64(rng.IntN(8) - 1)})
		}
		jobs = append(jobs, j)
	}
	return free, jobs
}

func TestExactIsBrute(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 3000 {
		free, jobs := random(rng)
		if got, want := Exact(free, jobs), brute(free, jobs); !slices.Equal(got, want) {
			t.Fatalf("case %d: free %v, jobs %v\n got %v, worth %d\nwant %v, worth %d", n, free, jobs, got, Total(jobs, got), want, Total(jobs, want))
		}
	}
}

// fits fails if a choice takes more than is free, or what is worth nothing.
func fits(t *testing.T, free []int, jobs [][]Config, choice []int) {
	t.Helper()
	left := slices.Clone(free)
	for i, c := range choice {
		if c == None {
			continue
		}
		o := jobs[i][c]
		if left[o.Model] -= o.GPUs; left[o.Model] < 0 || o.Value <= 0 {
			t.Fatalf("free %v, jobs %v: choice %v at job %d", free, jobs, choice, i)
		}
	}
}

func TestPricedIsFeasibleAndBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		free, jobs := random(rng)
		choice, bound := Priced(free, jobs)
		fits(t, free, jobs, choice)
		best := Total(jobs, Exact(free, jobs))
		if got := Total(jobs, choice); got > best || best > bound {
			t.Fatalf("free %v, jobs %v: priced %d, exact %d, bound %d", free, jobs, got, best, bound)
		}
	}
}

// siaLike returns jobs whose goodput grows with their GPUs, each less than the number of them, and at another rate on each model.
func siaLike(rng *rand.Rand, n int, nodes, perNode []int) (free []int, jobs [][]Config) {
	for m := range nodes {
		free = append(free, nodes[m]*perNode[m])
	}
	for range n {
		var j []Config
		exponent, restart := 0.3+0.6*rng.Float64(), 0.5+0.5*rng.Float64()
		has := rng.IntN(3 * len(free))
		for m := range nodes {
			speed := 1 + 4*rng.Float64()
			for k, g := range Sizes(nodes[m], perNode[m]) {
				v := speed * math.Pow(float64(g), exponent)
				if has != 3*m+k {
					v *= restart
				}
				j = append(j, Config{m, g, SiaObjective.Value(v)})
			}
		}
		jobs = append(jobs, j)
	}
	return free, jobs
}

// Prices lose little against the exact choice on the paper's cluster, whatever the load.
func TestPricedIsNearExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{5, 31, 64, 100} {
		var priced, exact, bounds int64
		for range 5 {
			free, jobs := siaLike(rng, n, []int{6, 3, 2}, []int{4, 8, 8})
			choice, bound := Priced(free, jobs)
			fits(t, free, jobs, choice)
			priced, exact, bounds = priced+Total(jobs, choice), exact+Total(jobs, Exact(free, jobs)), bounds+bound
		}
		share := float64(priced) / float64(exact)
		t.Logf("%d jobs: %.2f %% of the exact value, the bound is %.2f %%", n, 100*share, 100*float64(bounds)/float64(exact))
		if share < 0.98 {
			t.Errorf("%d jobs: %.4f of the exact value", n, share)
		}
	}
}

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		name string
		free []int
		jobs [][]Config
		want []int
	}{
		{"no jobs", []int{4}, nil, []int{}},
		{"nothing free", []int{0}, [][]Config{{{0, 1, 5}}}, []int{None}},
		{"the larger sum, not the largest value", []int{4}, [][]Config{{{0, 4, 5}, {0, 2, 4}}, {{0, 2, 3}}}, []int{1, 0}},
		{"a tie: the first job has its first configuration", []int{2}, [][]Config{{{0, 1, 3}, {0, 2, 3}}, {{0, 1, 2}}}, []int{0, 0}},
		{"three jobs on 4 GPUs, as in ADR 0021", []int{4}, [][]Config{{{0, 4, 5}, {0, 2, 4}, {0, 1, 3}}, {{0, 4, 5}, {0, 2, 4}, {0, 1, 3}}, {{0, 4, 5}, {0, 2, 4}, {0, 1, 3}}}, []int{1, 2, 2}},
		{"a tie: the first job runs", []int{1}, [][]Config{{{0, 1, 3}}, {{0, 1, 3}}}, []int{0, None}},
		{"each on the model that suits it more", []int{1, 1}, [][]Config{{{0, 1, 9}, {1, 1, 8}}, {{0, 1, 9}, {1, 1, 2}}}, []int{1, 0}},
		{"more states than the memory is for", []int{100_000_000}, [][]Config{{{0, 1, 1}, {0, 2, 3}}}, []int{1}},
		{"what is worth nothing is not chosen", []int{8}, [][]Config{{{0, 1, 0}, {0, 2, -4}}}, []int{None}},
	} {
		if got := Choose(c.free, c.jobs); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// Beyond the bound on sums the choice is still one that fits, near its bound.
func TestChooseBeyondTheBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	free, jobs := siaLike(rng, 300, []int{50, 50, 50, 50}, []int{8, 8, 8, 8})
	if n := States(free); n != 0 && n <= Work/300 {
		t.Fatalf("%d states are not beyond the bound", n)
	}
	choice := Choose(free, jobs)
	fits(t, free, jobs, choice)
	if _, bound := Priced(free, jobs); float64(Total(jobs, choice)) < 0.99*float64(bound) {
		t.Errorf("worth %d of at most %d", Total(jobs, choice), bound)
	}
}

func TestStates(t *testing.T) {
	for _, c := range []struct {
		free []int
		want int
	}{{nil, 1}, {[]int{24, 24, 16}, 25 * 25 * 17}, {[]int{1 << 20, 1 << 20}, 0}, {[]int{-1}, 0}} {
		if got := States(c.free); got != c.want {
			t.Errorf("%v: %d states, want %d", c.free, got, c.want)
		}
	}
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		nodes, perNode int
		want           []int
	}{{6, 4, []int{1, 2, 4, 8, 12, 16, 20, 24}}, {2, 8, []int{1, 2, 4, 8, 16}}, {1, 1, []int{1}}, {0, 8, nil}} {
		if got := Sizes(c.nodes, c.perNode); !slices.Equal(got, c.want) {
			t.Errorf("%d nodes of %d: %v, want %v", c.nodes, c.perNode, got, c.want)
		}
	}
}

func TestValue(t *testing.T) {
	for _, c := range []struct {
		o    Objective
		g    float64
		want int64
	}{
		{SiaObjective, 1, 100_000}, // runs, though as slowly as it can
		{SiaObjective, 4, 600_000},
		{SiaObjective, 0.25, -900_000}, // restarts so often that it had better not run
		{SiaObjective, 0, 1_100_000 - 100_000_000},
		{Objective{Power: 0.5}, 4, 2_000_000},
	} {
		if got := c.o.Value(c.g); got != c.want {
			t.Errorf("%+v of %v: %d, want %d", c.o, c.g, got, c.want)
		}
	}
}

func TestRestartFactor(t *testing.T) {
	for _, c := range []struct {
		age      float64
		restarts int
		cost     float64
		want     float64
	}{{29, 0, 30, 1}, {30, 0, 30, 0.5}, {270, 3, 30, 0.6}, {60, 3, 30, 0}} {
		if got := RestartFactor(c.age, c.restarts, c.cost); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func BenchmarkExact(b *testing.B) {
	for _, n := range []int{31, 160, 1000} {
		free, jobs := siaLike(rand.New(rand.NewPCG(9, 9)), n, []int{6, 3, 2}, []int{4, 8, 8})
		b.Run(fmt.Sprintf("64gpus/%djobs", n), func(b *testing.B) {
			for b.Loop() {
				Exact(free, jobs)
			}
		})
	}
}

func BenchmarkPriced(b *testing.B) {
	for _, n := range []struct{ jobs, nodes int }{{31, 2}, {1000, 100}, {10_000, 1000}} {
		free, jobs := siaLike(rand.New(rand.NewPCG(9, 9)), n.jobs, []int{n.nodes, n.nodes, n.nodes}, []int{4, 8, 8})
		for i := range jobs { // as many configurations as Sia gives jobs that double at most
			jobs[i] = slices.DeleteFunc(jobs[i], func(c Config) bool { return c.GPUs > 64 })
		}
		b.Run(fmt.Sprintf("%dgpus/%djobs", 20*n.nodes, n.jobs), func(b *testing.B) {
			for b.Loop() {
				Priced(free, jobs)
			}
		})
	}
}
