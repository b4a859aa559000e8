package cluster

import (
	"math/bits"
	"slices"
)

// Pool is all nodes of one GPU model that take the same pods: those with other
// taints, and those of the dedicated zone, are pools of their own (Kant's GPU
// Type-based Node Pool, §3.4.1). Nodes without GPUs are in pools of model "".
//
// A pool is its own fit index. Nodes are filed by their leaf group and by how
// many whole GPUs they have free; for every level of the topology the nodes of
// each free count are counted. Closed and lost nodes are not filed.
type Pool struct {
	Model string
	Zone  bool
	// Lent pools have the nodes that pods on standby lend: see lent.go.
	Lent   bool
	Taints []Taint
	// MaxGPUs is the most GPUs a node of the pool has.
	MaxGPUs int

	nodes  []NodeID // in the order in which they joined; -1 for one that left
	leaves []leaf
	leafOf map[place]int32
	trees  []tree      // by free count; up to date but for stale
	stale  []int32     // leaf groups that changed since the last search
	total  []int32     // nodes by free count
	levels []poolLevel // one a level, then HBD
	shared shared

	changed []Change
	forgot  int // changes dropped before the first of changed
	read    int // changes that Changed has returned
}

// place is the narrowest domain known of a node; level is -1 when none is.
type place struct {
	level  int
	domain int32
}

// leaf is a leaf group as far as it belongs to the pool. Nodes whose leaf group
// is not known are filed in chunks that lie within the domain that is.
type leaf struct {
	nodes []NodeID // by slot; -1 for a hole
	free  int32    // whole GPUs free
	gpus  int32    // healthy GPUs of its open nodes
	stale bool     // it is among the stale of its pool
	sets  []nodeSet
}

// nodeSet is the nodes of a leaf group with one free count.
type nodeSet struct {
	slots    []uint64 // a bit a slot
	count    int32
	cpu, mem int64 // upper bounds of what a node of the set that takes pods has free
}

// poolLevel is the domains of a level that have nodes in the pool.
type poolLevel struct {
	index  map[int32]int32 // domain to its number in the pool
	domain []int32
	counts [][]int32 // nodes by domain, then free count
	leaves [][]int32 // leaf groups by domain, in order of their first node

	orders  []*byRoom // one for each size of pods that was requested
	stale   []int32   // domains of which the orders are not up to date
	isStale []bool    // by domain
}

// unknownChunk is how many nodes of unknown place are indexed together.
const unknownChunk = 64

func newPool(model string, zone bool, taints []Taint, levels int) *Pool {
	p := &Pool{Model: model, Zone: zone, Taints: taints, leafOf: map[place]int32{}, levels: make([]poolLevel, levels)}
	for i := range p.levels {
		p.levels[i].index = map[int32]int32{}
	}
	p.widen(0)
	return p
}

// widen makes room for nodes with this many GPUs.
func (p *Pool) widen(gpus int) {
	p.MaxGPUs = max(p.MaxGPUs, gpus)
	for len(p.total) <= p.MaxGPUs {
		p.total = append(p.total, 0)
		t := tree{}
		t.grow(len(p.leaves))
		p.trees = append(p.trees, t)
	}
	for i := range p.leaves {
		p.leaves[i].widen(p.MaxGPUs)
	}
	for l := range p.levels {
		for d, c := range p.levels[l].counts {
			p.levels[l].counts[d] = append(c, make([]int32, p.MaxGPUs+1-len(c))...)
		}
	}
}

func (l *leaf) widen(gpus int) {
	words := (len(l.nodes) + 63) / 64
	for len(l.sets) <= gpus {
		l.sets = append(l.sets, nodeSet{cpu: -1, mem: -1})
	}
	for f := range l.sets {
		for len(l.sets[f].slots) < words {
			l.sets[f].slots = append(l.sets[f].slots, 0)
		}
	}
}

