package plan

import "slices"

// state is a plan of items whose loads and memory follow its moves.
type state struct {
	in             *instance
	at             []int
	loads          []float64
	held           []int64
	users          []int // [gpu*buffers+buffer], how many items on the GPU use it
	scale          float64
	items, to, was []int // scratch of moves
}

func newState(in *instance, at []int, scale float64) *state {
	s := &state{in: in, at: slices.Clone(at), loads: in.loads(at), held: in.memory(at), scale: scale}
	s.items, s.to, s.was = make([]int, 16), make([]int, 16), make([]int, in.items)
	s.users = make([]int, in.gpus*len(in.p.Buffers))
	for i, g := range at {
		for _, b := range in.buffers[i] {
			s.users[g*len(in.p.Buffers)+b]++
		}
	}
	return s
}

// move puts an item on a GPU.
func (s *state) move(item, g int) {
	in, was := s.in, s.at[item]
	in.addTime(s.loads, item, was, -1)
	in.addTime(s.loads, item, g, 1)
	for _, i := range in.incident[item] {
		a := &in.arcs[i]
		if a.from == item {
			in.addArc(s.loads, a, was, s.at[a.to], -1)
			in.addArc(s.loads, a, g, s.at[a.to], 1)
		} else {
			in.addArc(s.loads, a, s.at[a.from], was, -1)
			in.addArc(s.loads, a, s.at[a.from], g, 1)
		}
	}
	for _, b := range in.buffers[item] {
		n := len(in.p.Buffers)
		if s.users[was*n+b]--; s.users[was*n+b] == 0 {
			s.held[was] -= in.p.Buffers[b]
		}
		if s.users[g*n+b]++; s.users[g*n+b] == 1 {
			s.held[g] += in.p.Buffers[b]
		}
	}
	s.at[item] = g
}

// value orders plans: fewer bytes over the memory first, then a sum of high powers of the loads,
// in which the largest counts most and the next ones still count.
type value struct {
	over int64
	sum  float64
}

func (a value) less(b value) bool {
	return a.over < b.over || a.over == b.over && a.sum < b.sum*(1-1e-9)
}

func (s *state) value() value {
	v := value{over: s.in.over(s.held)}
	for _, x := range s.loads {
		x /= s.scale
		x *= x
		x *= x
		x *= x
		x *= x
		v.sum += x * x // the 32nd power
	}
	return v
}

// try applies moves, and takes them back unless they improve the plan.
func (s *state) try(items []int, to []int) bool {
	was, before := s.was[:len(items)], s.value()
	for n, i := range items {
		was[n] = s.at[i]
		s.move(i, to[n])
	}
	if s.value().less(before) {
		return true
	}
	for n, i := range items {
		s.move(i, was[n])
	}
	return false
}

const mostPasses = 30

// toward takes over parts of another plan while that improves: the items that the two place
// differently fall into components that arcs connect, and a component moves as one.
func (s *state) toward(other []int) {
	parts := s.components(other)
	for range mostPasses {
		better := false
		for _, part := range parts {
			to := make([]int, len(part))
			for n, i := range part {
				to[n] = other[i]
			}
			if s.at[part[0]] != to[0] && s.try(part, to) {
				better = true
			}
		}
		if !better {
			return
		}
	}
}

// components returns the components of the items that another plan places differently, in the
// order of their first items.
func (s *state) components(other []int) [][]int {
	var all [][]int
	seen := make([]bool, s.in.items)
	for i := range s.at {
		if seen[i] || s.at[i] == other[i] {
			continue
		}
		seen[i] = true
		part := []int{i}
		for n := 0; n < len(part); n++ {
			for _, a := range s.in.incident[part[n]] {
				for _, j := range [2]int{s.in.arcs[a].from, s.in.arcs[a].to} {
					if !seen[j] && s.at[j] != other[j] {
						seen[j] = true
						part = append(part, j)
					}
				}
			}
		}
		all = append(all, part)
	}
	return all
}

// spans are how many items in a row single moves at once: what lies between two cuts moves
// without a new cut.
var spans = []int{1, 2, 3, 4, 6, 8, 12, 16}

// single moves items, alone and several in a row, while that improves.
func (s *state) single() {
	for range mostPasses {
		better := false
		for _, length := range spans {
			for first := 0; first+length <= s.in.items; first++ {
				for g := range s.in.gpus {
					items, to := s.items[:length], s.to[:length]
					for n := range items {
						items[n], to[n] = first+n, g
					}
					if s.try(items, to) {
						better = true
					}
				}
			}
		}
		if !better {
			return
		}
	}
}

// swapsTried bounds the pairs that swap tries: an item may take the place of each, up to this.
const swapsTried = 60_000

// swap exchanges items of two GPUs while that improves, and reports whether it did.
func (s *state) swap() bool {
	items, to := s.items[:2], s.to[:2]
	better, tried := false, 0
	stride := max(1, s.in.items*s.in.items/2/swapsTried) // spreads the pairs over all items
	for d := 1; d < s.in.items && tried < swapsTried; d += stride {
		for i := 0; i+d < s.in.items; i++ {
			j := i + d
			if s.at[i] == s.at[j] {
				continue
			}
			tried++
			items[0], items[1], to[0], to[1] = i, j, s.at[j], s.at[i]
			if s.try(items, to) {
				better = true
			}
		}
	}
	return better
}

// improve searches from each start, and on the way from one to another, and returns the best plan.
// The result is never worse than a start.
func improve(in *instance, starts [][]int) []int {
	scale := slices.Max(in.loads(starts[0]))
	if scale == 0 {
		return starts[0]
	}
	var all []*state
	for i, at := range starts {
		s := newState(in, at, scale)
		for j, other := range starts {
			if i != j {
				s.toward(other)
			}
		}
		s.single()
		all = append(all, s)
	}
	slices.SortStableFunc(all, func(a, b *state) int {
		switch {
		case a.value().less(b.value()):
			return -1
		case b.value().less(a.value()):
			return 1
		}
		return 0
	})
	for _, s := range all[:min(len(all), 2)] {
		for range 3 {
			if !s.swap() {
				break
			}
			s.single()
		}
	}
	best := all[0]
	for _, s := range all[1:min(len(all), 2)] {
		if s.value().less(best.value()) {
			best = s
		}
	}
	return best.at
}
