package core

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// Decide makes a scheduling pass and returns what must be done, in order. The
// slice and what it points to are valid until the next call of the engine.
//
// A pass tries the classes of waiting jobs in the order of their first jobs.
// A class that finds no room is not tried again until something is freed that
// it could use, so that a pass costs what has changed, not what waits.
func (e *Engine) Decide(now Time) []Decision {
	e.now, e.working, e.inquiry = now, "", nil
	e.out, e.places, e.wakes.next = e.out[:0], e.places[:0], Never
	e.waiting.rounds.pass++
	e.expected.advance(now)
	e.longTerm.advance(now)
	ps := pass{Engine: e, now: now}

	// 1. What no queue owns is lent, or what of it has gone is lent no longer. Gangs that broke since
	// the last pass, or have had too few pods for too long, must stop, as far as pods of them have not left already. Moves that were begun,
	// and restarts that were requested, are decided. So is what follows from failures that were diagnosed. Windows of standby end.
	e.unowned.lend()
	e.recovery.run(now)
	e.staleGangs.stop(now)
	e.suspensions.run(now)
	e.tellBroken()
	e.moves.tell()
	e.nominations.restartAsked()
	e.standbys.run(now)
	e.packs.cancel()
	e.alternatives.run(now)

	// 2. What depends on the nodes, on the mix of requests and on time.
	e.planner.dropSearches()
	e.dropAmounts()
	if e.changes.nodes {
		e.assignZone()
		e.waiting.forgetShapes(e.changes.less)
	}
	e.placer.Learn(e.policy.Placement[:])
	if s := e.policy.CPUOnly.Strategy; s != nil {
		e.placer.Learn([]place.Strategy{*s})
	}
	if now >= e.wakes.retry {
		e.wakes.retry = Never
		e.changes.all()
	}

	// 3. Jobs that count against other bounds than before, or may start on other nodes after a failure, are filed in other classes. Jobs whose
	// pause is over wait again, plans whose victims have left are bound, and
	// classes that could use what was freed are tried again.
	e.refile(now)
	e.recovery.weighAll(now)
	ps.resume()
	e.nominations.begin()
	e.nominations.fulfil(now)
	e.longTerm.begin()
	ps.reactivate()
	ps.takeTurns()
	e.changes.begin()

	// 4. Jobs start or make plans, in order. They do again as long as a start has pushed others
	// beyond quota, which may be evicted now, or an eviction turned out needless.
	for again := true; again; again = ps.pushedOut() || ps.lessReserved() || ps.newHosts() || e.nominations.recall(now) {
		if e.policy.Queueing.Mode == StrictFIFO {
			ps.strictly()
		} else {
			ps.inOrder()
		}
	}

	e.suspensions.decide(now)

	// 5. Pods move so that whole nodes are free. What waits has had its turn: it starts on what
	// is free now.
	e.defragmenter.run(now)

	// 6. The next call without an event.
	if len(e.waiting.rounds.turns) > 0 {
		e.wakes.at(now, cluster.Plus(now, roundPause))
	}
	e.wakes.at(now, e.wakes.retry)
	e.alternatives.wake(now)
	if e.wakes.next < e.wakes.pending {
		e.wakes.pending = e.wakes.next
		e.out = append(e.out, Decision{Op: Wake, At: e.wakes.pending})
	}
	e.working = ""
	return e.out
}

// pass is the current scheduling pass.
type pass struct {
	*Engine
	now   Time
	awake awakeClasses
}

// pushedOut files the classes to be tried again that may evict more than when they were
// tried last, as jobs that started since took the quota within which others were. It reports
// whether there are any. That comes to an end: see preempt.go.
func (ps *pass) pushedOut() bool {
	if ps.waiting.idle.count == 0 || len(ps.out) == 0 || !ps.ledger.Limited() || !ps.policy.Preempt.evicts() {
		return false
	}
	// Is any pod beyond quota now that was within it?
	if ps.entitlement.update(); ps.entitlement.lost == ps.entitlement.seen {
		return false
	}
	ps.entitlement.seen = ps.entitlement.lost
	return ps.mayEvictMore()
}

// mayEvictMore files the classes to be tried again that may evict more than when they were tried
// last, and reports whether there are any.
func (ps *pass) mayEvictMore() bool {
	some := false
	for list := range ps.idleLists() {
		q := ps.sightOf(list)
		if ps.isCalm(&q) || ps.calmed(&q) {
			continue
		}
		for ic := range list.all() {
			if ic.state != classStuck && ic.state != classOverrun || ps.unsearched(&q, ic) {
				continue
			}
			c := ic.class
			if c.due || ps.takesTurn(c) {
				continue
			}
			if _, worth := ps.planner.again(c.head(), ps.now, forAny); !worth {
				continue
			}
			ps.units.compile(c)
			if ps.planner.mayEvict(ps.units.prepare(c.head()), false) {
				ps.waiting.setClass(c, classActive)
				some = true
			}
		}
	}
	return some
}

