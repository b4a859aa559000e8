package core

import (
	"iter"
	"math"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// This file looks at the pods that may be evicted the cheapest first. Of 18,000 that are listed (reclaimable.go), a plan for one pod
// takes one or two. What is listed says of each how cheap it is at best, so that most need no other look.

// lead is a listed pod that a search has not looked at. The price is the least that it, or its gang, may cost as the only victim. Among
// victims of one price, those of queues that have more than they are owed (excess) come last, and else what was submitted last first.
type lead struct {
	price
	excess bool
	pod    *coveredPod
}

// before reports whether the victim of a lead may come before that of another one.
func (l *lead) before(o *lead) bool {
	switch {
	case l.price != o.price:
		return l.less(o.price)
	case l.excess != o.excess:
		return o.excess
	case l.pod.seq != o.pod.seq:
		return l.pod.seq > o.pod.seq
	}
	return l.pod.Pod < o.pod.Pod
}

// precedes reports whether a victim comes before that of every lead from one on.
func (v *victim) precedes(l *lead) bool {
	switch p := nothing().plus(v); {
	case p != l.price:
		return p.less(l.price)
	case v.excess != l.excess:
		return l.excess
	}
	return v.job.key.seq > l.pod.seq
}

// ahead is what a search has not looked at, and what it has looked at that may cost more than some of that.
//
// Invariant: victims of the search are the cheapest ones of all on the nodes on which it looks, in order, and cost less than what is ahead. Until the search is
// complete, nothing but it uses planner.trial, and no unit of the entitlement changes.
type ahead struct {
	by    preemptor
	leads heap[lead]
	// All leads are of one level, the first ones there: left says that there are others, which come after last. Those and the ones of later levels are not
	// listed yet: most plans need none. more says that there may be some: the heap has
	// no lead only if there are none. paid says that those that pay have been looked at already: see payers.
	level level
	last  lead
	left  bool
	more  bool
	most  int // leads that are listed next time
	// While leads are listed: what costs more than limit is not among the first ones of the level that is listed. passed says that there was any.
	listed level
	limit  int64
	passed bool
	paid   bool
	looked heap[victim]
	// near are the nodes on which it looks, a bit each; nil for all.
	near []uint64
}

// fewLeads is how many leads are listed at first, leadGrowth how many times as many each time.
const (
	fewLeads   = 64
	leadGrowth = 8
)

// level is what comes first among the prices of leads: how far victims are spared, and their precedence.
type level struct {
	spared     spared
	precedence precedence
}

func (l level) before(o level) bool {
	return l.spared < o.spared || l.spared == o.spared && l.precedence.compare(o.precedence) > 0
}

// lowest is before the level of every lead.
func lowest() level { return level{precedence: precedence{class: LP + 1}} }

// more reports whether a search may find more victims, where it looks.
func (s *search) more() bool { return len(s.ahead.leads.items)+len(s.ahead.looked.items) > 0 }

// partial reports whether a search has not found all its victims yet.
func (s *search) partial() bool { return s.ahead.near != nil || s.more() }

// refill lists the next leads if all that were listed have been looked at.
func (pl *planner) refill(s *search) {
	a := &s.ahead
	if len(a.leads.items) > 0 || !a.more {
		return
	}
	if a.left {
		if pl.list(s); len(a.leads.items) > 0 {
			return
		}
		a.left = false // none of them is to be looked at
	}
	pl.list(s)
	a.more = len(a.leads.items) > 0
}

// list lists the first leads of those that are left of a level, or of the next level.
func (pl *planner) list(s *search) {
	a := &s.ahead
	some := a.left
	a.listed, a.limit, a.passed = a.level, math.MaxInt64, false
	first := heap[lead]{items: a.leads.items[:0], moved: a.leads.moved, less: func(a, b lead) bool { return b.before(&a) }} // the last one on top
	for l := range pl.later(s, func(least level) bool { return some && a.listed.before(least) }) {
		switch at := (level{l.spared, l.precedence}); {
		case !some || at.before(a.listed):
			some, a.listed, a.limit, a.passed = true, at, math.MaxInt64, false
			first.items = first.items[:0]
		case at != a.listed:
			continue
		}
		if len(first.items) < a.most {
			first.push(l)
		} else if a.passed = true; l.before(&first.items[0]) {
			first.items[0] = l
			first.down(0)
		}
		if len(first.items) == a.most {
			a.limit = first.items[0].cost
		}
	}
	a.level, a.left, a.most, a.limit = a.listed, a.passed, a.most*leadGrowth, math.MaxInt64
	if a.left {
		a.last = first.items[0]
	}
	a.leads.items = first.items
	a.leads.order()
}

// later yields the leads that are not listed yet, but for those of lists of which none is needed: of which no pod is
// of a lower level than one.
func (pl *planner) later(s *search, needless func(least level) bool) iter.Seq2[lead, *coveredPod] {
	a := &s.ahead
	cohort := pl.entitlement.cohortAt(a.by.queue)
	return func(yield func(lead, *coveredPod) bool) {
		for list, leaving := range pl.leavers(&a.by) {
			least := pl.leastLevel(list, cohort, &a.by)
			if needless(least) {
				continue
			}
			someYoung := pl.isYoung(list.latest, a.by.now)
			for i := range list.pods {
				t := &list.terms[i]
				cost := 1 + t.lossAt(a.by.now)
				if cost > a.limit && least == a.listed {
					a.passed = true // without a look at it: its level is not lower
					continue
				}
				if someYoung && pl.isYoung(t.since, a.by.now) {
					continue
				}
				p := &list.pods[i]
				if p.follows || leaving.omits(p) || a.paid && pl.pays(p, &a.by) || a.near != nil && !a.isNear(list.pods[i:]) {
					continue
				}
				l := pl.leadTo(p, list.of, cohort, &a.by)
				at := level{l.spared, l.precedence}
				if isLater := a.level.before(at); !isLater && (!a.left || at != a.level) {
					continue
				}
				l.cost = cost
				if (a.level != at || a.last.before(&l)) && !yield(l, p) {
					return
				}
			}
		}
	}
}

// looksAtAll is how many running pods there are at most where a search looks at all that may be evicted: that serves alike jobs, too.
const looksAtAll = 8192

// looksAhead reports whether a search on all nodes may look at the cheapest victims first, for one pod.
func (pl *planner) looksAhead(c preemptor) bool {
	u := c.unit
	single := u.Required < 0 && (!u.Whole || len(u.Tasks) == 1 && len(u.Tasks[0].Pods) == 1)
	return single && pl.cheapestFirst(c)
}

// cheapestFirst reports whether the cheapest victims can be found first: where many pods run, for a job that no affinity concerns, of
// pods that are listed, by the work that is lost.
func (pl *planner) cheapestFirst(c preemptor) bool {
	pods := 0
	for m := range pl.runs.loads {
		pods += pl.runs.loads[m].pods
	}
	return pods > pl.looksAtAll && !c.head && pl.listed() && pl.policy.Preempt.Victims == LeastWork && !pl.affinities.constrain(c.job)
}

// manyLooked is how many victims a search has found at least when it begins to leave out nodes: to find those takes a look at all pods.
const manyLooked = 64

// narrow begins a search again on those nodes alone on which the pod would find GPUs if all left that may: of 3,000 pods on one GPU each, nearly all are
// alone on their nodes, and cost less than one on four.
func (pl *planner) narrow(s *search, u *place.Unit) {
	a, size := &s.ahead, u.Tasks[0].GPUs
	if a.near != nil || !s.more() || len(s.victims) < pl.manyLooked || size < 2 || pl.standbys.ever {
		return
	}

	// 1. Where those are that may leave, and what they hold there.
	freed := cleared(pl.freed, pl.state.Nodes())
	pl.freed = freed
	near := make([]uint64, (len(freed)+63)/64)
	for list, leaving := range pl.leavers(&a.by) {
		someYoung := pl.isYoung(list.latest, a.by.now)
		for i, f := range list.frees {
			if leaving.omits(&list.pods[i]) || someYoung && pl.isYoung(list.terms[i].since, a.by.now) {
				continue
			}
			freed[f.node] += f.devices
			near[f.node/64] |= 1 << (f.node % 64)
		}
	}

	// 2. Which of these nodes would do.
	for k, nodes := range near {
		for ; nodes != 0; nodes &= nodes - 1 {
			bit := bits.TrailingZeros64(nodes)
			id := 64*k + bit
			n := pl.state.Node(cluster.NodeID(id))
			if !n.Open() || n.Free()+int(freed[id]) < size || a.by.class.pools&poolBit(n) == 0 {
				near[k] &^= 1 << bit
			}
		}
	}
	pl.lookAhead(s, a.by, near)
}

// widen begins a search again on all nodes if it leaves out some.
func (pl *planner) widen(s *search) {
	if s.ahead.near != nil {
		pl.lookAhead(s, s.ahead.by, nil)
		pl.lookAtMore(s, fewVictims)
	}
}

// isNear reports whether the first one of listed pods, or one that follows it, is on one of the nodes on which a search looks.
func (a *ahead) isNear(pods []coveredPod) bool {
	for i := range pods {
		if i > 0 && !pods[i].follows {
			break
		}
		if node := pods[i].node; a.near[node/64]>>(node%64)&1 == 1 {
			return true
		}
	}
	return false
}

// lookAhead begins a search for the cheapest victims of some nodes, a bit each, or of all.
func (pl *planner) lookAhead(s *search, c preemptor, near []uint64) {
	s.due, s.sorted = Never, true
	s.victims, s.nodes, s.at, s.groups = s.victims[:0], nil, s.at[:0], s.groups[:0]
	pl.trial++
	a := &s.ahead
	a.by, a.level, a.left, a.more, a.most, a.limit, a.paid, a.near = c, lowest(), false, true, pl.fewLeads, math.MaxInt64, false, near
	a.leads = heap[lead]{items: a.leads.items[:0], moved: func(lead, int) {}, less: func(a, b lead) bool { return a.before(&b) }}
	a.looked = heap[victim]{items: a.looked.items[:0], moved: func(victim, int) {}, less: func(a, b victim) bool { return a.cheaper(&b) < 0 }}
	pl.noteYoung(s, &c)
	pl.refill(s)
	c.later.note(s.due)
}

// noteYoung notes when the first of those pods may leave that are too young now.
func (pl *planner) noteYoung(s *search, c *preemptor) {
	for list, leaving := range pl.leavers(c) {
		if !pl.isYoung(list.latest, c.now) {
			continue
		}
		for i := range list.pods {
			if since := list.terms[i].since; !pl.isYoung(since, c.now) || cluster.Plus(since, pl.policy.Preempt.MinRuntime) >= s.due {
				continue
			}
			p := &list.pods[i]
			if p.follows || leaving.omits(p) {
				continue
			}
			pl.mayAddVictim(s, c, pl.jobs.slots[p.Job], int(p.Pod)) // it adds none, and says when it may
		}
	}
}

// fewVictims is how many victims a search finds first.
const fewVictims = 4

// leadTo returns what is known of a pod without another look, but for its cost, as a victim of a job in a cohort.
func (pl *planner) leadTo(p *coveredPod, of precedence, cohort int32, c *preemptor) lead {
	out := lead{price: price{precedence: of}, pod: p}
	t := &pl.entitlement.tenants[p.tenant]
	switch {
	case p.cover == byNominal && t.cohort != cohort && pl.apart(p.tenant, c):
		out.spared = sparedByQuota
	case p.cover == byShare && t.queue != c.queue && p.gpu > 0:
		if out.excess = t.exceeds(p.gpu); !out.excess {
			out.spared = sparedByShare
		}
	}
	return out
}

// leastLevel returns the lowest level that a pod of a list may have.
func (pl *planner) leastLevel(list *coveredPods, cohort int32, c *preemptor) level {
	least := level{precedence: list.of}
	if list.tenant >= 0 && list.cover > uncovered && (list.cover == byNominal || list.least > 0 && !pl.entitlement.tenants[list.tenant].exceeds(list.least)) {
		least.spared = pl.leadTo(&list.pods[0], list.of, cohort, c).spared // which then is that of all others, too
	}
	return least
}

// lossAt returns what is lost at least if the pod leaves, or its gang.
func (t *term) lossAt(now Time) int64 {
	if t.loses == 0 {
		return 0
	}
	age := now - t.from
	if t.checkpoint > 0 {
		age %= t.checkpoint
	}
	return gpuTime(t.loses, max(age, 0))
}

// exceeds reports whether the units of a queue hold so much more than it is owed of any model.
func (t *tenant) exceeds(gpu Milli) bool {
	for m, held := range t.held {
		if held-t.claims[m] >= gpu {
			return true
		}
	}
	return false
}

// lookAtMore finds so many more victims, as far as there are any, and reports whether it found some.
func (pl *planner) lookAtMore(s *search, most int) bool {
	a, before := &s.ahead, len(s.victims)
	if !s.more() {
		return false
	}
	for s.more() && len(s.victims)-before < most {
		if len(a.looked.items) > 0 {
			next := a.looked.items[0]
			if len(a.leads.items) == 0 || next.precedes(&a.leads.items[0]) {
				a.looked.remove(next, 0)
				s.victims = append(s.victims, next)
				continue
			}
		}
		l := a.leads.items[0]
		a.leads.remove(l, 0)
		pl.refill(s)
		pl.lookAt(s, l.pod)
	}
	if !s.more() {
		a.by.later.note(s.due)
	}
	s.nodes, s.at, s.groups = nil, s.at[:0], s.groups[:0]
	return len(s.victims) > before
}

// lookAtAll completes a search.
func (pl *planner) lookAtAll(s *search) {
	pl.widen(s)
	pl.lookAtMore(s, math.MaxInt)
}

// others looks at all that is ahead of a search, and returns what it found, in no order. Nothing is ahead then.
func (pl *planner) others(s *search) []victim {
	a, n := &s.ahead, len(s.victims)
	look := func(p *coveredPod) { pl.mayAddVictim(s, &a.by, pl.jobs.slots[p.Job], int(p.Pod)) }
	for _, l := range a.leads.items {
		look(l.pod)
	}
	if a.more {
		for _, p := range pl.later(s, func(level) bool { return false }) {
			look(p)
		}
	}
	out := append(slices.Clone(a.looked.items), s.victims[n:]...)
	s.victims = s.victims[:n]
	a.leads.items, a.looked.items, a.more = a.leads.items[:0], a.looked.items[:0], false
	return out
}

// pays reports whether evicting a listed pod may return quota to those to which the job's queue owes some: see paysFor.
func (pl *planner) pays(p *coveredPod, c *preemptor) bool {
	t := &pl.entitlement.tenants[p.tenant]
	above := t.queue.Common(c.queue)
	if c.cover == byShare {
		return above.Name != ""
	}
	return t.cohort == pl.entitlement.cohortAt(c.queue) || above.Lists() != nil
}

// payers returns the victims of a search that return quota to those to which the job's queue owes some, the cheapest first. It
// looks at all that may be ahead, and at nothing else there.
func (pl *planner) payers(s *search, c *preemptor) []victim {
	a := &s.ahead
	var pay []*coveredPod
	if s.partial() && !a.paid {
		a.leads.items = slices.DeleteFunc(a.leads.items, func(l lead) bool {
			pays := pl.pays(l.pod, &a.by)
			if pays {
				pay = append(pay, l.pod)
			}
			return pays
		})
		a.leads.order()
		for _, p := range pl.later(s, func(level) bool { return !a.more }) {
			if pl.pays(p, &a.by) {
				pay = append(pay, p)
			}
		}
		a.paid = true
	}
	pl.refill(s)
	for _, p := range pay {
		pl.lookAt(s, p)
	}
	found := slices.Concat(s.victims, a.looked.items)
	found = slices.DeleteFunc(found, func(v victim) bool { return !pl.paysFor(&v, c) })
	slices.SortFunc(found, func(a, b victim) int { return a.cheaper(&b) })
	return found
}

// victimsOn returns what a search may evict on a node, the cheapest first, but for jobs of which pods are lifted. Of what is ahead it
// looks at that alone, and leaves it ahead.
func (pl *planner) victimsOn(s *search, node cluster.NodeID) []victim {
	if _, lends := pl.state.LentAt(node); lends || !s.partial() {
		pl.lookAtAll(s)
		var on []victim
		at := slices.IndexFunc(pl.byNode(s), func(at []onNode) bool { return at[0].node == node })
		for _, o := range s.nodes[at] {
			on = append(on, s.victims[o.victim])
		}
		return on
	}
	type looked struct {
		*job
		trial uint32
		goes  bool
	}
	var gangs []looked // as the search has found them
	found, trial := search{all: true, due: Never}, pl.trial
	pl.trial++
	for h := range pl.state.Node(node).Pods {
		v := pl.jobs.slots[h.Owner.Job]
		if !pl.mayYield(&s.ahead.by, pl.jobs.evictable[h.Owner.Job]) {
			continue
		}
		if v.Gang && v.trial != pl.trial {
			gangs = append(gangs, looked{v, v.trial, v.goes})
		}
		pl.mayAddVictim(&found, &s.ahead.by, v, int(h.Owner.Pod))
	}
	for _, g := range gangs {
		g.job.trial, g.job.goes = g.trial, g.goes
	}
	pl.trial = trial
	found.sort()
	return found.victims
}

// lookAt looks at a listed pod.
func (pl *planner) lookAt(s *search, p *coveredPod) {
	n := len(s.victims)
	pl.mayAddVictim(s, &s.ahead.by, pl.jobs.slots[p.Job], int(p.Pod))
	for _, v := range s.victims[n:] {
		s.ahead.looked.push(v)
	}
	s.victims = s.victims[:n]
}

// cheapest reports whether no victim that a search has not found yet has a lower price.
func (s *search) cheapest(p price) bool {
	a := &s.ahead
	return (len(a.leads.items) == 0 || !a.leads.items[0].less(p)) && (len(a.looked.items) == 0 || !nothing().plus(&a.looked.items[0]).less(p))
}
