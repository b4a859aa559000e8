package core

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/defrag"
)

// A plan by which pods only move may have several waves: a pod goes where another one is now,
// which moves first. Each wave fits when it is made, while all of its pods hold both places. The moves of
// a wave begin in the pass after the last one of the wave before has ended.
//
// Until then nothing takes the places that later waves need: their nodes are closed, and so are
// those of the job's own places that are not free yet. The job gets no place before the last wave
// has begun, as the waves were found to fit without it. The pods that move later are not chosen as
// victims, as if they moved already.
//
// Each move is checked again before it begins. If one of a wave cannot begin, a move fails, or the
// job or a place is lost, the moves that have not begun are given up, with all that was kept for them;
// those that have begun go on. If a pod ends that was to move later, the plan goes on without it.

// inWaves adds to a plan the places of all pods that were found to move, in waves, and of the job, as a
// trial. nil if one of them has none, or the plan costs too much.
func (ps *pass) inWaves(j candidate, pods *relocatable, found []defrag.Move, p *roomPlan) *roomPlan {
	for len(found) > 0 {
		n := slices.IndexFunc(found, func(m defrag.Move) bool { return m.Wave != found[0].Wave })
		if n < 0 {
			n = len(found)
		}
		for _, m := range found[:n] {
			v, i := ps.jobs.slots[m.Pod.Job], int(m.Pod.Pod)
			to, ok := ps.moves.on(v, i, m.To)
			if !ok || m.Wave > 0 && v.labelled() {
				return nil // what its labels need or forbid may be otherwise when its wave begins
			}
			p.moves = append(p.moves, relocation{v, i, to, m.Wave})
			p.cost += gpuTime(v.gpu(&v.pods[i]), moveTime)
			ps.state.Place(m.Pod, to)
		}
		if !ps.nominations.upheld() {
			return nil
		}
		for _, m := range found[:n] {
			ps.state.Remove(m.Pod, m.From)
		}
		found = found[n:]
	}
	if p.cost >= pods.limit || len(p.moves) > pods.most {
		return nil
	}
	return ps.startsAfter(j, p)
}

// await keeps the new place of a move of a later wave.
func (ms *moves) await(m *move) {
	m.later = true
	ms.state.Close(m.to.Node)
	m.lead.later++
	ms.follow(m)
}

// nextWave begins the next wave of a plan, if no move of the wave before is under way: all moves
// of it, or none, and then the plan is given up.
func (ms *moves) nextWave(n *nomination) {
	var left, begun []*move
	for _, m := range ms.all {
		if m.lead == n && !m.later {
			return
		}
		if m.lead == n {
			left = append(left, m)
		}
	}
	ok := ms.nominations.stillHolds(n)
	for _, m := range left {
		ok = ok && !m.job.disruptionProtected && !m.job.labelled()
	}
	for _, m := range left {
		ms.working = m.job.Name
		if m.wave != left[0].wave || !ok {
			break
		}
		ms.letGo(m)
		ok = ms.state.Holds(&m.to)
		if ok {
			ms.hold(m)
			begun = append(begun, m)
		} else {
			ms.over(m)
		}
	}
	if !ok {
		for _, m := range begun {
			ms.abandon(m)
		}
		ms.giveUp(n)
		ms.nominations.settlePlaces(n)
		return
	}
	for _, m := range begun {
		ms.decide(m)
	}
	if n.later == 0 {
		ms.nominations.settlePlaces(n)
	}
}

// giveUp ends the moves of a plan, if it is one, that have not begun.
func (ms *moves) giveUp(n *nomination) {
	for _, m := range slices.Clone(ms.all) {
		if n != nil && m.lead == n && m.later {
			ms.abandon(m)
		}
	}
}

// needs reports whether a plan counts on a node: places there are kept for the job, or for a later wave.
func (ns *nominations) needs(n *nomination, node cluster.NodeID) bool {
	return slices.ContainsFunc(n.job.pods, func(p pod) bool {
		return p.kept() && (p.alloc.Node == node || ns.state.Home(p.alloc.Node) == node)
	}) || n.later > 0 && slices.ContainsFunc(ns.moves.all, func(m *move) bool { return m.lead == n && m.later && m.to.Node == node })
}

// inWaves says how many moves for the job have not begun, if any.
func (n *nomination) inWaves() string {
	if n.later == 0 {
		return ""
	}
	return fmt.Sprintf(" (in later waves: %d)", n.later)
}

// movesNow counts the pods of the job that are being moved now.
func (j *job) movesNow() int {
	count := 0
	for i := 0; j.moving > 0 && i < len(j.pods); i++ {
		if m := j.pods[i].move(); m != nil && !m.later {
			count++
		}
	}
	return count
}

// settlePlaces gives a nominated job those of its places that are free now.
func (ns *nominations) settlePlaces(n *nomination) {
	for i := range n.job.pods {
		if p := &n.job.pods[i]; p.state == podPlanned {
			ns.settleNode(p.alloc.Node)
		}
	}
	ns.state.Commit()
}