// lessReserved files the classes of jobs without GPUs to be tried again on whose nodes GPUs came
// into use since they were tried: the cores that were kept for those are free. It reports whether
// there are any. That comes to an end, as starts of such jobs take no GPUs.
func (ps *pass) lessReserved() bool {
	taken := ps.changes.taken
	ps.changes.taken = 0
	if taken == 0 || ps.policy.CPUOnly.Reserve == 0 {
		return false
	}
	some := false
	for ic := range ps.waiting.idle.all() {
		if c := ic.class; c.state == classStuck && c.pools&taken != 0 && c.head().GPUs() == 0 {
			some = ps.waiting.retry(c) || some
		}
	}
	return some
}

// wakes is when the driver must call again, without an event.
type wakes struct {
	pending Time // the Wake that the driver was sent, Never if none is
	next    Time // the one that the current pass asks for
	retry   Time // when more may be evicted than at the last pass
}

// at asks for a Tick at t, if that is later than now.
func (w *wakes) at(now, t Time) {
	if t > now {
		w.next = min(w.next, t)
	}
}

// retryAt asks for another pass at t, when more may be evicted than now.
func (w *wakes) retryAt(now, t Time) {
	w.retry = min(w.retry, t)
	w.at(now, t)
}

// resume files the jobs whose pause is over.
func (ps *pass) resume() {
	for len(ps.waiting.paused.items) > 0 {
		j := ps.waiting.paused.items[0]
		if j.notBefore > ps.now {
			ps.wakes.at(ps.now, j.notBefore)
			return
		}
		ps.waiting.paused.remove(j, 0)
		ps.waiting.enqueue(j, ps.now)
	}
}

// reactivate files the classes to be tried for which something was freed, or whose queues are owed more, or others
// less.
func (ps *pass) reactivate() {
	if ps.shares.count() && ps.policy.Preempt.Reclaim && ps.waiting.idle.count > 0 && ps.shares.moved() {
		ps.mayEvictMore()
	}

	// 1. Less runs where queues bound that: classes that wait for it.
	if ps.changes.bounds {
		for ic := range ps.waiting.idle.all() {
			if c := ic.class; c.state == classBounded || c.state == classStuck && c.trimmed {
				ps.waiting.retry(c)
			}
		}
	}

	// 2. Quota or nodes changed, or any room where quotas count: every class may be concerned,
	// those that lack quota, too.
	if (ps.changes.quota || ps.changes.pools != 0) && ps.ledger.Limited() || ps.changes.nodes {
		ps.entitlement.update()
		ps.waiting.turn = turnOf{}
		waves := !ps.waiting.strict && !ps.policy.CountsGPUTime() // else the order is another one
		for list := range ps.idleLists() {
			ps.reactivateAll(ps.withRoom(list), waves && (list.queue == nil || !list.queue.FairUsers))
		}
		return
	}
	if ps.changes.pools == 0 {
		return
	}

	// 3. Only room was freed: the classes that are stuck on the models of those pools.
	for m := range ps.runs.loads {
		if !ps.freedOn(m) {
			continue
		}
		for c := range ps.waiting.idle.all() {
			if c.stuckOn(m) {
				ps.reactivateOne(c.class)
			}
		}
	}
}

// reactivateAll is reactivateOne for the classes of a list. Those that fit by count are awake, if they may be tried in waves.
func (ps *pass) reactivateAll(q sight, waves bool) {
	crowds, begun := ps.waiting.rounds.crowds > 0 && !ps.waiting.strict, false
	q.seen.pass, q.seen.dozing, q.seen.others = ps.waiting.rounds.pass, 0, 0
	for c := range q.all() {
		if crowds && c.class.due {
			continue
		}
		switch found := ps.look(&q, c); {
		case found == fits && waves:
			if !begun {
				begun = true
				ps.begin(&q)
			}
			c.awake, ps.awake.some = true, true
			c.bound = ps.boundFor(&q, c.gpu, own)
			q.await(c)
		case found != asleep:
			ps.reactivateOne(c.class)
		}
	}
}

// freedOn reports whether something was freed on nodes of a model.
func (ps *pass) freedOn(model int) bool {
	for p, m := range ps.runs.poolModels() {
		if m == model && ps.changes.pools>>(uint(p)%64)&1 == 1 {
			return true
		}
	}
	return false
}

