package core

import (
	"iter"
	"math"

	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/quota"
)

// Thousands of classes may wait of which a try would decide nothing: they are asleep. This file notes what would have to change
// first, so that a pass finds out with a few comparisons that it need not try them.
//
// When something ends, many of them may fit by count, and after the first start none of them any longer. Those are awake. They
// are filed to be tried a few at a time, in the order of their turns. Those that fit no longer are looked at again before their turns
// if the pass has made a plan, as that may give back quota, or if enough has started.
//
// A class that is asleep may be visited all the same: that decides nothing, and changes nothing. Where quota comes back without room, such as that
// of pods that are to leave, thousands of classes lack room in place of quota at once: they are filed by that without a visit (restate).

// idleClass is a class that is not to be tried for now. What says for how long is beside it: of thousands of classes a pass
// reads that and little else, as most of its time would be memory that is not in the processor's caches.
type idleClass struct {
	class *class
	awake bool
	dozes bool  // it is awake, and when wake saw it last, it was asleep
	model int32 // its number, if the jobs may use that one alone, else -1
	bound bound // of its first job, if it is awake
	// world and epoch are those in which the rest was found; epoch is 0 if nothing was.
	world, epoch uint64
	first        key // of its first job
	shape        *place.Shape
	version      uint64 // of the cohort of its queue
	simpleNeed
	state    classState
	possible bool // see class.possible
	pools    uint64
	unsearched
}

// newIdle returns a class that is not to be tried for now, of which nothing else was found.
func newIdle(c *class) idleClass {
	ic := idleClass{class: c, state: c.state, first: c.first, model: -1}
	if len(c.models) == 1 {
		ic.model = int32(c.models[0])
	}
	return ic
}

// unsearched says for how long no search is worth a try: until so many changes are counted, a time has come, so much is free that
// moves may help, its queue is owed enough for a job that was not owed that (unowed) or, of a job that is uncovered, what covers
// units of its cohort has changed.
type unsearched struct {
	changes   uint64
	at        Time
	free      Milli
	unowed    bool
	uncovered bool
}

// sleep notes of an idle class that a try would decide nothing, and for how long no search is worth one.
func (ps *pass) sleep(c *class, until unsearched) {
	ic := c.idleAs()
	*ic = newIdle(c)
	c.idleIn.calm = calm{}
	j := c.head()
	need, simple := c.simple()
	if !simple || need.model != c.idleIn.model || j.pinned != c.idleIn.pinned || j.queue != c.idleIn.queue || j.nomination != nil || c.moving > 0 || ps.expected.slot > 0 {
		return // there is more to it
	}
	ic.world, ic.epoch, ic.unsearched = ps.changes.world, c.epoch, until
	ic.shape, ic.possible, ic.pools, ic.simpleNeed = c.shapes[0], c.possible, c.pools, need
	if until.uncovered {
		ic.version, c.idleIn.cohort = c.uncovered.version, ps.entitlement.cohortAt(j.queue)
	}
}

// wakefulness is what is known of an idle class without a visit.
type wakefulness uint8

const (
	unknown wakefulness = iota // only a visit tells
	asleep                     // a try would decide nothing
	fits                       // by count there is room for its first job, and quota
)

// sight is what decides for all idle classes of a list whether they have quota, and for how long no search is worth a try.
type sight struct {
	*idleQueue
	gains   uint64 // see shares.gains
	changes uint64 // that count for the queue
	version uint64 // of its cohort
	room    Milli  // of the model, for jobs like theirs
}

// sightOf returns what is to be seen of a queue now; nothing of nil. The room is for [pass.withRoom].
func (ps *pass) sightOf(q *idleQueue) sight {
	s := sight{idleQueue: q}
	if q.queue == nil {
		return s
	}
	s.gains = ps.shares.gains(q.queue)
	s.changes, s.version = ps.runs.changed()+s.gains, ps.versionOf(q)
	return s
}

// versionOf returns the version of the cohort of a list.
func (ps *pass) versionOf(q *idleQueue) uint64 {
	if int(q.cohort) >= len(ps.entitlement.cohorts) {
		return 0
	}
	return ps.entitlement.cohorts[q.cohort].version
}

// withRoom is sightOf with the room.
func (ps *pass) withRoom(q *idleQueue) sight {
	s := ps.sightOf(q)
	s.room = q.room()
	return s
}

// room returns how much more of the model jobs like those of the list may use now.
func (q *idleQueue) room() Milli {
	switch {
	case q.queue == nil:
		return 0
	case q.pinned:
		return q.queue.PinnedRoom(q.model)
	}
	return q.queue.RoomNow(q.model)
}

