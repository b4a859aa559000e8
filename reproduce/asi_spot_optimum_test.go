package reproduce

import (
	"context"
	"testing"
)

// No schedule is better than the optimum, which is a check of both: the simulator's runs keep the
// constraints of Appendix A, and a program that may do more loses nothing.
func TestAppendixA(t *testing.T) {
	const tries = 10
	for seed := range uint64(tries) {
		s := newAppendix(seed)
		rs, err := solveAppendix(context.Background(), seed)
		if err != nil {
			t.Fatal(err)
		}
		of := func(k int) float64 { return s.Objective(rs[k], appendixAlpha) }
		if of(appendixPrinted) > of(appendixBest) {
			t.Errorf("instance %d: %+v, but as printed %+v", seed, rs[appendixBest], rs[appendixPrinted])
		}
		for i, name := range appendixPolicies {
			if of(appendixFirst+i) < of(appendixBest) {
				t.Errorf("instance %d: %s: %+v, the optimum %+v", seed, name, rs[appendixFirst+i], rs[appendixBest])
			}
		}
	}
	a, err := compareAppendix(context.Background(), &Options{}, tries)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(a.note())
	if ours, random := a.objective[appendixFirst], a.objective[appendixFirst+2]; ours > random {
		t.Errorf("SpotGPU %g, random victims %g", ours/tries, random/tries)
	}
}
