package core

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// This file finds what may be evicted for a job, the cheapest first.

// victim is what is evicted together: a whole gang; a pod without which its gang goes on; or
// a pod of another job.
type victim struct {
	job *job
	pod int // -1 for a gang
	// reason is why it may be evicted; otherwise is why it may even if the preemptor is not covered.
	reason, otherwise Reason
	// spared says how far it comes after others.
	spared spared
	// excess says that another queue is owed what it holds, and would have all that it is owed without it.
	excess bool
	// byCover says that the preemptor may evict it, of another tenant, only as it is itself
	// covered: its queue must then use no more than its nominal quota, or than it is owed.
	byCover bool
	// cost is the work that is lost: milli-GPU times the seconds since the last checkpoint; or
	// what the policy says, see [VictimChoice].
	cost int64
}

// pods yields the running pods of a victim.
func (v *victim) pods(yield func(int) bool) {
	if v.pod >= 0 {
		yield(v.pod)
		return
	}
	for i := range v.job.pods {
		if v.job.pods[i].state == podRunning && !yield(i) {
			return
		}
	}
}

// paysFor reports whether evicting the victim gives back quota that the job counts
// against, or lets the queues above it use less.
func (pl *planner) paysFor(v *victim, c *preemptor) bool {
	j := c.job
	if c.cover == byShare {
		return v.job.queue.Common(c.queue).Name != "" // else only the top of the tree is above both
	}
	if v.job.queue == j.queue {
		return true
	}
	for i := range v.pods {
		p := &v.job.pods[i]
		if pl.sharesGPUs(j, v.job, p) || slices.ContainsFunc(j.queue.Limits(), func(r string) bool {
			return v.job.Tasks[p.task].Takes(r) > 0 && v.job.queue.Owner(r) == j.queue.Owner(r)
		}) {
			return true
		}
	}
	return false
}

// there reports whether the victim still runs.
func (v *victim) there() bool {
	if v.pod >= 0 {
		return v.job.pods[v.pod].state == podRunning
	}
	return v.job.count[podRunning] > 0
}

// spared says why a victim is taken only if others do not make room.
type spared uint8

const (
	sparedByBudget spared = iota + 1 // a disruption budget allows no eviction of it
	sparedInPart                     // it is larger than another tenant's nominal quota, and holds what is left of it
	sparedByShare                    // another queue is owed what it holds, and would have less than that without it
	sparedByQuota                    // it is within another tenant's nominal quota
)

// cheaper orders victims: those that are spared come last, otherwise the lowest precedence
// first, then what loses the least work, then what nothing covers, then what was submitted last.
func (v *victim) cheaper(o *victim) int {
	return cmp.Or(cmp.Compare(v.spared, o.spared), -v.job.key.compare(o.job.key.precedence), cmp.Compare(v.cost, o.cost), cluster.LastIf(v.excess, o.excess),
		-cmp.Compare(v.job.key.seq, o.job.key.seq), cluster.LastIf(v.pod < 0, o.pod < 0), cmp.Compare(v.pod, o.pod))
}

// sharesGPUs reports whether a pod of v counts against a nominal quota of GPUs against which the job
// counts, too.
func (pl *planner) sharesGPUs(j, v *job, p *pod) bool {
	return slices.ContainsFunc(v.queue.Governing(pl.state.Pool(p.alloc.Node).Model), func(m string) bool {
		o := j.queue.Owner(m)
		return o != nil && o == v.queue.Owner(m)
	})
}

// sameTenant reports whether what a pod of v holds is the quota of no other tenant: the job counts
// against the quota, too. Teams with GPUs of their own may share the CPU of the queue above.
func (pl *planner) sameTenant(j, v *job, p *pod) bool {
	if v.queue == j.queue {
		return true
	}
	t, resources := &v.Tasks[p.task], 0
	for _, r := range v.queue.Limits() {
		if t.Takes(r) == 0 {
			continue
		}
		resources++
		if j.queue.Owner(r) != v.queue.Owner(r) {
			return false
		}
	}
	return t.GPU == 0 && resources > 0 || pl.sharesGPUs(j, v, p)
}

