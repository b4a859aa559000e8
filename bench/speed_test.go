package bench

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Speed compared without a clock on the wall: what a benchmark costs, in time for which a core works, in relation to
// what something else costs in the same round, on the same machine, beside the same neighbours. The ratios that were
// recorded are in testdata/speed.txt.
const (
	speedFile   = "testdata/speed.txt"
	speedRounds = 3
	// tooSlow is how many times the recorded ratio is too much. The best round counts: neighbours make rounds dearer, and
	// none cheaper. Machines differ by less: see the file.
	tooSlow = 2.0
)

// yardstick is work that has nothing to do with the engine, and uses a machine as the engine does: branches, hash
// maps, sorting, and memory beyond the processor's caches.
func yardstick() uint64 {
	type item struct{ key, next uint64 }
	const n = 1 << 18
	items := make([]item, n)
	x := uint64(1)
	for i := range items {
		x = x*6364136223846793005 + 1442695040888963407
		items[i] = item{x, x >> 20 & (n - 1)}
	}
	index := make(map[uint64]int, n/4)
	for i := range items {
		index[items[i].key>>46] = i
	}
	sum := uint64(0)
	for i := range items {
		sum += uint64(index[items[i].next])
	}
	slices.SortFunc(items, func(a, b item) int { return cmp.Compare(a.key, b.key) })
	for range 4 {
		for i := range items {
			sum += items[items[items[i].next].next].key
		}
	}
	return sum
}

var yardsticks uint64 // so that no compiler drops it

// work returns the seconds for which a core works on what f does, garbage included.
func work(f func() error) (float64, error) {
	runtime.GC()
	before := cpuTime()
	err := f()
	return (cpuTime() - before).Seconds(), err
}

// ratio is a line of the file: what a benchmark costs in relation to another one, or the yardstick.
type ratio struct {
	of, to   string
	recorded float64
}

func readRatios(t *testing.T) []ratio {
	t.Helper()
	file, err := os.Open(speedFile)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var out []ratio
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if line := lines.Text(); line != "" && !strings.HasPrefix(line, "#") {
			var r ratio
			if _, err := fmt.Sscanf(line, "%f %s %s", &r.recorded, &r.of, &r.to); err != nil {
				t.Fatalf("%s: %q: %v", speedFile, line, err)
			}
			out = append(out, r)
		}
	}
	return out
}

// measured returns what a benchmark of a full name, or the yardstick, does once.
func measured(t *testing.T, name string) func() error {
	t.Helper()
	if name == "yardstick" {
		return func() error {
			yardsticks += yardstick()
			return nil
		}
	}
	for i := range benchmarks {
		b := &benchmarks[i]
		for _, nodes := range append(slices.Clone(Sizes), b.sizes...) {
			if b.fullName(nodes) == "Benchmark"+name {
				return func() error {
					_, err := b.run(nodes)
					return err
				}
			}
		}
	}
	t.Fatalf("%s: there is no benchmark %s", speedFile, name)
	return nil
}

// TestSpeed fails if the engine has become twice as slow as it was when the ratios were recorded, or a benchmark
// in relation to another one. With MUSTER_SPEED=record it prints the lines of the file as they would be now.
func TestSpeed(t *testing.T) {
	mode := os.Getenv("MUSTER_SPEED")
	switch {
	case mode == "":
		t.Skip("set MUSTER_SPEED=1 to compare the engine's speed with the ratios in bench/testdata/speed.txt, in a minute")
	case cpuTime() == 0:
		t.Skip("the time for which cores work is known on Linux only")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	list := readRatios(t)
	var rounds []map[string]float64
	for range speedRounds {
		costs := map[string]float64{}
		for _, r := range list {
			for _, name := range []string{r.to, r.of} {
				if costs[name] > 0 {
					continue
				}
				cost, err := work(measured(t, name))
				if err != nil {
					t.Fatal(err)
				}
				costs[name] = cost
			}
		}
		rounds = append(rounds, costs)
	}
	for i, best := range bestRatios(list, rounds) {
		r := list[i]
		if mode == "record" {
			fmt.Printf("%.3g %s %s\n", best, r.of, r.to)
			continue
		}
		t.Logf("%-40s costs %6.3g x %-28s recorded %6.3g", r.of, best, r.to, r.recorded)
		if r.slower(best) {
			t.Errorf("%s costs %.3g times %s in the best of %d rounds, and %.3g when that was recorded: find out why it is slower, or record it with MUSTER_SPEED=record",
				r.of, best, r.to, speedRounds, r.recorded)
		}
	}
}

// bestRatios returns for each ratio the least of the rounds, each of which has what everything cost in it.
func bestRatios(list []ratio, rounds []map[string]float64) []float64 {
	best := make([]float64, len(list))
	for i, r := range list {
		for _, costs := range rounds {
			if now := costs[r.of] / costs[r.to]; best[i] == 0 || now < best[i] {
				best[i] = now
			}
		}
	}
	return best
}

// slower reports whether a ratio is too much beside the one that was recorded.
func (r ratio) slower(now float64) bool { return now >= tooSlow*r.recorded }

// With what was recorded, an engine that is twice as slow in all rounds fails the guard, and so does a benchmark that is in
// relation to another one; a slow machine does not, nor do neighbours in two rounds of three.
func TestSpeedFails(t *testing.T) {
	list := readRatios(t)
	asRecorded := func() map[string]float64 { // in which the yardstick costs one
		costs := map[string]float64{"yardstick": 1}
		for _, r := range list {
			if costs[r.of] == 0 {
				costs[r.of] = r.recorded * costs[r.to]
			}
		}
		return costs
	}
	for what, c := range map[string]struct {
		change func(round int, costs map[string]float64)
		want   int
	}{
		"nothing": {func(int, map[string]float64) {}, 0},
		"an engine twice as slow": {func(_ int, costs map[string]float64) {
			for name := range costs {
				if name != "yardstick" {
					costs[name] *= 2
				}
			}
		}, len(list) - between(list)},
		"one benchmark twice as slow":       {func(_ int, costs map[string]float64) { costs[list[0].of] *= 2 }, 1},
		"a benchmark 1.9 times as slow":     {func(_ int, costs map[string]float64) { costs[list[0].of] *= 1.9 }, 0},
		"neighbours in two of three rounds": {func(round int, costs map[string]float64) { costs[list[0].of] *= float64(1 + round) }, 0},
		"a machine three times as slow": {func(_ int, costs map[string]float64) {
			for name := range costs {
				costs[name] *= 3
			}
		}, 0},
	} {
		var rounds []map[string]float64
		for i := range speedRounds {
			costs := asRecorded()
			c.change(i, costs)
			rounds = append(rounds, costs)
		}
		slow := 0
		for i, best := range bestRatios(list, rounds) {
			if list[i].slower(best) {
				slow++
			}
		}
		if slow != c.want {
			t.Errorf("%s: %d lines of %s fail; expected %d", what, slow, speedFile, c.want)
		}
	}
}

// between counts the ratios of one benchmark to another.
func between(list []ratio) (n int) {
	for _, r := range list {
		if r.to != "yardstick" {
			n++
		}
	}
	return n
}
