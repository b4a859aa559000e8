package place

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// tally counts, by domain of one level, how many pods of each task fit. It is
// scratch memory.
type tally struct {
	level   int
	seen    []int32 // domains, in order of first sight
	known   []bool  // by domain
	now     []int   // pods of the current task, by domain
	first   []int   // pods of the first task
	free    []int   // free GPUs
	lacking []bool  // some task does not fit
}

// reset prepares the tally for a level with so many domains.
func (y *tally) reset(level, domains int) {
	y.level, y.seen = level, y.seen[:0]
	y.known = resize(y.known, domains)
	y.now = resize(y.now, domains)
	y.first = resize(y.first, domains)
	y.free = resize(y.free, domains)
	y.lacking = resize(y.lacking, domains)
}

// resize returns n zeroes in s's memory where that is large enough.
func resize[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

func (y *tally) add(task int, domain int32, fit, free int) {
	if !y.known[domain] {
		y.known[domain] = true
		y.seen = append(y.seen, domain)
	}
	y.now[domain] += fit
	if task == 0 {
		y.free[domain] += free
	}
}

// close ends the counting of a task of which need pods must fit.
func (y *tally) close(task, need int) {
	for _, d := range y.seen {
		if y.now[d] < need {
			y.lacking[d] = true
		}
		if task == 0 {
			y.first[d] = y.now[d]
		}
		y.now[d] = 0
	}
}

// fitting yields the domains that hold every task.
func (y *tally) fitting(yield func(candidate) bool) {
	for _, d := range y.seen {
		if !y.lacking[d] && !yield(candidate{d, y.first[d], y.free[d]}) {
			return
		}
	}
}

// tightest returns the domain of a level that holds the gang, by free GPUs
// alone, with the least room to spare. Not for NodeLevelNum.
// O(tasks x domains x GPUs per node).
func (p *Placer) tightest(u *Unit, sp space, level int) (candidate, bool) {
	if level == anyLevel {
		return candidate{domain: -1}, true
	}
	y := &p.tally
	y.reset(level, p.state.Domains(level))
	for t := range u.Tasks {
		for _, pool := range sp[t] {
			for i, d := range pool.Domains(level) {
				fit, free := pool.DomainSlots(level, i, u.Tasks[t].GPUs)
				y.add(t, d, fit, free)
			}
		}
		y.close(t, len(u.Tasks[t].Pods))
	}
	best, found := candidate{}, false
	for c := range y.fitting {
		if !found || c.better(best) < 0 {
			best, found = c, true
		}
	}
	return best, found
}

// exact returns the domains of a level that hold the gang, counting GPUs, CPU,
// memory, labels and affinity node by node, the tightest first.
// O(tasks x nodes).
func (p *Placer) exact(u *Unit, sp space, level int) []candidate {
	p.countExact(u, sp, level)
	out := slices.Collect(p.tally.fitting)
	slices.SortFunc(out, candidate.better)
	return out
}

// countExact fills the tally by counting node by node.
func (p *Placer) countExact(u *Unit, sp space, level int) {
	y := &p.tally
	domains := 1
	switch level {
	case anyLevel:
	case cluster.NodeLevelNum:
		domains = p.state.Nodes()
	default:
		domains = p.state.Domains(level)
	}
	y.reset(level, domains)
	for t := range u.Tasks {
		for _, pool := range sp[t] {
			for leaf := range pool.Leaves() {
				for _, id := range pool.LeafNodes(int32(leaf)) {
					if fit := p.takes(u, &u.Tasks[t], id, later); fit > 0 {
						if d := p.domainOf(id, level); d >= 0 {
							y.add(t, d, fit, p.state.Node(id).Free())
						}
					}
				}
			}
		}
		y.close(t, len(u.Tasks[t].Pods))
	}
}

// domainOf is State.Domain, with one domain 0 for anyLevel.
func (p *Placer) domainOf(id cluster.NodeID, level int) int32 {
	if level == anyLevel {
		return 0
	}
	return p.state.Domain(id, level)
}

// takes returns how many pods of a task a node can hold, all told; when is as for
// near. Anti-affinity between those pods is not counted.
func (p *Placer) takes(u *Unit, t *Task, id cluster.NodeID, when moment) int {
	if id < 0 {
		return 0
	}
	sh, n := t.Shape, p.state.Node(id)
	if !n.Open() || !sh.selected(p.state, id) || !p.near(u, t, id, when) {
		return 0
	}
	return sh.holds(n)
}

// entry is a leaf group, as far as it belongs to one pool, and how many pods of
// a task it can take.
type entry struct {
	pool        *cluster.Pool
	leaf        int32
	slots, free int
}

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
	if !u.keepsToMates() {
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

// keepsToMates reports whether pods of the unit keep to, or from, other tasks of it.
func (u *Unit) keepsToMates() bool {
	return slices.ContainsFunc(u.Tasks, func(t Task) bool {
		return slices.ContainsFunc(t.Terms, func(t Term) bool { return len(t.Mates) > 0 })
	})
}

// apartFromMates reports whether the pods that were placed are apart from those of
// other tasks that were placed after them, where they must be.
func (p *Placer) apartFromMates(u *Unit) bool {
	if !u.keepsToMates() {
		return true
	}
	for i := range p.out {
		terms := u.Tasks[p.out[i].Task].Terms
		for k := range terms {
			t := &terms[k]
			if !t.Anti || len(t.Mates) == 0 {
				continue
			}
			n := p.state.Labelled(t.Label, t.Level, p.state.Domain(p.out[i].Alloc.Node, t.Level))
			if t.Own {
				n--
			}
			if n > 0 {
				return false
			}
		}
	}
	return true
}

// oneByOne places the pods of a task each by itself.
func (p *Placer) oneByOne(u *Unit, t int, pools []*cluster.Pool, level int, domain int32, by Strategy) bool {
	sh := u.Tasks[t].Shape
	st := stage{strategy: by}
	within := p.within(level, domain)
	for _, pod := range u.Tasks[t].Pods {
		st.pools = st.pools[:0]
		for _, pool := range pools {
			if p.room(u, sh, pool.Model) > 0 {
				st.pools = append(st.pools, pool)
			}
		}
		id, gpus, ok := p.find(u, &u.Tasks[t], st, within)
		if !ok {
			return false
		}
		p.put(u, t, pod, id, gpus)
		p.spend(u, sh, id, 1)
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
		n := min(len(pods), p.room(u, sh, e.pool.Model))
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
			p.spend(u, sh, id, 1)
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

// room returns how many more pods of a shape the queue may run on a model.
func (p *Placer) room(u *Unit, sh *Shape, model string) int {
	if u.Room == nil || sh.GPU() == 0 {
		return 1 << 30
	}
	left := u.Room(model)
	for _, s := range p.spent {
		if s.model == model {
			left -= s.gpu
		}
	}
	return int(min(max(left, 0)/sh.GPU(), 1<<30))
}

// spend counts a placed pod against the queue's room; by is -1 for one taken back.
func (p *Placer) spend(u *Unit, sh *Shape, id cluster.NodeID, by cluster.Milli) {
	if u.Room == nil {
		return
	}
	model := p.state.Pool(id).Model
	i := slices.IndexFunc(p.spent, func(s spending) bool { return s.model == model })
	if i < 0 {
		i = len(p.spent)
		p.spent = append(p.spent, spending{model: model})
	}
	p.spent[i].gpu += by * sh.GPU()
}
