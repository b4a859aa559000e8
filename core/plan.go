package core

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// A plan is found by trial: victims are lifted off their nodes, the cheapest first, until the
// job fits; then those that turn out not to be in the way are put back. The state's journal
// takes the trial back in any case: nominate.go carries a plan out.

// budget counts evictions in the current interval.
type budget struct {
	interval int64
	spent    int
}

// plan is who leaves for a job, and where it, or pods of it, are placed.
type plan struct {
	preemptor
	placed []place.Placed
	gone   []victim
}

// plan makes a plan of the victims that were found, nil if they make no room.
func (pl *planner) plan(c preemptor, s *search) *plan {
	if len(s.victims) == 0 {
		return nil
	}
	j := c.job
	c.candidate = pl.units.prepareTurn(j, c.turn)
	u := c.unit
	if !u.Whole {
		onePod(u)
	}

	// 1. Who leaves, and where the job goes.
	pl.lifted = pl.lifted[:0]
	placed, gone := pl.makeRoom(c, u, s)

	// 2. Does it keep to nominal quota, and do the plans in progress hold beside it? Else those
	// would be dropped in the next pass, and their victims would come back.
	if placed != nil && !pl.keepsToQuota(c, placed, gone) {
		placed = nil
	}
	if placed != nil {
		placed, gone = slices.Clone(placed), whole(gone)
		pl.nominations.weigh(draft{job: j, placed: placed})
		gone = pl.spareNeedless(c, u, placed, gone)
		pl.giveReasons(c, placed, gone)
		if pl.nominations.weigh(draft{j, placed, gone}); !pl.nominations.upheld() {
			placed = nil
		}
		pl.nominations.weigh(draft{})
	}

	// 3. The trial is taken back, whether or not the budget of evictions allows the plan.
	evicted := 0
	for i := range gone {
		for range gone[i].pods {
			evicted++
		}
	}
	ok := placed != nil && pl.affordsEvictions(evicted, c)
	pl.state.Rollback(0)
	pl.dropLifted()
	if !ok {
		return nil
	}
	s.spent = true
	return &plan{c, placed, gone}
}

// makeRoom lifts victims until the unit has places: the cheapest way first, one pod on one
// node, of which victims leave; or a gang in one domain, of which victims leave; else with
// victims anywhere, the cheapest first.
func (pl *planner) makeRoom(c preemptor, u *place.Unit, s *search) (placed []place.Placed, gone []victim) {
	single := len(u.Tasks) == 1 && len(u.Tasks[0].Pods) == 1 && u.Required < 0
	onlyQuotaLacks := func() bool { return c.short && pl.placer.MayFit(u) }
	if single && !onlyQuotaLacks() {
		placed, gone = pl.planPod(c, u, s)
	}
	inDomain := u.Whole && u.Required >= 0 && !c.short && !c.owes
	if placed == nil && inDomain {
		placed, gone = pl.planInDomain(c, u, s)
	}

	// Victims elsewhere may help even one pod, or a gang in one domain: they keep it off by an
	// affinity to a wider domain, or hold the quota, also that of another model on which the job
	// would be within it.
	terms := slices.ContainsFunc(u.Tasks, func(t place.Task) bool { return len(t.Terms) > 0 })
	otherModels := c.queue.Limited() && len(u.Tasks[0].Models()) > 1
	elsewhere := terms || !inDomain && (!single || c.short || otherModels)
	if placed == nil && elsewhere {
		pl.state.Rollback(0)
		pl.dropLifted()
		pl.lookAtAll(s)
		if placed, gone = pl.planPods(c, u, s); placed != nil {
			return placed, gone
		}
		pl.state.Rollback(0)
		pl.dropLifted()
		placed, gone = pl.planGang(c, u, s, nil)
	}

	// The cheapest victims may be those near which the job must be: others leave.
	near := c.requires(func(t Term) bool { return !t.Anti && t.MaxSkew == 0 })
	if placed == nil && elsewhere && near {
		pl.state.Rollback(0)
		pl.dropLifted()
		placed, gone = pl.planGang(c, u, s, func(v *victim) bool { return c.mustBeNear(v.job) })
	}
	return placed, gone
}

// mustBeNear reports whether a pod of j must be near one with a label that pods of v have.
func (j *job) mustBeNear(v *job) bool {
	return j.requires(func(t Term) bool {
		return !t.Anti && t.MaxSkew == 0 && slices.ContainsFunc(v.Tasks, func(of Task) bool { return slices.Contains(of.Labels, t.Label) })
	})
}