// idleLists yields the lists of idle classes, the last ones first, as [idleClasses.all] does.
func (ps *pass) idleLists() iter.Seq[*idleQueue] {
	return func(yield func(*idleQueue) bool) {
		ps.waiting.slots = ps.waiting.slots[:0]
		for n := len(ps.waiting.idle.queues) - 1; n >= 0; n-- {
			if !yield(ps.waiting.idle.queues[n]) {
				return
			}
		}
	}
}

// unsearched reports whether no search is worth a try for an idle class of a queue, but for moves if there is room for them; false is
// not certain.
func (ps *pass) unsearched(q *sight, c *idleClass) bool {
	switch {
	case c.epoch == 0 || c.world != ps.changes.world || c.epoch != ps.state.Epoch() || ps.now >= c.at,
		c.uncovered && q.version != c.version,
		c.unowed && c.gpu <= q.queue.ClaimRoom(q.model, q.queue):
		return false
	}
	return q.changes < c.changes
}

// calm is for how long no search is worth a try for any class of a list, as [unsearched] is for one; but of those that are
// not owed, owed is what the least of them needs.
type calm struct {
	world, epoch, version uint64
	uncovered, unowed     bool
	changes               uint64
	at                    Time
	owed                  Milli
}

// calmed notes whether no search is worth a try for any class of a list.
func (ps *pass) calmed(q *sight) bool {
	now := calm{world: ps.changes.world, epoch: ps.state.Epoch(), version: q.version, changes: math.MaxUint64, at: Never, owed: math.MaxInt64}
	for i := range q.classes {
		c := &q.classes[i]
		if !ps.unsearched(q, c) {
			return false
		}
		now.changes, now.at, now.uncovered = min(now.changes, c.changes), min(now.at, c.at), now.uncovered || c.uncovered
		if c.unowed {
			now.unowed, now.owed = true, min(now.owed, c.gpu)
		}
	}
	q.calm = now
	return true
}

// isCalm reports whether no search is worth a try for any class of a list; false is not certain.
func (ps *pass) isCalm(q *sight) bool {
	c := &q.calm
	return c.epoch != 0 && c.world == ps.changes.world && c.epoch == ps.state.Epoch() && (!c.uncovered || c.version == q.version) && ps.now < c.at && q.changes < c.changes &&
		(!c.unowed || c.owed > q.queue.ClaimRoom(q.model, q.queue))
}

// look says what is known of an idle class of a queue. It asks for another pass when a class that is asleep may no longer be, by time.
func (ps *pass) look(q *sight, c *idleClass) wakefulness {
	if !ps.unsearched(q, c) {
		return unknown
	}
	switch lacks := q.room < c.gpu; {
	case !lacks && ps.slotsOf(c.shape) >= c.pods:
		return fits
	case lacks != (c.state == classOverrun):
		if !ps.restate(q, c, lacks) {
			return unknown
		}
	case c.state == classStuck && ps.planner.freeIn(c.pools) >= c.free:
		return unknown
	}
	ps.wakes.retryAt(ps.now, c.at)
	return asleep
}

// slotsOfShape is how many pods of a shape all nodes hold, by GPUs alone.
type slotsOfShape struct {
	*place.Shape
	slots int
}

// slotsOf returns how many pods of a shape all nodes hold, by GPUs alone, while a pass looks at the idle classes: thousands have a few shapes.
func (ps *pass) slotsOf(sh *place.Shape) int {
	for i := range ps.waiting.slots {
		if ps.waiting.slots[i].Shape == sh {
			return ps.waiting.slots[i].slots
		}
	}
	n := sh.SlotsInAll()
	if len(ps.waiting.slots) < mostShapes {
		ps.waiting.slots = append(ps.waiting.slots, slotsOfShape{sh, n})
	}
	return n
}

// mostShapes is of how many shapes a pass keeps that.
const mostShapes = 16

// restate notes of an idle class for which no search is worth a try, and which lacks quota now in place of room, or the other way round,
// by that, as a try would; false if only a try tells.
func (ps *pass) restate(q *sight, c *idleClass, lacks bool) bool {
	k := c.class // it is not in the processor's caches: as a rule nothing is read of it
	someDue, someMove := len(ps.waiting.rounds.turns) > 0, ps.longTerm.ledger != nil
	if ps.waiting.strict || someDue && k.due || someMove && k.moving > 0 || c.state != classStuck && c.state != classOverrun ||
		ps.policy.Packing.On && ps.packs.any(k.head()) {
		return false
	}
	state := classOverrun
	if !lacks {
		moves := ps.policy.Room.MaxMoves > 0
		if !c.possible || moves && ps.planner.freeIn(c.pools) >= c.gpu {
			return false
		}
		state, c.free = classStuck, math.MaxInt64
		if moves {
			c.free = c.gpu
		}
		k.exhausted, k.short = false, true // what a class needs that can be said simply counts in reactivateOne, not this
	}
	k.trimmed = false
	ps.waiting.restate(k, state)
	return true
}

