package defrag

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// Algorithm is how a plan is made.
type Algorithm uint8

const (
	// Muster is the algorithm of this package.
	Muster Algorithm = iota
	// Published is IPC as ASI §4.1 describes it, without the two differences that the package
	// comment names: the nodes in use are divided at random, and those of them that have free
	// GPUs are vacated, the ones with the fewest pods first. It is a baseline for experiments.
	// What the paper leaves open is as in Muster: a pod goes to the fullest node, and an
	// ejection chain is tried through the nodes that lack least.
	Published
	// Eviction is what ASI had before: Kubernetes evicts the pods of nodes that have free GPUs,
	// and they start again on random nodes. It is a baseline for experiments. Make before
	// break moves the pods here too, so that no run loses work by it.
	Eviction
)

// undivided divides the nodes of a model on which GPUs are used into parts, at random, full or
// not.
func (p *planner) undivided(model string, draw func(cluster.NodeID) uint64) [][]cluster.NodeID {
	var used []cluster.NodeID
	for _, id := range p.nodesOf(model) {
		if inUse(p.state.Node(id)) > 0 {
			used = append(used, id)
		}
	}
	slices.SortFunc(used, func(a, b cluster.NodeID) int { return cmp.Or(cmp.Compare(draw(a), draw(b)), cmp.Compare(a, b)) })
	parts := (len(used) + p.opt.Partition - 1) / p.opt.Partition
	out := make([][]cluster.NodeID, parts)
	for i := range out {
		out[i] = used[i*len(used)/parts : (i+1)*len(used)/parts]
	}
	return out
}

// scatter evicts the pods of the nodes of a model that have free and used GPUs, the nodes with
// the fewest pods first: each pod starts on a random node that takes it, if there is one.
func (p *planner) scatter(model string) {
	nodes := p.nodesOf(model)
	var slack []cluster.NodeID
	for _, id := range nodes {
		if n := p.state.Node(id); n.FreeMilli() > 0 && inUse(n) > 0 && p.mayVacate(n) {
			slack = append(slack, id)
		}
	}
	p.byPods(slack)
	for _, id := range slack {
		n := p.state.Node(id)
		if !p.mayVacate(n) || p.opt.MaxMoves > 0 && len(p.moves)+podsOn(n) > p.opt.MaxMoves {
			continue // the first if another pod has moved onto it
		}
		p.goal, p.closed[id] = id, true
		for _, h := range largestFirst(n, func(h *cluster.Held) bool { return h.Alloc.GPUs != 0 }) {
			p.state.Remove(h.Owner, id)
			if to, ok := p.anywhere(h, nodes); ok && p.put(h, to) {
				p.moved[h.Owner] = true
				continue
			}
			p.state.Place(h.Owner, h.Alloc)
		}
		p.closed[id] = false
		if inUse(n) == 0 {
			p.vacated++
		}
	}
}

// anywhere returns a random node that takes a pod.
func (p *planner) anywhere(h cluster.Held, nodes []cluster.NodeID) (cluster.NodeID, bool) {
	const draws = 64
	u := p.unit(h.Owner)
	seed := mix(p.opt.Seed<<48 ^ uint64(h.Owner.Job)<<16 ^ uint64(h.Owner.Pod))
	for i := range draws + len(nodes) {
		at := (seed + uint64(max(0, i-draws))) % uint64(len(nodes))
		if i < draws {
			at = mix(seed+uint64(i)) % uint64(len(nodes))
		}
		if id := nodes[at]; !p.closed[id] && p.placer.Takes(u, id) {
			return id, true
		}
	}
	return 0, false
}

// byPods orders nodes by how many pods with GPUs they have, the fewest first.
func (p *planner) byPods(nodes []cluster.NodeID) {
	slices.SortFunc(nodes, func(a, b cluster.NodeID) int {
		return cmp.Or(cmp.Compare(podsOn(p.state.Node(a)), podsOn(p.state.Node(b))), cmp.Compare(a, b))
	})
}

// podsOn counts the pods with GPUs of a node.
func podsOn(n *cluster.Node) (count int) {
	for h := range n.Pods {
		if h.Alloc.GPUs != 0 {
			count++
		}
	}
	return count
}