// keepsToQuota reports whether a job that evicts as one that is covered is covered in
// these places: it may have found room on another model. Its queue must not use more than it
// owns, or is owed, if some victims leave only for that.
func (pl *planner) keepsToQuota(c preemptor, placed []place.Placed, gone []victim) bool {
	if c.cover == uncovered {
		return true
	}
	owned := !byCover(gone) || affords(pl.state, c.job, placed, c.room(gone))
	return owned && pl.entitlement.coverAt(c.job, placed) >= c.cover
}

// roomWith reports whether the unit, or one pod of it if it starts pod by pod, would find room
// by count if all the victims left. False is certain. It costs O(victims + the nodes that they
// are on, and the pods there).
func (pl *planner) roomWith(u *place.Unit, s *search) bool {
	pl.trial++
	pl.tried = pl.tried[:0]
	for k := range s.victims {
		v := &s.victims[k]
		for i := range v.pods {
			if p := &v.job.pods[i]; p.state == podRunning {
				p.trial = pl.trial
				pl.tried = append(pl.tried, p.alloc.Node)
				if home := pl.state.Home(p.alloc.Node); home != p.alloc.Node {
					pl.tried = append(pl.tried, home) // it may draw CPU from there
				}
			}
		}
	}
	slices.Sort(pl.tried)
	pl.tried = slices.Compact(pl.tried)
	return pl.placer.RoomWith(u, pl.tried, pl.withoutTried)
}

// withoutTried returns what a node would have free without the pods of the current trial.
func (pl *planner) withoutTried(id cluster.NodeID) (gpus uint64, left cluster.Need) {
	n := pl.state.Node(id)
	gpus, left = n.Healthy(), cluster.Need{Pods: n.Spec.MaxPods, CPU: n.Spec.CPUMilli, Mem: n.Spec.MemMiB}
	if left.Pods == 0 {
		left.Pods = n.PodsLeft()
	}
	for h := range n.Pods {
		if pl.jobs.slots[h.Owner.Job].pods[h.Owner.Pod].trial != pl.trial {
			gpus &^= h.Alloc.GPUs
			left.CPU -= h.Alloc.CPUMilli
			left.Mem -= h.Alloc.MemMiB
			left.Pods--
		}
	}
	return gpus, left
}

// onePod reduces a unit that starts pod by pod to its first pod.
func onePod(u *place.Unit) {
	for t := range u.Tasks {
		if len(u.Tasks[t].Pods) > 0 {
			u.Tasks, u.Combinations = u.Tasks[t:t+1], nil // these are of all tasks
			u.Tasks[0].Pods = u.Tasks[0].Pods[:1]
			return
		}
	}
}

// lift takes a victim's pods out of the state and the ledger for a trial, as far as they are
// not out already: a pod may be a victim by itself and with its gang.
func (pl *planner) lift(v *victim) {
	for i := range v.pods {
		p := &v.job.pods[i]
		if p.lifted {
			continue
		}
		pl.state.Remove(cluster.Owner{Job: v.job.slot, Pod: int32(i)}, p.alloc.Node)
		v.job.charge(pl.state, p, -1)
		p.lifted = true
		pl.lifted = append(pl.lifted, liftedPod{v.job, i})
	}
}

// drop undoes a lift, even if the node has less room than its pods take, as before.
func (pl *planner) drop(v *victim) {
	for i := range v.pods {
		p := &v.job.pods[i]
		pl.state.PlaceFound(cluster.Owner{Job: v.job.slot, Pod: int32(i)}, p.alloc)
		v.job.charge(pl.state, p, 1)
		p.lifted = false
	}
}

// liftedPod is a pod that a trial has taken out of the ledger, unless it was put back since.
type liftedPod struct {
	job *job
	pod int
}

// dropLifted puts the lifted pods back into the ledger.
func (pl *planner) dropLifted() { pl.dropLiftedAfter(0) }

// dropLiftedAfter puts the lifted pods but for the first n back into the ledger.
func (pl *planner) dropLiftedAfter(n int) {
	for _, l := range pl.lifted[n:] {
		if p := &l.job.pods[l.pod]; p.lifted {
			p.lifted = false
			l.job.charge(pl.state, p, 1)
		}
	}
	pl.lifted = pl.lifted[:n]
}

// isOut reports whether all pods of a victim are lifted.
func (v *victim) isOut() bool {
	for i := range v.pods {
		if !v.job.pods[i].lifted {
			return false
		}
	}
	return true
}

// onNode is what a victim holds on a node.
type onNode struct {
	node   cluster.NodeID
	victim int
	gpus   uint64
}

