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
// It takes the narrowest topology domain that holds the gang (§3.3.5) and of
// several the one with the least room, first by counting free GPUs alone. Only
// when the nodes so chosen lack something that is not counted (CPU, memory,
// labels) it counts again node by node; and only when that fails too, for a gang of
// several tasks or with affinities, it searches.
func (p *Placer) Gang(u *Unit) ([]Placed, bool) {
	p.reset()
	p.exhausted = false
	if len(u.Tasks) == 1 && len(u.Tasks[0].Pods) == 1 && u.Required < 0 {
		return p.out, p.pod(u, 0, u.Tasks[0].Pods[0], nil)
	}
	for _, sp := range u.spaces() {
		if !p.enough(u, sp) {
			continue
		}
		if p.inOneNode(u, sp) {
			return p.out, true
		}
		for _, level := range p.levels(u) {
			if p.inLevel(u, sp, level) {
				return p.out, true
			}
		}
		if u.searched() && p.search(u, sp) {
			return p.out, true
		}
	}
	return nil, false
}

// inLevel tries to place the gang within one domain of a level.
func (p *Placer) inLevel(u *Unit, sp space, level int) bool {
	mark := p.state.Mark()
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
	for _, c := range p.exact(u, sp, level) {
		if p.inDomain(u, sp, level, c.domain) && p.together(u) {
			return true
		}
		p.takeBack(mark)
	}
	return false
}

// together reports whether what was placed is within one domain of the required
// level: a preferred HBD may reach over several.
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

func (p *Placer) takeBack(mark int) {
	p.state.Rollback(mark)
	p.reset()
}

// reset forgets what was placed of the last unit.
func (p *Placer) reset() {
	p.out, p.last, p.usage = p.out[:0], -1, p.usage[:0]
}

// needsExact reports whether counting free GPUs says too little from the start.
func (u *Unit) needsExact() bool {
	return u.Joins || len(u.Left) > 0 || slices.ContainsFunc(u.Tasks, func(t Task) bool { return t.bound() || t.suits != nil || t.GPUs == 0 })
}

// inOneNode places a gang that fits on one node there: the one it fits most
// tightly (E-Binpack at node level, §3.3.3).
func (p *Placer) inOneNode(u *Unit, sp space) bool {
	if len(u.Tasks) > 1 || u.needsExact() || u.Required >= 0 && u.Required != cluster.NodeLevelNum || !u.packs() {
		return false
	}
	sh, n := u.Tasks[0].Shape, len(u.Tasks[0].Pods)
	pools := slices.Clone(sp[0])
	pools = slices.DeleteFunc(pools, func(pool *cluster.Pool) bool { return p.quotaLeft(u, sh, pool.Model) < n })
	id, ok := p.whole(n*sh.GPUs, sh.need(n), stage{pools, EBinpack}, nil)
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
// first. Strategies that pack try every level from the leaf group up; the
// others only what the job asks for.
func (p *Placer) levels(u *Unit) []int {
	leaf := len(p.state.Levels()) - 1
	hbd := leaf + 1
	if u.Required >= hbd {
		return []int{u.Required}
	}
	var out []int
	if u.spreads() { // narrow domains are not for it
		if u.Preferred >= 0 && u.Preferred != u.Required {
			out = append(out, u.Preferred)
		}
		return append(out, u.Required) // anyLevel when there is none
	}
	first := leaf
	switch {
	case u.Preferred >= hbd:
		out = append(out, u.Preferred)
	case u.Preferred >= 0 && !u.packs():
		first = u.Preferred
	}
	if !u.packs() && u.Preferred < 0 {
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
