package cluster

import (
	"iter"
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
// A node may have become smaller than its pods, and pods may be found running without room for them.
// What its pods take beyond what it has is missing on each lent node, of CPU and memory (shareRoom)
// and of the limit of pods (countPods): the lending pod does not have it either.
//
// A lent node has the name, labels, taints, domains and device numbers of its home. At the level
// of nodes both are one domain. It has no other resources than CPU and memory.

// lender is a pod that lends, by what no other pod at its home has: its lowest device.
type lender struct {
	home   NodeID
	device int
}

// loan is what a lent node has of its home: devices, none while they are not lent; and until when.
// cpu and mem are what is missing of what it was lent, because the home is overdrawn.
type loan struct {
	home     NodeID
	devices  uint64
	until    Time
	cpu, mem int64
}

// Lend makes devices of a node, and CPU and memory beside them, into a lent node, which is open
// unless the node is cordoned. On a node with a limit of pods, the lent node takes one pod a
// device, as far as the limit allows. fresh says that pools or domains may be new, so that
// shapes must be compiled again. The journal must be empty.
func (s *State) Lend(home NodeID, gpus uint64, cpu, mem int64, until Time) (id NodeID, fresh bool) {
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
	s.loans[id] = loan{home: home, devices: gpus, until: until}
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
	s.shareLimit(id)
	s.countPods(id)
	s.shareRoom(home)

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

// LentUntil returns until when a lent node is lent; for other nodes it returns Never.
func (s *State) LentUntil(id NodeID) Time {
	if l, lent := s.loans[id]; lent {
		return l.until
	}
	return Never
}

// SetLentUntil changes until when a node is lent.
func (s *State) SetLentUntil(id NodeID, until Time) {
	l := s.loans[id]
	l.until = until
	s.loans[id] = l
}

// Unlend closes a lent node for good, until its devices are lent again. Pods on it stay.
func (s *State) Unlend(id NodeID) {
	home := s.loans[id].home
	s.loans[id] = loan{home: home}
	s.countPods(home) // it may take pods again
	s.Close(id)
}

// shareLimit gives a lent node its share of the pods that its home may have: one a device, as far
// as the pods at home, those on its lent nodes and the shares of these leave any.
func (s *State) shareLimit(id NodeID) {
	n, h := &s.nodes[id], &s.nodes[s.loans[id].home]
	n.Spec.MaxPods = 0
	if h.Spec.MaxPods == 0 {
		return
	}
	n.Spec.MaxPods = -1 // none, as 0 would be no limit
	s.countPods(id)
	if share := min(n.Count()+h.Spec.MaxPods-h.Count()-int(h.reserved), bits.OnesCount64(s.loans[id].devices)); share > 0 {
		n.Spec.MaxPods = share
	}
}

// countPods brings what is left of the limit of pods up to date on a node, and on those that
// share its limit: its home, and what pods there lend. A pod that is found running comes without
// room for it: at home it may be one more than the shares leave, on a lent node one more than its
// share. So the home keeps for a lent node whichever is more, its share or its pods; and what the
// home has beyond its limit is missing on each lent node.
func (s *State) countPods(id NodeID) {
	s.nodes[id].countPods()
	if len(s.loans) == 0 {
		return
	}
	home := s.Home(id)
	h := &s.nodes[home]
	h.reserved = 0
	for _, n := range s.LentAt(home) {
		h.reserved += int16(max(n.Spec.MaxPods, n.Count()))
	}
	h.countPods()
	s.reindex(h)
	beyond := max(0, h.Count()+int(h.reserved)-h.Spec.MaxPods)
	for _, n := range s.LentAt(home) {
		if n.countPods(); h.Spec.MaxPods > 0 {
			n.left = int16(max(0, int(n.left)-beyond))
		}
		s.reindex(n)
	}
}

// shareRoom takes from the lent nodes of a home what pods there take beyond its CPU and memory.
func (s *State) shareRoom(home NodeID) {
	h := &s.nodes[home]
	cpu, mem := max(0, -h.CPU), max(0, -h.Mem)
	for id, n := range s.LentAt(home) {
		l := s.loans[id]
		n.CPU, n.Mem = n.CPU+l.cpu-cpu, n.Mem+l.mem-mem
		l.cpu, l.mem = cpu, mem
		s.loans[id] = l
		s.reindex(n)
	}
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

// LentAt returns the nodes that pods on a node lend now.
func (s *State) LentAt(home NodeID) iter.Seq2[NodeID, *Node] {
	return func(yield func(NodeID, *Node) bool) {
		for _, id := range s.lentBy[home] {
			if n := &s.nodes[id]; n.Up && s.loans[id].devices != 0 && !yield(id, n) {
				return
			}
		}
	}
}

// changeLent gives the lent nodes of a home its labels, taints, place and limit of pods.
func (s *State) changeLent(home NodeID) {
	h := &s.nodes[home]
	for id, n := range s.LentAt(home) {
		s.unindex(n)
		s.countAll(id, -1)
		spec := *h.Spec
		spec.CPUMilli, spec.MemMiB, spec.Others = n.Spec.CPUMilli, n.Spec.MemMiB, nil
		spec.MaxPods = -1 // shared out below, when the pods on all of them are counted
		n.Spec, n.domains = &spec, h.domains
		s.pools[n.pool].leave(n)
		n.pool = s.poolOf(&spec, s.pools[h.pool].Zone, true)
		s.pools[n.pool].join(s, n, id)
		s.countAll(id, 1)
		s.index(n)
	}
	for id := range s.LentAt(home) {
		s.shareLimit(id)
	}
	s.countPods(home)
	s.shareRoom(home)
}

// removeLent takes the lent nodes of a home away, and returns their pods.
func (s *State) removeLent(home NodeID) []Held {
	var pods []Held
	for id, n := range s.LentAt(home) {
		s.unindex(n)
		s.countAll(id, -1)
		pods = append(pods, slices.DeleteFunc(n.pods, func(h Held) bool { return h.Owner.Job == noJob })...)
		n.Up, n.pods, n.crowd = false, nil, nil
		s.loans[id] = loan{home: home}
	}
	s.nodes[home].reserved = 0
	return pods
}
