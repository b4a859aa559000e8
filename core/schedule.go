package core

import (
	"cmp"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
)

// Decide makes a scheduling pass and returns what is to be done, in order. The
// slice and what it points to are valid until the next call of the engine.
//
// A pass tries the classes of waiting jobs in the order of their first jobs.
// A class that finds no room is not tried again until something is freed that
// it could use, so that a pass costs what has changed, not what waits.
func (e *Engine) Decide(now Time) []Decision {
	e.now, e.working = now, ""
	e.out, e.places, e.wakes.next = e.out[:0], e.places[:0], Never
	for _, d := range e.ending {
		d.Pods = slices.DeleteFunc(d.Pods, func(p Placement) bool { return e.jobs[d.Job].pods[p.Pod].state != podLeaving })
		if len(d.Pods) > 0 {
			e.out = append(e.out, d)
		}
	}
	e.ending, e.nominations.evictions, e.nominations.plansMade = e.ending[:0], e.nominations.evictions[:0], 0
	e.planner.dropSearches()
	if e.changes.nodes {
		e.assignZone()
		e.forgetShapes()
	}
	e.placer.Learn(e.policy.Placement[:])
	if now >= e.wakes.retry {
		e.wakes.retry = Never
		e.changes.all()
	}
	e.resume(now)
	e.nominations.stays()
	e.nominations.fulfil(now)
	e.reactivate()
	e.changes.begin()
	for again := true; again; again = e.pushedOut(now) || e.nominations.recall(now) {
		if e.policy.Queueing.Mode == StrictFIFO {
			e.passStrict(now)
		} else {
			e.pass(now)
		}
	}
	e.wake(e.wakes.retry)
	if e.wakes.next < e.wakes.pending {
		e.wakes.pending = e.wakes.next
		e.out = append(e.out, Decision{Op: Wake, At: e.wakes.pending})
	}
	e.working = ""
	return e.out
}

// pushedOut files the classes to be tried again that may evict more than when they
// were tried last, as what started since has taken the quota that covered others. It
// reports whether there are any. That comes to an end: see preempt.go.
func (e *Engine) pushedOut(now Time) bool {
	if len(e.waiting.idle) == 0 || len(e.out) == 0 || !e.ledger.Limited() || !e.evicts() {
		return false
	}
	if e.covers.cover(); e.covers.lost == e.covers.seen {
		return false
	}
	e.covers.seen = e.covers.lost
	some := false
	for i := len(e.waiting.idle) - 1; i >= 0; i-- {
		c := e.waiting.idle[i]
		if c.state != classStuck && c.state != classOverrun {
			continue
		}
		e.compile(c)
		j := e.prepare(c.head())
		if _, worth := e.planner.again(j.job, now, false); worth && e.planner.mayEvict(j, false) {
			e.waiting.setClass(c, classActive)
			some = true
		}
	}
	return some
}

// evicts reports whether jobs evict others, so that it matters what quota covers.
func (e *Engine) evicts() bool { return e.policy.Preempt.Priority || e.policy.Preempt.Reclaim }

// wakes is when the driver is asked to call again, without an event.
type wakes struct {
	pending Time // the Wake that was asked for, Never when there is none
	next    Time // the one that the current pass asks for
	retry   Time // when more may be evicted than at the last pass
}

// wake asks for a Tick at t.
func (e *Engine) wake(t Time) {
	if t > e.now {
		e.wakes.next = min(e.wakes.next, t)
	}
}

// retry asks for another pass at t, when more may be evicted than now.
func (e *Engine) retry(t Time) {
	e.wakes.retry = min(e.wakes.retry, t)
	e.wake(t)
}

// resume queues the jobs whose pause is over.
func (e *Engine) resume(now Time) {
	for len(e.waiting.paused.items) > 0 {
		j := e.waiting.paused.items[0]
		if j.notBefore > now {
			e.wake(j.notBefore)
			return
		}
		e.waiting.paused.remove(j, 0)
		e.enqueue(j, now)
	}
}

// reactivate files the classes to be tried for which something was freed.
func (e *Engine) reactivate() {
	if e.changes.quota && e.ledger.Limited() || e.changes.nodes {
		for i := len(e.waiting.idle) - 1; i >= 0; i-- {
			e.reactivateOne(e.waiting.idle[i])
		}
		return
	}
	if e.changes.pools == 0 {
		return
	}
	e.waiting.woken = e.waiting.woken[:0]
	for m := range e.waiting.stuck {
		if len(e.waiting.stuck[m].items) > 0 && e.freedOn(m) {
			e.waiting.woken = append(e.waiting.woken, e.waiting.stuck[m].items...)
		}
	}
	for _, c := range e.waiting.woken {
		e.reactivateOne(c)
	}
}

