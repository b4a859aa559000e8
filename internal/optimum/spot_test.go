package optimum

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// byAll is the twin of Best: it tries all schedules, and has the logs of each judged.
func byAll(t *testing.T, s *Spot, alpha float64) SpotResult {
	runs := make([][]SpotRun, len(s.Tasks))
	work := func(i int) (saved int, running bool) {
		for _, r := range runs[i] {
			if r.End < 0 {
				return saved, true
			}
			saved = s.Tasks[i].saved(saved + r.End - r.Start)
		}
		return saved, false
	}
	free := func(hp bool) []int {
		left := slices.Clone(s.Nodes)
		for i := range runs {
			if n := len(runs[i]); n > 0 && runs[i][n-1].End < 0 && (!hp || s.Tasks[i].HP) {
				for j, pods := range runs[i][n-1].Nodes {
					left[j] -= pods * s.Tasks[i].GPUs
				}
			}
		}
		return left
	}
	var best *SpotResult
	var step, decide func(at, i int)
	step = func(at, _ int) {
		for i := range runs { // ends
			if saved, running := work(i); running {
				k := len(runs[i]) - 1
				if saved+at-runs[i][k].Start == s.Tasks[i].work() {
					runs[i][k].End = at
					defer func() { runs[i][k].End = -1 }()
				}
			}
		}
		if at == s.Steps {
			logs := make([][]SpotRun, len(runs))
			for i := range runs {
				for _, r := range runs[i] {
					if r.End < 0 {
						r.End = at
					}
					logs[i] = append(logs[i], r)
				}
			}
			r, err := s.Result(logs)
			if err != nil {
				t.Fatalf("%+v: %v: %v", s, logs, err)
			}
			if best == nil || s.Objective(r, alpha) < s.Objective(*best, alpha) {
				best = &r
			}
			return
		}
		decide(at, 0)
	}
	// decide evicts or not, then starts or not, for each task.
	var start func(at, i int)
	decide = func(at, i int) {
		if i == len(s.Tasks) {
			start(at, 0)
			return
		}
		decide(at, i+1)
		if _, running := work(i); running && !s.Tasks[i].HP {
			k := len(runs[i]) - 1
			runs[i][k].End = at
			decide(at, i+1)
			runs[i][k].End = -1
		}
	}
	start = func(at, i int) {
		if i == len(s.Tasks) {
			for i, task := range s.Tasks {
				if saved, running := work(i); s.AtOnce && task.HP && !running && task.Arrives <= at && saved < task.work() {
					pods := 0
					for _, free := range free(true) {
						pods += free / task.GPUs
					}
					if pods >= task.Pods {
						return
					}
				}
			}
			step(at+1, 0)
			return
		}
		start(at, i+1)
		saved, running := work(i)
		task := s.Tasks[i]
		if running || task.Arrives > at || saved == task.work() {
			return
		}
		pods := make([]int, len(s.Nodes))
		var put func(j, left int)
		put = func(j, left int) {
			if j == len(s.Nodes) {
				if left == 0 {
					runs[i] = append(runs[i], SpotRun{at, -1, slices.Clone(pods)})
					start(at, i+1)
					runs[i] = runs[i][:len(runs[i])-1]
				}
				return
			}
			for n := 0; n <= left && n*task.GPUs <= free(false)[j]; n++ {
				pods[j] = n
				put(j+1, left-n)
			}
			pods[j] = 0
		}
		put(0, task.Pods)
	}
	step(0, 0)
	return *best
}

func randomSpot(rng *rand.Rand, nodes, tasks, steps int) Spot {
	s := Spot{Stay: true, AtOnce: rng.IntN(2) == 0, Steps: steps}
	for range nodes {
		s.Nodes = append(s.Nodes, 1+rng.IntN(2))
	}
	for i := range tasks {
		t := SpotTask{HP: i%3 == 2, Arrives: rng.IntN(steps - 1), Pods: 1 + rng.IntN(2), GPUs: 1 + rng.IntN(2)}
		work := 1 + rng.IntN(4)
		for every := 1 + rng.IntN(3); len(t.Milestones) == 0 || t.Milestones[len(t.Milestones)-1] < work; {
			t.Milestones = append(t.Milestones, min(work, every*(len(t.Milestones)+1)))
		}
		s.Tasks = append(s.Tasks, t)
	}
	return s
}

// TestSpotOptimum compares the search with all schedules of instances that are smaller still.
func TestSpotOptimum(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			s := randomSpot(rng, 2, 3, 4+rng.IntN(2))
			for _, alpha := range []float64{0.1, 1} {
				got, want := s.Best(alpha), byAll(t, &s, alpha)
				if s.Objective(got, alpha) != s.Objective(want, alpha) {
					t.Errorf("%+v: %+v, all schedules %+v", s, got, want)
				}
			}
		})
	}
}

// Pods of one GPU fit wherever GPUs are free, so nothing is gained if they may move.
func TestSpotThatMay(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 4))
		stay := randomSpot(rng, 3, 4, 6)
		single := rng.IntN(2) == 0
		for i := range stay.Tasks {
			if single {
				stay.Tasks[i].GPUs = 1
			}
		}
		move := stay
		move.Stay = false
		a, b := stay.Objective(stay.Best(1), 1), move.Objective(move.Best(1), 1)
		if b > a && !stay.AtOnce || a != b && single {
			t.Errorf("seed %d: %+v: %g, and %g if pods may move", seed, stay, a, b)
		}
	}
}

// TestSpotResult has logs that break the constraints of the paper.
func TestSpotResult(t *testing.T) {
	s := Spot{Nodes: []int{2, 1}, Steps: 6, Tasks: []SpotTask{
		{Pods: 1, GPUs: 2, Milestones: []int{2, 3}}, {HP: true, Arrives: 1, Pods: 2, GPUs: 1, Milestones: []int{3}},
	}}
	for _, c := range []struct {
		runs [][]SpotRun
		want string
	}{
		{[][]SpotRun{{{0, 2, []int{1, 0}}, {5, 6, []int{1, 0}}}, {{2, 5, []int{1, 1}}}}, "{1 3 12}"},
		{[][]SpotRun{{{0, 1, []int{1, 0}}, {5, 6, []int{1, 0}}}, {{2, 5, []int{1, 1}}}}, "{1 3 6}"},
		{[][]SpotRun{{{0, 2, []int{1, 0}}}, {}}, "{1 1 4}"}, // never again
		{[][]SpotRun{{{0, 3, []int{1, 0}}}, {{2, 5, []int{1, 1}}}}, "node 0 has 3 GPUs in use of 2 at 2: 2b"},
		{[][]SpotRun{{}, {{1, 4, []int{0, 1}}}}, "task 1 runs 1 pods of 2: 2c"},
		{[][]SpotRun{{}, {{1, 2, []int{1, 1}}, {3, 5, []int{1, 1}}}}, "task 1 is HP and stops at 5: 2d"},
		{[][]SpotRun{{}, {{1, 2, []int{1, 1}}}}, "task 1 is HP and stops at 2: 2d"},
		{[][]SpotRun{{{0, 4, []int{1, 0}}}, {}}, "task 0 works 4 of 3 steps: 2f"},
		{[][]SpotRun{{}, {{0, 3, []int{1, 1}}}}, "task 1 runs from 0 to 3, and can from 1 to 6"},
	} {
		r, err := s.Result(c.runs)
		if got := fmt.Sprint(r); err == nil && got != c.want || err != nil && err.Error() != c.want {
			t.Errorf("%v: %v, %v, want %s", c.runs, r, err, c.want)
		}
	}
}