// view is what decides for the classes of a list that are awake what bounds their jobs, and for how long those of them that were asleep
// when wake saw them are: as long as it is the same, and the queue's room is in the same range for them. Within the wakes of a pass, no room
// is freed for what found none.
type view struct {
	pass, world, epoch uint64
	version, freed     uint64
	quota.Standing
}

// seen is what wake found of the classes of a list that are awake, when it was seen so.
type seen struct {
	view
	gains uint64
	room  Milli
	atTop [2]Milli // when that was the room
	// How many were asleep, and the first turn of those. The same ones lack quota with all room from some on and below some; from so many
	// changes on, a search may be worth a try for one.
	dozing      int
	dozed       turnOf
	from, below Milli
	changes     uint64
	// How many others there were, the first turn of those, and what that class needs.
	others int
	next   turnOf
	shape  *place.Shape
	simpleNeed
}

// begin forgets what was found of a list, and notes how it is seen now.
func (ps *pass) begin(q *sight) {
	q.seen = seen{
		gains: q.gains, room: q.room, atTop: ps.ledger.AtTop(q.model), from: math.MinInt64, below: math.MaxInt64, changes: math.MaxUint64,
		view: view{
			pass: ps.waiting.rounds.pass, world: ps.changes.world, epoch: ps.state.Epoch(), version: q.version, freed: ps.changes.freed,
			Standing: q.queue.Standing(),
		},
	}
}

// unchanged reports whether a list is seen as it was in this pass, and what was found of those of its classes that were asleep holds: none of them has had
// its turn. It finds out what room there is now.
func (ps *pass) unchanged(q *idleQueue) bool {
	s := &q.seen
	if s.pass != ps.waiting.rounds.pass || s.world != ps.changes.world || s.epoch != ps.state.Epoch() || s.freed != ps.changes.freed || s.version != ps.versionOf(q) ||
		!s.Holds() || ps.runs.changed()+s.gains >= s.changes || s.dozing > 0 && !ps.yetToCome(&s.dozed) {
		return false
	}
	if atTop := ps.ledger.AtTop(q.model); s.atTop != atTop {
		if i, plain := q.queue.Plain(q.model); plain && !q.pinned {
			s.room += s.atTop[i] - atTop[i]
		} else {
			s.room = q.room()
		}
		s.atTop = atTop
	}
	return s.from <= s.room && s.room < s.below
}

// doze notes that a class that is awake is asleep now.
func (q *sight) doze(c *idleClass) {
	s := &q.seen
	c.dozes = true
	if t := (turnOf{c.bound, c.first, c.class}); s.dozing == 0 || t.before(&s.dozed) {
		s.dozed = t
	}
	s.dozing++
	s.changes = min(s.changes, c.changes)
	if q.room < c.gpu {
		s.below = min(s.below, c.gpu)
	} else {
		s.from = max(s.from, c.gpu)
	}
}

// await notes that a class is awake, and returns its turn.
func (q *sight) await(c *idleClass) turnOf {
	s, t := &q.seen, turnOf{c.bound, c.first, c.class}
	c.dozes = false
	if s.others++; s.others == 1 || t.before(&s.next) {
		s.next, s.shape, s.simpleNeed = t, c.shape, c.simpleNeed
	}
	return t
}

// turnOf is where a class comes among those that are tried.
type turnOf struct {
	bound bound
	first key
	class *class
}

func (t *turnOf) before(o *turnOf) bool {
	return t.bound.before(o.bound) || t.bound == o.bound && t.first.before(&o.first)
}

// awakeClasses are the idle classes that are awake.
type awakeClasses struct {
	// some says that a try of some may decide something. dozing says that one of others would decide nothing, but may when their
	// turn comes.
	some, dozing bool
	// wave is how many were filed to be tried last time in this pass, and next where the first one of the others came then.
	wave int
	next turnOf
	// plans is how many plans the pass had made then: what evictions give back may be the quota that those lack that are dozing.
	// From so many changes on, a search may be worth a try for one of them.
	plans   int
	changes uint64
}

// waveGrowth is by how much more classes are filed to be tried each time: what the first ones leave, few others can use.
const waveGrowth = 8

// due reports whether classes that are awake may come before the next turn of those that are filed to be tried; without a class,
// there is none.
func (ps *pass) due(t *turnOf) bool {
	aw := &ps.awake
	if aw.dozing && (aw.plans != ps.nominations.plansMade || ps.runs.changed() >= aw.changes) {
		return true
	}
	return aw.some && (t.class == nil || aw.wave == 0 || aw.next.before(t))
}

