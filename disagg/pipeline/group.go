package pipeline

import "github.com/muster-sched/muster/disagg/plan"

// Group merges kernels into what the paper calls kernel groups (§III-D): kernels of a phase that follow
// each other on the same GPU in each of the plans, with no transfer between them. It returns the smaller problem and the plans
// on it. A request that runs alone takes as long as before; a group, unlike its kernels, is not
// interleaved with other requests. Memory is left out.
func Group(p *plan.Problem, plans [][]int) (*plan.Problem, [][]int) {
	cutsInto, cutsFrom := make([]bool, len(p.Kernels)), make([]bool, len(p.Kernels))
	for _, e := range p.Edges {
		for _, at := range plans {
			if at[e.From] != at[e.To] {
				cutsFrom[e.From], cutsInto[e.To] = true, true
			}
		}
	}
	together := func(a, b int) bool {
		for _, at := range plans {
			if at[a] != at[b] {
				return false
			}
		}
		return !cutsFrom[a] && !cutsInto[b]
	}
	q := &plan.Problem{GPUs: p.GPUs, Links: p.Links, Shared: p.Shared}
	group := make([]int, len(p.Kernels))
	before := map[string]int{} // of each phase, the kernel before
	var small = make([][]int, len(plans))
	for k := range p.Kernels {
		kernel := p.Kernels[k]
		last, ok := before[kernel.Phase]
		before[kernel.Phase] = k
		if ok && together(last, k) {
			group[k] = group[last]
			for g, s := range kernel.Seconds {
				q.Kernels[group[k]].Seconds[g] += s
			}
			continue
		}
		group[k] = len(q.Kernels)
		kernel.Seconds, kernel.Buffers = append([]float64(nil), kernel.Seconds...), nil
		q.Kernels = append(q.Kernels, kernel)
		for i, at := range plans {
			small[i] = append(small[i], at[k])
		}
	}
	for _, e := range p.Edges {
		e.From, e.To = group[e.From], group[e.To]
		if e.From != e.To {
			q.Edges = append(q.Edges, e)
		}
	}
	return q, small
}
