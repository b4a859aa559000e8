package place

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// anyLevel is the level of which the whole cluster is one domain.
const anyLevel = -1

// everyModel stands for all the models that a task accepts.
const everyModel = "*"

// space is the pools a gang may use together, by task.
type space [][]*cluster.Pool

// candidate is a domain that may hold a whole gang: slots is how many pods of
// the first task it can take, free how many GPUs.
type candidate struct {
	domain      int32
	slots, free int
}

// better says which candidate to take first: the one with the least room, so
// that wide open domains stay so for larger gangs (E-Binpack at LeafGroup
// level, Kant §3.3.3).
func (c candidate) better(o candidate) int {
	return cmp.Or(cmp.Compare(c.slots, o.slots), cmp.Compare(c.free, o.free), cmp.Compare(c.domain, o.domain))
}

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
		if p.inDomain(u, sp, level, c.domain) && p.together(u) && p.apartFromMates(u) {
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
	p.out, p.last, p.spent = p.out[:0], -1, p.spent[:0]
}

// needsExact reports whether counting free GPUs says too little from the start.
func (u *Unit) needsExact() bool {
	return u.Joins || len(u.Left) > 0 || slices.ContainsFunc(u.Tasks, func(t Task) bool { return t.bound() || t.suits != nil || t.GPUs == 0 })
}

// spaces returns the sets of pools to try, in order, each first without the dedicated
// zone and then with it. Pods that name no model and need GPUs are on one model all,
// the base of the space, in every one of them.
//
//  1. Each model by itself: tasks that accept it keep to it, the others use all that
//     they name: a gang may be a mix of tasks for different models. Nodes without GPUs
//     count as a model for pods that need none.
//  2. Pods that need no GPU and name no model on any node.
//  3. Tasks that name several models on all of them together (cross-pool joint
//     admission, §3.2.1).
func (u *Unit) spaces() []space {
	var names []string
	zone, several, anywhere, bound := false, false, false, false
	for t := range u.Tasks {
		task := &u.Tasks[t]
		if len(task.Pods) == 0 {
			continue // of an elastic role none starts with the gang
		}
		several = several || task.Mixed
		anywhere = anywhere || !task.Named && task.GPU() == 0
		bound = bound || !task.Named && task.GPU() > 0
		for _, m := range task.models {
			zone = zone || len(m.zone) > 0
			if !slices.Contains(names, m.name) {
				names = append(names, m.name)
			}
		}
	}
	zone = zone && (u.Inference || !u.Exclusive)
	var out []space
	add := func(base, others string, mix bool) {
		for _, z := range [2]bool{false, true} {
			if z && !zone {
				break
			}
			sp, ok := u.space(base, others, mix, z)
			if ok && !slices.ContainsFunc(out, sp.equal) {
				out = append(out, sp)
			}
		}
	}
	withBases := func(others string, mix bool) {
		for _, base := range names {
			if base != "" {
				add(base, others, mix)
			}
		}
	}
	for _, name := range names {
		switch {
		case name != "":
			add(name, name, false)
		case len(names) == 1:
			add("", "", false)
		default:
			withBases("", false)
		}
	}
	if len(names) > 1 && anywhere {
		if bound || several {
			withBases(everyModel, false)
		} else {
			add("", everyModel, false)
		}
	}
	if len(names) > 1 && several {
		if bound {
			withBases(everyModel, true)
		} else {
			add("", everyModel, true)
		}
	}
	return out
}

func (sp space) equal(o space) bool { return slices.EqualFunc(sp, o, slices.Equal) }

// space returns the pools of each task: of those that name no model the base's, or,
// where they need no GPU, those of others, which may be every model; of those that
// name some, the base's if they accept it and do not mix. False when a task with pods is
// left without pools.
func (u *Unit) space(base, others string, mix, zone bool) (space, bool) {
	sp := make(space, len(u.Tasks))
	for t := range u.Tasks {
		task := &u.Tasks[t]
		if len(task.Pods) == 0 {
			continue
		}
		only := base
		if !task.Named && task.GPU() == 0 {
			only = others
		}
		accepts := slices.ContainsFunc(task.models, func(m model) bool { return m.name == only })
		if mix && task.Mixed || !accepts && (task.Named || task.GPU() == 0) {
			only = everyModel
		}
		for _, m := range task.models {
			if only != everyModel && m.name != only {
				continue
			}
			sp[t] = append(sp[t], m.general...)
			if zone {
				sp[t] = append(sp[t], m.zone...)
			}
		}
		if len(sp[t]) == 0 {
			return nil, false
		}
	}
	return sp, true
}