// preemptor is a job, or a part of it, for which victims are sought.
type preemptor struct {
	candidate
	turn
	now Time
	// head says that it has waited as the first job for too long, short that its queue lacks quota
	// for it. cover is what would cover it.
	head, short bool
	cover       cover
	// owes says that its queue would use more than its nominal quota, or than it is owed, unless some of its own
	// jobs leave. Until they do, other tenants give up nothing that the preemptor may take only
	// as one that is covered.
	owes bool
	// inDebt says that so few of those may leave that it takes nothing of the kind.
	inDebt bool
	// later records when more may be evicted.
	later *outlook
}

// indebted reports whether victims leave as the job is covered, while its queue, without
// what a trial has lifted, would use more than its nominal quota, or than it is owed.
func (pl *planner) indebted(c preemptor, gone []victim) bool {
	return c.owes && byCover(gone) && c.lacks(c.room(gone))
}

// mayRepay reports whether the preemptor's queue would use no more than its nominal quota, or than it is owed, if all
// that may leave for it gave back what counts there. If not, nothing that others give up for that helps. It costs
// O(units of the cohort).
func (pl *planner) mayRepay(c preemptor) bool {
	s := pl.newSearch(searchOf{})
	s.due = Never
	pl.trial++
	units := pl.entitlement.cohorts[pl.entitlement.cohortAt(c.queue)].units
	for k := range units {
		u := &units[k]
		if c.cover == byShare && u.job.queue != c.queue || !pl.mayYield(&c, pl.jobs.evictable[u.job.slot]) {
			continue
		}
		for i := range u.pods {
			pl.mayAddVictim(s, &c, u.job, i)
		}
	}
	c.later.note(s.due)

	room := c.queue.NominalRoom
	if c.cover == byShare {
		room = func(model string) Milli { return c.queue.ClaimRoom(model, c.queue) }
	}
	pl.lifted = pl.lifted[:0]
	for k := range s.victims {
		pl.lift(&s.victims[k])
	}
	lacks := c.lacks(room)
	pl.state.Rollback(0)
	pl.dropLifted()
	pl.spareSearches = append(pl.spareSearches, s)
	return !lacks
}

// byCover reports whether one of the victims leaves only as the preemptor is covered.
func byCover(gone []victim) bool {
	return slices.ContainsFunc(gone, func(v victim) bool { return v.byCover })
}

// room returns how much more of a model the preemptor's queue may use, if some of these victims leave only as it is
// covered: of its nominal quota, or of what it is owed. A queue above it that is also above the queues of all
// these uses no more than before, whatever it is owed. If no victims are given, all queues above it count.
func (c *preemptor) room(gone []victim) func(model string) Milli {
	if c.cover == byNominal {
		return c.queue.NominalRoom
	}
	top := c.queue
	for i := range gone {
		if top.Name == "" {
			break // the top of the tree is above all
		}
		if gone[i].byCover {
			top = top.Common(gone[i].job.queue)
		}
	}
	if gone == nil {
		top = nil
	}
	return func(model string) Milli { return c.queue.ClaimRoom(model, top) }
}

// search is the victims that were found for a job. It also serves the alike jobs after it,
// as long as nothing but evictions happens: victims that have been evicted since are skipped.
type search struct {
	of      searchOf
	all     bool // it looked everywhere
	some    bool // it was meant to look at some nodes only
	victims []victim
	sorted  bool
	due     Time // when more may be evicted
	spent   bool // some of them have been evicted
	// at is where the victims are, by node. groups are its parts, one a node, the one with the
	// cheapest victim first; nodes are the groups that are still worth a look.
	at            []onNode
	groups, nodes [][]onNode
	// ahead is what it has not found yet; repeated is how often it was made again for an alike job, see planner.again.
	ahead    ahead
	repeated int
}

// sort orders the victims, the cheapest first.
func (s *search) sort() {
	if !s.sorted {
		slices.SortFunc(s.victims, func(a, b victim) int { return a.cheaper(&b) })
		s.sorted = true
	}
}

// searchOf is what jobs have in common for which the same pods may be evicted.
type searchOf struct {
	class *class
	precedence
	cover         cover
	overrun, owes bool
	inDebt        bool
	turn
}

// maxSearches is how many searches are kept.
const maxSearches = 8

// dropSearches forgets what was found: since then, other or more pods may have become
// evictable.
func (pl *planner) dropSearches() {
	pl.spareSearches = append(pl.spareSearches, pl.searches...)
	pl.searches = pl.searches[:0]
}

