package cluster

import "math/bits"

// Find returns a node with exactly free whole GPUs free and at least what is
// needed: in the preferred leaf group, the first by slot. O(log leaf groups).
func (s *State) Find(p *Pool, free int, order LeafOrder, need Need) (NodeID, bool) {
	if p.total[free] == 0 {
		return 0, false
	}
	p.refresh()
	for {
		// 1. The preferred leaf group whose bounds promise the CPU and memory.
		leaf := p.trees[free].best(order, need.CPU, need.Mem)
		if leaf < 0 {
			return 0, false
		}
		if id, ok := s.FindIn(p, leaf, free, need); ok {
			return id, true
		}
		// 2. The bounds were too high, and FindIn has lowered them to what its nodes have: the
		// tree will not return this group again. But if one node has the CPU and another the
		// memory, it would, for ever.
		if set := &p.leaves[leaf].sets[free]; set.cpu >= need.CPU && set.mem >= need.Mem {
			return s.findSlow(p, free, order, need)
		}
	}
}

// findSlow is Find where bounds do not help: in the preferred leaf group, some
// nodes have the CPU, others the memory or the pods left.
func (s *State) findSlow(p *Pool, free int, order LeafOrder, need Need) (NodeID, bool) {
	return p.preferred(free, order, func(leaf int32) (NodeID, bool) { return s.FindIn(p, leaf, free, need) })
}

// preferred returns the node that in finds in the leaf group that comes first in an order, among
// the groups where it finds one; of several such groups, the first. O(leaf groups).
func (p *Pool) preferred(free int, order LeafOrder, in func(leaf int32) (NodeID, bool)) (NodeID, bool) {
	best, bestKey, found := NodeID(0), int64(0), false
	t := &p.trees[free]
	for leaf := range p.leaves {
		key := t.sums[t.half+leaf].key[order]
		if found && key >= bestKey {
			continue
		}
		if id, ok := in(int32(leaf)); ok {
			best, bestKey, found = id, key, true
		}
	}
	return best, found
}

// FindIn is [State.Find] in one leaf group.
func (s *State) FindIn(p *Pool, leaf int32, free int, need Need) (NodeID, bool) {
	l := &p.leaves[leaf]
	set := &l.sets[free]
	if set.count == 0 || set.cpu < need.CPU || set.mem < need.Mem {
		return 0, false
	}
	maxCPU, maxMem := int64(-1), int64(-1)
	for w, word := range set.slots {
		for ; word != 0; word &= word - 1 {
			id := l.nodes[w*64+bits.TrailingZeros64(word)]
			n := &s.nodes[id]
			if n.Has(need) {
				return id, true
			}
			if n.left > 0 {
				maxCPU, maxMem = max(maxCPU, n.CPU), max(maxMem, n.Mem)
			}
		}
	}
	// No node of the set will do: lower its bounds to what the nodes have that take pods, so
	// that the next search passes the group over.
	set.cpu, set.mem = maxCPU, maxMem
	p.summarize(leaf, free)
	return 0, false
}

// FindFunc returns a node with exactly free whole GPUs free that ok accepts: in
// the preferred leaf group, the first by slot. O(nodes).
func (s *State) FindFunc(p *Pool, free int, order LeafOrder, ok func(NodeID) bool) (NodeID, bool) {
	if p.total[free] == 0 {
		return 0, false
	}
	p.refresh()
	return p.preferred(free, order, func(leaf int32) (NodeID, bool) { return s.FindFuncIn(p, leaf, free, ok) })
}

// FindFuncIn is [State.FindFunc] in one leaf group.
func (s *State) FindFuncIn(p *Pool, leaf int32, free int, ok func(NodeID) bool) (NodeID, bool) {
	l := &p.leaves[leaf]
	for w, word := range l.sets[free].slots {
		for ; word != 0; word &= word - 1 {
			if id := l.nodes[w*64+bits.TrailingZeros64(word)]; ok(id) {
				return id, true
			}
		}
	}
	return 0, false
}
