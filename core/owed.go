package core

import (
	"iter"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/quota"
)

// This file says which placed pods are within what their queues are owed, under
// [Queueing.FairShare]: first those within nominal quota, then the others in the order of jobs, as
// in entitlement.go.

// cover says what covers a placed pod, or would cover a job that waits. The stronger, the greater.
type cover uint8

const (
	uncovered cover = iota // it borrows, and its queue is not owed that
	byShare                // it is within what its queue is owed
	byNominal              // it is within nominal quota
)

// cover returns what covers a placed pod, as entitlement.update found.
func (p *pod) cover() cover {
	switch {
	case p.within:
		return byNominal
	case p.owed:
		return byShare
	}
	return uncovered
}

// cover returns what covers the pods of a unit, after shareOut.
func (u *holding) cover() cover {
	switch {
	case u.within:
		return byNominal
	case u.owed:
		return byShare
	}
	return uncovered
}

// tenant is a queue whose jobs have units.
//
// Invariant: after shareOut, held, nominal and over are what the units say, and claims what the queue
// is owed.
type tenant struct {
	queue  *quota.Queue
	cohort int32
	units  []int32 // in their order, by their places in the cohort: see unitsOfTenants
	claims []Milli // by the number of the model or resource: see dividedAs
	// By the same numbers: what they hold, and the part of it that is within nominal quota.
	held, nominal []Milli
	// over says that they hold more than the queue is owed of a model or resource.
	over bool
}

// tenantOf returns the number of a queue.
func (c *entitlement) tenantOf(q *quota.Queue) int32 {
	n, ok := c.numberIn[q]
	if !ok {
		n = int32(len(c.tenants))
		c.numberIn[q] = n
		var t tenant
		if len(c.tenants) < cap(c.tenants) {
			t = c.tenants[:n+1][n] // its memory
		}
		at := c.cohortAt(q)
		c.tenants = append(c.tenants, tenant{queue: q, cohort: at, units: t.units[:0], claims: t.claims[:0], held: t.held[:0], nominal: t.nominal[:0]})
		c.cohorts[at].tenants = append(c.cohorts[at].tenants, n)
	}
	return n
}

// What is divided has a number: first come the resources of which any queue has a quota, then the GPU models.

// divided returns how much is divided: how many numbers there are.
func (c *entitlement) divided() int { return len(c.ledger.Counted()) + len(c.runs.loads) }

// dividedAs returns the number of a GPU model by its number among models.
func (c *entitlement) dividedAs(model int) int { return len(c.ledger.Counted()) + model }

// accountOf returns the model or the account of the resource with a number.
func (c *entitlement) accountOf(number int) string {
	counted := c.ledger.Counted()
	if number < len(counted) {
		return counted[number]
	}
	return c.runs.names[number-len(counted)]
}

// use adds what pods of a task use on nodes of a model, by the model's number, of what is divided: of resources, what
// quotas limit.
func (c *entitlement) use(uses []demand, j *job, task, model, pods int) []demand {
	t := &j.Tasks[task]
	if c.ledger.LimitsGPUs() {
		uses = addUse(uses, c.dividedAs(model), Milli(pods)*t.GPU)
	}
	for _, r := range j.queue.Limits() {
		if takes := t.Takes(r); takes > 0 {
			uses = addUse(uses, slices.Index(c.ledger.Counted(), r), cluster.Times(pods, takes))
		}
	}
	return uses
}

// usesOf returns what a pod, or the minimum of a gang (-1), holds of what is divided, by its
// number. What jobs of other schedulers hold is not divided.
func (c *entitlement) usesOf(j *job, pod int) []demand {
	if j.Foreign {
		return nil
	}
	var uses []demand
	for i := range j.pods {
		if p := &j.pods[i]; i == pod || pod < 0 && p.placed() && !p.extra {
			uses = c.use(uses, j, int(p.task), c.runs.modelOf(p), 1)
		}
		if i == pod {
			break
		}
	}
	return uses
}

func addUse(uses []demand, number int, amount Milli) []demand {
	if amount == 0 {
		return uses
	}
	if i := slices.IndexFunc(uses, func(u demand) bool { return u.account == int32(number) }); i >= 0 {
		uses[i].amount = cluster.Plus(uses[i].amount, amount)
		return uses
	}
	return append(uses, demand{int32(number), amount})
}

