package plan

import (
	"fmt"
	"math"
	"slices"
)

// Shape is a family of plans, the simplest first. Of two plans as good the simpler shape wins.
type Shape string

// The shapes. Replicas is the one that the paper does not compare with: each GPU serves requests
// alone, in 1/sum(1/T_g) a request.
const (
	OneGPU   Shape = "one GPU"
	Replicas Shape = "replicas"
	Phases   Shape = "phases"  // each phase on one GPU: prefill-decode disaggregation
	Blocks   Shape = "blocks"  // attention on one GPU, all else on another: attention-FFN
	PerPart  Shape = "kernels" // each kernel anywhere
)

// Attention is the kind of the kernels that the shape Blocks separates.
const Attention = "attention"

// Candidate is the best plan of a shape.
type Candidate struct {
	Shape Shape
	// Seconds is the objective, of one request. At has the GPU of each kernel; nil for Replicas,
	// where Serving lists the GPUs that hold all buffers.
	Seconds float64
	At      []int
	Serving []int
}

// Plan is the best candidate, and how far it may be from the optimum.
type Plan struct {
	Candidate
	// Bound is the certified lower bound: no plan of any shape, and no mixture of plans that
	// fit, takes fewer seconds a request. Under Options.Alike that holds of plans of the shape
	// kernels that place identical layers alike.
	Bound float64
	// Others has the best of each shape, in the order of the shapes; shapes that have no plan
	// within the memory, or no labels, are missing.
	Others []Candidate
	// Compute, Transfer and Held are of each GPU: seconds a request, and bytes.
	Compute, Transfer []float64
	Held              []int64
}

// Gap returns how much longer than the bound the plan takes, as a share of the bound.
func (p *Plan) Gap() float64 {
	if p.Bound <= 0 {
		return math.Inf(1)
	}
	return max(0, p.Seconds/p.Bound-1)
}

// Options change how [Best] searches.
type Options struct {
	// Alike places kernels of the same Kernel.Alike on the same GPU, as the paper does for
	// identical layers (§V-D): smaller, faster, and coarser.
	Alike bool
	// LinkLoad is the largest share of the stage time that a GPU may receive, in (0, 1]; 0 is 1.
	// At 1, as in the paper, a link that is always busy costs nothing, and no pipeline attains the
	// stage time. It is for throughput alone.
	LinkLoad float64
}

// loaded returns the problem with links slowed down such that a transfer takes 1/load of its time.
func loaded(p *Problem, load float64) *Problem {
	q := *p
	q.Links = nil
	for _, row := range p.Links {
		var slow []Link
		for _, l := range row {
			slow = append(slow, Link{BytesPerSecond: l.BytesPerSecond * load, Latency: l.Latency / load})
		}
		q.Links = append(q.Links, slow)
	}
	return &q
}

// NoRoom says that no plan fits the memory, or that none was found.
type NoRoom struct {
	Need, Have int64 // bytes of all buffers, and of all GPUs
}

func (e *NoRoom) Error() string {
	if e.Need > e.Have {
		return fmt.Sprintf("no plan fits: the buffers have %d bytes, the GPUs %d", e.Need, e.Have)
	}
	return fmt.Sprintf("found no plan that fits: the buffers have %d bytes, the GPUs %d", e.Need, e.Have)
}

// Best returns the best plan found. Its errors are those of [Problem.Check], and *[NoRoom].
func Best(p *Problem, objective Objective, o Options) (*Plan, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	load := 1.0
	if objective == Throughput && o.LinkLoad > 0 && o.LinkLoad < 1 {
		load = o.LinkLoad
		p = loaded(p, load)
	}
	class, items := classes(p, o.Alike)
	in := compile(p, objective, class, items)
	full := in
	if o.Alike {
		full = compile(p, objective, identity(len(p.Kernels)), len(p.Kernels))
	}
	var found []Candidate
	found = add(found, full, OneGPU, ones(p))
	found = append(found, replicas(full)...)
	found = add(found, full, Phases, byPhase(p))
	found = add(found, full, Blocks, byBlock(p))
	bound := 0.0
	if len(p.GPUs) > 1 {
		at, b := kernels(in, starts(in, found))
		bound = b
		found = add(found, full, PerPart, [][]int{spread(class, at)})
	} else if len(found) > 0 {
		bound = found[0].Seconds
	}
	if len(found) == 0 {
		return nil, noRoom(p)
	}
	best := found[0]
	for _, c := range found[1:] {
		if c.Seconds < best.Seconds*(1-1e-9) {
			best = c
		}
	}
	plan := &Plan{Candidate: best, Bound: min(bound, best.Seconds), Others: found}
	plan.Compute, plan.Transfer, plan.Held = full.usage(&best)
	for g := range plan.Transfer {
		plan.Transfer[g] *= load
	}
	return plan, nil
}

func noRoom(p *Problem) *NoRoom {
	e := &NoRoom{}
	for _, b := range p.Buffers {
		e.Need += b
	}
	for _, g := range p.GPUs {
		e.Have += g.Memory
	}
	return e
}

// kernels returns the best plan of items, and the bound.
func kernels(in *instance, starts [][]int) ([]int, float64) {
	r := relax(in, starts)
	all := slices.Concat(r.plans, starts)
	if in.limited {
		if at := in.inRows(); at != nil {
			all = append(all, at)
		}
	}
	return improve(in, all, r), r.bound
}

