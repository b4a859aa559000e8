package core

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/quota"
)

// entitlement says which placed pods are within their queues' nominal quotas. It is
// brought up to date when a search for evictions asks for it, at the cost of what
// changed since: the quotas of a cohort are assigned again only if a holding within quota has gone,
// or a new one is before others in the order.
//
// Invariant: after update, cohorts, dealt and the marks of pods are what rebuild makes of them.
type entitlement struct {
	*Engine
	// cohorts are the units of queues that share accounts, by number.
	cohorts  []cohort
	cohortOf map[*quota.Queue]int32
	// touched are jobs whose pods changed since.
	touched []*job
	// stale says that all of it is outdated: queues or the order changed.
	stale bool
	// By the number of the account: dealt is what the holdings within quota take, larger the
	// holdings that demand more than the whole quota.
	dealt    []Milli
	larger   []larger
	accounts []account
	number   map[account]int32

	clock Time // when pods came last
	// lost counts how often a running pod went from within quota to beyond it; seen is
	// what pass.pushedOut has taken into account.
	lost, seen int

	// tenants are the queues of the units, by number. shared is what they were last given what they are owed
	// of: see shareOut.
	tenants  []tenant
	numberIn map[*quota.Queue]int32
	shared   uint64
	changed  bool   // units of a cohort came, went or got another cover since
	versions uint64 // how many the cohorts have had
	// leavers are the running pods of all cohorts by what covers them, as far as they are listed; unlisted are the cohorts of which they are not, once each.
	leavers  [byNominal + 1][]coveredGroup
	unlisted []int32

	// Scratch memory.
	fresh          []holding
	met            []int32
	before, rest   []Milli
	demands, wants []demand
}

// cohort is the units of queues that share quota: that count against the same accounts, directly or through other queues. What
// happens to them changes nothing for the units of other cohorts.
type cohort struct {
	// units are in the order of byKey, then of pods. Those that are gone, by their places, stay until the end of the update.
	units []holding
	gone  []int32
	// accounts and tenants are the numbers of those that it has.
	accounts, tenants []int32
	// coming are units that an update has found, again says that quotas are to be assigned again, met that it is among
	// entitlement.met.
	coming     []holding
	again, met bool
	changed    bool // units came, went or got another cover since shareOut, and that may change what covers others
	// version is another number whenever what covers its units, or would cover a waiting job, may have changed.
	version uint64
	// What follows is listed when it is asked for, as far as lists says: the units of each queue, in tenant.units; the units of each cover
	// but the strongest, in their order; the running pods of all units (see reclaimable.go), which are in entitlement.leavers.
	lists  struct{ byTenant, units, pods bool }
	listed [byNominal][]int32
	pods   []listedAt
	number int32
}

// holding is what gets quota as one: the minimum of a running gang, or one other pod.
type holding struct {
	job    *job
	pod    int32 // -1 for the minimum of a gang
	tenant int32 // the number of its queue
	within bool
	// owed says that it is within what its queue is owed, and its pods are marked so if marked is set.
	owed, marked bool
	// came is when it got its place: see pod.came.
	came    Time
	demands []demand
	// uses is what it holds of what is divided, by number, under [Queueing.FairShare]: see [entitlement.dividedAs].
	uses []demand
}

// pods yields the pods of a holding.
func (u *holding) pods(yield func(int) bool) {
	if u.pod >= 0 {
		yield(int(u.pod))
		return
	}
	for i := range u.job.pods {
		if !u.job.pods[i].extra && !yield(i) {
			return
		}
	}
}

// larger is the holdings that demand more of an account than its whole nominal quota. They
// are beyond quota, and may be evicted; but while one of them runs, its queue has its quota.
// So holdings that came with it or later do not get that quota, too.
type larger struct {
	// since is when the first of each precedence came.
	since []cameFirst
	// job and pod are the first holding in the order that is beyond quota though none larger
	// came before it. It holds what the holdings within quota leave.
	job *job
	pod int32
}