// shareOut marks the placed pods that are within what their queues are owed, if that or what they hold
// has changed. It costs O(queues), and O(units) of the cohorts in which something has changed.
func (c *entitlement) shareOut() {
	if !c.shares.count() {
		return
	}
	c.shares.divide()
	if divided := c.shared != c.ledger.Divisions(); !c.changed && !divided {
		return
	}
	c.changed, c.shared = false, c.ledger.Divisions()
	for i := range c.tenants {
		if t := &c.tenants[i]; c.claimsChanged(t) {
			c.cohorts[t.cohort].changed = true
		}
	}
	for n := range c.cohorts {
		if k := &c.cohorts[n]; k.changed {
			k.changed = false
			c.renew(k)
			c.shareOutIn(k)
		}
	}
}

// claimsChanged brings up to date what a queue is owed, and reports whether that has changed.
func (c *entitlement) claimsChanged(t *tenant) bool {
	changed := len(t.claims) != c.divided()
	t.claims = grown(t.claims, c.divided())
	for n := range t.claims {
		if claim := t.queue.Claim(c.accountOf(n)); claim != t.claims[n] {
			t.claims[n], changed = claim, true
		}
	}
	return changed
}

// shareOutIn is shareOut for the units of a cohort.
//
//  1. What each queue holds, and what of it is within nominal quota. That comes first.
//  2. A queue that holds no more than it is owed has all its units within that.
//  3. Else its other units get what is left, in their order; one that does not fit is skipped. A pod
//     beyond the minimum of its gang is not better off than the gang.
func (c *entitlement) shareOutIn(k *cohort) {
	// 1.
	divided := c.divided()
	for _, n := range k.tenants {
		t := &c.tenants[n]
		t.held, t.nominal = cleared(t.held, divided), cleared(t.nominal, divided)
	}
	for i := range k.units {
		u := &k.units[i]
		c.tenants[u.tenant].hold(u, 1)
	}
	c.unlist(k)
	c.unitsOfTenants(k)
	for _, n := range k.tenants {
		t := &c.tenants[n]
		if t.over = t.holdsTooMuch(); !t.over { // 2.
			for _, n := range t.units {
				u := &k.units[n]
				c.markOwed(u, u.within || len(u.uses) > 0)
			}
			continue
		}
		c.rest = c.leftFor(t, c.rest) // 3.
		minimum := true
		for _, n := range t.units {
			u := &k.units[n]
			extra := u.pod >= 0 && u.job.Gang
			owed := u.within || (!extra || minimum) && len(u.uses) > 0 && fitsIn(c.rest, u.uses)
			if owed && !u.within {
				take(c.rest, u.uses)
			}
			if !extra {
				minimum = owed
			}
			c.markOwed(u, owed)
		}
	}
}

// hold counts what a unit holds, and what of it is within nominal quota (by 1), or takes it out (by -1).
func (t *tenant) hold(u *holding, by Milli) {
	for _, d := range u.uses {
		t.held[d.account] += by * d.amount
		if u.within {
			t.nominal[d.account] += by * d.amount
		}
	}
}

// holdsTooMuch reports whether the units hold more than the queue is owed of a model or resource.
func (t *tenant) holdsTooMuch() bool {
	for m, held := range t.held {
		if held > 0 && held > t.claims[m] {
			return true
		}
	}
	return false
}

// withoutGone takes the units that are gone out of what their queues hold, and reports whether what covers the others stays: it does
// if they were beyond share and their queues hold too much without them, too, or if their queues did not hold too much before.
func (c *entitlement) withoutGone(k *cohort) bool {
	if k.changed || !c.shares.count() {
		return false
	}
	for _, at := range k.gone {
		u := &k.units[at]
		t := &c.tenants[u.tenant]
		if u.within || u.owed == t.over || u.job.Gang {
			return false
		}
		if t.hold(u, -1); t.over != t.holdsTooMuch() {
			return false
		}
	}
	return true
}

