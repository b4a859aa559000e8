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
// The pods on a lent node may take more CPU and memory than its owner lends, of what is free at home:
// with the owner's, as much as the node has for each of its devices, less what the owner keeps. So a
// pod that asks for its share of CPU finds room beside an owner that asked for less; and pods at home
// that ask for their share find room beside both. What they draw is in use at home as long as they are there.
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

// loan is what a lent node has of its home: devices, none while they are not lent, and what is beside
// them; and until when.
type loan struct {
	home     NodeID
	devices  uint64
	until    Time
	cpu, mem beside
}

// beside is CPU or memory on a lent node.
type beside struct {
	lent, kept int64 // by the owner
	used       int64 // by the pods on it
}

// drawn is what the pods on it take of what their home has beside the owner's.
func (b *beside) drawn() int64 { return max(0, b.used-b.lent) }

// use notes that pods take so much more, and returns how much more they draw.
func (b *beside) use(more int64) int64 {
	before := b.drawn()
	b.used += more
	return b.drawn() - before
}

// most is what its pods may take at most, of a home that has so much for the devices.
func (b *beside) most(share int64) int64 { return max(b.lent, share-b.kept) }

// free is what is free on it, if its home has so much free.
func (b *beside) free(share, home int64) int64 {
	return min(max(0, b.lent-b.used)+home, b.most(share)-b.used)
}

// shares returns the part of a node's CPU and memory that devices of it stand for.
func (n *Node) shares(devices uint64) (cpu, mem int64) {
	k, of := int64(bits.OnesCount64(devices)), int64(n.Spec.GPUs)
	return n.Spec.CPUMilli / of * k, n.Spec.MemMiB / of * k
}

// Lend makes the devices of an allocation, and the CPU and memory of it that its owner does not keep,
// into a lent node, which is open unless the node is cordoned. On a node with a limit of pods, the
// lent node takes one pod a device, as far as the limit allows. fresh says that pools or domains may
// be new, so that shapes must be compiled again. The journal must be empty.
func (s *State) Lend(a *Alloc, keepCPU, keepMem int64, until Time) (id NodeID, fresh bool) {
	s.mustBeSettled()
	home, gpus := a.Node, a.GPUs
	key := lender{home, bits.TrailingZeros64(gpus)}
	id, known := s.lenders[key]
	if !known {
		id = NodeID(len(s.nodes))
		s.nodes = append(s.nodes, Node{leaf: -1, closed: 1})
		s.lenders[key] = id
		s.lentBy[home] = append(s.lentBy[home], id)
	}
	h, n := &s.nodes[home], &s.nodes[id]
	keepCPU, keepMem = min(keepCPU, a.CPUMilli), min(keepMem, a.MemMiB)
	l := loan{
		home: home, devices: gpus, until: until,
		cpu: beside{lent: a.CPUMilli - keepCPU, kept: keepCPU}, mem: beside{lent: a.MemMiB - keepMem, kept: keepMem},
	}
	s.loans[id] = l
	spec := h.lentSpec(&l)
	was := *n
	*n = Node{
		Spec: &spec, Up: true, indexed: -1,
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

// lentSpec describes a lent node: it has the CPU and memory that its pods may take at most.
func (n *Node) lentSpec(l *loan) NodeSpec {
	spec := *n.Spec
	cpu, mem := n.shares(l.devices)
	spec.CPUMilli, spec.MemMiB, spec.Others = l.cpu.most(cpu), l.mem.most(mem), nil
	return spec
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

// useBeside books CPU and memory that pods on a node take from now on; less than 0 for pods that left.
func (s *State) useBeside(n *Node, id NodeID, cpu, mem int64) {
	l, lent := s.loans[id]
	if !lent {
		n.CPU -= cpu
		n.Mem -= mem
		s.shareRoom(id)
		return
	}
	h := &s.nodes[l.home]
	h.CPU -= l.cpu.use(cpu)
	h.Mem -= l.mem.use(mem)
	s.loans[id] = l
	s.reindex(h)
	s.shareRoom(l.home)
}

// Draws reports whether the pods on a lent node take CPU or memory of its home beyond what its owner lends.
func (s *State) Draws(id NodeID) bool {
	l := s.loans[id]
	return l.cpu.drawn() > 0 || l.mem.drawn() > 0
}

// shareRoom brings what is free of CPU and memory up to date on the lent nodes of a home: what the
// home has free, too, unless new pods are kept off it, as it may be kept for some; and if pods at home
// take more than it has, so much less.
func (s *State) shareRoom(home NodeID) {
	if len(s.lentBy[home]) == 0 {
		return
	}
	h := &s.nodes[home]
	freeCPU, freeMem := h.CPU, h.Mem
	if !h.Open() {
		freeCPU, freeMem = min(0, freeCPU), min(0, freeMem)
	}
	for id, n := range s.LentAt(home) {
		l := s.loans[id]
		cpu, mem := h.shares(l.devices)
		n.CPU, n.Mem = l.cpu.free(cpu, freeCPU), l.mem.free(mem, freeMem)
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
		l := s.loans[id]
		spec := h.lentSpec(&l)
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
