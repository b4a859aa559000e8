package workload

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// A nameSet tells new names from old ones as a map does.
func TestNameSet(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 3))
		seen, set := map[string]bool{}, newNameSet()
		forms := []string{"job-%d", "job-%03d", "%d", "a%db", "é%d", "x-99999999999999999999%d", fmt.Sprint(seed, "-%d")}
		for range 3000 {
			name := fmt.Sprintf(forms[rng.IntN(len(forms))], rng.IntN(5000))
			if set.add(name) == seen[name] {
				t.Fatalf("seed %d: %q is said to be new: %v", seed, name, seen[name])
			}
			seen[name] = true
		}
	}
}

// Names numbered in order take no memory, whatever their number.
func TestNameSetOfNumberedNames(t *testing.T) {
	set := newNameSet()
	for i := range 200_000 {
		for _, form := range []string{"job-%d", "trace/%09d"} {
			if name := fmt.Sprintf(form, i); !set.add(name) {
				t.Fatalf("%q is said to be old", name)
			}
		}
	}
	runs := 0
	for _, r := range set.runs {
		runs += len(r)
	}
	if runs > 10 || len(set.hashes) > 0 {
		t.Errorf("%d runs, %d hashes", runs, len(set.hashes))
	}
}

// Neither many series nor many gaps grow beyond hashes.
func TestNameSetBounds(t *testing.T) {
	set := newNameSet()
	for i := range 5000 {
		if !set.add(fmt.Sprintf("%d-1", i)) || !set.add(fmt.Sprintf("even-%d", 10000+2*i)) {
			t.Fatalf("a name is said to be old at %d", i)
		}
	}
	runs := 0
	for _, r := range set.runs {
		runs += len(r)
	}
	if len(set.runs) > mostSeries || runs > mostSeries+mostRuns {
		t.Errorf("%d series, %d runs", len(set.runs), runs)
	}
}