// withLast counts the last units from one on, which have come, into what their queues hold, and reports whether what covers the
// others stays: it does if their queues do not hold too much with them.
func (c *entitlement) withLast(k *cohort, from int) bool {
	for i := from; i < len(k.units); i++ {
		u := &k.units[i]
		t := &c.tenants[u.tenant]
		if t.over || len(t.claims) != c.divided() || len(t.held) != c.divided() {
			return false
		}
		if t.hold(u, 1); t.holdsTooMuch() {
			return false
		}
		c.markOwed(u, u.within || len(u.uses) > 0)
	}
	return true
}

// unlist notes that the lists of a cohort are outdated.
func (c *entitlement) unlist(k *cohort) {
	k.lists.byTenant, k.lists.units = false, false
	c.unlistPods(k)
}

// unitsOfTenants lists the units of the queues of a cohort.
func (c *entitlement) unitsOfTenants(k *cohort) {
	if k.lists.byTenant {
		return
	}
	k.lists.byTenant = true
	for _, n := range k.tenants {
		c.tenants[n].units = c.tenants[n].units[:0]
	}
	for i := range k.units {
		t := &c.tenants[k.units[i].tenant]
		t.units = append(t.units, int32(i))
	}
}

// unitsOf returns the units of a cover in their order, by their places.
func (k *cohort) unitsOf(of cover) []int32 {
	if !k.lists.units {
		k.lists.units = true
		for of := range k.listed {
			k.listed[of] = k.listed[of][:0]
		}
		for i := range k.units {
			if of := k.units[i].cover(); of < byNominal {
				k.listed[of] = append(k.listed[of], int32(i))
			}
		}
	}
	return k.listed[of]
}

// last yields the units of a cover in all cohorts, the last ones in the order first.
func (c *entitlement) last(of cover) iter.Seq[*holding] {
	return func(yield func(*holding) bool) {
		// The cohorts are in a heap by their last unit that is left.
		ends := heap[*cohortEnd]{moved: func(*cohortEnd, int) {}, less: func(a, b *cohortEnd) bool { return compareHoldings(a.unit(of), b.unit(of)) > 0 }}
		for n := range c.cohorts {
			k := &c.cohorts[n]
			if last := len(k.unitsOf(of)) - 1; last >= 0 {
				ends.push(&cohortEnd{k, last})
			}
		}
		for len(ends.items) > 0 {
			e := ends.items[0]
			if !yield(e.unit(of)) {
				return
			}
			if e.at--; e.at < 0 {
				ends.remove(e, 0)
			} else {
				ends.fix(0)
			}
		}
	}
}

// cohortEnd is a place in a list of units of a cohort.
type cohortEnd struct {
	*cohort
	at int
}

func (e *cohortEnd) unit(of cover) *holding { return &e.units[e.listed[of][e.at]] }

// cleared returns memory for n amounts, all 0.
func cleared[N Milli | int32](amounts []N, n int) []N {
	amounts = slices.Grow(amounts[:0], n)[:n]
	clear(amounts)
	return amounts
}

// leftFor returns what a queue is owed, by number, beside what it has within nominal quota.
func (c *entitlement) leftFor(t *tenant, left []Milli) []Milli {
	left = cleared(left, len(t.nominal))
	for n := range left {
		left[n] = t.queue.Claim(c.accountOf(n)) - t.nominal[n]
	}
	return left
}

// isExcess reports whether the queue of a pod, or of the minimum of a gang (-1), would still have all that it is owed
// without it: it has as much more, in units that do not fit into its share. So such a unit need not be
// the only victim, if another one suffices.
func (c *entitlement) isExcess(j *job, pod int) bool {
	u := c.unitOf(j, pod)
	if u == nil {
		return false
	}
	t := &c.tenants[u.tenant]
	return !slices.ContainsFunc(u.uses, func(d demand) bool { return t.held[d.account]-t.claims[d.account] < d.amount })
}

// fitsIn reports whether there is enough left for all that is used.
func fitsIn(left []Milli, uses []demand) bool {
	return !slices.ContainsFunc(uses, func(u demand) bool { return left[u.account] < u.amount })
}

func take(left []Milli, uses []demand) {
	for _, u := range uses {
		left[u.account] -= u.amount
	}
}