// cameFirst is when the first unit of a precedence came.
type cameFirst struct {
	precedence
	came Time
}

// account names a queue's nominal quota for a model, for all, or for a resource.
type account struct {
	owner *quota.Queue
	of    string
}

// demand is what a holding asks of an account, by its number; of none (-1) if its queue may
// not use the model at all.
type demand struct {
	account int32
	amount  Milli
}

// touch notes that pods of a job came to a place or left one.
func (c *entitlement) touch(j *job) {
	if j.touched || c.stale || !c.ledger.Limited() {
		return
	}
	if len(c.touched) > len(c.runs.jobs)+1000 {
		c.stale = true // no search has used it for long: to rebuild costs less by now
		return
	}
	j.touched = true
	c.touched = append(c.touched, j)
}

// update marks the placed pods that are within their queues' nominal quotas. Quotas are
// assigned in the order of jobs; a holding that does not fit is skipped. The pods that a
// gang has beyond its minimum come after it and get quota one by one: else
// one of them could push its whole gang beyond quota by starting. If no queue has a quota,
// no pod is marked and all count as within.
func (c *entitlement) update() {
	if !c.ledger.Limited() {
		return
	}
	defer c.shareOut()
	if c.stale {
		c.rebuild()
		return
	}
	// 1. What went and what came, in the order of jobs.
	slices.SortFunc(c.touched, byKey)
	c.met = c.met[:0]
	for _, j := range c.touched {
		j.touched = false
		n := c.cohortAt(j.queue)
		k := &c.cohorts[n]
		if !k.met {
			c.renew(k)
			k.met, k.again, k.gone, k.coming = true, false, k.gone[:0], k.coming[:0]
			c.met = append(c.met, n)
		}
		c.updateUnits(k, j)
	}
	c.touched = c.touched[:0]
	for _, n := range c.met {
		c.updateCohort(&c.cohorts[n])
	}
}

// renew gives a cohort another version.
func (c *entitlement) renew(k *cohort) {
	c.versions++
	k.version = c.versions
}

// updateCohort puts what came in its place among the units of a cohort, and assigns quotas.
func (c *entitlement) updateCohort(k *cohort) {
	k.met = false
	if len(k.gone) == 0 && len(k.coming) == 0 {
		return
	}
	c.unlist(k)
	kept := c.withoutGone(k)

	// 1. A holding that demands more than a whole quota also takes it from holdings before it in
	// the order that came at the same time: these must be assigned quota again.
	larger := slices.ContainsFunc(k.coming, func(u holding) bool { return slices.ContainsFunc(u.demands, c.exceeds) })

	// 2. If what came is after all others in the order, it takes what they leave, and nothing
	// else changes. Most starts end here.
	n := len(k.units)
	last := n == 0 || len(k.coming) == 0 || compareHoldings(&k.units[n-1], &k.coming[0]) < 0
	if len(k.gone) == 0 && !larger && last {
		for i := range k.coming {
			k.units = append(k.units, k.coming[i])
			c.deal(&k.units[n+i])
		}
		if !kept || !c.withLast(k, n) {
			k.changed, c.changed = true, true
		}
		return
	}

	// 3. Else all quotas of the cohort are assigned again, unless what went had none.
	k.merge()
	if k.again || len(k.coming) > 0 {
		c.dealOut(k)
		kept = false
	}
	if !kept {
		k.changed, c.changed = true, true
	}
}

// cohortAt returns the number of the cohort of a queue.
func (c *entitlement) cohortAt(q *quota.Queue) int32 {
	n, ok := c.cohortOf[q]
	if !ok {
		panic("no cohort for queue " + q.Name) // changes.quotasChanged makes all of it stale
	}
	return n
}