// byNode lists which victims are on which node, the node with the cheapest victim first. It is
// computed once for a search.
func (pl *planner) byNode(s *search) [][]onNode {
	if s.nodes != nil {
		return s.nodes
	}
	// 1. What each victim holds on each node, one entry for all its pods there.
	s.sort()
	for k := range s.victims {
		for i := range s.victims[k].pods {
			a := &s.victims[k].job.pods[i].alloc
			o := onNode{pl.frees(s.of.class, a.Node), k, a.GPUs}
			if o.node != a.Node {
				o.gpus &= pl.state.Drawn(a.Node)
			}
			s.at = append(s.at, o)
		}
	}
	slices.SortFunc(s.at, func(a, b onNode) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.victim, b.victim))
	})
	once := s.at[:0]
	for _, o := range s.at {
		if n := len(once); n > 0 && once[n-1].node == o.node && once[n-1].victim == o.victim {
			once[n-1].gpus |= o.gpus
			continue
		}
		once = append(once, o)
	}

	// 2. Cut into groups, one a node.
	for first, i := 0, 1; i <= len(once); i++ {
		if i == len(once) || once[i].node != once[first].node {
			s.groups = append(s.groups, once[first:i])
			first = i
		}
	}
	slices.SortFunc(s.groups, func(a, b []onNode) int {
		return cmp.Or(cmp.Compare(a[0].victim, b[0].victim), cmp.Compare(a[0].node, b[0].node))
	})
	s.nodes = s.groups
	return s.nodes
}

// price is the cost of the victims on a node: first why one of them is spared, then the
// highest precedence among them, then their cost.
type price struct {
	spared     spared
	precedence precedence
	cost       int64
}

// plus returns the price with one more victim.
func (p price) plus(v *victim) price {
	if v.job.key.compare(p.precedence) < 0 {
		p.precedence = v.job.key.precedence
	}
	p.spared = max(p.spared, v.spared)
	p.cost += 1 + v.cost
	return p
}

func (p price) less(o price) bool {
	if p.spared != o.spared {
		return p.spared < o.spared
	}
	if r := p.precedence.compare(o.precedence); r != 0 {
		return r > 0
	}
	return p.cost < o.cost
}

// nothing returns the price of no victims: its precedence is below every job's.
func nothing() price { return price{precedence: precedence{class: LP + 1}} }

// planPod finds the node on which the pod gets room at the lowest price.
func (pl *planner) planPod(c preemptor, u *place.Unit, s *search) ([]place.Placed, []victim) {
	// 1. The victims on that node leave, and any that have to return quota.
	best := pl.cheapestNode(u, s)
	if best == nil {
		return nil, nil
	}
	var gone []victim
	node := best[0].node
	for _, o := range best {
		if v := &s.victims[o.victim]; v.there() {
			gone = append(gone, *v)
			pl.lift(v)
		}
	}
	gone, paid := pl.returnQuota(c, s, gone)
	if !paid {
		return nil, nil
	}

	// 2. Those that are not needed are put back, the most expensive first. If the pod needs two
	// GPUs, a cheap victim of one was lifted before the next, of two, which makes room alone.
	gone = whole(gone)
	kept := gone[:0:0]
	byCover := slices.DeleteFunc(slices.Clone(gone), func(v victim) bool { return !v.byCover }) // as far as they are lifted
	for k := len(gone) - 1; k >= 0; k-- {
		pl.drop(&gone[k])
		rest := byCover
		if gone[k].byCover {
			rest = slices.DeleteFunc(slices.Clone(byCover), func(v victim) bool { return v == gone[k] })
		}
		if !pl.placer.Takes(u, node) || c.overrun() || pl.indebted(c, rest) {
			pl.lift(&gone[k])
			kept = append(kept, gone[k])
			continue
		}
		byCover = rest
	}
	slices.Reverse(kept)
	kept = pl.oneForAll(c, u, s, node, kept)

	// 3. The pod goes there.
	placed := pl.placer.PodOn(u, node)
	if len(placed) == 0 || !affords(pl.state, c.job, placed, u.Room) {
		return nil, nil
	}
	return placed, kept
}

