package place

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/frag"
)

// lackCauses says which causes of fragmentation stand behind a lack.
var lackCauses = map[Lack][]frag.Cause{
	Together: {frag.Stranded, frag.Fractional}, CPU: {frag.CPU}, Memory: {frag.Memory}, Pods: {frag.Pods}, Other: {frag.Other}, Topology: {frag.Topology},
}

// Nearest returns the nodes, or domains of the level that the unit requires, on which the least
// must be freed for one more pod, or for the gang: at most most, the least first, ties by name. It
// looks at the first task that lacks something, as [Placer.Why] does, and at nodes on which the
// task's pods may run. It returns none when what is missing is not in the wrong place but not
// there at all. O(tasks x nodes): for people who ask.
func (p *Placer) Nearest(u *Unit, most int) []frag.Finding {
	task, lack := p.lacking(u)
	if task == nil || task.GPU() == 0 || lackCauses[lack] == nil {
		return nil
	}
	var in frag.Within
	if lack == Topology {
		if !u.Whole || u.Joins || u.Required >= len(p.state.Levels()) {
			return nil // a domain that is chosen already, a scale-up domain or a node
		}
		in = frag.Within{Pods: len(task.Pods), Level: u.Required, Name: p.levelName(u.Required), Mixed: task.Mixed}
	}
	var nodes []frag.Node
	for id := range cluster.NodeID(p.state.Nodes()) {
		if n := p.state.Node(id); n.Open() && !p.state.Lent(id) && p.eligible(u, task.Shape, id) && p.satisfies(u, task, id, u.startsBy()) {
			nodes = append(nodes, frag.At(p.state, id))
		}
	}
	shape := frag.Shape{GPU: task.GPU(), CPUMilli: task.Shape.CPU, MemMiB: task.Shape.Mem}
	for _, a := range task.request.Others {
		if a.Value > 0 {
			shape.Others = append(shape.Others, a)
		}
	}
	found := slices.DeleteFunc(frag.Diagnose(nodes, shape, in).Findings, func(f frag.Finding) bool {
		return f.Never || !slices.Contains(lackCauses[lack], f.Cause)
	})
	slices.SortStableFunc(found, func(a, b frag.Finding) int {
		return cmp.Or(cmp.Compare(a.Missing, b.Missing), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Domain, b.Domain))
	})
	return found[:min(most, len(found))]
}

// lacking returns the first task that lacks something, and what; nil if none does by itself and
// no level is required.
func (p *Placer) lacking(u *Unit) (*Task, Lack) {
	for t := range u.Tasks {
		if s := p.whyTask(u, t); s.Lack != NoLack {
			return &u.Tasks[t], s.Lack
		}
	}
	if u.Required >= 0 && len(u.Tasks) == 1 {
		return &u.Tasks[0], Topology
	}
	return nil, NoLack
}
