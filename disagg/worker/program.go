// Package worker runs requests on several GPUs by a plan: the workers of Tessera (arXiv:2604.10180, §III-C).
//
// A request runs the steps of a trace, iteration by iteration. Each step is on the GPU that the plan gives its kernel.
// What a step reads and another GPU wrote is transferred before, on a stream of its own. Each request has a memory of its
// own on each GPU; what no step writes, such as weights, the requests of a GPU share.
//
//	NewProgram   which bytes move, and which steps and transfers wait for which (program.go, compile.go; these compute only)
//	site         the GPUs of one machine, driven by one process (site.go), here or elsewhere (remote.go, server.go, tls.go)
//	graphs       what a GPU does between transfers, as graphs of the driver (graph.go); Post runs a segment (post.go)
//	link         carries bytes between two GPUs: by a copy, or over the network (link.go), at a speed that is chosen (slow.go)
//	Run          requests on sites (run.go), by one plan or two (switch.go, history.go)
//	Data         what buffers contain, and requests bring (data.go)
package worker

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-sched/muster/disagg/analyze"
)

// MostGPUs is how many GPUs a plan may have.
const MostGPUs = 16

// Program is what a request does, whatever the plan.
type Program struct {
	Steps    []analyze.Step
	Segments []Segment // the iterations
	Regions  []Region  // of the trace's addresses, ascending
	GPUs     int
	Need     [][]bool // by GPU and region: whether a step of a plan accesses it there
	Calls    []bool   // by GPU: whether a step of a plan calls cuBLAS there

	// atoms are the bytes of regions that change, cut where any step begins or ends to access them: what happens to one
	// byte of an atom happens to all.
	atoms         []analyze.Range
	reads, writes [][]int32 // by step: atoms
	unwritten     []bool    // by atom: a step reads it before any has written it
}

// Segment is the steps of an iteration: from From to before To.
type Segment struct {
	From, To  int
	Graph     string
	Iteration int
}

// Region is a buffer, or several that share addresses. Shared ones are written by no step, and the same for all requests.
type Region struct {
	analyze.Range
	Shared bool
}

func (r Region) size() uint64 { return r.To - r.From }

// NewProgram prepares a trace for plans on so many GPUs.
func NewProgram(r *analyze.Replay, gpus int) (*Program, error) {
	if gpus < 1 || gpus > MostGPUs {
		return nil, fmt.Errorf("expected 1 to %d GPUs; found %d", MostGPUs, gpus)
	}
	p := &Program{Steps: slices.Clone(r.Steps), Regions: regions(r.Buffers), GPUs: gpus, Calls: make([]bool, gpus)}
	for i := range p.Steps {
		s := &p.Steps[i]
		s.Reads, s.Writes = divided(p.Regions, s.Reads), divided(p.Regions, s.Writes)
		for _, w := range s.Writes {
			p.Regions[find(p.Regions, w.From)].Shared = false
		}
	}
	for i, s := range r.Steps {
		if n := len(p.Segments); n > 0 && p.Segments[n-1].Graph == s.Graph && p.Segments[n-1].Iteration == s.Iteration {
			p.Segments[n-1].To = i + 1
		} else {
			p.Segments = append(p.Segments, Segment{i, i + 1, s.Graph, s.Iteration})
		}
	}
	p.divide()
	for range gpus {
		p.Need = append(p.Need, make([]bool, len(p.Regions)))
	}
	return p, nil
}

// Add makes a plan known: the GPU of each step.
func (p *Program) Add(gpu []int) {
	for step, g := range gpu {
		for _, i := range p.touched(step) {
			p.Need[g][i] = true
		}
		p.Calls[g] = p.Calls[g] || p.Steps[step].Routine != ""
	}
}

// initial returns the regions that contain something at first that a step reads, and that change.
func (p *Program) initial() []bool {
	all := make([]bool, len(p.Regions))
	for a, is := range p.unwritten {
		if is {
			all[find(p.Regions, p.atoms[a].From)] = true
		}
	}
	return all
}