// reactivateOne files a class to be tried again if it could use what was freed.
func (ps *pass) reactivateOne(c *class) {
	if c.due && !ps.waiting.strict {
		return
	}
	roomFreed := c.pools&ps.changes.pools != 0
	// Most are hopeless. What they need is compiled for other nodes if those have changed, the first job may be another one by now
	// under [LongTermFairness], and a job that is put off holds up no others.
	waits := c.state == classStuck || c.state == classOverrun
	if waits && !ps.changes.nodes && c.moving == 0 && ps.expected.slot == 0 && ps.settle(c, c.head()) {
		return
	}
	if waits && (ps.changes.quota || ps.changes.nodes || roomFreed) && ps.takesTurn(c) {
		return
	}
	switch c.state {
	case classStuck:
		// If nodes became smaller, an empty cluster may no longer hold it: it is tried, to be
		// rejected, as it would hold up others under StrictFIFO.
		tooLargeNow := ps.changes.less && !c.possible
		_, simple := c.simple()
		freedForIt := ps.changes.nodes || roomFreed || (c.short || simple) && ps.changes.quota
		switch {
		case tooLargeNow, freedForIt && ps.mayStart(c):
			ps.waiting.setClass(c, classActive)
		case ps.changes.nodes:
			ps.waiting.setClass(c, classStuck) // it may use other models now
		}
	case classOverrun:
		// Room counts as well: once there is some, evictions may give it the quota.
		if ps.changes.quota || ps.changes.nodes || roomFreed {
			ps.waiting.setClass(c, classActive)
		}
	case classRejected:
		if ps.changes.nodes {
			ps.waiting.retry(c)
		}
	}
}

// mayStart reports whether a job of the class may find room, or enough to evict. False is
// certain, true is not.
func (ps *pass) mayStart(c *class) bool {
	if c.head().suspended != nil {
		return true
	}
	ps.units.compile(c)
	j := ps.units.prepare(c.head())
	return ps.placer.MayFit(j.unit) || ps.packs.any(c.head()) || ps.planner.mayEvict(j, false) || ps.mayConsolidate(j)
}

// inOrder lets every job that fits start, in order (BestEffortFIFO, Backfill), those that
// would borrow last, and of those the ones that borrow from the nearest queues first: else the
// owner of the quota, tried after them, would evict them again.
// Before a job overtakes a first one that has waited too long, preemptForHeads makes room for
// that one: what started past it now would only be evicted next.
func (ps *pass) inOrder() {
	ps.postponeAll()
	helped := ps.policy.Queueing.Mode != Backfill || ps.policy.CountsGPUTime()
	for {
		c, b := ps.nextOf(&ps.waiting.active)
		if c == nil && ps.takeTurns() {
			continue
		}
		if c == nil {
			break
		}
		if ps.waitsForTurn(c) {
			continue
		}
		if ps.units.compile(c); !helped && ps.waiting.overtakes(c.head()) {
			helped = true
			ps.preemptForHeads()
			continue
		}
		had := c.hasTurn
		if !ps.try(c, c.head(), b) {
			ps.waiting.rounds.tried(c, had)
		}
	}
	if ps.policy.Queueing.Mode == Backfill {
		ps.preemptForHeads()
	}
	ps.repair()
}

// postponeAll puts off the classes whose first jobs would borrow before any is tried. Within a pass, what bounds a class gets only
// looser: what evictions give back is there for the next pass, and no job comes earlier for it now.
func (ps *pass) postponeAll() {
	for _, c := range slices.Clone(ps.waiting.active.items) {
		if b := ps.units.boundOf(c.head(), own); b != own {
			ps.waiting.postpone(c, b)
		}
	}
}

// strictly starts jobs in order until one does not fit (StrictFIFO), those that would borrow
// last: a borrower that does not fit holds up the other borrowers, a job within nominal quota
// that does not fit holds up all. Jobs without quota wait in their own queue and hold up no
// others (Kant §3.2.2).
func (ps *pass) strictly() {
	for {
		c, b := ps.nextOf(&ps.waiting.ready)
		if c == nil {
			break
		}
		// A class that is stuck already is not tried again. It holds up the others unless it has
		// lost its quota to one of them since: a job without quota waits in its own queue.
		if c.state == classStuck && !ps.outOfQuota(c) {
			break
		}
		if started := ps.try(c, c.head(), b); !started && c.state == classStuck {
			break
		}
	}
	// Those that were not tried keep their places for the next pass.
	for len(ps.waiting.borrowers.items) > 0 {
		c := ps.waiting.borrowers.items[0]
		ps.waiting.borrowers.remove(c, 0)
		ps.waiting.ready.push(c)
		ps.turns.join(c)
	}
}

