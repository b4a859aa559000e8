package cluster

import (
	"maps"
	"math/bits"
	"slices"
)

// Lent devices: a pod on standby keeps its place, and lends its devices and some of its CPU and
// memory. What the pods of a node lend is one node of its own beside the real one, its home, in a pool
// of lent nodes. So the fit index finds it like any other room, only for pods that may be on lent
// devices, and it is neither counted nor searched for others. The allocations of the lending pods
// at home stay as they are: what is lent is a part of them, so nothing is allocated twice.
//
// A pod on a lent node may have devices of several owners, and use what any of them lends of CPU and memory.
// So when an owner returns, its part of the lent node is closed: nothing more starts on its devices, and
// what the pods that stay may take is counted without it (beside.free).
//
// The pods on a lent node may take more CPU and memory than its owners lend, of what is free at home:
// with the owners', as much as the node has for each of their devices, less what the owners keep. So a
// pod that asks for its share of CPU finds room beside owners that asked for less; and pods at home
// that ask for their share find room beside both. What they draw is in use at home as long as they are there.
// When an owner ends, a pod on its devices and on those of another one draws the devices of the first from home, too.
//
// A node may have become smaller than its pods, and pods may be found running without room for them.
// What its pods take beyond what it has is missing on its lent node, of CPU and memory (shareRoom)
// and of the limit of pods (countPods): the lending pods do not have it either.
//
// A lent node has the name, labels, taints, domains and device numbers of its home. At the level
// of nodes both are one domain. It has no other resources than CPU and memory.

// loan is what a lent node has of its home.
//
// Invariant: without parts, it has no pods.
type loan struct {
	home NodeID
	// parts are what the owners lend, in the order in which they began.
	parts []part
	// going are pods that were told to leave as an owner returns.
	going []Owner
	// drawn are the devices of its pods that no owner lends.
	drawn    uint64
	cpu, mem beside
}

// part is what an owner lends: its devices, until when, and what it keeps beside them.
type part struct {
	devices  uint64
	until    Time
	cpu, mem ownersRoom
	// closed says that nothing more starts on the devices; returns that the owner wants all of it back, too, while one
	// that leaves its node leaves to the pods there what they use.
	closed, returns bool
}

// ownersRoom is CPU or memory of an owner.
type ownersRoom struct{ lent, kept int64 }

// beside is CPU or memory on a lent node.
type beside struct {
	// returns is what owners lend that return, open and kept what the others lend and keep.
	open, kept, returns int64
	// stays is what the pods on it use, goes what those do that leave for owners that return: see loan.leaves.
	stays, goes int64
}

// drawn is what its pods take of what their home has beside the owners: now, and when those that return
// have theirs back.
func (b *beside) drawn() int64 {
	return max(0, b.stays+b.goes-b.open-b.returns, b.stays-b.open)
}

// use notes that pods take so much more, which leave or not, and returns how much more they draw.
func (b *beside) use(more int64, leaves bool) int64 {
	before := b.drawn()
	if leaves {
		b.goes += more
	} else {
		b.stays += more
	}
	return b.drawn() - before
}

// lend notes that an owner, which returns or not, lends, 1, or does so no longer, -1.
func (b *beside) lend(r ownersRoom, returns bool, by int64) {
	if returns {
		b.returns += by * r.lent
		return
	}
	b.open += by * r.lent
	b.kept += by * r.kept
}

// free is how much more pods may take of it that stay, if its home has so much free: altogether at most the share of the home
// that its devices are, less what the owners keep.
func (b *beside) free(share, home int64) int64 {
	return min(home+b.drawn()+b.open-b.stays+min(0, b.returns-b.goes), max(b.open, share-b.kept)-b.stays)
}

// devices returns the devices that are lent: of open parts, and of those that are closed.
func (l *loan) devices() (open, closed uint64) {
	for k := range l.parts {
		if l.parts[k].closed {
			closed |= l.parts[k].devices
		} else {
			open |= l.parts[k].devices
		}
	}
	return open, closed
}

// leaves reports whether a pod leaves before the owners that return have all back: it has devices
// of theirs, or was told to.
func (l *loan) leaves(o Owner, a *Alloc) bool {
	return slices.ContainsFunc(l.parts, func(p part) bool { return p.returns && a.GPUs&p.devices != 0 }) || slices.Contains(l.going, o)
}

// recount counts again what the owners lend, and what the pods use. It returns how much more of CPU and memory they draw.
func (l *loan) recount(n *Node) (cpu, mem int64) {
	cpu, mem = -l.cpu.drawn(), -l.mem.drawn()
	l.cpu, l.mem = beside{}, beside{}
	for _, p := range l.parts {
		l.cpu.lend(p.cpu, p.returns, 1)
		l.mem.lend(p.mem, p.returns, 1)
	}
	for h := range n.Pods {
		leaves := l.leaves(h.Owner, &h.Alloc)
		l.cpu.use(h.Alloc.CPUMilli, leaves)
		l.mem.use(h.Alloc.MemMiB, leaves)
	}
	return cpu + l.cpu.drawn(), mem + l.mem.drawn()
}