// wake files the first ones of the classes that are awake to be tried: of those of which a try may decide something. A class has
// one turn in a pass. So the state in which it waits is found when its turn has come, or earlier, but not later.
//
// After a plan, or a start, little is new for most queues: where it is not, what was found of their classes holds.
func (ps *pass) wake() {
	aw := &ps.awake
	if aw.plans == ps.nominations.plansMade || aw.wave == 0 {
		aw.wave = max(1, aw.wave*waveGrowth)
	}
	aw.some, aw.dozing, aw.plans, aw.changes = false, false, ps.nominations.plansMade, math.MaxUint64
	wave := heap[turnOf]{moved: func(turnOf, int) {}, less: func(a, b turnOf) bool { return b.before(&a) }} // the last one on top
	ps.waiting.slots = ps.waiting.slots[:0]
	for _, queue := range ps.waiting.idle.queues {
		s := &queue.seen
		if s.pass == ps.waiting.rounds.pass && s.dozing+s.others == 0 {
			continue
		}
		// If the list is as it was, and the first one of those that were not asleep may be tried still, but comes after the wave, so do all of them.
		known := ps.unchanged(queue)
		if known && ps.waiting.known != nil {
			ps.waiting.known(ps, queue)
		}
		switch {
		case !known || s.others > 0 && (!ps.yetToCome(&s.next) || !ps.fitsNow(s) || len(wave.items) < aw.wave || s.next.before(&wave.items[0])):
			ps.lookAtAwake(queue, known, &wave)
		case s.others > 0 && (!aw.some || s.next.before(&aw.next)):
			aw.some, aw.next = true, s.next
		}
		if s.dozing > 0 {
			aw.dozing = true
			aw.changes = min(aw.changes, s.changes-s.gains)
		}
	}
	for _, t := range wave.items {
		ps.file(t)
	}
}

// yetToCome reports whether a turn has not come yet in this pass.
func (ps *pass) yetToCome(t *turnOf) bool {
	return ps.waiting.turn.class == nil || !t.before(&ps.waiting.turn)
}

// fitsNow reports whether by count there are room and quota for the class of a list that comes next.
func (ps *pass) fitsNow(s *seen) bool {
	return s.room >= s.gpu && ps.slotsOf(s.shape) >= s.pods
}

// lookAtAwake adds classes of a list that are awake to the wave, as long as it has room for them or they come before others there, and notes what it
// finds. Of known ones, those that were asleep are, and the bounds are the same.
func (ps *pass) lookAtAwake(list *idleQueue, known bool, wave *heap[turnOf]) {
	aw, sight := &ps.awake, ps.withRoom(list)
	q := &sight
	if q.seen.dozing, q.seen.others = 0, 0; !known {
		q.seen = seen{view: view{pass: ps.waiting.rounds.pass}}
	}
	viewed := known
	for i := range q.classes {
		c := &q.classes[i]
		if !c.awake {
			continue
		}
		if !viewed {
			viewed = true
			ps.begin(q)
		}
		if !known {
			c.bound = ps.boundFor(q, c.gpu, c.bound)
		}
		if c.awake = ps.waiting.untried(c); !c.awake {
			continue
		}
		if known && c.dozes || ps.look(q, c) == asleep {
			q.doze(c)
			continue
		}
		t := q.await(c)
		if len(wave.items) < aw.wave {
			wave.push(t)
			continue
		}
		if last := wave.items[0]; t.before(&last) {
			wave.items[0] = t
			wave.down(0)
			t = last
		}
		if !aw.some || t.before(&aw.next) {
			aw.some, aw.next = true, t
		}
	}
}

// boundFor is [units.boundIn] for a job of a list that needs so much.
func (ps *pass) boundFor(q *sight, gpu Milli, from bound) bound {
	return ps.units.tightest(from, func(depth int) bool { return q.queue.RoomWithin(q.model, depth) < gpu }, func() bool { return q.queue.OwedRoom(q.model) < gpu })
}

// allTried notes that all classes that were awake have had their turns.
func (ps *pass) allTried() {
	if !ps.awake.dozing {
		return
	}
	ps.awake.dozing = false
	for _, queue := range ps.waiting.idle.queues {
		queue.seen = seen{}
		for i := range queue.classes {
			queue.classes[i].awake = false
		}
	}
}

// untried reports whether an idle class that is awake has not had its turn yet in this pass.
func (w *waiting) untried(c *idleClass) bool {
	t := turnOf{bound: c.bound, first: c.first}
	return c.awake && (w.turn.class == nil || !t.before(&w.turn))
}

// file files a class to be tried in its turn.
func (ps *pass) file(t turnOf) {
	ps.waiting.setClass(t.class, classActive)
	if t.bound != own {
		ps.waiting.postpone(t.class, t.bound)
	}
}
