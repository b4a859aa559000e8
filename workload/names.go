package workload

import (
	"hash/maphash"
	"slices"
)

// nameSet reports whether a name has been added before. Names that end in consecutive
// numbers, as in most traces, cost nothing. For others it keeps 64-bit hashes, some 16
// bytes each, and mistakes two names with the same hash for one: among ten million names
// the probability of that is one in 400,000.
type nameSet struct {
	// runs holds, for the text before a number and the number's digits, which
	// numbers have been added, in order.
	runs   map[series][]run
	hashes map[uint64]struct{}
	seed   maphash.Seed
}

// series is a set of names that differ by a number of fixed width at their end.
type series struct {
	prefix string
	digits int
}

// run is the numbers from..to-1.
type run struct{ from, to int64 }

// Bounds of what is kept as runs, beyond which names are hashed.
const (
	mostSeries = 64
	mostRuns   = 1024
)

func newNameSet() *nameSet {
	return &nameSet{runs: make(map[series][]run), hashes: make(map[uint64]struct{}), seed: maphash.MakeSeed()}
}

// add adds a name and reports whether it is new.
func (s *nameSet) add(name string) bool {
	key, n := numbered(name)
	runs, known := s.runs[key]
	i, found := slices.BinarySearchFunc(runs, n, func(r run, n int64) int {
		switch {
		case r.to <= n:
			return -1
		case r.from > n:
			return 1
		}
		return 0
	})
	if found {
		return false
	}
	if len(s.hashes) > 0 {
		if _, found := s.hashes[maphash.String(s.seed, name)]; found {
			return false
		}
	}
	switch after := i > 0 && runs[i-1].to == n; {
	case after && i < len(runs) && runs[i].from == n+1:
		runs[i-1].to = runs[i].to
		s.runs[key] = slices.Delete(runs, i, i+1)
	case after:
		runs[i-1].to++
	case i < len(runs) && runs[i].from == n+1:
		runs[i].from--
	case key.digits == 0 || len(runs) == mostRuns || !known && len(s.runs) == mostSeries:
		s.hashes[maphash.String(s.seed, name)] = struct{}{}
	default:
		s.runs[key] = slices.Insert(runs, i, run{n, n + 1})
	}
	return true
}

// numbered returns the series of a name and its number in it; a series of 0 digits if the
// name does not end in a digit.
func numbered(name string) (series, int64) {
	const most = 18 // digits of any int64
	start, n, scale := len(name), int64(0), int64(1)
	for start > 0 && len(name)-start < most && name[start-1] >= '0' && name[start-1] <= '9' {
		start--
		n += int64(name[start]-'0') * scale
		scale *= 10
	}
	return series{name[:start], len(name) - start}, n
}