// starts returns the plans of the coarse shapes as plans of items, the best first, and all on each
// GPU if none of them fits.
func starts(in *instance, found []Candidate) [][]int {
	sorted := slices.Clone(found)
	slices.SortStableFunc(sorted, func(a, b Candidate) int {
		switch {
		case a.Seconds < b.Seconds:
			return -1
		case a.Seconds > b.Seconds:
			return 1
		}
		return 0
	})
	var all [][]int
	for _, c := range sorted {
		if c.At == nil {
			continue
		}
		at := make([]int, in.items)
		for k, g := range c.At {
			at[in.class[k]] = g // kernels that are alike are so in these shapes, or the last one decides
		}
		all = append(all, at)
	}
	for g := range in.gpus {
		at := make([]int, in.items)
		for i := range at {
			at[i] = g
		}
		all = append(all, at)
	}
	return all
}

// classes numbers the items: kernels that are alike are one if alike is set.
func classes(p *Problem, alike bool) (class []int, items int) {
	if !alike {
		return identity(len(p.Kernels)), len(p.Kernels)
	}
	number := map[string]int{}
	for i := range p.Kernels {
		name := p.Kernels[i].Alike
		n, ok := number[name]
		if !ok || name == "" {
			n = items
			items++
			number[name] = n
		}
		class = append(class, n)
	}
	return class, items
}

func identity(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func spread(class, at []int) []int {
	all := make([]int, len(class))
	for k, c := range class {
		all[k] = at[c]
	}
	return all
}

// objectiveOf returns the seconds of a plan of items.
func (in *instance) objectiveOf(at []int) float64 { return slices.Max(in.loads(at)) }

// add adds the best of the plans that fit as the candidate of a shape.
func add(found []Candidate, in *instance, s Shape, plans [][]int) []Candidate {
	best := Candidate{Shape: s, Seconds: math.Inf(1)}
	for _, at := range plans {
		if in.over(in.memory(at)) > 0 {
			continue
		}
		if seconds := in.objectiveOf(at); seconds < best.Seconds {
			best.Seconds, best.At = seconds, at
		}
	}
	if best.At == nil {
		return found
	}
	return append(found, best)
}

// ones has the plans with all kernels on one GPU.
func ones(p *Problem) (all [][]int) {
	for g := range p.GPUs {
		at := make([]int, len(p.Kernels))
		for k := range at {
			at[k] = g
		}
		all = append(all, at)
	}
	return all
}

// replicas returns the candidate in which each GPU that can hold all buffers serves requests
// alone; none if fewer than two can, or under the objective of latency, where it is one GPU's.
func replicas(in *instance) []Candidate {
	if in.objective == Latency {
		return nil
	}
	c := Candidate{Shape: Replicas}
	rate := 0.0
	for g, at := range ones(in.p) {
		seconds := in.objectiveOf(at)
		if in.over(in.memory(at)) > 0 || seconds == 0 {
			continue
		}
		rate += 1 / seconds
		c.Serving = append(c.Serving, g)
	}
	if len(c.Serving) < 2 {
		return nil
	}
	c.Seconds = 1 / rate
	return []Candidate{c}
}

// mostSplits bounds the plans of a split by phase.
const mostSplits = 4096

// byPhase has the plans that put each phase on one GPU.
func byPhase(p *Problem) (all [][]int) {
	number := map[string]int{}
	for i := range p.Kernels {
		name := p.Kernels[i].Phase
		if _, ok := number[name]; !ok {
			number[name] = len(number)
		}
	}
	plans := 1
	for range number {
		if plans *= len(p.GPUs); plans > mostSplits {
			return nil
		}
	}
	if len(number) < 2 {
		return nil
	}
	for n := range plans {
		at := make([]int, len(p.Kernels))
		for k := range at {
			digit := n
			for range number[p.Kernels[k].Phase] {
				digit /= len(p.GPUs)
			}
			at[k] = digit % len(p.GPUs)
		}
		all = append(all, at)
	}
	return all
}

// byBlock has the plans with the attention kernels on one GPU and all others on another.
func byBlock(p *Problem) (all [][]int) {
	if !slices.ContainsFunc(p.Kernels, func(k Kernel) bool { return k.Kind == Attention }) {
		return nil
	}
	for a := range p.GPUs {
		for b := range p.GPUs {
			if a == b {
				continue
			}
			at := make([]int, len(p.Kernels))
			for k := range at {
				at[k] = b
				if p.Kernels[k].Kind == Attention {
					at[k] = a
				}
			}
			all = append(all, at)
		}
	}
	return all
}

// usage returns the seconds and bytes of each GPU. Of replicas, the seconds are of the share of
// the requests that the GPU serves.
func (in *instance) usage(c *Candidate) (compute, transfer []float64, held []int64) {
	n, p := in.gpus, in.p
	compute, transfer, held = make([]float64, n), make([]float64, n), make([]int64, n)
	if c.At == nil {
		all := ones(p)
		for _, g := range c.Serving {
			compute[g] = c.Seconds // each is busy all the time
			held[g] = in.memory(all[g])[g]
		}
		return compute, transfer, held
	}
	for k, g := range c.At {
		compute[g] += p.Kernels[k].Seconds[g] * p.Kernels[k].Runs
	}
	for i := range p.Edges {
		e := &p.Edges[i]
		u, g := c.At[e.From], c.At[e.To]
		if u == g {
			continue
		}
		seconds := e.Runs * (p.Links[u][g].Latency + e.Bytes/p.Links[u][g].BytesPerSecond)
		transfer[g] += seconds
		if p.Shared {
			transfer[u] += seconds
		}
	}
	return compute, transfer, in.memory(c.At)
}