// outOfQuota reports whether the first job of a class lacks quota, or a bound keeps it from starting:
// others may have taken what there was since it was tried.
func (ps *pass) outOfQuota(c *class) bool {
	ps.units.compile(c)
	w := ps.units.prepare(c.head())
	_, crowded := w.crowded()
	return crowded || w.overrun()
}

// nextOf returns the first class of a heap whose first job would be within nominal
// quota, else the first of the borrowers, and what bounds its first job now; nil if there is none. Those of the
// heap that come before it go to the borrowers. Classes that are awake are filed to be tried as their turn comes.
func (ps *pass) nextOf(h *heap[*class]) (*class, bound) {
	for {
		c, b := ps.firstOf(h)
		t := turnOf{bound: b, class: c}
		if c != nil {
			t.first = c.first
		}
		if !ps.due(&t) {
			if ps.waiting.turn = t; c == nil {
				ps.allTried()
			}
			return c, b
		}
		ps.wake()
	}
}

// firstOf is nextOf without the classes that are awake.
func (ps *pass) firstOf(h *heap[*class]) (*class, bound) {
	ps.longTerm.inOrder()
	for len(h.items) > 0 {
		c := ps.turns.next(h.items[0])
		b := ps.units.boundOf(c.head(), own)
		if b == own {
			return c, b
		}
		ps.waiting.postpone(c, b)
	}
	for len(ps.waiting.borrowers.items) > 0 {
		c := ps.turns.next(ps.waiting.borrowers.items[0])
		b := ps.units.boundOf(c.head(), c.bound)
		if b == c.bound {
			return c, b
		}
		ps.waiting.postpone(c, b) // jobs that started since took what was near, or owed
	}
	return nil, bound{}
}

// try lets a job start what it can within a bound and files its class by the outcome, or puts it
// off. It reports whether anything was decided for the job.
func (ps *pass) try(c *class, j *job, b bound) bool {
	ps.units.compile(c)
	if ps.putOff(j) {
		return true
	}
	if ps.settle(c, j) {
		return false
	}
	if j.suspended != nil {
		return ps.resumeAtHome(c, j, b)
	}
	w := ps.units.prepare(j)
	u := w.unit
	if _, crowded := w.crowded(); crowded {
		ps.waiting.setClass(c, classBounded)
		return false
	}
	c.trimmed = ps.units.trimmed

	// 1. Static quota admission (Kant §3.2.1). Evictions may give the job what it lacks.
	if w.overrun() {
		if ps.evictFor(w, false) || ps.reclaimPieces(j) {
			return true
		}
		ps.waiting.setClass(c, classOverrun)
		return false
	}

	// 2. Placement, within nominal quota first. If the job finds room only by borrowing more, or from
	// farther, say on a second model, its turn comes with those that do. Under StrictFIFO it
	// borrows at once: no later job may pass one that borrows less.
	if b != unbound && j.queue.Limited() {
		u.Room = func(m string) Milli { return min(j.room(m), b.room(j.queue, m)) }
	}
	if ps.policy.Packing.First && ps.pack(j, u) {
		return true
	}
	n, exhausted := ps.startUnlessFull(c, j, u)
	if n <= 0 && b != unbound && w.mayBorrow(b) {
		if ps.policy.Queueing.Mode != StrictFIFO {
			ps.waiting.postpone(c, ps.units.looser(b))
			return false
		}
		w = ps.units.prepare(j)
		u = w.unit
		n = ps.start(j, u)
		exhausted = ps.placer.Exhausted()
	}
	c.exhausted = u.Whole && n == 0 && exhausted
	if n > 0 || ps.pack(j, u) {
		return true
	}

	// 3. A job that no empty cluster of these nodes holds waits for nodes alone, and holds
	// no other job up.
	if n == 0 && !c.possible && !c.trimmed {
		if ps.placer.TooLarge(u).Lack != place.NoLack {
			ps.reject(c)
			return false
		}
		c.possible = true
	}

	// 4. Moves, evictions, both; else the class waits for something that it could use.
	w = ps.units.prepare(j)
	if n == 0 && ps.enoughFree(w) {
		if ps.consolidate(w) {
			return true
		}
		w = ps.units.prepare(j)
	}
	c.short = n < 0 || w.shortSomewhere(j.room) || ps.policy.Preempt.evicts() && w.shortSomewhere(j.queue.NominalRoom)
	if ps.evictFor(w, false) || ps.reclaimPieces(j) {
		return true
	}
	ps.waiting.setClass(c, classStuck)
	return false
}