// findCohorts says which queues count against the same accounts, directly or through others. A queue counts
// against the quotas of GPUs of the nearest queue that lists any, and those of each resource of its owner.
func (c *entitlement) findCohorts() {
	above := map[*quota.Queue]*quota.Queue{}
	top := func(q *quota.Queue) *quota.Queue {
		for above[q] != nil {
			q = above[q]
		}
		return q
	}
	join := func(q, o *quota.Queue) {
		if a, b := top(q), top(o); a != b {
			above[a] = b
		}
	}
	for q := range c.ledger.All() {
		if o := q.Lists(); o != nil {
			join(q, o)
		}
		for _, r := range q.Limits() {
			join(q, q.Owner(r))
		}
	}
	c.cohortOf, c.cohorts = map[*quota.Queue]int32{}, c.cohorts[:0]
	c.leavers, c.unlisted = [byNominal + 1][]coveredGroup{}, c.unlisted[:0]
	for q := range c.ledger.All() {
		t := top(q)
		n, ok := c.cohortOf[t]
		if !ok {
			n = int32(len(c.cohorts))
			c.cohortOf[t] = n
			var k cohort
			if len(c.cohorts) < cap(c.cohorts) {
				k = c.cohorts[:n+1][n] // its memory
			}
			k = cohort{units: k.units[:0], accounts: k.accounts[:0], tenants: k.tenants[:0], coming: k.coming[:0], gone: k.gone[:0], changed: true, listed: k.listed, pods: k.pods[:0], number: n}
			c.cohorts, c.unlisted = append(c.cohorts, k), append(c.unlisted, n)
		}
		c.cohortOf[q] = n
	}
}

// merge drops what is gone from the units and puts what came in its place in the order. It moves what is between as a whole: there
// may be thousands of units, of which one goes.
func (k *cohort) merge() {
	if len(k.gone) > 0 {
		to := int(k.gone[0])
		for i, from := range k.gone {
			next := len(k.units)
			if i+1 < len(k.gone) {
				next = int(k.gone[i+1])
			}
			to += copy(k.units[to:], k.units[from+1:next])
		}
		clear(k.units[to:])
		k.units = k.units[:to]
	}
	stay := len(k.units)
	k.units = append(k.units, k.coming...)
	end := len(k.units)
	for i := len(k.coming) - 1; i >= 0; i-- {
		at, _ := slices.BinarySearchFunc(k.units[:stay], &k.coming[i], func(u holding, c *holding) int { return compareHoldings(&u, c) })
		end -= copy(k.units[end-(stay-at):end], k.units[at:stay]) + 1
		k.units[end], stay = k.coming[i], at
	}
}

// entitled is the time at which pods count as having come that evicted others as ones within
// nominal quota: before every holding that is larger than a quota.
const entitled Time = -MaxTime - 1

// starting returns when pods come that start now: all that start at the same time come
// together, unless a plan is decided in between.
func (c *entitlement) starting(now Time) Time {
	c.clock = max(now, c.clock)
	return c.clock
}

// planning returns when the pods of a plan come: after all pods before it, and before all
// later ones.
func (c *entitlement) planning(now Time) Time {
	at := c.starting(now) + 1
	c.clock = at + 1
	return at
}

// rebuild lists the holdings of all placed pods, and assigns all quotas.
func (c *entitlement) rebuild() {
	for _, j := range c.touched {
		j.touched = false
	}
	c.stale, c.touched = false, c.touched[:0]
	c.accounts, c.number = c.accounts[:0], map[account]int32{}
	c.tenants, c.numberIn, c.changed = c.tenants[:0], map[*quota.Queue]int32{}, true
	c.findCohorts()
	list := func(j *job) {
		k := &c.cohorts[c.cohortAt(j.queue)]
		k.units = c.unitsOf(j, k.units)
	}
	for _, j := range c.runs.jobs {
		list(j)
	}
	for _, n := range c.nominations.all {
		if n.job.run < 0 {
			list(n.job)
		}
	}
	for n := range c.cohorts {
		k := &c.cohorts[n]
		c.renew(k)
		slices.SortFunc(k.units, func(a, b holding) int { return compareHoldings(&a, &b) })
		c.dealOut(k)
	}
}