// newSearch returns a search without victims, in the memory of a dropped one if there is one.
func (pl *planner) newSearch(of searchOf) *search {
	s := &search{}
	if k := len(pl.spareSearches); k > 0 {
		s = pl.spareSearches[k-1]
		pl.spareSearches = pl.spareSearches[:k-1]
	}
	*s = search{of: of, all: true, victims: s.victims[:0], at: s.at[:0], groups: s.groups[:0], ahead: s.ahead}
	s.ahead.leads.items, s.ahead.looked.items, s.ahead.more = s.ahead.leads.items[:0], s.ahead.looked.items[:0], false
	s.ahead.near = nil
	return s
}

// planFrom returns a plan made from the victims of an earlier search for alike jobs,
// else of some nodes, else of all: where much may be evicted, the cost of a plan
// does not grow with the cluster. vain says that by count there is too little to evict.
func (pl *planner) planFrom(c preemptor) (p *plan, vain bool) {
	of := searchOf{c.class, c.key.precedence, c.cover, c.short, c.owes, c.inDebt, c.turn}
	// 1. What was found for the last alike job: the pods of a service come one after the other.
	s := pl.kept(of, &c)
	if s != nil && s.partial() {
		s = pl.find(c, of, true) // what it has not found may have changed
	}
	if s != nil {
		if p := pl.plan(c, s); p != nil {
			return p, false
		}
	} else if !pl.mayClear(c, of) {
		return nil, true
	}

	// 2. Some nodes. Not for the first job, which may evict those alone that overtook it; nor
	// for one that lacks quota, which any node may return; nor for a gang that must be in one
	// domain, as all nodes of one are needed.
	c.candidate = pl.units.prepareTurn(c.job, c.turn)
	some := !c.head && !c.short && c.unit.Required < 0 && !pl.looksAhead(c)
	if some && (s == nil || !s.all) {
		s = pl.find(c, of, false)
		if p := pl.plan(c, s); p != nil {
			return p, false
		}
	}

	// 3. All nodes: no plan is missed, some are more expensive than need be.
	if s == nil || !s.all {
		return pl.plan(c, pl.find(c, of, true)), false
	}
	return nil, false
}

// kept returns an earlier search for alike jobs, nil if there is none. What the first job may
// evict depends on when it came: no search is kept for it.
func (pl *planner) kept(of searchOf, c *preemptor) *search {
	for _, s := range pl.searches {
		if s.of == of && !c.head {
			c.later.note(s.due)
			return s
		}
	}
	return nil
}

// keep keeps a search for the jobs to come.
func (pl *planner) keep(s *search) {
	pl.searches = slices.DeleteFunc(pl.searches, func(o *search) bool { return o.of == s.of })
	if len(pl.searches) == maxSearches {
		pl.dropSearches()
	}
	pl.searches = append(pl.searches, s)
}

// A search of some nodes ends when, without all that may be evicted on them, the job would
// find room several times over, and there would be some places to choose from.
const (
	enoughTimes  = 4
	enoughPlaces = 12
)

// mostRepeated is how often a search of all nodes is made again for the alike jobs of a pass. Then it finds all victims, to serve those
// that are left.
const mostRepeated = 8

// find finds what may be evicted for the job, on all nodes or on some. The search has no
// victims if all of them together would not make room.
func (pl *planner) find(c preemptor, of searchOf, all bool) *search {
	s := pl.newSearch(of)
	if last := pl.kept(of, &c); last != nil {
		s.repeated = last.repeated + 1
	}
	if all && s.repeated < mostRepeated && pl.looksAhead(c) {
		pl.lookAhead(s, c, nil)
		pl.lookAtMore(s, fewVictims)
		pl.keep(s)
		return s
	}
	pl.gather(s, c, all)

	// If not even all of them make room by count, there is no plan among them. For a gang
	// that must be in one domain, planInDomain counts by domain.
	c.later.note(s.due)
	if s.all && c.unit.Required < 0 && !pl.roomWith(c.unit, s) {
		s.victims = s.victims[:0]
	}
	if !c.head {
		pl.keep(s)
	}
	return s
}

