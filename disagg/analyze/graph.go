package analyze

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-sched/muster/disagg/ptx"
	"github.com/muster-sched/muster/workload"
)

// Graph is which nodes depend on which, through which bytes. Nodes are those of one iteration of
// each captured graph, in order.
type Graph struct {
	Graphs  []Captured `json:"graphs,omitempty"`
	Nodes   []Node     `json:"nodes"`
	Edges   []Edge     `json:"edges"`
	Buffers []Held     `json:"buffers"` // that stay: weights and state
}

// Node is a kernel, a copy, a fill or a call of a library.
type Node struct {
	Name   string             `json:"name"` // unique
	What   string             `json:"what"` // the kernel or function, copy or fill
	Graph  string             `json:"graph,omitempty"`
	Kind   string             `json:"kind,omitempty"`
	Reads  []Part             `json:"reads,omitempty"`  // of what others wrote
	Writes []Part             `json:"writes,omitempty"` // all of which is new afterwards, or was read
	OneGPU string             `json:"one_gpu,omitempty"`
	Micros map[string]float64 `json:"us,omitempty"`
	Vector float64            `json:"vector_flops,omitempty"`
	Tensor float64            `json:"tensor_flops,omitempty"`
	Moved  float64            `json:"moved_bytes,omitempty"`

	uses []string // names of buffers that stay
}

// Part is bytes of a buffer.
type Part struct {
	Buffer string `json:"buffer"`
	Offset uint64 `json:"offset"`
	Bytes  uint64 `json:"bytes"`
}

// Edge is bytes that From wrote and To reads, in the next iteration if Next is set. If they are on
// two GPUs, To's GPU may receive them only after the nodes After that run there have ended, and all
// that these wrote for other GPUs is sent: they access what was at the same addresses before. And
// those of Before that run on From's GPU, which write there later, wait until the bytes are sent.
// Edges with Next have neither: they lie between the ends and starts of iterations.
type Edge struct {
	From   string   `json:"from"`
	To     string   `json:"to"`
	Bytes  uint64   `json:"bytes"`
	Next   bool     `json:"next,omitempty"`
	Parts  []Part   `json:"parts"`
	After  []string `json:"receive_after,omitempty"`
	Before []string `json:"send_before,omitempty"`
}

// Held is a buffer that stays in memory: weights that nothing in the trace writes, or state that
// one iteration leaves for the next. Bytes are those that are read.
type Held struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"` // input or state
	Bytes uint64 `json:"bytes"`
}

// step is a node of the trace, with all iterations.
type step struct {
	call     *Call
	name     string
	graph    string
	position int // in its iteration
	field    string
	again    again
	effect
	edges map[int][]Range // by writer
}

// Analyze makes the graph of a trace; file is its name, for errors, which are *workload.Error.
func Analyze(file string, t *Trace, modules []*ptx.Module) (*Graph, error) {
	a, steps, err := follow(file, t, modules)
	if err != nil {
		return nil, err
	}
	g, err := a.fold(t, steps)
	if err != nil {
		return nil, wrong(file, "nodes", err)
	}
	return g, nil
}

// wrong is an error at a field of a trace.
func wrong(file, field string, err error) error {
	want := err.Error()
	if within, rest, ok := strings.Cut(want, ": expected "); ok {
		field, want = field+"."+within, rest
	}
	return &workload.Error{File: file, Field: field, Want: want}
}