// updateUnits compares a job's holdings with those that it had. It marks those that
// went, adds those that came to the cohort's, and notes whether quotas must be
// assigned again for those that went.
//
// Both lists are in the order of pods, -1, the minimum of a gang, first. They are walked
// side by side:
//
//  1. new holdings before the old one have come;
//  2. an old holding with the same place and the same demands stays: only its pods are
//     marked, as others of a gang's pods may make up its minimum now;
//  3. an old holding with other demands has gone, and has come again as it is now: a gang's
//     minimum, say, of which a pod failed and another one took its part on another model;
//  4. an old holding that is not among the new ones has gone. Others get its quota only if
//     it had some, or kept it from them.
func (c *entitlement) updateUnits(k *cohort, j *job) {
	at, _ := slices.BinarySearchFunc(k.units, j, func(u holding, j *job) int { return byKey(u.job, j) })
	c.fresh = c.unitsOf(j, c.fresh[:0])
	fresh := c.fresh
	for ; at < len(k.units) && k.units[at].job == j; at++ {
		u := &k.units[at]
		i := slices.IndexFunc(fresh, func(f holding) bool { return f.pod >= u.pod })
		if i < 0 {
			i = len(fresh)
		}
		k.coming = append(k.coming, fresh[:i]...) // 1
		if fresh = fresh[i:]; len(fresh) > 0 && fresh[0].pod == u.pod {
			if fresh[0].came == u.came && slices.Equal(fresh[0].demands, u.demands) && slices.Equal(fresh[0].uses, u.uses) {
				c.mark(u) // 2
				c.unlist(k)
				if j.Gang {
					u.marked, k.changed, c.changed = false, true, true
				}
				fresh = fresh[1:]
				continue
			}
			k.coming = append(k.coming, fresh[0]) // 3
			fresh, k.again = fresh[1:], true
		}
		k.gone = append(k.gone, int32(at)) // 3 and 4
		k.again = k.again || c.dealtAlong(u)
	}
	k.coming = append(k.coming, fresh...)
}

// dealOut assigns all nominal quotas of a cohort, in the order of the holdings.
func (c *entitlement) dealOut(k *cohort) {
	for _, n := range k.accounts {
		c.dealt[n] = 0
		c.larger[n] = larger{since: c.larger[n].since[:0]}
	}
	for i := range k.units {
		c.noteLarger(&k.units[i])
	}
	// All larger ones are known before the first holding gets its quota: they may come later
	// in the order and have started earlier.
	for i := range k.units {
		c.deal(&k.units[i])
	}
	c.planner.dropSearches()
}

// deal counts a holding as within quota if the quotas have room for it, after those
// before it, and if no holding larger than a quota came before it that is as strong.
//
// The larger one does not take its quota at its place in the order, whenever it starts, or
// evictions would not end. Queue a owns 4 GPUs; its job h of 5 GPUs comes first in the order,
// its job x of 4 next. The owner of the other GPUs evicts both. Without h, x is within quota
// and evicts the owner by priority. Then h starts where the owner ran and takes the quota
// from x, so that the owner evicts both again.
func (c *entitlement) deal(u *holding) {
	blocked := c.blocked(u)
	u.within = !blocked && c.bear(u.demands)
	// A pod beyond the minimum of its gang is not better off than the gang.
	if u.pod >= 0 && u.job.Gang && !u.job.minimumWithin() {
		u.within = false
	}
	for _, k := range u.demands {
		switch {
		case u.within:
			c.dealt[k.account] += k.amount
		case !blocked && k.account >= 0 && c.larger[k.account].job == nil:
			c.larger[k.account].job, c.larger[k.account].pod = u.job, u.pod
		}
	}
	c.mark(u)
}

// blocked reports whether a holding came first that demands more than the whole of a quota
// of which this one demands a part.
func (c *entitlement) blocked(u *holding) bool {
	// A holding that evicted others as one within quota keeps it, and those that must not
	// borrow must be within quota: what is beyond must be able to leave.
	if u.came == entitled || u.job.fixed() {
		return false
	}
	for _, k := range u.demands {
		if k.account < 0 || c.exceeds(k) {
			continue
		}
		for i := range c.larger[k.account].since {
			if f := &c.larger[k.account].since[i]; f.came <= u.came && u.job.key.compare(f.precedence) >= 0 {
				return true
			}
		}
	}
	return false
}

