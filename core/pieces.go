package core

import "github.com/muster-sched/muster/core/defrag"

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
	if !ps.maySearch() {
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
	s := pl.newSearch(searchOf{})
	pl.gather(s, c, true)
	c.later.note(s.due)
	s.sort()

	// 1. The cheapest victims leave, until enough is free by count and no quota lacks. Then those
	// that are left, if that leaves no way.
	c.candidate = ps.units.prepareTurn(c.job, c.turn)
	if !c.unit.Whole {
		onePod(c.unit)
	}
	var gone []victim
	next := 0
	for ; next < len(s.victims) && (c.overrun() || pl.indebted(c, gone) || pl.freeFor(c.class) < c.needed()); next++ {
		gone = append(gone, s.victims[next])
		pl.lift(&s.victims[next])
	}
	if len(gone) == 0 || c.overrun() || pl.indebted(c, gone) || pl.freeFor(c.class) < c.needed() {
		return nil
	}
	pods := &relocatable{
		movablePods: movablePods{Engine: ps.Engine}, of: c.job, now: ps.now, restarts: true, cover: c.cover,
		near: ps.affinities.constrain(c.job), most: ps.policy.Room.MaxMoves, limit: ps.policy.Room.mostCost(c.candidate), due: &c.later.more, lifted: true,
	}
	options := defrag.Options{MaxMoves: ps.policy.Room.MaxMoves, Stop: true}
	found, ok := defrag.MakeRoom(ps.state, ps.placer, pods, c.unit, options)
	if !ok && next < len(s.victims) {
		for ; next < len(s.victims); next++ {
			gone = append(gone, s.victims[next])
			pl.lift(&s.victims[next])
		}
		found, ok = defrag.MakeRoom(ps.state, ps.placer, pods, c.unit, options)
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
