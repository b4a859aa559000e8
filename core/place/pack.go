package place

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// inDomain places the gang in one domain. What it placed before it failed is left to
// be taken back.
func (p *Placer) inDomain(u *Unit, sp space, level int, domain int32) bool {
	for i, t := range u.order() {
		var ok bool
		switch {
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

// order returns the tasks in the order in which they are placed: those that must be
// spread first, then the largest, but what others keep to, or from, before them.
func (u *Unit) order() []int {
	order := make([]int, len(u.Tasks))
	for t := range order {
		order[t] = t
	}
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
	left := make([]bool, len(order))
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

// next returns the place of the task to be placed next among those that are left:
// the first that no other of them must come before, if possible; else that none must
// come before which it is to be near, as otherwise it could not be placed.
func (u *Unit) next(order []int, left []bool) int {
	waits := func(t int, near bool) bool {
		return slices.ContainsFunc(u.Tasks[t].Terms, func(o Term) bool {
			return near == (!o.Anti && o.MaxSkew == 0) && slices.ContainsFunc(o.Mates, func(m int) bool { return left[m] })
		})
	}
	i := slices.IndexFunc(order, func(t int) bool { return !waits(t, true) && !waits(t, false) })
	if i < 0 {
		i = slices.IndexFunc(order, func(t int) bool { return !waits(t, true) })
	}
	return max(i, 0)
}

// oneByOne places the pods of a task each by itself.
func (p *Placer) oneByOne(u *Unit, t int, pools []*cluster.Pool, level int, domain int32, by Strategy) bool {
	sh := u.Tasks[t].Shape
	st := stage{strategy: by}
	within := p.within(level, domain)
	for _, pod := range u.Tasks[t].Pods {
		st.pools = st.pools[:0]
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
}

// pack places the pods of a task in as few leaf groups and nodes as it can.
func (p *Placer) pack(u *Unit, t int, pools []*cluster.Pool, level int, domain int32) bool {
	sh := u.Tasks[t].Shape
	var within func(cluster.NodeID) bool
	if level > len(p.state.Levels())-1 {
		within = p.within(level, domain) // not made up of whole leaf groups
	}
	accept := p.filter(u, &u.Tasks[t], within)
	p.entries = p.entries[:0]
	for _, pool := range pools {
		p.addEntries(u, &u.Tasks[t], pool, level, domain, accept != nil, within)
	}
	// The roomiest leaf group first, but as soon as one holds all the rest, the
	// tightest that does: the fewest groups, and open ones stay open.
	slices.SortFunc(p.entries, entry.roomier)
	pods, entries := u.Tasks[t].Pods, p.entries
	for len(entries) > 0 && len(pods) > 0 {
		next := 0
		for next+1 < len(entries) && entries[next+1].slots >= len(pods) {
			next++
		}
		e := entries[next]
		copy(entries[1:next+1], entries[:next])
		entries = entries[1:]
		n := min(len(pods), p.quotaLeft(u, sh, e.pool.Model))
		pods = pods[p.packLeaf(u, t, pods[:n], e, accept):]
	}
	return len(pods) == 0
}

// roomier orders the entry with the most slots first.
func (e entry) roomier(o entry) int {
	return cmp.Or(cmp.Compare(o.slots, e.slots), cmp.Compare(o.free, e.free), cmp.Compare(e.leaf, o.leaf))
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
			p.entries = append(p.entries, entry{pool, leaf, slots, pool.LeafFree(leaf)})
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

// packLeaf places pods of a task in one leaf group, as many as possible on each
// node, on the node that so many fit most tightly (E-Binpack at node level,
// §3.3.3), and returns how many it placed.
func (p *Placer) packLeaf(u *Unit, t int, pods []int32, e entry, accept func(cluster.NodeID) bool) int {
	sh, placed := u.Tasks[t].Shape, 0
	most := e.pool.MaxGPUs / sh.GPUs
	for placed < len(pods) && most > 0 {
		most = min(most, len(pods)-placed)
		id, ok := p.roomFor(sh, most, e, accept)
		if !ok {
			most--
			continue
		}
		for range most {
			if accept != nil && !accept(id) {
				break // the pods of the unit keep apart
			}
			p.put(u, t, pods[placed], id, 0)
			p.charge(u, sh, id, 1)
			placed++
		}
	}
	return placed
}

// roomFor returns the node of a leaf group that holds n pods most tightly.
func (p *Placer) roomFor(sh *Shape, n int, e entry, accept func(cluster.NodeID) bool) (cluster.NodeID, bool) {
	need := sh.need(n)
	for f := n * sh.GPUs; f <= e.pool.MaxGPUs; f++ {
		var id cluster.NodeID
		var ok bool
		if accept == nil {
			id, ok = p.state.FindIn(e.pool, e.leaf, f, need)
		} else {
			id, ok = p.state.FindFuncIn(e.pool, e.leaf, f, func(id cluster.NodeID) bool {
				return p.state.Node(id).Has(need) && accept(id)
			})
		}
		if ok {
			return id, true
		}
	}
	return 0, false
}