// follow goes through a trace, and finds out what each node does.
func follow(file string, t *Trace, modules []*ptx.Module) (*analysis, []*step, error) {
	a, err := newAnalysis(modules)
	if err != nil {
		return nil, nil, err
	}
	a.folder = filepath.Dir(file)
	for i, b := range t.Buffers {
		if err := a.allocate(b); err != nil {
			return nil, nil, wrong(file, fmt.Sprintf("buffers[%d]", i), err)
		}
	}
	var o owners
	var steps []*step
	places := map[string]int{}
	for i := range t.Nodes {
		c := &t.Nodes[i]
		field := fmt.Sprintf("nodes[%d]", i)
		switch err := oneOf(c); {
		case err != nil:
			return nil, nil, wrong(file, field, err)
		case c.Allocate != nil:
			if err := a.allocate(*c.Allocate); err != nil {
				return nil, nil, wrong(file, field+".allocate", err)
			}
			b := a.live[len(a.live)-1]
			o.set(Range{b.from, b.to}, nobody)
			continue
		case c.Free != "":
			if err := a.free(c.Free); err != nil {
				return nil, nil, wrong(file, field+".free", err)
			}
			continue
		}
		s := &step{call: c, graph: c.Graph, field: field, edges: map[int][]Range{}}
		s.again = a.repeat(c)
		if s.effect, err = a.does(c); err != nil {
			return nil, nil, wrong(file, field, err)
		}
		key := fmt.Sprintf("%s/%d", c.Graph, c.Iteration)
		s.position = places[key]
		places[key]++
		s.depend(a, &o, len(steps))
		steps = append(steps, s)
	}
	return a, steps, nil
}