// join gives a node its place in the pool, without filing it.
func (p *Pool) join(s *State, n *Node, id NodeID) {
	if n.Spec.GPUs > p.MaxGPUs {
		p.widen(n.Spec.GPUs)
	}
	n.member = int32(len(p.nodes))
	p.nodes = append(p.nodes, id)
	n.leaf = p.leafFor(n.domains[:len(s.levels)])
	l := &p.leaves[n.leaf]
	n.slot = int32(slices.Index(l.nodes, -1))
	if n.slot < 0 {
		n.slot = int32(len(l.nodes))
		l.nodes = append(l.nodes, id)
		l.widen(p.MaxGPUs)
	}
	l.nodes[n.slot] = id
	n.dom = make([]int32, len(p.levels))
	for i, d := range n.domains[:len(p.levels)] {
		n.dom[i] = p.levels[i].number(d, n.leaf, p.MaxGPUs)
	}
}

// leave gives the node's place back. The node is not filed.
func (p *Pool) leave(n *Node) {
	p.nodes[n.member] = -1
	p.leaves[n.leaf].nodes[n.slot] = -1
}

// leafFor returns the leaf group for a node with these domains, widest first.
func (p *Pool) leafFor(domains []int32) int32 {
	at := place{level: len(domains) - 1, domain: -1}
	for at.level >= 0 && domains[at.level] < 0 {
		at.level--
	}
	if at.level >= 0 {
		at.domain = domains[at.level]
	}
	// A leaf group that is known is one group. Nodes of which only the spine is known, or
	// nothing, are filed in chunks of unknownChunk, so that a search in one stays short.
	i, ok := p.leafOf[at]
	known := len(domains) > 0 && at.level == len(domains)-1
	if !ok || !known && len(p.leaves[i].nodes) >= unknownChunk {
		i = p.newLeaf()
		p.leafOf[at] = i
	}
	return i
}

func (p *Pool) newLeaf() int32 {
	p.leaves = append(p.leaves, leaf{})
	p.leaves[len(p.leaves)-1].widen(p.MaxGPUs)
	for f := range p.trees {
		p.trees[f].grow(len(p.leaves))
	}
	return int32(len(p.leaves) - 1)
}

// number returns the number of a domain within the pool, and notes that the
// leaf group has nodes in it.
func (l *poolLevel) number(domain, leaf int32, maxGPUs int) int32 {
	if domain < 0 {
		return -1
	}
	i, ok := l.index[domain]
	if !ok {
		i = int32(len(l.domain))
		l.forget()
		l.index[domain] = i
		l.domain = append(l.domain, domain)
		l.counts = append(l.counts, make([]int32, maxGPUs+1))
		l.leaves = append(l.leaves, nil)
	}
	if !slices.Contains(l.leaves[i], leaf) {
		l.leaves[i] = append(l.leaves[i], leaf)
	}
	return i
}

// eachHealthy calls f with what is free on every healthy device of a node.
func (p *Pool) eachHealthy(n *Node, f func(free int16, key uint32)) {
	id := p.leaves[n.leaf].nodes[n.slot]
	for d, free := range n.part {
		if n.healthy>>d&1 == 1 {
			f(free, sharedKey(id, d))
		}
	}
}

// The index of a pool changes here: a node is filed under its leaf group and its number of
// free GPUs, and counted for every domain that it is in. A node that is closed or lost is
// not filed. Node.indexed is the count under which it is filed, -1 for none.

// index files a node, if it is open and not filed yet.
func (s *State) index(n *Node) {
	if !n.Open() || n.indexed >= 0 {
		return
	}
	p := s.pools[n.pool]
	p.eachHealthy(n, p.shared.add)
	p.note(n.member, int8(n.Free()))
	p.file(n, int8(n.Free()))
}

// unindex takes a node out of the index.
func (s *State) unindex(n *Node) {
	if n.indexed < 0 {
		return
	}
	p := s.pools[n.pool]
	p.eachHealthy(n, p.shared.remove)
	p.note(n.member, -1)
	p.file(n, -1)
}

