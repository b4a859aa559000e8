package place

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// tally counts, by domain of one level, how many pods of each task fit. It is
// scratch memory.
type tally struct {
	seen    []int32 // domains, in order of first sight
	known   []bool  // by domain
	now     []int   // pods of the current task, by domain
	first   []int   // pods of the first task
	free    []int   // free GPUs
	lacking []bool  // some task does not fit
}

// reset prepares the tally for a level with a number of domains.
func (y *tally) reset(domains int) {
	y.seen = y.seen[:0]
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

// add counts pods of a task that fit in a domain, and GPUs that are free there.
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

// close ends the counting of a task: a domain where fewer than need pods fit is lacking.
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
		if !y.lacking[d] && !yield(candidate{domain: d, slots: y.first[d], free: y.free[d]}) {
			return
		}
	}
}

// tightest returns the domain of a level that holds the gang, by free GPUs
// alone, with the least room to spare. If it returns false, no domain holds the gang; what
// it returns may lack CPU, memory or other things. Not for NodeLevelNum.
// O(log domains) for one task in one pool, else O(tasks x domains x GPUs per node).
func (p *Placer) tightest(u *Unit, sp space, level int) (candidate, bool) {
	if level == anyLevel {
		return candidate{domain: -1}, true
	}
	prefers := u.prefers()
	if len(u.Tasks) == 1 && len(sp[0]) == 1 && !prefers {
		r, ok := sp[0][0].Tightest(level, u.Tasks[0].GPUs, len(u.Tasks[0].Pods))
		return candidate{domain: r.Domain, slots: int(r.Slots), free: int(r.Free)}, ok
	}
	y := &p.tally
	y.reset(p.state.Domains(level))
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
		if prefers {
			p.like(u, sp, level, &c)
		}
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
	if len(out) > 1 && u.prefers() {
		for i := range out {
			p.like(u, sp, level, &out[i])
		}
	}
	slices.SortFunc(out, candidate.better)
	return out
}

// countExact fills the tally by counting node by node. Each task is counted as if the others
// were not there: what is lacking is certain, what fits is not.
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
	y.reset(domains)
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

// takes returns how many pods of a task a node can hold by resources, labels and affinity,
// 0 for a negative id; when is as for satisfies. Anti-affinity between those pods is not
// counted.
func (p *Placer) takes(u *Unit, t *Task, id cluster.NodeID, when moment) int {
	if id < 0 {
		return 0
	}
	sh, n := t.Shape, p.state.Node(id)
	if !n.Open() || !sh.selected(p.state, id) || !p.satisfies(u, t, id, when) {
		return 0
	}
	return sh.holds(n)
}

// candidate is a domain that may hold a whole gang: slots is how many pods of
// the first task it can take, free how many GPUs. liked is the score of the domain for what the pods prefer, and
// traded the room that this outweighs.
type candidate struct {
	domain        int32
	slots, free   int
	liked, traded int64
}

// better says which candidate to take first: the one with the least room, so
// that wide open domains stay so for larger gangs (E-Binpack at LeafGroup
// level, Kant §3.3.3).
func (c candidate) better(o candidate) int {
	if c.traded != o.traded {
		return cmp.Compare(c.traded, o.traded)
	}
	return cmp.Or(cmp.Compare(c.slots, o.slots), cmp.Compare(c.free, o.free), cmp.Compare(o.liked, c.liked), cmp.Compare(c.domain, o.domain))
}
