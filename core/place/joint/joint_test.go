package joint

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// optimum returns the best score there is, by trying all divisions of all jobs. Groups with
// equal room are alike, so that few states are left to look at.
func optimum(p *Problem) Score {
	known := map[string]Score{}
	var from func(job int, room []int) Score
	from = func(job int, room []int) Score {
		if job == len(p.Jobs) {
			return Score{}
		}
		room = slices.Sorted(slices.Values(room))
		key := fmt.Sprint(job, room)
		if s, ok := known[key]; ok {
			return s
		}
		best := from(job+1, room) // without the job
		var parts []Part
		var divide func(g, left int)
		divide = func(g, left int) {
			if left == 0 {
				if s := score(parts).Plus(from(job+1, room)); p.For.Compare(s, best) < 0 {
					best = s
				}
				return
			}
			if g == len(room) {
				return
			}
			divide(g+1, left)
			for n := 1; n <= min(left, room[g]); n++ {
				if p.Within && n < left {
					continue
				}
				room[g] -= n
				parts = append(parts, Part{g, n})
				divide(g+1, left-n)
				parts = parts[:len(parts)-1]
				room[g] += n
			}
		}
		divide(0, p.Jobs[job])
		known[key] = best
		return best
	}
	return from(0, slices.Clone(p.Room))
}

func random(rng *rand.Rand, kind string) Problem {
	p := Problem{Within: kind == "within one group" || kind == "most GPUs, within one group", Room: make([]int, 2+rng.IntN(4)), Jobs: make([]int, 2+rng.IntN(4))}
	if strings.HasPrefix(kind, "most GPUs") {
		p.For = MostGPUs
	}
	for i := range p.Room {
		p.Room[i] = 1 + rng.IntN(8)
	}
	for i := range p.Jobs {
		p.Jobs[i] = 1 + rng.IntN(8)
	}
	if sum := func(x []int) (n int) {
		for _, v := range x {
			n += v
		}
		return n
	}; kind == "all fit" && sum(p.Jobs) > sum(p.Room) {
		return random(rng, kind)
	}
	return p
}

// TestNearOptimum compares plans for jobs of random sizes with the best ones: where all jobs
// fit, where they may not, and where each must be in one group.
func TestNearOptimum(t *testing.T) {
	for _, kind := range []string{"all fit", "some may not", "within one group", "most GPUs", "most GPUs, within one group"} {
		rng := rand.New(rand.NewPCG(1, 2))
		const problems = 400
		var greedy, joint, best Score
		greedyBest, jointBest := 0, 0
		for range problems {
			p := random(rng, kind)
			plans := [2]Plan{p.LargestFirst(), p.Together(10_000)}
			for i := range plans {
				check(t, &p, plans[i])
			}
			g, j, b := plans[0].Score(), plans[1].Score(), optimum(&p)
			if p.For.Compare(b, j) > 0 || p.For.Compare(j, g) > 0 {
				t.Fatalf("%+v: optimum %+v, together %+v, largest first %+v", p, b, j, g)
			}
			greedy, joint, best = greedy.Plus(g), joint.Plus(j), best.Plus(b)
			if p.For.Compare(g, b) == 0 {
				greedyBest++
			}
			if p.For.Compare(j, b) == 0 {
				jointBest++
			}
		}
		t.Logf("%s: optimum %+v, together %+v (best in %d of %d), largest first %+v (best in %d)", kind, best, joint, jointBest, problems, greedy, greedyBest)
		most, of := joint.Fulfilled, best.Fulfilled
		if strings.HasPrefix(kind, "most GPUs") {
			most, of = joint.Pods, best.Pods
		}
		if most*100 < of*99 || jointBest*100 < problems*85 {
			t.Errorf("%s: together %+v, best in %d of %d; optimum %+v", kind, joint, jointBest, problems, best)
		}
	}
}

// check fails if the plan uses room that is not there, or places part of a job.
func check(t *testing.T, p *Problem, plan Plan) {
	t.Helper()
	room := slices.Clone(p.Room)
	for job, parts := range plan {
		pods := 0
		for _, part := range parts {
			room[part.Group] -= part.Pods
			pods += part.Pods
		}
		if parts != nil && (pods != p.Jobs[job] || p.Within && len(parts) > 1) || slices.Min(room) < 0 {
			t.Fatalf("%+v: job %d is in %v, room left %v", p, job, parts, room)
		}
	}
}

// A job that one group holds must not lose it to a larger one that needs two groups anyway.
func TestGroupsForThoseThatFit(t *testing.T) {
	p := Problem{Room: []int{10, 6, 6}, Jobs: []int{12, 10}}
	greedy, joint := p.LargestFirst(), p.Together(100)
	if got := greedy.Score().Cross; got != 2+4 {
		t.Errorf("largest first: %v, %d pods across", greedy, got)
	}
	if got := joint.Score().Cross; got != 6 || len(joint[1]) != 1 {
		t.Errorf("together: %v, %d pods across", joint, got)
	}
}