// MayFit reports whether free GPUs alone would let the unit, or one pod of it
// when it is not whole, be placed. False is certain, true is not.
// O(tasks x pools x GPUs per node).
func (p *Placer) MayFit(u *Unit) bool { return u.mayFit((*Shape).slotsInAll) }

// RoomWith is MayFit with more room: on nodes, each named once, left says what
// would be free. Topology, shared devices and other resources are not looked at.
// O(tasks x (pools x GPUs per node + nodes)).
func (p *Placer) RoomWith(u *Unit, nodes []cluster.NodeID, left func(cluster.NodeID) (gpus uint64, left cluster.Need)) bool {
	return u.mayFit(func(sh *Shape) int {
		if sh.GPUs == 0 {
			return 1 << 30 // parts of devices are not counted here
		}
		slots := sh.slotsInAll()
		for _, id := range nodes {
			n := p.state.Node(id)
			if !n.Open() || !sh.uses(p.state.Pool(id), u) || !sh.selected(p.state, id) {
				continue
			}
			gpus, beside := left(id)
			slots += capacity(sh, bits.OnesCount64(gpus), beside) - n.Free()/sh.GPUs
		}
		return slots
	})
}

// mayFit reports whether there are slots enough for the unit: a gang fails by any
// task, a job that starts pod by pod starts by any.
func (u *Unit) mayFit(slots func(*Shape) int) bool {
	for t := range u.Tasks {
		need := len(u.Tasks[t].Pods)
		if need == 0 {
			continue
		}
		if !u.Whole {
			need = 1
		}
		if fits := slots(u.Tasks[t].Shape) >= need; fits != u.Whole {
			return fits
		}
	}
	return u.Whole
}

// slotsInAll returns how many pods of the shape all its pools hold, by GPUs
// alone.
func (sh *Shape) slotsInAll() int {
	slots := 0
	for _, m := range sh.models {
		for _, pools := range [2][]*cluster.Pool{m.general, m.zone} {
			for _, pool := range pools {
				slots += sh.slots(pool)
			}
		}
	}
	return slots
}

// slots returns how many pods of the shape a pool holds, by GPUs alone.
func (sh *Shape) slots(pool *cluster.Pool) int {
	switch {
	case sh.GPUs > 0:
		return pool.Slots(sh.GPUs)
	case sh.Part > 0:
		return pool.PartSlots(sh.Part)
	}
	return 1 << 30
}

// enough reports whether the free GPUs of a space, and the queue's room, could
// hold every task. O(tasks x pools x GPUs per node), whatever the gang's size.
func (p *Placer) enough(u *Unit, sp space) bool {
	for t := range u.Tasks {
		sh, need := u.Tasks[t].Shape, len(u.Tasks[t].Pods)
		if sh.GPU() == 0 {
			continue
		}
		slots := 0
		for _, pool := range sp[t] {
			slots += sh.slots(pool)
		}
		if slots < need || u.Room != nil && u.allowed(sh, sp[t]) < need {
			return false
		}
	}
	return true
}

// allowed returns how many pods of a shape the queue's quota allows in pools.
func (u *Unit) allowed(sh *Shape, pools []*cluster.Pool) int {
	n := cluster.Milli(0)
	for i, pool := range pools {
		if slices.ContainsFunc(pools[:i], func(o *cluster.Pool) bool { return o.Model == pool.Model }) {
			continue
		}
		n = min(n+max(u.Room(pool.Model), 0)/sh.GPU(), 1<<40)
	}
	return int(n)
}

// inOneNode places a gang that fits on one node there: the one it fits most
// tightly (E-Binpack at node level, §3.3.3).
func (p *Placer) inOneNode(u *Unit, sp space) bool {
	if len(u.Tasks) > 1 || u.needsExact() || u.Required >= 0 && u.Required != cluster.NodeLevelNum || !u.packs() {
		return false
	}
	sh, n := u.Tasks[0].Shape, len(u.Tasks[0].Pods)
	pools := slices.Clone(sp[0])
	pools = slices.DeleteFunc(pools, func(pool *cluster.Pool) bool { return p.room(u, sh, pool.Model) < n })
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
