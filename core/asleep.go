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
	bound bound // of its first job, if it is awake
	// world and epoch are those in which the rest was found; epoch is 0 if nothing was.
	world, epoch uint64
	first        key // of its first job
	shape        *place.Shape
	version      uint64 // of the cohort of its queue
	simpleNeed
	state  classState
	pinned bool
	pools  uint64
	unsearched
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
	*ic = idleClass{class: c, state: c.state, first: c.first}
	j := c.head()
	if j.queue != c.id.queue || j.nomination != nil || c.moving > 0 || ps.expected.slot > 0 {
		return // there is more to it
	}
	ic.world, ic.epoch, ic.unsearched = ps.changes.world, c.epoch, until
	ic.shape, ic.pinned, ic.pools = c.shapes[0], j.pinned, c.pools
	ic.simpleNeed, _ = c.simple()
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

// sight is what decides for all idle classes of a queue for how long no search is worth a try.
type sight struct {
	*quota.Queue
	changes uint64 // that count for it
	version uint64 // of its cohort
}

// sightOf returns what is to be seen of a queue now; nothing of nil.
func (ps *pass) sightOf(q *idleQueue) sight {
	s := sight{Queue: q.queue}
	if q.queue == nil {
		return s
	}
	s.changes = ps.runs.changed() + ps.shares.gains(q.queue)
	if int(q.cohort) < len(ps.entitlement.cohorts) {
		s.version = ps.entitlement.cohorts[q.cohort].version
	}
	return s
}

