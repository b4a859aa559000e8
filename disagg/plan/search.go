package plan

import (
	"math"
	"math/rand/v2"
	"slices"
)

// search is simulated annealing over plans of items (Kirkpatrick, Gelatt and Vecchi, Science 1983):
//
//  1. A step draws an item, or a few in a row, and another GPU for them. What lies between two transfers
//     moves without a new one.
//  2. Its energy is a smooth maximum of the loads: the sum of their 32nd powers, each times the weight
//     that the bound gives the load. Where all loads are equal, as they are in the mixture that attains
//     the bound, a step thus costs what it costs there.
//  3. A step that lowers the energy is taken. One that raises it is taken by chance, more rarely as
//     the temperature falls.
//  4. The answer is the plan on the way whose largest load was least, of those that fit the memory.
//  5. Problems of few items are searched several times.
//  6. Where memory is scarce, what the bound leads to may be far from any plan that fits. Unless the answer is closeEnough to the
//     bound, a second search begins with the best plan that is known to fit, and leaves the memory for no more than a few steps.
//
// The random numbers have a fixed seed, so that the same problem has the same answer.
type search struct {
	in    *instance
	near  [][]neighbor // of each item
	at    []int
	loads []float64 // over scale, so that they are about 1
	held  []int64   // bytes on each GPU
	users []int     // [gpu*buffers+buffer], how many items on the GPU use it
	scale float64
	// weight is of each load, from the bound; those without keep a little, so that they do not grow freely.
	weight []float64
	// softly and firm are what bytes beyond the memory cost at first and now.
	softly, firm float64
}

// neighbor is an arc as the item at one end knows it: cost[(u*gpus+v)*resources+r] is what it adds to load r
// if the item is on u and the other on v.
type neighbor struct {
	item int
	cost []float64
}

const (
	// hot and cold are the first and the last temperature, times the items: by how much, as a share of it, a step may
	// let the largest load grow; one item is worth about 1/items of it. With few items, of which
	// each is worth more than that and may fill a memory, the search begins hotter, by few/items.
	hot, cold, few = 0.1, 0.02, 20
	// stepsPerItem are for two GPUs, and leastSteps and mostSteps for any problem.
	stepsPerItem          = 2000
	leastSteps, mostSteps = 20_000, 20_000_000
	epochs                = 100 // between them the temperature changes
	longest               = 16  // items that a step moves
	// goodEnough is the gap at which the search ends. Measured times of kernels vary by a hundred times as much.
	goodEnough = 1e-4
	// closeEnough is the gap at which memory is not what keeps the answer from the bound.
	closeEnough = 0.02
	// again/items is how often a problem is searched.
	again = 400
	// aTransfer is what fewer transfers may cost of the objective.
	aTransfer = 0.001
	// softly and firmly are what bytes beyond the memory cost at first and in the end: a factor of the energy, times
	// their share of the memory.
	softly, firmly = 1, 1000
	// leastWeight is of all loads together.
	leastWeight = 0.02
)

func newSearch(in *instance, start []int, weights []float64) *search {
	n, r := in.gpus, in.resources()
	s := &search{in: in, near: make([][]neighbor, in.items), at: slices.Clone(start), loads: in.loads(start), held: in.memory(start), users: make([]int, in.gpus*len(in.p.Buffers)), softly: softly}
	s.scale = slices.Max(s.loads)
	for i := range s.loads {
		s.loads[i] /= s.scale
	}
	for i := range s.loads {
		s.weight = append(s.weight, leastWeight/float64(r))
		if weights != nil {
			s.weight[i] += weights[i]
		}
	}
	for i, g := range start {
		for _, b := range in.buffers[i] {
			s.users[g*len(in.p.Buffers)+b]++
		}
	}
	for a := range in.arcs {
		arc := &in.arcs[a]
		there, back := make([]float64, n*n*r), make([]float64, n*n*r)
		for u := range n {
			for v := range n {
				in.addArc(there[(u*n+v)*r:(u*n+v+1)*r], arc, u, v, 1/s.scale)
				in.addArc(back[(v*n+u)*r:(v*n+u+1)*r], arc, u, v, 1/s.scale)
			}
		}
		s.near[arc.from] = append(s.near[arc.from], neighbor{arc.to, there})
		s.near[arc.to] = append(s.near[arc.to], neighbor{arc.from, back})
	}
	return s
}

