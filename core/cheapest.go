package core

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
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
	}
	return l.pod.seq > o.pod.seq
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
// Invariant: victims of the search are the cheapest ones of all, in order, and cost less than what is ahead. Until the search is
// complete, nothing but it uses planner.trial, and no unit of the entitlement changes.
type ahead struct {
	by    preemptor
	leads heap[lead]
	// rest are leads that come after those, as their victims are spared or of higher precedence: the heap has none
	// only if there is no rest.
	rest   []lead
	looked heap[victim]
}

// partial reports whether a search has not found all its victims yet.
func (s *search) partial() bool { return len(s.ahead.leads.items)+len(s.ahead.looked.items) > 0 }

// refill moves the first ones of the rest to the heap of leads if that is empty: those that are spared for the same and of the same
// precedence.
func (a *ahead) refill() {
	if len(a.leads.items) > 0 || len(a.rest) == 0 {
		return
	}
	level := func(l *lead) price { return price{spared: l.spared, precedence: l.precedence} }
	first := level(&a.rest[0])
	for i := range a.rest {
		if l := level(&a.rest[i]); l.less(first) {
			first = l
		}
	}
	rest := a.rest[:0]
	for _, l := range a.rest {
		if level(&l) == first {
			a.leads.items = append(a.leads.items, l)
		} else {
			rest = append(rest, l)
		}
	}
	a.rest = rest
	a.leads.order()
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

// lookAhead begins a search for the cheapest victims of all nodes.
func (pl *planner) lookAhead(s *search, c preemptor) {
	s.due, s.sorted = Never, true
	pl.trial++
	a := &s.ahead
	a.by = c
	a.leads = heap[lead]{items: a.leads.items[:0], moved: func(lead, int) {}, less: func(a, b lead) bool { return a.before(&b) }}
	a.looked = heap[victim]{items: a.looked.items[:0], moved: func(victim, int) {}, less: func(a, b victim) bool { return a.cheaper(&b) < 0 }}
	a.rest = a.rest[:0]
	cohort := pl.entitlement.cohortAt(c.queue)
	for of, p := range pl.leavers(c) {
		switch {
		case p.follows:
		case !pl.isYoung(p, c.now):
			a.rest = append(a.rest, pl.leadTo(p, of, cohort, &c))
		case cluster.Plus(p.since, pl.policy.Preempt.MinRuntime) < s.due:
			pl.mayAddVictim(s, c, pl.jobs.slots[p.Job], int(p.Pod)) // it adds none, and says when it may
		}
	}
	a.refill()
	c.later.note(s.due)
}

// fewVictims is how many victims a search finds first.
const fewVictims = 16

// leadTo returns what is known of a pod without another look, as a victim of a job in a cohort.
func (pl *planner) leadTo(p *coveredPod, of precedence, cohort int32, c *preemptor) lead {
	out := lead{price: price{precedence: of, cost: 1}, pod: p}
	t := &pl.entitlement.tenants[p.tenant]
	switch {
	case p.cover == byNominal && t.cohort != cohort && t.queue.Common(c.queue).Lists() == nil: // no queue above both has quota
		out.spared = sparedByQuota
	case p.cover == byShare && t.queue != c.queue && p.gpu > 0:
		if out.excess = t.exceeds(p.gpu); !out.excess {
			out.spared = sparedByShare
		}
	}
	if p.loses > 0 {
		age := c.now - max(p.since, p.saved)
		if p.checkpoint > 0 {
			age %= p.checkpoint
		}
		out.cost += gpuTime(p.loses, max(age, 0))
	}
	return out
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
	if !s.partial() {
		return false
	}
	for s.partial() && len(s.victims)-before < most {
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
		a.refill()
		pl.lookAt(s, l.pod)
	}
	if !s.partial() {
		a.by.later.note(s.due)
	}
	s.nodes, s.at, s.groups = nil, s.at[:0], s.groups[:0]
	return len(s.victims) > before
}

// lookAtAll completes a search.
func (pl *planner) lookAtAll(s *search) {
	for s.partial() {
		pl.lookAtMore(s, len(s.ahead.leads.items)+len(s.ahead.rest)+len(s.ahead.looked.items))
	}
}

// others looks at all that is ahead of a search, and returns what it found, in no order. Nothing is ahead then.
func (pl *planner) others(s *search) []victim {
	a, n := &s.ahead, len(s.victims)
	for _, l := range slices.Concat(a.leads.items, a.rest) {
		pl.mayAddVictim(s, a.by, pl.jobs.slots[l.pod.Job], int(l.pod.Pod))
	}
	out := append(slices.Clone(a.looked.items), s.victims[n:]...)
	s.victims = s.victims[:n]
	a.leads.items, a.rest, a.looked.items = a.leads.items[:0], a.rest[:0], a.looked.items[:0]
	return out
}

// payers returns the victims of a search that return quota to those to which the job's queue owes some, the cheapest first. It
// looks at all that may be ahead, and at nothing else there.
func (pl *planner) payers(s *search, c *preemptor) []victim {
	a := &s.ahead
	own := pl.entitlement.cohortAt(c.queue)
	var pay []*coveredPod
	pays := func(l lead) bool {
		t := &pl.entitlement.tenants[l.pod.tenant]
		above := t.queue.Common(c.queue) // see paysFor
		pays := t.cohort == own || above.Lists() != nil
		if c.cover == byShare {
			pays = above.Name != ""
		}
		if pays {
			pay = append(pay, l.pod)
		}
		return pays
	}
	a.leads.items, a.rest = slices.DeleteFunc(a.leads.items, pays), slices.DeleteFunc(a.rest, pays)
	a.leads.order()
	a.refill()
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
		if !pl.mayYield(s.ahead.by, pl.jobs.evictable[h.Owner.Job]) {
			continue
		}
		if v.Gang && v.trial != pl.trial {
			gangs = append(gangs, looked{v, v.trial, v.goes})
		}
		pl.mayAddVictim(&found, s.ahead.by, v, int(h.Owner.Pod))
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
	pl.mayAddVictim(s, s.ahead.by, pl.jobs.slots[p.Job], int(p.Pod))
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