// idleClasses yields the idle classes with what is to be seen of their queues, as [idleClasses.all] does. What becomes of those that
// are yielded changes nothing of that.
func (ps *pass) idleClasses() iter.Seq2[sight, *idleClass] {
	return func(yield func(sight, *idleClass) bool) {
		ps.waiting.slots = ps.waiting.slots[:0]
		for n := len(ps.waiting.idle.queues) - 1; n >= 0; n-- {
			q := ps.waiting.idle.queues[n]
			s := ps.sightOf(q)
			for i := len(q.classes) - 1; i >= 0; i-- {
				if !yield(s, &q.classes[i]) {
					return
				}
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
		c.unowed && c.gpu <= q.ClaimRoom(c.model, q.Queue):
		return false
	}
	return q.changes < c.changes
}

// look says what is known of an idle class of a queue. It asks for another pass when a class that is asleep may no longer be, by time.
func (ps *pass) look(q *sight, c *idleClass) wakefulness {
	if !ps.unsearched(q, c) {
		return unknown
	}
	room := q.RoomNow(c.model)
	if c.pinned {
		room = q.PinnedRoom(c.model)
	}
	switch lacks := room < c.gpu; {
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

// restate files an idle class for which no search is worth a try, and which lacks quota now in place of room, or the other way round,
// by that, as a try would; false if only a try tells.
func (ps *pass) restate(q *sight, c *idleClass, lacks bool) bool {
	k := c.class
	if ps.waiting.strict || k.due || k.moving > 0 || c.state != classStuck && c.state != classOverrun || ps.packs.any(k.head()) {
		return false
	}
	state := classOverrun
	if !lacks {
		moves := ps.policy.Room.MaxMoves > 0
		if !k.possible || moves && ps.planner.freeIn(c.pools) >= c.gpu {
			return false
		}
		state, c.free = classStuck, math.MaxInt64
		if moves {
			c.free = c.gpu
		}
		k.exhausted, k.short = false, ps.policy.Preempt.evicts() && q.NominalRoom(c.model) < c.gpu
	}
	k.trimmed = false
	ps.waiting.restate(k, state)
	return true
}

// view is what decides for the classes of a queue that are awake what bounds their jobs, and for how long those of them that were asleep
// when wake saw them are: as long as it is the same, and the queue's room is in the same range for them (dozing). Within the wakes of a pass, no room
// is freed for what found none.
type view struct {
	pass, world, epoch uint64
	version, freed     uint64
	model              string
	quota.Standing
}

// dozing is what wake found of the classes of a queue that are awake: how many there were, whether all of them were asleep, and the first turn of
// those. The same ones lack quota with all room from some on and below some; from so many changes on, a search may be worth a try for one.
type dozing struct {
	awake       int
	all         bool
	first       turnOf
	from, below Milli
	changes     uint64
}

// viewOf returns how a queue is seen now.
func (ps *pass) viewOf(q *sight, model string) view {
	return view{
		pass: ps.waiting.rounds.pass, world: ps.changes.world, epoch: ps.state.Epoch(), version: q.version, freed: ps.changes.freed,
		model: model, Standing: q.Standing(model),
	}
}

// unchanged reports whether what wake found of the classes of the queue that need the model of its view holds.
func (queue *idleQueue) unchanged(q *sight, now view) bool {
	room, d := q.RoomNow(now.model), &queue.dozing
	return now == queue.view && d.from <= room && room < d.below && q.changes < d.changes
}

// doze notes that a class of the queue that is awake is asleep now.
func (queue *idleQueue) doze(q *sight, c *idleClass) {
	if c.dozes = !c.pinned && c.model == queue.view.model; !c.dozes {
		queue.dozing.all = false
		return
	}
	d := &queue.dozing
	if t := (turnOf{c.bound, c.first, c.class}); d.first.class == nil || t.before(&d.first) {
		d.first = t
	}
	d.changes = min(d.changes, c.changes)
	if room := q.RoomNow(c.model); room < c.gpu {
		d.below = min(d.below, c.gpu)
	} else {
		d.from = max(d.from, c.gpu)
	}
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
	reactivated := aw.wave == 0 // just now: nothing has happened since
	if aw.plans == ps.nominations.plansMade || aw.wave == 0 {
		aw.wave = max(1, aw.wave*waveGrowth)
	}
	aw.some, aw.dozing, aw.plans, aw.changes = false, false, ps.nominations.plansMade, math.MaxUint64
	wave := heap[turnOf]{moved: func(turnOf, int) {}, less: func(a, b turnOf) bool { return b.before(&a) }} // the last one on top
	ps.waiting.slots = ps.waiting.slots[:0]
	for _, queue := range ps.waiting.idle.queues {
		// 1. Is it as it was? If all of its classes that are awake are asleep still, and none has had its turn meanwhile, they need no look.
		d := &queue.dozing
		q, same := sight{}, false
		if queue.view.pass == ps.waiting.rounds.pass {
			if d.awake == 0 {
				continue
			}
			q = ps.sightOf(queue)
			same = queue.unchanged(&q, ps.viewOf(&q, queue.view.model))
			if same && d.all && (ps.waiting.turn.class == nil || !d.first.before(&ps.waiting.turn)) {
				aw.dozing = true
				aw.changes = min(aw.changes, d.changes-ps.shares.gains(q.Queue))
				continue
			}
		}
		// 2. Else those of which that is known need none.
		viewed := same
		d.awake, d.all, d.first = 0, true, turnOf{}
		for i := range queue.classes {
			c := &queue.classes[i]
			if !c.awake {
				continue
			}
			if !viewed {
				q, viewed = ps.sightOf(queue), true
				queue.view = ps.viewOf(&q, c.model)
				d.from, d.below, d.changes = math.MinInt64, math.MaxInt64, math.MaxUint64
			}
			known := same && c.model == queue.view.model
			if !known && !reactivated {
				c.bound = ps.units.boundIn(q.Queue, c.lacks, c.bound)
			}
			if c.awake = ps.waiting.untried(c); !c.awake {
				continue
			}
			d.awake++
			if known && c.dozes || !reactivated && ps.look(&q, c) == asleep {
				queue.doze(&q, c)
				aw.dozing = true
				aw.changes = min(aw.changes, c.changes-ps.shares.gains(q.Queue))
				continue
			}
			c.dozes, d.all = false, false
			t := turnOf{c.bound, c.first, c.class}
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
		if !viewed {
			queue.view = view{pass: ps.waiting.rounds.pass} // none is awake
		}
	}
	for _, t := range wave.items {
		ps.file(t)
	}
}

// allTried notes that all classes that were awake have had their turns.
func (ps *pass) allTried() {
	if !ps.awake.dozing {
		return
	}
	ps.awake.dozing = false
	for c := range ps.waiting.idle.all() {
		c.awake = false
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

// lacks reports whether a queue has too little room for what is needed.
func (n *simpleNeed) lacks(room func(model string) Milli) bool { return room(n.model) < n.gpu }
