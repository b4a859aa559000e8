package place

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// anyLevel is the level of which the whole cluster is one domain.
const anyLevel = -1

// Gang places every pod of the unit or none (Kant §3.3.2) and reports which.
// The result is valid until the next call.
//
// It takes the narrowest topology domain that holds the gang (§3.3.5) and, of several such
// domains, the one with the least room. Each step is tried only where the cheaper ones
// before it failed.
func (p *Placer) Gang(u *Unit) ([]Placed, bool) {
	p.reset()
	p.exhausted = false
	// 1. One pod alone goes where a single pod of the job would go.
	if len(u.Tasks) == 1 && len(u.Tasks[0].Pods) == 1 && u.Required < 0 {
		ok := p.pod(u, 0, u.Tasks[0].Pods[0], nil)
		return p.out, ok
	}
	// A gang that weighs speed against distance; if that finds no place, as all others: one role
	// on several models, or roles that one after the other do not fit.
	if u.weighsDistance() && p.byCost(u) {
		return p.out, true
	}
	groups, soft := p.groups(u, false), p.groups(u, true)
	for _, sp := range p.spaces(u) {
		// 2. A gang that is impossible by count is refused before any node is examined.
		if !p.enough(u, sp) {
			continue
		}
		// 3. One node for all pods.
		if p.inOneNode(u, sp) {
			return p.out, true
		}
		if soft != nil && p.inSoftGroups(u, sp, soft) {
			return p.out, true
		}
		// 4. One domain, the narrowest level first. A gang whose pods must be near each other in groups
		// is placed group by group.
		for _, level := range p.levels(u) {
			if groups != nil && p.inGroups(u, sp, groups, level) || groups == nil && p.inLevel(u, sp, level) {
				return p.out, true
			}
		}
		// 5. Steps 3 and 4 place one task after the other and never move a pod again. Of two
		// pods, the one that may be anywhere then takes the only node that the other accepts.
		if u.searched() && p.search(u, sp) {
			return p.out, true
		}
	}
	return nil, false
}

// inLevel tries to place the gang within one domain of a level.
func (p *Placer) inLevel(u *Unit, sp space, level int) bool {
	mark := p.state.Mark()
	// 1. By free GPUs alone, which are counted for each domain. Most gangs ask for little CPU
	// and memory beside their GPUs, and this costs nothing by the number of nodes. If no domain has
	// the GPUs, none will do.
	if !u.needsExact() && level != cluster.NodeLevelNum {
		c, ok := p.tightest(u, sp, level)
		if !ok {
			return false
		}
		if p.inDomain(u, sp, level, c.domain) && p.together(u) {
			return true
		}
		p.takeBack(mark)
	}
	// 2. By all that a pod needs, counted node by node: the tightest domain by GPUs may lack
	// CPU, memory or matching labels that the next one has.
	for _, c := range p.exact(u, sp, level) {
		if p.inDomain(u, sp, level, c.domain) && p.together(u) {
			return true
		}
		p.takeBack(mark)
	}
	return false
}

// together reports whether what was placed is within one domain of the required level. A
// gang that prefers an HBD may require a leaf group, and the HBD reach over several.
func (p *Placer) together(u *Unit) bool {
	if u.Required < 0 {
		return true
	}
	for i := range p.out {
		d := p.state.Domain(p.out[i].Alloc.Node, u.Required)
		if d < 0 || d != p.state.Domain(p.out[0].Alloc.Node, u.Required) {
			return false
		}
	}
	return true
}

// takeBack takes back what was placed of the unit since the mark, which is all of it.
func (p *Placer) takeBack(mark int) {
	p.state.Rollback(mark)
	p.reset()
}

// reset forgets what was placed of the last unit.
func (p *Placer) reset() {
	p.out, p.last, p.usage = p.out[:0], -1, p.usage[:0]
}

// needsExact reports whether the number of free GPUs in a domain says too little about
// whether the gang fits there: some nodes are ruled out, or pods take parts of GPUs or none.
func (u *Unit) needsExact() bool {
	return u.Joins || len(u.Left) > 0 || slices.ContainsFunc(u.Tasks, func(t Task) bool {
		wholeGPUs := t.GPUs > 0
		return t.bound() || t.suits != nil || !wholeGPUs
	})
}

// inOneNode places a gang on one node if it can, on the one that it fits most tightly
// (E-Binpack at node level, §3.3.3).
func (p *Placer) inOneNode(u *Unit, sp space) bool {
	// A required level is left to inLevel: the index does not know which of the nodes are in
	// a domain of that level.
	needsDomain := u.Required >= 0 && u.Required != cluster.NodeLevelNum
	if len(u.Tasks) > 1 || u.needsExact() || needsDomain || !u.packs() {
		return false
	}
	sh, n := u.Tasks[0].Shape, len(u.Tasks[0].Pods)
	st := stage{strategy: EBinpack}
	if u.Tasks[0].prefers() {
		st.prefers = &u.Tasks[0]
	}
	pools := slices.Clone(sp[0])
	pools = slices.DeleteFunc(pools, func(pool *cluster.Pool) bool { return p.quotaLeft(u, sh, pool.Model) < n })
	var id cluster.NodeID
	var ok bool
	st.pools = pools
	if u.Strategy == Spot {
		id, ok = p.likestWhole(u, n*sh.GPUs, sh.need(n), pools)
	} else {
		id, ok = p.whole(n*sh.GPUs, sh.need(n), st, nil)
	}
	if !ok {
		return false
	}
	for _, pod := range u.Tasks[0].Pods {
		p.put(u, 0, pod, id, 0)
	}
	return true
}

// packs reports whether the strategy keeps the pods of a gang together.
func (u *Unit) packs() bool { return u.general() == EBinpack }

// levels returns the levels of which one domain should hold the gang, the best
// first. Strategies that pack try every level from the leaf group up, as do gangs that weigh
// distance, the others only what the job asks for. Levels are numbered from 0, the widest, to the leaf
// group; the HBD and the node come after it.
func (p *Placer) levels(u *Unit) []int {
	leaf := len(p.state.Levels()) - 1
	hbd := leaf + 1
	// 1. An HBD or a node that is required: nothing narrower is better.
	if u.Required >= hbd {
		return []int{u.Required}
	}
	var out []int
	// 2. A gang that is spread over domains would not fit in one of them, or would be spread
	// over the fewest: it gets the widest domain allowed.
	if u.spreads() {
		if u.Preferred >= 0 && u.Preferred != u.Required {
			out = append(out, u.Preferred)
		}
		return append(out, u.Required) // anyLevel when there is none
	}
	// 3. From the narrowest level that is wanted up to the widest that is allowed. A
	// preferred HBD comes before all of them.
	first := leaf
	switch {
	case u.Preferred >= hbd:
		out = append(out, u.Preferred)
	case u.Preferred >= 0 && !u.packs():
		first = u.Preferred
	}
	if !u.packs() && u.Preferred < 0 && !u.weighsDistance() {
		first = u.Required
	}
	for l := max(first, u.Required); l >= max(u.Required, 0); l-- {
		out = append(out, l)
	}
	if u.Required < 0 {
		out = append(out, anyLevel)
	}
	return out
}