// shares returns the part of a node's CPU and memory that devices of it stand for.
func (n *Node) shares(devices uint64) (cpu, mem int64) {
	k, of := int64(bits.OnesCount64(devices)), int64(n.Spec.GPUs)
	return n.Spec.CPUMilli / of * k, n.Spec.MemMiB / of * k
}

// Lend adds to the lent node of a home the devices of an allocation there, and the CPU and memory of it that its owner does
// not keep. The first owner opens the lent node, unless the home is cordoned. On a home with a limit of pods, the
// lent node takes one pod a device, as far as the limit allows. fresh says that pools or domains may
// be new, so that shapes must be compiled again. The journal must be empty.
func (s *State) Lend(a *Alloc, keepCPU, keepMem int64, until Time) (id NodeID, fresh bool) {
	s.mustBeSettled()
	id, known := s.lentOf[a.Node]
	if !known {
		id = NodeID(len(s.nodes))
		s.nodes = append(s.nodes, Node{leaf: -1, closed: 1})
		s.lentOf[a.Node], s.loans[id] = id, &loan{home: a.Node}
	}
	l := s.loans[id]
	if len(l.parts) == 0 {
		fresh = s.openLent(id, a.Node, known)
	}
	keepCPU, keepMem = min(keepCPU, a.CPUMilli), min(keepMem, a.MemMiB)
	l.parts = append(l.parts, part{
		devices: a.GPUs, until: until,
		cpu: ownersRoom{a.CPUMilli - keepCPU, keepCPU}, mem: ownersRoom{a.MemMiB - keepMem, keepMem},
	})
	s.partsChanged(id)
	return id, fresh
}

// openLent makes a lent node like its home, without devices.
func (s *State) openLent(id, home NodeID, known bool) (fresh bool) {
	h, n := &s.nodes[home], &s.nodes[id]
	spec := h.lentSpec()
	was := *n
	*n = Node{
		Spec: &spec, Up: true, indexed: -1,
		leaf: was.leaf, slot: was.slot, pool: was.pool, member: was.member, dom: was.dom, layout: h.layout, domains: h.domains,
	}
	n.part = make([]int16, spec.GPUs)
	for i := range n.part {
		n.part[i] = int16(WholeGPU)
	}
	if spec.Cordoned {
		n.closed = 1
	}

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
	return fresh
}

// partsChanged brings a lent node up to date with what its owners lend.
func (s *State) partsChanged(id NodeID) {
	l, n := s.loans[id], &s.nodes[id]
	h := &s.nodes[l.home]
	s.unindex(n)
	open, _ := l.devices()
	n.healthy = h.healthy & open
	n.Whole = 0
	for m := n.healthy; m != 0; m &= m - 1 {
		if n.part[bits.TrailingZeros64(m)] == int16(WholeGPU) {
			n.Whole |= m & -m
		}
	}
	s.index(n)
	cpu, mem := l.recount(n)
	h.CPU -= cpu
	h.Mem -= mem
	s.reindex(h)
	s.shareLimit(id)
	s.countPods(id)
	s.shareRoom(l.home)
}

// lentSpec describes the lent node of a home. Of CPU and memory it says the home's: how much of it pods may take
// depends on the owners. It is not blind: that the node picks none of these devices for others is up to their owner, who lends them.
func (n *Node) lentSpec() NodeSpec {
	spec := *n.Spec
	spec.Others, spec.Blind = nil, false
	return spec
}

// LentUntil returns until when a lent node is lent, as a whole: until the first of its owners takes its devices back, of
// those that have not begun to. For other nodes it returns Never.
func (s *State) LentUntil(id NodeID) Time {
	until := Never
	if l, lent := s.loans[id]; lent {
		for k := range l.parts {
			if !l.parts[k].closed {
				until = min(until, l.parts[k].until)
			}
		}
	}
	return until
}

// part returns what the owner of some devices lends.
func (s *State) part(id NodeID, devices uint64) (l *loan, at int) {
	l = s.loans[id]
	return l, slices.IndexFunc(l.parts, func(p part) bool { return p.devices == devices })
}

// SetLentUntil changes until when devices are lent.
func (s *State) SetLentUntil(id NodeID, devices uint64, until Time) {
	l, at := s.part(id, devices)
	l.parts[at].until = until
}

