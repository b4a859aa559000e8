package core

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/defrag"
)

// This file makes room for a job whose queue owns what it needs, where what is free and what
// borrowers hold is in pieces: one plan by which borrowers leave and others go on elsewhere. Two
// nodes of four GPUs run two GPUs of the other queue each, within its quota, and one of them a
// borrower of one GPU. The owner of the other four GPUs gets a node: the borrower leaves, and one
// of the others restarts on the other node.
//
// The borrowers are evicted by the rules of preempt.go, the others go elsewhere by those of
// room.go, if the policy allows restarts: without them, one move that fails would make all of the
// evictions vain. So the reasons why plans come to an end hold: the evictions make the set of jobs within
// quota greater, and what goes on elsewhere changes neither set.

// reclaimPieces makes such a plan and decides it. It is for a job for which evictions alone do not
// make room, nor moves and restarts alone. It reports whether it made one.
func (ps *pass) reclaimPieces(j *job) bool {
	// 1. Is a search worth a try, is there enough by count, and is it allowed now?
	if !ps.reclaimsPieces(j) {
		return false
	}
	this, worth := ps.planner.again(j, ps.now, forPieces)
	if !worth {
		return false
	}
	if ps.policy.Preempt.Delay == 0 && ps.entitlement.stillUncovered(j) {
		return false
	}
	w := ps.units.prepare(j)
	if w.needed() == 0 || !ps.planner.mayEvict(w, false) || ps.tooSoon(j) {
		return false
	}
	if ps.entitlement.update(); !ps.entitlement.covers(w) {
		return false
	}
	if !ps.maySearch(j) {
		ps.wakes.retryAt(ps.now, ps.searchAgain())
		return false
	}

	// 2. The whole gang, or each task by itself, on all models and then on each.
	later := outlook{Never, Never}
	for _, at := range ps.planner.turns(w) {
		w := ps.units.prepareTurn(j, at)
		c := preemptor{
			candidate: w, turn: at, now: ps.now, later: &later, cover: ps.entitlement.coverOf(w), short: w.overrun(),
		}
		if c.cover == uncovered {
			continue
		}
		c.owes = w.lacks(c.room(nil))
		drawn := ps.placer.Drawn()
		p := ps.piecesPlan(c)
		ps.state.Rollback(0)
		ps.planner.dropLifted()
		ps.placer.Redraw(drawn)
		if p != nil && ps.nominations.relocate(j, p) {
			return true
		}
	}

	// 3. Failed.
	ps.failed(j, forPieces, this, later)
	return false
}

// reclaimsPieces reports whether the policy makes such plans, and the job may have one.
func (ps *pass) reclaimsPieces(j *job) bool {
	owned := ps.policy.Preempt.Reclaim && j.queue.Limited() && j.nomination == nil && !j.NeverPreempts
	return owned && ps.policy.Room.MaxMoves > 0 && ps.policy.Room.Restarts
}