// startUnlessFull is start, unless a class that finds room when this one does has found none in this pass. exhausted says that the
// search for places gave up.
func (ps *pass) startUnlessFull(c *class, j *job, u *place.Unit) (n int, exhausted bool) {
	if ps.longTerm.ledger == nil {
		return ps.start(j, u), ps.placer.Exhausted()
	}
	alike, ok := ps.longTerm.alike(c)
	if ok {
		if exhausted, full := ps.longTerm.full[alike]; full {
			return 0, exhausted
		}
	}
	n = ps.start(j, u)
	exhausted = ps.placer.Exhausted()
	if ok && n == 0 {
		ps.longTerm.full[alike] = exhausted
	}
	return n, exhausted
}

// reject decides for all jobs of a class that these nodes do not hold them, even empty. A job
// with pods that run or have run is not rejected: its other pods wait.
func (ps *pass) reject(c *class) {
	ps.waiting.setClass(c, classRejected)
	jobs := slices.Clone(c.jobs.items)
	slices.SortFunc(jobs, func(a, b *job) int { return cmp.Compare(a.key.seq, b.key.seq) })
	for _, j := range jobs {
		if !j.rejected && j.count[podRunning]+j.count[podLeaving]+j.count[podDone] == 0 {
			j.rejected = true
			ps.out = append(ps.out, Decision{Op: Reject, Job: j.Name, Reason: NoNode})
		}
	}
}

// preemptForHeads evicts backfilled pods for the first job that waits for a GPU model
// when it has waited too long, and for the first that lacks quota (Kant §3.2.2,
// Table 1).
func (ps *pass) preemptForHeads() {
	if !ps.policy.Preempt.Backfill || ps.policy.CountsGPUTime() {
		return
	}
	for m := range ps.runs.loads {
		for c := ps.waiting.firstStuck(m); c != nil && (ps.preemptForHead(c.head()) || ps.preemptForNext(m, c)); c = ps.waiting.firstStuck(m) {
		}
	}
	if ps.ledger.Limited() {
		for j := ps.waiting.firstOverrun(); j != nil && ps.preemptForHead(j); j = ps.waiting.firstOverrun() {
		}
	}
}

// preemptForNext is preemptForHead for the first job that waits for a GPU model, and has quota, if
// others took the quota of those before it since they were tried, such as the first class: these wait for quota, and hold up none.
func (ps *pass) preemptForNext(model int, head *class) bool {
	if !ps.ledger.Limited() || !ps.outOfQuota(head) {
		return false
	}
	var next firstClass
	for c := range ps.waiting.idle.all() {
		if c.stuckOn(model) && (next.class == nil || c.first.before(&next.first)) && c.class != head && !ps.outOfQuota(c.class) {
			next.take(&c.first, c.class)
		}
	}
	return next.class != nil && ps.preemptForHead(next.class.head())
}

// untriedBefore reports whether a job that comes before this one in the order, and waits for a GPU model
// that this one waits for, has not been tried yet in this pass, because it would borrow and this one
// would not. So this one is not the first, though it is the first of those that have been tried: at the
// end of the pass it would not be.
func (ps *pass) untriedBefore(j *job) bool {
	before := func(c *class) bool {
		if !c.head().key.before(&j.key) {
			return false
		}
		ps.units.compile(c)
		return slices.ContainsFunc(c.models, func(m int) bool { return slices.Contains(j.class.models, m) })
	}
	awake := func(c *idleClass) bool { return ps.waiting.untried(c) && (c.class == j.class || before(c.class)) }
	return slices.ContainsFunc(ps.waiting.active.items, before) || slices.ContainsFunc(ps.waiting.borrowers.items, before) ||
		(ps.awake.some || ps.awake.dozing) && ps.waiting.idle.any(awake)
}

// preemptForHead is preemptForHeads for one job. It reports whether a plan was made.
func (ps *pass) preemptForHead(j *job) bool {
	if due := cluster.Plus(j.since, ps.policy.Queueing.HeadWait); ps.now < due {
		ps.wakes.at(ps.now, due)
		return false
	}
	if _, worth := ps.planner.again(j, ps.now, forHead); !worth || ps.untriedBefore(j) {
		return false
	}
	if ps.units.compile(j.class); ps.putOff(j) {
		return true
	}
	w := ps.units.prepare(j)
	if _, crowded := w.crowded(); crowded {
		ps.waiting.setClass(j.class, classBounded)
		return true
	}
	return ps.evictFor(w, true)
}
