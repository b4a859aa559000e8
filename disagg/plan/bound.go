package plan

import "slices"

// relaxation is the Lagrangian relaxation of an instance. For weights of the loads whose sum is
// 1, the least weighted sum over all plans is at most the least maximum: a bound. It holds as well
// if each request may use another plan, so for independent replicas, too: the loads of a mixture
// are the mean of the loads of its plans.
type relaxation struct {
	in    *instance
	solve func(*energy) ([]int, float64)
	e     energy

	bound   float64   // the best so far, seconds
	columns [][]int   // the plans seen
	weights []float64 // of the loads, that give the bound
	support []int     // the columns of the last mixture, the largest share first
}

const mostColumns = 150

// relax maximizes the bound by cutting planes: each plan that is optimal under some weights cuts
// off weights under which it is cheap. It starts with the given plans.
func relax(in *instance, start [][]int) *relaxation {
	r := &relaxation{in: in}
	r.e.item = make([]float64, in.items*in.gpus)
	r.e.arc = make([]float64, len(in.arcs)*in.gpus*in.gpus)
	if in.gpus == 2 {
		r.solve = newCutter(in).solve
	} else {
		r.solve = newMessenger(in).solve
	}
	unit := slices.Max(in.loads(start[0])) // so that the loads of the master are about 1
	if unit == 0 {
		unit = 1
	}
	m := &master{resources: in.resources(), most: 100}
	if in.limited {
		m.memories = in.gpus
	}
	for _, at := range start {
		m.rows = append(m.rows, r.row(at, unit))
		r.columns = append(r.columns, slices.Clone(at))
	}
	stalled := 0
	for len(r.columns) < mostColumns {
		weights, mixture, value := m.solve()
		r.support = support(mixture)
		if value*unit-r.bound <= closeTo*r.bound || stalled == 20 {
			break
		}
		ask := weights
		if r.weights != nil && stalled%2 == 0 { // half way to the best weights the planes cut deeper
			ask = make([]float64, len(weights))
			for i := range ask {
				ask[i] = (weights[i] + r.weights[i]) / 2
			}
		}
		at, bound := r.least(ask, unit)
		stalled++
		if bound > r.bound {
			if bound > r.bound*(1+closeTo) {
				stalled = 0
			}
			r.bound, r.weights = bound, ask
		}
		m.rows = append(m.rows, r.row(at, unit))
		r.columns = append(r.columns, at)
	}
	return r
}

// row returns what the master needs about a plan, in units of seconds. Its bytes are those of the
// relaxed memory, in which each user of a buffer holds an equal part of it.
func (r *relaxation) row(at []int, unit float64) []float64 {
	row := r.in.loads(at)
	for i := range row {
		row[i] /= unit
	}
	if !r.in.limited {
		return row
	}
	held := make([]float64, r.in.gpus)
	for i, g := range at {
		held[g] += r.in.part(i)
	}
	for g := range held {
		row = append(row, r.in.beyond(g, held[g]))
	}
	return row
}

// part is the bytes of an item's buffers, each divided by its users: on a GPU, the sum over items
// is at most the bytes that it holds.
func (in *instance) part(item int) (bytes float64) {
	for _, b := range in.buffers[item] {
		bytes += float64(in.p.Buffers[b]) / float64(in.users[b])
	}
	return bytes
}

// beyond is the bytes beyond a GPU's memory, as a share of it; without a limit 0.
func (in *instance) beyond(g int, held float64) float64 {
	m := float64(in.p.GPUs[g].Memory)
	if m == 0 {
		return 0
	}
	return held/m - 1
}

// least minimizes the weighted sum of loads, and returns a plan and the bound in seconds.
func (r *relaxation) least(weights []float64, unit float64) ([]int, float64) {
	in, n := r.in, r.in.gpus
	free := 0.0 // what plans that hold nothing would save
	for i := range in.items {
		part := in.part(i)
		for g := range n {
			w := weights[0]
			if in.objective == Throughput {
				w = weights[g]
			}
			r.e.item[i*n+g] = w * in.seconds[i*n+g]
			if m := in.p.GPUs[g].Memory; in.limited && m > 0 {
				r.e.item[i*n+g] += weights[in.resources()+g] * unit * part / float64(m)
			}
		}
	}
	for g := range n {
		if in.limited && in.p.GPUs[g].Memory > 0 {
			free += weights[in.resources()+g] * unit
		}
	}
	one := make([]float64, in.resources())
	for a := range in.arcs {
		for u := range n {
			for v := range n {
				clear(one)
				in.addArc(one, &in.arcs[a], u, v, 1)
				cost := 0.0
				for i, x := range one {
					cost += weights[i] * x
				}
				r.e.arc[(a*n+u)*n+v] = cost
			}
		}
	}
	at, bound := r.solve(&r.e)
	// The weights may sum to a little more than 1: rounding of the master.
	sum := 0.0
	for _, w := range weights[:in.resources()] {
		sum += w
	}
	return at, (bound - free) / max(1, sum)
}

// support returns the plans that a mixture uses, the largest share first, at most eight.
func support(mixture []float64) []int {
	var used []int
	for i, p := range mixture {
		if p > 1e-9 {
			used = append(used, i)
		}
	}
	slices.SortStableFunc(used, func(a, b int) int {
		switch {
		case mixture[a] > mixture[b]:
			return -1
		case mixture[a] < mixture[b]:
			return 1
		}
		return a - b
	})
	return used[:min(len(used), 8)]
}
