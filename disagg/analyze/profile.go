package analyze

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/disagg"
	"github.com/muster-sched/muster/disagg/roofline"
)

// Profile makes the planner's input of a graph: times that were measured or, for GPUs without, by
// the roofline of published figures. An error says what was expected. gpus are names of the roofline's or of the measured times.
func (g *Graph) Profile(gpus []string) (*disagg.Profile, error) {
	p := &disagg.Profile{Source: "muster disagg analyze"}
	var specs []*roofline.Spec
	for _, name := range gpus {
		gpu := disagg.GPU{Name: name}
		spec := roofline.Find(name)
		if spec != nil {
			gpu = disagg.GPU{Name: spec.Name, Memory: spec.Memory}
		}
		specs, p.GPUs = append(specs, spec), append(p.GPUs, gpu)
	}
	runs := map[string]float64{}
	for _, c := range g.Graphs {
		runs[c.Name] = c.Runs
	}
	for _, b := range g.Buffers {
		p.Buffers = append(p.Buffers, disagg.Buffer{Name: b.Name, Bytes: int64(b.Bytes)})
	}
	several := len(g.Graphs) > 0
	for i := range g.Nodes {
		n := &g.Nodes[i]
		k := disagg.Kernel{Name: n.Name, Kind: n.Kind, Buffers: n.uses}
		if several {
			k.Phase = n.Graph
			if _, ok := runs[n.Graph]; !ok {
				return nil, fmt.Errorf("graph %q of node %s in graphs, with its runs a request; found none", n.Graph, n.Name)
			}
			if !slices.ContainsFunc(p.Phases, func(x disagg.Phase) bool { return x.Name == n.Graph }) {
				p.Phases = append(p.Phases, disagg.Phase{Name: n.Graph, Runs: runs[n.Graph]})
			}
		}
		for at, name := range gpus {
			t, ok := n.Micros[name]
			if !ok {
				t, ok = n.Micros[p.GPUs[at].Name]
			}
			switch {
			case ok:
			case specs[at] != nil:
				t = specs[at].Micros(n.Vector, n.Tensor, n.Moved)
			default:
				return nil, fmt.Errorf("a time of node %s on %s; found none, and no published figures", n.Name, name)
			}
			k.Micros = append(k.Micros, t)
		}
		p.Kernels = append(p.Kernels, k)
	}
	for _, e := range g.Edges {
		p.Edges = append(p.Edges, disagg.Edge{From: e.From, To: e.To, Bytes: float64(e.Bytes), Next: e.Next})
	}
	return p, nil
}