// markOwed records on the pods of a unit whether they are within what its queue is owed.
func (c *entitlement) markOwed(u *holding, owed bool) {
	if u.marked && u.owed == owed {
		return
	}
	u.owed, u.marked = owed, true
	set := func(p *pod) {
		if p.owed && !owed && !p.within && p.state == podRunning {
			c.lost++
		}
		p.owed = owed
	}
	for i := range u.pods {
		set(&u.job.pods[i])
	}
}

// coverOf returns what would cover the waiting job (one pod of it when it starts pod by pod), on the
// one of the models it accepts that is best for it.
func (c *entitlement) coverOf(j candidate) cover {
	if c.wouldBeWithin(j) {
		return byNominal
	}
	if !c.shares.count() {
		return uncovered
	}
	for _, model := range j.class.accepts() {
		uses := c.wants[:0]
		for t := range j.unit.Tasks {
			if n, m := j.startsOn(t, model); n > 0 {
				uses = c.use(uses, j.job, int(j.pods[j.unit.Tasks[t].Pods[0]].task), c.runs.modelNumber(m), n)
			}
		}
		if c.wants = uses; c.owesBefore(j.job, uses) {
			return byShare
		}
	}
	return uncovered
}

// uncoveredAt is the state in which the first job of a class was found uncovered.
type uncoveredAt struct {
	version, epoch uint64
	first          key
	fixed          bool
}

// uncoveredNow returns the state in which a waiting job is, as far as its cover depends on it.
func (c *entitlement) uncoveredNow(j *job) uncoveredAt {
	return uncoveredAt{c.cohorts[c.cohortAt(j.queue)].version, c.state.Epoch(), j.key, j.fixed()}
}

// covers reports whether anything would cover the waiting job, and notes for its class if nothing would.
func (c *entitlement) covers(j candidate) bool {
	if c.coverOf(j) > uncovered {
		return true
	}
	j.class.uncovered = c.uncoveredNow(j.job)
	return false
}

// stillUncovered reports whether nothing has changed since the job, or a first job of its class in the same place in
// the order, was found uncovered.
func (c *entitlement) stillUncovered(j *job) bool {
	if j.class.uncovered.version == 0 {
		return false
	}
	if bounded, _ := j.queue.Bounded(); bounded {
		return false // which tasks it may start depends on what runs
	}
	c.update()
	return j.class.uncovered == c.uncoveredNow(j)
}

// coverAt returns what would cover the waiting job in these places.
func (c *entitlement) coverAt(j *job, placed []place.Placed) cover {
	if c.wouldBeWithinAt(j, placed) {
		return byNominal
	}
	if !c.shares.count() {
		return uncovered
	}
	uses := c.wants[:0]
	for i := range placed {
		p := &placed[i]
		uses = c.use(uses, j, int(j.pods[p.Pod].task), c.runs.modelNumber(c.state.Pool(p.Alloc.Node).Model), 1)
	}
	if c.wants = uses; c.owesBefore(j, uses) {
		return byShare
	}
	return uncovered
}

// owesBefore reports whether its queue is owed what a waiting job would use at its place in the order: after
// what is within nominal quota, and the units before it and those that it has already.
func (c *entitlement) owesBefore(j *job, uses []demand) bool {
	t := &c.tenants[c.tenantOf(j.queue)]
	t.held, t.nominal = grown(t.held, c.divided()), grown(t.nominal, c.divided())
	c.rest = c.leftFor(t, c.rest)
	if len(uses) == 0 || !fitsIn(c.rest, uses) {
		return false
	}
	c.unitsOfTenants(&c.cohorts[t.cohort])
	for _, n := range t.units {
		u := &c.cohorts[t.cohort].units[n]
		if u.job != j && byKey(u.job, j) > 0 {
			break
		}
		if u.job == j && j.Gang && u.pod < 0 && !u.owed {
			return false
		}
		if u.owed && !u.within {
			take(c.rest, u.uses)
		}
	}
	return fitsIn(c.rest, uses)
}

// grown returns amounts with zeros appended up to n.
func grown(amounts []Milli, n int) []Milli {
	for len(amounts) < n {
		amounts = append(amounts, 0)
	}
	return amounts
}
