package workload

import (
	"math/rand/v2"
	"slices"

	"github.com/muster-sched/muster/core"
)

// Spread is the distribution of a quantity: over the whole workload, and over the jobs of
// each kind, class and size that has some, in their order. Kinds are spelled as by
// Kind.String, sizes as in Summary.Sizes.
type Spread struct {
	Quantiles
	ByKind  []Distribution `json:"by_kind"`
	ByClass []Distribution `json:"by_class"`
	BySize  []Distribution `json:"by_size"`
}

// Distribution is the quantiles of a quantity with a name.
type Distribution struct {
	Name string `json:"name"`
	Quantiles
}

// Quantiles are exact up to 50,000 values, and otherwise come from a sample of 50,000.
// Mean and Max are always exact.
type Quantiles struct {
	Mean float64 `json:"mean"`
	P10  float64 `json:"p10"`
	P25  float64 `json:"p25"`
	P50  float64 `json:"p50"`
	P75  float64 `json:"p75"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// spread gathers a Spread.
type spread struct {
	all     sample
	kinds   [len(core.Kinds)]sample
	classes [2]sample
	sizes   [len(sizeClasses)]sample
}

// group is a job's kind, class and size class, as indices.
type group struct{ kind, class, size int }

func (s *spread) add(rng *rand.Rand, v float64, of group) {
	for _, to := range []*sample{&s.all, &s.kinds[of.kind], &s.classes[of.class], &s.sizes[of.size]} {
		to.add(rng, v)
	}
}

func (s *spread) result() Spread {
	return Spread{
		Quantiles: s.all.quantiles(),
		ByKind:    distributions(s.kinds[:], func(i int) string { return core.Kinds[i] }),
		ByClass:   distributions(s.classes[:], func(i int) string { return core.Class(i).String() }),
		BySize:    distributions(s.sizes[:], func(i int) string { return sizeClasses[i] }),
	}
}

// distributions returns the quantiles of the samples that have values.
func distributions(of []sample, name func(int) string) []Distribution {
	var list []Distribution
	for i := range of {
		if of[i].n > 0 {
			list = append(list, Distribution{name(i), of[i].quantiles()})
		}
	}
	return list
}

// sample keeps at most sampleSize of the added values, each with the same probability
// (Vitter's algorithm R).
type sample struct {
	kept     []float64
	n        int
	sum, max float64
}

const sampleSize = 50_000

func (s *sample) add(rng *rand.Rand, v float64) {
	s.n++
	s.sum += v
	s.max = max(s.max, v)
	if len(s.kept) < sampleSize {
		s.kept = append(s.kept, v)
	} else if i := rng.IntN(s.n); i < sampleSize {
		s.kept[i] = v
	}
}

func (s *sample) quantiles() Quantiles {
	if s.n == 0 {
		return Quantiles{}
	}
	slices.Sort(s.kept)
	at := func(p float64) float64 { return s.kept[int(p*float64(len(s.kept)-1)+0.5)] }
	return Quantiles{
		Mean: s.sum / float64(s.n), P10: at(0.1), P25: at(0.25), P50: at(0.5), P75: at(0.75), P90: at(0.9), P99: at(0.99), Max: s.max,
	}
}
