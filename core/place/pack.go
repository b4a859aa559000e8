package place

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// inDomain places the gang in one domain. If it fails, the caller takes back what it placed.
func (p *Placer) inDomain(u *Unit, sp space, level int, domain int32) bool {
	for i, t := range u.order() {
		var ok bool
		switch {
		// Packing fills a node before it takes the next, which is the opposite of spread.
		case u.packs() && u.Tasks[t].GPUs > 0 && !u.Tasks[t].spreads():
			ok = p.pack(u, t, sp[t], level, domain)
		case u.Strategy == Consolidate && i > 0:
			ok = p.oneByOne(u, t, sp[t], level, domain, loosest)
		default:
			ok = p.oneByOne(u, t, sp[t], level, domain, u.general())
		}
		if !ok {
			return false
		}
	}
	return true
}

// order returns the tasks in the order in which they are placed.
func (u *Unit) order() []int {
	order := make([]int, len(u.Tasks))
	for t := range order {
		order[t] = t
	}
	// 1. Tasks that must be spread, then the largest: five pods of one GPU to be even over two
	// leaf groups do not fit once a pod of three GPUs has taken three of four in the smaller one.
	slices.SortStableFunc(order, func(a, b int) int {
		if s := u.Tasks[a].spreads(); s != u.Tasks[b].spreads() {
			if s {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(u.Tasks[b].GPUs, u.Tasks[a].GPUs), cmp.Compare(u.Tasks[b].Part, u.Tasks[a].Part))
	})
	if !u.hasMates() {
		return order
	}
	// 2. Before each task those that its terms are about: workers near their leader cannot be
	// placed before it, though it is smaller.
	left := make([]bool, len(order)) // tasks that have no place in the order yet
	for t := range left {
		left[t] = true
	}
	for i := range order {
		next := i + u.next(order[i:], left)
		t := order[next]
		copy(order[i+1:next+1], order[i:next])
		order[i], left[t] = t, false
	}
	return order
}

// next returns the index in order of the task to place next: the first that has no term
// about a task that is left. Where tasks have terms about each other there is none; then the
// first whose affinities are about none that is left, as it could not be placed before
// those, while an anti-affinity may be satisfied from either side.
func (u *Unit) next(order []int, left []bool) int {
	waits := func(t int, affinity bool) bool {
		return slices.ContainsFunc(u.Tasks[t].Terms, func(o Term) bool {
			isAffinity := !o.Anti && o.MaxSkew == 0
			return affinity == isAffinity && slices.ContainsFunc(o.Mates, func(m int) bool { return left[m] })
		})
	}
	i := slices.IndexFunc(order, func(t int) bool { return !waits(t, true) && !waits(t, false) })
	if i < 0 {
		i = slices.IndexFunc(order, func(t int) bool { return !waits(t, true) })
	}
	return max(i, 0)
}

// oneByOne places each pod of a task in a domain as a single pod is placed, by a strategy.
func (p *Placer) oneByOne(u *Unit, t int, pools []*cluster.Pool, level int, domain int32, by Strategy) bool {
	sh := u.Tasks[t].Shape
	st := stage{strategy: by}
	within := p.within(level, domain)
	for _, pod := range u.Tasks[t].Pods {
		st.pools = st.pools[:0] // each pod that was placed leaves less quota for its model
		for _, pool := range pools {
			if p.quotaLeft(u, sh, pool.Model) > 0 {
				st.pools = append(st.pools, pool)
			}
		}
		id, gpus, ok := p.find(u, &u.Tasks[t], st, within)
		if !ok {
			return false
		}
		p.put(u, t, pod, id, gpus)
		p.charge(u, sh, id, 1)
	}
	return true
}

// within returns a filter for the nodes of a domain; nil for the whole cluster.
func (p *Placer) within(level int, domain int32) func(cluster.NodeID) bool {
	if level == anyLevel {
		return nil
	}
	return func(id cluster.NodeID) bool { return p.state.Domain(id, level) == domain }
}

// entry is a leaf group, as far as it belongs to one pool, and how many pods of
// a task it can take.
type entry struct {
	pool        *cluster.Pool
	leaf        int32
	slots, free int
	whole       bool // all its GPUs are free
	held        int  // GPUs that other tasks of the unit hold there
	liked       int64
}

// pack places the pods of a task in the leaf groups that give the unit the least entropy,
// and in as few nodes as it can (ASI, §4.1, Algorithm 2).
func (p *Placer) pack(u *Unit, t int, pools []*cluster.Pool, level int, domain int32) bool {
	sh := u.Tasks[t].Shape
	// 1. The leaf groups of the domain that can take pods. An HBD or a node is not made up of
	// whole leaf groups: in those, only the nodes that are in the domain count.
	var within func(cluster.NodeID) bool
	if level > len(p.state.Levels())-1 {
		within = p.within(level, domain)
	}
	accept := p.filter(u, &u.Tasks[t], within)
	p.entries = p.entries[:0]
	for _, pool := range pools {
		p.addEntries(u, &u.Tasks[t], pool, level, domain, accept != nil, within)
	}
	p.addHeld()

	pods, entries := u.Tasks[t].Pods, p.entries
	for len(entries) > 0 && len(pods) > 0 {
		// 2. One group after the other, each with as many pods as it takes: first the one with
		// which the entropy is least. For pods of one size that is the least entropy there is:
		// no other choice of k groups holds more than the k roomiest do.
		next := 0
		for i := range entries {
			if entries[i].before(&entries[next], len(pods), sh.GPUs) {
				next = i
			}
		}
		e := entries[next]
		entries = slices.Delete(entries, next, next+1)
		// 3. That may be fewer pods than were counted, where pods keep apart from each other or
		// quota is short; the next group gets the others.
		n := min(len(pods), p.quotaLeft(u, sh, e.pool.Model))
		pods = pods[p.packLeaf(u, t, pods[:n], e, accept):]
	}
	return len(pods) == 0
}

// before reports whether to take e before o, for a number of pods of gpus GPUs.
func (e *entry) before(o *entry, pods, gpus int) bool {
	// 1. The group that leaves the unit with less entropy. In groups where it holds nothing yet
	// that is the one that takes more of the pods.
	takes, others := min(e.slots, pods), min(o.slots, pods)
	if e.held != o.held {
		gain, other := NLogN(e.held+takes*gpus)-NLogN(e.held), NLogN(o.held+others*gpus)-NLogN(o.held)
		if gain != other {
			return gain > other
		}
	}
	if takes != others {
		return takes > others
	}
	// 2. Then the one that leaves more groups whole.
	if e.whole != o.whole {
		return o.whole
	}
	// 3. Of groups that are filled up the one with more GPUs to spare, of groups that hold all
	// pods that are left the tightest: of groups with room for 4, 3 and 2, five pods take the
	// first and, for the last of them, the third, so that the second can still take three.
	if takes < pods {
		return cmp.Or(cmp.Compare(o.free, e.free), cmp.Compare(o.liked, e.liked), cmp.Compare(e.leaf, o.leaf)) < 0
	}
	return cmp.Or(cmp.Compare(e.slots, o.slots), cmp.Compare(e.free, o.free), cmp.Compare(o.liked, e.liked), cmp.Compare(o.leaf, e.leaf)) < 0
}

// addHeld adds to the entries what tasks of the unit that were placed before hold there. A
// leaf group may be in several pools.
func (p *Placer) addHeld() {
	last := len(p.state.Levels()) - 1
	if len(p.out) == 0 || last < 0 {
		return
	}
	held := map[int32]int{}
	for i := range p.out {
		a := &p.out[i].Alloc
		held[p.state.Domain(a.Node, last)] += bits.OnesCount64(a.GPUs)
	}
	delete(held, -1) // nodes of unknown place share none
	for i := range p.entries {
		e := &p.entries[i]
		e.held = held[e.pool.LeafDomain(p.state, e.leaf)]
	}
}

// addEntries lists the leaf groups of a pool in a domain that can take pods.
func (p *Placer) addEntries(u *Unit, t *Task, pool *cluster.Pool, level int, domain int32, exact bool, within func(cluster.NodeID) bool) {
	add := func(leaf int32) {
		slots := 0
		if exact {
			for _, id := range pool.LeafNodes(leaf) {
				if id >= 0 && (within == nil || within(id)) {
					slots += p.takes(u, t, id, now)
				}
			}
		} else {
			slots = pool.LeafSlots(leaf, t.GPUs)
		}
		if slots > 0 {
			e := entry{pool: pool, leaf: leaf, slots: slots, free: pool.LeafFree(leaf), whole: pool.LeafWhole(leaf)}
			if t.prefers() {
				e.liked = p.likedOn(u, t, pool.LeafNodes(leaf), within)
			}
			p.entries = append(p.entries, e)
		}
	}
	switch level {
	case anyLevel:
		for leaf := range pool.Leaves() {
			add(int32(leaf))
		}
	case cluster.NodeLevelNum:
		if p.state.Pool(cluster.NodeID(domain)) == pool {
			add(p.state.LeafOf(cluster.NodeID(domain)))
		}
	default:
		for _, leaf := range pool.DomainLeaves(level, domain) {
			add(leaf)
		}
	}
}

// packLeaf places pods of a task in one leaf group and returns how many it placed. It puts
// as many on one node as some node holds, and takes the node that they fit most tightly
// (E-Binpack at node level, §3.3.3).
func (p *Placer) packLeaf(u *Unit, t int, pods []int32, e entry, accept func(cluster.NodeID) bool) int {
	sh, placed := u.Tasks[t].Shape, 0
	most := e.pool.MaxGPUs / sh.GPUs // what no node holds now, none will hold later: it only falls
	for placed < len(pods) && most > 0 {
		most = min(most, len(pods)-placed)
		id, ok := p.roomFor(u, &u.Tasks[t], most, e, accept)
		if !ok {
			most--
			continue
		}
		for range most {
			if accept != nil && !accept(id) {
				break // a pod that was just placed here keeps this one off
			}
			p.put(u, t, pods[placed], id, 0)
			p.charge(u, sh, id, 1)
			placed++
		}
	}
	return placed
}

// roomFor returns the node of a leaf group that holds n pods with the fewest free GPUs.
func (p *Placer) roomFor(u *Unit, t *Task, n int, e entry, accept func(cluster.NodeID) bool) (cluster.NodeID, bool) {
	sh, need := t.Shape, t.need(n)
	if t.prefers() {
		return p.likedRoom(u, t, n, e, accept)
	}
	for f := n * sh.GPUs; f <= e.pool.MaxGPUs; f++ {
		if id, ok := p.roomWith(u, need, f, e, accept); ok {
			return id, true
		}
	}
	return 0, false
}

// roomWith returns the node of a leaf group with free GPUs, a number of them, that has what
// is needed.
func (p *Placer) roomWith(u *Unit, need cluster.Need, free int, e entry, accept func(cluster.NodeID) bool) (cluster.NodeID, bool) {
	// Most gangs end here, once a pod; a function for a filter is allocated on the heap.
	if accept == nil && u.Strategy != Spot {
		return p.state.FindIn(e.pool, e.leaf, free, need)
	}
	roomy := func(id cluster.NodeID) bool { return p.state.Node(id).Has(need) && (accept == nil || accept(id)) }
	if u.Strategy != Spot {
		return p.state.FindFuncIn(e.pool, e.leaf, free, roomy)
	}
	none, found := p.likest(u, roomy)
	p.state.FindFuncIn(e.pool, e.leaf, free, none)
	return found()
}
