package plan

import (
	"math"
	"math/rand/v2"
	"slices"
)

// search is simulated annealing over plans of items (Kirkpatrick, Gelatt and Vecchi, Science 1983):
//
//  1. It begins with the mixture that attains the bound, as one plan: the first layers as in one of its plans, the next as in
//     another.
//  2. Every other step draws an item and another GPU for it. The others copy up to 16 items in a row from a plan of the
//     mixture: its transfers are worth their time, so that only those at the ends of the row may not be.
//  3. Its energy is a smooth maximum of the loads: the sum of their 32nd powers, each times the weight
//     that the bound gives the load. Where all loads are equal, as they are in the mixture, a step thus costs what it costs there.
//     Bytes beyond the memory make it larger.
//  4. A step that lowers the energy is taken. One that raises it is taken by chance, more rarely as
//     the temperature falls.
//  5. The answer is the plan on the way whose largest load was least, of those that fit the memory.
//  6. Problems of few items are searched several times. Where memory is scarce, and the answer not closeEnough to the bound, a
//     second search begins with the best plan known.
//
// The random numbers have a fixed seed, so that the same problem has the same answer.
type search struct {
	in    *instance
	like  [][]int      // the plans of the mixture
	near  [][]neighbor // of each item
	at    []int
	loads []float64 // over scale, so that they are about 1
	held  []int64   // bytes on each GPU
	users []int     // [gpu*buffers+buffer], how many items on the GPU use it
	scale float64
	// weight is of each load, from the bound; those without keep a little, so that they do not grow freely.
	weight []float64
	one    [1]int
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
	// each is worth more than that, the search begins hotter, by few/items.
	hot, cold, few = 0.1, 0.02, 20
	// stepsPerItem are for two GPUs, and leastSteps and mostSteps for any problem.
	stepsPerItem          = 2000
	leastSteps, mostSteps = 20_000, 20_000_000
	epochs                = 100 // between them the temperature changes
	longest               = 16  // items in a row that a step copies
	// goodEnough is the gap at which the search ends. Measured times of kernels vary by a hundred times as much.
	goodEnough = 1e-4
	// closeEnough is the gap at which memory is not what keeps the answer from the bound.
	closeEnough = 0.02
	// again/items is how often a problem is searched.
	again = 800
	// aTransfer is what fewer transfers may cost of the objective.
	aTransfer = 0.001
	// firmly is what bytes beyond the memory cost: a factor of the energy, times their share of the memory.
	firmly = 1000
	// leastWeight is of all loads together.
	leastWeight = 0.02
)

func newSearch(in *instance, start []int, like [][]int, weights []float64) *search {
	n, r := in.gpus, in.resources()
	s := &search{in: in, like: like, near: make([][]neighbor, in.items), at: slices.Clone(start), loads: in.loads(start), held: in.memory(start), users: make([]int, in.gpus*len(in.p.Buffers))}
	if s.scale = slices.Max(s.loads); s.scale == 0 {
		s.scale = 1
	}
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
	return sum * (1 + firmly*beyond)
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
		now = s.energy(s.loads, s.beyond(s.held))
		for range steps / epochs {
			item, to := s.draw(r.Uint64())
			copy(next, s.loads)
			copy(held, s.held)
			was = append(was[:0], s.at[item:item+len(to)]...)
			for i, g := range to {
				s.move(item+i, g, next, held)
			}
			beyond := s.beyond(held)
			e := s.energy(next, beyond)
			if e > now*luck[r.Uint64()&255] {
				for i, g := range was {
					s.place(item+i, g)
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

// draw turns random bits into a step: the first of some items in a row, and a GPU for each.
func (s *search) draw(bits uint64) (item int, to []int) {
	item = int(bits >> 32 * uint64(s.in.items) >> 32)
	if bits&1 == 0 {
		g := s.at[item] + 1 + int(bits>>16&0xffff*uint64(s.in.gpus-1)>>16)
		if g >= s.in.gpus {
			g -= s.in.gpus
		}
		s.one[0] = g
		return item, s.one[:]
	}
	length := 1 + int(bits>>1&0xff*longest>>8)
	like := s.like[bits>>9&0xff*uint64(len(s.like))>>8]
	return item, like[item:min(item+length, len(like))]
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

// improve returns the best plan of some that are known, and of what it finds: one that fits
// the memory, if there is one, of those the one with the least objective.
func improve(in *instance, known [][]int, r *relaxation) []int {
	best := known[0]
	over, seconds := in.over(in.memory(best)), in.objectiveOf(best)
	keep := func(at []int) {
		o, x := in.over(in.memory(at)), in.objectiveOf(at)
		if o < over || o == over && x < seconds {
			best, over, seconds = at, o, x
		}
	}
	for _, at := range known[1:] {
		keep(at)
	}
	start := in.spliced(r)
	keep(start)
	within := func(gap float64) bool { return over == 0 && seconds <= r.bound*(1+gap) }
	// A search of some dozens of items may end in a plan of which no step leads on, and costs little. Of fewer, one suffices.
	times := 1
	if in.items > few {
		times = max(1, again/in.items)
	}
	for seed := uint64(0); seed < uint64(2*times) && !within(goodEnough); seed++ {
		from := start
		if seed%2 == 1 {
			if !in.limited || within(closeEnough) {
				continue
			}
			from = best
		}
		if at := newSearch(in, from, r.plans, r.weights).run(r.bound*(1+goodEnough), 2+seed); at != nil {
			keep(at)
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
