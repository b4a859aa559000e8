package cluster

import (
	"slices"
	"strings"
)

// Any label of nodes can be a level for terms: the nodes with the same value of it are one domain, and
// those without it are in none. Gangs are not placed by such levels, so pools do not index them.

// TermLevel is [State.Level] for a term, which may name a label that was added.
func (s *State) TermLevel(name string) (int, bool) {
	key, ok := strings.CutPrefix(name, LabelLevel)
	if !ok {
		return s.Level(name)
	}
	i := slices.Index(s.keys, key)
	return len(s.levels) + 1 + i, i >= 0
}

// AddTermLevel makes the label that a level names one for terms, if it is none. Other names change nothing. It
// costs O(nodes and their pods), once a label. The journal must be empty.
func (s *State) AddTermLevel(name string) {
	key, ok := strings.CutPrefix(name, LabelLevel)
	if !ok || slices.Contains(s.keys, key) {
		return
	}
	s.mustBeSettled()
	for id := range s.nodes {
		s.countAll(NodeID(id), -1)
	}
	s.keys = append(s.keys, key)
	s.domains = append(s.domains, domainSet{})
	for id := range s.nodes {
		n := &s.nodes[id]
		n.domains = append(slices.Clone(n.domains), s.byLabel(n, len(s.keys)-1))
		s.countAll(NodeID(id), 1)
	}
}

// byLabel returns the domain of a node by the ith label, -1 if it does not have it.
func (s *State) byLabel(n *Node, i int) int32 {
	v, ok := n.Spec.Labels[s.keys[i]]
	if !ok {
		return -1
	}
	return s.domains[len(s.levels)+1+i].number(v)
}
