package plan

import "math"

// energy is a sum to minimize over plans: item[i*gpus+g] if item i is on g, and
// arc[(a*gpus+u)*gpus+v] if arc a leads from u to v. All are at least 0.
type energy struct {
	item, arc []float64
}

// of returns the energy of a plan.
func (e *energy) of(in *instance, at []int) (sum float64) {
	for i, g := range at {
		sum += e.item[i*in.gpus+g]
	}
	for a := range in.arcs {
		sum += e.arc[(a*in.gpus+at[in.arcs[a].from])*in.gpus+at[in.arcs[a].to]]
	}
	return sum
}

// messenger bounds an energy over plans on any number of GPUs by sequential tree-reweighted
// message passing (Kolmogorov, PAMI 2006), whose fixed points bound it almost as the linear
// program in its transport form does, and reads plans from the messages.
type messenger struct {
	in *instance
	// forward[a*gpus+v] is the message of arc a to its second item, backward that to its first.
	// They carry over from one energy to the next: any messages give a bound.
	forward, backward []float64
	gamma             []float64
	sum, scratch      []float64
}

const (
	mostSweeps = 60
	closeTo    = 1e-5 // of the bound: a plan that is as close counts as optimal
)

func newMessenger(in *instance) *messenger {
	n := len(in.arcs) * in.gpus
	m := &messenger{in: in, forward: make([]float64, n), backward: make([]float64, n), gamma: make([]float64, in.items), sum: make([]float64, in.gpus), scratch: make([]float64, in.gpus)}
	for i := range in.items {
		ahead := 0
		for _, a := range in.incident[i] {
			if in.arcs[a].from == i {
				ahead++
			}
		}
		m.gamma[i] = 1 / float64(max(ahead, len(in.incident[i])-ahead, 1))
	}
	return m
}

// solve returns the best plan that it reads, and a lower bound of the optimum.
func (m *messenger) solve(e *energy) ([]int, float64) {
	var best []int
	least, bound, was := math.Inf(1), 0.0, 0.0
	at := make([]int, m.in.items)
	for sweep := range mostSweeps {
		m.sweep(e, true, at)
		if found := e.of(m.in, at); found < least {
			least, best = found, append(best[:0], at...)
		}
		bound = max(bound, m.sweep(e, false, nil))
		if least-bound <= closeTo*bound || sweep%10 == 9 && bound-was <= closeTo*bound {
			break
		}
		if sweep%10 == 9 {
			was = bound
		}
	}
	return best, bound * (1 - 1e-9) // floats were summed
}

// sweep updates the messages of the items in their order, or in reverse, and returns the bound.
// Ahead it also reads a plan, if at is given.
func (m *messenger) sweep(e *energy, ahead bool, at []int) (bound float64) {
	in := m.in
	for n := range in.items {
		i := n
		if !ahead {
			i = in.items - 1 - n
		}
		copy(m.sum, e.item[i*in.gpus:(i+1)*in.gpus])
		if at != nil {
			at[i] = m.read(e, i, at)
		}
		for _, a := range in.incident[i] {
			for g, x := range m.to(a, i) {
				m.sum[g] += x
			}
		}
		bound += normalize(m.sum)
		for _, a := range in.incident[i] {
			if (in.arcs[a].from == i) == ahead {
				bound += m.update(e, a, i)
			}
		}
	}
	return bound
}

// to returns the message of arc a to its item i.
func (m *messenger) to(a, i int) []float64 {
	g := m.in.gpus
	if m.in.arcs[a].to == i {
		return m.forward[a*g : (a+1)*g]
	}
	return m.backward[a*g : (a+1)*g]
}

// update makes the message of arc a from item i, whose sum is m.sum, and returns by how much it
// raised the bound.
func (m *messenger) update(e *energy, a, i int) float64 {
	g := m.in.gpus
	from := m.in.arcs[a].from == i
	other := m.in.arcs[a].to
	if !from {
		other = m.in.arcs[a].from
	}
	back, out := m.to(a, i), m.to(a, other)
	for u := range g {
		m.scratch[u] = m.gamma[i]*m.sum[u] - back[u]
	}
	for v := range g {
		least := math.Inf(1)
		for u := range g {
			cost := e.arc[(a*g+u)*g+v]
			if !from {
				cost = e.arc[(a*g+v)*g+u]
			}
			least = min(least, m.scratch[u]+cost)
		}
		out[v] = least
	}
	return normalize(out)
}

// read chooses the GPU of item i, given those of the items before it.
func (m *messenger) read(e *energy, i int, at []int) int {
	g := m.in.gpus
	best, least := 0, math.Inf(1)
	for v := range g {
		cost := e.item[i*g+v]
		for _, a := range m.in.incident[i] {
			if m.in.arcs[a].to == i {
				cost += e.arc[(a*g+at[m.in.arcs[a].from])*g+v]
			} else {
				cost += m.backward[a*g+v]
			}
		}
		if cost < least {
			best, least = v, cost
		}
	}
	return best
}

// normalize subtracts the least element from all, and returns it.
func normalize(x []float64) float64 {
	least := x[0]
	for _, v := range x[1:] {
		least = min(least, v)
	}
	for i := range x {
		x[i] -= least
	}
	return least
}