// regions joins buffers that share addresses, one after the other. Those that only touch stay apart: weights beside what
// changes are there once.
func regions(buffers []analyze.Content) (all []Region) {
	buffers = slices.Clone(buffers)
	slices.SortFunc(buffers, func(a, b analyze.Content) int { return cmp.Compare(a.From, b.From) })
	for _, b := range buffers {
		if n := len(all); n > 0 && b.From < all[n-1].To {
			all[n-1].To = max(all[n-1].To, b.To)
		} else {
			all = append(all, Region{b.Range, true})
		}
	}
	return all
}

// divided divides ranges where regions end: of buffers that touch, a trace has one range.
func divided(all []Region, ranges []analyze.Range) (parts []analyze.Range) {
	for _, r := range ranges {
		for i := find(all, r.From); i >= 0 && i < len(all) && all[i].From < r.To; i++ {
			parts = append(parts, analyze.Range{From: max(r.From, all[i].From), To: min(r.To, all[i].To)})
		}
	}
	return parts
}

// find returns the region of an address; -1 without.
func find(all []Region, address uint64) int {
	i, found := slices.BinarySearchFunc(all, address, func(r Region, a uint64) int { return cmp.Compare(r.From, a) })
	if !found {
		i--
	}
	if i < 0 || address >= all[i].To {
		return -1
	}
	return i
}

// divide finds the atoms.
func (p *Program) divide() {
	var ends []uint64
	changing := func(r analyze.Range) bool { return !p.Regions[find(p.Regions, r.From)].Shared }
	for _, s := range p.Steps {
		for _, list := range [][]analyze.Range{s.Reads, s.Writes} {
			for _, r := range list {
				if changing(r) {
					ends = append(ends, r.From, r.To)
				}
			}
		}
	}
	slices.Sort(ends)
	ends = slices.Compact(ends)
	for i := 1; i < len(ends); i++ { // what lies between accesses is an atom, too, which no step accesses
		p.atoms = append(p.atoms, analyze.Range{From: ends[i-1], To: ends[i]})
	}
	in := func(list []analyze.Range) (atoms []int32) {
		for _, r := range list {
			i, _ := slices.BinarySearch(ends, r.From)
			for ; changing(r) && i < len(p.atoms) && p.atoms[i].From < r.To; i++ {
				atoms = append(atoms, int32(i))
			}
		}
		slices.Sort(atoms)
		return slices.Compact(atoms)
	}
	written := make([]bool, len(p.atoms))
	p.unwritten = make([]bool, len(p.atoms))
	for _, s := range p.Steps {
		reads, writes := in(s.Reads), in(s.Writes)
		for _, a := range reads {
			p.unwritten[a] = p.unwritten[a] || !written[a]
		}
		for _, a := range writes {
			written[a] = true
		}
		p.reads, p.writes = append(p.reads, reads), append(p.writes, writes)
	}
}

// ranges joins atoms, in order.
func (p *Program) ranges(atoms []int32) (all []analyze.Range) {
	for _, a := range atoms {
		r := p.atoms[a]
		if n := len(all); n > 0 && all[n-1].To == r.From && find(p.Regions, r.From) == find(p.Regions, all[n-1].From) {
			all[n-1].To = r.To
		} else {
			all = append(all, r)
		}
	}
	return all
}

// touched returns the regions that a step accesses, in order.
func (p *Program) touched(step int) (all []int) {
	s := &p.Steps[step]
	for _, list := range [][]analyze.Range{s.Reads, s.Writes} {
		for _, r := range list {
			all = append(all, find(p.Regions, r.From))
		}
	}
	for _, at := range s.Pointers { // an argument may be the address of a buffer that the kernel does not access here
		if i := find(p.Regions, pointer(s.Args, at)); i >= 0 {
			all = append(all, i)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