// CloseLent keeps new pods off the devices of an owner and, if it returns, off what it lends beside them. An owner that
// leaves its node instead lets pods have that.
func (s *State) CloseLent(id NodeID, devices uint64, returns bool) {
	l, at := s.part(id, devices)
	l.parts[at].closed, l.parts[at].returns = true, returns
	s.partsChanged(id)
}

// GoFor says that a pod leaves because an owner returns. It changes nothing if the pod is on no lent node.
func (s *State) GoFor(o Owner, id NodeID) {
	if l, lent := s.loans[id]; lent && !slices.Contains(l.going, o) {
		l.going = append(l.going, o)
		s.partsChanged(id)
	}
}

// Leaves reports whether a pod on a lent node leaves before the owners that return have all back: it has devices of theirs, or
// [State.GoFor] said so.
func (s *State) Leaves(h *Held) bool { return s.loans[h.Alloc.Node].leaves(h.Owner, &h.Alloc) }

// Gone says that a pod of which [State.GoFor] said that it leaves is off the lent node.
func (s *State) Gone(o Owner, id NodeID) {
	if l, lent := s.loans[id]; lent {
		l.going = slices.DeleteFunc(l.going, func(g Owner) bool { return g == o })
	}
}

// StaysShort reports whether the pods on a lent node that stay when owners have returned take more CPU, or more memory,
// than there will be: what the other owners lend, and what is free at home, unless new pods are kept off it, as it may be kept for some.
func (s *State) StaysShort(id NodeID) (cpu, mem bool) {
	l := s.loans[id]
	h := &s.nodes[l.home]
	short := func(b *beside, free int64) bool {
		if !h.Open() {
			return b.stays > b.open
		}
		return b.stays-b.open > max(0, free+b.drawn())
	}
	return short(&l.cpu, h.CPU), short(&l.mem, h.Mem)
}

// MayUnlend reports whether an owner that returns can have its own back: no pod has its devices, and what
// the pods on the lent node use without it is free.
func (s *State) MayUnlend(id NodeID, devices uint64) bool {
	for h := range s.nodes[id].Pods {
		if h.Alloc.GPUs&devices != 0 {
			return false
		}
	}
	l, at := s.part(id, devices)
	h := &s.nodes[l.home]
	fits := func(b beside, r ownersRoom, free int64) bool {
		before := b.drawn()
		b.lend(r, true, -1)
		return b.drawn()-before <= max(0, free)
	}
	freeCPU, freeMem := h.CPU, h.Mem
	if !h.Open() {
		freeCPU, freeMem = 0, 0
	}
	p := &l.parts[at]
	return fits(l.cpu, p.cpu, freeCPU) && fits(l.mem, p.mem, freeMem)
}

// Unlend takes what an owner lends off the lent node, and closes that with the last. The caller has made sure
// that no pod is on its devices, and places those on it again that are left without any.
func (s *State) Unlend(id NodeID, devices uint64) {
	l, at := s.part(id, devices)
	l.parts = slices.Delete(l.parts, at, at+1)
	if len(l.parts) == 0 {
		l.going = nil
		s.Close(id)
	}
	s.partsChanged(id)
}

// shareLimit gives a lent node its share of the pods that its home may have: one a device, as far
// as the pods at home and those on the lent node leave any.
func (s *State) shareLimit(id NodeID) {
	l := s.loans[id]
	n, h := &s.nodes[id], &s.nodes[l.home]
	n.Spec.MaxPods = 0
	if h.Spec.MaxPods == 0 {
		return
	}
	n.Spec.MaxPods = -1 // none, as 0 would be no limit
	open, _ := l.devices()
	if share := min(h.Spec.MaxPods-h.Count(), bits.OnesCount64(open)); share > 0 {
		n.Spec.MaxPods = share
	}
}

// countPods brings what is left of the limit of pods up to date on a node, and on the one that
// shares its limit: its home, or what pods there lend. A pod that is found running comes without
// room for it: at home it may be one more than the share leaves, on the lent node one more than its
// share. So the home keeps for the lent node whichever is more, its share or its pods; and what the
// home has beyond its limit is missing on the lent node.
func (s *State) countPods(id NodeID) {
	s.nodes[id].countPods()
	if len(s.loans) == 0 {
		return
	}
	home := s.Home(id)
	h := &s.nodes[home]
	h.reserved = 0
	lent, lends := s.LentAt(home)
	if !lends {
		h.countPods()
		s.reindex(h)
		return
	}
	n := &s.nodes[lent]
	h.reserved = int16(max(n.Spec.MaxPods, n.Count()))
	h.countPods()
	s.reindex(h)
	if n.countPods(); h.Spec.MaxPods > 0 {
		n.left = int16(max(0, int(n.left)-max(0, h.Count()+int(h.reserved)-h.Spec.MaxPods)))
	}
	s.reindex(n)
}

