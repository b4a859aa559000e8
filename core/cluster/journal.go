package cluster

import (
	"fmt"
	"math/bits"
)

// The journal: pods are placed and removed in the state itself, as a trial or for good. A
// trial is rolled back, entry by entry from the last; what stays is committed.

// change is one entry of the journal: a pod that came or went (at is its place in
// Node.pods).
type change struct {
	held Held
	at   int32
	came bool
}

// Place puts a pod where a says. The caller has made sure that it fits.
func (s *State) Place(o Owner, a Alloc) {
	if !s.HasBeside(&a) {
		panic(fmt.Sprintf("cluster: CPU, memory, pods or other resources of node %s over-allocated", s.nodes[a.Node].Spec.Name))
	}
	s.PlaceFound(o, a)
}

// PlaceFound is Place for a pod that already runs there: CPU, memory, pods and other
// resources of the node may be overdrawn. Its devices are free.
func (s *State) PlaceFound(o Owner, a Alloc) {
	n := &s.nodes[a.Node]
	at := n.add(Held{o, a})
	s.take(n, o, &a)
	s.countJournaled(a.Node, o, 1)
	s.journal = append(s.journal, change{Held{o, a}, at, true})
}

// Remove takes a pod off its node.
func (s *State) Remove(o Owner, node NodeID) Alloc {
	n := &s.nodes[node]
	h, at := n.remove(o)
	s.give(n, o, &h.Alloc)
	s.countJournaled(node, o, -1)
	s.journal = append(s.journal, change{h, at, false})
	return h.Alloc
}

// Mark returns a point to roll back to.
func (s *State) Mark() int { return len(s.journal) }

// Rollback takes back every Place and Remove since the mark. O(changes).
func (s *State) Rollback(mark int) {
	// From the last change to the first, so that each is taken back in the state that it left:
	// a device was freed by one pod before the next took it, and a pod that was removed goes
	// back to its place in the list of its node, not to the end.
	for i := len(s.journal) - 1; i >= mark; i-- {
		c := &s.journal[i]
		n := &s.nodes[c.held.Alloc.Node]
		by := int32(1)
		if c.came {
			n.takeBack()
			s.give(n, c.held.Owner, &c.held.Alloc)
			by = -1
		} else {
			n.putBack(c.held, c.at)
			s.take(n, c.held.Owner, &c.held.Alloc)
		}
		if len(s.podLabels) > 0 {
			s.count(c.held.Alloc.Node, c.held.Owner, by)
		}
	}
	s.journal = s.journal[:mark]
	// If changes from before the mark are left, some may be of labels. To assume so only costs
	// a second look at places that are kept; see LastingLabelChanges.
	s.relabels = s.relabels && mark > 0
}

// Commit forgets the journal: what was done stays done. O(changes).
func (s *State) Commit() {
	for i := range s.journal {
		s.nodes[s.journal[i].held.Alloc.Node].settle(s.many)
	}
	s.journal = s.journal[:0]
	if s.relabels {
		s.lasting++
		s.relabels = false
	}
}

func (s *State) mustBeSettled() {
	if len(s.journal) > 0 {
		panic("cluster: nodes may change between attempts only")
	}
}

// take books an allocation on a node, of a pod that has come.
func (s *State) take(n *Node, o Owner, a *Alloc) {
	if n.left != anyPods {
		s.countPods(a.Node)
	}
	if len(s.loans) > 0 {
		s.useBeside(n, o, a, 1)
	} else {
		n.CPU -= a.CPUMilli
		n.Mem -= a.MemMiB
	}
	if a.Others != 0 {
		n.countOthers(s.amounts[a.Others], -1)
	}
	if a.Share == WholeGPU {
		for m := a.GPUs; m != 0; m &= m - 1 {
			d := bits.TrailingZeros64(m)
			if n.part[d] != int16(WholeGPU) {
				panic(fmt.Sprintf("cluster: device %d of node %s is not free", d, n.Spec.Name))
			}
			n.part[d] = 0
		}
	} else {
		for m := a.GPUs; m != 0; m &= m - 1 {
			s.sharePart(n, a.Node, bits.TrailingZeros64(m), -a.Share)
		}
	}
	n.Whole &^= a.GPUs
	s.reindex(n)
}

// give books an allocation back, of a pod that has gone.
func (s *State) give(n *Node, o Owner, a *Alloc) {
	if n.left != anyPods {
		s.countPods(a.Node)
	}
	if len(s.loans) > 0 {
		s.useBeside(n, o, a, -1)
	} else {
		n.CPU += a.CPUMilli
		n.Mem += a.MemMiB
	}
	if a.Others != 0 {
		n.countOthers(s.amounts[a.Others], 1)
	}
	if a.Share == WholeGPU {
		for m := a.GPUs; m != 0; m &= m - 1 {
			n.part[bits.TrailingZeros64(m)] = int16(WholeGPU)
		}
		n.Whole |= a.GPUs & n.healthy
	} else {
		for m := a.GPUs; m != 0; m &= m - 1 {
			d := bits.TrailingZeros64(m)
			s.sharePart(n, a.Node, d, a.Share)
			if n.part[d] == int16(WholeGPU) {
				n.Whole |= 1 << d & n.healthy
			}
		}
	}
	s.reindex(n)
}

// sharePart changes what is free on a shared device and re-files it.
func (s *State) sharePart(n *Node, id NodeID, d int, by Milli) {
	p := s.pools[n.pool]
	listed := n.indexed >= 0 && n.healthy>>d&1 == 1
	if listed {
		p.shared.remove(n.part[d], sharedKey(id, d))
	}
	n.part[d] += int16(by)
	n.split &^= 1 << d
	if n.part[d] > 0 && n.part[d] < int16(WholeGPU) {
		n.split |= 1 << d
	}
	if n.part[d] < 0 {
		panic(fmt.Sprintf("cluster: device %d of node %s over-allocated", d, n.Spec.Name))
	}
	if listed {
		p.shared.add(n.part[d], sharedKey(id, d))
	}
}
