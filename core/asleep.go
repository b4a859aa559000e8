package core

import (
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/quota"
)

// Thousands of classes may wait of which a try would decide nothing: they are asleep. This file notes what would have to change
// first, so that a pass finds out with a few comparisons that it need not try them.
//
// When something ends, many of them may fit by count, and after the first start none of them any longer. Those are awake. They
// are filed to be tried a few at a time, in the order of their turns.
//
// A class that is asleep may be visited all the same: that decides nothing, and changes nothing.

// idleClass is a class that is not to be tried for now. What says for how long is beside it: of thousands of classes a pass
// reads that and little else, as most of its time would be memory that is not in the processor's caches.
type idleClass struct {
	class *class
	awake bool
	// world and epoch are those in which the rest was found; epoch is 0 if nothing was.
	world, epoch uint64
	first        key // of its first job
	queue        *quota.Queue
	shape        *place.Shape
	cohort       int32 // of the queue, which was in this version
	version      uint64
	simpleNeed
	state  classState
	pinned bool
	pools  uint64
	unsearched
}

// unsearched says for how long no search is worth a try: until so many changes are counted, a time has come, so much is free that
// moves may help, or, of a job that is uncovered, units of its cohort have changed.
type unsearched struct {
	changes   uint64
	at        Time
	free      Milli
	uncovered bool
}

// sleep notes of an idle class that a try would decide nothing, and for how long no search is worth one.
func (ps *pass) sleep(c *class, until unsearched) {
	ic := &ps.waiting.idle[c.idle]
	*ic = idleClass{class: c}
	j := c.head()
	if ps.policy.fair() || j.queue.FairUsers || j.nomination != nil || c.moving > 0 || ps.expected.slot > 0 {
		return // there is more to it
	}
	ic.world, ic.epoch, ic.unsearched = ps.changes.world, c.epoch, until
	ic.first, ic.queue, ic.shape, ic.pinned, ic.pools, ic.state = c.first, j.queue, c.shapes[0], j.pinned, c.pools, c.state
	ic.simpleNeed, _ = c.simple()
	if until.uncovered {
		ic.cohort, ic.version = ps.entitlement.cohortAt(j.queue), c.uncovered.version
	}
}

// wakefulness is what is known of an idle class without a visit.
type wakefulness uint8

const (
	unknown wakefulness = iota // only a visit tells
	asleep                     // a try would decide nothing
	fits                       // by count there is room for its first job, and quota
)

// look says what is known of an idle class. It asks for another pass when a class that is asleep may no longer be, by time.
func (ps *pass) look(c *idleClass) wakefulness {
	if c.epoch == 0 || c.world != ps.changes.world || c.epoch != ps.state.Epoch() || ps.now >= c.at || ps.runs.changed() >= c.changes ||
		c.uncovered && ps.entitlement.cohorts[c.cohort].version != c.version {
		return unknown
	}
	room := c.queue.RoomNow(c.model)
	if c.pinned {
		room = c.queue.PinnedRoom(c.model)
	}
	slots := c.shape.SlotsInAll() >= c.pods
	switch {
	case room >= c.gpu && slots:
		return fits
	case (room < c.gpu) != (c.state == classOverrun), c.state == classStuck && ps.planner.freeIn(c.pools) >= c.free:
		return unknown
	}
	ps.wakes.retryAt(ps.now, c.at)
	return asleep
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
	some bool
	// wave is how many were filed to be tried last time in this pass, and next where the first one of the others came then.
	wave  int
	next  turnOf
	visit []*class // scratch memory
}

// waveGrowth is by how much more classes are filed to be tried each time: what the first ones leave, few others can use.
const waveGrowth = 8

// wake files the first ones of the classes that are awake, and still fit, to be tried.
func (ps *pass) wake() {
	aw := &ps.awake
	aw.some, aw.wave, aw.visit = false, max(1, aw.wave*waveGrowth), aw.visit[:0]
	wave := heap[turnOf]{moved: func(turnOf, int) {}, less: func(a, b turnOf) bool { return b.before(&a) }} // the last one on top
	for i := range ps.waiting.idle {
		c := &ps.waiting.idle[i]
		if !c.awake {
			continue
		}
		found := ps.look(c)
		if c.awake = found == fits; found == unknown {
			aw.visit = append(aw.visit, c.class)
		}
		if !c.awake {
			continue
		}
		t := turnOf{ps.units.boundIn(c.queue, c.lacks, own), c.first, c.class}
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
	for i := range wave.items {
		ps.waiting.setClass(wave.items[i].class, classActive)
	}
	for _, c := range aw.visit {
		if !ps.settle(c, c.head()) {
			ps.waiting.setClass(c, classActive)
		}
	}
}

// lacks reports whether a queue has too little room for what is needed.
func (n *simpleNeed) lacks(room func(model string) Milli) bool { return room(n.model) < n.gpu }