// noteLarger notes when the holding came, if it demands more than a whole quota.
func (c *entitlement) noteLarger(u *holding) {
	if u.pod >= 0 && u.job.Gang {
		return
	}
	for _, k := range u.demands {
		if !c.exceeds(k) {
			continue
		}
		l, at := &c.larger[k.account], u.job.key.precedence
		i := slices.IndexFunc(l.since, func(f cameFirst) bool { return f.precedence == at })
		if i < 0 {
			l.since = append(l.since, cameFirst{at, u.came})
		} else {
			l.since[i].came = min(l.since[i].came, u.came)
		}
	}
}

// exceeds reports whether a demand is for more than the account's nominal quota, if it
// has any.
func (c *entitlement) exceeds(k demand) bool {
	if k.account < 0 {
		return false
	}
	a := &c.accounts[k.account]
	nominal, _ := a.owner.Nominal(a.of)
	return nominal > 0 && k.amount > nominal
}

// dealtAlong reports whether others may get more or less quota when the holding goes.
func (c *entitlement) dealtAlong(u *holding) bool {
	return u.within || slices.ContainsFunc(u.demands, func(k demand) bool {
		return c.exceeds(k) || k.account >= 0 && c.larger[k.account].job == u.job && c.larger[k.account].pod == u.pod
	})
}

// holdsPart reports whether a pod, or the minimum of a gang (-1), demands more than its queue's
// quota and holds what others leave of it.
func (c *entitlement) holdsPart(j *job, pod int) bool {
	u := c.unitOf(j, pod)
	return u != nil && slices.ContainsFunc(u.demands, func(k demand) bool {
		return c.exceeds(k) && c.larger[k.account].job == j && int(c.larger[k.account].pod) == pod && c.left(k.account) > 0
	})
}

// unitOf returns the unit that is a pod, or the minimum of a gang (-1); nil if there is none.
func (c *entitlement) unitOf(j *job, pod int) *holding {
	units := c.cohorts[c.cohortAt(j.queue)].units
	at, _ := slices.BinarySearchFunc(units, j, func(u holding, j *job) int { return byKey(u.job, j) })
	for ; at < len(units) && units[at].job == j; at++ {
		if int(units[at].pod) == pod {
			return &units[at]
		}
	}
	return nil
}

// left returns the part of an account's nominal quota that is not assigned.
func (c *entitlement) left(n int32) Milli {
	a := &c.accounts[n]
	nominal, _ := a.owner.Nominal(a.of)
	return nominal - c.dealt[n]
}

// mark records on the pods of a holding whether they are within quota.
func (c *entitlement) mark(u *holding) {
	set := func(p *pod) {
		if p.within && !u.within && p.state == podRunning {
			c.lost++
		}
		p.within = u.within
	}
	for i := range u.pods {
		set(&u.job.pods[i])
	}
}

// placed reports whether the pod has a place that counts against its quota.
func (p *pod) placed() bool {
	return p.state == podRunning || p.state == podHeld || p.state == podPlanned
}

// unitsOf appends the units of a job, in order.
func (c *entitlement) unitsOf(j *job, units []holding) []holding {
	if !j.Gang {
		for i := range j.pods {
			if j.pods[i].placed() {
				units = append(units, c.holdingOf(j, i, j.pods[i].came))
			}
		}
		return units
	}
	if !j.placed() {
		return units
	}
	at := len(units)
	units = append(units, holding{job: j, pod: -1, came: Never})
	j.markExtra()
	for i := range j.pods {
		p := &j.pods[i]
		if p.placed() {
			units[at].came = min(units[at].came, p.came)
		}
		if p.placed() && p.extra {
			units = append(units, c.holdingOf(j, i, p.came))
		}
	}
	units[at] = c.holdingOf(j, -1, units[at].came)
	return units
}