// reindex files a node again after an allocation changed.
func (s *State) reindex(n *Node) {
	if n.indexed < 0 {
		return
	}
	p := s.pools[n.pool]
	f := int8(n.Free())
	p.note(n.member, f)
	if f != n.indexed {
		p.file(n, f)
		return
	}
	// The number of free GPUs is the same: a pod without GPUs, or a part of a GPU, came or
	// went. The set's bounds on CPU and memory must not fall below what a node has free, or a
	// search would pass the node over. That they stay too high costs a look, and FindIn
	// lowers them then.
	set := &p.leaves[n.leaf].sets[n.indexed]
	if n.CPU > set.cpu || n.Mem > set.mem {
		set.cpu, set.mem = max(set.cpu, n.CPU), max(set.mem, n.Mem)
		p.touch(n.leaf)
	}
}

// file moves a node from the set of its old free count to that of f; -1 takes it out. All
// counters change together: those of the leaf group, of the pool and of the domains.
func (p *Pool) file(n *Node, f int8) {
	p.touch(n.leaf)
	l := &p.leaves[n.leaf]
	word, bit := n.slot/64, uint64(1)<<(n.slot%64)
	old := n.indexed
	if old >= 0 {
		set := &l.sets[old]
		set.slots[word] &^= bit
		set.count--
		l.free -= int32(old)
		p.total[old]--
		if set.count == 0 {
			set.cpu, set.mem = -1, -1
		}
		l.gpus -= int32(bits.OnesCount64(n.healthy))
	}
	n.indexed = f
	if f >= 0 {
		set := &l.sets[f]
		set.slots[word] |= bit
		set.count++
		set.cpu, set.mem = max(set.cpu, n.CPU), max(set.mem, n.Mem)
		l.free += int32(f)
		l.gpus += int32(bits.OnesCount64(n.healthy))
		p.total[f]++
	}
	p.recount(n, old, f)
}

// recount counts a node in each of its domains by its free count f, and no longer by the old one; -1 is none.
func (p *Pool) recount(n *Node, old, f int8) {
	for i, d := range n.dom {
		if d < 0 {
			continue
		}
		l := &p.levels[i]
		counts := l.counts[d]
		if old >= 0 {
			counts[old]--
		}
		if f >= 0 {
			counts[f]++
		}
		l.touch(d)
	}
}

// touch notes that the trees no longer match a leaf group.
func (p *Pool) touch(leaf int32) {
	if l := &p.leaves[leaf]; !l.stale {
		l.stale = true
		p.stale = append(p.stale, leaf)
	}
}

// refresh brings the trees up to date. Searches call it, changes do not: trials
// change much that no search ever looks at.
func (p *Pool) refresh() {
	for _, leaf := range p.stale {
		l := &p.leaves[leaf]
		l.stale = false
		for f := range l.sets {
			p.summarize(leaf, f)
		}
	}
	p.stale = p.stale[:0]
}

// summarize brings one tree up to date with a leaf group.
func (p *Pool) summarize(leaf int32, f int) {
	l := &p.leaves[leaf]
	s := emptySummary
	if set := &l.sets[f]; set.count > 0 {
		s = leafSummary(leaf, l.free, set.cpu, set.mem)
	}
	p.trees[f].set(leaf, s)
}

// Nodes returns how many open nodes have exactly free whole GPUs free.
func (p *Pool) Nodes(free int) int { return int(p.total[free]) }

// FreeWhole returns how many whole GPUs are free on open nodes.
func (p *Pool) FreeWhole() int {
	n := 0
	for f, c := range p.total {
		n += f * int(c)
	}
	return n
}

// FreeMilli returns how much GPU is free on open nodes, parts included.
func (p *Pool) FreeMilli() Milli {
	return Milli(p.FreeWhole())*WholeGPU + p.shared.free
}

// Slots returns how many pods of gpus whole devices (at least one) the open
// nodes of the pool can hold, by GPUs alone. O(GPUs per node).
func (p *Pool) Slots(gpus int) int { return slots(p.total, gpus) }

// PartSlots returns how many pods that each take part of a device the open
// nodes can hold, by GPUs alone. O(GPUs per node + shared devices).
func (p *Pool) PartSlots(part Milli) int {
	n := p.FreeWhole() * int(WholeGPU/part)
	for free := part; free < WholeGPU; free++ {
		n += len(p.shared.devices[free]) * int(free/part)
	}
	return n
}