// useBeside books what a pod on a node takes from now on, by 1, or no longer, -1: CPU, memory and, of a pod
// on a lent node, the devices of its home that no owner lends.
func (s *State) useBeside(n *Node, o Owner, a *Alloc, by int64) {
	l, lent := s.loans[a.Node]
	if !lent {
		n.CPU -= by * a.CPUMilli
		n.Mem -= by * a.MemMiB
		s.shareRoom(a.Node)
		return
	}
	h := &s.nodes[l.home]
	leaves := l.leaves(o, a)
	h.CPU -= l.cpu.use(by*a.CPUMilli, leaves)
	h.Mem -= l.mem.use(by*a.MemMiB, leaves)
	open, closed := l.devices()
	if own := a.GPUs &^ (open | closed); own != 0 {
		l.draw(h, own, by)
	}
	s.reindex(h)
	s.shareRoom(l.home)
}

// draw takes devices of its home for a pod on a lent node, by 1, or gives them back, -1.
func (l *loan) draw(h *Node, devices uint64, by int64) {
	h.countOther(picked[EnginePicks], -by*int64(bits.OnesCount64(devices)))
	for m := devices; m != 0; m &= m - 1 {
		d := bits.TrailingZeros64(m)
		h.part[d] -= int16(by) * int16(WholeGPU)
		if h.part[d] < 0 {
			panic("cluster: a device that is drawn is not free at home")
		}
	}
	if by > 0 {
		l.drawn |= devices
		h.Whole &^= devices
		return
	}
	l.drawn &^= devices
	h.Whole |= devices & h.healthy
}

// Draws reports whether the pods on a lent node take devices, CPU or memory of its home beyond what its owners lend.
func (s *State) Draws(id NodeID) bool {
	l := s.loans[id]
	return l.drawn != 0 || l.cpu.drawn() > 0 || l.mem.drawn() > 0
}

// Drawn returns the devices of the home that the pods on a lent node have and no owner lends.
func (s *State) Drawn(id NodeID) uint64 { return s.loans[id].drawn }

// shareRoom brings what is free of CPU and memory up to date on the lent node of a home: what the
// home has free, too, unless new pods are kept off it, as it may be kept for some; and if pods at home
// take more than it has, so much less.
func (s *State) shareRoom(home NodeID) {
	id, lends := s.LentAt(home)
	if !lends {
		return
	}
	h, n, l := &s.nodes[home], &s.nodes[id], s.loans[id]
	freeCPU, freeMem := h.CPU, h.Mem
	if !h.Open() {
		freeCPU, freeMem = min(0, freeCPU), min(0, freeMem)
	}
	open, _ := l.devices()
	cpu, mem := h.shares(open | l.drawn)
	n.CPU, n.Mem = l.cpu.free(cpu, freeCPU), l.mem.free(mem, freeMem)
	s.reindex(n)
}

// Lent reports whether the node is what pods on standby lend.
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

// LentAt returns the node that pods on a node lend now; false if none do.
func (s *State) LentAt(home NodeID) (NodeID, bool) {
	id, known := s.lentOf[home]
	return id, known && len(s.loans[id].parts) > 0
}

// LentDevices returns the devices that are lent at a node, those that their owners take back included.
func (s *State) LentDevices(home NodeID) uint64 {
	id, lends := s.LentAt(home)
	if !lends {
		return 0
	}
	open, closed := s.loans[id].devices()
	return open | closed
}

// changeLent gives the lent node of a home its labels, taints, place, room and limit of pods.
func (s *State) changeLent(home NodeID) {
	id, lends := s.LentAt(home)
	if !lends {
		return
	}
	h, n := &s.nodes[home], &s.nodes[id]
	s.unindex(n)
	s.countAll(id, -1)
	spec := h.lentSpec()
	n.Spec, n.domains = &spec, h.domains
	s.pools[n.pool].leave(n)
	n.pool = s.poolOf(&spec, s.pools[h.pool].Zone, true)
	s.pools[n.pool].join(s, n, id)
	s.countAll(id, 1)
	s.index(n)
	s.shareLimit(id)
	s.countPods(home)
	s.shareRoom(home)
}

// removeLent takes the lent node of a home away, and returns its pods.
func (s *State) removeLent(home NodeID) []Held {
	id, lends := s.LentAt(home)
	if !lends {
		return nil
	}
	n := &s.nodes[id]
	s.unindex(n)
	s.countAll(id, -1)
	pods := slices.DeleteFunc(n.pods, func(h Held) bool { return h.Owner.Job == noJob })
	n.Up, n.pods, n.crowd = false, nil, nil
	s.loans[id] = &loan{home: home}
	s.nodes[home].reserved = 0
	return pods
}
