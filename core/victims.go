package core

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// What may be evicted for a job, the cheapest first.

// victim is what is evicted together: a whole gang, or one pod: of another job, or
// one that its gang would stand without.
type victim struct {
	job *job
	pod int // -1 for a gang
	// reason is why it may be evicted, otherwise why it may if the queue of the preemptor
	// uses more than its nominal quota.
	reason, otherwise Reason
	// spared says how far it comes after others.
	spared spared
	// byQuota says that the preemptor may take it from another tenant for being within
	// its own quota only.
	byQuota bool
	// cost is the work that is lost: milli-GPU times time since the last
	// checkpoint, in milli-GPU seconds.
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
// against.
func (pl *planner) paysFor(v *victim, j *job) bool {
	for i := range v.pods {
		if pl.shareQuota(j, v.job, &v.job.pods[i]) {
			return true
		}
	}
	return false
}

// there reports whether the victim runs still.
func (v *victim) there() bool {
	if v.pod >= 0 {
		return v.job.pods[v.pod].state == podRunning
	}
	return v.job.count[podRunning] > 0
}

// spared says why a victim is taken only when others do not make room.
type spared uint8

const (
	sparedByBudget spared = iota + 1 // a disruption budget allows no eviction of it
	sparedInPart                     // it is larger than another tenant's nominal quota, and holds what is left of it
	sparedByQuota                    // it is within another tenant's nominal quota
)

// cheaper orders victims: those that are spared last, else the weakest claim first,
// then what loses the least work, then what was submitted last.
func (v *victim) cheaper(o *victim) int {
	return cmp.Or(cmp.Compare(v.spared, o.spared), -v.job.key.compare(o.job.key.precedence), cmp.Compare(v.cost, o.cost),
		-cmp.Compare(v.job.key.seq, o.job.key.seq), lastIf(v.pod < 0, o.pod < 0), cmp.Compare(v.pod, o.pod))
}

// lastIf orders what a property holds of after what it does not hold of.
func lastIf(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// shareQuota reports whether a pod of v counts against nominal quota that the job
// counts against too.
func (pl *planner) shareQuota(j, v *job, p *pod) bool {
	return v.queue == j.queue || slices.ContainsFunc(v.queue.Governing(pl.state.Pool(p.alloc.Node).Model), func(m string) bool {
		o := j.queue.Owner(m)
		return o != nil && o == v.queue.Owner(m)
	})
}

// preemptor is a job for which victims are sought, or a part of it, and what is known of
// it.
type preemptor struct {
	candidate
	turn
	now Time
	// head says that it has waited as the first for too long, within that nominal quota
	// would cover it, short that its queue lacks quota for it.
	head, within, short bool
	// owes says that its queue would use more than its nominal quota, unless it gives
	// up some: until it does, other tenants give up nothing that only its quota
	// entitles it to.
	owes bool
	// later takes in when more may be evicted.
	later *outlook
}

// indebted reports whether victims leave by right of the job's quota, while its
// queue, less what a trial has lifted, would use more than that.
func (pl *planner) indebted(c preemptor, gone []victim) bool {
	return c.owes && byQuota(gone) && c.lacks(c.queue.NominalRoom)
}

// byQuota reports whether one of the victims leaves by right of the preemptor's
// quota.
func byQuota(gone []victim) bool {
	return slices.ContainsFunc(gone, func(v victim) bool { return v.byQuota })
}

// search is the victims that were found for a job. It serves the alike jobs after
// it too, as long as nothing but evictions happens: victims that have been
// evicted are passed over.
type search struct {
	of      searchOf
	all     bool // it looked everywhere
	some    bool // it was to look at some nodes only
	victims []victim
	sorted  bool
	due     Time // when more may be evicted
	spent   bool // some of them have been evicted
	// at is where the victims are, by node; groups are the parts of it, the one
	// with the cheapest victim first, and nodes those that are worth a look still.
	at            []onNode
	groups, nodes [][]onNode
}

// sort orders the victims, the cheapest first.
func (s *search) sort() {
	if !s.sorted {
		slices.SortFunc(s.victims, func(a, b victim) int { return a.cheaper(&b) })
		s.sorted = true
	}
}

// searchOf is what jobs have in common for which the same may be evicted.
type searchOf struct {
	class *class
	precedence
	within, overrun, owes bool
	turn
}

// maxSearches is how many searches are kept.
const maxSearches = 8

// dropSearches forgets what was found: more may be evicted than then, or under
// other rules.
func (pl *planner) dropSearches() {
	pl.spareSearches = append(pl.spareSearches, pl.searches...)
	pl.searches = pl.searches[:0]
}

// newSearch returns a search without victims, in the memory of a dropped one if
// there is one.
func (pl *planner) newSearch(of searchOf) *search {
	s := &search{}
	if k := len(pl.spareSearches); k > 0 {
		s = pl.spareSearches[k-1]
		pl.spareSearches = pl.spareSearches[:k-1]
	}
	*s = search{of: of, all: true, victims: s.victims[:0], at: s.at[:0], groups: s.groups[:0]}
	return s
}

// planFrom returns a plan made from the victims of an earlier search for alike jobs,
// else of some nodes, else of all: where much may be evicted, the cost of a plan
// does not grow with the cluster.
func (pl *planner) planFrom(c preemptor) *plan {
	of := searchOf{c.class, c.key.precedence, c.within, c.short, c.owes, c.turn}
	s := pl.kept(of, &c)
	if s != nil {
		if p := pl.plan(c, s); p != nil {
			return p
		}
	}
	c.candidate = pl.units.prepareTurn(c.job, c.turn)
	// The first job and one that lacks quota take the cheapest of all, a gang for
	// one domain looks there.
	some := !c.head && !c.short && c.unit.Required < 0
	if some && (s == nil || !s.all) {
		s = pl.find(c, of, false)
		if p := pl.plan(c, s); p != nil {
			return p
		}
	}
	if s == nil || !s.all {
		return pl.plan(c, pl.find(c, of, true))
	}
	return nil
}

// kept returns an earlier search for alike jobs, nil when there is none. What the
// first job may evict depends on when it came: it has none.
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

// Nodes are looked at until, all that may be evicted on them gone, the job would
// find room several times over, and there would be some places to choose from.
const (
	enoughTimes  = 4
	enoughPlaces = 12
)

// find finds what may be evicted for the job, on all nodes or on some. The
// search has no victims if all that were found would not make room.
func (pl *planner) find(c preemptor, of searchOf, all bool) *search {
	s := pl.newSearch(of)
	s.some = !all
	s.due = Never
	pl.trial++

	// 1. Pods of the weakest precedence first, all models together; of each, from where the
	// last search ended. A search of some nodes ends when it has seen enough.
	devices, enough := c.largest()
	enough = enoughTimes*enough + enoughPlaces
	for _, r := range pl.evictablePods(c) {
		from := r.next
		for i := range r.pods {
			if enough <= 0 && !all {
				s.all, r.next = false, (from+i)%len(r.pods)
				break
			}
			if id := r.pods[(from+i)%len(r.pods)].alloc.Node; !pl.visited(id) {
				enough -= pl.addVictims(s, c, id) / max(devices, 1)
			}
		}
	}

	// 2. If not even all of them make room by count, there is no plan among them. For a
	// domain the count says too little.
	c.later.note(s.due)
	if s.all && c.unit.Required < 0 && !pl.roomWith(c.unit, s) {
		s.victims = s.victims[:0]
	}
	if !c.head {
		pl.keep(s)
	}
	return s
}

// evictablePods returns the pods that may have to make room for the job, by precedence
// and GPU model: the weakest first, on whichever model.
func (pl *planner) evictablePods(c preemptor) []*ranked {
	out := pl.ranks[:0]
	terms := pl.affinities.constrain(c.job)
	for m := range pl.runs.loads {
		if !c.short && !terms && !slices.Contains(c.class.models, m) {
			continue
		}
		for k := range pl.runs.loads[m].evictable {
			if r := &pl.runs.loads[m].evictable[k]; pl.mayYield(c, r.precedence) {
				out = append(out, r)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *ranked) int { return b.compare(a.precedence) })
	pl.ranks = out
	return out
}

// visited reports whether the current trial has been at a node, and notes that
// it has.
func (pl *planner) visited(id cluster.NodeID) bool {
	for len(pl.visits) <= int(id) {
		pl.visits = append(pl.visits, 0)
	}
	been := pl.visits[id] == pl.trial
	pl.visits[id] = pl.trial
	return been
}

// mayYield reports whether jobs of a precedence may have to make room for the job.
func (pl *planner) mayYield(c preemptor, s precedence) bool {
	p := &pl.policy.Preempt
	reclaim := p.Reclaim && c.within && c.queue.Limited()
	rank := c.key.compare(s)
	return s.class >= c.Class && s != unevictable && (reclaim || rank < 0 || rank == 0 && c.head)
}

// unevictable stands for that of jobs that may not be evicted.
var unevictable = precedence{class: 255}

// addVictims adds what may be evicted on a node, and returns how many devices
// would then be free there.
func (pl *planner) addVictims(s *search, c preemptor, id cluster.NodeID) int {
	n := pl.state.Node(id)
	devices := n.Whole
	for h := range n.Pods {
		o := h.Owner
		if !pl.mayYield(c, pl.jobs.evictable[o.Job]) {
			continue // without a look at the job: most are such
		}
		v := pl.jobs.slots[o.Job]
		p := &v.pods[o.Pod]
		if v == c.job || p.state != podRunning || p.move != nil {
			continue // a pod that is being moved is also found at its new place
		}
		if pl.addVictim(s, c, v, int(o.Pod)) {
			devices |= p.alloc.GPUs
		}
	}
	return bits.OnesCount64(devices)
}

// addVictim adds a pod, if it may be evicted and that is of use, or its gang. Pods
// that a gang would stand without are added one by one, beside the gang.
func (pl *planner) addVictim(s *search, c preemptor, v *job, pod int) bool {
	p := &v.pods[pod]
	if !pl.useful(c.job, v, p, c.short) || v.Gang && v.nomination != nil {
		return false // a gang for which others leave stays until its rest has started
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
	if !ok || !pl.settled(s, v, p.started, c.now) {
		return v.Gang && v.goes
	}
	x.cost = v.lost(c.now, pod)
	return s.add(x) || v.Gang && v.goes
}

// victim describes a pod as a victim, or as number -1 its gang, and reports whether
// it may be evicted as far as claims go. Its cost is left open.
func (pl *planner) victim(c preemptor, v *job, pod int, p *pod) (victim, bool) {
	within := !pl.ledger.Limited() || p.within
	reason, ok := pl.mayTake(c.job, v, c.within, within, c.head)
	x := victim{job: v, pod: pod, reason: reason, otherwise: reason}
	if shared := ok && pl.ledger.Limited() && pl.shareQuota(c.job, v, p); ok && pl.ledger.Limited() && (!shared || reason == QuotaReclaim) {
		other, anyway := pl.mayTake(c.job, v, false, within, c.head)
		switch x.byQuota = !anyway; {
		case within && !shared:
			x.spared = sparedByQuota
		case !shared && pl.entitlement.holdsPart(v, pod):
			x.spared = sparedInPart
		case v.disruptionProtected:
			x.spared = sparedByBudget
		}
		if anyway {
			x.otherwise = other
		}
	}
	return x, ok
}

// addGang adds a gang as a whole, if it may be evicted, and reports that.
func (pl *planner) addGang(s *search, c preemptor, v *job) bool {
	if !pl.ledger.Limited() {
		v.markExtra() // else this is up to date
	}
	least := slices.IndexFunc(v.pods, func(p pod) bool { return p.state == podRunning && !p.extra })
	if least < 0 || v.moving > 0 {
		return false
	}
	x, ok := pl.victim(c, v, -1, &v.pods[least])
	if !ok || !pl.settled(s, v, v.started, c.now) {
		return false
	}
	x.cost = v.lost(c.now, -1)
	for i := range v.pods {
		if p := &v.pods[i]; p.extra && p.state == podRunning {
			x.cost = max(x.cost, v.lost(c.now, i)) // one of these goes first
		}
	}
	return s.add(x)
}

// add adds a victim, and reports that. A search of some nodes leaves out those that
// are spared: elsewhere there may be others.
func (s *search) add(v victim) bool {
	if v.spared > 0 && s.some {
		s.all = false
		return false
	}
	s.victims = append(s.victims, v)
	return true
}

// whole drops the pods from victims that leave with their gang.
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

// settled reports whether what started then of a job has run for long enough; if
// not, the search notes when it will have.
func (pl *planner) settled(s *search, j *job, started, now Time) bool {
	least := j.MinRuntime
	if longest := pl.policy.Preempt.MaxMinRuntime; j.exposed && longest > 0 {
		least = min(least, longest)
	}
	due := cluster.Plus(started, max(pl.policy.Preempt.MinRuntime, least))
	if now < due {
		s.due = min(s.due, due)
	}
	return now >= due
}

// useful reports whether evicting a pod of v could help j: it frees GPUs that j
// can use, is in the way of an affinity of j, or frees quota that j lacks.
func (pl *planner) useful(j, v *job, p *pod, overrun bool) bool {
	if j.class.pools&poolBit(pl.state.Node(p.alloc.Node)) != 0 || j.meets(&v.Tasks[p.task]) {
		return true
	}
	if !overrun {
		return false
	}
	// On nodes that j may not use, it holds quota of the same accounts.
	accounts := v.queue.Governing(pl.state.Pool(p.alloc.Node).Model)
	return slices.ContainsFunc(j.class.shapes, func(sh *place.Shape) bool {
		return slices.ContainsFunc(sh.Models(), func(m string) bool {
			return slices.ContainsFunc(j.queue.Governing(m), func(a string) bool { return slices.Contains(accounts, a) })
		})
	})
}

// lost returns the work that an eviction of the job's running pods, or of one
// of them, loses.
func (j *job) lost(now Time, pod int) int64 {
	gpu, since := Milli(0), j.started
	if pod >= 0 {
		gpu, since = j.gpu(&j.pods[pod]), j.pods[pod].started
	} else {
		for i := range j.pods {
			if p := &j.pods[i]; p.state == podRunning {
				gpu += j.gpu(p)
			}
		}
	}
	age := now - max(since, j.saved)
	if j.Checkpoint > 0 {
		age %= j.Checkpoint
	}
	return cluster.Times(int(gpu), int64(max(age, 0)/1e6)) / 1e3
}