// freedOn reports whether something was freed on nodes of a model.
func (e *Engine) freedOn(model int) bool {
	for p, m := range e.runs.poolModels() {
		if m == model && e.changes.pools>>(uint(p)%64)&1 == 1 {
			return true
		}
	}
	return false
}

// reactivateOne files a class that waits to be tried if it could use what was
// freed.
func (e *Engine) reactivateOne(c *class) {
	switch c.state {
	case classStuck:
		switch {
		case e.changes.less && !c.possible, // an empty cluster may not hold it any more
			(e.changes.nodes || c.pools&e.changes.pools != 0 || c.short && e.changes.quota) && e.mayStart(c):
			e.waiting.setClass(c, classActive)
		case e.changes.nodes:
			e.waiting.setClass(c, classStuck) // it may use other models now
		}
	case classOverrun:
		if e.changes.quota || e.changes.nodes {
			e.waiting.setClass(c, classActive)
		}
	case classRejected:
		if e.changes.nodes {
			e.waiting.setClass(c, classActive)
		}
	}
}

// mayStart reports whether a job of the class may find room, or enough to evict. False is
// certain, true is not.
func (e *Engine) mayStart(c *class) bool {
	e.compile(c)
	j := e.prepare(c.head())
	return e.placer.MayFit(j.unit) || e.planner.mayEvict(j, false)
}

// pass lets every job that fits start, in order (BestEffortFIFO, Backfill), those
// that would borrow last: else the owner of a quota, tried after them, would have
// to evict them again. Before others pass a first job that does not fit, those
// that passed it earlier are evicted for it, if it is time: what is started now
// would only be evicted next.
func (e *Engine) pass(now Time) {
	helped := e.policy.Queueing.Mode != Backfill
	for len(e.waiting.active.items)+len(e.waiting.borrowers.items) > 0 {
		c, within := e.nextOf(&e.waiting.active)
		if e.compile(c); !helped && e.passes(c.head()) {
			helped = true
			e.helpHeads(now)
			continue
		}
		e.try(c, c.head(), now, within)
	}
	if e.policy.Queueing.Mode == Backfill {
		e.helpHeads(now)
	}
}

// passStrict starts jobs in order until one does not fit (StrictFIFO), those that
// would borrow last: one that does not fit holds up all that would, and one within
// nominal quota all others. Jobs without quota wait in their own queue and hold
// nobody up (Kant §3.2.2).
func (e *Engine) passStrict(now Time) {
	for len(e.waiting.ready.items)+len(e.waiting.borrowers.items) > 0 {
		c, within := e.nextOf(&e.waiting.ready)
		if c.state == classStuck && !e.outOfQuota(c) || !e.try(c, c.head(), now, within) && c.state == classStuck {
			break
		}
	}
	for len(e.waiting.borrowers.items) > 0 {
		c := e.waiting.borrowers.items[0]
		e.waiting.borrowers.remove(c, 0)
		e.waiting.ready.push(c)
	}
}

// outOfQuota reports whether the first job of a class lacks quota, which others may
// have taken since it was tried.
func (e *Engine) outOfQuota(c *class) bool {
	e.compile(c)
	return e.prepare(c.head()).overrun()
}

// nextOf returns the first class of a heap whose first job would be within nominal
// quota, else the first of the borrowers. Those of the heap that come before it go
// to the borrowers. One of the two heaps has a class.
func (e *Engine) nextOf(h *heap[*class]) (c *class, within bool) {
	for len(h.items) > 0 {
		c := h.items[0]
		if !e.borrows(c.head()) {
			return c, true
		}
		e.waiting.postpone(c)
	}
	return e.waiting.borrowers.items[0], false
}

// postpone puts a class off until those that would be within nominal quota have
// been tried.
func (w *waiting) postpone(c *class) {
	w.active.remove(c, c.at[0])
	w.ready.remove(c, c.at[1])
	w.borrowers.push(c)
}

// borrows reports whether a waiting job (one pod of it when it starts pod by pod)
// can start only beyond the nominal quota of its queue.
func (e *Engine) borrows(j *job) bool {
	if !j.queue.Limited() {
		return false
	}
	e.compile(j.class)
	return e.prepare(j).lacks(j.queue.NominalRoom)
}