// piecesPlan looks for a plan, as a trial that the caller takes back; nil if there is none.
func (ps *pass) piecesPlan(c preemptor) *roomPlan {
	pl := &ps.planner
	s, debt := pl.borrowers(c)
	defer func() { pl.spareSearches = append(pl.spareSearches, s) }()

	// 1. The cheapest victims leave, until enough is free by count and no quota lacks. Then those
	// that are left, if that leaves no way.
	c.candidate = ps.units.prepareTurn(c.job, c.turn)
	if !c.unit.Whole {
		onePod(c.unit)
	}
	var gone []victim
	for c.overrun() || pl.indebted(c, gone) || pl.freeFor(c.class) < c.needed() {
		n := len(gone)
		if n == len(s.victims) && !pl.lookAtMore(s, 3*n+fewVictims) || debt && s.victims[n].byCover {
			return nil
		}
		gone = append(gone, s.victims[n])
		pl.lift(&s.victims[n])
	}
	if len(gone) == 0 {
		return nil
	}
	pods := &relocatable{
		movablePods: movablePods{Engine: ps.Engine}, of: c.job, now: ps.now, restarts: true, cover: c.cover,
		near: ps.affinities.constrain(c.job), most: ps.policy.Room.MaxMoves, limit: ps.policy.Room.mostCost(c.candidate), due: &c.later.more, lifted: true,
	}
	options := defrag.Options{MaxMoves: ps.policy.Room.MaxMoves, Stop: true}
	makeRoom := func() (defrag.Plan, bool) { return defrag.MakeRoom(ps.state, ps.placer, pods, c.unit, options) }
	found, ok := makeRoom()
	if !ok {
		rest := slices.Concat(s.victims[len(gone):], pl.others(s))
		oneModel := len(c.class.accepts()) == 1 // so that the job has quota there
		if len(rest) == 0 || oneModel && !pl.withoutAll(rest, func() bool { _, ok := makeRoom(); return ok }) {
			return nil
		}
		slices.SortFunc(rest, func(a, b victim) int { return a.cheaper(&b) })
		for k := range rest {
			gone = append(gone, rest[k])
			pl.lift(&rest[k])
		}
		found, ok = makeRoom()
	}
	if !ok || len(found.Moves) == 0 {
		return nil
	}

	// 2. Those go elsewhere that are in the way, and the job has its place.
	p := ps.relocations(c.candidate, pods, found.Moves, &roomPlan{at: c.turn, cover: c.cover, gone: whole(gone)})
	if p == nil || !pl.keepsToQuota(c, p.placed, p.gone) {
		return nil
	}

	// 3. Victims that are not in the way stay, as far as all of this holds with them.
	c.candidate = ps.units.prepareTurn(c.job, c.turn)
	if !c.unit.Whole {
		onePod(c.unit)
	}
	p.gone = pl.spareNeedless(c, c.unit, p.placed, p.gone)
	pl.giveReasons(c, p.placed, p.gone)
	ps.nominations.weigh(draft{job: c.job, placed: p.placed, gone: p.gone})
	ok = ps.nominations.upheld()
	ps.nominations.weigh(draft{})
	if !ok || len(p.gone) == 0 {
		return nil
	}
	return p
}

// borrowers begins a search for what may be evicted for a job, the cheapest first. debt says that the job's queue gives back too little for
// others to leave as the job is covered.
func (pl *planner) borrowers(c preemptor) (s *search, debt bool) {
	if !pl.cheapestFirst(c) {
		s = pl.newSearch(searchOf{})
		pl.gather(s, c, true)
		c.later.note(s.due)
		s.sort()
		return s, false
	}
	// Of 18,000 victims, most plans need a few, or all in no order. When those are due that are too young is known without a look at the others.
	young := pl.newSearch(searchOf{})
	young.due = Never
	pl.trial++
	pl.gatherListed(young, &c, true)
	c.later.note(young.due)
	pl.spareSearches = append(pl.spareSearches, young)
	if c.owes {
		alone := c
		alone.later = &outlook{Never, Never}
		debt = !pl.mayRepay(alone)
	}
	s = pl.newSearch(searchOf{})
	pl.lookAhead(s, c, nil)
	return s, debt
}

// withoutAll reports what a trial finds while victims are off their nodes, too. It leaves their quota in use: to return that of thousands, and to
// take it again, costs more than the trial.
func (pl *planner) withoutAll(victims []victim, trial func() bool) bool {
	mark := pl.state.Mark()
	var off []*pod
	for k := range victims {
		v := &victims[k]
		for i := range v.pods {
			if p := &v.job.pods[i]; !p.lifted {
				pl.state.Remove(cluster.Owner{Job: v.job.slot, Pod: int32(i)}, p.alloc.Node)
				p.lifted = true
				off = append(off, p)
			}
		}
	}
	ok := trial()
	pl.state.Rollback(mark)
	for _, p := range off {
		p.lifted = false
	}
	return ok
}