// energy is the smooth maximum of loads, larger if bytes are beyond the memory, as a share of it.
func (s *search) energy(loads []float64, beyond float64) (sum float64) {
	for i, x := range loads {
		x *= x
		x *= x
		x *= x
		x *= x
		sum += s.weight[i] * x * x // the 32nd power
	}
	return sum * (1 + s.firm*beyond)
}

// run searches, and returns the best plan that fits and was not the start; nil if there was none.
func (s *search) run(stop float64, seed uint64) (best []int) {
	in, n := s.in, s.in.gpus
	steps := max(leastSteps, min(mostSteps, stepsPerItem*in.items*(n-1)*(n-1)))
	r := rand.New(rand.NewPCG(1, seed))
	next, held := make([]float64, len(s.loads)), make([]int64, n)
	least, now := math.Inf(1), 0.0
	items := float64(in.items)
	first := (hot + few/items) / items
	was := make([]int, 0, longest)
	var luck [256]float64 // by which factor the energy may grow, by chance
	for epoch := range epochs {
		t := first * math.Pow(cold/items/first, float64(epoch)/(epochs-1))
		for i := range luck {
			luck[i] = math.Pow((float64(i)+0.5)/256, -32*t)
		}
		s.firm = s.softly * math.Pow(firmly/s.softly, float64(epoch)/(epochs-1))
		now = s.energy(s.loads, s.beyond(s.held))
		for range steps / epochs {
			item, length, g := s.draw(r.Uint64())
			copy(next, s.loads)
			copy(held, s.held)
			was = was[:0]
			for i := item; i < item+length; i++ {
				was = append(was, s.at[i])
				s.move(i, g, next, held)
			}
			beyond := s.beyond(held)
			e := s.energy(next, beyond)
			if e > now*luck[r.Uint64()&255] {
				for i, u := range was {
					s.place(item+i, u)
				}
				continue
			}
			now = e
			s.loads, next = next, s.loads
			s.held, held = held, s.held
			if w := slices.Max(s.loads); w < least && beyond == 0 {
				least, best = w, append(best[:0], s.at...)
				if w*s.scale <= stop {
					return best
				}
			}
		}
	}
	return best
}

// draw turns random bits into a step: one item in most, else up to longest in a row, to a GPU that the first is not on.
func (s *search) draw(bits uint64) (item, length, g int) {
	n := s.in.gpus
	item, length = int(bits>>32*uint64(s.in.items)>>32), 1
	if bits&7 == 0 {
		length = min(2+int(bits>>3&0xff*(longest-1)>>8), s.in.items-item)
	}
	g = s.at[item] + 1
	if n > 2 {
		g += int(bits >> 16 & 0xffff * uint64(n-1) >> 16)
	}
	if g >= n {
		g -= n
	}
	return item, length, g
}

// move puts an item on a GPU, and updates loads and bytes.
func (s *search) move(item, g int, loads []float64, held []int64) {
	n, u := s.in.gpus, s.at[item]
	if u == g {
		return
	}
	s.in.addTime(loads, item, u, -1/s.scale)
	s.in.addTime(loads, item, g, 1/s.scale)
	for i := range s.near[item] {
		b := &s.near[item][i]
		v := s.at[b.item]
		was, is := b.cost[(u*n+v)*len(loads):][:len(loads)], b.cost[(g*n+v)*len(loads):][:len(loads)]
		for r := range loads {
			loads[r] += is[r] - was[r]
		}
	}
	if s.in.limited {
		for _, b := range s.in.buffers[item] {
			if s.users[u*len(s.in.p.Buffers)+b] == 1 {
				held[u] -= s.in.p.Buffers[b]
			}
			if s.users[g*len(s.in.p.Buffers)+b] == 0 {
				held[g] += s.in.p.Buffers[b]
			}
		}
	}
	s.place(item, g)
}

