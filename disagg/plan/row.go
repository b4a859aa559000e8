package plan

import "math/rand/v2"

// places returns of each item the place of its largest buffer in a row, in the order in which items use buffers first, and the buffers in
// this order. An item without a buffer has the place of the one before it. Kernels of a layer are thus at about one place, in all
// phases.
func (in *instance) places() (of, order []int) {
	of = make([]int, in.items)
	place := make([]int, len(in.p.Buffers))
	for i := range in.items {
		if i > 0 {
			of[i] = of[i-1] // without a buffer
		}
		for n, b := range in.buffers[i] {
			if place[b] == 0 {
				order = append(order, b)
				place[b] = len(order)
			}
			if n == 0 || in.p.Buffers[b] > in.p.Buffers[order[of[i]]] {
				of[i] = place[b] - 1
			}
		}
	}
	return of, order
}

// orders is how many orders of the plans of a mixture are tried.
const orders = 200

// spliced returns the mixture that attains the bound as one plan: each of its plans gets its share of the row. The order of the
// plans is the best of some random ones. If there are no buffers, it is the first plan.
func (in *instance) spliced(r *relaxation) []int {
	of, buffers := in.places()
	if len(buffers) == 0 {
		return r.plans[0]
	}
	sum := 0.0
	order := make([]int, len(r.plans))
	for i, s := range r.shares {
		sum += s
		order[i] = i
	}
	var best []int
	least, over := 0.0, int64(0)
	random := rand.New(rand.NewPCG(1, 1))
	for range orders {
		at := make([]int, in.items)
		for i := range at {
			left := (float64(of[i]) + 0.5) / float64(len(buffers)) * sum
			for _, n := range order {
				at[i] = r.plans[n][i]
				if left -= r.shares[n]; left <= 0 {
					break
				}
			}
		}
		if o, x := in.over(in.memory(at)), in.objectiveOf(at); best == nil || o < over || o == over && x < least {
			best, over, least = at, o, x
		}
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	return best
}

// inRows returns the plan in which each GPU holds buffers in a row, and
// runs the items that use them: where memory is scarce, most buffers are on one GPU only. The largest sum of times is as small as
// can be, by bisection. It is nil if no such plan fits.
func (in *instance) inRows() []int {
	of, order := in.places()
	if len(order) == 0 {
		return nil
	}
	seconds := make([]float64, len(order)*in.gpus)
	for i, n := range of {
		for g := range in.gpus {
			seconds[n*in.gpus+g] += in.seconds[i*in.gpus+g]
		}
	}
	on := in.fill(order, seconds)
	if on == nil {
		return nil
	}
	at := make([]int, in.items)
	for i := range at {
		at[i] = on[of[i]]
	}
	return at
}

// fill returns the GPU of each buffer in the row, or nil if the memories are too small. seconds[n*gpus+g] is what the
// items of the n-th take on GPU g.
func (in *instance) fill(order []int, seconds []float64) []int {
	within := func(most float64) []int {
		on := make([]int, len(order))
		g, took, held := 0, 0.0, int64(0)
		for n, b := range order {
			for {
				m, s := in.p.GPUs[g].Memory, seconds[n*in.gpus+g]
				if took+s <= most && (m == 0 || held+in.p.Buffers[b] <= m) {
					on[n], took, held = g, took+s, held+in.p.Buffers[b]
					break
				}
				if g++; g == in.gpus {
					return nil
				}
				took, held = 0, 0
			}
		}
		return on
	}
	low, high := 0.0, 0.0
	for _, s := range seconds {
		high += s
	}
	best := within(high)
	for range 30 {
		middle := (low + high) / 2
		if on := within(middle); on != nil {
			best, high = on, middle
		} else {
			low = middle
		}
	}
	return best
}
