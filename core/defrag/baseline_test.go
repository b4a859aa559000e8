package defrag

import "testing"

// TestBaselines: the plans of the baselines can be carried out as well, and they vacate less.
func TestBaselines(t *testing.T) {
	var vacated, slack [3]int
	for seed := range uint64(60) {
		w := random(seed, 25, 0.5+float64(seed%5)/10, 0.3)
		for a := range vacated {
			plan := Consolidate(w.state, w.placer, w, Options{Algorithm: Algorithm(a), Seed: seed})
			w.check(t, &plan)
			vacated[a] += len(plan.Vacated)
			slack[a] += plan.SlackAfter
			if few := Consolidate(w.state, w.placer, w, Options{Algorithm: Algorithm(a), Seed: seed, MaxMoves: 5}); len(few.Moves) > 5 {
				t.Errorf("seed %d, algorithm %d: %d moves, expected at most 5", seed, a, len(few.Moves))
			}
		}
	}
	t.Logf("vacated %v, nodes with free and used GPUs %v", vacated, slack)
	if !(vacated[Muster] > vacated[Published] && vacated[Published] > vacated[Eviction] && slack[Published] < slack[Eviction]) {
		t.Errorf("vacated %v by Muster, as published, by evictions; nodes with free and used GPUs after it %v", vacated, slack)
	}
}