// place puts an item on a GPU, and counts who uses its buffers there.
func (s *search) place(item, g int) {
	if s.in.limited {
		for _, b := range s.in.buffers[item] {
			s.users[s.at[item]*len(s.in.p.Buffers)+b]--
			s.users[g*len(s.in.p.Buffers)+b]++
		}
	}
	s.at[item] = g
}

// beyond is the bytes that GPUs hold beyond their memory, as shares of it, summed.
func (s *search) beyond(held []int64) (sum float64) {
	if !s.in.limited {
		return 0
	}
	for g, h := range held {
		sum += max(0, s.in.beyond(g, float64(h)))
	}
	return sum
}

// improve searches from the first start, and returns the best plan of what it finds and the starts: one that fits
// the memory, if there is one, of those the one with the least objective.
func improve(in *instance, starts [][]int, r *relaxation) []int {
	best := starts[0]
	over, seconds := in.over(in.memory(best)), in.objectiveOf(best)
	keep := func(at []int) {
		o, x := in.over(in.memory(at)), in.objectiveOf(at)
		if o < over || o == over && x < seconds {
			best, over, seconds = at, o, x
		}
	}
	for _, at := range starts[1:] {
		keep(at)
	}
	if over == 0 && seconds <= r.bound*(1+goodEnough) || in.objectiveOf(starts[0]) == 0 {
		return best
	}
	// A search of some dozens of items may end in a plan of which no step leads on, and costs little. Of fewer, one suffices.
	times := 1
	if in.items > few {
		times = max(1, again/in.items)
	}
	fits := best
	for seed := range uint64(times) {
		search := newSearch(in, starts[0], r.weights)
		if at := search.run(r.bound*(1+goodEnough), 2+seed); at != nil {
			keep(slices.Clone(at))
		}
		if in.limited && in.over(in.memory(fits)) == 0 && seconds > r.bound*(1+closeEnough) {
			search = newSearch(in, fits, r.weights)
			search.softly = firmly
			if at := search.run(r.bound*(1+goodEnough), 2+seed); at != nil {
				keep(slices.Clone(at))
			}
		}
		if seconds <= r.bound*(1+goodEnough) {
			break
		}
	}
	return in.quieter(best)
}

// quieter returns a plan with fewer transfers whose objective is larger by at most aTransfer for all of them: while a plan runs, each is a time at
// which one GPU may wait for the other, and the objective counts only what it takes. Items in a row on one GPU, which have others before and behind them, are put where those are, the
// fewest first.
func (in *instance) quieter(at []int) []int {
	best, over := slices.Clone(at), in.over(in.memory(at))
	most := in.objectiveOf(at) * (1 + aTransfer)
	for length := 1; length <= in.items/4; {
		moved := false
		for i := 1; i+length < in.items; i++ {
			g := best[i-1]
			if g == best[i] || best[i+length] == best[i] || slices.ContainsFunc(best[i:i+length], func(o int) bool { return o != best[i] }) {
				continue
			}
			next := slices.Clone(best)
			for j := i; j < i+length; j++ {
				next[j] = g
			}
			if in.transfers(next) < in.transfers(best) && in.objectiveOf(next) <= most && in.over(in.memory(next)) <= over {
				best, moved = next, true
			}
		}
		if length++; moved {
			length = 1
		}
	}
	return best
}

// transfers counts the arcs between GPUs.
func (in *instance) transfers(at []int) (n int) {
	for i := range in.arcs {
		if at[in.arcs[i].from] != at[in.arcs[i].to] {
			n++
		}
	}
	return n
}
