package cluster

import (
	"maps"
	"math/bits"
	"slices"
)

// Lent devices: a pod on standby keeps its place, and lends its devices and some of its CPU and
// memory. What one pod lends is a node of its own beside the real one, its home, in a pool of
// lent nodes. So the fit index finds it like any other room, only for pods that may be on lent
// devices, and it is neither counted nor searched for others. The allocation of the lending pod
// at home stays as it is: what is lent is a part of that, so nothing is allocated twice.
//
// A lent node has the name, labels, taints, domains and device numbers of its home. At the level
// of nodes both are one domain. It has no other resources than CPU and memory.

// lender is a pod that lends, by what no other pod at its home has: its lowest device.
type lender struct {
	home   NodeID
	device int
}

// loan is what a lent node has of its home: devices, none while they are not lent.
type loan struct {
	home    NodeID
	devices uint64
}

// Lend makes devices of a node, and CPU and memory beside them, into a lent node, which is open
// unless the node is cordoned. On a node with a limit of pods, the lent node takes one pod a
// device, as far as the limit allows. fresh says that pools or domains may be new, so that
// shapes must be compiled again. The journal must be empty.
func (s *State) Lend(home NodeID, gpus uint64, cpu, mem int64) (id NodeID, fresh bool) {
	s.mustBeSettled()
	key := lender{home, bits.TrailingZeros64(gpus)}
	id, known := s.lenders[key]
	if !known {
		id = NodeID(len(s.nodes))
		s.nodes = append(s.nodes, Node{leaf: -1, closed: 1})
		s.lenders[key] = id
		s.lentBy[home] = append(s.lentBy[home], id)
	}
	h, n := &s.nodes[home], &s.nodes[id]
	spec := *h.Spec
	spec.CPUMilli, spec.MemMiB, spec.Others = cpu, mem, nil
	s.loans[id] = loan{home, gpus}
	was := *n
	*n = Node{
		Spec: &spec, Up: true, CPU: cpu, Mem: mem, indexed: -1,
		leaf: was.leaf, slot: was.slot, pool: was.pool, member: was.member, dom: was.dom, layout: h.layout, domains: h.domains,
	}
	n.part = make([]int16, spec.GPUs)
	for i := range n.part {
		n.part[i] = int16(WholeGPU)
	}
	n.healthy = h.healthy & gpus
	n.Whole = n.healthy
	if spec.Cordoned {
		n.closed = 1
	}
	s.limitLent(id)

	// It stays where it was filed last if that is its place now: else the pools would grow.
	pool := s.poolOf(&spec, s.pools[h.pool].Zone, true)
	if !known || pool != n.pool || !slices.Equal(was.domains, n.domains) || !maps.Equal(was.Spec.Labels, spec.Labels) {
		if known {
			s.pools[n.pool].leave(n)
		}
		n.pool = pool
		s.pools[pool].join(s, n, id)
		s.epoch++
		fresh = true
	}
	s.index(n)
	return id, fresh
}

// Unlend closes a lent node for good, until its devices are lent again. Pods on it stay.
func (s *State) Unlend(id NodeID) {
	n := &s.nodes[id]
	if n.Spec.MaxPods > 0 {
		h := &s.nodes[s.loans[id].home]
		h.reserved -= int16(n.Spec.MaxPods)
		h.countPods()
		s.reindex(h) // it may take pods again
	}
	s.loans[id] = loan{home: s.loans[id].home}
	s.Close(id)
}

// limitLent gives a lent node its share of the pods that its home still takes.
func (s *State) limitLent(id NodeID) {
	n, h := &s.nodes[id], &s.nodes[s.loans[id].home]
	if h.Spec.MaxPods == 0 {
		n.Spec.MaxPods = 0
		n.countPods()
		return
	}
	more := h.Spec.MaxPods - h.Count() - int(h.reserved)
	most := max(min(more, bits.OnesCount64(s.loans[id].devices)), n.Count())
	if most == 0 {
		n.Spec.MaxPods = -1 // 0 would be no limit
	} else {
		n.Spec.MaxPods = most
		h.reserved += int16(most)
	}
	n.countPods()
	h.countPods()
	s.reindex(h)
}

// Lent reports whether the node is what a pod on standby lends.
func (s *State) Lent(id NodeID) bool {
	_, lent := s.loans[id]
	return lent
}

// Home returns the node of which a lent one has devices; another node is its own home.
func (s *State) Home(id NodeID) NodeID {
	if l, lent := s.loans[id]; lent {
		return l.home
	}
	return id
}

// lentAt yields the nodes that pods on a node lend now.
func (s *State) lentAt(home NodeID, yield func(NodeID, *Node) bool) {
	for _, id := range s.lentBy[home] {
		if n := &s.nodes[id]; n.Up && s.loans[id].devices != 0 && !yield(id, n) {
			return
		}
	}
}

// changeLent gives the lent nodes of a home its labels, taints, place and limit of pods.
func (s *State) changeLent(home NodeID) {
	h := &s.nodes[home]
	h.reserved = 0
	for id, n := range func(yield func(NodeID, *Node) bool) { s.lentAt(home, yield) } {
		s.unindex(n)
		s.countAll(id, -1)
		spec := *h.Spec
		spec.CPUMilli, spec.MemMiB, spec.Others = n.Spec.CPUMilli, n.Spec.MemMiB, nil
		n.Spec, n.domains = &spec, h.domains
		s.pools[n.pool].leave(n)
		n.pool = s.poolOf(&spec, s.pools[h.pool].Zone, true)
		s.pools[n.pool].join(s, n, id)
		s.countAll(id, 1)
		s.limitLent(id)
		s.index(n)
	}
	h.countPods()
	s.reindex(h)
}

// removeLent takes the lent nodes of a home away, and returns their pods.
func (s *State) removeLent(home NodeID) []Held {
	var pods []Held
	for id, n := range func(yield func(NodeID, *Node) bool) { s.lentAt(home, yield) } {
		s.unindex(n)
		s.countAll(id, -1)
		pods = append(pods, slices.DeleteFunc(n.pods, func(h Held) bool { return h.Owner.Job == noJob })...)
		n.Up, n.pods, n.crowd = false, nil, nil
		s.loans[id] = loan{home: home}
	}
	s.nodes[home].reserved = 0
	return pods
}