func slots(counts []int32, gpus int) int {
	n := 0
	for f, each := gpus, 1; f < len(counts); each++ { // without divisions: a pass asks this of every class
		for end := min(f+gpus, len(counts)); f < end; f++ {
			n += int(counts[f]) * each
		}
	}
	return n
}

// Domains returns the domains of a level that have nodes in the pool, by their
// number in the pool. It is for reading.
func (p *Pool) Domains(level int) []int32 { return p.levels[level].domain }

// DomainSlots returns how many pods of gpus whole devices (at least one) the
// open nodes of the pool in the i-th domain of a level can hold, by GPUs alone,
// and how many of its GPUs are free. O(GPUs per node).
func (p *Pool) DomainSlots(level, i, gpus int) (fit, free int) {
	for f, k := range p.levels[level].counts[i] {
		free += f * int(k)
		if f >= gpus {
			fit += int(k) * (f / gpus)
		}
	}
	return fit, free
}

// DomainLeaves returns the leaf groups with nodes in a domain of a level; none
// when the pool has no nodes there. It is for reading.
func (p *Pool) DomainLeaves(level int, domain int32) []int32 {
	i, ok := p.levels[level].index[domain]
	if !ok {
		return nil
	}
	return p.levels[level].leaves[i]
}

// Members returns all nodes of the pool, lost and closed ones included, in the order
// in which they joined; -1 for one that has left the pool. It is for reading.
func (p *Pool) Members() []NodeID { return p.nodes }

// Change says that the room of a node changed.
type Change struct {
	Node NodeID
	// Free is how many of its devices are wholly free since; -1 when it takes no
	// pods.
	Free int8
}

// Changed returns the changes since the pool began, in order, and how many came
// before the first that is still known. It is for reading.
func (p *Pool) Changed() (changes []Change, forgotten int) {
	p.read = p.forgot + len(p.changed)
	return p.changed, p.forgot
}

// note records that a node's room changed; this many of its devices are free now.
func (p *Pool) note(member int32, free int8) {
	id := p.nodes[member]
	if k := len(p.changed); k > 0 && p.changed[k-1].Node == id && p.forgot+k > p.read {
		p.changed[k-1].Free = free // the last change has not been reported yet
		return
	}
	if len(p.changed) >= 2*len(p.nodes)+64 {
		half := len(p.changed) / 2
		p.forgot += half
		p.changed = p.changed[:copy(p.changed, p.changed[half:])]
	}
	p.changed = append(p.changed, Change{id, free})
}

// Leaves returns how many leaf groups the pool has. They are numbered from 0.
func (p *Pool) Leaves() int { return len(p.leaves) }

// LeafSlots is [Pool.Slots] for one leaf group.
func (p *Pool) LeafSlots(leaf int32, gpus int) int {
	n := 0
	sets := p.leaves[leaf].sets
	for f := gpus; f < len(sets); f++ {
		n += int(sets[f].count) * (f / gpus)
	}
	return n
}

// LeafFree returns how many whole GPUs are free in a leaf group.
func (p *Pool) LeafFree(leaf int32) int { return int(p.leaves[leaf].free) }

// LeafWhole reports whether all GPUs of a leaf group that could be free are.
func (p *Pool) LeafWhole(leaf int32) bool { return p.leaves[leaf].free == p.leaves[leaf].gpus }

// LeafDomain returns the domain of the last level that a leaf group is, -1 when its place is
// not known.
func (p *Pool) LeafDomain(s *State, leaf int32) int32 {
	if len(s.levels) == 0 {
		return -1
	}
	for _, id := range p.leaves[leaf].nodes {
		if id >= 0 {
			return s.nodes[id].domains[len(s.levels)-1]
		}
	}
	return -1
}

// LeafNodes returns the nodes of a leaf group by slot, -1 for holes; lost and
// closed ones included. It is for reading.
func (p *Pool) LeafNodes(leaf int32) []NodeID { return p.leaves[leaf].nodes }

// LeafOf returns the leaf group of a node within its pool.
func (s *State) LeafOf(id NodeID) int32 { return s.nodes[id].leaf }