// holdingOf describes a placed pod of a job, or the minimum of a gang (-1).
func (c *entitlement) holdingOf(j *job, pod int, came Time) holding {
	h := holding{job: j, pod: int32(pod), came: came, demands: c.demandsOf(j, pod)}
	if c.policy.fair() {
		h.tenant, h.uses = c.tenantOf(j.queue), c.usesOf(j, pod)
	}
	return h
}

// markExtra notes without which of the pods that have places a gang could go on: of each
// task those beyond its minimum, first those that do not run yet, then the last ones.
func (j *job) markExtra() {
	for t := range j.Tasks {
		lo, hi := j.span(t)
		pods, needed := j.pods[lo:hi], j.Tasks[t].Minimum()
		for i := range pods {
			if pods[i].state == podDone && int(pods[i].task) == t {
				needed--
			}
		}
		for _, running := range [2]bool{true, false} {
			for i := range pods {
				if p := &pods[i]; p.placed() && (p.state == podRunning) == running && int(p.task) == t {
					p.extra = needed <= 0
					needed--
				}
			}
		}
	}
}

// placed reports whether a pod of the job has a place.
func (j *job) placed() bool { return j.count[podRunning]+j.count[podHeld]+j.count[podPlanned] > 0 }

// minimumWithin reports whether the minimum of a running gang is within quota.
func (j *job) minimumWithin() bool {
	for i := range j.pods {
		if p := &j.pods[i]; p.placed() && !p.extra {
			return p.within
		}
	}
	return true
}

func compareHoldings(a, b *holding) int {
	return cmp.Or(byKey(a.job, b.job), cmp.Compare(a.pod, b.pod))
}

// byKey compares jobs by the order in which they get quota. Those that must not borrow come
// first: what is beyond quota must be able to leave. Otherwise it is the order of jobs.
func byKey(a, b *job) int {
	switch {
	case a == b:
		return 0
	case a.fixed() != b.fixed():
		return cluster.LastIf(b.fixed(), a.fixed())
	case a.key.before(&b.key):
		return -1
	}
	return 1
}

// bear reports whether the accounts have quota for demands beside what is assigned.
func (c *entitlement) bear(demands []demand) bool {
	for _, k := range demands {
		if k.account < 0 || !c.bears(k, c.dealt[k.account]) {
			return false
		}
	}
	return true
}

// bears reports whether the account of a demand has quota for it beside what is assigned.
func (c *entitlement) bears(k demand, dealt Milli) bool {
	a := &c.accounts[k.account]
	nominal, _ := a.owner.Nominal(a.of)
	return dealt+k.amount <= nominal
}

// demandsOf returns what a pod, or the minimum of a gang (-1), demands of nominal quotas. The
// slice is the caller's.
func (c *entitlement) demandsOf(j *job, pod int) []demand {
	if !j.queue.Limited() {
		return nil
	}
	demands := c.demands[:0]
	for i := range j.pods {
		if p := &j.pods[i]; i == pod || pod < 0 && p.placed() && !p.extra {
			demands = c.demandPods(demands, j, int(p.task), c.state.Pool(p.alloc.Node).Model, 1)
		}
		if i == pod {
			break
		}
	}
	c.demands = demands
	return slices.Clone(demands)
}

// demandPods adds to demands what pods of a task request on nodes of a model.
func (c *entitlement) demandPods(demands []demand, j *job, task int, model string, pods int) []demand {
	t := &j.Tasks[task]
	demands = c.demand(demands, j.queue, model, Milli(pods)*t.GPU)
	for _, r := range j.queue.Limits() {
		demands = c.demand(demands, j.queue, r, cluster.Times(pods, t.Takes(r)))
	}
	return demands
}

// demand adds to demands what a queue requests of a model or resource.
func (c *entitlement) demand(demands []demand, q *quota.Queue, of string, amount Milli) []demand {
	if amount == 0 {
		return demands
	}
	add := func(n int32) {
		if i := slices.IndexFunc(demands, func(k demand) bool { return k.account == n }); i >= 0 {
			demands[i].amount += amount
			return
		}
		demands = append(demands, demand{n, amount})
	}
	for _, m := range q.Governing(of) {
		add(c.numberOf(account{q.Owner(m), m}))
	}
	if !q.MayUse(of) {
		add(-1)
	}
	return demands
}

