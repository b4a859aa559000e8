// Package plan decides on which GPU each kernel of a model runs, where the GPUs differ.
//
// The model is that of Tessera (kernel-granularity disaggregation), §III-B. A plan puts each
// kernel on one GPU. T_g is the time of the kernels on GPU g, and M_g the time of the transfers
// into it, both for one request. With many requests in a pipeline a request takes
// W = max_g max(T_g, M_g), the stage time; a lone request takes the sum of all times and
// transfers. Beyond the paper, a GPU holds only what its kernels use and has a capacity, plans
// are compared with independent replicas, and every answer has a certified lower bound.
//
// [Best] is the way in. bound.go finds the bound and good plans by Lagrangian relaxation:
// cut.go solves its subproblem exactly for two GPUs, message.go bounds it for more, master.go
// chooses the multipliers. search.go finds plans near it, shape.go has the coarser shapes.
package plan

import (
	"fmt"
	"math"
	"slices"
)

// Problem is a kernel graph and the GPUs to run it on.
type Problem struct {
	GPUs    []GPU
	Kernels []Kernel // in the order in which they run
	Edges   []Edge
	Buffers []int64 // bytes of each buffer: weights, or state such as a KV cache
	// Links has the link from each GPU to each other; the diagonal is not read.
	Links [][]Link
	// Shared says that what a GPU sends takes the time of what it receives: its link carries
	// one direction at a time. The paper counts what it receives alone.
	Shared bool
}

// GPU is a device. Memory is bytes; 0 is no limit.
type GPU struct {
	Name   string
	Memory int64
}

// Kernel is a node of the graph.
type Kernel struct {
	Name string
	// Phase and Kind say what the kernel belongs to, such as decode and attention; empty if
	// that is not known. The coarser shapes split by them.
	Phase, Kind string
	// Alike names the kernels that do the same in identical layers; empty is like none.
	Alike string
	// Runs is how often it runs for one request; with batches that is a fraction.
	Runs    float64
	Seconds []float64 // of one run on each GPU
	Buffers []int     // what it reads that stays in memory, as indexes of Problem.Buffers
}

// Edge is what one kernel writes and another reads.
type Edge struct {
	From, To int     // indexes of Problem.Kernels
	Bytes    float64 // of one transfer
	Runs     float64 // transfers for one request
	// Next says that the reader is in the next iteration, such as through a KV cache. Its
	// transfer takes the link's time, but no lone request waits for it (§III-A, §IV).
	Next bool
}

// Link is one direction between two GPUs.
type Link struct {
	BytesPerSecond float64
	Latency        float64 // seconds of a transfer of 0 bytes
}

// Objective is what a plan minimizes.
type Objective string

// The objectives of §III-B.
const (
	Throughput Objective = "throughput" // the stage time, W
	Latency    Objective = "latency"    // the time of a lone request
)

// instance is a problem compiled for one objective. Its items are kernels, or classes of kernels
// that are placed alike.
type instance struct {
	p         *Problem
	objective Objective
	gpus      int
	class     []int // of each kernel, its item
	items     int
	seconds   []float64 // [item*gpus+gpu], for one request
	arcs      []arc
	incident  [][]int // of each item, its arcs
	buffers   [][]int // of each item, sorted, without duplicates
	limited   bool    // some GPU cannot hold all buffers
}

// arc is the edges between two items, in either direction, with from < to. cost[u*gpus+v] is
// for from on u and to on v: seconds into v, and seconds into u.
type arc struct {
	from, to int
	into     [][2]float64
}

// compile merges the kernels of a class into an item, and the edges between two items.
func compile(p *Problem, o Objective, class []int, items int) *instance {
	n := len(p.GPUs)
	in := &instance{p: p, objective: o, gpus: n, class: class, items: items, seconds: make([]float64, items*n), buffers: make([][]int, items)}
	for k := range p.Kernels {
		item := class[k]
		for g, s := range p.Kernels[k].Seconds {
			in.seconds[item*n+g] += s * p.Kernels[k].Runs
		}
		in.buffers[item] = append(in.buffers[item], p.Kernels[k].Buffers...)
	}
	for i, all := range in.buffers {
		slices.Sort(all)
		in.buffers[i] = slices.Compact(all)
	}
	in.join()
	var total int64
	for _, b := range p.Buffers {
		total += b
	}
	for _, g := range p.GPUs {
		in.limited = in.limited || g.Memory > 0 && g.Memory < total
	}
	return in
}

// join makes the arcs. Memory is from a few large pieces: for one cut, to allocate costs as much as to cut.
func (in *instance) join() {
	p, class, n := in.p, in.class, in.gpus
	degree := make([]int, in.items)
	for i := range p.Edges {
		degree[class[p.Edges[i].From]]++
		degree[class[p.Edges[i].To]]++
	}
	in.incident = make([][]int, in.items)
	ends := make([]int, 2*len(p.Edges))
	for i, d := range degree {
		in.incident[i], ends = ends[:0:d], ends[d:]
	}
	costs := make([][2]float64, len(p.Edges)*n*n)
	in.arcs = make([]arc, 0, len(p.Edges))
	for i := range p.Edges {
		e := &p.Edges[i]
		from, to := class[e.From], class[e.To]
		if from == to || e.Next && in.objective == Latency {
			continue
		}
		low, high := min(from, to), max(from, to)
		a := in.between(low, high)
		if a < 0 {
			a = len(in.arcs)
			in.arcs = append(in.arcs, arc{from: low, to: high, into: costs[: n*n : n*n]})
			costs = costs[n*n:]
			in.incident[low] = append(in.incident[low], a)
			in.incident[high] = append(in.incident[high], a)
		}
		in.arcs[a].add(p, e, from > to)
	}
}