// try lets a job start what it can and files its class by the outcome, or puts it
// off: within says that it would be within nominal quota, and starts no more than
// that. It reports whether anything was decided for the job.
func (e *Engine) try(c *class, j *job, now Time, within bool) bool {
	e.compile(c)
	w := e.prepare(j)
	u := w.unit
	if w.overrun() {
		if e.evictFor(w, now, false) {
			return true
		}
		e.waiting.setClass(c, classOverrun)
		return false
	}
	if within && j.queue.Limited() {
		u.Room = func(m string) Milli { return min(j.room(m), j.queue.OwnRoom(m)) }
	}
	n := e.start(j, u, now)
	if n <= 0 && within && w.mayBorrow() {
		// The turn of those that borrow comes after that of those within quota. But under
		// StrictFIFO no later job passes one that is within, on another model or with other
		// pods: it keeps its turn.
		if e.policy.Queueing.Mode != StrictFIFO {
			e.waiting.postpone(c)
			return false
		}
		w = e.prepare(j)
		u = w.unit
		n = e.start(j, u, now)
	}
	c.exhausted = u.Whole && n == 0 && e.placer.Exhausted()
	if n > 0 {
		return true
	}
	if n == 0 && !c.possible {
		if e.placer.TooLarge(u).Lack != place.NoLack {
			e.reject(c)
			return false
		}
		c.possible = true
	}
	c.short = n < 0 || w.shortSomewhere(j.room) || e.evicts() && w.shortSomewhere(j.queue.NominalRoom)
	if e.evictFor(w, now, false) {
		return true
	}
	e.waiting.setClass(c, classStuck)
	return false
}

// reject says of all jobs of a class that no cluster of these nodes holds them. One of
// which pods run, or have, waits for the rest: it was no mistake to submit it.
func (e *Engine) reject(c *class) {
	e.waiting.setClass(c, classRejected)
	jobs := slices.Clone(c.jobs.items)
	slices.SortFunc(jobs, func(a, b *job) int { return cmp.Compare(a.key.seq, b.key.seq) })
	for _, j := range jobs {
		if !j.rejected && j.count[podRunning]+j.count[podLeaving]+j.count[podDone] == 0 {
			j.rejected = true
			e.out = append(e.out, Decision{Op: Reject, Job: j.Name, Reason: NoNode})
		}
	}
}

// forgetShapes drops what was compiled for the nodes as they were and is kept by
// classes without jobs, which may not come back: it grows with the cluster. What
// fitted the nodes may no longer do so.
func (e *Engine) forgetShapes() {
	for _, c := range e.waiting.classes {
		c.possible = c.possible && !e.changes.less
		if len(c.jobs.items) == 0 {
			c.shapes = nil
		}
	}
}

// compile makes sure that the class's shapes match the nodes.
func (e *Engine) compile(c *class) {
	e.working = c.head().Name
	if c.shapes != nil && c.epoch == e.state.Epoch() {
		return
	}
	j := c.head()
	c.shapes, c.epoch, c.pools, c.models = c.shapes[:0], e.state.Epoch(), 0, c.models[:0]
	for t := range j.Tasks {
		c.shapes = append(c.shapes, e.placer.Shape(e.request(j, t)))
	}
	for i, m := range e.runs.poolModels() {
		for _, sh := range c.shapes {
			if sh.Accepts(e.state.Pools()[i]) {
				c.pools |= 1 << (uint(i) % 64)
				if !slices.Contains(c.models, m) {
					c.models = append(c.models, m)
				}
			}
		}
	}
}

// prepare describes a waiting job to the placer. The unit is valid until the
// next call.
func (e *Engine) prepare(j *job) candidate { return e.prepareTurn(j, anyTurn) }

// prepareTurn is prepare for a part of the job.
func (e *Engine) prepareTurn(j *job, at turn) candidate {
	e.working = j.Name
	u := &e.unit
	*u = place.Unit{
		Job: j.slot, Strategy: e.policy.Placement[j.Kind], Whole: j.whole(),
		Inference: j.Kind == Inference, Exclusive: e.policy.Zone.Exclusive,
		Required: -1, Preferred: -1, Spread: len(j.pods) > 1,
	}
	terms := e.constrained(j)
	if terms && len(e.nominations.filling)+len(e.nominations.going) > 0 {
		u.Absent = e.nominations.absent(j)
	}
	u.Left = e.nominations.leftBy(j)
	u.Required = e.level(j.Topology.Required)
	u.Home, u.Joins = e.home(j)
	if j.Gang {
		u.Preferred = e.level(j.Topology.Preferred)
		u.OneModel = true
	}
	if j.queue.Limited() {
		u.Room = j.room
	}
	e.tasks = e.tasks[:0]
	e.iota = e.iota[:0]
	for t := range j.Tasks {
		e.tasks = append(e.tasks, place.Task{Shape: e.shapeOf(j, t, at.model)})
	}
	for t := range j.Tasks {
		task := &j.Tasks[t]
		from, most := len(e.iota), task.Pods
		lo, hi := j.span(t)
		if u.Whole {
			most = task.Least()
			for i := lo; i < hi; i++ {
				if p := &j.pods[i]; int(p.task) == t && (p.state == podDone || p.state == podRunning) {
					most-- // a member that is done, or runs already, needs no place
				}
			}
		}
		for i := lo; i < hi && len(e.iota)-from < most && (at.task < 0 || at.task == t); i++ {
			if p := &j.pods[i]; p.state == podWaiting && int(p.task) == t {
				e.iota = append(e.iota, int32(i))
			}
		}
		e.tasks[t].Pods = e.iota[from:len(e.iota):len(e.iota)]
	}
	u.Tasks = e.tasks
	if terms {
		e.addTerms(j, u)
	}
	return candidate{j, u}
}

