package snapshot_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/snapshot"
)

// Whatever the cluster, after a few rounds nothing changes any more, and who is
// evicted leaves for a job that then starts, even where no pod is spared for
// having just started. Where they are, nobody is evicted twice either.
func TestRunComesToRest(t *testing.T) {
	seeds := uint64(1000)
	if testing.Short() {
		seeds = 300
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 2))
		name := policy.All[rng.IntN(len(policy.All))].Name
		spared := seed%2 == 0
		if !spared {
			name = fmt.Sprintf("{base: %s, preemption: {minRuntime: 0s}}", name)
		}
		file := randomSnapshot(rng, name)
		s, err := snapshot.Parse("s.yaml", []byte(file), known)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, file)
		}
		answer, err := snapshot.Run(s, 12)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, file)
		}
		if wrong := restless(&answer, spared); wrong != "" {
			var text strings.Builder
			answer.WriteText(&text)
			t.Fatalf("seed %d: %s\n%s\n%s", seed, wrong, file, &text)
		}
	}
}

// restless says what moves in vain.
func restless(answer *snapshot.Answer, spared bool) string {
	evicted := map[string]bool{}
	for n, round := range answer.Rounds {
		if n >= 8 && len(round.Decisions) > 0 {
			return fmt.Sprintf("round %d decides something", n+1)
		}
		for _, d := range round.Decisions {
			if d.Op != "evict" {
				continue
			}
			if spared && evicted[d.Pod] {
				return d.Pod + " is evicted twice"
			}
			evicted[d.Pod] = true
			if !starts(answer.Rounds[n:], d.For) {
				return fmt.Sprintf("%s is evicted for %s, which does not start", d.Pod, d.For)
			}
		}
	}
	return ""
}

func starts(rounds []snapshot.Round, job string) bool {
	for _, round := range rounds {
		for _, d := range round.Decisions {
			if d.Op == "bind" && d.Job == job {
				return true
			}
		}
	}
	return false
}
