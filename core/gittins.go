package core

import (
	"cmp"
	"math"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/gputime"
)

// This file has the Gittins index by which [GittinsIndex] orders jobs: how likely a job is to end within the next quantum of GPU time, for the GPU
// time that it is expected to receive until then (Tiresias, NSDI 2019, section 3.3; Aalto et al., Queueing Systems 2009). With S the GPU time that a job
// takes in all, a what it has received, and d the quantum:
//
//	index = P(S - a <= d | S > a) / E[min(S - a, d) | S > a]
//
// With levels, the quantum is the size of the level, and without end in the last one. Without levels, it is the one that makes the index greatest.

// MostServices is how many GPU times make up a distribution at most.
const MostServices = 1000

// services is the distribution of S.
//
// Invariant: samples are as likely as each other, the least first, and sums[i] adds up the first i of them.
type services struct {
	samples, sums []int64
	// learned are the samples in the order in which they were learned; oldest is the place of the first of them, once they are MostServices.
	// given says that the policy has the distribution, and nothing is learned.
	learned []int64
	oldest  int
	given   bool
}

// service amounts are milliseconds of one GPU, at most mostService: as many as a distribution has can be added up.
const mostService = 1 << 53

// endless is a quantum without end. neverEnds is the rank of a job that does not end within its quantum.
const (
	endless   = math.MaxInt64
	neverEnds = 1<<levelShift - 1
	// levelShift is where the level begins in the index by which jobs are ordered.
	levelShift = 57
)

func newServices(given []Time) services {
	s := services{given: len(given) > 0}
	for _, t := range given {
		s.samples = append(s.samples, int64(t/(Second/1000)))
	}
	slices.Sort(s.samples)
	s.addUp()
	return s
}

// inMillis returns an amount of GPU time in milliseconds of a GPU.
func inMillis(a gputime.Amount) int64 {
	return min(int64(a.Over(gputime.PerGPU*1_000_000)), mostService)
}

// learn adds what a job took that has ended. It costs O([MostServices]).
func (s *services) learn(took int64) {
	if s.given || took == 0 {
		return
	}
	if len(s.learned) < MostServices {
		s.learned = append(s.learned, took)
	} else {
		i, _ := slices.BinarySearch(s.samples, s.learned[s.oldest])
		s.samples = slices.Delete(s.samples, i, i+1)
		s.learned[s.oldest] = took
		s.oldest = (s.oldest + 1) % MostServices
	}
	i, _ := slices.BinarySearch(s.samples, took)
	s.samples = slices.Insert(s.samples, i, took)
	s.addUp()
}

func (s *services) addUp() {
	s.sums = append(s.sums[:0], 0)
	for i, t := range s.samples {
		s.sums = append(s.sums, s.sums[i]+t)
	}
}

// rank returns 1 / index for a job that has received a: the GPU time that jobs like it are expected to receive for each that ends within the
// quantum, rounded down, at most neverEnds. A quantum of 0 is the best one.
func (s *services) rank(a, quantum int64) int64 {
	from := s.after(a)
	if quantum > 0 {
		return s.rankUntil(a, quantum, from, s.after(cluster.Plus(a, quantum)))
	}
	best := int64(neverEnds)
	for to := from + 1; to <= len(s.samples); to++ {
		best = min(best, s.rankUntil(a, s.samples[to-1]-a, from, to))
	}
	return best
}

// after returns the place of the first sample that is greater.
func (s *services) after(a int64) int {
	i, _ := slices.BinarySearchFunc(s.samples, a, func(t, a int64) int { return cmp.Or(cmp.Compare(t, a), -1) })
	return i
}

// rankUntil is rank, where the samples in from..to end within the quantum.
func (s *services) rankUntil(a, quantum int64, from, to int) int64 {
	if from == to {
		return neverEnds
	}
	ends := int64(to - from)
	cost := s.sums[to] - s.sums[from] - ends*a
	cost = cluster.Plus(cost, cluster.Times(len(s.samples)-to, quantum))
	return min(cost/ends, neverEnds)
}

// gittins returns by what a job is ordered: its level, and its rank there.
func (lt *longTerm) gittins(j *job) int64 {
	received := j.service.Received(lt.ledger)
	levels, quantum := lt.policy.Fairness.Levels, int64(0)
	level := lt.policy.Fairness.level(received)
	switch {
	case len(levels) == 0:
	case level == len(levels):
		quantum = endless
	case level == 0:
		quantum = int64(levels[0] / (Second / 1000))
	default:
		quantum = int64((levels[level] - levels[level-1]) / (Second / 1000))
	}
	return int64(level)<<levelShift + lt.services.rank(inMillis(received), quantum)
}

// level returns the level of a job that has received so much.
func (f *Fairness) level(received gputime.Amount) int {
	attained := received.Over(gputime.PerGPU)
	if i := slices.IndexFunc(f.Levels, func(from Time) bool { return attained < from }); i >= 0 {
		return i
	}
	return len(f.Levels)
}

// ended learns what a job took in all.
func (lt *longTerm) ended(j *job) {
	if lt.ledger != nil && !j.Foreign && lt.policy.jobOrder() == GittinsIndex {
		lt.services.learn(inMillis(j.service.Received(lt.ledger)))
	}
}