// oneForAll replaces the victims of a plan, which are lifted, by one other on the node that makes
// room alone at a lower price: two pods with half a GPU each by one that lost no more work than
// both. It leaves the others alone if costs are not lost work, as they then do not add up.
func (pl *planner) oneForAll(c preemptor, u *place.Unit, s *search, node cluster.NodeID, gone []victim) []victim {
	if len(gone) < 2 || pl.policy.Preempt.Victims != LeastWork {
		return gone
	}
	lowest := nothing()
	for k := range gone {
		lowest = lowest.plus(&gone[k])
	}
	victims := pl.victimsOn(s, node)
	for k := range victims {
		v := &victims[k]
		if !nothing().plus(v).less(lowest) {
			break // nor is any of the others, which cost more
		}
		among := slices.ContainsFunc(gone, func(g victim) bool { return g.job == v.job })
		if among || !v.there() {
			continue // an elastic gang gives up single pods before it leaves as a whole
		}
		for k := range gone {
			pl.drop(&gone[k])
		}
		pl.lift(v)
		if one := []victim{*v}; pl.placer.Takes(u, node) && !c.overrun() && !pl.indebted(c, one) {
			return one
		}
		pl.drop(v)
		for k := range gone {
			pl.lift(&gone[k])
		}
	}
	return gone
}

// cheapestNode is cheapestOf what a search has found, and finds more until nothing else may be cheaper.
func (pl *planner) cheapestNode(u *place.Unit, s *search) []onNode {
	for {
		best, lowest := pl.cheapestOf(u, s)
		if !s.more() || best != nil && s.cheapest(lowest) {
			return best
		}
		if best == nil {
			pl.narrow(s, u)
		}
		pl.lookAtMore(s, 3*len(s.victims)+fewVictims)
		if best == nil && !s.partial() && !pl.roomWith(u, s) {
			return nil
		}
	}
}

// cheapestOf returns the victims of the node on which the pod gets room at the lowest price,
// those that have to leave, the cheapest first; nil if there is no such node. It lifts the
// cheapest victims of each node until the pod fits, and puts them back; those that are lifted
// already cost nothing. Nodes come in the order
// of their cheapest victims: it ends at the first node whose cheapest victim alone costs more
// than the lowest price so far.
func (pl *planner) cheapestOf(u *place.Unit, s *search) (best []onNode, lowest price) {
	for len(pl.byNode(s)) > 0 && !pl.state.Node(s.nodes[0][0].node).Open() {
		s.nodes = s.nodes[1:] // a plan has it: it stays closed for this pass
	}
	mark, before := pl.state.Mark(), len(pl.lifted)
	for _, at := range s.nodes {
		first := slices.IndexFunc(at, func(o onNode) bool { v := &s.victims[o.victim]; return v.there() && !v.isOut() })
		if first < 0 {
			continue
		}
		dearer := best != nil && !nothing().plus(&s.victims[at[first].victim]).less(lowest)
		atRandom := best != nil && pl.policy.Preempt.Victims == RandomVictims // the node of the first victim drawn that makes room there
		if dearer && first == 0 || atRandom {
			break
		}
		node := pl.state.Node(at[0].node)
		if dearer || !node.Open() {
			continue
		}
		// Too few devices even without all of them: most nodes end here.
		devices := node.Whole
		for _, o := range at {
			devices |= o.gpus
		}
		if bits.OnesCount64(devices) < u.Tasks[0].GPUs {
			continue
		}
		cost, lifted, takes := nothing(), 0, pl.placer.Takes(u, at[0].node)
		var used int
		for used = 0; used < len(at) && !takes; used++ {
			v := &s.victims[at[used].victim]
			if !v.there() || v.isOut() {
				continue
			}
			if cost = cost.plus(v); best != nil && !cost.less(lowest) {
				break
			}
			pl.lift(v)
			lifted++
			takes = pl.placer.Takes(u, at[0].node)
		}
		if lifted > 0 && takes {
			best, lowest = at[:used], cost
		}
		pl.state.Rollback(mark)
		pl.dropLiftedAfter(before)
	}
	return best, lowest
}

// returnQuota lifts victims anywhere, the cheapest first, as long as the job lacks quota, or its
// queue owes some to the tenants that give up theirs. It returns gone with these appended, and
// false if all of them do not suffice.
func (pl *planner) returnQuota(c preemptor, s *search, gone []victim) ([]victim, bool) {
	leave := func(v *victim) {
		isGone := slices.ContainsFunc(gone, func(g victim) bool { return g.job == v.job && g.pod == v.pod })
		if v.there() && !isGone {
			gone = append(gone, *v)
			pl.lift(v)
		}
	}
	if c.overrun() || pl.indebted(c, gone) {
		pl.widen(s)
	}
	for k := 0; c.overrun() && (k < len(s.victims) || pl.lookAtMore(s, k)); k++ {
		leave(&s.victims[k])
	}
	if !c.overrun() && pl.indebted(c, gone) {
		payers := pl.payers(s, &c)
		for k := 0; k < len(payers) && pl.indebted(c, gone); k++ {
			leave(&payers[k])
		}
	}
	return gone, !c.overrun() && !pl.indebted(c, gone)
}