// shapeOf returns the shape of a task's waiting pods, on one GPU model if it is named and
// they accept it.
func (e *Engine) shapeOf(j *job, t int, m string) *place.Shape {
	sh := j.class.shapes[t]
	if m != "" && sh.GPU() > 0 && slices.Contains(sh.Models(), m) {
		r := *e.request(j, t)
		r.Models = []string{m}
		return e.placer.Shape(&r)
	}
	return sh
}

// home returns the domain of the required level in which the job has pods, and false
// when it has none or none is required; the first one's that is known, should nodes have
// changed their places. Pods that leave count, and those with places kept: the others of
// a job that is no gang may start meanwhile. A gang waits for both.
func (e *Engine) home(j *job) (int32, bool) {
	if j.Topology.Required == "" || !j.placed() && j.count[podLeaving] == 0 {
		return 0, false
	}
	has := false
	for i := range j.pods {
		p := &j.pods[i]
		if p.state != podRunning && (j.Gang || p.state != podLeaving && !p.kept()) {
			continue
		}
		if d := e.state.Domain(p.alloc.Node, e.level(j.Topology.Required)); d >= 0 {
			return d, true
		}
		has = true
	}
	return -1, has
}

// base returns the model on which pods of the gang run that name none and need GPUs:
// those still to come join them there. "" when none runs. O(pods) at worst.
func (e *Engine) base(j *job) string {
	if !j.Gang || j.count[podRunning] == 0 {
		return ""
	}
	for i := range j.pods {
		p := &j.pods[i]
		if t := &j.Tasks[p.task]; p.state == podRunning && t.GPU > 0 && len(t.Models) == 0 {
			return e.state.Pool(p.alloc.Node).Model
		}
	}
	return ""
}

// request returns what a waiting pod of a task asks for now.
func (e *Engine) request(j *job, t int) *Request {
	r := &j.Tasks[t].Request
	if base := e.base(j); base != "" && r.GPU > 0 && len(r.Models) == 0 {
		joins := *r
		joins.Models = []string{base}
		return &joins
	}
	return r
}

func (e *Engine) level(name string) int {
	if name == "" {
		return -1
	}
	l, ok := e.state.Level(name)
	if !ok {
		return -1
	}
	return l
}

// helpHeads evicts backfilled pods for the first job that waits for a GPU model
// when it has waited too long, and for the first that lacks quota (Kant §3.2.2,
// Table 1).
func (e *Engine) helpHeads(now Time) {
	if !e.policy.Preempt.Backfill {
		return
	}
	for m := range e.waiting.stuck {
		for len(e.waiting.stuck[m].items) > 0 && e.helpOne(e.waiting.stuck[m].items[0].head(), now) {
		}
	}
	if e.ledger.Limited() {
		for j := e.waiting.firstOverrun(); j != nil && e.helpOne(j, now); j = e.waiting.firstOverrun() {
		}
	}
}

// passes reports whether a job that starts now passes an earlier one that waits
// for a GPU model of its own.
func (e *Engine) passes(j *job) bool {
	for _, m := range j.class.models {
		if s := e.waiting.stuckOn(m).items; len(s) > 0 && s[0].head() != j && s[0].head().key.before(&j.key) {
			return true
		}
	}
	return false
}

func (e *Engine) helpOne(j *job, now Time) bool {
	if due := cluster.Plus(j.since, e.policy.Queueing.HeadWait); now < due {
		e.wake(due)
		return false
	}
	if _, worth := e.planner.again(j, now, true); !worth {
		return false
	}
	e.compile(j.class)
	return e.evictFor(e.prepare(j), now, true)
}

// firstOverrun returns the first job that waits for quota, nil without any.
func (w *waiting) firstOverrun() *job {
	var first *job
	for _, c := range w.idle {
		if c.state == classOverrun && (first == nil || c.head().key.before(&first.key)) {
			first = c.head()
		}
	}
	return first
}
