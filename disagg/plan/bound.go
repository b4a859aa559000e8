package plan

import (
	"cmp"
	"slices"
)

// relaxation is the Lagrangian relaxation of an instance. For weights of the loads whose sum is
// 1, the least weighted sum over all plans is at most the least maximum: a bound. It holds as well
// if each request may use another plan, so for independent replicas, too: the loads of a mixture
// are the mean of the loads of its plans.
type relaxation struct {
	in    *instance
	wide  *instance // with items for what GPUs hold, if memory is limited
	holds []holding // of each of those items
	solve func(*energy) ([]int, float64)
	e     energy

	bound   float64   // the best so far, seconds
	columns [][]int   // the plans seen
	weights []float64 // of the loads, that give the bound
	plans   [][]int   // of the last mixture, that of the largest share first
	shares  []float64 // of the requests, of each of plans
}

const mostColumns = 150

// holding is a buffer on a GPU. In the relaxation it is an item, which is on this GPU if the buffer is held there.
type holding struct {
	buffer, gpu int
}

func newRelaxation(in *instance) *relaxation {
	r := &relaxation{in: in, wide: in}
	if in.limited {
		r.hold()
	}
	r.e.item = make([]float64, r.wide.items*in.gpus)
	r.e.arc = make([]float64, len(r.wide.arcs)*in.gpus*in.gpus)
	if in.gpus == 2 {
		r.solve = newCutter(r.wide).solve
	} else {
		r.solve = newMessenger(r.wide).solve
	}
	return r
}

// hold adds an item for each buffer and each GPU with a limit, and an arc to it from each item that uses the buffer.
func (r *relaxation) hold() {
	in := r.in
	w := *in
	w.arcs, w.incident = slices.Clone(in.arcs), nil
	for _, arcs := range in.incident {
		w.incident = append(w.incident, slices.Clone(arcs))
	}
	for g, gpu := range in.p.GPUs {
		if gpu.Memory == 0 {
			continue
		}
		for b := range in.p.Buffers {
			r.holds = append(r.holds, holding{b, g})
			w.incident = append(w.incident, nil)
		}
		for i, buffers := range in.buffers {
			for _, b := range buffers {
				to := w.items + b
				w.incident[i], w.incident[to] = append(w.incident[i], len(w.arcs)), append(w.incident[to], len(w.arcs))
				w.arcs = append(w.arcs, arc{from: i, to: to})
			}
		}
		w.items += len(in.p.Buffers)
	}
	r.wide = &w
}

// relax maximizes the bound by cutting planes: each plan that is optimal under some weights cuts
// off weights under which it is cheap. It starts with the given plans.
func relax(in *instance, start [][]int) *relaxation {
	r := newRelaxation(in)
	r.plans, r.shares = start[:1], []float64{1}
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
		r.mix(mixture)
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

// row returns what the master needs about a plan, in units of seconds.
func (r *relaxation) row(at []int, unit float64) []float64 {
	row := r.in.loads(at)
	for i := range row {
		row[i] /= unit
	}
	if !r.in.limited {
		return row
	}
	for g, bytes := range r.in.memory(at) {
		row = append(row, r.in.beyond(g, float64(bytes)))
	}
	return row
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
		for g := range n {
			w := weights[0]
			if in.objective == Throughput {
				w = weights[g]
			}
			r.e.item[i*n+g] = w * in.seconds[i*n+g]
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
	// A buffer that a GPU holds has a price. An item that uses it there without it being held pays that price as well, so
	// that this is never cheaper.
	for h, x := range r.holds {
		item, g := in.items+h, x.gpu
		price := weights[in.resources()+g] * unit * float64(in.p.Buffers[x.buffer]) / float64(in.p.GPUs[g].Memory)
		r.e.item[item*n+g] = price
		for _, a := range r.wide.incident[item] {
			for v := range n {
				if v != g {
					r.e.arc[(a*n+g)*n+v] = price
				}
			}
		}
	}
	at, bound := r.solve(&r.e)
	at = at[:in.items]
	// The weights may sum to a little more than 1: rounding of the master.
	sum := 0.0
	for _, w := range weights[:in.resources()] {
		sum += w
	}
	return at, (bound - free) / max(1, sum)
}

// mix keeps the plans of a mixture, at most eight, if there are any.
func (r *relaxation) mix(shares []float64) {
	var used []int
	for i, s := range shares {
		if s > 1e-9 {
			used = append(used, i)
		}
	}
	slices.SortStableFunc(used, func(a, b int) int { return cmp.Compare(shares[b], shares[a]) })
	if len(used) == 0 {
		return
	}
	r.plans, r.shares = nil, nil
	for _, i := range used[:min(len(used), 8)] {
		r.plans, r.shares = append(r.plans, r.columns[i]), append(r.shares, shares[i])
	}
}
