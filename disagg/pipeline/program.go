package pipeline

import (
	"fmt"
	"math"

	"github.com/muster-sched/muster/disagg/plan"
)

// program is a problem as the simulation needs it.
type program struct {
	p       *plan.Problem
	phases  int
	phaseOf []int       // of each kernel
	kernels [][]int     // of each phase
	work    [][]Time    // [kernel][gpu]
	edges   []edgeClass // of each edge
	wire    [][][]Time  // [edge][from][to]
}

// edgeClass says which runs of the two kernels of an edge belong together.
type edgeClass int

const (
	within edgeClass = iota // the same iteration
	next                    // an iteration and the one after it, of one phase
	across                  // the last runs of one phase and the first run of a later one
	never                   // back to an earlier phase: a request has no such run
)

// route is one plan of a policy, compiled.
type route struct {
	at      []int
	on      [][][]int // [phase][gpu], the kernels there, in order
	waits   []int     // of each kernel, the transfers of the same iteration that it waits for
	sends   [][]int   // of each kernel, its edges that lead to another GPU
	seconds []Time    // of each phase, the work of one iteration
}

func nanos(seconds float64) Time { return Time(math.Round(seconds * 1e9)) }

func compile(p *plan.Problem) (*program, error) {
	g := &program{p: p}
	number := map[string]int{}
	for _, name := range Phases(p) {
		number[name] = g.phases
		g.phases++
	}
	g.kernels = make([][]int, g.phases)
	for k := range p.Kernels {
		phase := number[p.Kernels[k].Phase]
		g.phaseOf = append(g.phaseOf, phase)
		g.kernels[phase] = append(g.kernels[phase], k)
		var work []Time
		for _, s := range p.Kernels[k].Seconds {
			work = append(work, nanos(s))
		}
		g.work = append(g.work, work)
	}
	for i, e := range p.Edges {
		class := within
		switch from, to := g.phaseOf[e.From], g.phaseOf[e.To]; {
		case from < to:
			class = across
		case e.Next && from == to:
			class = next
		case e.Next:
			class = never
		case from > to || e.From >= e.To:
			return nil, fmt.Errorf("edges[%d]: expected an edge to a later kernel, or next; found %s to %s", i, p.Kernels[e.From].Name, p.Kernels[e.To].Name)
		}
		g.edges = append(g.edges, class)
		wire := make([][]Time, len(p.GPUs))
		for u := range wire {
			for v := range wire {
				d := Time(0)
				if u != v {
					d = nanos(p.Links[u][v].Latency + e.Bytes/p.Links[u][v].BytesPerSecond)
				}
				wire[u] = append(wire[u], d)
			}
		}
		g.wire = append(g.wire, wire)
	}
	return g, nil
}

func (g *program) route(at []int) *route {
	n := len(g.p.GPUs)
	r := &route{at: at, waits: make([]int, len(at)), sends: make([][]int, len(at)), seconds: make([]Time, g.phases)}
	for phase, kernels := range g.kernels {
		on := make([][]int, n)
		for _, k := range kernels {
			on[at[k]] = append(on[at[k]], k)
			r.seconds[phase] += g.work[k][at[k]]
		}
		r.on = append(r.on, on)
	}
	for i, e := range g.p.Edges {
		if at[e.From] == at[e.To] || g.edges[i] == never {
			continue
		}
		r.sends[e.From] = append(r.sends[e.From], i)
		if g.edges[i] == within {
			r.waits[e.To]++
		}
	}
	return r
}

// sent reports whether a run of a phase, of all that a request has, transfers an edge: the last
// runs do, as many as there are of the phase with fewer runs; what leads to the next iteration is
// not sent by the last one.
func (g *program) sent(edge, iteration int, runs []int) bool {
	e := &g.p.Edges[edge]
	all := runs[g.phaseOf[e.From]]
	switch g.edges[edge] {
	case next:
		return iteration < all-1
	case across:
		return iteration >= all-runs[g.phaseOf[e.To]]
	}
	return true
}
