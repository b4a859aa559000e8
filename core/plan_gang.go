package core

import (
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// This file plans for gangs, and for pods that lack quota.

// mostPodsApart bounds the gangs that planPods plans for: it costs a search for each pod.
const mostPodsApart = 64

// planPods makes room for a gang of alike pods pod by pod: each where it fits, else on the node with
// the cheapest victims, where those that leave already cost nothing more. Then the gang is placed in
// the room that there is. planGang, which lifts the cheapest victims wherever they are, leaves a gang
// of whole nodes with many victims in no one node: of six nodes with a cheap victim each and a dear one,
// for three pods planGang evicts the cheap ones of all six.
func (pl *planner) planPods(c preemptor, u *place.Unit, s *search) ([]place.Placed, []victim) {
	alike := u.Whole && len(u.Tasks) == 1 && len(u.Tasks[0].Terms) == 0 && u.Tasks[0].GPU() > 0
	if !alike || u.Required >= 0 || c.queue.Limited() || len(u.Tasks[0].Pods) > mostPodsApart {
		return nil, nil
	}

	// 1. Each pod by itself.
	one, tasks := *u, slices.Clone(u.Tasks)
	one.Tasks = tasks
	var gone []victim
	var placed []place.Placed
	for i := range u.Tasks[0].Pods {
		one.Tasks[0].Pods = u.Tasks[0].Pods[i : i+1]
		at := pl.placer.Pods(&one)
		if len(at) == 0 {
			best := pl.cheapestNode(&one, s)
			if best == nil {
				return nil, nil
			}
			for _, o := range best {
				if v := &s.victims[o.victim]; v.there() && !v.isOut() {
					gone = append(gone, *v)
					pl.lift(v)
				}
			}
			if at = pl.placer.PodOn(&one, best[0].node); len(at) == 0 {
				return nil, nil
			}
		}
		placed = append(placed, at...)
	}

	// 2. All of them together, as a gang is placed. What is needless is put back later.
	for i := range placed {
		pl.state.Remove(cluster.Owner{Job: c.slot, Pod: placed[i].Pod}, placed[i].Alloc.Node)
	}
	if placed = pl.placeGang(c, u, gone); placed == nil {
		return nil, nil
	}
	return placed, gone
}

// planGang lifts victims, the cheapest first, until the gang can be placed; none of which keep
// is true, if it is not nil.
func (pl *planner) planGang(c preemptor, u *place.Unit, s *search, keep func(*victim) bool) ([]place.Placed, []victim) {
	// Some of the victims may be gone for another job: without them it may be too few.
	if s.spent && !pl.roomWith(u, s) {
		return nil, nil
	}
	s.sort()
	var gone []victim
	step, next := 1, 1 // try to place the gang when this many have been lifted
	fits := func() []place.Placed {
		if pl.indebted(c, gone) {
			return nil
		}
		placed := pl.placeGang(c, u, gone)
		if placed == nil && !c.overrun() && pl.placer.MayFit(u) {
			// What fits by count does not fit in place. To place a gang costs much, so lift twice
			// as many before the next try; those that were not needed are put back later.
			step *= 2
			next = len(gone) + step
		}
		return placed
	}

	// First the victims on open nodes; all of them if the gang fits by count, as then only quota
	// is lacking. Then, if quota is still lacking, those on nodes that are closed for another
	// plan: nothing starts there before that plan is done, but their quota is returned.
	roomy := pl.placer.MayFit(u)
	for _, first := range [2]bool{true, false} {
		for k := range s.victims {
			v := &s.victims[k]
			if !v.there() || keep != nil && keep(v) || (roomy || pl.onOpenNode(v)) != first || !first && !c.overrun() {
				continue
			}
			// A step does not pass those that are less spared: the gang could get the places of the
			// others, though it had room without them.
			if n := len(gone); n > 0 && v.spared > gone[n-1].spared {
				if placed := fits(); placed != nil {
					return placed, gone
				}
			}
			gone = append(gone, *v)
			pl.lift(v)
			if first && len(gone) < next {
				continue
			}
			if placed := fits(); placed != nil {
				return placed, gone
			}
		}
		if placed := fits(); placed != nil {
			return placed, gone
		}
	}
	return nil, nil
}

// onOpenNode reports whether a pod of the victim is on a node that is not closed for a plan.
func (pl *planner) onOpenNode(v *victim) bool {
	for i := range v.pods {
		if pl.state.Node(v.job.pods[i].alloc.Node).Open() {
			return true
		}
	}
	return false
}

// placeGang places the gang where it has room and quota, nil if nowhere. If victims leave only
// as it is covered, its queue must not use more than it owns, or is owed.
func (pl *planner) placeGang(c preemptor, u *place.Unit, gone []victim) []place.Placed {
	j := c.job
	if c.overrun() || !pl.placer.MayFit(u) {
		return nil
	}
	mark := pl.state.Mark()
	if placed, ok := pl.placer.Gang(u); ok {
		if affords(pl.state, j, placed, u.Room) && (!byCover(gone) || affords(pl.state, j, placed, c.room(gone))) {
			return placed
		}
		pl.state.Rollback(mark)
	}
	return nil
}

// planInDomain is planGang for a gang that must be within one domain. Domains are tried in the
// order in which they get room by count as victims leave, the cheapest first; only
// victims there are lifted. It costs O(victims + domains), and for each domain that is tried
// its victims.
func (pl *planner) planInDomain(c preemptor, u *place.Unit, s *search) ([]place.Placed, []victim) {
	j := c.job
	smallest, need := cluster.MaxGPUs, 0 // devices of the smallest pod, and how many pods
	for t := range u.Tasks {
		smallest = min(smallest, u.Tasks[t].GPUs)
		need += len(u.Tasks[t].Pods)
	}
	if smallest == 0 {
		return pl.planGang(c, u, s, nil) // some pods take no whole devices: counting these says nothing
	}

	// 1. Is there such a domain at all? Most gangs are refused here, before the victims are
	// sorted.
	any := false
	pl.fillDomains(j, u, s, smallest, need, func(int32, int) bool {
		any = true
		return true
	})
	if !any {
		return nil, nil
	}

	// 2. The domains in the order in which they get room, the cheapest first: first without those that
	// are spared, in any domain, then with more and more of these.
	s.sort()
	all := s.victims
	defer func() { s.victims = all }()
	var placed []place.Placed
	var gone []victim
	for upTo := 0; placed == nil && upTo < len(all); {
		most := all[upTo].spared
		for upTo < len(all) && all[upTo].spared == most {
			upTo++
		}
		s.victims = all[:upTo]
		pl.fillDomains(j, u, s, smallest, need, func(domain int32, last int) bool {
			if placed, gone = pl.planIn(domain, c, u, s, last); placed == nil {
				pl.state.Rollback(0)
				pl.dropLifted()
			}
			return placed != nil
		})
	}
	return placed, gone
}

// fillDomains counts, by domain, how many pods of this many devices find room as victims leave,
// in the order of the search. It calls enough for each domain that then holds as many as are
// needed, with the number of the last victim, until enough returns true.
func (pl *planner) fillDomains(j *job, u *place.Unit, s *search, devices, need int, enough func(domain int32, last int) bool) {
	slots, done, free := pl.slotsByDomain(j.class, u.Required, devices), map[int32]bool{}, map[cluster.NodeID]uint64{}
	for k := range s.victims {
		v := &s.victims[k]
		if !v.there() {
			continue
		}
		for i := range v.pods {
			a := &v.job.pods[i].alloc
			d := pl.domainFor(j, u, a.Node)
			if d < 0 || done[d] {
				continue
			}
			// How many more pods the node holds with this victim's devices free, too.
			before, ok := free[a.Node]
			if !ok {
				before = pl.state.Node(a.Node).Whole
			}
			free[a.Node] = before | a.GPUs
			slots[d] += bits.OnesCount64(before|a.GPUs)/devices - bits.OnesCount64(before)/devices
			if slots[d] < need {
				continue
			}
			if done[d] = true; enough(d, k) {
				return
			}
		}
	}
}

// domainFor returns the domain of a node at the level that the gang requires, -1 if the gang
// cannot be on the node.
func (pl *planner) domainFor(j *job, u *place.Unit, id cluster.NodeID) int32 {
	d := pl.state.Domain(id, u.Required)
	if u.Joins && d != u.Home || j.class.pools&poolBit(pl.state.Node(id)) == 0 || !pl.state.Node(id).Open() {
		return -1
	}
	return d
}

// slotsByDomain returns how many pods of this many devices find room in each domain of a level,
// by free devices.
func (pl *planner) slotsByDomain(c *class, level, devices int) map[int32]int {
	slots := map[int32]int{}
	for n, p := range pl.state.Pools() {
		if c.pools>>(uint(n)%64)&1 == 0 {
			continue
		}
		if level == cluster.NodeLevelNum {
			for _, id := range p.Members() {
				if id >= 0 {
					slots[int32(pl.state.Home(id))] += pl.state.Node(id).Free() / devices
				}
			}
			continue
		}
		for i, d := range p.Domains(level) {
			fit, _ := p.DomainSlots(level, i, devices)
			slots[d] += fit
		}
	}
	return slots
}

// planIn lifts the victims in a domain: those up to a last one, with which it has room by
// count, and if the gang does not fit in place, the others, too.
func (pl *planner) planIn(domain int32, c preemptor, u *place.Unit, s *search, last int) ([]place.Placed, []victim) {
	var gone []victim
	for _, part := range [2][]victim{s.victims[:last+1], s.victims[last+1:]} {
		for k := range part {
			v := &part[k]
			if !v.there() {
				continue
			}
			for i := range v.pods {
				if pl.domainFor(c.job, u, v.job.pods[i].alloc.Node) == domain {
					gone = append(gone, *v)
					pl.lift(v)
					break
				}
			}
		}
		if placed := pl.placeGang(c, u, gone); placed != nil {
			return placed, gone
		}
	}
	return nil, nil
}
