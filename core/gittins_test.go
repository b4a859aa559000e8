package core

import (
	"slices"
	"testing"
)

// By hand: three of three jobs take 4, 8 and 12 (thousand milliseconds). One that has received nothing ends within 4 with probability 1/3, and then has received
// 4 in any case: 1/12. Within 8 it is 2/3 for (4 + 8 + 8) / 3, which is 1/10, and within 12 it is 1 for 8: the best quantum is 12, and the index 1/8.
func TestGittinsIndex(t *testing.T) {
	s := newServices([]Time{12 * Second, 4 * Second, 8 * Second})
	for _, c := range []struct{ received, quantum, want int64 }{
		{0, 4000, 12_000}, {0, 8000, 10_000}, {0, 12_000, 8000}, {0, endless, 8000}, {0, 0, 8000},
		{0, 3999, neverEnds}, // none ends so soon
		{2000, 2000, 6000},   // 1/3 for 2
		{2000, 6000, 7000},   // 2/3 for (2 + 6 + 6) / 3
		{2000, 0, 6000},      // 1 for (2 + 6 + 10) / 3, as well as the first
		{4000, 4000, 8000},   // the first job has ended: 1/2 for 4
		{4000, 0, 6000},      // 1 for (4 + 8) / 2
		{11_999, 0, 1},
		{12_000, 0, neverEnds}, {12_000, endless, neverEnds}, // none took longer
	} {
		if got := s.rank(c.received, c.quantum); got != c.want {
			t.Errorf("received %d, quantum %d: 1 / index is %d, want %d", c.received, c.quantum, got, c.want)
		}
	}
	if s.learn(1); len(s.samples) != 3 {
		t.Errorf("a distribution that is given has learned: %v", s.samples)
	}
}

// What is learned is what the last jobs took.
func TestServicesLearned(t *testing.T) {
	s := newServices(nil)
	if got := s.rank(0, 0); got != neverEnds {
		t.Errorf("1 / index is %d before anything is known", got)
	}
	var all []int64
	for i := range int64(2500) {
		took := 1 + i*i%977
		all = append(all, took)
		s.learn(took)
	}
	s.learn(0) // never started
	want := slices.Sorted(slices.Values(all[len(all)-MostServices:]))
	sum := int64(0)
	for _, took := range want {
		sum += took
	}
	if !slices.Equal(s.samples, want) || s.sums[MostServices] != sum {
		t.Errorf("learned %v, %d in all; want %v, %d", s.samples, s.sums[MostServices], want, sum)
	}
}