// spareNeedless puts victims back that turn out not to be in the way, the most expensive first.
func (pl *planner) spareNeedless(c preemptor, u *place.Unit, placed []place.Placed, gone []victim) []victim {
	j, room := c.job, func(string) Milli { return 0 }
	if byCover(gone) {
		room = c.room(gone)
	}
	// Affinities are checked with the whole job in place, as when it starts. The unit may have
	// one task of several.
	for t := range u.Tasks {
		if pods := u.Tasks[t].Pods; len(pods) > 0 {
			u.Tasks[t].After = pl.nominations.after(j, int(j.pods[pods[0]].task))
		}
	}
	j.bookPlaced(pl.state, placed, 1)
	kept := gone[:0:0]
	for k := len(gone) - 1; k >= 0; k-- {
		if !pl.putBack(j, u, placed, &gone[k], room) {
			kept = append(kept, gone[k])
		}
	}
	j.bookPlaced(pl.state, placed, -1)
	slices.Reverse(kept)
	return kept
}

// giveReasons settles why the victims leave: for nominal quota, or for what its queue is owed, only if the job's queue then
// uses no more than that, which depends on the places.
func (pl *planner) giveReasons(c preemptor, placed []place.Placed, gone []victim) {
	if c.cover == uncovered || affords(pl.state, c.job, placed, c.room(nil)) {
		return
	}
	for i := range gone {
		if v := &gone[i]; !v.byCover {
			v.reason = v.otherwise
		}
	}
}

// putBack undoes a lift if nothing has taken the victim's place, no queue then uses more than
// it may, and the affinities of what was placed hold. room is how much more of a model the job's queue may
// use: less than its quotas allow if some victims leave only as the job is covered.
func (pl *planner) putBack(j *job, u *place.Unit, placed []place.Placed, v *victim, room func(model string) Milli) bool {
	// 1. Is its place still there? n pods are back, even if one of them is not.
	mark := pl.state.Mark()
	ok, n := true, 0
	for i := range v.pods {
		p := &v.job.pods[i]
		if !ok || pl.state.DevicesTaken(&p.alloc) != "" || !pl.state.HasBeside(&p.alloc) {
			ok = false
			break
		}
		pl.state.Place(cluster.Owner{Job: v.job.slot, Pod: int32(i)}, p.alloc)
		v.job.charge(pl.state, p, 1)
		n++
	}

	// 2. Quota, of the job's queue and of the victim's.
	for t := range j.Tasks {
		for _, model := range j.class.shapes[t].Models() {
			ok = ok && j.queue.Room(model) >= 0
		}
		ok = ok && j.hasResources(int32(t), j.queue.Room)
	}
	for i := range v.pods {
		p := &v.job.pods[i]
		ok = ok && v.job.queue.Room(pl.state.Pool(p.alloc.Node).Model) >= 0 && v.job.hasResources(p.task, v.job.queue.Room)
	}

	// 3. The cores that are kept for idle GPUs, nominal quota and affinities, in the places that were
	// found.
	for i := range placed {
		a := &placed[i].Alloc
		ok = ok && u.Tasks[placed[i].Task].LeavesReserve(pl.state.Node(a.Node))
		ok = ok && !(a.GPU() > 0 && room(pl.state.Pool(a.Node).Model) < 0) && j.hasResources(j.pods[placed[i].Pod].task, room)
		if ok && v.job.labelled() {
			ok = pl.placer.TermsHold(u, &u.Tasks[placed[i].Task], cluster.Owner{Job: j.slot, Pod: placed[i].Pod}, a.Node, false)
		}
	}
	if ok && v.job.labelled() {
		ok = pl.placer.Anchored(u, placed)
	}
	if ok {
		for i := range v.pods {
			v.job.pods[i].lifted = false
		}
		return true
	}

	// 4. It has to leave.
	pl.state.Rollback(mark)
	for i := range v.pods {
		if n == 0 {
			break
		}
		v.job.charge(pl.state, &v.job.pods[i], -1)
		n--
	}
	return false
}

// affordsEvictions reports whether this many evictions are within the budget of the interval.
// A plan that is larger than the budget has an interval to itself.
func (pl *planner) affordsEvictions(n int, c preemptor) bool {
	p := &pl.policy.Preempt
	if p.Budget == 0 || p.Interval == 0 {
		return true
	}
	interval := int64(c.now / p.Interval)
	if pl.budget.interval != interval {
		pl.budget = budget{interval: interval}
	}
	if pl.budget.spent > 0 && pl.budget.spent+n > p.Budget {
		c.later.more = min(c.later.more, Time(interval+1)*p.Interval)
		return false
	}
	return true
}