// numberOf returns the number of an account, -1 when no queue owns it.
func (c *entitlement) numberOf(a account) int32 {
	if a.owner == nil {
		return -1
	}
	n, ok := c.number[a]
	if !ok {
		n = int32(len(c.accounts))
		c.number[a] = n
		c.accounts = append(c.accounts, a)
		if len(c.dealt) < len(c.accounts) {
			c.dealt, c.larger = append(c.dealt, 0), append(c.larger, larger{})
		}
		c.dealt[n], c.larger[n] = 0, larger{}
		k := &c.cohorts[c.cohortAt(a.owner)]
		k.accounts = append(k.accounts, n)
	}
	return n
}

// wouldBeWithin reports whether the waiting job (one pod of it when it starts pod by
// pod) would be within nominal quota, on one of the models it accepts.
func (c *entitlement) wouldBeWithin(j candidate) bool {
	if !j.queue.Limited() {
		return true
	}
	for _, model := range j.class.accepts() {
		demands := c.demands[:0]
		for t := range j.unit.Tasks {
			if n, m := j.startsOn(t, model); n > 0 {
				demands = c.demandPods(demands, j.job, int(j.pods[j.unit.Tasks[t].Pods[0]].task), m, n)
			}
		}
		if c.demands = demands; c.bearsBefore(j.job, demands) {
			return true
		}
	}
	return false
}

// startsOn returns how many pods of a task start together if the job takes a model, and on which: a task
// that does not accept it counts on the first that it does.
func (c candidate) startsOn(task int, model string) (pods int, on string) {
	t := &c.unit.Tasks[task]
	pods = len(t.Pods)
	if !c.unit.Whole {
		pods = min(pods, 1)
	}
	if own := t.Models(); len(own) > 0 && !slices.Contains(own, model) {
		return pods, own[0]
	}
	return pods, model
}

// wouldBeWithinAt reports whether the waiting job would be within nominal quota in these
// places.
func (c *entitlement) wouldBeWithinAt(j *job, placed []place.Placed) bool {
	if !j.queue.Limited() {
		return true
	}
	demands := c.demands[:0]
	for i := range placed {
		demands = c.demandPods(demands, j, int(j.pods[placed[i].Pod].task), c.state.Pool(placed[i].Alloc.Node).Model, 1)
	}
	c.demands = demands
	return c.bearsBefore(j, demands)
}

// bearsBefore reports whether the accounts have quota for demands of a waiting job at its
// place in the order: after the holdings before it and those that it has already.
func (c *entitlement) bearsBefore(j *job, demands []demand) bool {
	if j.Gang && !j.minimumWithin() {
		return false
	}
	if slices.ContainsFunc(demands, func(k demand) bool { return k.account < 0 }) {
		return false
	}
	units := c.cohorts[c.cohortAt(j.queue)].units
	at, _ := slices.BinarySearchFunc(units, j, func(u holding, j *job) int { return byKey(u.job, j) })
	for at < len(units) && units[at].job == j {
		at++
	}
	// What those before it take is either their sum, or all without those after it: add up
	// the fewer.
	first, last, by := at, len(units), Milli(-1)
	c.before = c.before[:0]
	for _, k := range demands {
		c.before = append(c.before, c.dealt[k.account])
	}
	if at < len(units)-at {
		first, last, by = 0, at, 1
		clear(c.before)
	}
	for i := first; i < last; i++ {
		if u := &units[i]; u.within {
			for _, k := range u.demands {
				if n := slices.IndexFunc(demands, func(d demand) bool { return d.account == k.account }); n >= 0 {
					c.before[n] += by * k.amount
				}
			}
		}
	}
	for n, k := range demands {
		if !c.bears(k, c.before[n]) {
			return false
		}
	}
	return true
}