// between returns the arc between two items; -1 if there is none. It costs the smaller of their degrees.
func (in *instance) between(low, high int) int {
	all := in.incident[low]
	if len(in.incident[high]) < len(all) {
		all = in.incident[high]
	}
	for _, a := range all {
		if in.arcs[a].from == low && in.arcs[a].to == high {
			return a
		}
	}
	return -1
}

// add counts an edge; back says that it leads from the arc's second item to its first.
func (a *arc) add(p *Problem, e *Edge, back bool) {
	n := len(p.GPUs)
	for u := range n {
		for v := range n {
			if u == v {
				continue
			}
			l := p.Links[u][v]
			if back {
				a.into[v*n+u][1] += e.Runs * (l.Latency + e.Bytes/l.BytesPerSecond)
			} else {
				a.into[u*n+v][0] += e.Runs * (l.Latency + e.Bytes/l.BytesPerSecond)
			}
		}
	}
}

// resources is how many loads a plan has: the sum, or T_g and M_g of each GPU.
func (in *instance) resources() int {
	if in.objective == Latency {
		return 1
	}
	return 2 * in.gpus
}

// addTime and addArc count an item on a GPU and an arc between two GPUs, times sign, in loads.
func (in *instance) addTime(loads []float64, item, g int, sign float64) {
	if in.objective == Latency {
		loads[0] += sign * in.seconds[item*in.gpus+g]
		return
	}
	loads[g] += sign * in.seconds[item*in.gpus+g]
}

func (in *instance) addArc(loads []float64, a *arc, u, v int, sign float64) {
	if u == v {
		return
	}
	into := a.into[u*in.gpus+v]
	switch {
	case in.objective == Latency:
		loads[0] += sign * (into[0] + into[1])
	case in.p.Shared:
		loads[in.gpus+v] += sign * (into[0] + into[1])
		loads[in.gpus+u] += sign * (into[0] + into[1])
	default:
		loads[in.gpus+v] += sign * into[0]
		loads[in.gpus+u] += sign * into[1]
	}
}

// loads returns the loads of a plan of items.
func (in *instance) loads(at []int) []float64 {
	loads := make([]float64, in.resources())
	for i, g := range at {
		in.addTime(loads, i, g, 1)
	}
	for i := range in.arcs {
		a := &in.arcs[i]
		in.addArc(loads, a, at[a.from], at[a.to], 1)
	}
	return loads
}

// memory returns the bytes that each GPU holds: a buffer once, if an item on the GPU uses it.
func (in *instance) memory(at []int) []int64 {
	held := make([]int64, in.gpus)
	has := make([]bool, in.gpus*len(in.p.Buffers))
	for i, g := range at {
		for _, b := range in.buffers[i] {
			if !has[g*len(in.p.Buffers)+b] {
				has[g*len(in.p.Buffers)+b] = true
				held[g] += in.p.Buffers[b]
			}
		}
	}
	return held
}

// over returns the bytes that GPUs hold beyond their memory, summed.
func (in *instance) over(held []int64) (bytes int64) {
	for g, h := range held {
		if m := in.p.GPUs[g].Memory; m > 0 && h > m {
			bytes += h - m
		}
	}
	return bytes
}

// Check reports the first thing that is wrong with a problem: an index out of its range, a time
// that is not finite and positive, a link without bandwidth.
func (p *Problem) Check() error {
	n := len(p.GPUs)
	switch {
	case n == 0:
		return fmt.Errorf("GPUs: expected at least one")
	case len(p.Kernels) == 0:
		return fmt.Errorf("kernels: expected at least one")
	case len(p.Links) != n:
		return fmt.Errorf("links: expected a row for each of %d GPUs; found %d", n, len(p.Links))
	}
	for u := range p.Links {
		for v, l := range p.Links[u] {
			if u != v && !(l.BytesPerSecond > 0 && l.Latency >= 0 && finite(l.Latency)) {
				return fmt.Errorf("link from %s to %s: expected a bandwidth above 0 and a latency of at least 0; found %g B/s and %g s", p.GPUs[u].Name, p.GPUs[v].Name, l.BytesPerSecond, l.Latency)
			}
		}
	}
	for i := range p.Kernels {
		if err := p.checkKernel(&p.Kernels[i]); err != nil {
			return fmt.Errorf("kernel %s: %w", p.Kernels[i].Name, err)
		}
	}
	for i, e := range p.Edges {
		if e.From < 0 || e.From >= len(p.Kernels) || e.To < 0 || e.To >= len(p.Kernels) || !(e.Bytes >= 0 && e.Runs >= 0 && finite(e.Bytes) && finite(e.Runs)) {
			return fmt.Errorf("edge %d: expected two kernels, and bytes and runs of at least 0", i)
		}
	}
	return nil
}

func (p *Problem) checkKernel(k *Kernel) error {
	if len(k.Seconds) != len(p.GPUs) {
		return fmt.Errorf("expected a time for each of %d GPUs; found %d", len(p.GPUs), len(k.Seconds))
	}
	for _, s := range append([]float64{k.Runs}, k.Seconds...) {
		if !(s >= 0 && finite(s)) {
			return fmt.Errorf("expected times and runs of at least 0; found %g", s)
		}
	}
	for _, b := range k.Buffers {
		if b < 0 || b >= len(p.Buffers) {
			return fmt.Errorf("expected a buffer from 0 to %d; found %d", len(p.Buffers)-1, b)
		}
	}
	return nil
}

func finite(x float64) bool { return !math.IsInf(x, 0) && !math.IsNaN(x) }
