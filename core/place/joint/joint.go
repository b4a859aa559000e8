// Package joint divides the room of leaf groups among jobs that wait together. For one job
// the greedy algorithm of ASI (§4.1, Algorithm 2) gives the least entropy; for several the
// order decides, and the paper takes the largest first and leaves the rest open (§5.2).
package joint

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core/place"
)

// Problem is jobs and leaf groups; all pods are of one size.
type Problem struct {
	Room []int // pods that each leaf group has room for
	Jobs []int // pods of each job, at least one
	// Within says that each job must be within one group.
	Within bool
	// For says which plans are better.
	For Objective
}

// Objective is what plans are compared by first; then by the least spread, then by the fewest
// pods across groups.
type Objective uint8

// The objectives. All pods have as many GPUs.
const (
	MostJobs Objective = iota // jobs that have a place
	MostGPUs                  // GPUs of the jobs that have a place
)

// Part is pods of a job in a leaf group.
type Part struct{ Group, Pods int }

// Plan is the parts of each job, nil for one without a place.
type Plan [][]Part

// Score is what a plan comes to.
type Score struct {
	Fulfilled int // jobs that have a place
	Pods      int // of those
	// Spread is the sum, over the jobs, of the entropy of each times its pods: in bits, with
	// place.FractionBits binary places.
	Spread int64
	Cross  int // pods outside the group that holds most of their job
}

// Compare orders scores from the best.
func (o Objective) Compare(a, b Score) int {
	most := cmp.Compare(b.Fulfilled, a.Fulfilled)
	if o == MostGPUs {
		most = cmp.Compare(b.Pods, a.Pods)
	}
	return cmp.Or(most, cmp.Compare(a.Spread, b.Spread), cmp.Compare(a.Cross, b.Cross))
}

// Plus adds up scores.
func (s Score) Plus(o Score) Score {
	return Score{s.Fulfilled + o.Fulfilled, s.Pods + o.Pods, s.Spread + o.Spread, s.Cross + o.Cross}
}

// Score returns what the plan comes to.
func (p *Plan) Score() Score {
	var s Score
	for _, parts := range *p {
		s = s.Plus(score(parts))
	}
	return s
}

// score is that of one job.
func score(parts []Part) Score {
	if parts == nil {
		return Score{}
	}
	s, all, most := Score{Fulfilled: 1}, 0, 0
	for _, part := range parts {
		all += part.Pods
		most = max(most, part.Pods)
		s.Spread -= place.NLogN(part.Pods)
	}
	s.Spread += place.NLogN(all)
	s.Pods, s.Cross = all, all-most
	return s
}

// state is a plan under way: the room that it leaves.
type state struct {
	*Problem
	room []int
	plan Plan
}

func (p *Problem) begin() *state {
	return &state{p, slices.Clone(p.Room), make(Plan, len(p.Jobs))}
}

// place gives a job its place by Algorithm 2, or none: the group that takes most of it, and
// of several that take all that is left the tightest. O(groups of the job x groups).
func (s *state) place(job int) {
	var parts []Part
	for left := s.Jobs[job]; left > 0; {
		best := -1
		for g, room := range s.room {
			if room > 0 && (best < 0 || better(room, s.room[best], left)) {
				best = g
			}
		}
		if best < 0 || s.Within && s.room[best] < left {
			s.takeBack(parts)
			return
		}
		n := min(left, s.room[best])
		s.room[best] -= n
		left -= n
		parts = append(parts, Part{best, n})
	}
	s.plan[job] = parts
}

// better reports whether to take a group with room a before one with room b.
func better(a, b, left int) bool {
	if ta, tb := min(a, left), min(b, left); ta != tb {
		return ta > tb
	}
	return a < b
}

func (s *state) takeBack(parts []Part) {
	for _, part := range parts {
		s.room[part.Group] += part.Pods
	}
}

// remove takes a job's place away.
func (s *state) remove(job int) {
	s.takeBack(s.plan[job])
	s.plan[job] = nil
}

// largestFirst returns the jobs by size; of equal ones the first comes first.
func (p *Problem) largestFirst() []int {
	order := make([]int, len(p.Jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.Jobs[b], p.Jobs[a]) })
	return order
}

// LargestFirst places the jobs one by one, the largest first, as the paper does.
func (p *Problem) LargestFirst() Plan { return p.inOrder(p.largestFirst()).plan }

func (p *Problem) inOrder(order []int) *state {
	s := p.begin()
	for _, job := range order {
		s.place(job)
	}
	return s
}

// Together places the jobs with regard to each other. Its plan is never worse than that of
// LargestFirst. It makes at most trials changes on trial; each is O(jobs x groups of a job x
// groups).
func (p *Problem) Together(trials int) Plan {
	// 1. The best of three orders. With groups of 10, 6 and 6, a job of 12 that comes before
	// one of 10 takes the first group, and both are then in two. So those that some group
	// holds come first; and the smallest first, as more of them fit.
	largest := p.largestFirst()
	most := slices.Max(append([]int{0}, p.Room...))
	fitting := slices.Clone(largest)
	slices.SortStableFunc(fitting, func(a, b int) int {
		return cmp.Compare(min(1, max(0, p.Jobs[a]-most)), min(1, max(0, p.Jobs[b]-most)))
	})
	smallest := slices.Clone(largest)
	slices.Reverse(smallest)
	best := p.inOrder(largest)
	for _, order := range [][]int{fitting, smallest} {
		if s := p.inOrder(order); p.For.Compare(s.plan.Score(), best.plan.Score()) < 0 {
			best = s
		}
	}
	// 2. Each job that could do better is placed again together with each other one, in both
	// orders, until none of the pairs gains. Two jobs of 5 use a group of 10 better than one of
	// 9 that is there: so each job also leaves for those without a place, from each size down.
	for gained := true; gained; {
		gained = false
		for _, a := range largest {
			for k, b := range largest {
				if trials--; trials < 0 {
					return best.plan
				}
				if best.plan[a] != nil && best.plan[b] == nil && p.For == MostGPUs {
					gained = best.leave(a, largest[k:]) || gained
				}
				if a == b || len(best.plan[a]) == 1 {
					continue // alone it cannot do better
				}
				gained = best.replace(a, b) || best.replace(b, a) || gained
			}
		}
	}
	return best.plan
}

// replace places a, then b again, if that is better, and reports whether it is.
func (s *state) replace(a, b int) bool {
	old := s.copy()
	s.remove(a)
	s.remove(b)
	s.place(a)
	s.place(b)
	if s.For.Compare(score(s.plan[a]).Plus(score(s.plan[b])), score(old.plan[a]).Plus(score(old.plan[b]))) < 0 {
		return true
	}
	*s = *old
	return false
}

// leave places those of some jobs that have no place instead of a, then a again, if that is
// better, and reports whether it is.
func (s *state) leave(a int, jobs []int) bool {
	old := s.copy()
	s.remove(a)
	for _, b := range jobs {
		if s.plan[b] == nil && b != a {
			s.place(b)
		}
	}
	s.place(a)
	if s.For.Compare(s.plan.Score(), old.plan.Score()) < 0 {
		return true
	}
	*s = *old
	return false
}

func (s *state) copy() *state {
	return &state{s.Problem, slices.Clone(s.room), slices.Clone(s.plan)}
}