// oneOf checks that a node is one thing.
func oneOf(c *Call) error {
	n := 0
	for _, is := range []bool{c.Kernel != "", c.Copy != nil, c.Fill != nil, c.Library != "", c.Allocate != nil, c.Free != ""} {
		if is {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("one of kernel, copy, fill, library, allocate, free; found %d", n)
	}
	return nil
}

// depend finds who wrote what the step reads, and makes it the owner of what it writes.
func (s *step) depend(a *analysis, o *owners, index int) {
	for _, r := range s.reads {
		o.of(r, func(part Range, by int) {
			if by == nobody {
				for _, b := range a.live {
					if part.From < b.to && b.from < part.To {
						b.read = append(b.read, Range{max(part.From, b.from), min(part.To, b.to)})
					}
				}
			} else if by != index {
				s.edges[by] = append(s.edges[by], part)
			}
		})
	}
	for by, list := range s.edges {
		s.edges[by] = normal(list)
	}
	for _, w := range s.writes {
		o.set(w, index)
		for _, b := range a.live {
			b.written = b.written || w.From < b.to && b.from < w.To
		}
	}
}

// parts names ranges by buffers. Of two buffers that had an address one after the other it is the later one.
func (a *analysis) parts(all []Range) (parts []Part) {
	for _, r := range normal(all) {
		for at := r.From; at < r.To; {
			i := len(a.all) - 1
			for i >= 0 && (at < a.all[i].from || at >= a.all[i].to) {
				i--
			}
			if i < 0 {
				break
			}
			end := min(r.To, a.all[i].to)
			parts = append(parts, Part{a.all[i].Name, at - a.all[i].from, end - at})
			at = end
		}
	}
	return parts
}

// fold makes one iteration of all: of each captured graph the last one, with edges from the one
// before it. Iterations of a graph must have the same nodes.
func (a *analysis) fold(t *Trace, steps []*step) (*Graph, error) {
	last := map[string]int{}
	count := map[string]map[int]int{}
	shape := map[string][]string{}
	for _, s := range steps {
		c := s.call
		last[c.Graph] = max(last[c.Graph], c.Iteration)
		if count[c.Graph] == nil {
			count[c.Graph] = map[int]int{}
		}
		count[c.Graph][c.Iteration]++
		if list := shape[c.Graph]; s.position >= len(list) {
			shape[c.Graph] = append(list, what(c))
		} else if list[s.position] != what(c) {
			return nil, fmt.Errorf("the same nodes in all iterations of graph %q: %s at place %d; found %s in iteration %d", c.Graph, list[s.position], s.position, what(c), c.Iteration)
		}
	}
	for graph, by := range count {
		for i, n := range by {
			if n != by[last[graph]] {
				return nil, fmt.Errorf("the same nodes in all iterations of graph %q: %d; found %d in iteration %d", graph, by[last[graph]], n, i)
			}
		}
	}
	g := &Graph{Graphs: t.Graphs}
	at := map[string]int{} // of the step in g.Nodes, by graph and position
	taken := map[string]bool{}
	for i, s := range steps {
		if s.call.Iteration != last[s.graph] {
			continue
		}
		s.name = s.call.Name
		if s.name == "" || taken[s.name] {
			s.name = fmt.Sprintf("%d.%s", i, what(s.call))
		}
		if taken[s.name] {
			return nil, errors.New("names that differ; found " + s.name + " twice")
		}
		taken[s.name] = true
		at[fmt.Sprintf("%s/%d", s.graph, s.position)] = i
		g.Nodes = append(g.Nodes, Node{Name: s.name, What: what(s.call), Graph: s.graph, Kind: s.call.Kind, Reads: a.parts(s.reads), Writes: a.parts(s.writes),
			OneGPU: s.why, Micros: s.call.Micros, Vector: s.vector, Tensor: s.tensor, Moved: s.moved, uses: a.uses(s)})
	}
	for j, s := range steps {
		if s.call.Iteration != last[s.graph] {
			continue
		}
		writers := make([]int, 0, len(s.edges))
		for by := range s.edges {
			writers = append(writers, by)
		}
		slices.Sort(writers)
		for _, by := range writers {
			w := steps[by]
			same := w.graph == s.graph
			if same && w.call.Iteration < s.call.Iteration-1 {
				continue // it came with an earlier iteration, and stays
			}
			from := steps[at[fmt.Sprintf("%s/%d", w.graph, w.position)]]
			e := Edge{From: from.name, To: s.name, Bytes: size(s.edges[by]), Parts: a.parts(s.edges[by]), Next: same && w.call.Iteration != s.call.Iteration}
			if !e.Next {
				e.After, e.Before = hazards(steps, by, j)
			}
			g.Edges = append(g.Edges, e)
		}
	}
	a.held(g, steps)
	return g, nil
}

func what(c *Call) string {
	switch {
	case c.Kernel != "":
		return c.Kernel
	case c.Library != "":
		return c.Library
	case c.Copy != nil:
		return "copy"
	}
	return "fill"
}

// hazards returns the nodes that access, before the writer of an edge, the bytes that it carries,
// and those that write them after it. Only nodes of the reported iterations have names.
func hazards(steps []*step, writer, reader int) (after, before []string) {
	carried := steps[reader].edges[writer]
	for k, s := range steps {
		if s.name == "" || k == writer || k == reader {
			continue
		}
		switch {
		case k < writer && (overlap(s.reads, carried) || overlap(s.writes, carried)):
			after = append(after, s.name)
		case k > writer && overlap(s.writes, carried):
			before = append(before, s.name)
		}
	}
	return after, before
}

// uses names the buffers of which a step reads what nothing in its iteration wrote.
func (a *analysis) uses(s *step) (names []string) {
	for _, b := range a.all {
		if (len(b.read) > 0) && overlap(s.reads, []Range{{b.from, b.to}}) && !slices.Contains(names, b.Name) {
			names = append(names, b.Name)
		}
	}
	return names
}

// held lists the buffers that stay.
func (a *analysis) held(g *Graph, steps []*step) {
	state := map[string]uint64{}
	for _, e := range g.Edges {
		if e.Next {
			for _, p := range e.Parts {
				state[p.Buffer] += p.Bytes
			}
		}
	}
	for _, b := range a.all {
		n := size(normal(b.read))
		_, carries := state[b.Name]
		switch {
		case carries:
			g.Buffers = append(g.Buffers, Held{b.Name, "state", b.to - b.from})
		case n > 0 && !b.written:
			g.Buffers = append(g.Buffers, Held{b.Name, "input", n})
		}
	}
	slices.SortStableFunc(g.Buffers, func(x, y Held) int { return cmp.Compare(x.Name, y.Name) })
	g.Buffers = slices.CompactFunc(g.Buffers, func(x, y Held) bool { return x.Name == y.Name })
	for i := range g.Nodes {
		n := &g.Nodes[i]
		var kept []string
		for _, h := range g.Buffers {
			touches := slices.Contains(n.uses, h.Name)
			for _, p := range append(slices.Clone(n.Reads), n.Writes...) {
				touches = touches || h.Kind == "state" && p.Buffer == h.Name
			}
			if touches {
				kept = append(kept, h.Name)
			}
		}
		n.uses = kept
	}
}