// gather adds to a new search what may be evicted, on all nodes or on some.
func (pl *planner) gather(s *search, c preemptor, all bool) {
	s.some = !all
	s.due = Never
	pl.trial++
	if all && pl.listed() {
		pl.gatherListed(s, &c, false)
		return
	}

	// Pods of the lowest precedence first, on all models. In each list, the search begins
	// where the last one ended, so that not the same jobs are always evicted.
	devices, enough := c.largest()
	enough = enoughTimes*enough + enoughPlaces
	if pl.byList(&c) {
		for id := range pl.lessCovered(&c) {
			if enough <= 0 && !all {
				s.all = false
				return
			}
			if id = pl.frees(c.class, id); !pl.visited(id) {
				enough -= pl.addVictims(s, &c, id) / max(devices, 1)
			}
		}
	}
	for _, r := range pl.evictablePods(&c) {
		from := r.next
		for i := range r.pods {
			if enough <= 0 && !all {
				s.all, r.next = false, (from+i)%len(r.pods)
				break
			}
			if id := pl.frees(c.class, r.pods[(from+i)%len(r.pods)].alloc.Node); !pl.visited(id) {
				enough -= pl.addVictims(s, &c, id) / max(devices, 1)
			}
		}
	}
}

// evictablePods returns the pods that may have to make room for the job, by precedence and
// GPU model: the lowest precedence first, on whichever model.
func (pl *planner) evictablePods(c *preemptor) []*ranked {
	out := pl.ranks[:0]
	terms := pl.affinities.constrain(c.job)
	for m := range pl.runs.loads {
		// Other models matter if quota is lacking, or if affinities keep the job off a domain.
		if !c.short && !c.owes && !terms && !slices.Contains(c.class.models, m) {
			continue
		}
		for k := range pl.runs.loads[m].evictable {
			r := &pl.runs.loads[m].evictable[k]
			if pl.mayYield(c, r.precedence) && (!pl.byList(c) || pl.longTerm.repairing || pl.mayYieldByRank(c, r.precedence)) {
				out = append(out, r)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *ranked) int { return b.compare(a.precedence) })
	pl.ranks = out
	return out
}

// visited reports whether the current trial has visited a node, and marks it.
func (pl *planner) visited(id cluster.NodeID) bool {
	for len(pl.visits) <= int(id) {
		pl.visits = append(pl.visits, 0)
	}
	been := pl.visits[id] == pl.trial
	pl.visits[id] = pl.trial
	return been
}

// mayYield reports whether jobs of a precedence may have to make room for the job.
func (pl *planner) mayYield(c *preemptor, s precedence) bool {
	return s.class >= c.Class && s != unevictable && (pl.mayReclaim(c) || pl.longTerm.repairing || pl.mayYieldByRank(c, s))
}

// mayReclaim reports whether the job may evict pods as those are covered less.
func (pl *planner) mayReclaim(c *preemptor) bool {
	return pl.policy.Preempt.Reclaim && c.cover > uncovered && c.queue.Limited() && !c.inDebt
}

// mayYieldByRank is mayYield by priority and for the first job alone.
func (pl *planner) mayYieldByRank(c *preemptor, s precedence) bool {
	rank := c.key.compare(s)
	return rank < 0 || rank == 0 && c.head
}

// byList reports whether what may be reclaimed for the job is listed. Else all pods are searched for it.
func (pl *planner) byList(c *preemptor) bool {
	return pl.shares.count() && pl.mayReclaim(c)
}

// lessCovered yields the nodes of the pods that are covered less than the job, the last ones in the order first.
func (pl *planner) lessCovered(c *preemptor) iter.Seq[cluster.NodeID] {
	terms := pl.affinities.constrain(c.job)
	matters := func(u *holding) bool {
		resources := int32(pl.entitlement.dividedAs(0))
		onModels := slices.ContainsFunc(u.uses, func(d demand) bool { return d.account >= resources })
		return c.short || terms || !onModels || slices.ContainsFunc(u.uses, func(d demand) bool { return slices.Contains(c.class.models, int(d.account-resources)) })
	}
	return func(yield func(cluster.NodeID) bool) {
		for of := uncovered; of < c.cover; of++ {
			for u := range pl.entitlement.last(of) {
				if u.job.Class < c.Class || u.job.queue == c.queue || !matters(u) {
					continue
				}
				for i := range u.pods {
					if p := &u.job.pods[i]; p.state == podRunning && !yield(p.alloc.Node) {
						return
					}
				}
			}
		}
	}
}

// unevictable is the precedence by which jobs are listed that may not be evicted.
var unevictable = precedence{class: 255}

// frees returns the node on which jobs of a class have more room when a pod leaves a node: the node
// itself, or the home of what is lent, if they may not be there and its pods draw devices, CPU or memory from
// the home.
func (pl *planner) frees(c *class, id cluster.NodeID) cluster.NodeID {
	if home := pl.state.Home(id); home != id && c.pools&poolBit(pl.state.Node(id)) == 0 && pl.state.Draws(id) {
		return home
	}
	return id
}

// addVictims adds what may be evicted on a node, and returns how many devices
// would then be free there.
func (pl *planner) addVictims(s *search, c *preemptor, id cluster.NodeID) int {
	devices := pl.addVictimsOf(s, c, id)
	if pl.standbys.ever {
		if lent, lends := pl.state.LentAt(id); lends && pl.frees(c.class, lent) == id {
			devices |= pl.addVictimsOf(s, c, lent) & pl.state.Drawn(lent)
		}
	}
	return bits.OnesCount64(devices)
}

// addVictimsOf is addVictims without what is lent there. It returns the devices.
func (pl *planner) addVictimsOf(s *search, c *preemptor, id cluster.NodeID) uint64 {
	n := pl.state.Node(id)
	devices := n.Whole
	for h := range n.Pods {
		o := h.Owner
		if !pl.mayYield(c, pl.jobs.evictable[o.Job]) {
			continue // decided without a look at the job, as for most pods
		}
		if v := pl.jobs.slots[o.Job]; pl.mayAddVictim(s, c, v, int(o.Pod)) {
			devices |= v.pods[o.Pod].alloc.GPUs
		}
	}
	return devices
}

// mayAddVictim adds a pod of a job that may have to make room, or its gang, if it may be evicted now and that helps.
func (pl *planner) mayAddVictim(s *search, c *preemptor, v *job, pod int) bool {
	p := &v.pods[pod]
	// A pod that is being moved is also found at its new place.
	return v != c.job && p.state == podRunning && p.move() == nil && p.standby() == nil && pl.addVictim(s, c, v, pod)
}

// addVictim adds a pod or its gang, if it may be evicted and that helps. Pods without which a
// gang goes on are added one by one, beside the gang.
func (pl *planner) addVictim(s *search, c *preemptor, v *job, pod int) bool {
	p := &v.pods[pod]
	if v.Gang && v.trial == pl.trial && !v.goes && !p.extra {
		return false
	}
	if _, ok := pl.mayTake(c.job, v, pod, c.against(v, pod), pl.coverNow(p), c.head); !ok && !v.Gang {
		return false
	}
	if !pl.useful(c.job, v, p, c.short) && !pl.repays(c, v, pod) || v.Gang && v.nomination != nil {
		// Others leave for further pods of the gang. If it left now, their places would be lost,
		// and those others would have left for nothing.
		return false
	}
	if v.Gang {
		if v.trial != pl.trial {
			v.trial, v.goes = pl.trial, pl.addGang(s, c, v)
		}
		if !p.extra {
			return v.goes
		}
	}
	x, ok := pl.victim(c, v, pod, p)
	if !ok || c.inDebt && x.byCover || !pl.settled(s, v, p.started, c.now) {
		return v.Gang && v.goes
	}
	x.cost = pl.costOf(v, c.now, pod)
	return s.add(x) || v.Gang && v.goes
}

// against returns what covers the preemptor as far as it matters to a pod of v, or to its gang (-1): for what its
// queue is owed, no pod leaves that has nothing of what is divided.
func (c *preemptor) against(v *job, pod int) cover {
	if c.cover != byShare || pod >= 0 && v.hasShared(&v.pods[pod]) {
		return c.cover
	}
	for i := range v.pods {
		if p := &v.pods[i]; pod < 0 && !p.extra && p.state == podRunning && v.hasShared(p) {
			return byShare
		}
	}
	return uncovered
}

// hasShared reports whether a pod takes GPUs, where queues have quotas of them, or a resource in which a quota
// limits its queue.
func (j *job) hasShared(p *pod) bool {
	t := &j.Tasks[p.task]
	return t.GPU > 0 && j.queue.LimitsGPUs() || slices.ContainsFunc(j.queue.Limits(), func(r string) bool { return t.Takes(r) > 0 })
}

// coverNow returns what covers a placed pod. If no queue has a quota, nothing borrows.
func (pl *planner) coverNow(p *pod) cover {
	if !pl.ledger.Limited() {
		return byNominal
	}
	return p.cover()
}

// victim describes a pod as a victim, or with number -1 its gang, and reports whether it may
// be evicted by rank and quota. Its cost is not filled in.
func (pl *planner) victim(c *preemptor, v *job, pod int, p *pod) (victim, bool) {
	limited := pl.ledger.Limited()
	of := pl.coverNow(p)
	reason, ok := pl.mayTake(c.job, v, pod, c.against(v, pod), of, c.head)
	x := victim{job: v, pod: pod, reason: reason, otherwise: reason}
	if !ok || !limited {
		return x, ok
	}

	// What another tenant gives up: could the job evict it even if it were not covered? If
	// not, the plan has to keep the job's queue within its nominal quota, or within what it is owed.
	shared := pl.sameTenant(c.job, v, p)
	owedToOther := of == byShare && v.queue != c.queue
	if !shared || owedToOther || reason == QuotaReclaim || reason == FairShareReclaim {
		other, anyway := pl.mayTake(c.job, v, pod, uncovered, of, c.head)
		switch x.byCover = !anyway; {
		case of == byNominal && !shared:
			x.spared = sparedByQuota
		case owedToOther && pl.entitlement.isExcess(v, pod):
			x.excess = true
		case owedToOther:
			x.spared = sparedByShare
		case !shared && pl.entitlement.holdsPart(v, pod):
			x.spared = sparedInPart
		case v.disruptionProtected:
			x.spared = sparedByBudget
		}
		if anyway {
			x.otherwise = other
		}
	}
	return x, true
}

// addGang adds a gang as a whole, if it may be evicted, and reports that.
func (pl *planner) addGang(s *search, c *preemptor, v *job) bool {
	if !pl.ledger.Limited() {
		v.markExtra() // else this is up to date
	}
	// Its minimum is within quota, or beyond it, as one: the first pod says which.
	first := slices.IndexFunc(v.pods, func(p pod) bool { return p.state == podRunning && !p.extra })
	if first < 0 || v.moving > 0 || v.standing > 0 {
		return false
	}
	x, ok := pl.victim(c, v, -1, &v.pods[first])
	if !ok || c.inDebt && x.byCover || !pl.settled(s, v, v.started, c.now) {
		return false
	}
	x.cost = pl.costOf(v, c.now, -1)
	for i := range v.pods {
		if p := &v.pods[i]; p.extra && p.state == podRunning {
			x.cost = max(x.cost, pl.costOf(v, c.now, i)) // so each of these goes before the whole gang
		}
	}
	return s.add(x)
}

// add adds a victim, and reports whether it did. A search of some nodes leaves out those that
// are spared: elsewhere there may be others.
func (s *search) add(v victim) bool {
	if v.spared > 0 && s.some {
		s.all = false
		return false
	}
	s.victims = append(s.victims, v)
	return true
}

// whole drops the pods from victims whose whole gang is among them.
func whole(gone []victim) []victim {
	gangs := map[*job]bool{}
	for i := range gone {
		if gone[i].pod < 0 {
			gangs[gone[i].job] = true
		}
	}
	if len(gangs) == 0 {
		return gone
	}
	return slices.DeleteFunc(gone, func(v victim) bool { return v.pod >= 0 && gangs[v.job] })
}

// minRuntime returns how long pods of a job run before they can be evicted for others.
func (pl *planner) minRuntime(j *job) Time {
	own := j.MinRuntime
	if longest := pl.policy.Preempt.MaxMinRuntime; j.exposed && longest > 0 {
		own = min(own, longest) // it borrows, and no borrower is protected for longer
	}
	return max(pl.policy.Preempt.MinRuntime, own)
}

// settled reports whether a pod or gang of a job, which started at a time, has run for its
// minimum time; if not, the search notes when it will have.
func (pl *planner) settled(s *search, j *job, started, now Time) bool {
	due := cluster.Plus(started, pl.minRuntime(j))
	if now < due {
		s.due = min(s.due, due)
	}
	return now >= due
}

// useful reports whether evicting a pod of v could help j: it frees GPUs that j can use, keeps
// j off by an affinity, or holds quota that j lacks.
func (pl *planner) useful(j, v *job, p *pod, overrun bool) bool {
	// More cores would be kept for the GPUs than the pod returns, or almost as many.
	returnsReserve := pl.policy.CPUOnly.Reserve > 0 && p.alloc.GPUs != 0 && j.GPUs() == 0
	if !returnsReserve && j.class.pools&poolBit(pl.state.Node(pl.frees(j.class, p.alloc.Node))) != 0 || j.meets(&v.Tasks[p.task]) {
		return true
	}
	if !overrun {
		return false
	}
	// It is on nodes that j may not use. Does it hold quota of an account of j, such as "*" or CPU?
	if slices.ContainsFunc(j.queue.Limits(), func(r string) bool { return v.Tasks[p.task].Takes(r) > 0 && v.queue.Owner(r) != nil && j.takes(r) }) {
		return true
	}
	accounts := v.queue.Governing(pl.state.Pool(p.alloc.Node).Model)
	return slices.ContainsFunc(j.class.shapes, func(sh *place.Shape) bool {
		return slices.ContainsFunc(sh.Models(), func(m string) bool {
			return slices.ContainsFunc(j.queue.Governing(m), func(a string) bool { return slices.Contains(accounts, a) })
		})
	})
}

// repays reports whether evicting a pod of v could help the preemptor, wherever the pod runs: its queue would have more than it
// owns, or is owed, and gives back what the pod holds before others leave for it. Without that, an urgent job waited for ever
// if the weaker jobs of its queue ran on nodes that it may not use.
func (pl *planner) repays(c *preemptor, v *job, pod int) bool {
	return c.owes && !c.inDebt && pl.useful(c.job, v, &v.pods[pod], true) && pl.paysFor(&victim{job: v, pod: pod}, c)
}

// costOf returns what it costs to evict a job's running pods, or one of them (-1 for all), as the
// policy says.
func (pl *planner) costOf(v *job, now Time, pod int) int64 {
	switch pl.policy.Preempt.Victims {
	case LeastWorkPerGPU:
		lost, gpu := pl.lostBy(v, now, pod)
		return lost / int64(max(gpu/WholeGPU, 1))
	case RandomVictims:
		return int64(place.MixBits(uint64(now)^place.MixBits(v.key.seq<<20^uint64(pod+1))) >> 24)
	}
	lost, _ := pl.lostBy(v, now, pod)
	return lost
}

// lostBy is [job.lost], or what it costs to suspend the job if that is less.
func (pl *planner) lostBy(v *job, now Time, pod int) (work int64, gpu Milli) {
	work, gpu = v.lost(now, pod)
	if pl.policy.Preempt.MaxSuspended > 0 && v.suspendable(pod) {
		work = min(work, gpuTime(gpu, v.Suspend.idle()))
	}
	return work, gpu
}

// lost returns the work that is lost if the job's running pods are evicted, or one of them
// (-1 for all): milli-GPU seconds since the last checkpoint, and how much GPU they hold.
func (j *job) lost(now Time, pod int) (work int64, gpu Milli) {
	if pod >= 0 {
		gpu = j.gpu(&j.pods[pod])
	} else {
		for i := range j.pods {
			if p := &j.pods[i]; p.state == podRunning {
				gpu += j.gpu(p)
			}
		}
	}
	return cluster.Times(int(gpu), int64(j.unsaved(now, pod)/1e6)) / 1e3, gpu
}

// unsaved returns how long ago the last checkpoint of the job's running pods was, or of one of them (-1 for all). Checkpoints come
// at their interval, and when the job reports one. A job that saves its progress when it is asked to does no work meanwhile, and loses none else.
func (j *job) unsaved(now Time, pod int) Time {
	since := j.started
	if pod >= 0 {
		since = j.pods[pod].started
	}
	age := now - max(since, j.saved)
	if j.Checkpoint > 0 {
		age %= j.Checkpoint
	}
	if j.SaveWithin > 0 {
		age = min(age, j.SaveWithin)
	}
	return max(age, 0)
}

// mostUnsaved is the most work that an eviction of the job can lose; 0 if it can be all.
func (j *Job) mostUnsaved() Time {
	if j.Checkpoint > 0 && j.SaveWithin > 0 {
		return min(j.Checkpoint, j.SaveWithin)
	}
	return max(j.Checkpoint, j.SaveWithin)
}
